"""Case-insensitive substrings, the way `contains` and keyword lists mean them.

Both sides are lower-cased and nothing more: `ß` is not `ss`, an accent is not its plain letter.
What a text must not hold is looked for in its normal form, too.
"""

from __future__ import annotations

from kindlm.normal_form import normal_form

__all__ = ["HIDDEN", "find", "find_hidden", "occurs"]

HIDDEN = (
    " It is written there with characters that Unicode treats as the same, or with invisible ones"
    " (compared as NFKC)."
)
"""Says of a match that only the normal form has it."""


def occurs(needle: str, text: str) -> bool:
    """Tell whether `text` contains `needle`."""
    return needle.lower() in text.lower()


def find(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs, as character ranges of `text`; at most `limit` of them."""
    lowered, wanted = text.lower(), needle.lower()
    found: list[tuple[int, int]] = []
    start = lowered.find(wanted)
    while start >= 0 and len(found) < limit:
        found.append((start, start + len(wanted)))
        start = lowered.find(wanted, start + max(len(wanted), 1))
    return found if len(lowered) == len(text) else _in_original(found, text)


def find_hidden(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs in the normal form of `text`, as `find` does.

    It is compared with the normal form of `needle`; one of invisible characters alone has none.
    """
    form, wanted = normal_form(text), normal_form(needle)
    if not (form or wanted) or not needle:
        return []
    sought = needle if wanted is None else wanted.text
    found = find(sought, text if form is None else form.text, limit)
    return found if form is None else [form.written(*place) for place in found]


def _in_original(ranges: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Map ranges of the lower-cased text back: a few characters become two when lower-cased."""
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    origin.append(len(text))
    return [
        (origin[start], origin[end - 1] + 1 if end > start else origin[start])
        for start, end in ranges
    ]
