"""Hints keep which hint judge drew them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Go to this revision; of hints of before nobody knows it."""
    for name in ("fingerprint", "kind", "model", "prompt"):
        op.add_column("hints", sa.Column(name, sa.Text(), nullable=True))
