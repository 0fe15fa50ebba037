"""Replaces personal data and secrets in recordings, the same value by the same stand-in everywhere.

So arguments still match, and an e-mail address is still one. Names, addresses and birthdays have no
form that could be found.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kindlm.generate.recordings import Recording
from kindlm.personal_data import DEFAULT_PATTERNS, passes_luhn, personal_data_in
from kindlm.secrecy import SHORTEST_SECRET, is_ordinary, is_secret_option, url_secrets
from kindlm.transcript import Step, ToolUse
from kindlm_store import REDACTED

_PHONE = (
    r"(?<![\w+])(?:\+\d{1,3}[ .()/-]{0,2}(?:\d[ .()/-]{0,2}){6,12}\d"
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4})(?!\w)"
)
_PATTERNS = {**DEFAULT_PATTERNS, _PHONE: "phone number"}
_SECONDS = 5.0
"""How long one pattern may take on one text."""

_TOKEN = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_][A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|(?<=[Bb]earer )[\w.~+/-]{16,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
"""Keys of well-known services, tokens, and private keys."""


class StandIns:
    """Replaces what must not stand in a file. `redact` removes the secrets of the environment."""

    def __init__(self, redact: Callable[[str], str], *, keep_personal_data: bool) -> None:
        self._redact = redact
        self._patterns = {} if keep_personal_data else _PATTERNS
        self._given: dict[str, dict[str, int]] = defaultdict(dict)
        self._secrets: set[str] = set()

    @property
    def replaced(self) -> dict[str, int]:
        """How many different values were replaced, by kind; secrets of the environment are one."""
        found = {kind: len(values) for kind, values in self._given.items()}
        return found | ({"secret": len(self._secrets)} if self._secrets else {})

    def recording(self, recording: Recording) -> Recording:
        """Return a recording with stand-ins.

        Raises:
            PatternError: a text takes too long to search.
        """
        said = recording.transcript
        turns = tuple(
            replace(turn, user=self.text(turn.user), steps=tuple(map(self._step, turn.steps)))
            for turn in said.turns
        )
        system = None if said.system is None else self.text(said.system)
        tools = tuple(
            replace(
                tool,
                description=None if tool.description is None else self.text(tool.description),
                parameters=self.value(tool.parameters),
            )
            for tool in recording.tools
        )
        transcript = replace(said, system=system, turns=turns)
        return replace(
            recording, name=self.text(recording.name), transcript=transcript, tools=tools
        )

    def value(self, value: Any) -> Any:
        """Return a JSON value with stand-ins."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {
                    self.text(key): self._removed(item)
                    if _is_secret(key, item)
                    else self.value(item)
                    for key, item in value.items()
                }
            case list():
                return [self.value(each) for each in value]
            case int() if not isinstance(value, bool):
                # A card number may be a number.
                text = self.text(str(value))
                return value if text == str(value) else int(text) if text.isdigit() else text
        return value

    def text(self, text: str) -> str:
        """Return a text with stand-ins."""
        cleaned = _TOKEN.sub(lambda found: self._removed(found[0]), text)
        for secret in sorted(url_secrets(cleaned), key=len, reverse=True):
            cleaned = cleaned.replace(secret, self._removed(secret))
        redacted = self._redact(cleaned)
        if redacted != cleaned:
            self._removed("")
        for pattern, kind in self._patterns.items():
            found = list(personal_data_in(redacted, pattern, time.monotonic() + _SECONDS))
            for start, end in reversed(found):
                redacted = (
                    f"{redacted[:start]}{self._one(kind, redacted[start:end])}{redacted[end:]}"
                )
        return redacted

    def _step(self, step: Step) -> Step:
        return replace(
            step, text=self.text(step.text), tool_uses=tuple(map(self._use, step.tool_uses))
        )

    def _use(self, use: ToolUse) -> ToolUse:
        malformed = use.call.malformed
        call = replace(
            use.call,
            arguments=self.value(use.call.arguments),
            malformed=None if malformed is None else self.text(malformed),
        )
        return replace(use, call=call, response=self.value(use.response))

    def _removed(self, secret: str) -> str:
        self._secrets.add(secret)
        return REDACTED

    def _one(self, kind: str, text: str) -> str:
        """Return the stand-in for a value."""
        digits = "".join(char for char in text if char.isdigit())
        known = self._given[kind]
        number = known.setdefault(text.casefold() if kind == "email" else digits, len(known) + 1)
        match kind:
            case "email":
                return f"person{number}@example.com"
            case "ssn":
                return f"000-00-{number:04}"
            case "phone number":
                return f"+1 202 555 {100 + number:04}"
        # No card begins with 9999 99; the last digit is right.
        made = f"999999{number:09}"
        made += next(each for each in "0123456789" if passes_luhn(made + each))
        left = iter(made)
        return "".join(next(left) if char.isdigit() else char for char in text)


def _is_secret(key: str, value: Any) -> bool:
    return (
        is_secret_option(key)
        and isinstance(value, str)
        and len(value) >= SHORTEST_SECRET
        and not is_ordinary(value)
    )
