"""Each sample that a step used up says whether it changed weights, and why not."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_STEPS = """
    SELECT lineage_id, policy, version, samples, untrained FROM steps
    WHERE untrained IS NOT NULL ORDER BY policy, version
"""
_USED_UP = """
    UPDATE consumption SET untrained = :reason WHERE lineage_id = :lineage AND version = :version
"""
_SHARE = """
    UPDATE policy_versions SET (uri, kind) = (
        SELECT uri, kind FROM policy_versions AS parent
        WHERE parent.policy = policy_versions.policy AND parent.version = policy_versions.parent
    )
    WHERE policy = :policy AND version = :version AND EXISTS (
        SELECT 1 FROM policy_versions AS parent
        WHERE parent.policy = policy_versions.policy AND parent.version = policy_versions.parent
        AND parent.files = 1
    )
"""


def upgrade() -> None:
    """Go to this revision; samples of before know it where no sample of their step trained.

    The versions of such steps have the weights of their parents, to the bit: from here on they have
    their files, where these are still there, by which samples do not grow older with them.
    """
    op.add_column("consumption", sa.Column("untrained", sa.Text(), nullable=True))
    connection = op.get_bind()
    for lineage_id, policy, version, samples, untrained in connection.execute(
        sa.text(_STEPS)
    ).all():
        reasons = json.loads(untrained)
        if sum(reasons.values()) == samples:
            used = {"reason": " or ".join(sorted(reasons)), "lineage": lineage_id}
            connection.execute(sa.text(_USED_UP), used | {"version": version})
            connection.execute(sa.text(_SHARE), {"policy": policy, "version": version})
