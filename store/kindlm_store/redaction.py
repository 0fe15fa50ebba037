"""Removes secrets from texts, also in encoded forms.

If a text contains a secret in a fixed form, `[redacted]` replaces the secret. If it contains the
secret in any other form, `[redacted]` replaces the whole text.

Fixed forms are the secret itself, its escapes for JSON, URLs or HTML, hex, and base64. A text may
have been cut inside a form. So the first 8 characters or more of a form count as the secret at the
end of the text, and before an ellipsis or a quotation mark. A scheme, a host and a user name do not
count, since many texts contain them without the secret.

Other forms are found in two steps. The first decodes escapes, level by level, joins lines, since
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from kindlm_store.decoding import holds_bytes, read_bytes, readings, strings_in
from kindlm_store.new_event import scrub

Span = tuple[int, int]
"""Start and end of a range of characters."""

_Form = tuple[str, int]
"""A form of a secret, and the length of its beginning that is public, such as a host."""

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

# The place where a text was cut. The group is what follows the cut text.
_CUT = re.compile(rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”])")

# The first characters of `_CUT`, "" for the end of the text: faster to test than the pattern.
_BEHIND_A_CUT = frozenset(("", *"%\\&u….\"'`”\ufffd")) | {
    chr(part) for part in (*range(0x80, 0x100), *range(0xD800, 0xE000))
}

# Text before a secret may form an escape with up to 4 characters of the secret.
_READ_AWAY = 4

_HALF = MIN_LENGTH // 2

# The public beginning of a URL, of `user:password`, or of a JSON document. A name with digits may
# be a part of the secret.
_PUBLIC = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s]*(?=[/?#]|\Z))?|[A-Za-z]+(?:[_.-][A-Za-z]+)*:(?!//)"
    r"|[{\[]\s*(?:\"[^\"\\]*\"\s*:\s*\"?)?",
    re.ASCII,
)

# Signs of strings without quotation marks, or with escaped ASCII letters. Many texts escape line
# ends and letters beyond ASCII.
_UNREAD = ("data:", "%", "&")
_ESCAPED = re.compile(r"\\(?:u00[2-7]|\\(?![nrtbf]|u(?!00[2-7])[0-9A-Fa-f]{4}))")

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

    The store's README lists the forms in which it finds secrets, and those in which it does not.

    Args:
        secrets: The values to replace; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._values: set[str] = set()
        # The fixed forms of each secret, with the lengths of their public beginnings.
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
        # Forms by their heads, the shortest beginnings that are redacted: keys of one provider
        # often begin alike. And by the ends of the heads, which never form an escape with the text
        # before.
        self._by_head: dict[str, list[_Form]] = {}
        self._by_part: dict[str, list[_Form]] = {}
        for form, known in ChainMap(*self._families).items():
            head = form[: known + MIN_LENGTH]
            self._by_head.setdefault(head, []).append((form, known))
            self._by_part.setdefault(head[-_HALF:], []).append((form, known))

    def __call__(self, text: str) -> str:
        """Return the text with its secrets replaced, or `[redacted]`."""
        if not self._values or len(text) < MIN_LENGTH:
            return text
        spans = self._found(text)
        if self._hides(text, spans) or self._spells(text, repeats_secret=bool(spans)):
            return REDACTED
        return _replaced(text, spans) if spans else text

    def _found(self, text: str) -> list[Span]:
        """Find fixed forms, whole or cut."""
        spans: list[Span] = []
        for form, public in _candidates(self._by_head, text):
            spans += merged(occurrences(text, form))
            spans += _cut_occurrences(text, form, public + MIN_LENGTH)
        return spans

    def _hides(self, text: str, spans: Sequence[Span]) -> bool:
        """Return whether the decoded text contains a secret outside the spans."""
        # The beginning of a secret may stand before a part of it that was found.
        left = _replaced(text, spans, mark='"') if spans else text
        for decoded, escaped in self._readings(left):
            if escaped is None or self._begins(decoded, escaped):
                return True
            for form, public in _candidates(self._by_part, decoded):
                if _tail(form) in decoded or any(
                    _cut_occurrences(decoded, form, public + MIN_LENGTH)
                ):
                    return True
        if spans:
            # A span may have been a part of an escaped form beside it.
            counts = self._counts(text)
            for decoded, _ in readings(text):
                if any(map(int.__gt__, self._counts(decoded), counts)):
                    return True
        return False

    def _readings(self, text: str) -> Iterator[tuple[str, set[str] | None]]:
        """Yield `readings`, and the last of them with joined lines, and with plus as space."""
        decoded = text
        for decoded, escaped in readings(text):
            yield decoded, escaped
        if "\n" in decoded or "\r" in decoded:
            yield _LINE_END.sub("", decoded.replace("\r", "\n")), set()
        if "+" in decoded and self._has_spaces:
            yield decoded.replace("+", " "), set()

    def _spells(self, text: str, *, repeats_secret: bool) -> bool:
        """Return whether strings of JSON in the text spell a secret, a few characters with each.

        If the text `repeats_secret` anyway, other strings may stand between those that spell it.
        """
        if not self._may_spell(text):
            return False
        for strings in strings_in(text):
            unquoted = '"'.join(strings.unquoted)
            if self._found(unquoted) or self._hides(unquoted, ()):
                return True
            if repeats_secret and any(
                _spell_beginning(strings.values, value) for value in self._values
            ):
                return True
            if any(map(self._goes_on, strings.put_together(self._may_be_pieces))):
                return True
        return False

    def _may_spell(self, text: str) -> bool:
        """Return quickly whether strings of the text may spell a secret; mostly they do not.

        They may if strings begin or end with 4 characters of a secret, or shorter strings are parts
        of it, or if anything is escaped.
        """
        if not ('"' in text or "[" in text or "data:" in text):
            return False
        if any(sign in text for sign in _UNREAD) or _ESCAPED.search(text):
            return True
        if holds_bytes(text):
            return True
        parts, length = self._parts, 0
        # Without backslashes, strings inside strings are found, too.
        strings = text.replace("\\n", "\n").replace("\\", "").split('"')
        for value, behind in pairwise((*strings, "")):
            # The name of a member is no value.
            if (value[:_HALF] in parts or value[-_HALF:] in parts) and not behind.startswith(":"):
                length += len(value)
        return length > 1

    def _goes_on(self, strings: Sequence[str]) -> bool:
        """Return whether a secret begins in a string and continues in the next."""
        text = "".join(strings)
        found = self._found(text)
        if found:
            ends = {*accumulate(map(len, strings))}
            if any(not ends.isdisjoint(range(start + 1, end)) for start, end in found):
                return True
        return self._hides(text, found)

    def _may_be_pieces(self, strings: Sequence[str]) -> bool:
        """Return quickly whether a secret may begin in a string and continue in the next.

        Then 4 characters of the secret lie across the end of a string.
        """
        text = "".join(strings)
        if not {"%", "\\", "&"}.isdisjoint(text):
            return True
        ends = [*accumulate(map(len, strings))][:-1]
        return not self._parts.isdisjoint(
            text[at : at + _HALF] for end in ends for at in (end - 1, max(end + 1 - _HALF, 0))
        )

    @cached_property
    def _parts(self) -> frozenset[str]:
        """All parts of fixed forms with up to 4 characters."""
        forms = [form for family in self._families for form in family]
        # In strings inside strings, `_may_spell` removes the backslashes.
        forms += [form.replace("\\", "") for form in forms if "\\" in form]
        together = "\0".join(forms)
        lengths, starts = range(1, _HALF + 1), range(len(together))
        return frozenset(together[at : at + length] for length in lengths for at in starts)

    def _begins(self, decoded: str, escaped: set[str]) -> bool:
        """Return whether a text was cut after 2 or more characters of a secret, some escaped.

        Escaped characters are long, so few of them may be left.
        """
        for value in self._values:
            if escaped.isdisjoint(value):
                continue
            for start, _ in _cut_occurrences(decoded, value, _public(value) + 2):
                rest = decoded[start : start + len(value)]
                if not escaped.isdisjoint(rest[: common_length(rest, value)]):
                    return True
        return False

    def _counts(self, text: str) -> list[int]:
        """Count how often the text contains each secret, in any fixed form."""
        places = (
            sorted(span for form in family for span in occurrences(text, form))
            for family in self._families
        )
        return [sum(1 for _ in merged(spans)) for spans in places]


def _candidates(forms: Mapping[str, list[_Form]], text: str) -> list[_Form]:
    found = [alike for part, alike in forms.items() if part in text]
    return [form for alike in found for form in alike]


def _replaced(text: str, spans: Iterable[Span], mark: str = REDACTED) -> str:
    kept: list[str] = []
    behind = 0
    for start, end in merged(sorted(spans)):
        kept += (text[behind:start], mark)
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
            if text[end : end + 1] in _BEHIND_A_CUT and (cut := _CUT.match(text, end)):
                yield at, cut.start(1)
                break


def _spell_beginning(strings: Iterable[str], value: str) -> bool:
    """Return whether some of the strings, in order, spell the beginning of a value."""
    beginning = value[: _public(value) + MIN_LENGTH]
    heads = {beginning[:length] for length in range(1, len(beginning))}
    # The heads that strings up to here may spell.
    spelled: set[str] = set()
    for piece in strings:
        if not (piece[0] in beginning or piece[-1] in beginning):
            continue
        longer = {head + piece for head in spelled}
        if any(one.startswith(beginning) for one in longer):
            return True
        spelled |= heads & longer
        spelled.update(head for head in heads if piece.endswith(head))
    return False


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
    yield read_bytes(stored)
    if " " in stored:
        # `_readings` reads plus signs as spaces.
        yield stored.replace("+", " ")
    for decoded, _ in readings(stored):
        yield scrub(decoded)


def _tail(form: str) -> str:
    """Return a form without the beginning that may be decoded together with the text before."""
    return form[min(_READ_AWAY, max(len(form) - MIN_LENGTH, 0)) :]


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
