"""A2A over JSON-RPC, in the versions 0.3 and 1.0: messages, and tasks with artifacts.

The table under "A2A" in docs/how-to/agents.md lists what kindlm reads. The protocol does not
require agents to report tool calls. The next message sends the agent's id of the conversation
(`contextId`) back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.agents.drafts import Draft, ParsedAnswer, ReportedCalls
from kindlm.agents.http_request import last_user_text
from kindlm.agents.protocols import Protocol
from kindlm.agents.reply_parts import UnreadableReply, compact_json, error_text
from kindlm.agents.reply_reading import FailedReply, agent_reply, read_spent
from kindlm.agents.tool_entries import hidden_calls, names_a_tool, read_tool_use, reported_calls
from kindlm.ports import AgentRequest
from kindlm.wires import Spent, content_text, objects

_NOT_YET = frozenset({"submitted", "working", "unspecified", "unknown"})
_FAILED = frozenset({"failed", "rejected", "canceled"})
_WAITS = frozenset({"input-required", "auth-required"})
_NO_METHOD = -32601
_KINDS = {
    "message": "message",
    "task": "task",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}
"""The keys of results in version 1.0, and the `kind` of results in 0.3."""


def _latest(request: AgentRequest, stream: bool, carried: Any) -> dict[str, Any]:
    message = {"role": "ROLE_USER", "parts": [{"text": last_user_text(request)}]}
    method = "SendStreamingMessage" if stream else "SendMessage"
    return _call(request, method, message, carried)


def _earlier(request: AgentRequest, stream: bool, carried: Any) -> dict[str, Any]:
    part = {"kind": "text", "text": last_user_text(request)}
    message = {"kind": "message", "role": "user", "parts": [part]}
    body = _call(request, "message/stream" if stream else "message/send", message, carried)
    body["params"]["configuration"] = {"blocking": True}
    return body


def _call(
    request: AgentRequest, method: str, message: dict[str, Any], carried: Any
) -> dict[str, Any]:
    message_id = f"{request.conversation}-{len(request.messages)}"
    context = {"metadata": dict(request.context)} if request.context else {}
    message = {**message, "messageId": message_id, **(carried or {}), **context}
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": {"message": message}}


def is_call_answer(value: Any) -> bool:
    """Return whether a JSON value is an answer of A2A: a result of a known kind, or an error."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return False
    return isinstance(value.get("error"), dict) or _result(value)[0] is not None


def ends_answer(value: Mapping[str, Any]) -> bool:
    """Return whether an event is the last one of its stream."""
    kind, result = _result(value)
    if kind in ("message", None) or result.get("final") is True:
        return True
    return kind != "artifact-update" and _state(result) not in _NOT_YET


A2A = Protocol(
    "A2A", _latest, is_call_answer, {"a2a-version": "1.0"}, sends_system=False, sends_context=True
)
A2A_0_3 = Protocol("A2A", _earlier, is_call_answer, sends_system=False, sends_context=True)


