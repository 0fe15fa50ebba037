"""Hides personal data in events, for `record.redactPii`: everything that patterns of a suite match.

A hidden match keeps its length, so that positions in the text stay valid, and at most its first and
last two characters. The raw body of an answer may contain the match in other forms, so it is not
recorded if anything in it, or read from it, matches.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kindlm.checks.guardrails import Pii
from kindlm.events.execution_events import RAW_BODY
from kindlm.patterns import DEFAULT_PATTERNS, PatternError, personal_data_in
from kindlm.strict_json import json_or_text
from kindlm.suite import Suite
from kindlm_store import Text
from kindlm_store.decoding import spelled

if TYPE_CHECKING:
    from kindlm.recording.request import SkippedSuite

_TEXT_S = 2.0
"""Seconds for all patterns on one text; a text that takes longer is not recorded."""

_SLOW_S = 0.2
"""Seconds for all patterns on one text once they took too long for another one."""

_OF_WIRES = frozenset({"provider.requested", "agent.traced"})
_BODIES = frozenset({"body", "items", "input", "output"})
"""Texts of these events that are in a wire format."""

_IN_PIECES = "[not recorded: it says personal data in pieces]"

_WITHHELD = "[not recorded: the patterns for personal data took too long]"
_NESTING = 4
"""How many levels of JSON in strings of JSON are searched."""

_FIELDS = frozenset({"excerpt", "label", "warnings"})
"""Strings of events, besides texts, that may quote a person or a model."""

_CUT_OFF = frozenset({"actual", "error", "excerpt", "message", "reason"})
"""Texts of events that kindlm may have cut, so that a pattern misses a match at the cut."""

# A word before a cut (backwards) or after it, and numbers beside that word.
_CUT_BEFORE = re.compile(r'[^\s"]*(?:\s[^\s"]*\d[^\s"]*)*')
_CUT_BEHIND = re.compile(r'[^\s"\\]*(?:\s[^\s"\\]*\d[^\s"\\]*)*')

_REMEMBERED = 512
_SHORT = 10_000
"""The results for so many texts of at most so many characters are cached."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT_TOKEN = re.compile(_STRING)
_JSON_TOKEN = re.compile(rf"{_STRING}|-?\d[\d.eE+-]*")


def patterns_of(suite: Suite | SkippedSuite) -> tuple[str, ...]:
    """Return the default patterns, and those that the tests of a suite look for, if known."""
    cases = suite.cases if isinstance(suite, Suite) else ()
    checks = [each.check for case in cases for each in case.expectations]
    found = [named for check in checks if isinstance(check, Pii) for named in check.patterns]
    return tuple(dict.fromkeys([*DEFAULT_PATTERNS, *(pattern for _, pattern in found)]))


class PersonalData:
    """Hides matches of patterns for personal data.

    Texts for which the patterns take too long are not recorded. After the first of them, each
    further text gets less time.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        self._time_s = _TEXT_S
        self._remembered = lru_cache(_REMEMBERED)(self._hide)

    def hide_in(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an event's data without personal data; `kind` is the type of the event."""
        hidden: dict[str, Any] = self._hide_value(data, is_wire=kind in _OF_WIRES)
        body = data.get(RAW_BODY)
        if isinstance(body, Text) and (hidden != data or self._is_in_pieces_of(body.body)):
            del hidden[RAW_BODY]
        return hidden

    def hide(self, text: str) -> str:
        """Return a text without personal data; JSON stays JSON."""
        return self._remembered(text) if len(text) <= _SHORT else self._hide(text)

    def hide_in_excerpt(self, text: str) -> str:
        """Return a text that kindlm may have cut, without personal data.

        A pattern may miss a match that is cut off, so the words beside an ellipsis are left out.
        """
        first, *others = self.hide(text).split("…")
        pieces = [first, *(_CUT_BEHIND.sub("", piece, count=1) for piece in others)]
        backwards = [piece[::-1] for piece in pieces[:-1]]
        before = [_CUT_BEFORE.sub("", piece, count=1)[::-1] for piece in backwards]
        return "…".join((*before, pieces[-1]))

    def _hide_value(self, value: Any, key: str = "", *, is_wire: bool = False) -> Any:
        hide = self.hide_in_excerpt if key in _CUT_OFF else self.hide
        match value:
            case Text(body):
                hidden = hide(body)
                is_left = is_wire and key in _BODIES and self._is_in_pieces_of(hidden)
                return Text(json.dumps(_IN_PIECES) if is_left else hidden)
            case str():
                return hide(value) if key in _FIELDS else value
            case Mapping():
                return {
                    name: self._hide_value(member, name, is_wire=is_wire)
                    for name, member in value.items()
                }
            case list() | tuple():
                return [self._hide_value(item, key, is_wire=is_wire) for item in value]
            case _:
                return value

    def _is_in_pieces_of(self, text: str) -> bool:
        """Return whether pieces of a text, such as the deltas of a stream, spell personal data."""
        whole = spelled(text)
        return self.hide(whole) != whole

    def _hide(self, text: str) -> str:
        try:
            return self._hide_nested(text, time.monotonic() + self._time_s, _NESTING)
        except PatternError:
            self._time_s = _SLOW_S
            return json.dumps(_WITHHELD) if _is_json(text) else _WITHHELD

    def _hide_nested(self, text: str, end: float, depth: int) -> str:
        was_json = _is_json(text)

        def hide_token(found: re.Match[str]) -> str:
            token = found[0]
            if not token.startswith('"'):
                value, hidden = token, self._mask(token, end)
            else:
                try:
                    value = json.loads(token)
                except ValueError:
                    return token  # quotation marks of a text
                hidden = self._hide_nested(value, end, depth - 1)
            return token if hidden == value else json.dumps(hidden, ensure_ascii=False)

        if depth:
            # Escapes may hide a match in a string, so its value is checked.
            text = (_JSON_TOKEN if was_json else _TEXT_TOKEN).sub(hide_token, text)
        hidden = self._mask(text, end)
        if was_json and not _is_json(hidden):
            return json.dumps(hidden, ensure_ascii=False)
        return hidden

    def _mask(self, text: str, end: float) -> str:
        for pattern in self._patterns:
            for start, stop in list(personal_data_in(text, pattern, end)):
                kept = 2 if stop - start > 4 else 0
                stars = "*" * (stop - start - 2 * kept)
                mask = text[start : start + kept] + stars + text[stop - kept : stop]
                if list(personal_data_in(mask, pattern, end)):
                    mask = "*" * (stop - start)
                text = text[:start] + mask + text[stop:]
        return text


def _is_json(text: str) -> bool:
    # A text that is not JSON comes back itself.
    return text.lstrip().startswith(("{", "[", '"')) and json_or_text(text) is not text
