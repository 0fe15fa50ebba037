"""Which calls of tools are new where an agent tells of its calls in several places.

Many tell the same calls twice, as steps and as OpenAI has them. Others tell some here and others
there: to read one place alone would miss the call that a test forbids.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from kindlm.transcript import ToolCall

__all__ = ["told_anew"]


def told_anew(known: Iterable[ToolCall], later: Iterable[ToolCall]) -> list[int]:
    """Return the positions of the later calls that are not among the known ones.

    A call is the same if its name and arguments are, each as often as it is known; and one without
    arguments if its id and name are: it says nothing that is not known.
    """
    known = list(known)
    left = Counter(map(_said, known))
    ids = {(call.id, call.name) for call in known if call.id}
    new = list[int]()
    for position, call in enumerate(later):
        said = _said(call)
        if left[said]:
            left[said] -= 1
        elif call.arguments or call.malformed is not None or (call.id, call.name) not in ids:
            new.append(position)
    return new


def _said(call: ToolCall) -> tuple[str, str]:
    if call.malformed is not None:
        return call.name, call.malformed
    return call.name, json.dumps(call.arguments, sort_keys=True)
