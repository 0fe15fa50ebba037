"""How the read models name things: identities in SQL, and references to texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kindlm_store import RecordedEvent

__all__ = [
    "RUN_LABEL",
    "attempt_number",
    "execution_id",
    "execution_number",
    "json_column",
    "run_id",
    "suite_id",
    "text_ref",
]

RUN_LABEL = "CASE WHEN l.run IS NULL THEN r.label ELSE l.label END"
"""SQL: what the run `r` is called, with `run_labels` joined to it as `l`."""

_COLUMN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def run_id(event: RecordedEvent) -> str:
    """Return the run that an event of a run's stream belongs to."""
    return event.stream.removeprefix("run/")


def suite_id(run: str, ordinal: int) -> str:
    """Return the identity of a suite in a run, such as `k3f9x2ab/0`."""
    return f"{run}/{ordinal}"


def execution_id(event: RecordedEvent) -> str:
    """Return the identity of the execution an event is about, such as `k3f9x2ab-17`."""
    return f"{run_id(event)}-{_subject(event)[0]}"


def attempt_number(event: RecordedEvent) -> int:
    """Return which attempt of the execution an event is about, from 1."""
    return int(_subject(event)[2])


def execution_number(event: RecordedEvent) -> int:
    """Return the number of the execution in its run, from 1."""
    return int(_subject(event)[0])


def text_ref(data: Mapping[str, Any], field: str) -> str | None:
    """Return the reference to an authored text, None if the field is absent."""
    value = data.get(field)
    return None if value is None else str(value["$ref"])


def json_column(value: Any) -> str:
    """Return a small JSON value as the text of a column."""
    return _COLUMN.encode(value)


def _subject(event: RecordedEvent) -> tuple[str, str, str]:
    # What events of an execution are about is `<execution number>.<attempt>`.
    return (event.subject or "").partition(".")
