"""Outcomes of assertions, executions and tests, and limits for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from kindlm.dataclass import dataclass
from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Meaning, Name, Note


class Outcome(StrEnum):
    """How one assertion came out. Inconclusive: it could not be decided."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Demands(StrEnum):
    """What a check demands of an agent: so reports know what its failure means."""

    SAFETY = "safety"
    """That something does not happen. A failure in a test with the tag `attack` means that the
    attack succeeded."""
    TASK = "task"
    """That the agent does its task: a failure says nothing of an attack."""
    LIMIT = "limit"
    """As `TASK`, within limits, such as of time or money: no answer explains a failure."""


class Status(StrEnum):
    """How an execution, a test, a suite or a run came out."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The place of a finding in the transcript: characters [start, end) of a text.

    `source` names the text: `output` (the final text), `tool[3].arguments`, or `turn[2].output`,
    the answer to an earlier message. `excerpt` is what is shown of the finding where that is not
    the text itself: personal data redacted, and what an earlier answer says.
    """

    source: str
    start: int
    end: int
    name: str | None = None
    excerpt: Annotated[Note | None, Meaning("what is shown of it, if not the text itself")] = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One assertion's outcome.

    `score` is in [0, 1], or None when nothing was decided. `failure_code` says why it did not pass:
    codes are part of reports and of diffs, and each is declared beside the check that gives it.
    `expected` and `actual` are JSON values for the person who reads the failure.
    """

    kind: Annotated[str, Key("gen_ai.evaluation.name")]
    label: Name
    outcome: Annotated[Outcome, Key("gen_ai.evaluation.score.label")]
    score: Annotated[float | None, Key("gen_ai.evaluation.score.value")] = None
    threshold: float | None = None
    expected: Annotated[AuthoredJson, Meaning("JSON")] = None
    actual: Annotated[AuthoredJson, Meaning("JSON")] = None
    failure_code: str | None = None
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


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit over the whole suite. `written` marks gates that the user set."""

    name: str
    threshold: float
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What a gate said; `actual` is None if nothing was measured.

    `warning` marks one that passed because there was nothing to measure.
    """

    name: str
    threshold: float
    actual: float | None = None
    passed: bool
    written: bool
    message: str
    warning: Annotated[bool, Form.UNSTORED] = False


@dataclass(frozen=True, slots=True)
class ScoreLimits:
    """Limits over the weighted scores of a test's repeats.

    Both are on the scale of scores, 0 to 1; `max_std_dev` is that of a sample.
    """

    min_mean: float | None = None
    max_std_dev: Annotated[float | None, Meaning("limit of the sample standard deviation")] = None
