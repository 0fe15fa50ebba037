"""What kindlm and the processes of Python agents tell each other: JSON, with its length before it.

JSON and not pickle: nothing that an agent returns is ever executed, or imported, by kindlm itself.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import TypeAlias

from pydantic import TypeAdapter, ValidationError

from kindlm.errors import Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget

HEADER = struct.Struct(">Q")
"""How many bytes of JSON follow."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Asks for an agent, for one conversation; see `python_agent` for `root`."""

    target: AgentTarget
    root: str


Call: TypeAlias = Opening | AgentRequest | None
"""Open an agent, send it a message, or leave it."""

Answer: TypeAlias = Result[AgentReply | None]
"""Each call has one; there is a reply to a message only."""

_CALL: TypeAdapter[Call] = TypeAdapter(Call)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


def pack_call(call: Call) -> bytes:
    """Return the frame of a call."""
    if isinstance(call, AgentRequest):
        # A function stays in its process. An agent in Python calls its tools itself.
        call = replace(call, answer_tool=None)
    return _frame(_CALL.dump_python(call))


def unpack_call(payload: bytes) -> Call:
    """Read a call."""
    return _CALL.validate_python(json.loads(payload))


def pack_answer(answer: Answer) -> bytes:
    """Return the frame of an answer; raise `TypeError` or `ValueError` for what JSON can't hold."""
    # What is wrong in a reply that somebody made by hand is found by whoever reads it.
    return _frame(_ANSWER.dump_python(answer, warnings=False))


def unpack_answer(payload: bytes) -> Answer:
    """Read an answer; raise `ValueError` that says what is wrong with one that is none."""
    try:
        return _ANSWER.validate_python(json.loads(payload))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][2:])
        raise ValueError(f"{place}: {first['msg']}") from None


def _frame(value: object) -> bytes:
    # Plain ASCII, so that lone surrogates, which models do write, survive the way.
    payload = json.dumps(value).encode("ascii")
    return HEADER.pack(len(payload)) + payload
