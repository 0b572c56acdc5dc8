"""Answers that clients may ask for again, or go on from, by the id of their response."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Go to this revision; no answer of before was kept in that form."""
    op.create_table(
        "responses",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("own_messages", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["turn_id"],
            ["turns.turn_id"],
            name=op.f("fk_responses_turn_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("turn_id", name=op.f("pk_responses")),
    )
