"""Main answers are found by their chain however many side turns gave the same one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

INDEX = "ix_turns_answer_chain"


def upgrade() -> None:
    """Go to this revision."""
    op.drop_index(INDEX, "turns")
    given = sa.text("answer_chain IS NOT NULL")
    columns = ["scope", "answer_chain", "turn_type", "created_at"]
    op.create_index(INDEX, "turns", columns, sqlite_where=given, postgresql_where=given)
