"""Takes secrets out of texts, also where they were encoded on the way.

A key comes back in many forms: echoed in an error body, in a URL, in the base64 of an
authorization header, escaped in JSON inside JSON or in HTML. Forms that are fixed strings are
looked for directly. Escapes can stand for any part of a secret, so they take a pattern; it is tried
only on a text that escapes a character of that secret. Base64 and hex may be wrapped over lines;
that takes a pattern, too, tried only on a text that holds the secret once its lines are joined.

A text may have been cut before it came here. So the beginning of a secret goes, too, where a text
ends behind it, or goes on with what follows a cut: an ellipsis or a quotation mark. A scheme, a
host and a user name are no such beginning, as they are in many texts that repeat no secret.

One secret may be a part of another, or overlap it, and be written in another way there. So nothing
is replaced before all is found, in the text as it came: what overlaps goes together.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect
from typing import TYPE_CHECKING

from kindlm_store.escapes import MIN_LENGTH, Form, cut_end, escaped_codes, matches, unescaped
from kindlm_store.new_event import scrub
from kindlm_store.pieces import covering, texts_in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kindlm_store.escapes import Span

REDACTED = "[redacted]"
"""What stands in the place of a secret."""

# The commonest first: JSON has quotation marks all over.
_SIGNS_OF_A_CUT = ('"', "'", "...", "`", "u2026", "…", "”")

# Characters, as far as one cut through is looked for behind a beginning; rather too many.
_LONGEST_ESCAPE = 200

# How a value may begin that is a URL, or a user with a password. Of one with digits nobody knows
# whether it is a user.
_PUBLIC = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s]*(?=[/?#]|\Z))?|[A-Za-z]+(?:[_.-][A-Za-z]+)*:(?!//)",
    re.ASCII,
)

# The end of a line and the indentation of the next, as such or escaped.
_LINE_END = re.compile(r"\n[ \t]*")


class Redactor:
    """A callable that replaces secrets in a text by `[redacted]`.

    Found are the value itself, JSON-escaped, percent-encoded (wholly, partly, repeatedly, with
    plus signs for spaces), escaped in HTML (also repeatedly), with backslash-u and backslash-x
    escapes, in hex, and in base64 and base64url wherever it begins inside the encoded text; hex and
    base64 also over several lines. Of each, but for several lines, also the first 8 characters or
    more where the text was cut. Secrets that overlap in a text go as one. Of a stream of events
    that tells a secret in pieces, a few characters with each, the pieces go.

    It takes time in proportion to the text.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # Also as events hold it: what UTF-8 cannot say is replaced before anything is looked at.
        forms = {form for value in secrets for form in (value, scrub(value))}
        values = {value for value in forms if len(value) >= MIN_LENGTH and value not in REDACTED}
        ordered = sorted(values)
        # How much of each form says nothing.
        public = {value: _public(value) for value in ordered}
        encoded = dict(form for value in ordered for form in _wrappable_forms(value, public[value]))
        fixed = encoded | public
        self._fixed = tuple(sorted(fixed))
        self._longest = max(map(len, self._fixed), default=0)
        # Keys of one provider often begin alike, in all their encodings. In order, as they are
        # bisected.
        self._heads: dict[str, list[str]] = {}
        for form in self._fixed:
            self._heads.setdefault(form[: fixed[form] + MIN_LENGTH], []).append(form)
        self._wrappable = tuple(Form(form, encoded[form]) for form in encoded)
        self._escapable = (*(Form(value, public[value]) for value in ordered), *self._wrappable)
        # Most texts escape nothing that any of them holds.
        self._characters = Form("".join({c for form in self._escapable for c in form.text}))

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it."""
        if not self._fixed or len(text) < MIN_LENGTH:
            return text
        spans = self._found(text)
        for pieces in texts_in_pieces(text):
            found = self._found("".join(piece.said for piece in pieces))
            spans += covering(pieces, _merged(sorted(found)))
        return _without(text, spans) if spans else text

    def _found(self, text: str) -> list[Span]:
        """Where secrets are."""
        spans = self._plain(text)
        if "%" in text or "\\" in text or "+" in text or "&" in text:
            spans += self._escaped(text)
        if "%" in text or "\\" in text or "\n" in text or "\r" in text:
            spans += self._wrapped(text)
        return spans

    def _plain(self, text: str) -> list[Span]:
        """Where fixed forms are, whole or cut."""
        if _may_be_cut_inside(text):
            heads = [head for head in self._heads if head in text]
            if not heads:
                return []
            whole = [form for head in heads for form in self._heads[head] if form in text]
            start = 0
        else:
            # It can only be cut at its end: long strings are found faster than their beginnings.
            start = max(len(text) - self._longest - _LONGEST_ESCAPE, 0)
            end = text[start:]
            heads = [head for head in self._heads if head in end]
            whole = [form for form in self._fixed if form in text]
        spans = [span for form in whole for span in _merged(_occurrences(text, form))]
        for head in heads:
            spans += _beginnings(text, start, head, self._heads[head])
        return spans

    def _escaped(self, text: str) -> list[Span]:
        """Where secrets are that may be escaped, whole or cut."""
        codes = escaped_codes(text)
        if not self._characters.may_be_escaped(text, codes):
            return []
        forms = [form for form in self._escapable if form.may_be_escaped(text, codes)]
        return [span for form in forms for span in _merged(form.occurrences(text))]

    def _wrapped(self, text: str) -> list[Span]:
        """Where hex and base64 are that may be wrapped over lines."""
        joined = _joined(text)
        if len(joined) == len(text):
            return []
        found = [form for form in self._wrappable if form.text in joined]
        return [span for form in found for span in _merged(matches(form.wrapped, text))]


def _may_be_cut_inside(text: str) -> bool:
    for sign in _SIGNS_OF_A_CUT:  # noqa: SIM110 - any() takes five times as long, for every text
        if sign in text:
            return True
    return False


def _without(text: str, spans: Iterable[Span]) -> str:
    """The text with a mark in the place of all that the spans cover."""
    kept: list[str] = []
    behind = 0
    for start, end in _merged(sorted(spans)):
        kept += (text[behind:start], REDACTED)
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


def _beginnings(text: str, start: int, head: str, forms: Sequence[str]) -> Iterator[Span]:
    """Where beginnings of forms are, from a place on, that a cut left.

    Args:
        text: Where to look.
        start: From where on.
        head: What the forms begin with.
        forms: In order. Which of them agrees longest with a text is then one of the two between
            which it would stand; what the others could find is a part of what that one does.
    """
    longest = max(map(len, forms))
    at = text.find(head, start)
    while at >= 0:
        rest = text[at : at + longest]
        place = bisect(forms, rest)
        length = max(
            _agreeing(rest, form, len(head)) for form in forms[max(place - 1, 0) : place + 1]
        )
        end = cut_end(text, range(at + length, at + len(head) - 1, -1))
        if end:
            yield at, end
        at = text.find(head, at + 1)


def _agreeing(text: str, form: str, length: int) -> int:
    """How many characters two strings begin with alike, that begin so with a length at least."""
    for one, other in zip(text[length:], form[length:], strict=False):
        if one != other:
            break
        length += 1
    return length


def _joined(text: str) -> str:
    """The text on one line and without escapes: it holds all that a wrapped form could match."""
    return _LINE_END.sub("", unescaped(text).replace("\r", "\n"))


def _public(value: str) -> int:
    """How many characters a value begins with that are no secret, if it is enough for a cut."""
    beginning = _PUBLIC.match(value)
    return beginning.end() if beginning and beginning.end() >= MIN_LENGTH else 0


def _wrappable_forms(value: str, public: int) -> Iterator[tuple[str, int]]:
    """Hex and base64 of a value, each with how many of its characters are no secret."""
    raw = value.encode("utf-8", "surrogatepass")
    yield raw.hex(), 2 * public
    yield raw.hex().upper(), 2 * public
    for form in _base64_forms(raw):
        yield form, public * 4 // 3


def _base64_forms(raw: bytes) -> Iterator[str]:
    """The characters that a value fixes in base64, for each place it may begin at.

    Three bytes become four characters, so that there are three such places; at both ends a
    character may also hold bits of the neighbours, and is left out.
    """
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        form = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield form
        yield form.replace("+", "-").replace("/", "_")
