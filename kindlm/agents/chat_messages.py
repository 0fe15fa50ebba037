"""Reads lists of messages in the forms of LangChain, OpenAI, Anthropic, Bedrock and Google's ADK.

A message whose `type` or `role` is not in `_SPEAKERS` is the assistant's. The messages after the
one that was sent are the answer. A message of the role `user` with tool results does not count as
one of the user. An item of OpenAI's responses has no role: its type says whether it is a tool call
or a result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.hidden_calls import hidden_calls
from kindlm.agents.reply_parts import (
    MAX_MESSAGES,
    compact_json,
    end_reasons,
    first_text,
    lookup,
    refuse_more,
)
from kindlm.agents.reply_usage import later_spent, read_counts, read_model
from kindlm.agents.tool_entries import (
    calls_and_results,
    failed_tool,
    is_item,
    listed_calls,
    reported_calls,
    together,
)
from kindlm.dataclass import dataclass, replace
from kindlm.same_calls import KnownCalls
from kindlm.strict_json import read_json
from kindlm.transcript import UNNAMED, Role, ToolUse, Usage
from kindlm.wires import Spent, content_text, object_or_empty, token_count

_SPEAKERS = {
    "human": Role.USER,
    "HumanMessageChunk": Role.USER,
    "user": Role.USER,
    "tool": Role.TOOL,
    "ToolMessageChunk": Role.TOOL,
    "function": Role.TOOL,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "remove": Role.SYSTEM,
}
_INVALID = "invalid_tool_calls"
_READ_KEYS = frozenset(
    {"tool_calls", "tool_call_chunks", _INVALID, "additional_kwargs", "response_metadata"}
)
"""The keys of a message that kindlm reads, or that repeat others."""

_USAGES = (
    *("usage_metadata", "usage", "response_metadata.token_usage", "response_metadata.usage"),
    *("metadata.usage", "metrics"),  # Strands, Agno
)

_NESTED = {
    "toolUse": "tool_use",  # Bedrock
    "toolResult": "tool_result",
    "functionCall": "tool_use",  # Gemini
    "functionResponse": "tool_result",
}
"""Keys under which a part has a call or a result, each with the type of Anthropic's part."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; a call without an id has an empty one.

    `hidden` is the place of a possible call that kindlm does not read. `answers` is the id of the
    call whose `response` a tool message has. `agent` is the agent that a tool message hands over
    to, or the one that wrote a message with calls. `reasons` say why a model's message ended. The
    speaker of messages that are not part of the conversation is `Role.SYSTEM`.
    """

    speaker: Role
    text: str
    id: str | None = None
    uses: tuple[ToolUse, ...] = ()
    hidden: str | None = None
    answers: str | None = None
    name: str | None = None
    agent: str | None = None
    response: Any = None
    spent: Spent = Spent()
    reasons: tuple[str, ...] = ()


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    """Read one message or a list, without messages that are not part of the conversation."""
    found = list(_objects(value))
    refuse_more(len(found), MAX_MESSAGES, "messages")
    messages = (each for message in found for each in _read(message))
    return tuple(message for message in messages if message.speaker is not Role.SYSTEM)


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield an object, or those in a list and in the lists of it. A text may be JSON."""
    waiting = [value]  # without recursion: lists may be nested deeply
    while waiting:
        part = read_json(waiting.pop())
        if isinstance(part, dict):
            yield part
        elif isinstance(part, list):
            waiting.extend(reversed(part))


def new_messages(
    messages: Sequence[ChatMessage], sent: str, *, has_history: bool
) -> Sequence[ChatMessage]:
    """Return the messages after the one that was sent.

    An agent may have reworded the sent message. With `has_history`, earlier messages may be among
    these: then the messages after the user's last one are new.
    """
    places = [i for i, message in enumerate(messages) if message.speaker is Role.USER]
    same = [i for i in places if messages[i].text == sent]
    known = same or (places if has_history else [])
    return messages[known[-1] + 1 :] if known else messages


