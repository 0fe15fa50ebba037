"""What tokens cost: the user's prices first, then a maintained table that works offline.

A price belongs to a model, not to names that look like it. A dated or tagged version of a model
(`gpt-4o-2024-08-06`, `x@20250514`, `y-latest`) has the price of the model; any other longer name
(`gpt-4o-mini` beside `gpt-4o`, `o3-pro` beside `o3`) is another model. What has no price costs an
unknown amount, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kindlm.suite import Price, Suite
from kindlm.transcript import Cost, CostSource, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo


_VERSION = re.compile(r"[-@:](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{3,4}|latest)", re.ASCII)
_REVISION = re.compile(r"-v\d+(?::\d+)?$", re.ASCII)
"""The end of a name on Bedrock: `eu.anthropic.claude-sonnet-4-5-20250929-v1:0`."""

_MILLION = 1_000_000


def prices_of(suite: Suite) -> PriceTable:
    """Return the prices of a suite; a preset under another name has those of the preset."""
    presets = (each for each in suite.providers.values() if each.options is not None)
    sellers = {each.name: each.type for each in presets if each.options.usual_base_url is not None}
    return PriceTable(suite.prices, sellers)


class PriceTable:
    """Implements `ports.Pricing`.

    `prices` are the user's own, by model name. `sellers` are providers by the user's name for them,
    where the table knows them by another one.
    """

    def __init__(
        self, prices: Mapping[str, Price], sellers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._prices = dict(prices)
        self._sellers = sellers
        self._found: dict[str, Price | None] = {}

    def cost(
        self,
        provider: str | None,
        model: str | None,
        usage: Usage,
        reported_usd: float | None = None,
        *,
        requested: str | None = None,
    ) -> Cost:
        """Return the cost of a call; see `ports.Pricing`.

        Gateways and deployments answer by names of their own, so that two names count. What the
        user says is free costs 0 however many tokens it took.
        """
        price = None
        if self._prices:
            price = None if model is None else self._users(model)
            if price is None and requested is not None:
                price = self._users(requested)
        if price is not None and price.input_usd == price.output_usd == 0:
            return Cost(0.0, CostSource.COMPUTED)
        if price is None and reported_usd is not None:
            return Cost(reported_usd, CostSource.REPORTED)
        if usage.input_tokens is None or usage.output_tokens is None:
            return Cost()
        if price is None:
            named = requested or model or ""
            if provider == "pydantic-ai" and ":" in named:
                # It names a model with its provider: `google:gemini-2.5-pro`.
                provider, _, bare = named.partition(":")
                model, requested = (bare if requested is None else model), bare
            elif provider == "anthropic-bedrock":
                # The price depends on the region, and the model that answers does not name it.
                provider, model, requested = "aws", _REVISION.sub("", named), None
            names = (model, requested if provider is not None else None)
            seller = None if provider is None else self._sellers.get(provider, provider)
            costs = (
                _listed_cost(seller, name, usage.input_tokens, usage.output_tokens)
                for name in dict.fromkeys(names)
                if name is not None
            )
            return next((cost for cost in costs if cost.usd is not None), Cost())
        usd = usage.input_tokens * price.input_usd + usage.output_tokens * price.output_usd
        return Cost(usd / _MILLION, CostSource.COMPUTED)

    def _users(self, model: str) -> Price | None:
        """Return the user's own price of a model."""
        if model not in self._found:
            name = matching_name(model, self._prices)
            self._found[model] = None if name is None else self._prices[name]
        return self._found[model]


def matching_name(model: str, names: Collection[str]) -> str | None:
    """Return the name that stands for a model: itself, else the longest it is a version of."""
    if model in names:
        return model
    matches = [
        name
        for name in names
        if model.startswith(name) and _VERSION.fullmatch(model, pos=len(name))
    ]
    return max(matches, key=len, default=None)


def _listed_cost(provider: str | None, model: str, input_tokens: int, output_tokens: int) -> Cost:
    if provider == "vertex":
        model = model.removeprefix("google/")  # its endpoint names the publisher, too
    rates = _listed_rates(provider, model)
    if rates is None:
        return Cost()
    if rates is not _VARIABLE:
        usd = (input_tokens * rates.input_usd + output_tokens * rates.output_usd) / _MILLION
        return Cost(float(usd), CostSource.COMPUTED)
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    tokens = Tokens(input_tokens=input_tokens, output_tokens=output_tokens)
    price = calc_price(tokens, model, provider_id=provider)
    return Cost(float(price.total_price), CostSource.COMPUTED)


class _Rates(NamedTuple):
    """Dollars for a million tokens."""

    input_usd: Decimal
    output_usd: Decimal


_VARIABLE = _Rates(Decimal("NaN"), Decimal("NaN"))
"""Stands for a price that depends on the amount or the time, and is worked out for each call."""


@cache
def _listed_rates(provider: str | None, model: str) -> _Rates | None:
    """Look a model up in the table: finding it costs far more than multiplying."""
    if provider == "scripted":
        return None  # no company sells it, and the table takes long to load
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price
    from genai_prices.types import ModelPrice

    try:
        found = calc_price(Tokens(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    # The table finds names by what they begin with or contain, which takes a `-8b` or `-pro` of a
    # model for the model. Only its own names and their versions count.
    if matching_name(model.lower(), _names(found.model)) is None:
        return None
    input_usd = getattr(found.model_price, "input_mtok", None)
    output_usd = getattr(found.model_price, "output_mtok", None)
    if input_usd is None or output_usd is None:
        return None  # it sells something else than text
    fixed = isinstance(found.model.prices, ModelPrice)
    per_request = getattr(found.model_price, "requests_kcount", None)
    if fixed and isinstance(input_usd, Decimal) and isinstance(output_usd, Decimal):
        return _Rates(input_usd, output_usd) if per_request is None else _VARIABLE
    return _VARIABLE


def _names(model: ModelInfo) -> frozenset[str]:
    """Return the names that the table has for a model."""
    from genai_prices.types import (
        ClauseAnd,
        ClauseContains,
        ClauseEquals,
        ClauseOr,
        ClauseStartsWith,
    )

    names = {model.id}
    clauses: list[object] = [model.match]
    for clause in clauses:  # grows as it goes
        match clause:
            case ClauseOr(or_=parts) | ClauseAnd(and_=parts):
                clauses.extend(parts)
            case (
                ClauseEquals(equals=name)
                | ClauseStartsWith(starts_with=name)
                | ClauseContains(contains=name)
            ):
                names.add(name)
    return frozenset(name.lower() for name in names)
