"""Events of journals and of runs that write tests, and what seals and purges mean to `verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kindlm.events.codec import Payload
from kindlm.stored_form import Authored, Meaning
from kindlm_store import HeadOf, RecordedEvent
from kindlm_store.erasing import Erasure, Erasures


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabelled(Payload):
    """A run was given a name, or its name was taken away: `label` is null. Journal."""

    type: ClassVar[str] = "run.labelled"
    run: str
    label: str | None = None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRecorded(Payload):
    """A person said whether an execution passes. Of the same person, the last word counts. Journal.

    Of a conversation that later runs look at again, the execution is the one that held it.
    """

    type: ClassVar[str] = "review.recorded"
    run: str
    execution: Annotated[int, Meaning("its number in the run, from 1")]
    passed: bool
    note: Annotated[Authored | None, Meaning("why")] = None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSealed(Payload):
    """A run's stream was sealed; `head` is its last hash. Journal."""

    type: ClassVar[str] = "run.sealed"
    run: str
    head: str | HeadOf


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSet(Payload):
    """A run was made the baseline of a suite. Journal."""

    type: ClassVar[str] = "baseline.set"
    project: str
    suite: str
    run: str
    label: str | None = None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRemoved(Payload):
    """A baseline of a suite was removed; the runs stay. Journal."""

    type: ClassVar[str] = "baseline.removed"
    project: str
    suite: str
    label: str | None = None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsPurged(Payload):
    """Texts were erased for good. Journal.

    The pattern that they matched is not recorded: it may be what was to be forgotten. A purge of
    many texts is several events.
    """

    type: ClassVar[str] = "contents.purged"
    texts: Annotated[int, Meaning("how many were erased")]
    refs: Annotated[
        Sequence[str] | None,
        Meaning("their references; null: recorded by a kindlm that named none"),
    ] = None
    runs: Annotated[Sequence[str], Meaning("only texts of these runs; none: of any")] = ()
    matching: Annotated[bool, Meaning("only texts that matched a pattern")] = False
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfiled(Payload):
    """A model described an agent's purpose, from its description and from what the agent said."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "agent.profiled"
    profile: Annotated[Authored, Meaning("purpose, tools, constraints and tone, as JSON")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioGenerated(Payload):
    """A test was written into a file, after it was compiled and collected."""

    type: ClassVar[str] = "scenario.generated"
    file: Annotated[str, Meaning("its path, as paths of suites are written")]
    category: str
    title: Authored
    sha256: Annotated[str, Meaning("digest of what was written")]


SEALED_HEADS: Mapping[str, Callable[[RecordedEvent], Mapping[str, str]]] = {
    "run.sealed": lambda event: {f"run/{event.data['run']}": event.data["head"]}
}
"""Event type → the heads by stream that an event of it notes, as `verify_file` takes them."""


def _purge(event: RecordedEvent) -> Erasure:
    refs, names = event.data.get("refs"), event.data.get("runs", [])
    if not (_are_names(names) and (refs is None or _are_names(refs))):
        # Not of kindlm: what cannot be understood erases nothing.
        return Erasure((), frozenset[str]().__contains__)
    runs = {f"run/{run}" for run in names}

    def covers(stream: str) -> bool:
        # The notes on runs, in journals, were erased with them.
        return not runs or stream in runs or stream.startswith("journal/")

    return Erasure(refs, covers)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


PURGES: Erasures = {"contents.purged": _purge}
"""Event type → the texts that an event of it erased, as `verify_file` and `take` need them."""
