"""How people say what they think: phrasebooks as data, one file each."""
