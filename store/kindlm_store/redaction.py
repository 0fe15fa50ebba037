"""Removes secrets from texts, also in encoded forms.

There is one rule. If a text contains a secret as it stands, `[redacted]` replaces the secret. If
the text says a secret in any other way, `[redacted]` replaces the whole text.

As it stands means fixed strings: the secret itself, escaped for JSON, URLs or HTML, in hex or in
base64. If a text was cut, the beginning of such a string counts too: at the end of the text, and
before an ellipsis or a quotation mark. A scheme, a host and a user name are not such a beginning,
since many texts contain them without a secret. Secrets may overlap, so all are found before any is
replaced.

Other ways are found by two steps. The first decodes escapes, level by level, joins the lines, since
hex and base64 may be wrapped, and reads plus signs as spaces. The second joins strings, since
streams and log probabilities contain a text in pieces.
"""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from base64 import b64encode
from collections import ChainMap
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from kindlm_store.decoding import holds_bytes, read_bytes, readings, strings_in
from kindlm_store.new_event import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


Span = tuple[int, int]
"""Where in a text something begins, and where that ends."""

_Form = tuple[str, int]
"""How a secret may be written, and with how many characters that begins that say nothing."""

REDACTED = "[redacted]"
"""What stands in the place of a secret, or of a text that is withheld."""

MIN_LENGTH = 8
"""Shorter values are words that occur by chance, and nothing that protects anything."""

# An escape cut through, and before it the first bytes, or the first half, of its character.
_UNFINISHED = (
    r"(?:[\x80-\xff\ufffd\ud800-\udfff]|%[0-9A-Fa-f]{2}"
    r"|\\{1,15}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})){0,3}?"
    r"(?:%[0-9A-Fa-f]?|\\{1,15}(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?"
    r"|&(?:#[xX]?[0-9A-Fa-f]{0,7}|[A-Za-z]{0,6}))??"
)

# What stands behind a cut, up to the group; the group itself is no part of what was cut.
_CUT = re.compile(rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”])")

# What that can begin with, or the end of the text; a pattern takes longer to say so.
_BEHIND_A_CUT = frozenset(("", *"%\\&u….\"'`”\ufffd")) | {
    chr(part) for part in (*range(0x80, 0x100), *range(0xD800, 0xE000))
}

# What stands before a secret may be read as one escape with so many of its characters.
_READ_AWAY = 4

_HALF = MIN_LENGTH // 2

