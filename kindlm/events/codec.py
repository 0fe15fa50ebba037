"""The union of all events, and the way between payloads and what the store holds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from kindlm.events.base import Payload
from kindlm.events.calls import (
    AgentFailed,
    AgentReplied,
    AgentSent,
    ProviderFailed,
    ProviderPaced,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.events.execution import AssertionEvaluated, ExecutionFinished, ExecutionStarted
from kindlm.events.generation import AgentProfiled, ScenarioGenerated
from kindlm.events.journal import (
    BaselineRemoved,
    BaselineSet,
    ContentsPurged,
    ReviewRecorded,
    RunLabelled,
    RunSealed,
)
from kindlm.events.run import (
    RunAborted,
    RunExtended,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
)
from kindlm.events.suite import SuiteSkipped, SuiteStarted
from kindlm.events.tools import ToolCalled, ToolSimulated
from kindlm.outcome import Outcome, Status
from kindlm.transcript import CostSource, FinishReason, Role
from kindlm_store import NewEvent, RecordedEvent, Text

__all__ = ["Event", "load_event", "new_event"]

Event = Annotated[
    RunStarted
    | SuiteStarted
    | SuiteSkipped
    | RunResumed
    | RunExtended
    | RunInterrupted
    | RunAborted
    | RunFinished
    | ExecutionStarted
    | ProviderRequested
    | ProviderResponded
    | ProviderFailed
    | ProviderPaced
    | ToolCalled
    | ToolSimulated
    | AgentSent
    | AgentReplied
    | AgentFailed
    | AssertionEvaluated
    | AgentProfiled
    | ScenarioGenerated
    | ExecutionFinished
    | BaselineSet
    | BaselineRemoved
    | RunLabelled
    | ReviewRecorded
    | RunSealed
    | ContentsPurged,
    Field(discriminator="type"),
]
"""Any event, told apart by its `type`."""

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


def new_event(payload: Payload, *, subject: str | None = None) -> NewEvent:
    """Return the event to append for a payload."""
    return NewEvent(
        type=payload.type, data=_stored(payload), schema=payload.SCHEMA, subject=subject
    )


def load_event(recorded: RecordedEvent) -> Event:
    """Return the payload of a stored event; raise `ValidationError` if it is none of ours."""
    return _ADAPTER.validate_python({"type": recorded.type, **recorded.data})


_LEAVES = frozenset({str, int, float, bool, Text, Outcome, Status, CostSource, FinishReason, Role})
"""Types of which most values are, so that one look tells that nothing is to be done."""


def _stored(model: BaseModel) -> dict[str, Any]:
    """Return what is stored of a model: no type (a column has it), no null, nothing left empty."""
    # Not model_dump: `Text` and `HeadOf` must reach the store as they are.
    held = model.__dict__
    data = {}
    for name, stored, may_be_empty in _fields(type(model)):
        item = held[name]
        if item is not None and (item or not may_be_empty):
            data[stored] = item if type(item) in _LEAVES else _plain(item)
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _stored(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, bool], ...]:
    """Return the fields of a model: name, name as stored, whether it may be left empty."""
    return tuple(
        (name, field.alias or name, field.default is False or field.default in ([], {}))
        for name, field in model.model_fields.items()
        if name != "type"
    )
