"""Turns keep their client's trace and the rules that linked them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Go to this revision; turns of before have neither."""
    op.add_column("turns", sa.Column("trace", sa.LargeBinary(), nullable=True))
    op.add_column("prompts", sa.Column("link", sa.LargeBinary(), nullable=True))
