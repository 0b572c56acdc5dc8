"""Replies say why they gave no hint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Go to this revision; replies of before do not know it."""
    op.add_column("next_states", sa.Column("no_hint", sa.Text(), nullable=True))
