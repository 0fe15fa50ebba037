"""Whether the tables of a history are those that this code reads."""

from __future__ import annotations

import sqlite3

from kindlm.errors import ErrorCode, KindlmError
from kindlm.projections import PROJECTIONS
from kindlm_store.project import problem_of, read_states

__all__ = ["read_model_problem"]


def read_model_problem(db: sqlite3.Connection) -> KindlmError | None:
    """Return why the tables can not be read, and what to do about it; None if they can."""
    states = read_states(db)
    if not states and db.execute("SELECT 1 FROM streams LIMIT 1").fetchone() is None:
        # Whoever made the file was stopped before it recorded anything.
        return KindlmError(
            ErrorCode.CONFIG_NOT_FOUND, "Nothing is recorded yet.", "Record a run: kindlm test"
        )
    for projection in PROJECTIONS:
        state = states.get(projection.name)
        problem = problem_of(projection, state)
        if problem is None:
            continue
        newer = state is not None and state.version > projection.version
        return KindlmError(
            ErrorCode.UNKNOWN_ERROR,
            f"The tables of {projection.name!r} can not be read: {problem}.",
            "Update kindlm." if newer else "Compute them anew: kindlm rebuild",
        )
    return None
