"""Takes secrets out of texts, also where they were encoded on the way.

A key comes back in many forms: echoed in an error body, in a URL, in the base64 of an
authorization header, escaped in JSON or in HTML. Forms that are fixed strings are looked for
directly, and `[redacted]` stands in their place. For all others the escapes of the text are read,
level by level: if that uncovers a secret, its place is not known, and the whole text is withheld.
So it is if hex or base64 of a secret is wrapped over lines.

A text may have been cut before it came here. So the beginning of a secret goes, too, where a text
ends behind it, or goes on with what follows a cut: an ellipsis or a quotation mark. A scheme, a
host and a user name are no such beginning, as they are in many texts that repeat no secret.

A text may hold a secret in pieces, a few characters with each event of a stream or each string of
JSON. Where it is known which pieces belong together, these go. Otherwise the strings of the text
are put together in order: if that uncovers a secret, the whole text is withheld.

One secret may be a part of another, or overlap it. So nothing is replaced before all is found, in
the text as it came: what overlaps goes together.
"""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from base64 import b64encode
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from kindlm_store.escapes import read_bytes, readings
from kindlm_store.new_event import scrub
from kindlm_store.pieces import (
    arrays_in,
    characters,
    covering,
    strings_in,
    texts_in_pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kindlm_store.pieces import Span

REDACTED = "[redacted]"
"""What stands in the place of a secret, or of a text that is withheld."""

MIN_LENGTH = 8
"""Shorter values are words that occur by chance, and nothing that protects anything."""

# An escape cut through, and before it the first bytes, or the first half, of its character.
_UNFINISHED = (
    r"(?:[\x80-\xff\ufffd\ud800-\udfff]|%[0-9A-Fa-f]{2}"
    r"|\\{1,15}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})){0,3}?"
    r"(?:%[0-9A-Fa-f]?|\\{1,15}(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?"
    r"|&(?:#[xX]?[0-9A-Fa-f]{0,6}|[A-Za-z]{0,6}))??"
)

# What stands behind a cut, up to the group; the group itself is no part of what was cut.
_CUT = re.compile(rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”])")

# What that can begin with, or the end of the text; a pattern takes longer to say so.
_BEHIND_A_CUT = frozenset(("", *"%\\&u….\"'`”\ufffd")) | {
    chr(part) for part in (*range(0x80, 0x100), *range(0xD800, 0xE000))
}

# Escapes of these say that a text was cut, too, and of bytes and halves of characters, where.
_OF_A_CUT = _BEHIND_A_CUT - set("%\\&u")

# What stands before a secret may be read as one escape with so many of its characters.
_READ_AWAY = 4

_HALF = MIN_LENGTH // 2

_ESCAPED_ASCII = re.compile(r"\\u00[2-7]")

# How a value may begin that is a URL, a user with a password, or a document of JSON. Of one with
# digits it is unknown whether it is a user.
_PUBLIC = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s]*(?=[/?#]|\Z))?|[A-Za-z]+(?:[_.-][A-Za-z]+)*:(?!//)"
    r"|[{\[]\s*(?:\"[^\"\\]*\"\s*:\s*\"?)?",
    re.ASCII,
)

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
)
"""Write a value, or its beginning, in forms that are looked for directly."""


