"""What the agent answered, as a test sees it."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace

from kindlm.transcript import Step, ToolCall, Usage
from kindlm_store import REDACTED


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the agent: its `text`, the `tool_calls` that it made, and the `raw` body.

    Attributes:
        usage: `input_tokens` and `output_tokens`; None if it reported neither.
        latency_ms: how long it took, in milliseconds.
        turn: which answer of the conversation it is, from 1.
    """

    _text: str
    _tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    latency_ms: float
    _raw: str | None = field(repr=False)
    turn: int
    _is_recorded: bool = field(repr=False)

    @property
    def text(self) -> str:
        """What it said.

        Raises:
            LookupError: a recorded run is looked at again, and a secret was taken out of this.
        """
        self._refuse_what_lacks(self._text, "text")
        return self._text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that it called for this answer, each with `name` and `arguments`.

        Raises:
            LookupError: a recorded run is looked at again, and a secret was taken out of these.
        """
        for call in self._tool_calls:
            written = json.dumps([call.arguments, call.malformed])
            self._refuse_what_lacks(written, "tool_calls")
        return self._tool_calls

    @property
    def raw(self) -> str:
        """The body as it was received.

        Raises:
            LookupError: a recorded run is looked at again, and the body is not kept there any more,
                or a secret was taken out of it.
        """
        if self._raw is None:
            raise LookupError(
                "the body of this answer is not kept any more, so that reply.raw is not known:"
                " run the scenario again: kindlm test"
            )
        self._refuse_what_lacks(self._raw, "raw")
        return self._raw

    def mentions(self, text: str) -> bool:
        """Tell whether the answer contains a text, whatever its case."""
        return text.lower() in self.text.lower()

    def __str__(self) -> str:
        """Return what it said."""
        return self.text

    def _refuse_what_lacks(self, written: str, name: str) -> None:
        if self._is_recorded and REDACTED in written:
            # What is written of it instead would turn the findings of a test round.
            raise LookupError(
                f"a secret was taken out of this answer when it was recorded, so that reply.{name}"
                " is not known: run the scenario again: kindlm test"
            )


def reply_of(answer: Step, raw: str | None, turn: int) -> Reply:
    """Return an answer of the agent as a test sees it."""
    usage = answer.usage
    is_known = usage.input_tokens is not None or usage.output_tokens is not None
    return Reply(
        _text=answer.text,
        # Copies: what a test does to them changes nothing of what is checked.
        _tool_calls=tuple(
            replace(use.call, arguments=copy.deepcopy(use.call.arguments))
            for use in answer.tool_uses
        ),
        usage=usage if is_known else None,
        latency_ms=answer.latency_ms,
        _raw=raw,
        turn=turn,
        _is_recorded=answer.recorded,
    )
