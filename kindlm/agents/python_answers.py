"""What an agent in Python returned or yielded, in our words.

| what | how it is read |
|---|---|
| a text; pieces of text that it yields | the answer |
| an `AgentReply`, also as a `Result` | as it is |
| a result of a framework, a part of one, or its pieces | by `agents.frameworks` |
| a list of messages, each with a `role` or `type` | those after the message that was sent |
| another JSON value, a pydantic model, a dataclass | like the body of an HTTP agent |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel

from kindlm.agents.agent_failures import AgentFailed, Who
from kindlm.agents.frameworks import as_json, reply_of
from kindlm.agents.reply_parts import MAX_EVENTS, UnreadableReply, compact_json, refuse_more
from kindlm.agents.reply_reading import FailedReply, Reading, read_reply
from kindlm.agents.user_code import in_thread
from kindlm.bounds import MAX_COUNTED
from kindlm.dataclass import replace
from kindlm.errors import Err, Ok
from kindlm.plugins import Framework
from kindlm.ports import AgentReply


async def drained(said: Any) -> Any:
    """Return what a generator yields: one text if all of it is text, else a list.

    A generator that is not async runs in a thread.
    """
    pieces: list[Any] = []
    if isinstance(said, AsyncIterator):
        async for piece in said:
            refuse_more(len(pieces) + 1, MAX_EVENTS, "pieces")
            pieces.append(piece)
    elif isinstance(said, Iterator):

        def take() -> None:
            for piece in said:
                refuse_more(len(pieces) + 1, MAX_EVENTS, "pieces")
                pieces.append(piece)

        await in_thread(take)
    else:
        return said
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces


async def read_answer(
    who: Who, said: Any, sent: str, reading: Reading, framework: Framework
) -> AgentReply:
    """Return what an agent said about the message `sent`; `framework` is the agent's own.

    Raises what a framework raises while it reads its result, and `AgentFailed` for no answer.
    """
    if isinstance(said, Err):
        raise AgentFailed(said.error)
    said = said.value if isinstance(said, Ok) else said
    raw = ""
    try:
        is_reply = isinstance(said, AgentReply)
        reply = said if is_reply else await reply_of(said, sent, known=framework)
        if reply is None and isinstance(said, str):
            return read_reply(said, Reading())
        if reply is None:
            raw = _written(said)
            return replace(_read_json(raw, sent, reading), raw=raw)
    except (FailedReply, UnreadableReply) as error:
        raise AgentFailed(who.unreadable(error, raw)) from error
    counts = (reply.usage.input_tokens, reply.usage.output_tokens, reply.reported_cost_usd)
    if any(not 0 <= (count or 0) <= MAX_COUNTED for count in counts):
        wrong = "its token count or its cost is negative or too large"
        raise AgentFailed(who.unreadable(wrong, ""))
    return reply


def _written(said: Any) -> str:
    """Return a value as JSON; raise `UnreadableReply` if it is none."""
    if said is None:
        raise UnreadableReply("it returned nothing")
    try:
        is_model = isinstance(said, BaseModel) or is_dataclass(said)
        return compact_json(as_json(said) if is_model else said)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(said).__name__
        reason = f"{kind} is neither text, JSON nor an AgentReply: {error}"
        raise UnreadableReply(reason) from None


def _read_json(raw: str, sent: str, reading: Reading) -> AgentReply:
    # As JSON holds it: a tuple is a list, and a key that is a number is a text.
    value = json.loads(raw)
    if reading == Reading() and isinstance(value, list) and value and all(map(_is_message, value)):
        # Most answers are not messages, and each process of an agent would import this.
        from kindlm.agents.chat_messages import holds_message
        from kindlm.agents.langgraph_replies import Sent, read_value

        reply = read_value(value, Sent(sent, has_history=True))
        return reply if holds_message(value, sent) else replace(reply, reports_tools=None)
    return read_reply(value, reading)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "type" in value)
