"""Alembic's entry: runs on the connection and in the transaction of ``migrate.py``."""

from __future__ import annotations

from alembic import context

from rejoinder.journal.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # the caller began the transaction and commits it
)
context.run_migrations()
