"""Removes secrets from texts, also in encoded forms.

If a text contains a secret in a fixed form, `[redacted]` replaces the secret. If it contains the
secret in any other form, `[redacted]` replaces the whole text.

Fixed forms are the secret itself, its escapes for JSON, URLs or HTML, hex, and base64. A text may
have been cut inside a form. So the first 8 characters or more of a form count as the secret at the
end of the text, and before an ellipsis or a quotation mark. A scheme, a host and a user name do not
count, since many texts contain them without the secret.

Other forms are found in two steps. The first decodes escapes, level by level, and joins lines,
since hex and base64 may be wrapped. The second compares strings in order, since streams and log
probabilities contain a text in pieces.
"""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from kindlm_store.decoding import bare_pieces, pieces, readings
from kindlm_store.new_event import scrub

Span = tuple[int, int]
"""Start and end of a range of characters."""

_Form = tuple[str, str, int]
"""A secret, a form of it, and the length of the form's public beginning, such as a host."""

REDACTED = "[redacted]"
"""Replaces a secret, or a whole text that contains one."""

MIN_LENGTH = 8
"""Shorter values are ignored: they occur in texts by chance."""

# An escape that was cut, after the first bytes or the first half of its character.
_UNFINISHED = (
    r"(?:[\x80-\xff\ufffd\ud800-\udfff]|%[0-9A-Fa-f]{2}"
    r"|\\{1,15}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})){0,3}?"
    r"(?:%[0-9A-Fa-f]?|\\{1,15}(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?"
    r"|&(?:#[xX]?[0-9A-Fa-f]{0,7}|[A-Za-z]{0,6}))??"
)

# The place where a text was cut, or where its end was redacted as a beginning of the same secret.
# The group is what follows the cut text.
_CUT = re.compile(
    rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”]|{re.escape(REDACTED)})"
)

_HALF = MIN_LENGTH // 2

_REMEMBERED = 4096
"""The most strings whose first and last characters a redactor remembers."""

# The public beginning of a URL, of `user:password`, or of a JSON document. A name with digits may
# be a part of the secret.
_PUBLIC = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s]*(?=[/?#]|\Z))?|[A-Za-z]+(?:[_.-][A-Za-z]+)*:(?!//)"
    r"|[{\[]\s*(?:\"[^\"\\]*\"\s*:\s*\"?)?",
    re.ASCII,
)

_UNSPELLED = str.maketrans("", "", ' \t\r\n,:[]{}"\\')
"""Removes what may stand between pieces from forms and from pieces."""

_TURNS = 8
"""Up to this number of texts may alternate in pieces."""

_LINE_END = re.compile(r"\n[ \t]*")  # with the indentation of the next line

_ENCODINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    lambda value: json.dumps(value)[1:-1],
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    lambda value: urllib.parse.quote(value, errors="replace"),
    lambda value: urllib.parse.quote(value, safe="", errors="replace"),
    lambda value: urllib.parse.quote_plus(value, errors="replace"),
    lambda value: value.replace(" ", "+"),
    html.escape,
    lambda value: value.encode("utf-8", "surrogatepass").decode("latin-1"),
)
"""Convert a value, or its beginning, to its fixed forms, except hex and base64."""


