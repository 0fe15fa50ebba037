"""Data in a question to a judging model: the conversation, and tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindlm.checks.call_wording import written_arguments
from kindlm.fencing import fenced, new_token
from kindlm.transcript import ToolUse, Transcript

__all__ = ["fenced", "messages", "new_token", "tool_call"]


def messages(transcript: Transcript) -> Iterator[dict[str, Any]]:
    """Yield a conversation as questions hold it, from the beginning."""
    for turn in transcript.turns:
        yield {"role": "user", "text": turn.user}
        for step in turn.steps:
            message: dict[str, Any] = {"role": "assistant", "text": step.text}
            if step.tool_uses:
                message["toolCalls"] = [tool_call(use) for use in step.tool_uses]
            yield message


def tool_call(use: ToolUse) -> dict[str, Any]:
    """Return a tool call with its answer as questions hold it."""
    return {
        "name": use.call.name,
        "arguments": written_arguments(use),
        "response": use.response,
    }
