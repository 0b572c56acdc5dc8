"""Turns keep the further arguments that their client gave to the chat template."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Go to this revision; turns of before that had some cannot be rendered again."""
    op.add_column("prompts", sa.Column("options_digest", sa.LargeBinary(), nullable=True))
