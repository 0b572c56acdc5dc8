"""Heartbeats say where their process id means that process."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Go to this revision; of heartbeats of before it is not known."""
    op.add_column("role_reports", sa.Column("pid_space", sa.Text(), nullable=True))
