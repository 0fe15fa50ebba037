"""The event vocabulary: one model for each type of event, in the order they usually happen.

Type strings are stable: they are stored, never renamed. A payload that changes its shape gets a
higher `SCHEMA` and an upcaster; stored events stay as they are. What authors wrote (prompts,
replies, arguments, reasons, configurations) is `Authored`: it is stored once, by reference, and
can be erased; ids, names, numbers and enums are in the event itself. Where OpenTelemetry has a
name for a fact (`gen_ai.…`), the stored key is that name.
"""

from __future__ import annotations

from kindlm.events.base import (
    Authored,
    ContentRef,
    Data,
    Payload,
)
from kindlm.events.calls import (
    AgentFailed,
    AgentReplied,
    AgentSent,
    AgentToolCallData,
    CallAnswered,
    CallFailed,
    ProviderFailed,
    ProviderPaced,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.events.codec import (
    Event,
    load_event,
    new_event,
)
from kindlm.events.execution import (
    AssertionEvaluated,
    EvidenceData,
    ExecutionFinished,
    ExecutionStarted,
)
from kindlm.events.generation import (
    AgentProfiled,
    ScenarioGenerated,
)
from kindlm.events.journal import (
    BaselineRemoved,
    BaselineSet,
    ContentsPurged,
    ReviewRecorded,
    RunLabelled,
    RunSealed,
)
from kindlm.events.messages import (
    MessageData,
    ToolCallData,
)
from kindlm.events.run import (
    GateVerdictData,
    GitState,
    RunAborted,
    RunExtended,
    RunFinished,
    RunInterrupted,
    RunOptions,
    RunResumed,
    RunStarted,
)
from kindlm.events.suite import (
    GateData,
    PlannedTest,
    ScoreLimitsData,
    SuiteSkipped,
    SuiteStarted,
)
from kindlm.events.tools import (
    ToolCalled,
    ToolProblemData,
    ToolSimulated,
)

__all__ = [
    "AgentFailed",
    "AgentProfiled",
    "AgentReplied",
    "AgentSent",
    "AgentToolCallData",
    "AssertionEvaluated",
    "Authored",
    "BaselineRemoved",
    "BaselineSet",
    "CallAnswered",
    "CallFailed",
    "ContentRef",
    "ContentsPurged",
    "Data",
    "Event",
    "EvidenceData",
    "ExecutionFinished",
    "ExecutionStarted",
    "GateData",
    "GateVerdictData",
    "GitState",
    "MessageData",
    "Payload",
    "PlannedTest",
    "ProviderFailed",
    "ProviderPaced",
    "ProviderRequested",
    "ProviderResponded",
    "ReviewRecorded",
    "RunAborted",
    "RunExtended",
    "RunFinished",
    "RunInterrupted",
    "RunLabelled",
    "RunOptions",
    "RunResumed",
    "RunSealed",
    "RunStarted",
    "ScenarioGenerated",
    "ScoreLimitsData",
    "SuiteSkipped",
    "SuiteStarted",
    "ToolCallData",
    "ToolCalled",
    "ToolProblemData",
    "ToolSimulated",
    "load_event",
    "new_event",
]
