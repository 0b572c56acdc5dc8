"""What a person has deleted, so that a request under way does not bring it back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Go to this revision; nothing could be deleted singly before."""
    op.create_table(
        "deletions",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_deletions")),
    )
    op.create_index("ix_deletions_deleted", "deletions", ["deleted_at"])
