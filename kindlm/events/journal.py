"""What people do with recorded runs, and the heads of sealed ones: events of journals."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kindlm.events.base import Authored, Payload
from kindlm_store import HeadOf

__all__ = [
    "BaselineRemoved",
    "BaselineSet",
    "ContentsPurged",
    "ReviewRecorded",
    "RunLabelled",
    "RunSealed",
]


class RunLabelled(Payload):
    """A run was given a name, or its name was taken away: `label` is null. Journal."""

    type: Literal["run.labelled"] = "run.labelled"
    run: str
    label: str | None = None
    by: str


class ReviewRecorded(Payload):
    """A person said whether an execution passes. Of the same person, the last word counts. Journal.

    Of a conversation that later runs look at again, the execution is the one that held it.
    """

    type: Literal["review.recorded"] = "review.recorded"
    run: str
    execution: int = Field(description="its number in the run, from 1")
    passed: bool
    note: Authored | None = Field(default=None, description="why")
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


class ContentsPurged(Payload):
    """Texts were erased for good. Journal.

    The pattern that they matched is not recorded: it may be what was to be forgotten. A purge of
    many texts is several events.
    """

    type: Literal["contents.purged"] = "contents.purged"
    texts: int = Field(description="how many were erased")
    refs: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{32}$")]] | None = Field(
        default=None, description="their references; null: recorded by a kindlm that named none"
    )
    runs: list[str] = Field(default=[], description="only texts of these runs; none: of any")
    matching: bool = Field(default=False, description="only texts that matched a pattern")
    by: str
