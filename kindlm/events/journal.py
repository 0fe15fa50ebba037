"""What people do with recorded runs, and the heads of sealed ones: events of journals."""

from __future__ import annotations

from typing import Literal

from kindlm.events.base import Payload
from kindlm_store import HeadOf

__all__ = [
    "BaselineRemoved",
    "BaselineSet",
    "RunLabelled",
    "RunSealed",
]


class RunLabelled(Payload):
    """A run was given a name, or its name was taken away: `label` is null. Journal."""

    type: Literal["run.labelled"] = "run.labelled"
    run: str
    label: str | None = None
    by: str


class RunSealed(Payload):
    """A run's stream was sealed; `head` is its last hash. Journal."""

    type: Literal["run.sealed"] = "run.sealed"
    run: str
    head: str | HeadOf


class BaselineSet(Payload):
    """A run was made the baseline of a suite. Journal."""

    type: Literal["baseline.set"] = "baseline.set"
    project: str
    suite: str
    run: str
    label: str | None = None
    by: str


class BaselineRemoved(Payload):
    """A baseline of a suite was removed; the runs stay. Journal."""

    type: Literal["baseline.removed"] = "baseline.removed"
    project: str
    suite: str
    label: str | None = None
    by: str
