"""How tool calls are shown in results: their arguments, and where these are not as expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kindlm.matching import Mismatch, Reason, matches
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, listed, shown

__all__ = [
    "LINE_OF_A_CALL",
    "arguments_match",
    "described",
    "differences",
    "how_to_report",
    "written_arguments",
]

LINE_OF_A_CALL = '`{"kindlm": "tool_call", "name": "NAME", "arguments": {}}`'
"""How a program that is tested as a `command` prints a call."""

_MAX_LISTED = 5

_DECLARED = (
    "If it reports every call, add `reportsTools: true` to the agent (`reports_tools` in TOML and"
    " scenarios), or to the test with the `command`. Otherwise let it "
)
_LISTED = "list them in its answer under `tool_calls` ([] for none), or where `toolCallsPath` says"
_PRINTED = (
    f"print a line for each call, {LINE_OF_A_CALL}, and one for its answer,"
    ' `{"kindlm": "output_json", "value": ANSWER}`'
)


def how_to_report(transcript: Transcript) -> str:
    """Return what makes calls known that a target may have made, without a full stop."""
    return _DECLARED + (_PRINTED if transcript.prints_calls else _LISTED)


def arguments_match(wanted: Any, use: ToolUse) -> bool:
    """Tell whether a call has the wanted arguments; malformed ones match nothing."""
    return use.call.malformed is None and matches(wanted, use.call.arguments)


def written_arguments(use: ToolUse) -> Any:
    """Return the arguments of a call, or the text that should have been arguments."""
    return use.call.arguments if use.call.malformed is None else use.call.malformed


def described(index: int, use: ToolUse) -> dict[str, Any]:
    """Return a call as a result shows it; `index` is its position among all calls."""
    return {
        "index": index,
        "tool": use.call.name,
        "arguments": bounded(written_arguments(use)),
        "response": bounded(use.response),
    }


def differences(mismatches: Sequence[Mismatch]) -> str:
    """Return in words where arguments are not as expected, the first few places."""
    return listed(map(_difference, mismatches[:_MAX_LISTED]), len(mismatches))


def _difference(mismatch: Mismatch) -> str:
    path = shown(mismatch.path) if not mismatch.path.isprintable() else mismatch.path
    expected = f"{path or 'arguments'}: expected {shown(mismatch.expected)}"
    if mismatch.reason is Reason.MISSING:
        return f"{expected}, it is missing"
    return f"{expected}, got {shown(mismatch.actual)}"
