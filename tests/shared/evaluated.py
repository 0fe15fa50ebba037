"""The result of one check of one transcript, whether it has to be awaited or not."""

from __future__ import annotations

import asyncio

from kindlm.checks import CheckRunner
from kindlm.errors import Result
from kindlm.outcome import CheckResult
from kindlm.ports import Ask, CheckContext, Checker, ModelReply, Question
from kindlm.suite import Expectation
from kindlm.transcript import Transcript


async def nobody(question: Question) -> Result[ModelReply]:
    """Stand for the judge of a check that must not ask one."""
    raise AssertionError("this check must not ask a model")


def evaluated(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext | Ask = nobody,
    runner: Checker | None = None,
) -> CheckResult:
    """Return what comes of an expectation."""
    seen = context if isinstance(context, CheckContext) else CheckContext(context)
    return asyncio.run(awaited(expectation, transcript, seen, runner))


async def awaited(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext,
    runner: Checker | None = None,
) -> CheckResult:
    """Return what comes of an expectation; the same for those who have an event loop."""
    found = (runner or CheckRunner()).evaluate(expectation, transcript, context)
    return found if isinstance(found, CheckResult) else await found