# How a value may begin that is a URL, a user with a password, or a document of JSON. Of one with
# digits it is unknown whether it is a user.
_PUBLIC = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s]*(?=[/?#]|\Z))?|[A-Za-z]+(?:[_.-][A-Za-z]+)*:(?!//)"
    r"|[{\[]\s*(?:\"[^\"\\]*\"\s*:\s*\"?)?",
    re.ASCII,
)

# With these a text may have strings without quotation marks, or with letters that are escaped. Ends
# of lines and letters beyond ASCII are escaped in many.
_UNREAD = ("data:", "%", "&")
_ESCAPED = re.compile(r"\\(?:u00[2-7]|\\(?![nrtbf]|u(?!00[2-7])[0-9A-Fa-f]{4}))")

# The end of a line and the indentation of the next.
_LINE_END = re.compile(r"\n[ \t]*")

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
"""Write a value, or its beginning, in forms that are looked for directly."""


class Redactor:
    """A callable that replaces secrets in a text by `[redacted]`.

    Replaced are the value itself, as JSON, URLs and HTML escape it, in hex, and in base64 and
    base64url wherever it begins inside the encoded text. Of each, also the first 8 characters or
    more where the text was cut. Secrets that overlap in a text go as one.

    A text that hides a secret in another way is withheld whole: `[redacted]` stands for it. So are
    texts that have it behind several levels of escapes, of percent signs, backslashes or references
    of HTML; in hex or base64 over several lines; in arrays of bytes; or in pieces, a few characters
    with each event of a stream or each string of JSON.

    It takes time in proportion to the text.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._values: set[str] = set()
        # Of each secret its forms, with how many characters of each say nothing.
        self._families: list[dict[str, int]] = []
        for secret in sorted(set(secrets)):
            family: dict[str, int] = {}
            for value in _spellings(secret) if len(secret) >= MIN_LENGTH else ():
                if len(value) >= _HALF and value not in REDACTED:
                    public = value[: _public(value)]
                    family |= {write(value): len(write(public)) for write in _ENCODINGS}
                    family |= _encoded(value)
                    self._values.add(value)
            self._families.append(family)
        self._has_spaces = any(" " in value for value in self._values)
        # By their heads, the shortest beginnings that go where a text was cut: keys of one provider
        # often begin alike, in all their encodings. And by the ends of their heads, which are never
        # read together with what stands before.
        self._by_head: dict[str, list[_Form]] = {}
        self._by_part: dict[str, list[_Form]] = {}
        for form, known in ChainMap(*self._families).items():
            head = form[: known + MIN_LENGTH]
            self._by_head.setdefault(head, []).append((form, known))
            self._by_part.setdefault(head[-_HALF:], []).append((form, known))

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it, or instead of it."""
        if not self._values or len(text) < MIN_LENGTH:
            return text
        spans = self._found(text)
        if self._hides(text, spans) or self._spells(text, is_sure=bool(spans)):
            return REDACTED
        return _without(text, spans) if spans else text

    def _found(self, text: str) -> list[Span]:
        """Where fixed forms are, whole or cut."""
        spans: list[Span] = []
        for form, known in _likely(self._by_head, text):
            spans += merged(_occurrences(text, form))
            spans += _beginnings(text, form, known + MIN_LENGTH)
        return spans

    def _hides(self, text: str, spans: Sequence[Span]) -> bool:
        """Whether a reading of a text says a secret that is not among what was found in it."""
        # The beginning of a secret may stand before a part of it that was found.
        left = _without(text, spans, mark='"') if spans else text
        for said, uncovered in self._readings(left):
            if uncovered is None or self._begins(said, uncovered):
                return True
            for form, known in _likely(self._by_part, said):
                if _tail(form) in said or any(_beginnings(said, form, known + MIN_LENGTH)):
                    return True
        if spans:
            # What was taken out may have been a part of what is escaped beside it.
            counts = self._counts(text)
            for said, _ in readings(text):
                if any(map(int.__gt__, self._counts(said), counts)):
                    return True
        return False

    def _readings(self, text: str) -> Iterator[tuple[str, set[str] | None]]:
        """The readings of a text; of the last one also with its lines joined, or plus as space.

        With each come the characters that escapes stood for, as `readings` says.
        """
        said = text
        for said, uncovered in readings(text):
            yield said, uncovered
        if "\n" in said or "\r" in said:
            yield _LINE_END.sub("", said.replace("\r", "\n")), set()
        if "+" in said and self._has_spaces:
            yield said.replace("+", " "), set()

    def _spells(self, text: str, *, is_sure: bool) -> bool:
        """Whether the strings of the JSON in a text spell a secret, a few characters with each.

        `is_sure` says that the text repeats a secret. Then a few of its strings that spell one in
        order are enough, whatever strings are between them.
        """
        if not self._may_spell(text):
            return False
        for strings in strings_in(text):
            unquoted = '"'.join(strings.unquoted)
            if self._found(unquoted) or self._hides(unquoted, ()):
                return True
            if is_sure and any(_spell(strings.said, value) for value in self._values):
                return True
            if any(map(self._goes_on, strings.put_together(self._may_be_pieces))):
                return True
        return False

    def _may_spell(self, text: str) -> bool:
        """Whether a text may spell a secret in its strings. It is fast, and mostly not so.

        Then a string begins or ends with half of 8 characters of it, or several short ones are in
        it. What is not written as it is may spell anything.
        """
        if not ('"' in text or "[" in text or "data:" in text):
            return False
        if any(sign in text for sign in _UNREAD) or _ESCAPED.search(text):
            return True
        if holds_bytes(text):
            return True
        parts, known = self._parts, 0
        # Without backslashes the strings in strings are seen, too.
        strings = text.replace("\\n", "\n").replace("\\", "").split('"')
        for said, behind in pairwise((*strings, "")):
            # Names are short more often than not.
            if (said[:_HALF] in parts or said[-_HALF:] in parts) and not behind.startswith(":"):
                known += len(said)
        return known > 1

    def _goes_on(self, strings: Sequence[str]) -> bool:
        """Whether a secret begins in one of some strings and goes on in the next."""
        text = "".join(strings)
        found = self._found(text)
        if found:
            ends = {*accumulate(map(len, strings))}
            if any(not ends.isdisjoint(range(start + 1, end)) for start, end in found):
                return True
        return self._hides(text, found)

    def _may_be_pieces(self, said: Sequence[str]) -> bool:
        """Whether a secret may begin in one of some strings and go on in the next. It is fast.

        Of 8 characters of it, some half is on both sides of an end of a string.
        """
        text = "".join(said)
        if not {"%", "\\", "&"}.isdisjoint(text):
            return True
        ends = [*accumulate(map(len, said))][:-1]
        return not self._parts.isdisjoint(
            text[at : at + _HALF] for end in ends for at in (end - 1, max(end + 1 - _HALF, 0))
        )

    @cached_property
    def _parts(self) -> frozenset[str]:
        """All parts of what is looked for directly that have up to half of 8 characters."""
        forms = [form for family in self._families for form in family]
        # As they are in strings in strings, without the backslashes.
        forms += [form.replace("\\", "") for form in forms if "\\" in form]
        together = "\0".join(forms)
        lengths, starts = range(1, _HALF + 1), range(len(together))
        return frozenset(together[at : at + length] for length in lengths for at in starts)

    def _begins(self, said: str, uncovered: set[str]) -> bool:
        """Whether a text was cut behind a beginning of a secret that is escaped, however short.

        Escaped, even two characters may fill all that is left of a text.
        """
        for value in self._values:
            if uncovered.isdisjoint(value):
                continue
            for start, _ in _beginnings(said, value, _public(value) + 2):
                rest = said[start : start + len(value)]
                # What is escaped behind it is no part of it.
                if not uncovered.isdisjoint(rest[: _agreeing(rest, value)]):
                    return True
        return False

    def _counts(self, text: str) -> list[int]:
        """How often each secret is in a text, in any of its forms."""
        places = (
            sorted(span for form in family for span in _occurrences(text, form))
            for family in self._families
        )
        return [sum(1 for _ in merged(spans)) for spans in places]


def _likely(forms: Mapping[str, list[_Form]], text: str) -> list[_Form]:
    """The forms that a text may have, by the parts of them that it has: mostly none."""
    found = [alike for part, alike in forms.items() if part in text]
    return [form for alike in found for form in alike]


def _without(text: str, spans: Iterable[Span], mark: str = REDACTED) -> str:
    """The text with a mark in the place of all that the spans cover."""
    kept: list[str] = []
    behind = 0
    for start, end in merged(sorted(spans)):
        kept += (text[behind:start], mark)
        behind = end
    return "".join((*kept, text[behind:]))


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans in the order of their starts, those that overlap as one."""
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


def _occurrences(text: str, form: str) -> Iterator[Span]:
    """Where a form is, also where it overlaps itself."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _beginnings(text: str, form: str, least: int) -> Iterator[Span]:
    """Where beginnings of a form are that a cut left, of so many characters or more."""
    at = text.find(form[:least])
    while at >= 0:
        length = _agreeing(text[at : at + len(form)], form)
        for end in range(at + length, at + least - 1, -1):
            if text[end : end + 1] in _BEHIND_A_CUT and (cut := _CUT.match(text, end)):
                yield at, cut.start(1)
                break
        at = text.find(form[:least], at + 1)


def _spell(said: Iterable[str], value: str) -> bool:
    """Whether some of the strings, in order, spell what a value begins with."""
    beginning = value[: _public(value) + MIN_LENGTH]
    heads = {beginning[:length] for length in range(1, len(beginning))}
    # The heads that the strings so far may spell.
    spelled: set[str] = set()
    for piece in said:
        if not (piece[0] in beginning or piece[-1] in beginning):
            continue
        longer = {head + piece for head in spelled}
        if any(one.startswith(beginning) for one in longer):
            return True
        spelled |= heads & longer
        spelled.update(head for head in heads if piece.endswith(head))
    return False


def _agreeing(one: str, other: str) -> int:
    """How many characters two strings begin with alike."""
    for length, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return length
    return min(len(one), len(other))


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it came, as events hold it, and as what looks like escapes in it is read."""
    yield secret
    # What UTF-8 cannot say is replaced before anything is looked at.
    stored = scrub(secret)
    yield stored
    yield read_bytes(stored)
    if " " in stored:
        # So it is once plus signs are read as spaces.
        yield stored.replace("+", " ")
    for said, _ in readings(stored):
        yield scrub(said)


def _tail(form: str) -> str:
    """A form without what its surroundings may have been read together with."""
    return form[min(_READ_AWAY, max(len(form) - MIN_LENGTH, 0)) :]


def _public(value: str) -> int:
    """How many characters a value begins with that are no secret, if it is enough for a cut."""
    beginning = _PUBLIC.match(value)
    return beginning.end() if beginning and beginning.end() >= MIN_LENGTH else 0


def _encoded(value: str) -> Iterator[tuple[str, int]]:
    """Hex and base64 of a value, each with how many of its characters are no secret.

    Of base64 the characters that the value fixes, for each place it may begin at: three bytes
    become four characters, so that there are three such places; at both ends a character may also
    hold bits of the neighbours, and is left out.
    """
    raw = value.encode("utf-8", "surrogatepass")
    public = _public(value)
    yield raw.hex(), 2 * public
    yield raw.hex().upper(), 2 * public
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        form = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield form, public * 4 // 3
        yield form.replace("+", "-").replace("/", "_"), public * 4 // 3