class Redactor:
    """Replaces secrets in a text by `[redacted]`, in time proportional to the text.

    Those under 8 characters are ignored. The store's README lists the forms in which it finds
    secrets, and those in which it does not.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # Forms by their heads, the shortest beginnings that are redacted: keys of one provider
        # often begin alike.
        self._by_head: defaultdict[str, list[_Form]] = defaultdict(list)
        for secret in {secret for secret in secrets if len(secret) >= MIN_LENGTH}:
            forms: dict[str, int] = {}
            for value in _spellings(secret):
                if len(value) >= _HALF and value not in REDACTED:
                    public = value[: _public(value)]
                    forms |= {write(value): len(write(public)) for write in _ENCODINGS}
                    forms |= _encoded(value)
            for form, known in forms.items():
                self._by_head[form[: known + MIN_LENGTH]].append((secret, form, known))

    def __call__(self, text: str) -> str:
        """Return the text with its secrets replaced, or `[redacted]`."""
        if not self._by_head or len(text) < MIN_LENGTH:
            return text
        found = self._found(text)
        left = _replaced(text, chain(*found.values())) if found else text
        # A cut form that is too short once it is decoded is none of those found in a reading.
        known = {
            key: dict(s for s in spans if s in found[key[0], "whole"] or _stays_long(text, s))
            for key, spans in found.items()
        }
        # What is left is read, too: decoding the text may destroy one of the secrets found.
        for written, expected in {text: known, left: {}}.items():
            for reading in self._readings(written):
                if reading is None:
                    return REDACTED
                # Forms that begin at one place, such as a whole and a cut one, are one secret.
                hidden = self._found(reading).items()
                if any(len(dict(spans)) > len(expected.get(key, ())) for key, spans in hidden):
                    return REDACTED
        return REDACTED if self._spells(text) else left

    def _found(self, text: str) -> dict[tuple[str, str], set[Span]]:
        """Find fixed forms by secret: those that are whole, and all with those that were cut."""
        found: defaultdict[tuple[str, str], set[Span]] = defaultdict(set)
        for secret, form, public in self._candidates(text):
            found[secret, "whole"].update(occurrences(text, form))
            found[secret, "any"] |= found[secret, "whole"]
            found[secret, "any"].update(_cut_occurrences(text, form, public + MIN_LENGTH))
        return found

    def _candidates(self, text: str) -> list[_Form]:
        found = [forms for head, forms in self._by_head.items() if head in text]
        return [form for forms in found for form in forms]

    def _readings(self, text: str) -> Iterator[str | None]:
        """Yield `readings`, and the last of them with joined lines.

        Then read backslashes as no escapes, as in Windows paths, and plus signs as spaces.
        """
        last: str | None = text
        for last in readings(text):
            yield last
        if last and ("\n" in last or "\r" in last):
            yield _LINE_END.sub("", last.replace("\r", "\n"))
        for written, meaning in (("\\", "\0"), ("+", " ")):
            if written in text:
                bare = text.replace(written, meaning)
                yield bare
                yield from readings(bare)

    def _spells(self, text: str) -> bool:
        """Return whether strings in the text spell a secret, a few characters with each."""
        # A whole form is no piece of a longer one.
        for _, form, _ in self._candidates(text):
            text = text.replace(form, "")
        likely = (one for one in (text, *readings(text)) if one and self._may_spell(one))
        return any(self._spell(strings) for one in likely for strings in pieces(one))

    def _may_spell(self, text: str) -> bool:
        """Return quickly whether strings of the text may spell a secret; mostly they do not.

        `_spell` finds no others: what it finds has all characters of one of the `_cores`, in a
        string or, without regard to the order here, in strings that follow each other.
        """
        if '"' not in text and "data:" not in text:
            return False
        text = bare_pieces(text)
        whole = set(text.split('"'))
        touched = [
            self._touches(string[: MIN_LENGTH - 1], string[1 - MIN_LENGTH :]) for string in whole
        ]
        left = {rest for rests, _ in touched for rest in rests}
        starts = {start for _, found in touched for start in found}
        while left:
            if not left.isdisjoint(starts):
                return True
            left = {rest[at:] for rest in left for at in range(1, len(rest)) if rest[:at] in whole}
        return any(core in text for core in self._cores)

    def _spell(self, strings: Sequence[str]) -> bool:
        """Return whether some of the strings spell the beginning of a form, in order.

        If they do not follow at equal distances, they must spell twice as much.
        """
        # How much of which form is spelled, and at which distances (0: the first string, -1:
        # different ones) → the number of the last string.
        begun: dict[tuple[str, int, int], int] = {}
        for at, string in enumerate(strings):
            piece = string.translate(_UNSPELLED)
            begun = {part: last for part, last in begun.items() if at - last <= _TURNS}
            for (form, length, before), last in [*begun.items()]:
                if form.startswith(piece[:1], length):
                    distance = at - last if before in (0, at - last) else -1
                    needed = self._spelt[form] * (2 if distance < 0 else 1)
                    shared = common_length(piece, form[length:])
                    if shared and length + shared >= min(needed, len(form)):
                        return True
                    if shared == len(piece):
                        begun[form, length + shared, distance] = at
            for start in range(max(len(piece) - self._longest, 0), len(piece)):
                for form in self._beginnings.get(piece[start : start + _HALF], ()):
                    if form.startswith(piece[start:]):
                        begun[form, len(piece) - start, 0] = at
        return False

    @cached_property
    def _spelt(self) -> dict[str, int]:
        """The forms as strings in pieces spell them, with the lengths of their heads."""
        return {
            form.translate(_UNSPELLED): len(head.translate(_UNSPELLED))
            for head, forms in self._by_head.items()
            for _, form, _ in forms
        }

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._spelt))

    @cached_property
    def _beginnings(self) -> Mapping[str, Sequence[str]]:
        """Their beginnings of up to 4 characters."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for form in self._spelt:
            for length in range(1, _HALF + 1):
                found[form[:length]].append(form)
        return found

    @cached_property
    def _cores(self) -> frozenset[str]:
        """The last characters of their heads, up to 8; two strings spell at least two of them."""
        ends = {form[: max(needed, 2)][-MIN_LENGTH:] for form, needed in self._spelt.items()}
        return frozenset(ends - {""})

    @cached_property
    def _rests(self) -> Mapping[str, Sequence[str]]:
        """The rests of cores by their beginnings."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for core in self._cores:
            for length in range(1, len(core)):
                found[core[:length]].append(core[length:])
        return found

    @cached_property
    def _touches(self) -> Callable[[str, str], tuple[Collection[str], Collection[str]]]:
        """Return what is left of cores after the end of a string, and rests that it begins with.

        It takes the first and the last characters of the string; those of names repeat.
        """
        lengths = range(1, MIN_LENGTH)

        @lru_cache(_REMEMBERED)
        def touches(first: str, last: str) -> tuple[Collection[str], Collection[str]]:
            left = (rest for length in lengths for rest in self._rests.get(last[-length:], ()))
            return set(left), self._endings.intersection(first[:length] for length in lengths)

        return touches

    @cached_property
    def _endings(self) -> frozenset[str]:
        """All rests of cores."""
        return frozenset(chain(*self._rests.values()))


def _stays_long(text: str, span: Span) -> bool:
    return all(len(reading or "") >= MIN_LENGTH for reading in readings(text[slice(*span)]))


def _replaced(text: str, spans: Iterable[Span]) -> str:
    kept: list[str] = []
    behind = 0
    for start, end in merged(sorted(spans)):
        kept += (text[behind:start], REDACTED)
        behind = end
    return "".join((*kept, text[behind:]))


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans, given in the order of their starts; overlapping ones become one."""
    covered: Span | None = None
    for start, end in spans:
        if covered and start < covered[1]:
            covered = (covered[0], max(covered[1], end))
        else:
            if covered:
                yield covered
            covered = (start, end)
    if covered:
        yield covered


