"""The personas that come with the package, one TOML file each, and the words all of them share."""
