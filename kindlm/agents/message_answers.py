"""Reads JSON answers, also those that are or have the messages of the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.agents.reply_parts import error_text, first_text, lookup
from kindlm.agents.reply_reading import (
    FailedReply,
    Reading,
    failure_of,
    failure_warnings,
    read_reply,
    text_of,
)
from kindlm.agents.reply_usage import read_numbers
from kindlm.agents.tool_entries import has_place_for_calls
from kindlm.dataclass import replace
from kindlm.ports import AgentReply


def read_answer(
    value: Any, sent: str, reading: Reading, *, shows_calls: bool = False
) -> AgentReply:
    """Read an answer to the message `sent`; raises like `read_reply`.

    A list of messages is the answer. `messages` beside a text are read if the sent message is among
    them. They may be the texts alone. So they do not show that there was no call, unless
    `shows_calls` says this of a list with the sent message. A list that ends with an error failed.
    """
    listed = value if isinstance(value, list) else lookup(value, "messages")
    if not _are_messages(listed) or reading.tool_calls_path is not None:
        return read_reply(value, reading)
    # Imported here to save time: most answers are not messages.
    from kindlm.agents.chat_messages import holds_message
    from kindlm.agents.langgraph_replies import Sent, read_value

    is_list, has_sent = listed is value, holds_message(listed, sent)
    if reading.response_path is not None if is_list else not has_sent:
        return read_reply(value, reading)
    if is_list and (code := first_text(listed[-1].get("errorCode"))):  # of ADK
        raise FailedReply(error_text({"error": code, "message": listed[-1].get("errorMessage")}))
    reply = read_value(value, Sent(sent, has_history=True))
    if not (reply.text or reply.tool_uses):
        return read_reply(value, reading)
    is_shown = (shows_calls and is_list and has_sent) or has_place_for_calls(value, None)
    reply = replace(reply, reports_tools=is_shown or None)
    return reply if is_list else _with_rest(reply, value, reading)


def _with_rest(reply: AgentReply, value: Mapping[str, Any], reading: Reading) -> AgentReply:
    """Return a reply with the text, numbers and warnings beside its messages.

    If it reports an error, or has nothing at `response_path`, the messages are not the answer.
    """
    text, has_path = text_of(value, reading), reading.response_path is not None
    if failure_of(value) is not None or (has_path and text is None):
        return read_reply(value, reading)
    return replace(
        reply,
        text=(text or "") if has_path else text or reply.text,
        reported=read_numbers(value),
        warnings=(*(() if has_path else failure_warnings(value)), *reply.warnings),
    )


def _are_messages(value: Any) -> bool:
    """Return whether a value is a list of messages, of OpenAI's items, or of ADK's events."""
    return bool(value) and isinstance(value, list) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and not {"role", "type", "author"}.isdisjoint(value)
