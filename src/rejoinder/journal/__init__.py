"""The journal: the relational database that is the spine of the system."""
