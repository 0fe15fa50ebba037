"""A2A over JSON-RPC, in the versions 0.3 and 1.0: messages, and tasks with artifacts.

The table under "A2A" in docs/reference/agent-answers.md lists what kindlm reads. kindlm asks for
the whole answer, not for a stream. The protocol does not require agents to report tool calls. The
next message sends the agent's id of the conversation (`contextId`) back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.agents.chat_messages import agent_among
from kindlm.agents.drafts import ParsedAnswer, ReportedCalls
from kindlm.agents.hidden_calls import hidden_calls
from kindlm.agents.http_request import last_user_text
from kindlm.agents.protocols import Protocol
from kindlm.agents.reply_parts import UnreadableReply, compact_json, error_text, lookup
from kindlm.agents.reply_reading import FailedReply, agent_reply
from kindlm.agents.reply_usage import read_spent
from kindlm.agents.tool_entries import names_a_tool, read_tool_use, reported_calls
from kindlm.errors import DOCS
from kindlm.ports import AgentRequest
from kindlm.same_calls import KnownCalls
from kindlm.wires import Spent, content_text, object_or_empty, objects

_NOT_YET = frozenset({"submitted", "working", "unspecified", "unknown"})
_FAILED = frozenset({"failed", "rejected", "canceled"})
_WAITS = frozenset({"input-required", "auth-required"})
_NO_METHOD = -32601
_LATER = (
    "Let the server answer once the task is done: kindlm asks it to wait, and does not ask again. "
    f"Or test the agent in another way: {DOCS}/how-to/see-your-agent/"
)
_KINDS = ("message", "task", "statusUpdate", "artifactUpdate", "status-update", "artifact-update")
"""The keys of results in version 1.0, and the `kind` of results in 0.3."""


def _latest(request: AgentRequest, _stream: bool, carried: Any) -> dict[str, Any]:
    message = {"role": "ROLE_USER", "parts": [{"text": last_user_text(request)}]}
    return _call(request, "SendMessage", message, carried)


def _earlier(request: AgentRequest, _stream: bool, carried: Any) -> dict[str, Any]:
    part = {"kind": "text", "text": last_user_text(request)}
    message = {"kind": "message", "role": "user", "parts": [part]}
    body = _call(request, "message/send", message, carried)
    # Some servers require the list of media types; an empty one takes all.
    body["params"]["configuration"] = {"blocking": True, "acceptedOutputModes": []}
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


A2A = Protocol(
    "A2A", _latest, is_call_answer, {"a2a-version": "1.0"}, sends_system=False, sends_context=True
)
A2A_0_3 = Protocol("A2A", _earlier, is_call_answer, sends_system=False, sends_context=True)


def _result(value: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Return the kind of a result, None if it is unknown, and its content."""
    result = object_or_empty(value.get("result"))
    if result.get("kind") in _KINDS:
        return result["kind"], result
    kind = next((key for key in _KINDS if isinstance(result.get(key), dict)), None)
    return kind, {} if kind is None else result[kind]


def read_call_answer(value: Mapping[str, Any]) -> ParsedAnswer:
    """Read the answer to a call; raises `FailedReply` or `UnreadableReply` without one."""
    if error := value.get("error"):
        missing = isinstance(error, dict) and error.get("code") == _NO_METHOD
        versions = " (`a2a` is version 1.0, `a2a-0.3` is 0.3)" if missing else ""
        raise FailedReply(f"{error_text(value)}{versions}")
    kind, result = _result(value)
    if kind not in ("message", "task"):
        raise UnreadableReply("it has neither a message nor a task as its `result`")
    spent = read_spent(object_or_empty(result.get("metadata")))
    try:
        state, messages = _state_of(result) if kind == "task" else ("", [result])
        return _read(result, state, messages, spent)
    except UnreadableReply as error:
        error.spent = spent
        raise


def _state_of(task: Mapping[str, Any]) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the state of a task, and the agent's messages since the user's last one."""
    state = str(lookup(task, "status.state") or "unknown").lower()
    state = state.removeprefix("task_state_").replace("_", "-")
    status = lookup(task, "status.message")
    said = status if isinstance(status, dict) else {}
    if state in _FAILED:
        raise FailedReply(_text(said) or f"the task is `{state}`")
    if state in _NOT_YET:
        raise UnreadableReply(f"its task is still `{state}`: it has no answer yet", _LATER)
    history = objects(task.get("history"))
    users = [n for n, it in enumerate(history) if str(it.get("role")).lower().endswith("user")]
    messages = history[users[-1] + 1 :] if users else history
    return state, messages if said in messages else [*messages, said]


def _read(
    result: Mapping[str, Any], state: str, messages: list[Mapping[str, Any]], spent: Spent
) -> ParsedAnswer:
    """Read the tool calls in all parts, and the text: that of artifacts, else the last message."""
    context, task = result.get("contextId"), result.get("id")
    carried = {"contextId": context} if isinstance(context, str) else {}
    if state in _WAITS and isinstance(task, str):
        carried["taskId"] = task
    artifacts = objects(result.get("artifacts"))
    parts = [part for it in (*messages, *artifacts) for part in objects(it.get("parts"))]
    calls = ReportedCalls()
    places = [_add_calls(calls, part) for part in parts]
    if any("adk_type" in object_or_empty(part.get("metadata")) for part in parts):
        places.append(agent_among(calls.uses))
    hidden = next(filter(None, places), None)
    text = "\n\n".join(filter(None, map(_text, artifacts)))
    text = next(filter(None, (text, *map(_text, reversed(messages)))), "")
    data = [part["data"] for part in parts if part.get("data") is not None]
    if not (text or calls.entries or hidden):
        if not data:
            raise UnreadableReply("it has no part with a text")
        text = compact_json(data[0] if len(data) == 1 else data)
    reply = agent_reply(
        text,
        calls.uses,
        spent,
        warnings=("the task waits for credentials",) if state == "auth-required" else (),
        hidden=hidden,
        hint="name them in the `metadata` of their part, or list them as `tool_calls`",
    )
    return ParsedAnswer(reply, carried or None)


def _text(message: Mapping[str, Any]) -> str:
    return content_text(message.get("parts"))


def _add_calls(calls: ReportedCalls, part: Mapping[str, Any]) -> str | None:
    """Add the calls and results in a part's data; return the path of another possible call."""
    data, about = part.get("data"), object_or_empty(part.get("metadata"))
    if about.get("mimeType") == "application/json+a2ui":
        return None  # a user interface, whose buttons call functions of the client
    # The format of Google's ADK and of agents that follow it.
    kinds = [about.get(key) for key in ("adk_type", "type")]
    if not isinstance(data, dict):
        return "metadata" if any(map(names_a_tool, kinds)) else None
    kind = next((it for it in (*kinds, data.get("type")) if names_a_tool(it)), None)
    uses = reported_calls(data, None) if kind is None else [read_tool_use(data)]
    for use in uses:
        is_answer = kind is not None and any(word in kind for word in ("response", "result"))
        known = calls.find(use.call.id, use.call.name) if is_answer else None
        if known is None:
            calls.merge_use(use)
        elif use.response is not None:
            known.answer(use.response)
    here = KnownCalls(use.call for use in uses)
    place = hidden_calls(data, here) if kind is None else None
    return None if place is None else f"data.{place}".rstrip(".")
