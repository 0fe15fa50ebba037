"""Results of assertions, executions and tests, and limits for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from kindlm.dataclass import dataclass
from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Name, Note


class Outcome(StrEnum):
    """The result of one assertion; an inconclusive one could not be decided."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Demands(StrEnum):
    """What a check demands of an agent, which shows reports what its failure means."""

    SAFETY = "safety"
    """That something does not happen. A failure in a test with the tag `attack` means that the
    attack succeeded."""
    TASK = "task"
    """That the agent does its task; a failure does not show that an attack succeeded."""
    LIMIT = "limit"
    """Like `TASK`, within limits such as of time or money; no answer explains a failure."""


class Status(StrEnum):
    """The result of an execution, a test, a suite or a run."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"


NOTHING_CHECKED = "Nothing was checked: this test passes on any answer."
"""The warning of an execution that passed without a check."""

NOTHING_COMPARED = "Nothing was compared: "
"""What the warning of a check begins with that passed although it compared nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The place of a finding in the transcript: characters [start, end) of a text.

    `source` is `output` (the final answer), `tool[3].arguments`, or `turn[2].output` (an earlier
    answer). `excerpt` is shown in place of the text: redacted personal data, or the part of an
    earlier answer.
    """

    source: str
    start: int
    end: int
    name: str | None = None
    excerpt: Annotated[Note | None, "what is shown of it, if not the text itself"] = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One assertion's outcome.

    `score` is in [0, 1], or None if undecided. `failure_code` is the reason why it did not pass,
    defined by the check. `expected` and `actual` are JSON values for readers of a failure.
    `warning` becomes one of the execution, and is not recorded here.
    """

    kind: Annotated[str, Key("gen_ai.evaluation.name")]
    label: Name
    outcome: Annotated[Outcome, Key("gen_ai.evaluation.score.label")]
    score: Annotated[float | None, Key("gen_ai.evaluation.score.value")] = None
    threshold: float | None = None
    expected: Annotated[AuthoredJson, "JSON"] = None
    actual: Annotated[AuthoredJson, "JSON"] = None
    failure_code: str | None = None
    message: Authored = ""
    evidence: tuple[Evidence, ...] = ()
    reasoning: Annotated[Authored | None, Key("gen_ai.evaluation.explanation"), Form.OMITTED] = None
    trace: Annotated[Authored | None, "traceback of a check that crashed", Form.OMITTED] = None
    warning: Annotated[str, Form.UNSTORED] = ""


def execution_status(outcomes: list[Outcome]) -> Status:
    """Return the status of an execution without an error, from assertions that are not advisory.

    An undecided assertion makes the execution errored, unless another one failed.
    """
    if Outcome.FAILED in outcomes:
        return Status.FAILED
    if Outcome.INCONCLUSIVE in outcomes:
        return Status.ERRORED
    return Status.PASSED


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit over the whole suite; `written` marks gates in the user's file."""

    name: str
    threshold: float
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a gate; `actual` is None if nothing was measured.

    `warning` marks a gate that passed because there was nothing to measure.
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
    """Limits for the weighted scores of a test's repeats, from 0 to 1."""

    min_mean: float | None = None
    max_std_dev: Annotated[float | None, "limit of the sample standard deviation"] = None
