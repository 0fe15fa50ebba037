"""Whether the tables of a history are those that this code reads."""

from __future__ import annotations

import sqlite3

from kindlm.errors import ErrorCode, KindlmError
from kindlm.projections import PROJECTIONS
from kindlm_store.project import problem_of, read_states


def are_outdated(db: sqlite3.Connection) -> bool:
    """Tell whether opening the history for writing would update its tables to this version."""
    states = read_states(db)
    if not states and _holds_nothing(db):
        return False
    found = [(states.get(projection.name), projection.version) for projection in PROJECTIONS]
    newer = any(state is not None and state.version > version for state, version in found)
    return not newer and any(state is None or state.version < version for state, version in found)


def read_model_problem(db: sqlite3.Connection) -> KindlmError | None:
    """Return why the tables cannot be read, and what to do about it; None if they can be."""
    states = read_states(db)
    if not states and _holds_nothing(db):
        # Whoever made the file was stopped before it recorded anything.
        return KindlmError(
            ErrorCode.CONFIG_NOT_FOUND, "Nothing is recorded yet.", "Record a run: kindlm test"
        )
    for projection in PROJECTIONS:
        name, state = projection.name, states.get(projection.name)
        problem = problem_of(projection, state)
        if problem is None:
            continue
        code, hint = ErrorCode.HISTORY_VERSION_MISMATCH, "Compute them: kindlm rebuild"
        if state is None:
            message = (
                f"The tables of this history have not been computed yet ({name!r} is missing)."
            )
        elif state.version != projection.version:
            newer = state.version > projection.version
            message = (
                f"The tables of this history were written by {'a newer' if newer else 'an older'}"
                f" version of kindlm ({name!r} has version {state.version}, this kindlm reads"
                f" version {projection.version})."
            )
            hint = "Update kindlm." if newer else "Update the tables: kindlm rebuild"
        else:
            code, hint = ErrorCode.UNKNOWN_ERROR, "Compute them anew: kindlm rebuild"
            message = f"The tables of {name!r} cannot be read: {problem}."
        return KindlmError(code, message, hint)
    return None


def _holds_nothing(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM streams LIMIT 1").fetchone() is None
