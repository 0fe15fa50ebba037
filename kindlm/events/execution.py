"""Events of one execution: its beginning, the outcome of its checks, its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.codec import Payload
from kindlm.outcome import CheckResult, Status
from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Meaning
from kindlm.suite import Expectation
from kindlm.transcript import CostSource, FinishReason, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted(Payload):
    """One execution (test × target × repeat) began, or began anew as a later attempt.

    Subject: the execution. Its first messages are here; requests name what they continue.
    """

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "execution.started"
    suite: Annotated[int, Meaning("ordinal of the suite in the run")]
    test: str
    target: str
    repeat: Annotated[int, Meaning("which repeat, from 1")]
    attempt: Annotated[int, Meaning("from 1; a resumed or retried execution has several")]
    tags: Sequence[str] = ()
    messages: Sequence[Message]
    tools: Annotated[AuthoredJson | None, Meaning("tool definitions as JSON")] = None
    source: Annotated[
        str | None,
        Meaning(
            "the attempt of an execution whose conversation is looked at again"
            " (execution.attempt): nothing is said now"
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionEvaluated(Payload):
    """One assertion was evaluated."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "assertion.evaluated"
    index: Annotated[int, Meaning("position among the assertions of the execution, from 0")]
    result: Annotated[CheckResult, Form.FLAT]
    duration_ms: float = 0.0
    line: Annotated[int | None, Meaning("line of the file that asked for it")] = None
    turn: Annotated[
        int | None, Meaning("it looked at the conversation up to this message of the user")
    ] = None
    advisory: Annotated[bool, Meaning("it decides nothing")] = False

    @classmethod
    def of(
        cls, result: CheckResult, index: int, expectation: Expectation, *, duration_ms: float
    ) -> Self:
        """Return the event of what came of an expectation."""
        return cls(
            index=index,
            result=result,
            duration_ms=round(duration_ms, 3),
            line=expectation.where.line if expectation.where else None,
            turn=expectation.turn,
            advisory=expectation.advisory,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFinished(Payload):
    """One execution ended. Once this is on disk, it is run again only if it says so."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "execution.finished"
    status: Status
    error_code: str | None = None
    error_number: int | None = None
    error: Authored | None = None
    hint: str | None = None
    trace: Annotated[Authored | None, Meaning("traceback of a crash")] = None
    output: Authored | None = None
    answers: Annotated[int, Meaning("answers of the target, tool rounds included")] = 0
    latency_ms: float = 0.0
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    cost_then_usd: Annotated[
        float | None, Meaning("what the answers cost when they were recorded, in another run")
    ] = None
    finish_reason: Annotated[FinishReason | None, Key("gen_ai.response.finish_reason")] = None
    warnings: Sequence[str] = ()
    score: Annotated[
        float | None, Meaning("weighted mean of the decided checks of a scenario, 0 to 1")
    ] = None
    retried: Annotated[
        bool, Meaning("it did not pass, and is run again: another attempt decides how it came out")
    ] = False

    @property
    def failure(self) -> KindlmError | None:
        """The error that it ended with, if it did."""
        if self.error_code is None:
            return None
        code = ErrorCode.named(self.error_code)
        return KindlmError(code, self.error or "", self.hint, trace=self.trace)
