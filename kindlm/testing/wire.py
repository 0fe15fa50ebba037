"""What a wire format is: how requests are checked and read, how answers are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kindlm.testing.conversation import Conversation, Reply, WireName
    from kindlm.testing.faults import Allowance
    from kindlm.testing.script import ModelSpec


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the real API would not accept.

    Attributes:
        status: HTTP status.
        kind: The error's `type`.
        message: The error's message.
        param: The parameter at fault (Chat Completions only).
        code: The error's code (Chat Completions only).
    """

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One provider's format.

    Attributes:
        name: Which.
        key_of: The key in a request's headers, None if there is none.
        auth_refusal: What a missing (None) or wrong key gets.
        unknown_model: What a model that does not exist gets.
        read: Turns headers and a body, parsed and raw, into a conversation, or into what is wrong.
        write: Turns a reply into the parts of an answer's body: one, or the events of a stream.
        error_body: An error in the format's shape, with the id of the request.
        status_refusal: The error that the real API sends with a status.
        headers: Headers of every answer: the id of the request, what is left of a limit.
    """

    name: WireName
    key_of: Callable[[Mapping[str, str]], str | None]
    auth_refusal: Callable[[str | None], Refusal]
    unknown_model: Callable[[str], Refusal]
    read: Callable[
        [Mapping[str, str], dict[str, Any], bytes, ModelSpec | None], Conversation | Refusal
    ]
    write: Callable[[Conversation, Reply, str], tuple[bytes, ...]]
    error_body: Callable[[Refusal, str], dict[str, Any]]
    status_refusal: Callable[[int, str], Refusal]
    headers: Callable[[str, Allowance], tuple[tuple[str, str], ...]]


def words_of(text: str) -> list[str]:
    """The text in parts of a word each, as a stream carries it; joined they are the text."""
    return re.findall(r"\s*\S+|\s+", text)