class Redactor:
    """A callable that replaces secrets in a text by `[redacted]`.

    Replaced are the value itself, as JSON, URLs and HTML escape it, in hex, and in base64 and
    base64url wherever it begins inside the encoded text. Of each, also the first 8 characters or
    more where the text was cut. Secrets that overlap in a text go as one. Of a stream of events
    that holds a secret in pieces, a few characters with each, the pieces go.

    A text that hides a secret in another way is withheld whole: behind several levels of escapes,
    of percent signs, backslashes or references of HTML, in hex or base64 over several lines, or
    in pieces, a few characters with each string of JSON, or in arrays of bytes.

    It takes time in proportion to the text.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # How much of each form says nothing.
        forms: dict[str, int] = {}
        self._families: list[list[str]] = []
        self._values: set[str] = set()
        wrappable: set[str] = set()
        for secret in sorted(set(secrets)):
            family: dict[str, int] = {}
            for value in _spellings(secret) if len(secret) >= MIN_LENGTH else ():
                if len(value) >= MIN_LENGTH // 2 and value not in REDACTED:
                    encoded = dict(_encoded(value))
                    wrappable |= encoded.keys()
                    public = value[: _public(value)]
                    family |= encoded | {write(value): len(write(public)) for write in _ENCODINGS}
                    self._values.add(value)
            self._families.append([*family])
            forms |= family
        self._tails = {_tail(form) for form in (*self._values, *wrappable)}
        self._wrappable = {_tail(form) for form in wrappable}
        # With a plus sign for each space, wherever they stand.
        self._spaced = [value.replace("+", " ") for value in self._values if " " in value]
        self._characters = {character for form in forms for character in form} | _OF_A_CUT
        # Keys of one provider often begin alike, in all their encodings.
        self._heads: dict[str, list[str]] = {}
        for form, known in forms.items():
            self._heads.setdefault(form[: known + MIN_LENGTH], []).append(form)

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it, or instead of it."""
        if not self._heads or len(text) < MIN_LENGTH:
            return text
        spans = self._found(text)
        told: list[Span] = []
        for pieces in texts_in_pieces(text):
            said = "".join(piece.said for piece in pieces)
            found = self._found(said)
            if self._hides(said, found):
                return REDACTED
            told += covering(pieces, _merged(sorted(found)))
        # What was only found cut may go on elsewhere.
        joined = {*told}.difference(spans)
        is_sure = bool(spans or told)
        if self._spells(_without(text, joined) if joined else text, is_sure=is_sure):
            return REDACTED
        spans += told
        if self._hides(text, spans):
            return REDACTED
        return _without(text, spans) if spans else text

    def _found(self, text: str) -> list[Span]:
        """Where fixed forms are, whole or cut."""
        spans: list[Span] = []
        for head in [head for head in self._heads if head in text]:
            for form in self._heads[head]:
                spans += _merged(_occurrences(text, form))
            spans += _beginnings(text, head, self._heads[head])
        return spans

    def _hides(self, text: str, spans: Sequence[Span]) -> bool:
        """Whether a secret is in a text that is not among what was found in it."""
        # The beginning of a secret may stand before a part of it that was found.
        said = left = _without(text, spans, mark='"') if spans else text
        if not ("\\" in text or "%" in text or "&" in text or "\n" in text or "\r" in text):
            return self._has_plus_signs(left)
        for said, uncovered in readings(left):
            if uncovered is None:
                return True
            if uncovered.isdisjoint(self._characters):
                continue
            if any(tail in said for tail in self._tails):
                return True
            if self._found(said) or self._begins(said, uncovered):
                return True
        if self._wraps(said) or self._has_plus_signs(said):
            return True
        if spans:
            # What was taken out may have been a part of what is escaped beside it.
            counts = self._counts(text)
            for said, _ in readings(text):
                if any(map(int.__gt__, self._counts(said), counts)):
                    return True
        return False

    def _spells(self, text: str, *, is_sure: bool) -> bool:
        """Whether the strings of the JSON in a text spell a secret, a few characters with each.

        `is_sure` says that the text repeats a secret. Then a few of its strings that spell one in
        order are enough, whatever strings are between them.
        """
        if not self._may_spell(text):
            return False
        for strings in strings_in(text):
            if is_sure and any(_spell(strings.said, value) for value in self._values):
                return True
            if self._is_in(strings.of_bytes):
                return True
            if any(map(self._goes_on, strings.put_together(self._may_be_pieces))):
                return True
        return False

    def _goes_on(self, strings: Sequence[str]) -> bool:
        """Whether a secret begins in one of some strings and goes on in the next."""
        text = "".join(strings)
        found = self._found(text)
        if found:
            ends = {*accumulate(map(len, strings))}
            if any(not ends.isdisjoint(range(start + 1, end)) for start, end in found):
                return True
        if self._hides(text, found):
            return True
        # Bytes may end within a character, which the next ones go on with.
        read = text if text.isascii() else read_bytes(text)
        return read != text and bool(self._found(read))

    def _may_spell(self, text: str) -> bool:
        """Whether a text may spell a secret in its strings. It is fast, and mostly not so."""
        if not ('"' in text or "[" in text):
            return False
        if "\\" in text:
            if _ESCAPED_ASCII.search(text):
                return True
            # So the strings in strings are seen, too.
            text = text.replace("\\n", " ").replace("\\", "")
        parts = text.split('"')
        said = {*parts}
        short = self._parts.intersection(said)
        if self._may_be_pieces(said - short):
            return True
        if short:
            # Names are short more often than not.
            told = [one for one, behind in pairwise(parts) if one in short and behind[:1] != ":"]
            if len("".join(told)) > 1:
                return True
        of_bytes = [characters(codes) for codes in {*arrays_in(text)}]
        return self._may_be_pieces(of_bytes) or self._is_in(of_bytes)

    def _is_in(self, of_bytes: Sequence[str]) -> bool:
        """Whether an array of bytes holds a secret."""
        return bool(of_bytes and self._found(read_bytes('"'.join(of_bytes))))

    def _may_be_pieces(self, said: Collection[str]) -> bool:
        """Whether some of the strings may be pieces of a secret.

        Of two pieces, one has half of the 8 characters or more; of more pieces, one lies within
        the secret.
        """
        parts = self._parts
        return not (
            parts.isdisjoint([piece[:_HALF] for piece in said])
            and parts.isdisjoint([piece[-_HALF:] for piece in said])
        )

    @cached_property
    def _parts(self) -> frozenset[str]:
        """All parts of what is looked for directly that have up to half of 8 characters."""
        forms = [form for forms in self._heads.values() for form in forms]
        forms += [form.replace("\\", "") for form in forms if "\\" in form]
        # Arrays of bytes say the bytes of UTF-8.
        forms += [_of_bytes(value) for value in self._values if not value.isascii()]
        return frozenset(
            form[at : at + length]
            for form in forms
            for length in range(1, _HALF + 1)
            for at in range(len(form) - length + 1)
        )

    def _begins(self, said: str, uncovered: set[str]) -> bool:
        """Whether a text was cut behind a beginning of a secret that is escaped, however short.

        Escaped, even two characters may fill all that is left of a text.
        """
        for value in self._values:
            for start, _ in _beginnings(said, value[: _public(value) + 2], [value]):
                rest = said[start : start + len(value)]
                # What is escaped behind it is no part of it.
                if not uncovered.isdisjoint(rest[: _agreeing(rest, value)]):
                    return True
        return False

    def _wraps(self, text: str) -> bool:
        """Whether hex or base64 of a secret is in a text once its lines are joined."""
        if not ("\n" in text or "\r" in text):
            return False
        joined = _LINE_END.sub("", text.replace("\r", "\n"))
        return any(form in joined for form in self._wrappable)

    def _has_plus_signs(self, text: str) -> bool:
        """Whether a secret is in a text once plus signs are read as spaces."""
        if not (self._spaced and "+" in text):
            return False
        said = text.replace("+", " ")
        return any(
            value in said or any(_beginnings(said, value[: _public(value) + MIN_LENGTH], [value]))
            for value in self._spaced
        )

    def _counts(self, text: str) -> list[int]:
        """How often each secret is in a text, in any of its forms."""
        places = (
            sorted(span for form in family for span in _occurrences(text, form))
            for family in self._families
        )
        return [sum(1 for _ in _merged(spans)) for spans in places]


