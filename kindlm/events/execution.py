"""Events of one execution: its beginning, what was found out about it, its end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Authored, Data, Payload
from kindlm.events.messages import MessageData
from kindlm.outcome import FailureCode, Outcome, Status
from kindlm.transcript import CostSource, FinishReason

__all__ = [
    "AssertionEvaluated",
    "EvidenceData",
    "ExecutionFinished",
    "ExecutionStarted",
]


class ExecutionStarted(Payload):
    """One execution (test × target × repeat) began, or began anew as a later attempt.

    Subject: the execution. Its first messages are here; requests name what they continue.
    """

    type: Literal["execution.started"] = "execution.started"
    suite: int = Field(description="ordinal of the suite in the run")
    test: str
    target: str
    repeat: int = Field(description="which repeat, from 1")
    attempt: int = Field(description="from 1; a resumed or retried execution has several")
    tags: list[str] = []
    messages: list[MessageData]
    tools: Authored | None = Field(default=None, description="tool definitions as JSON")
    source: str | None = Field(
        default=None,
        description="the attempt of an execution whose conversation is looked at again"
        " (execution.attempt): nothing is said now",
    )


class EvidenceData(Data):
    """Where a finding is: characters [start, end) of a text of the transcript."""

    source: str
    start: int
    end: int
    name: str | None = None
    excerpt: str | None = None


class AssertionEvaluated(Payload):
    """One assertion was evaluated."""

    type: Literal["assertion.evaluated"] = "assertion.evaluated"
    index: int = Field(description="position among the assertions of the execution, from 0")
    kind: str = Field(alias="gen_ai.evaluation.name")
    label: str
    outcome: Outcome = Field(alias="gen_ai.evaluation.score.label")
    score: float | None = Field(default=None, alias="gen_ai.evaluation.score.value")
    threshold: float | None = None
    failure_code: FailureCode | None = None
    message: Authored | None = None
    expected: Authored | None = Field(default=None, description="JSON")
    actual: Authored | None = Field(default=None, description="JSON")
    evidence: list[EvidenceData] = []
    reasoning: Authored | None = Field(default=None, alias="gen_ai.evaluation.explanation")
    trace: Authored | None = Field(default=None, description="traceback of a check that crashed")
    duration_ms: float = 0.0
    line: int | None = Field(default=None, description="line of the file that asked for it")
    turn: int | None = Field(
        default=None, description="it looked at the conversation up to this message of the user"
    )
    advisory: bool = Field(default=False, description="it decides nothing")


class ExecutionFinished(Payload):
    """One execution ended. Once this is on disk, it is run again only if it says so."""

    type: Literal["execution.finished"] = "execution.finished"
    status: Status
    error_code: str | None = None
    error_number: int | None = None
    error: Authored | None = None
    hint: str | None = None
    trace: Authored | None = Field(default=None, description="traceback of a crash")
    output: Authored | None = None
    answers: int = Field(default=0, description="answers of the target, tool rounds included")
    latency_ms: float = 0.0
    input_tokens: int | None = Field(default=None, alias="gen_ai.usage.input_tokens")
    output_tokens: int | None = Field(default=None, alias="gen_ai.usage.output_tokens")
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    cost_then_usd: float | None = Field(
        default=None, description="what the answers cost when they were recorded, in another run"
    )
    finish_reason: FinishReason | None = Field(default=None, alias="gen_ai.response.finish_reason")
    warnings: list[str] = []
    score: float | None = Field(
        default=None, description="weighted mean of the decided checks of a scenario, 0 to 1"
    )
    retried: bool = Field(
        default=False,
        description="it did not pass, and is run again: another attempt decides how it came out",
    )
