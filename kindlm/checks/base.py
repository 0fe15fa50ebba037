"""A check of kindlm: a value that says what is expected, and that finds out whether it is so.

One subclass of `Check` is one check. Front ends construct it, the engine hands it on in an
`Expectation`, and the runner calls its `evaluate`, which returns a result by one of the functions
below. It sees the transcript and what `CheckContext` has, and nothing else of the world: that is
why it works on every source of transcripts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Iterable
from enum import Enum
from functools import cache
from typing import Any, ClassVar

from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import sentence


class Reads(Enum):
    """What of a transcript a check goes by. Where a secret was removed from it, it is undecided."""

    NUMBERS_AND_NAMES = "numbers and names, in which there is no secret"
    TEXT = "the final text"
    CALLS = "the tool calls, their arguments and results"
    EVERYTHING = "all texts and tool calls"


class Check:
    """What is expected; subclasses are frozen dataclasses with slots."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name in events and reports; never renamed."""
    reads: ClassVar[Reads] = Reads.TEXT
    about_tools: ClassVar[bool] = False
    """Whether it demands something of the tool calls. It is undecided instead of passed if nothing
    shows that the target reports its calls."""
    asks_judge: ClassVar[bool] = False

    def expected(self, label: str, **more: Any) -> Expectation:
        """Return the expectation of this check; `more` are the other fields of `Expectation`."""
        return Expectation(self.kind, label, self, **more)

    def is_slow(self, transcript: Transcript) -> bool:
        """Return whether it runs patterns or schemas of users; it then runs in a thread.

        This takes a few microseconds itself.
        """
        return False

    def evaluate(
        self, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return whether the transcript is as expected; the runner fills in kind and label."""
        raise NotImplementedError


class AskingCheck(Check):
    """A check that is `async`, as most of them ask a judge. It computes in `context.aside`.

    Where a secret was removed, the judge sees that something is missing.
    """

    __slots__ = ()

    reads = Reads.NUMBERS_AND_NAMES
    asks_judge = True

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        raise NotImplementedError


class UndecidedError(Exception):
    """What a check expects cannot be decided; the runner makes a result of it."""

    code = FailureCode.ASSERTION_EVAL_ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@cache
def kinds() -> frozenset[str]:
    """Return the kinds of all checks of kindlm, which no package can use."""
    package = importlib.import_module(__package__)
    names = [f"{__package__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    checks = [each for each in values if isinstance(each, type) and issubclass(each, Check)]
    return frozenset(each.kind for each in checks if hasattr(each, "kind"))


def passed(*, score: float = 1.0, message: str = "", **more: Any) -> CheckResult:
    """Return that what is expected is so; `more` are other fields of the result."""
    told = sentence(message) if message else ""
    return CheckResult("", "", Outcome.PASSED, score=score, message=told, **more)


def failed(
    code: FailureCode,
    message: str,
    *,
    score: float = 0.0,
    evidence: Iterable[Evidence] = (),
    **more: Any,
) -> CheckResult:
    """Return that what is expected is not so; `more` are other fields of the result."""
    told, found = sentence(message), tuple(evidence)
    return CheckResult(
        "", "", Outcome.FAILED, score, failure_code=code, message=told, evidence=found, **more
    )


def undecided(
    message: str, code: FailureCode = FailureCode.ASSERTION_EVAL_ERROR, **more: Any
) -> CheckResult:
    """Return that it cannot be decided whether it is so; such a result has no score."""
    told = sentence(message)
    return CheckResult("", "", Outcome.INCONCLUSIVE, failure_code=code, message=told, **more)


def skipped(message: str) -> CheckResult:
    """Return that there is nothing to decide; `message` says what to do."""
    return CheckResult("", "", Outcome.SKIPPED, message=sentence(message))
