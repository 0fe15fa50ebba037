"""Read models: tables computed from the event log, one module for each family of tables.

`PROJECTIONS` is what a log is opened with. Only leaf tables are folded; what is a sum or a join of
them is an SQL view (`views.py`). Texts are held by reference, and views join them.
"""

from __future__ import annotations

from kindlm.projections.assertions import ASSERTIONS
from kindlm.projections.baselines import BASELINES
from kindlm.projections.calls import PROVIDER_CALLS
from kindlm.projections.executions import EXECUTIONS
from kindlm.projections.gates import GATES
from kindlm.projections.reviews import REVIEWS
from kindlm.projections.runs import RUNS
from kindlm.projections.suites import SUITES
from kindlm.projections.tools import TOOL_CALLS
from kindlm.projections.views import VIEWS

__all__ = ["PROJECTIONS"]

PROJECTIONS = (
    RUNS,
    SUITES,
    EXECUTIONS,
    PROVIDER_CALLS,
    TOOL_CALLS,
    ASSERTIONS,
    GATES,
    BASELINES,
    REVIEWS,
    VIEWS,
)