def _without(text: str, spans: Iterable[Span], mark: str = REDACTED) -> str:
    """The text with a mark in the place of all that the spans cover."""
    kept: list[str] = []
    behind = 0
    for start, end in _merged(sorted(spans)):
        kept += (text[behind:start], mark)
        behind = end
    return "".join((*kept, text[behind:]))


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
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


def _beginnings(text: str, head: str, forms: Sequence[str]) -> Iterator[Span]:
    """Where beginnings are that a cut left of forms with one head, which all have to have."""
    longest = max(map(len, forms))
    at = text.find(head)
    while at >= 0:
        rest = text[at : at + longest]
        length = max(_agreeing(rest, form) for form in forms)
        for end in range(at + length, at + len(head) - 1, -1):
            if text[end : end + 1] in _BEHIND_A_CUT and (cut := _CUT.match(text, end)):
                yield at, cut.start(1)
                break
        at = text.find(head, at + 1)


def _spell(said: Iterable[str], value: str) -> bool:
    """Whether some of the strings, in order, spell what a value begins with."""
    beginning = value[: _public(value) + MIN_LENGTH]
    heads = [beginning[:length] for length in range(1, len(beginning))]
    # How many of its characters the strings so far may spell.
    spelled: set[int] = set()
    for piece in said:
        if not (piece[0] in beginning or piece[-1] in beginning):
            continue
        rests = [(at, beginning[at:]) for at in spelled]
        if any(piece.startswith(rest) for _, rest in rests):
            return True
        spelled.update(at + len(piece) for at, rest in rests if rest.startswith(piece))
        spelled.update(len(head) for head in heads if piece.endswith(head))
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
    for said, _ in readings(stored):
        yield scrub(said)


def _of_bytes(value: str) -> str:
    """A character for each byte of a value."""
    return value.encode("utf-8", "surrogatepass").decode("latin-1")


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