def _result(value: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Return the `kind` of a result as in version 0.3, and its content."""
    result = value.get("result")
    if not isinstance(result, dict):
        return None, {}
    for key, kind in _KINDS.items():
        if result.get("kind") == kind:
            return kind, result
        if isinstance(result.get(key), dict):
            return kind, result[key]
    return None, {}


def _state(result: Mapping[str, Any]) -> str:
    status = result.get("status")
    state = status.get("state") if isinstance(status, dict) else None
    return str(state or "unknown").lower().removeprefix("task_state_").replace("_", "-")


@dataclass(slots=True)
class TaskDraft(Draft):
    """The result or the streamed results of a call.

    `messages` and `artifacts` of a task are stored by id. `direct` is a message without a task.
    """

    messages: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    artifacts: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    direct: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None
    state: str = "unknown"
    carried: dict[str, Any] = field(default_factory=dict)
    task: Any = None
    about: dict[str, Any] = field(default_factory=dict)
    is_task: bool = False

    def add(self, event: Mapping[str, Any], _number: int) -> None:
        error = event.get("error")
        if error:
            missing = isinstance(error, dict) and error.get("code") == _NO_METHOD
            versions = " (`a2a` is version 1.0, `a2a-0.3` is 0.3)" if missing else ""
            raise FailedReply(f"{error_text(event)}{versions}")
        kind, result = _result(event)
        context, about = result.get("contextId"), result.get("metadata")
        if isinstance(context, str):
            self.carried["contextId"] = context
        self.about |= about if isinstance(about, dict) else {}
        match kind:
            case "message":
                self.direct = result
            case "task":
                self.is_task, self.task = True, result.get("id")
                history = objects(result.get("history"))
                roles = [str(message.get("role")).lower() for message in history]
                users = [at for at, role in enumerate(roles) if role.endswith("user")]
                # The agent's messages since the user's last one.
                for message in history[users[-1] + 1 :] if users else history:
                    self._add_message(message)
                for artifact in objects(result.get("artifacts")):
                    self.artifacts[str(artifact.get("artifactId"))] = objects(artifact.get("parts"))
                self._add_status(result)
            case "status-update":
                self.is_task, self.task = True, result.get("taskId")
                self._add_status(result)
            case "artifact-update":
                self.is_task = True
                for artifact in objects([result.get("artifact")]):
                    parts = self.artifacts.setdefault(str(artifact.get("artifactId")), [])
                    if result.get("append") is not True:
                        parts.clear()
                    parts += objects(artifact.get("parts"))

    def _add_message(self, message: Mapping[str, Any]) -> None:
        self.messages[str(message.get("messageId", len(self.messages)))] = message

    def _add_status(self, result: Mapping[str, Any]) -> None:
        self.state = _state(result)
        status = result.get("status")
        message = status.get("message") if isinstance(status, dict) else None
        self.status = message if isinstance(message, dict) else None
        if self.status is not None:
            self._add_message(self.status)

    def finished(self) -> ParsedAnswer:
        if self.direct is None and not self.is_task:
            raise UnreadableReply("it has neither a message nor a task as its `result`")
        if self.is_task and self.direct is None:
            if self.state in _FAILED:
                raise FailedReply(_text(self.status) or f"the task is `{self.state}`")
            if self.state in _NOT_YET:
                raise UnreadableReply(f"its task is still `{self.state}`: it has no answer yet")
        if self.state in _WAITS and isinstance(self.task, str):
            self.carried["taskId"] = self.task
        calls = ReportedCalls()
        places = [_add_calls(calls, part) for part in self._parts()]
        hidden = next(filter(None, places), None)
        waits = self.state == "auth-required"
        reply = agent_reply(
            self._answer(has_calls=bool(calls.entries) or hidden is not None),
            calls.uses,
            self.spent(),
            warnings=("the task waits for credentials",) if waits else (),
            hidden=hidden,
            hint="name them in the `metadata` of their part, or list them as `tool_calls`",
        )
        return ParsedAnswer(reply, self.carried or None)

    def spent(self) -> Spent:
        return read_spent(self.about)

    def _parts(self) -> Iterator[Mapping[str, Any]]:
        for message in (*self.messages.values(), self.direct or {}):
            yield from objects(message.get("parts"))
        for parts in self.artifacts.values():
            yield from parts

    def _answer(self, *, has_calls: bool) -> str:
        artifacts = [_text({"parts": parts}) for parts in self.artifacts.values()]
        messages = [_text(message) for message in reversed(self.messages.values())]
        texts = ["\n\n".join(filter(None, artifacts)), _text(self.direct), _text(self.status)]
        text = next(filter(None, (*texts, *messages)), "")
        data = [part["data"] for part in self._parts() if part.get("data") is not None]
        if text or has_calls:
            return text
        if not data:
            raise UnreadableReply("it has no part with a text")
        return compact_json(data[0] if len(data) == 1 else data)


def _text(message: Mapping[str, Any] | None) -> str:
    return "" if message is None else content_text(message.get("parts"))


def _add_calls(calls: ReportedCalls, part: Mapping[str, Any]) -> str | None:
    """Add the calls and results in a part's data; return the path of another possible call."""
    data, about = part.get("data"), part.get("metadata")
    if not isinstance(data, dict):
        return None
    # The format of Google's ADK and of agents that follow it.
    kinds = [about.get(key) for key in ("adk_type", "type")] if isinstance(about, dict) else []
    kind = next((it for it in (*kinds, data.get("type")) if names_a_tool(it)), None)
    uses = reported_calls(data, None) if kind is None else [read_tool_use(data)]
    for use in uses:
        is_answer = kind is not None and any(word in kind for word in ("response", "result"))
        known = calls.find(use.call.id, use.call.name) if is_answer else calls.by_id(use.call.id)
        if known is None:
            calls.add_use(use)
        elif use.response is not None:
            known.answer(use.response)
    place = hidden_calls(data, read=uses) if kind is None else None
    return None if place is None else f"data.{place}".rstrip(".")
