"""Calls that may be of a tool that must not be called: they have no name, or one that looks alike.

A tool that is demanded is known by its exact name. A ban that would hold only because of a
difference that no reader sees is undecided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kindlm.checks.call_wording import arguments_match
from kindlm.checks.results import undecided
from kindlm.normal_form import plain_name
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import UNNAMED, ToolUse
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
            and spelling(plain_name(use.call.name)) == wanted
            and (
                arguments is None
                or use.call.malformed is not None
                or arguments_match(arguments, use)
            )
        )
    ]


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
    index, name = doubtful[0], uses[doubtful[0]].call.name
    message = _without_a_name(index, tool) if name == UNNAMED else _looks_alike(index, name, tool)
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)


def _without_a_name(index: int, tool: str) -> str:
    return (
        f"Call {index} has no name: nobody knows whether it is one of {shown(tool)}. "
        "The agent has to name the tools it calls. If that is no call, list it elsewhere; or say "
        "where the calls are with `toolCallsPath`, which agents of the adapters http, subprocess "
        "and python can have."
    )


def _looks_alike(index: int, name: str, tool: str) -> str:
    return (
        f"Call {index} is named {_visible(name)}, which differs from {_visible(tool)} only in case,"
        " spaces around it, or characters that look alike or are invisible. If they are one tool,"
        " let the agent report the name as the test has it; if not, rename one of them."
    )


def _visible(name: str) -> str:
    """Return a name in quotes, with everything escaped that is not ASCII."""
    return json.dumps(excerpt(name))
