"""What a scenario in YAML may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kindlm.section import WHOLE, Maybe, Positive, Repeat, Score, Seconds, Text
from kindlm.values import check_pattern

Limit = Annotated[float, Field(ge=0)]
Whole = Annotated[int, Field(ge=0), WHOLE]


class _Mapping(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class TextConfig(_Mapping):
    """A check of the text."""

    text: Text


class PatternConfig(_Mapping):
    """A regular expression."""

    pattern: Annotated[Text, BeforeValidator(check_pattern)]


class SchemaConfig(_Mapping):
    """A JSON Schema."""

    schema_: dict[str, Any] = Field(alias="schema")


class LatencyConfig(_Mapping):
    """A limit of time."""

    max_ms: Limit


class TokensConfig(_Mapping):
    """A limit of tokens."""

    max_tokens: Whole


class ToolConfig(_Mapping):
    """A tool, and arguments that its call has to have among others."""

    tool: Text
    arguments: Maybe[dict[str, Any]] = None


class ToneConfig(_Mapping):
    """A tone."""

    tone: Text


class JudgeConfig(_Mapping):
    """A criterion, and how many points of the scale are enough."""

    criteria: Text
    threshold: Positive = 3
    scale: Positive = 5


class GuardrailConfig(_Mapping):
    """Rules."""

    must: list[Text] = []
    must_not: list[Text] = []


class FactsConfig(_Mapping):
    """What is true."""

    ground_truth: Text
    context: Maybe[str] = None


CHECKS = {
    "contains": "text",
    "not_contains": "text",
    "matches": "pattern",
    "json_schema": None,
    "latency": "max_ms",
    "token_usage": "max_tokens",
    "tool_called": "tool",
    "tool_not_called": "tool",
    "sentiment": "tone",
    "judge": "criteria",
    "guardrail": None,
    "factuality": "ground_truth",
}
"""The checks, and which of their keys a value stands for that is no mapping."""


class ChecksConfig(_Mapping):
    """Some checks; `weight` is what each of them counts for."""

    contains: Maybe[TextConfig] = None
    not_contains: Maybe[TextConfig] = None
    matches: Maybe[PatternConfig] = None
    json_schema: Maybe[SchemaConfig] = None
    latency: Maybe[LatencyConfig] = None
    token_usage: Maybe[TokensConfig] = None
    tool_called: Maybe[ToolConfig] = None
    tool_not_called: Maybe[ToolConfig] = None
    sentiment: Maybe[ToneConfig] = None
    judge: Maybe[JudgeConfig] = None
    guardrail: Maybe[GuardrailConfig] = None
    factuality: Maybe[FactsConfig] = None
    weight: Positive = 1.0


Checks = Annotated[list[ChecksConfig], Field(min_length=1)]


class PersonaConfig(_Mapping):
    """Who talks to the agent."""

    role: Text
    name: Maybe[str] = None
    tone: Maybe[str] = None
    backstory: Maybe[str] = None
    context: Maybe[dict[str, Any]] = None


class TurnConfig(_Mapping):
    """A message, and checks of the answer to it."""

    says: str
    expect: Checks = []


class ScenarioConfig(_Mapping):
    """A scenario."""

    name: Text
    description: Maybe[str] = None
    """What it is good for, for those who read it."""
    persona: Maybe[PersonaConfig] = None
    turns: list[TurnConfig] = Field(min_length=1)
    assertions: Checks = []
    tags: list[Text] = []
    repeats: Repeat = 1
    pass_rate: Score = 1.0
    timeout: Maybe[Seconds] = None
    agent: Maybe[dict[str, Any]] = None


def spelt_out(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario with the short forms written at length.

    A single mapping stands for a list of one, a text for one rule, an `agent` that is a text for
    its URL, and a check's value for the first of its keys. What has another shape stays as it is.
    """
    long = dict(value)
    if isinstance(long.get("agent"), str):
        long["agent"] = {"type": "http", "url": long["agent"]}
    if "assertions" in long:
        long["assertions"] = _checks(long["assertions"])
    if isinstance(long.get("turns"), list):
        long["turns"] = [_turn(turn) for turn in long["turns"]]
    return long


def _turn(turn: Any) -> Any:
    if not isinstance(turn, dict) or "expect" not in turn:
        return turn
    return {**turn, "expect": _checks(turn["expect"])}


def _checks(value: Any) -> Any:
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list):
        return found
    return [
        {key: _check(key, item) for key, item in each.items()} if isinstance(each, dict) else each
        for each in found
    ]


def _check(name: Any, value: Any) -> Any:
    if name == "json_schema" and isinstance(value, dict):
        # The argument's name is no keyword of JSON Schema.
        return value if value.keys() == {"schema"} else {"schema": value}
    if name == "guardrail" and isinstance(value, dict):
        return {key: [item] if isinstance(item, str) else item for key, item in value.items()}
    short = CHECKS.get(name) if isinstance(name, str) else None
    return value if short is None or isinstance(value, dict) or value is None else {short: value}