def occurrences(text: str, form: str) -> Iterator[Span]:
    """Yield the occurrences of a text in another, also where it overlaps itself."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _cut_occurrences(text: str, form: str, least: int) -> Iterator[Span]:
    """Yield cut occurrences of a form with `least` characters or more."""
    for at, _ in occurrences(text, form[:least]):
        length = common_length(text[at : at + len(form)], form)
        for end in range(at + length, at + least - 1, -1):
            if cut := _CUT.match(text, end):
                yield at, cut.start(1)
                break


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common beginning of two texts, or of two lists of words."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, yours) in pairs if mine != yours), min(len(one), len(other)))


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as given, as events store it, and with its own apparent escapes decoded."""
    yield secret
    # Events are scrubbed before they are redacted.
    stored = scrub(secret)
    yield stored
    yield from (scrub(decoded) for decoded in readings(stored) if decoded)


def _public(value: str) -> int:
    """Return the length of the public beginning of a value; 0 if it is under 8 characters."""
    beginning = _PUBLIC.match(value)
    return beginning.end() if beginning and beginning.end() >= MIN_LENGTH else 0


def _encoded(value: str) -> Iterator[tuple[str, int]]:
    """Yield hex and base64 of a value, each with the length of its public beginning."""
    raw = value.encode("utf-8", "surrogatepass")
    public = _public(value)
    yield raw.hex(), 2 * public
    yield raw.hex().upper(), 2 * public
    for form in base64_forms(raw):
        yield form, public * 4 // 3
        yield form.replace("+", "-").replace("/", "_"), public * 4 // 3


def base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 of bytes at each offset in a text.

    Base64 encodes three bytes as four characters, so there are three offsets. The first and the
    last character may also encode bits of other bytes, and are left out.
    """
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        yield encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
