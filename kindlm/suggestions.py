"""Guesses the name that was meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_LISTED = 10


def suggest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` is probably a slip of, or None.

    A slip is one letter in three: inserted, removed, replaced, or swapped with its neighbour. Upper
    and lower case are alike.
    """
    best: str | None = None
    limit = len(name) // 3
    for candidate in candidates:
        if abs(len(candidate) - len(name)) > limit:
            continue
        distance = _distance(name.casefold(), candidate.casefold())
        if distance <= limit:
            best, limit = candidate, distance - 1
    return best


def hint_for(name: str, candidates: Iterable[str], known: str) -> str:
    """Return `Did you mean …?`, or the list of what there is."""
    names = list(dict.fromkeys(candidates))
    close = suggest(name, names) or _same_words(name, names)
    if close is not None:
        return f'Did you mean "{close}"?'
    listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
    return f"{known}: {listed or 'none'}"


def _same_words(name: str, candidates: list[str]) -> str | None:
    """Return the only candidate that has all words of a name, or of which it has all."""
    words = _words(name)
    found = [each for each in candidates if words <= _words(each) or _words(each) <= words]
    return found[0] if len(found) == 1 else None


def _words(name: str) -> set[str]:
    return set(name.casefold().replace("-", "_").split("_"))


def _distance(left: str, right: str) -> int:
    """Return how many letters must be inserted, removed, replaced, or swapped with the next."""
    before, last, row = [0], [0], list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        before, last, row = last, row, [i]
        for j, b in enumerate(right, start=1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (right[j - 2], left[i - 2]):
                least = min(least, before[j - 2] + 1)
            row.append(least)
    return row[-1]
