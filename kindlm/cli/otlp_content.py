"""The content of spans, in the form of the semantic conventions for GenAI.

The history holds no secrets of the run. Secrets of the current environment, and personal data that
checks found, are redacted here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.history.masking import Mask, mask_of
from kindlm.history.run_view import RunView
from kindlm.projections import ERASED
from kindlm.strict_json import json_or_text
from kindlm.transcript import Message, Role

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Content:
    """Formats content of an execution for attributes; without `redact`, all methods return None."""

    redact: Redact | None = None
    mask: Mask | None = None

    @classmethod
    def of(cls, view: RunView, execution: int, redact: Redact) -> Content:
        """Return the formatter for an execution, by its number in the run."""
        found = view.execution(str(execution))
        return cls(redact, None if found is None else mask_of(view.attempts(found)))

    def text(self, text: str | None) -> str | None:
        """Return a redacted text."""
        if self.redact is None or not text:
            return None
        return self.redact(self.mask.text(text) if self.mask else text)

    def json(self, value: Any) -> str | None:
        """Return a redacted value as JSON text, since some backends do not read nested values."""
        if self.redact is None:
            return None
        shown = self.mask.value(value) if self.mask else value
        return self.redact(json.dumps(shown, ensure_ascii=False))

    def instructions(self, system: str | None) -> str | None:
        """Return system instructions."""
        return self.json(_parts(system)) if system else None

    def definitions(self, tools: Any) -> str | None:
        """Return tool definitions."""
        if not isinstance(tools, list):
            return None
        known = [
            {"type": "function"} | {key: value for key, value in tool.items() if value is not None}
            for tool in tools
            if isinstance(tool, dict)
        ]
        return self.json(known)

    def messages(self, messages: Iterable[Message], finish: str | None = None) -> str | None:
        """Return messages; `finish` is the finish reason of messages by the model."""
        if self.redact is None:
            return None
        ended = {} if finish is None else {"finish_reason": finish}
        written = [_message(message) | ended for message in messages]
        return self.json(written) if written else None


def text_lookup(db: sqlite3.Connection) -> Callable[[str], str]:
    """Return a function that finds texts by reference; it shows erased ones as reports do."""

    def text_of(ref: str) -> str:
        row = db.execute("SELECT body FROM shown_texts WHERE ref = ?", (ref,)).fetchone()
        return ERASED if row is None else str(row[0])

    return text_of


def _message(message: Message) -> dict[str, Any]:
    if message.role is Role.TOOL:
        response = json_or_text(message.text)
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    else:
        parts = _parts(message.text)
    parts += [
        {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments if call.malformed is None else call.malformed,
        }
        for call in message.tool_calls
    ]
    return {"role": message.role.value, "parts": parts}


def _parts(text: str | None) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}] if text else []
