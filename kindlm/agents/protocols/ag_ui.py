"""AG-UI: the run of an agent as a stream of events.

The table under "AG-UI" in docs/reference/agent-answers.md lists the events that kindlm reads.
Steps, reasoning and states have neither text nor tool calls, and `RAW` repeats other events. Any
other event, and the result of the run, may report the calls of an agent within the agent.

An empty line separates messages. Messages of a sub-agent to its agent are not part of the answer,
but its tool calls count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.agents.chat_messages import calls_of, read_messages
from kindlm.agents.drafts import Draft, ParsedAnswer, ReportedCall, ReportedCalls
from kindlm.agents.hidden_calls import hidden_calls, is_unknown_call
from kindlm.agents.http_request import all_messages
from kindlm.agents.protocols import Protocol
from kindlm.agents.reply_parts import UnreadableReply, first_text
from kindlm.agents.reply_reading import FailedReply, agent_reply
from kindlm.agents.reply_usage import read_counts, read_model
from kindlm.agents.tool_entries import UNREAD, failed_tool, tool_name
from kindlm.ports import AgentRequest
from kindlm.same_calls import KnownCalls, merged_uses
from kindlm.strict_json import as_text, read_json
from kindlm.transcript import Role, Usage
from kindlm.wires import Spent, objects, said_text, token_count

_NOT_SAID = ("system", "developer", "activity", "reasoning")
_WITHOUT_CALLS = ("RUN_", "STEP_", "STATE_", "REASONING_", "THINKING_")
"""The beginnings of events without calls, or with those of earlier runs."""
_SURFACE = "a2ui-surface"
_WAITS = "the run waits for a person: the answer is incomplete"


def _body(request: AgentRequest, _stream: bool, carried: Any) -> dict[str, Any]:
    messages = [
        {"id": f"{request.conversation}-{number}", **message}
        for number, message in enumerate(all_messages(request))
    ]
    context = [
        {"description": key, "value": as_text(value)}
        for key, value in (request.context or {}).items()
    ]
    return {
        "threadId": request.conversation,
        "runId": f"{request.conversation}-{len(messages)}",
        "state": {} if carried is None else carried,
        "messages": messages,
        "tools": [],
        "context": context,
        "forwardedProps": {},
    }


AG_UI = Protocol("AG-UI", _body, sends_context=True)


@dataclass(slots=True)
class RunDraft(Draft):
    """An answer, with texts by message id, and the `state` that the next message sends back.

    `others` are events that kindlm does not read, each by its type.
    """

    texts: dict[str, list[str]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    message: str = ""
    calls: ReportedCalls = field(default_factory=ReportedCalls)
    call: str = ""
    ended: Mapping[str, Any] = field(default_factory=dict)
    snapshot: list[Mapping[str, Any]] = field(default_factory=list)
    state: Any = None
    others: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Mapping[str, Any], number: int) -> None:
        match event.get("type"):
            case "TEXT_MESSAGE_START" | "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK":
                self._add_text(event)
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK" | "TOOL_CALL_END":
                self._add_to_call(event, number)
            case "TOOL_CALL_RESULT":
                result = read_json(said_text(event.get("content")))
                failure = failed_tool(event["error"], result) if event.get("error") else None
                self._call_of(event, number).answer(failure or result)
            case "MESSAGES_SNAPSHOT":
                self.snapshot = objects(event.get("messages"))
                if self.snapshot != event.get("messages"):
                    reason = f"`messages` of event {number} is not a list of objects"
                    raise UnreadableReply(reason)
            case "STATE_SNAPSHOT":
                self.state = event.get("snapshot")
            case "RUN_FINISHED":
                self.ended = event
            case "RUN_ERROR":
                raise FailedReply(first_text(event.get("message")) or "no explanation")
            case "RAW":
                pass
            case "CUSTOM" if event.get("name") == "PredictState":
                pass  # the tools whose arguments will be the state, if they are called
            case "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" if event.get("activityType") == _SURFACE:
                pass  # a user interface, whose buttons call functions of the client
            case kind if kind != "CUSTOM" and is_unknown_call(event):
                self.calls.under(UNREAD.call.id)
            case kind if not str(kind).startswith(_WITHOUT_CALLS):
                self.others.append({str(kind): event})

    def _add_text(self, event: Mapping[str, Any]) -> None:
        # A chunk without an id continues the message of the last one.
        self.message = str(event.get("messageId", self.message))
        if event.get("role", "assistant") != "assistant" or event.get("subagentRunId") is not None:
            self.foreign.add(self.message)
        delta = event.get("delta")
        if isinstance(delta, str) and self.message not in self.foreign:
            self.texts.setdefault(self.message, []).append(delta)

    def _add_to_call(self, event: Mapping[str, Any], number: int) -> None:
        call, name = self._call_of(event, number), tool_name(event.get("toolCallName"))
        if event.get("type") != "TOOL_CALL_END":
            call = self.calls.begin(self.call, name)
        if isinstance(delta := event.get("delta"), str):
            call.written.append(delta)

    def _call_of(self, event: Mapping[str, Any], number: int) -> ReportedCall:
        call_id = first_text(event.get("toolCallId", self.call))
        if call_id is None:
            raise UnreadableReply(f"`toolCallId` of event {number} is not a string")
        self.call = call_id
        return self.calls.under(self.call)

    def finished(self) -> ParsedAnswer:
        outcome, result = self.ended.get("outcome"), self.ended.get("result")
        # Messages since the user's last one, unless other events have them.
        messages = read_messages([it for it in self.snapshot if it.get("role") not in _NOT_SAID])
        users = [n for n, message in enumerate(messages) if message.speaker is Role.USER]
        new = messages[users[-1] + 1 :] if users else messages
        parts = ["".join(pieces) for pieces in self.texts.values()]
        said = [it.text for it in new if it.speaker is Role.ASSISTANT and it.text]
        text = "\n\n".join(filter(None, parts)) or (said[-1] if said else "")
        waits = isinstance(outcome, dict) and outcome.get("type") == "interrupt"
        uses = merged_uses(self.calls.uses, calls_of(new))
        earlier = calls_of(messages[: len(messages) - len(new)])
        known = KnownCalls((use.call for use in uses), (use.call for use in earlier))
        places = [hidden_calls(it, known) for it in (*self.others, {"result": result})]
        places += (message.hidden for message in new)
        reply = agent_reply(
            text or (result if isinstance(result, str) else ""),
            uses,
            self.spent(),
            warnings=(_WAITS,) if waits else (),
            hidden=next((place for place in places if place is not None), None),
            hint="report them by events such as `TOOL_CALL_START`",
            reports_tools=True,
        )
        return ParsedAnswer(reply, self.state)

    def spent(self) -> Spent:
        """Return the tokens of all models; a number that one of them lacks is unknown."""
        entries = objects(self.ended.get("usage"))
        if entries != (self.ended.get("usage") or []):
            return Spent()
        models = {read_model(entry) for entry in entries}
        first, *others = map(read_counts, entries or [{}])
        usage = sum(others, first)
        read, written = token_count(usage.input_tokens), token_count(usage.output_tokens)
        model = models.pop() if len(models) == 1 else None
        return Spent(Usage(read, written, usage.extras), model=model)
