"""Steps say which of their samples changed no weights, and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Go to this revision; steps of before stay as they were counted, all of them as trained."""
    op.add_column("steps", sa.Column("untrained", sa.LargeBinary(), nullable=True))
