"""Errors and warnings in the words of the file that the user has.

Agents and providers name what can be set by the keys of kindlm.yaml. Scenarios, and the writing of
tests for them, are configured by kindlm.toml, which has other keys, and not all of them.
"""

from __future__ import annotations

import re

from pydantic.alias_generators import to_snake

from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.suite import Suite

_KEYS = (
    *("responsePath", "toolCallsPath", "assistantId", "oneShot", "inputKey", "graphConfig"),
    *("timeoutMs", "apiKeyEnv", "baseUrl"),
)
"""Keys that kindlm.toml has in snake case."""

_TOML = (
    (re.compile(r"the agent or of the defaults \(in EvalView cases [^)]*\)"), "the agent"),
    # Retries of single calls cannot be set there, nor limits of answers.
    (re.compile(r",? or (?:raise )?defaults\.retries"), ""),
    (re.compile(r",? or lower maxTokens"), ""),
    (re.compile(r"defaults\.timeoutMs"), "eval.default_timeout"),
    (re.compile(r"providers\.[^\s]+?\.(baseUrl|apiKeyEnv)"), r"`\1` of [llm]"),
    (re.compile(r"`endpoint`"), "`url`"),
    (re.compile(r"`(oneShot|mode|sandbox): (true)`"), r"`\1 = \2`"),
    (re.compile(r"`(mode|sandbox): (\w+)`"), r'`\1 = "\2"`'),
    (re.compile(rf"\b(?:{'|'.join(_KEYS)})\b"), lambda found: to_snake(found[0])),
)
# What takes minutes, and one call after the other, has no settings for that.
_GENERATION = (
    (
        re.compile(r"^Raise (?:`timeout` of the scenario, or )?eval\.default_timeout, or (\w)"),
        lambda found: found[1].upper(),
    ),
    (re.compile(r"^Reduce concurrency with --concurrency 1"), "Wait a while, and try again"),
)


def in_words_of(suite: Suite, error: KindlmError) -> KindlmError:
    """Return an error as the user of a suite can use it."""
    hint = None if error.hint is None else said_in_words_of(suite, error.hint)
    if error.code is not ErrorCode.CONFIG_VALIDATION_ERROR:
        # It may quote what an agent or a provider said.
        return replace(error, hint=hint)
    return replace(error, message=said_in_words_of(suite, error.message), hint=hint)


def said_in_words_of(suite: Suite, text: str) -> str:
    """Return a text that may name keys of kindlm.yaml with those that the user has."""
    if suite.front_end not in ("scenario", "generation"):
        return text
    for pattern, words in (*_TOML, *(_GENERATION if suite.front_end == "generation" else ())):
        text = pattern.sub(words, text)
    return text
