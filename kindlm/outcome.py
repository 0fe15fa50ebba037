"""How things came out: the vocabulary of assertions, executions and tests, and their codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Meaning, Name


class Outcome(StrEnum):
    """How one assertion came out. Inconclusive: it could not be decided."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Status(StrEnum):
    """How an execution, a test, a suite or a run came out."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"


class FailureCode(StrEnum):
    """Why an assertion did not pass; stable, part of reports and of diffs."""

    SCHEMA_PARSE_ERROR = "SCHEMA_PARSE_ERROR"
    SCHEMA_INVALID = "SCHEMA_INVALID"
    CONTAINS_FAILED = "CONTAINS_FAILED"
    NOT_CONTAINS_FAILED = "NOT_CONTAINS_FAILED"
    PATTERN_NOT_MATCHED = "PATTERN_NOT_MATCHED"
    MAX_LENGTH_EXCEEDED = "MAX_LENGTH_EXCEEDED"
    PII_DETECTED = "PII_DETECTED"
    INVALID_PATTERN = "INVALID_PATTERN"
    KEYWORD_DENIED = "KEYWORD_DENIED"
    KEYWORD_MISSING = "KEYWORD_MISSING"
    TOOL_CALL_MISSING = "TOOL_CALL_MISSING"
    TOOL_CALL_UNEXPECTED = "TOOL_CALL_UNEXPECTED"
    TOOL_CALL_ARGS_MISMATCH = "TOOL_CALL_ARGS_MISMATCH"
    TOOL_CALL_ARGS_SCHEMA_INVALID = "TOOL_CALL_ARGS_SCHEMA_INVALID"
    TOOL_CALL_ORDER_WRONG = "TOOL_CALL_ORDER_WRONG"
    TOOL_CALL_COUNT_WRONG = "TOOL_CALL_COUNT_WRONG"
    TOOL_CALL_UNMATCHED = "TOOL_CALL_UNMATCHED"
    TOOL_RESPONSE_MISMATCH = "TOOL_RESPONSE_MISMATCH"
    TOOL_CATEGORY_MISSING = "TOOL_CATEGORY_MISSING"
    TOOL_SEQUENCE_WRONG = "TOOL_SEQUENCE_WRONG"
    TRAJECTORY_MISMATCH = "TRAJECTORY_MISMATCH"
    JUDGE_BELOW_THRESHOLD = "JUDGE_BELOW_THRESHOLD"
    JUDGE_EVAL_ERROR = "JUDGE_EVAL_ERROR"
    DRIFT_EXCEEDED = "DRIFT_EXCEEDED"
    SCORE_BELOW_THRESHOLD = "SCORE_BELOW_THRESHOLD"
    HALLUCINATION_DETECTED = "HALLUCINATION_DETECTED"
    UNSAFE_CONTENT = "UNSAFE_CONTENT"
    UNCERTAINTY_MISSING = "UNCERTAINTY_MISSING"
    METRIC_OUT_OF_RANGE = "METRIC_OUT_OF_RANGE"
    ORIGINAL_VERDICT_FAILED = "ORIGINAL_VERDICT_FAILED"
    LATENCY_EXCEEDED = "LATENCY_EXCEEDED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    TOKENS_EXCEEDED = "TOKENS_EXCEEDED"
    SENTIMENT_MISSED = "SENTIMENT_MISSED"
    GUARDRAIL_BROKEN = "GUARDRAIL_BROKEN"
    FACTS_WRONG = "FACTS_WRONG"
    CUSTOM_CHECK_FAILED = "CUSTOM_CHECK_FAILED"
    ASSERT_FAILED = "ASSERT_FAILED"
    NOTHING_CHECKED = "NOTHING_CHECKED"
    ASSERTION_EVAL_ERROR = "ASSERTION_EVAL_ERROR"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where in the transcript a finding is: characters [start, end) of a text.

    `source` names the text: `output` (the final text), `tool[3].arguments`, or `turn[2].output`,
    the answer to an earlier message. `excerpt` is what is shown of the finding where that is not
    the text itself: personal data redacted, and what an earlier answer says.
    """

    source: str
    start: int
    end: int
    name: str | None = None
    excerpt: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One assertion's outcome.

    `score` is in [0, 1], or None when nothing was decided. `expected` and `actual` are JSON values
    for the person who reads the failure.
    """

    kind: Annotated[str, Key("gen_ai.evaluation.name")]
    label: Name
    outcome: Annotated[Outcome, Key("gen_ai.evaluation.score.label")]
    score: Annotated[float | None, Key("gen_ai.evaluation.score.value")] = None
    threshold: float | None = None
    expected: Annotated[AuthoredJson, Meaning("JSON")] = None
    actual: Annotated[AuthoredJson, Meaning("JSON")] = None
    failure_code: FailureCode | None = None
    message: Authored = ""
    evidence: tuple[Evidence, ...] = ()
    reasoning: Annotated[Authored | None, Key("gen_ai.evaluation.explanation"), Form.OMITTED] = None
    trace: Annotated[
        Authored | None, Meaning("traceback of a check that crashed"), Form.OMITTED
    ] = None


def execution_status(outcomes: list[Outcome]) -> Status:
    """Return the status of an execution that ran without an error, from the assertions that decide.

    Those that are advisory do not. A failed assertion weighs more than one that could not be
    decided; the latter makes the execution errored: whether it would have passed is unknown.
    """
    if Outcome.FAILED in outcomes:
        return Status.FAILED
    if Outcome.INCONCLUSIVE in outcomes:
        return Status.ERRORED
    return Status.PASSED
