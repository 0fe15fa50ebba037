"""Reads what agents report with their answers: tokens, costs, models, and other numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kindlm.agents.reply_parts import first_text
from kindlm.bounds import MAX_COUNTED
from kindlm.dataclass import replace
from kindlm.transcript import Extras, Usage, extras_of
from kindlm.wires import Spent, anthropic, extras_from, object_or_empty, token_count, token_usage

_MAX_NUMBERS = 50
MAX_NAME = 100
_INPUT_TOKENS = ("prompt_tokens", "input", "inputTokens", "promptTokens")
_OUTPUT_TOKENS = (
    *("output_tokens", "completion_tokens", "output"),
    *("outputTokens", "completionTokens"),
)
MODEL_KEYS = ("model", "model_id", "model_name")


def read_numbers(value: Any) -> dict[str, float]:
    """Return the finite numbers of a reply, of its metadata, and of `metrics` in either.

    `metrics` come first if a name occurs twice. kindlm reads at most 50 numbers.
    """
    found: dict[str, float] = {}
    parts = list(_parts(value))
    metrics = [part["metrics"] for part in parts if isinstance(part.get("metrics"), dict)]
    for part in (*metrics, *parts):
        for name, number in part.items():
            if len(found) < _MAX_NUMBERS and len(name) <= MAX_NAME and _is_number(number):
                found.setdefault(name, number)
    return found


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # false for NaN, too


def read_spent(value: Any, steps: Iterable[Any] = ()) -> Spent:
    """Read tokens, cost and model of an answer or an event; see `read_cost` for `steps`."""
    return Spent(read_usage(value), read_cost(value, steps), read_model(value))


def read_usage(value: Any) -> Usage:
    """Read the `usage` or `tokens` of the reply or of its metadata.

    As with providers, 0 of both kinds means that no one counted.
    """
    for part in _parts(value):
        for counts in (part.get("usage"), part.get("tokens")):
            usage = read_counts(counts)
            if usage == Usage() or usage == Usage(0, 0):
                continue
            named = extras_from(tier=part.get("service_tier"))
            if named is None:
                return usage
            return replace(usage, extras=replace(usage.extras or named, tier=named.tier))
    return Usage()


def read_counts(counts: Any) -> Usage:
    """Read the value of `usage`: tokens by name, or the number of output tokens."""
    if not isinstance(counts, dict):
        return Usage(None, token_count(counts))
    # Anthropic's input count excludes tokens written to or read from the prompt cache.
    usage = anthropic.usage_of({"usage": counts})
    input_tokens = usage.input_tokens
    if input_tokens is None:
        input_tokens = _count(counts, _INPUT_TOKENS)
    extras = (
        usage.extras
        or token_usage(counts, "input_tokens", "output_tokens").extras
        or token_usage(counts, "prompt_tokens", "completion_tokens").extras
        or _extras_by_langchain(counts)
    )
    return Usage(input_tokens, _count(counts, _OUTPUT_TOKENS), extras)


def _extras_by_langchain(counts: Mapping[str, Any]) -> Extras | None:
    """Read tokens of caches and audio. Written tokens have a name for each lifetime of a cache."""
    sent = object_or_empty(counts.get("input_token_details"))
    written = object_or_empty(counts.get("output_token_details"))
    read = token_count(sent.get("cache_read")) or 0
    created = token_count(sent.get("cache_creation")) or 0
    short = token_count(sent.get("ephemeral_5m_input_tokens")) or 0
    long = token_count(sent.get("ephemeral_1h_input_tokens")) or 0
    has_audio = bool(token_count(sent.get("audio")) or token_count(written.get("audio")))
    return extras_from(read, created + short + long, long, unpriced=has_audio)


def later_spent(known: Spent, new: Spent) -> Spent:
    """Return the usage that is reported later, and what only the known one has."""
    was, now = known.usage, new.usage
    usage = Usage(
        was.input_tokens if now.input_tokens is None else now.input_tokens,
        was.output_tokens if now.output_tokens is None else now.output_tokens,
        now.extras or was.extras,
    )
    cost_usd = known.cost_usd if new.cost_usd is None else new.cost_usd
    return Spent(usage, cost_usd, new.model or known.model)


def spent_together(messages: Sequence[Spent]) -> Spent:
    """Return the usage of several messages of an agent's models, with the sum of reported tokens.

    A number of tokens is unknown if a message names its model without it. The cost is known if each
    message reports one, and the model if all name the same.
    """
    named = [each.usage for each in messages if each.model]
    usages = [] if Usage() in named else [each.usage for each in messages]
    costs = [each.cost_usd for each in messages if each.cost_usd is not None]
    models = {each.model for each in messages if each.model is not None}
    return Spent(
        Usage(
            _total(usages, named, "input_tokens"),
            _total(usages, named, "output_tokens"),
            extras_of(usages),
        ),
        _amount(sum(costs)) if costs and len(costs) == len(messages) else None,
        models.pop() if len(models) == 1 else None,
    )


def _total(usages: Sequence[Usage], named: Sequence[Usage], name: str) -> int | None:
    """Return the sum of a number; None if one of the `named` models does not report it."""
    if any(getattr(usage, name) is None for usage in named):
        return None
    known = [count for usage in usages if (count := getattr(usage, name)) is not None]
    return token_count(sum(known)) if known else None


def read_model(value: Any) -> str | None:
    """Read the name of the model that the agent reports."""
    return first_text(*(part.get(key) for part in _parts(value) for key in MODEL_KEYS))


def read_cost(value: Any, steps: Iterable[Any] = ()) -> float | None:
    """Read the cost of the reply in US dollars, else the sum of its steps if each reports one."""
    for part in _parts(value):
        cost = _amount(part.get("cost"))
        if cost is not None:
            return cost
    costs = [_amount(step.get("cost")) for step in steps if isinstance(step, dict)]
    known = [cost for cost in costs if cost is not None]
    return _amount(sum(known)) if costs and len(known) == len(costs) else None


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the reply itself and its metadata, if they are objects."""
    if isinstance(value, dict):
        yield value
        for key in ("metadata", "meta"):
            if isinstance(value.get(key), dict):
                yield value[key]


def _amount(value: Any) -> float | None:
    return float(value) if _is_number(value) and 0 <= value <= MAX_COUNTED else None


def _count(counts: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    found = (token_count(counts.get(key)) for key in keys)
    return next((count for count in found if count is not None), None)
