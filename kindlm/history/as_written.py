"""Whether a text of a suite is the one that was recorded, whatever the environment put into it."""

from __future__ import annotations

import re

from kindlm.transcript import Message

__all__ = ["is_as_recorded"]

# What stands in a suite until values of the environment are put in. They are not recorded as such.
_DEFERRED = re.compile("\ufdd0\\{\\{[\\w.]+\\}\\}")


def is_as_recorded(message: Message, then: str) -> bool:
    """Tell whether a message of now is a recorded text, whatever the environment put into it."""
    if message.text == then:
        return True
    if message.written is None:
        return False
    first, *rest = _DEFERRED.split(message.written)
    if not rest or not then.startswith(first):
        return False
    position = len(first)
    for piece in rest[:-1]:
        found = then.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return then.endswith(rest[-1]) and len(then) - len(rest[-1]) >= position
