"""Reads lists of messages in the forms of LangChain and OpenAI.

| `type` or `role` | what is read of it |
|---|---|
| `ai`, `assistant`, none or another | `content`, `tool_calls`, `usage_metadata`, the model |
| `tool`, `function` | `content` answers the call with the `tool_call_id` |
| `human`, `user` | begins what is new |
| `system`, `developer`, `remove` | nothing |

A list contains the whole conversation. Messages after the one that was sent are new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kindlm.agents.drafts import ToldCalls
from kindlm.agents.reply_parts import MAX_MESSAGES, compact_json, first_text, lookup, refuse_more
from kindlm.agents.reply_reading import read_counts, read_model, summed
from kindlm.agents.tool_entries import failed_tool, listed_calls, reported_calls, together
from kindlm.dataclass import dataclass, replace
from kindlm.transcript import UNNAMED, Role, ToolCall, ToolUse, Usage
from kindlm.wires import content_text

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
_USAGES = ("usage_metadata", "usage", "response_metadata.token_usage", "response_metadata.usage")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. A call without an id has an empty one; `answers` is the id of a tool's call.

    A message whose role is not part of the conversation counts as one of the system.
    """

    speaker: Role
    text: str
    id: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    name: str | None = None
    response: Any = None
    usage: Usage = Usage()
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """The content of messages besides their texts. A call without an id has an empty one."""

    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    models: tuple[str, ...] = ()


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    """Read one message or a list of them, without those that are not part of the conversation.

    Raises:
        UnreadableReply: there are more than `MAX_MESSAGES`, or their calls cannot be read.
    """
    found = value if isinstance(value, list) else [value]
    refuse_more(len(found), MAX_MESSAGES, "messages")
    messages = [_read(message) for message in found if isinstance(message, dict)]
    return tuple(message for message in messages if message.speaker is not Role.SYSTEM)


def new_messages(
    messages: Sequence[ChatMessage], sent: str, *, has_history: bool
) -> Sequence[ChatMessage]:
    """Return the messages that came after the one that was sent.

    An agent may have reworded the sent message. If earlier messages can be among these
    (`has_history`), the last one of the user counts then.
    """
    places = [i for i, message in enumerate(messages) if message.speaker is Role.USER]
    same = [i for i in places if messages[i].text == sent]
    known = same or (places if has_history else [])
    return messages[known[-1] + 1 :] if known else messages


def holds_message(value: Any, sent: str) -> bool:
    """Return whether a list of messages holds the one that was sent, and so all later ones."""
    return any(it.speaker is Role.USER and it.text == sent for it in read_messages(value))


class Merging:
    """Merges messages that streams repeat.

    Messages are the same by their ids, else by their content and their position among equal ones.
    The later version counts, with the usage that either reported.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], ChatMessage] = {}
        self._news = Counter[tuple[object, ...]]()

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """All of them, in the order they were first reported."""
        return tuple(self._known.values())

    def add_all(self, messages: Iterable[ChatMessage]) -> None:
        """Add all messages so far."""
        self._add(messages, Counter())

    def add_new(self, messages: Iterable[ChatMessage]) -> None:
        """Add the messages since the last new ones."""
        self._add(messages, self._news)

    def _add(self, messages: Iterable[ChatMessage], seen: Counter[tuple[object, ...]]) -> None:
        for message in messages:
            calls = tuple(
                (call.id, call.name, call.malformed or compact_json(call.arguments))
                for call in message.calls
            )
            said = (message.speaker, message.text, calls, message.answers)
            key = (message.id,) if message.id else (*said, seen[said])
            seen[said] += 1
            earlier = self._known.get(key)
            if earlier is not None:
                usage = earlier.usage if message.usage == Usage() else message.usage
                message = replace(message, usage=usage, model=message.model or earlier.model)  # noqa: PLW2901
            self._known[key] = message


def last_text(messages: Sequence[ChatMessage]) -> str | None:
    """Return the text of the last message that is not the user's, None if there is none."""
    said = (message.text for message in reversed(messages) if message.speaker is not Role.USER)
    return next(said, None)


def spoken(messages: Iterable[ChatMessage]) -> Spoken:
    """Return the content of messages: calls with results, and the sum of reported usage."""
    calls, usages = ToldCalls(), list[Usage]()
    models: dict[str, None] = {}
    for message in messages:
        for call in message.calls:
            calls.add(call.name, call.id or None, call.malformed or call.arguments)
        if message.speaker is Role.TOOL and not _answered(calls, message):
            # A call with a result was made, whatever the messages leave out.
            calls.add(message.name or UNNAMED, message.answers, None).answer(message.response)
        usages.append(message.usage)
        if message.model is not None:
            models[message.model] = None
    return Spoken(calls.uses_as_told, summed(usages), tuple(models))


def _read(value: Mapping[str, Any]) -> ChatMessage:
    names = (value.get("type"), value.get("role"))
    known = (_SPEAKERS[name] for name in names if isinstance(name, str) and name in _SPEAKERS)
    speaker = next(known, Role.ASSISTANT)
    content = value.get("content")
    is_content = isinstance(content, str | list | None)
    text = content_text(content) if is_content else compact_json(content)
    message_id = first_text(value.get("id"))
    if speaker is Role.TOOL:
        parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
        response = text if parts and content else content
        return ChatMessage(
            speaker,
            text,
            message_id,
            answers=first_text(value.get("tool_call_id")),
            name=first_text(value.get("name")),
            response=failed_tool(response) if value.get("status") == "error" else response,
        )
    if speaker is not Role.ASSISTANT:
        return ChatMessage(speaker, text, message_id)
    usages = (read_counts(lookup(value, path)) for path in _USAGES)
    return ChatMessage(
        speaker,
        text,
        message_id,
        _calls(value),
        usage=next((usage for usage in usages if usage != Usage()), Usage()),
        model=read_model(value.get("response_metadata")) or read_model(value),
    )


def _calls(value: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a message, those whose arguments are not JSON among them."""
    more = reported_calls(value.get("additional_kwargs"), None)
    invalid = listed_calls(lookup(value, _INVALID), _INVALID)
    return tuple(use.call for use in together(reported_calls(value, None), more, invalid))


def _answered(calls: ToldCalls, message: ChatMessage) -> bool:
    """Give a call its result; return whether it belongs to a call."""
    by_id = message.answers
    made = calls.find(None, message.name) if by_id is None else calls.by_id(by_id)
    if made is None:
        return False
    made.answer(message.response)
    return True
