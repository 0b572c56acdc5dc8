"""Many small systems as one: policies of one architecture side by side on one device."""
