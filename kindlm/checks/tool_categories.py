"""The check of tool categories: some tool of a kind was called, whichever it was."""

from __future__ import annotations

from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = ["tool_category"]


@check("tool_category", about_tools=True, reads=Reads.NUMBERS_AND_NAMES)
def tool_category(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """Some tool of a category was called.

    Params: `category`; `tools`, the names of its tools, None of a category that nobody defined: it
    has no tools, and is never satisfied.
    """
    category: str = expectation.params["category"]
    tools: list[str] = list(expectation.params.get("tools") or ())
    called = list(dict.fromkeys(use.call.name for use in transcript.tool_uses))
    if not set(tools).isdisjoint(called):
        return [passed(expectation)]
    wanted = f"a tool of the category {shown(category)} ({shown(tools)})"
    if not tools:
        wanted = f"a tool of the category {shown(category)}, which has none"
    message = f"Expected {wanted}, called were {shown(called)}."
    if not called:
        message = f"Expected {wanted}, but no tool was called."
    code = FailureCode.TOOL_CATEGORY_MISSING
    expected = {"category": category, "tools": tools}
    return [failed(expectation, code, message, expected=expected, actual=bounded(called))]
