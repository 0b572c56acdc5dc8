"""Starting, watching and restarting the roles."""
