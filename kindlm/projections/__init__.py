"""Read models: tables that SQL folds from the event log, and views over them.

`PROJECTIONS` is what a log is opened with. Only leaf tables are folded; what is a sum or a join of
them is an SQL view (`views.py`). Texts are held by reference (`$.output.$ref`), and views join
them. A name with dots is quoted: `$."gen_ai.usage.input_tokens"`.
"""

from __future__ import annotations

from kindlm.projections.execution_tables import (
    AGENT_SPANS,
    ASSERTIONS,
    EXECUTIONS,
    PROVIDER_CALLS,
    TOOL_CALLS,
)
from kindlm.projections.run_tables import BASELINES, GATES, REVIEWS, RUNS, SUITES
from kindlm.projections.views import VIEWS

__all__ = ["PROJECTIONS"]

PROJECTIONS = (
    RUNS,
    SUITES,
    EXECUTIONS,
    PROVIDER_CALLS,
    TOOL_CALLS,
    AGENT_SPANS,
    ASSERTIONS,
    GATES,
    BASELINES,
    REVIEWS,
    VIEWS,
)