def holds_message(value: Any, sent: str) -> bool:
    """Return whether messages contain the one that was sent, and so all later ones."""
    return any(it.speaker is Role.USER and it.text == sent for it in read_messages(value))


_Key: TypeAlias = tuple[object, ...]


class Merging:
    """Merges messages that streams repeat.

    Two messages are the same if their ids are. Without ids, they are the same if their content is,
    and their position among equal messages. Graphs give an id to a message that they have already
    sent without one: so a message with a new id is the earliest equal message that still has none.
    Those of one list are always different. The later version replaces the earlier one, whose usage
    it keeps if it reports none.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, ChatMessage] = {}
        self._news = Counter[_Key]()
        self._keys: dict[tuple[str, int], _Key] = {}
        self._without_id = defaultdict[_Key, list[_Key]](list)

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        return tuple(self._known.values())

    def add(self, messages: Iterable[ChatMessage], *, are_all: bool) -> None:
        """Add all messages so far, or messages that follow those added before."""
        seen = Counter[_Key]() if are_all else self._news
        ids = Counter[str]()
        without_id = list[tuple[_Key, _Key]]()
        for message in messages:
            calls = tuple(
                (use.call.id, use.call.name, use.call.malformed or compact_json(use.call.arguments))
                for use in message.uses
            )
            content: _Key = (message.speaker, message.text, calls, message.answers)
            key = (*content, seen[content])
            seen[content] += 1
            if message.id:
                name = (message.id, ids[message.id])
                ids[message.id] += 1
                if name not in self._keys:
                    earlier_keys = self._without_id[content]
                    self._keys[name] = earlier_keys.pop(0) if earlier_keys else name
                key = self._keys[name]
            elif key not in self._known:
                without_id.append((content, key))
            earlier = self._known.get(key)
            if earlier is not None:
                message = replace(message, spent=later_spent(earlier.spent, message.spent))  # noqa: PLW2901
            self._known[key] = message
        for content, key in without_id:
            self._without_id[content].append(key)


def calls_of(messages: Iterable[ChatMessage]) -> tuple[ToolUse, ...]:
    """Return the calls of messages with their results; a call without an id has an empty one."""
    calls = ReportedCalls()
    for message in messages:
        for use in message.uses:
            calls.add_use(use)
        if message.speaker is Role.TOOL:
            call_id, name = message.answers, message.name
            answered = calls.find(None, name) if call_id is None else calls.by_id(call_id)
            if answered is None:  # a result without a call shows that there was one
                answered = calls.add(name or UNNAMED, call_id, None)
            answered.answer(message.response)
    return calls.uses


def _read(value: Mapping[str, Any]) -> Iterator[ChatMessage]:
    """Yield a message; each tool result of a message that is not a tool's becomes one."""
    is_of_adk, value = is_event(value), _flat(value)
    names = (value.get("type"), value.get("role"))
    known = (_SPEAKERS[name] for name in names if isinstance(name, str) and name in _SPEAKERS)
    speaker = next(known, Role.ASSISTANT)
    if value.get("tool_calls") or isinstance(value.get("function"), dict):
        speaker = Role.ASSISTANT  # a call may stand alone in the form of OpenAI
    if speaker in (Role.TOOL, Role.SYSTEM):
        yield _message(speaker, value)
        return
    if speaker is Role.ASSISTANT and "role" not in value and is_item(value):
        # The SDK of OpenAI's agents gives all items the same `id`.
        value = {"id": value.get("call_id", value.get("id")), "content": [value]}
    message = _message(speaker, value)
    if is_of_adk and (agent := agent_among(message.uses)) is not None:
        message = replace(message, hidden=agent)
    _, results = calls_and_results(value)
    for call_id, result in results.items():
        yield ChatMessage(Role.TOOL, content_text(result), answers=call_id, response=result)
    if not results or message.uses or (message.text and speaker is Role.ASSISTANT):
        yield message


