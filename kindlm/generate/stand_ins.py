"""Replaces personal data and secrets in recordings by stand-ins.

A value always gets the same stand-in, of the same kind. So arguments still match, and an e-mail
address becomes an e-mail address. Names, addresses and birthdays stay: no pattern finds them.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from urllib.parse import unquote

from kindlm.dataclass import replace
from kindlm.generate.recordings import Recording
from kindlm.patterns import DEFAULT_PATTERNS, passes_luhn, personal_data_in
from kindlm.secrecy import SHORTEST_SECRET, is_ordinary, is_secret_key, url_secrets
from kindlm_store import REDACTED

_PHONE = (
    r"(?<![\w+])(?:\+\d{1,3}[ .()/-]{0,2}(?:\d[ .()/-]{0,2}){6,12}\d"
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}|(?<!\.)1?[2-9]\d\d[2-9]\d{6}(?!\.\d))(?!\w)"
)
_PATTERNS = {
    pattern.replace("+@", "{1,64}(?:@|%40)"): kind for pattern, kind in DEFAULT_PATTERNS.items()
} | {_PHONE: "phone number"}
"""The patterns, each with its kind. In URLs, `@` is `%40`. The part before it is bounded, so that
long texts with many dots take linear time."""
_SECONDS = 5.0
"""The time limit of one pattern on one text."""

_TOKEN = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_][A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{35}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|(?<=[Bb]earer )[\w.~+/-]{16,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
"""Keys of well-known services, bearer tokens, and private keys."""

_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})
"""Headers with secrets, whose names `is_secret_key` does not know."""

_SURE = r"[\w.-]*(?:(?:api|access|auth|private|secret)[_-]?(?:key|token)|secret|passwd|password)"
_ONE_SECRET = re.compile(_SURE, re.IGNORECASE)
_MANY_SECRETS = re.compile(f"{_SURE}s", re.IGNORECASE)
"""Names that also decide about numbers, mappings and entries: below `Key` or `tokens` are ids."""

_CREDENTIALS = re.compile(r"\w+ \S+|[\w.-]+=\S.*")
"""Credentials after a scheme, or cookies, which are not the next name in a list of headers."""


class StandIns:
    """Makes stand-ins for all recordings of a suite.

    `redact` removes the secrets of the environment.
    """

    def __init__(self, redact: Callable[[str], str], *, keep_personal_data: bool) -> None:
        self._redact = redact
        self._patterns = {} if keep_personal_data else _PATTERNS
        self._given: dict[str, dict[str, int]] = defaultdict(dict)
        self._secrets: set[str] = set()
        self._in_recording: set[str] = set()

    @property
    def replaced(self) -> dict[str, int]:
        """The number of different values that were replaced, by kind.

        All secrets of the environment count as one.
        """
        found = {kind: len(values) for kind, values in self._given.items()}
        return found | ({"secret": len(self._secrets)} if self._secrets else {})

    def recording(self, recording: Recording) -> Recording:
        """Return a recording with stand-ins.

        Raises:
            PatternError: a text takes too long to search.
        """
        self._in_recording.clear()
        # A later key may show that an earlier text is a secret.
        self.value((recording.transcript, recording.tools))
        return replace(
            recording,
            name=self.text(recording.name),
            transcript=self.value(recording.transcript),
            tools=self.value(recording.tools),
        )

    def value(self, value: Any, *, secret: bool = False) -> Any:
        """Return a JSON value, or a part of a transcript, with stand-ins in all its texts.

        With `secret`, the value is one, and so is each text in a list or a mapping. Short texts and
        ordinary words are none.
        """
        match value:
            case Enum() | bool() | None:
                return value
            case _ if is_dataclass(value) and not isinstance(value, type):
                return replace(
                    value,
                    **{each.name: self.value(getattr(value, each.name)) for each in fields(value)},
                )
            case str():
                is_removed = secret and len(value) >= SHORTEST_SECRET and not is_ordinary(value)
                return self._removed(value) if is_removed else self.text(value)
            case int() | float() if secret and len(str(value)) >= SHORTEST_SECRET:
                return self._removed(str(value))
            case Mapping():
                made = dict[str, Any]()
                for key, item in value.items():
                    name = self.text(key)
                    while name in made:
                        name += "'"
                    made[name] = self.value(item, secret=secret or _is_secret(key, item, value))
                return made
            case [str() as name, str() as text] if (
                name.casefold() in _HEADERS and _CREDENTIALS.fullmatch(text)
            ):
                return type(value)((name, self.value(text, secret=True)))
            case list() | tuple():
                return type(value)(
                    self.value(each, secret=secret and isinstance(each, str | list))
                    for each in value
                )
            case int() | float() if value % 1 == 0:
                text = str(int(value))
                # Most numbers of ten digits are no phone numbers: only known ones are replaced.
                phones = self._given.get("phone number", {})
                if len(text) in (10, 11) and _same("phone number", text) not in phones:
                    return value
                other = self.text(text)
                return value if other == text else int(other) if other.isdigit() else other
        return value

    def text(self, text: str) -> str:
        """Return a text with stand-ins."""
        cleaned = _TOKEN.sub(lambda found: self._removed(found[0]), text)
        for secret in sorted(self._in_recording | url_secrets(cleaned), key=len, reverse=True):
            if secret in cleaned:
                cleaned = cleaned.replace(secret, self._removed(secret))
        redacted = self._redact(cleaned)
        if redacted != cleaned:
            self._secrets.add("")
        for pattern, kind in self._patterns.items():
            found = list(personal_data_in(redacted, pattern, time.monotonic() + _SECONDS))
            for start, end in reversed(found):
                redacted = (
                    f"{redacted[:start]}{self._one(kind, redacted[start:end])}{redacted[end:]}"
                )
        return redacted

    def _removed(self, secret: str) -> str:
        self._secrets.add(secret)
        self._in_recording.add(secret)
        return REDACTED

    def _one(self, kind: str, text: str) -> str:
        """Return the stand-in for a value; of its form, only `+` and `%40` stay."""
        known = self._given[kind]
        number = known.setdefault(_same(kind, text), len(known) + 1)
        match kind:
            case "email":
                return f"person{number}{'@' if '@' in text else '%40'}example.com"
            case "ssn":
                return f"000-00-{number:04}"
            case "phone number":
                return f"{'+1' if text.startswith('+') else ''}202555{100 + number:04}"
        # No card begins with 9999 99; the last digit is the check digit.
        made = f"999999{number:09}"
        return made + next(each for each in "0123456789" if passes_luhn(made + each))


def _is_secret(key: str, item: Any, siblings: Mapping[str, Any]) -> bool:
    """Return whether the value of a key is a secret.

    A mapping is one if it has only words, as `apiKeys: {stripe: …}`, and is not a JSON Schema.
    """
    match item:
        case int() | float():
            return _ONE_SECRET.fullmatch(key) is not None
        case Mapping():
            are_words = all(isinstance(each, str) and " " not in each for each in item.values())
            is_schema = "type" in item or "$ref" in item
            return are_words and not is_schema and _MANY_SECRETS.fullmatch(key) is not None
    named = siblings.get("name", siblings.get("key")) if key == "value" else None
    if isinstance(named, str) and (_ONE_SECRET.fullmatch(named) or named.casefold() in _HEADERS):
        return True  # an entry such as `{name: Authorization, value: …}`
    return is_secret_key(key.removesuffix("s")) or key.casefold() in _HEADERS


def _same(kind: str, text: str) -> str:
    """Return the normal form of a value, which all its forms have in common."""
    if kind == "email":
        return unquote(text).casefold()
    digits = "".join(filter(str.isdigit, text))
    # The country code is optional.
    is_american = kind == "phone number" and len(digits) == 11
    return digits.removeprefix("1") if is_american else digits
