"""What a simulated tool answers when it is told to fail, or has nothing to answer."""

from __future__ import annotations

from typing import Any

from kindlm.suite import Fault
from kindlm.wording import shown

__all__ = ["MALFORMED", "error_object", "fault_object"]

# The beginning of an answer that was cut off.
MALFORMED = '{"status": "ok", "result": {"items": ['


def error_object(tool: str, message: str) -> dict[str, Any]:
    """Return a tool's answer that says it failed, as real tools do."""
    return {"error": message, "tool": tool}


def fault_object(tool: str, fault: Fault) -> Any:
    """Return the answer of a tool with a fault: an error object, or a text that is no JSON."""
    match fault:
        case Fault.TIMEOUT:
            return error_object(tool, f"The tool {shown(tool)} timed out.")
        case Fault.ERROR:
            return error_object(tool, f"The tool {shown(tool)} failed with an internal error.")
        case Fault.MALFORMED:
            return MALFORMED
