"""Word lists of the topic check, as text files."""