def _flat(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message of Bedrock, or an event of ADK, in the form of Anthropic's messages."""
    held = object_or_empty(value.get("content"))
    parts = held.get("parts") if is_event(value) else value.get("content")
    if not isinstance(parts, list):
        return value
    flat = {**value, "content": [_flat_part(part) for part in parts if not _is_thought(part)]}
    if is_event(value):
        flat |= {"role": held.get("role"), "model": value.get("modelVersion")}
    if counts := object_or_empty(value.get("usageMetadata")):
        written = (token_count(counts.get(f"{it}TokenCount")) for it in ("candidates", "thoughts"))
        flat["usage"] = {
            "input_tokens": counts.get("promptTokenCount"),
            "output_tokens": sum(filter(None, written)),
            "input_token_details": {"cache_read": counts.get("cachedContentTokenCount")},
        }
    return flat


def is_event(value: Mapping[str, Any]) -> bool:
    """Return whether an object is an event of Google's ADK, with a message in Gemini's form."""
    content = object_or_empty(value.get("content"))
    return isinstance(content.get("parts"), list) and isinstance(content.get("role"), str)


def agent_among(uses: Iterable[ToolUse]) -> str | None:
    """Return the tool of ADK that may be an agent, whose own calls ADK does not show."""
    names = (use.call.name for use in uses if [*use.call.arguments] == ["request"])
    return next((f"the agent {name}" for name in names), None)


def _is_thought(part: Any) -> bool:
    return lookup(part, "thought") is True and isinstance(part.get("text"), str)


def _flat_part(part: Any) -> Any:
    """Return a part with a nested call or result in Anthropic's form; others as they are."""
    key = next((key for key in _NESTED if isinstance(lookup(part, key), dict)), None)
    if key is None:
        return part
    held = part[key]
    call_id = first_text(held.get("id"), held.get("toolUseId"))
    if call_id is None:
        return part  # nothing shows to which call a result belongs
    if _NESTED[key] == "tool_use":
        return {"type": _NESTED[key], "id": call_id, **held}
    result = held.get("response", held.get("content"))
    return {
        "type": _NESTED[key],
        "tool_use_id": call_id,
        "content": content_text(result) or result,
        "is_error": held.get("status") == "error",
    }


def _message(speaker: Role, value: Mapping[str, Any]) -> ChatMessage:
    content = value.get("content")
    is_content = isinstance(content, str | list | None)
    text = content_text(content) if is_content else compact_json(content)
    message_id = first_text(value.get("id"))
    if speaker is Role.TOOL:
        parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
        response = text if parts and content else content
        if value.get("error") or value.get("status") == "error":
            response = failed_tool(value.get("error") or response)
        return ChatMessage(
            speaker,
            text,
            message_id,
            answers=first_text(value.get("tool_call_id"), value.get("toolCallId")),
            name=first_text(value.get("name")),
            agent=first_text(lookup(value, "response_metadata.__handoff_destination")),
            response=response,
        )
    if speaker is not Role.ASSISTANT:
        return ChatMessage(speaker, text, message_id)
    usages = (read_counts(lookup(value, path)) for path in _USAGES)
    more = reported_calls(value.get("additional_kwargs"), None)
    invalid = listed_calls(value.get(_INVALID), _INVALID)  # their arguments are not JSON
    uses = tuple(together(calls_and_results(value)[0], more, invalid))
    rest = {key: part for key, part in value.items() if key not in _READ_KEYS}
    hands_back = lookup(value, "response_metadata.__is_handoff_back") is True
    return ChatMessage(
        speaker,
        text,
        message_id,
        uses,
        hidden_calls(rest, KnownCalls(use.call for use in uses)),
        agent=first_text(value.get("name")) if uses and not hands_back else None,
        spent=Spent(
            next((usage for usage in usages if usage != Usage()), Usage()),
            model=read_model(value.get("response_metadata")) or read_model(value),
        ),
        reasons=end_reasons(value.get("response_metadata")) or end_reasons(value),
    )
