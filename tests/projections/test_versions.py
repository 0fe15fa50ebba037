"""Histories hold the tables and views of kindlm as SQL: what changes them has a new version."""

from __future__ import annotations

import hashlib

import pytest

from kindlm.projections import PROJECTIONS
from kindlm_store import Projection

_KNOWN = {
    "runs": (5, "fef275f6263f"),
    "suites": (8, "3588febec54e"),
    "executions": (8, "cb091924417b"),
    "provider_calls": (7, "70b2e62efba8"),
    "tool_calls": (2, "50c2051394fa"),
    "agent_spans": (1, "d8f828de27bf"),
    "assertions": (5, "fa955fa2d375"),
    "gates": (2, "ad79b511f78c"),
    "baselines": (3, "0d265f93f2f1"),
    "reviews": (3, "299186e6fbe8"),
    "views": (17, "5bb827ba66de"),
}
"""The version of each projection, and a digest of its tables and views."""


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)
def test_changed_tables_and_views_have_a_new_version(projection: Projection) -> None:
    # A changed comment counts: recorded histories would be taken for changed by somebody.
    views = (f"{name}: {query}" for name, query in sorted(projection.views.items()))
    text = "\n".join([projection.create, *views])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert _KNOWN[projection.name] == (projection.version, digest), (
        "raise the version, if it is not"
    )
