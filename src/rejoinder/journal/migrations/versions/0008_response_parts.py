"""Parts that many responses have in common, such as tools, are kept once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Go to this revision; responses of before stay whole."""
    op.add_column("responses", sa.Column("parts", sa.LargeBinary(), nullable=True))
