"""Each sample that a step used up says whether it changed weights, and why not."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Go to this revision; samples of before know it where their step had one reason for all."""
    op.add_column("consumption", sa.Column("untrained", sa.Text(), nullable=True))
    connection = op.get_bind()
    steps = connection.execute(
        sa.text(
            "SELECT lineage_id, version, samples, untrained FROM steps WHERE untrained IS NOT NULL"
        )
    ).all()
    for lineage_id, version, samples, untrained in steps:
        reasons = json.loads(untrained)
        if list(reasons.values()) == [samples]:
            connection.execute(
                sa.text(
                    "UPDATE consumption SET untrained = :reason"
                    " WHERE lineage_id = :lineage AND version = :version"
                ),
                {"reason": next(iter(reasons)), "lineage": lineage_id, "version": version},
            )
