"""Personal data that must not be recorded: `record.redactPii`.

Everything that a suite's patterns match is made unreadable on its way into the log; checks see the
texts as they are, before that. A match keeps its length, so that places in a text stay what they
were, and at most its first and last two characters.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.checks.pii import find_personal_data
from kindlm.config.expect_schema import PiiConfig
from kindlm.patterns import PatternError
from kindlm.suite import Suite
from kindlm_store import Text

__all__ = ["PersonalData", "patterns_of"]

_TEXT_S = 2.0
"""Seconds for all patterns on one text; a text that takes longer is not recorded."""

_WITHHELD = "[not recorded: the patterns for personal data took too long]"
_NESTING = 4
"""JSON inside strings of JSON is followed so deep."""

_FIELDS = frozenset({"excerpt", "hint", "label", "warnings"})
"""Strings of events that may repeat what somebody wrote, beside the texts themselves."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT_TOKEN = re.compile(_STRING)
_JSON_TOKEN = re.compile(rf"{_STRING}|-?\d[\d.eE+-]*")


def patterns_of(suite: Suite) -> tuple[str, ...]:
    """Return the default patterns, and those that the tests of a suite look for."""
    written = [
        pattern
        for case in suite.cases
        for expectation in case.expectations
        if expectation.kind == "pii"
        for pattern in _written(expectation.params)
    ]
    return tuple(dict.fromkeys((*PiiConfig().deny_patterns, *written)))


class PersonalData:
    """Makes what patterns match unreadable; a pattern that does not compile matches nothing."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = [pattern for pattern in patterns if _compiles(pattern)]

    def hide_in(self, data: Any) -> Any:
        """Return the data of an event without personal data; names and numbers stay."""
        match data:
            case Text(body):
                return Text(self.hide(body))
            case Mapping():
                return {
                    key: self._hide_field(value) if key in _FIELDS else self.hide_in(value)
                    for key, value in data.items()
                }
            case list():
                return [self.hide_in(item) for item in data]
            case _:
                return data

    def hide(self, text: str) -> str:
        """Return a text without personal data; what was JSON stays JSON."""
        deadline = time.monotonic() + _TEXT_S
        try:
            return self._hide(text, deadline, _NESTING)
        except PatternError:
            return json.dumps(_WITHHELD) if _is_json(text) else _WITHHELD

    def _hide_field(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._hide_field(item) for item in value]
        return self.hide(value) if isinstance(value, str) else self.hide_in(value)

    def _hide(self, text: str, deadline: float, depth: int) -> str:
        was_json = _is_json(text)
        if depth:
            # Escapes hide what stands in a string; its value has to be looked at.
            tokens = _JSON_TOKEN if was_json else _TEXT_TOKEN
            text = tokens.sub(lambda token: self._hide_token(token[0], deadline, depth - 1), text)
        hidden = self._mask(text, deadline)
        return (
            json.dumps(hidden, ensure_ascii=False) if was_json and not _is_json(hidden) else hidden
        )

    def _hide_token(self, token: str, deadline: float, depth: int) -> str:
        if not token.startswith('"'):
            hidden = self._mask(token, deadline)
            return token if hidden == token else json.dumps(hidden)
        try:
            value: str = json.loads(token)
        except ValueError:
            return token  # quotation marks of a text
        hidden = self._hide(value, deadline, depth)
        return token if hidden == value else json.dumps(hidden, ensure_ascii=False)

    def _mask(self, text: str, deadline: float) -> str:
        for pattern in self._patterns:
            for start, end in find_personal_data(pattern, text, deadline):
                mask = _masked(text[start:end])
                if find_personal_data(pattern, mask, deadline):
                    mask = "*" * (end - start)
                text = text[:start] + mask + text[end:]
        return text


def _written(params: Mapping[str, Any]) -> Iterator[str]:
    yield from params.get("denyPatterns") or ()
    yield from (custom["pattern"] for custom in params.get("customPatterns") or ())


def _compiles(pattern: str) -> bool:
    try:
        find_personal_data(pattern, "", time.monotonic() + _TEXT_S)
    except PatternError:
        return False
    return True


def _masked(match: str) -> str:
    if len(match) < 5:
        return "*" * len(match)
    return match[:2] + "*" * (len(match) - 4) + match[-2:]


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[", '"')):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
