"""Which executions of a test evidence is drawn from, where both sides hold some same conversations.

A conversation is a sample once. What was rescored, or taken from the history by `kindlm test
--cache`, is the same conversation as where it was held: it can be judged otherwise, but it can not
come out otherwise by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kindlm.history.diff.samples import Sample

__all__ = ["Drawn", "drawn_from"]


class Drawn(NamedTuple):
    """The executions of both sides that are compared; whether these are the same conversations."""

    before: Sequence[Sample]
    after: Sequence[Sample]
    same_conversations: bool


def drawn_from(before: Sequence[Sample], after: Sequence[Sample]) -> Drawn:
    """Return what is compared of the executions of a test.

    Where the same conversations are judged otherwise, that is what changed. Where they are not,
    those that AFTER has for itself are compared with BEFORE; if it has none, nothing changed.
    """
    both = _conversations(before) & _conversations(after)
    if not both:
        return Drawn(before, after, same_conversations=False)
    old, new = ([each for each in side if each.conversation in both] for side in (before, after))
    if _judgements(old) != _judgements(new):
        return Drawn(before, after, same_conversations=True)
    own = [each for each in after if each.conversation not in both]
    return Drawn(before, own, False) if own else Drawn(old, new, True)


def _conversations(samples: Sequence[Sample]) -> set[str]:
    return {sample.conversation for sample in samples}


def _judgements(samples: Sequence[Sample]) -> list[Any]:
    """Return what was made of conversations; of one that is there twice, what of the first."""
    found = {
        sample.conversation: (sample.status, sample.failures, sample.scores, sample.weighted)
        for sample in reversed(samples)
    }
    return sorted(found.items(), key=lambda item: item[0])
