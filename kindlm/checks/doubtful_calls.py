"""Calls that may be of a tool that must not be called: they have no name, or nearly its name.

A tool that is demanded is known by its exact name. A ban that would hold only because of a
difference that no reader sees is undecided.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from kindlm.checks.call_wording import LINE_OF_A_CALL, arguments_match
from kindlm.checks.results import undecided
from kindlm.normal_form import plain_name
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import UNNAMED, UNREAD_LINES, ToolUse
from kindlm.wording import excerpt, shown

__all__ = ["doubtful_calls", "undecided_for_a_name"]


def doubtful_calls(
    tool: str,
    uses: Sequence[ToolUse],
    *,
    arguments: Any = None,
    spelling: Callable[[str], str] = str,
) -> list[int]:
    """Return the positions of the calls that may be of a tool, and are not by their exact names.

    Args:
        tool: the name of the tool.
        uses: the calls that were made.
        arguments: those of a call that counts, None for any. A call without a name counts with any.
        spelling: what else is left out of a name that is compared.
    """
    wanted = spelling(plain_name(tool))
    return [
        index
        for index, use in enumerate(uses)
        if use.call.name == UNNAMED
        or (
            use.call.name != tool
            and wanted in {spelling(name) for name in _readings(use.call.name)}
            and (
                arguments is None
                or use.call.malformed is not None
                or arguments_match(arguments, use)
            )
        )
    ]


def _readings(name: str) -> tuple[str, str]:
    """Return a name, and what is left of it without the prefix of a server or a namespace.

    Some agents report `functions.refund`, `mcp__shop__refund` or `shop/refund` for `refund`.
    """
    plain = plain_name(name)
    return plain, re.split(r"__|[./:]", plain)[-1]


def undecided_for_a_name(
    expectation: Expectation,
    tool: str,
    uses: Sequence[ToolUse],
    *,
    arguments: Any = None,
    spelling: Callable[[str], str] = str,
) -> CheckResult | None:
    """Return that nobody knows whether a tool was called, None if the names leave no doubt.

    The arguments are those of `doubtful_calls`.
    """
    doubtful = doubtful_calls(tool, uses, arguments=arguments, spelling=spelling)
    if not doubtful:
        return None
    index, call = doubtful[0], uses[doubtful[0]].call
    if call.name != UNNAMED:
        message = _same_to_unicode(index, call.name, tool)
    elif call.id == UNREAD_LINES:
        message = _unread_line(tool)
    else:
        message = _without_a_name(index, tool)
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)


def _without_a_name(index: int, tool: str) -> str:
    return (
        f"Call {index} has no name: nobody knows whether it is one of {shown(tool)}. "
        "The agent has to name the tools it calls. If that is no call, list it elsewhere; or say "
        "where the calls are with `toolCallsPath`, which agents of the adapters http, subprocess "
        "and python can have."
    )


def _unread_line(tool: str) -> str:
    return (
        "A line that was printed is nearly a tool call: nobody knows whether it is one of "
        f"{shown(tool)}. The warning of this execution says which line it is. Print a call as one "
        f"line, with nothing before or after it: {LINE_OF_A_CALL}."
    )


def _same_to_unicode(index: int, name: str, tool: str) -> str:
    return (
        f"Call {index} is named {_visible(name)}, which differs from {_visible(tool)} only in a"
        " prefix, case, spaces around it, or characters that Unicode treats as the same or that are"
        " invisible. If they are one tool, let the agent report the name as the test has it; if"
        " not, rename one of them."
    )


def _visible(name: str) -> str:
    """Return a name in quotes, with everything escaped that is not ASCII."""
    return json.dumps(excerpt(name))
