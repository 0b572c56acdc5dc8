"""Lineages say why the trainer opened them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Go to this revision; those of before were opened by people."""
    op.add_column("lineages", sa.Column("reason", sa.Text(), nullable=True))
