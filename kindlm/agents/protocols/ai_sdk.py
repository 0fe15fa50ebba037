"""The UI message stream of Vercel's AI SDK, 5 and later.

The table under "Vercel AI SDK" in docs/reference/agent-answers.md lists the events that kindlm
reads. Steps, reasoning, sources, files and `data-…` have neither text nor tool calls, but the data
may contain calls that an agent within the agent made.

An empty line separates text parts. A repeated step (`reset-step`) discards its text, but its tool
calls count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.agents.drafts import Draft, ParsedAnswer, ReportedCalls
from kindlm.agents.hidden_calls import hidden_calls, is_unknown_call
from kindlm.agents.http_request import all_messages
from kindlm.agents.protocols import Protocol
from kindlm.agents.reply_parts import UnreadableReply, end_reasons, first_text
from kindlm.agents.reply_reading import FailedReply, agent_reply
from kindlm.agents.reply_usage import read_spent
from kindlm.agents.tool_entries import UNREAD, tool_name
from kindlm.ports import AgentRequest
from kindlm.same_calls import KnownCalls
from kindlm.transcript import UNNAMED
from kindlm.wires import Spent


def _body(request: AgentRequest, _stream: bool, _carried: Any) -> dict[str, Any]:
    messages = [
        {
            "id": f"{request.conversation}-{number}",
            "role": message["role"],
            "parts": [{"type": "text", "text": message["content"]}],
        }
        for number, message in enumerate(all_messages(request))
    ]
    # The SDK sends a page's own values beside the messages.
    context = dict(request.context or {})
    return context | {"id": request.conversation, "messages": messages, "trigger": "submit-message"}


AI_SDK = Protocol("AI SDK messages", _body, sends_context=True)

_WAITS = "a tool call waits for a person to approve it: the answer is incomplete"


@dataclass(slots=True)
class UiDraft(Draft):
    """An answer; `open` are the text parts that may still grow, by ids that later steps reuse.

    `data` are the events of the agent's own, each by its type.
    """

    texts: list[list[str]] = field(default_factory=list)
    open: dict[str, list[str]] = field(default_factory=dict)
    before_step: int = 0
    calls: ReportedCalls = field(default_factory=ReportedCalls)
    about: dict[str, Any] = field(default_factory=dict)
    waits: bool = False
    reasons: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Mapping[str, Any], number: int) -> None:
        match event.get("type"):
            case "text-start":
                self.open.pop(str(event.get("id")), None)
            case "text-delta":
                part = self.open.get(str(event.get("id")))
                if part is None:
                    part = self.open[str(event.get("id"))] = []
                    self.texts.append(part)
                part.append(_text_of(event, "delta", number))
            case "start-step":
                self.before_step = len(self.texts)
            case "reset-step":
                del self.texts[self.before_step :]
                self.open.clear()
            case "error":
                raise FailedReply(first_text(event.get("errorText")) or "no explanation")
            case "abort":
                raise FailedReply(first_text(event.get("reason")) or "the agent was stopped")
            case "start" | "message-metadata" | "finish":
                self.reasons += end_reasons(event)
                about = event.get("messageMetadata")
                self.about.update(about if isinstance(about, dict) else {})
            case str(kind) if kind.startswith(("tool-input-", "tool-output-", "tool-approval-req")):
                self._add_to_call(kind, event, number)
            case str(kind) if kind.startswith("data-"):
                self.data.append({kind: event.get("data")})
            case _ if is_unknown_call(event):
                self.calls.under(UNREAD.call.id)

    def _add_to_call(self, kind: str, event: Mapping[str, Any], number: int) -> None:
        call_id, name = _text_of(event, "toolCallId", number), tool_name(event.get("toolName"))
        is_input = kind.startswith("tool-input-")
        call = self.calls.begin(call_id, name) if is_input else self.calls.under(call_id)
        if call.name == UNNAMED:
            call.name = name or UNNAMED
        match kind:
            case "tool-input-delta":
                call.written.append(_text_of(event, "inputTextDelta", number))
            case "tool-input-available" | "tool-input-error":
                call.arguments = event.get("input")
            case "tool-output-available":
                call.answer(event.get("output"))
            case "tool-output-denied":
                call.answer("the call was not allowed", failed=True)
            case "tool-approval-request":
                self.waits = True
        if kind.endswith("-error"):
            call.answer(first_text(event.get("errorText")) or "no explanation", failed=True)

    def finished(self) -> ParsedAnswer:
        unanswered = self.waits and any(call.response is None for call in self.calls.entries)
        uses = self.calls.uses
        known = KnownCalls(use.call for use in uses)
        places = (hidden_calls(data, known) for data in self.data)
        reply = agent_reply(
            "\n\n".join(filter(None, map("".join, self.texts))),
            uses,
            self.spent(),
            warnings=(_WAITS,) if unanswered else (),
            reasons=self.reasons,
            hidden=next((place for place in places if place is not None), None),
            reports_tools=True,
        )
        return ParsedAnswer(reply)

    def spent(self) -> Spent:
        return read_spent({"usage": self.about.get("totalUsage"), **self.about})


def _text_of(event: Mapping[str, Any], key: str, number: int) -> str:
    value = event.get(key)
    if not isinstance(value, str):
        raise UnreadableReply(f"`{key}` of event {number} is not a string")
    return value
