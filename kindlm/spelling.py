"""How each file format spells keys and variables, for messages about them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pydantic.alias_generators import to_snake

from kindlm.dataclass import dataclass, replace
from kindlm.errors import ErrorCode, KindlmError

_ALSO = {"adapter": "type", "endpoint": "url", "id": "name"}
"""Other names of agents' keys, in formats with snake case."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of one format.

    Attributes:
        is_snake: Whether keys are in snake case: `timeout_ms` for `timeoutMs`.
        assignment: The form of a key before its value.
        variable: The placeholder for an environment variable.
    """

    is_snake: bool
    assignment: str
    variable: str

    def key(self, name: str) -> str:
        """Return a key of kindlm.yaml in this format."""
        return _ALSO.get(name, to_snake(name)) if self.is_snake else name

    def line(self, name: str, value: str = "") -> str:
        """Return a key with its value, or without one."""
        quoted = value if "{key}:" in self.assignment else f'"{value}"'
        return self.assignment.format(key=self.key(name)) + (f" {quoted}" if value else "")


KINDLM_YAML = Spelling(False, "{key}:", "{{env.NAME}}")
SCENARIO_YAML = Spelling(True, "{key}:", "${env.NAME}")
TOML = Spelling(True, "{key} =", "${env.NAME}")
PYTHON = Spelling(True, '"{key}":', "${env.NAME}")


_KEYS = (
    *("responsePath", "toolCallsPath", "assistantId", "oneShot", "inputKey", "graphConfig"),
    *("timeoutMs", "apiKeyEnv", "baseUrl"),
)
"""Keys that kindlm.toml has in snake case."""

_TOML = (
    (re.compile(r"the agent or of the defaults \(in EvalView cases [^)]*\)"), "the agent"),
    # It has no settings for retries of calls and for the length of answers.
    (re.compile(r",? or (?:raise )?defaults\.retries"), ""),
    (re.compile(r",? or lower maxTokens"), ""),
    (re.compile(r"defaults\.timeoutMs"), "eval.default_timeout"),
    (re.compile(r"providers\.[^\s]+?\.(baseUrl|apiKeyEnv)"), r"`\1` of [llm]"),
    (re.compile(r"`endpoint`"), "`url`"),
    (re.compile(r"`(oneShot|mode|sandbox): (true)`"), r"`\1 = \2`"),
    (re.compile(r"`(mode|sandbox): (\w+)`"), r'`\1 = "\2"`'),
    (re.compile(rf"\b(?:{'|'.join(_KEYS)})\b"), lambda found: to_snake(found[0])),
)
# Generation has no settings for timeouts and concurrency.
_GENERATION = (
    (
        re.compile(r"^Raise (?:`timeout` of the scenario, or )?eval\.default_timeout, or (\w)"),
        lambda found: found[1].upper(),
    ),
    (re.compile(r"^Reduce concurrency with --concurrency 1"), "Wait a while, and try again"),
)


def in_words_of(front_end: str, error: KindlmError) -> KindlmError:
    """Return an error with the keys of the front end's file.

    Agents and providers name keys of kindlm.yaml. Scenarios and generation are configured by
    kindlm.toml, which has other and fewer keys.
    """
    hint = None if error.hint is None else said_in_words_of(front_end, error.hint)
    if error.code is not ErrorCode.CONFIG_VALIDATION_ERROR:
        # The message may quote an agent or a provider.
        return replace(error, hint=hint)
    return replace(error, message=said_in_words_of(front_end, error.message), hint=hint)


def said_in_words_of(front_end: str, text: str) -> str:
    """Return a text with keys of kindlm.yaml replaced by those of the front end's file."""
    if front_end not in ("scenario", "generation"):
        return text
    for pattern, words in (*_TOML, *(_GENERATION if front_end == "generation" else ())):
        text = pattern.sub(words, text)
    return text


def fields_of(value: object, names: str) -> dict[str, Any]:
    """Return fields of a value under their names in JSON: `latencyMs` for `latency_ms`."""
    return {name: getattr(value, field) for name, field in _fields(names)}


@cache
def _fields(names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, to_snake(name)) for name in names.split())
