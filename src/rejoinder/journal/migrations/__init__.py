"""Alembic scripts of the journal; ``migrate.py`` runs them inside one transaction."""
