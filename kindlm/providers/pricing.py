"""The cost of tokens: by the user's prices, then by a table that works offline.

A price belongs to a model, not to names that look like it. A dated or tagged version of a model
(`gpt-4o-2024-08-06`, `x@20250514`, `y-latest`) has the price of the model; any other longer name
(`gpt-4o-mini` beside `gpt-4o`, `o3-pro` beside `o3`) is another model. What has no price costs an
unknown amount, never 0. So does a call in a tier of service that the table has no price for, or
with something else that is charged.

A prompt cache has separate prices. If the table has none, Anthropic's documented factors apply: a
token written costs 1.25 times an input token, or twice as much if it is kept for an hour. A token
read costs as much as other input. With a user's price for a Claude model, it costs a tenth of that.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching#pricing
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kindlm.suite import Price, Suite
from kindlm.transcript import Cost, CostSource, Extras, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices


_VERSION = re.compile(r"[-@:](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{3,4}|latest)", re.ASCII)
_REVISION = re.compile(r"-v\d+(?::\d+)?$", re.ASCII)
"""The end of a name on Bedrock: `eu.anthropic.claude-sonnet-4-5-20250929-v1:0`."""

_MILLION = 1_000_000


def prices_of(suite: Suite) -> PriceTable:
    """Return the prices of a suite; a preset under another name uses the preset's prices."""
    presets = (each for each in suite.providers.values() if each.options is not None)
    sellers = {each.name: each.type for each in presets if each.options.usual_base_url is not None}
    return PriceTable(suite.prices, sellers)


class PriceTable:
    """Implements `ports.Pricing`.

    `prices` are the user's own, by model name. `sellers` are providers by the user's name for them,
    if the table has another name.
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

        Gateways and deployments answer with names of their own, so two names are tried. A price of
        0 by the user costs 0, whatever the number of tokens.
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
        if usage.total is None:
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
                _listed_cost(seller, name, usage)
                for name in dict.fromkeys(names)
                if name is not None
            )
            return next((cost for cost in costs if cost.usd is not None), Cost())
        input_usd = cache_read = Decimal(str(price.input_usd))
        if price.cached_usd is not None:
            cache_read = Decimal(str(price.cached_usd))
        elif "claude" in f"{model} {requested}".lower():
            cache_read = input_usd * _CLAUDE_READ
        rates = _Rates(
            input_usd,
            Decimal(str(price.output_usd)),
            cache_read=cache_read,
            cache_write=input_usd * _CACHE_WRITE,
            cache_write_1h=input_usd * _CACHE_WRITE_1H,
        )
        return rates.cost(usage)

    def _users(self, model: str) -> Price | None:
        """Return the user's own price of a model."""
        if model not in self._found:
            name = matching_name(model, self._prices)
            self._found[model] = None if name is None else self._prices[name]
        return self._found[model]


def matching_name(model: str, names: Collection[str]) -> str | None:
    """Return the name that matches a model: itself, else the longest one it is a version of."""
    if model in names:
        return model
    matches = [
        name
        for name in names
        if model.startswith(name) and _VERSION.fullmatch(model, pos=len(name))
    ]
    return max(matches, key=len, default=None)


def _listed_cost(provider: str | None, model: str, usage: Usage) -> Cost:
    if provider == "vertex":
        model = model.removeprefix("google/")  # its endpoint names the publisher, too
    found = _listed(provider, model)
    if found is None:
        return Cost()
    extras = usage.extras or Extras()
    if extras.unpriced:
        return Cost()
    now, tier = datetime.now(UTC), extras.tier
    listed = found.get_prices(now)
    if tier is not None:
        standard, listed = listed, found.get_prices(now, dict.fromkeys(_TIERS, tier))
        if listed == standard:
            return Cost()
    prices = {
        name: _of_length(price, usage.input_tokens or 0)
        * (_US_ONLY if extras.us_only and name.endswith("_mtok") else 1)
        for name, price in vars(listed).items()
        if price is not None
    }
    input_usd = prices.get("input_mtok")
    if input_usd is None or not prices.keys().isdisjoint(_OUTPUT_APART):
        return Cost()  # it sells something other than text, or text at several prices
    rates = _Rates(
        input_usd,
        prices.get("output_mtok"),
        cache_read=prices.get("cache_read_mtok", input_usd),
        cache_write=prices.get("cache_write_mtok", input_usd * _CACHE_WRITE),
        cache_write_1h=prices.get("cache_write_1h_mtok", input_usd * _CACHE_WRITE_1H),
        request=prices.get("requests_kcount", Decimal(0)) * 1000,
        search=prices.get("web_searches_kcount", _SEARCH / 1000) * 1000,
        file_search=prices.get("storage_searches_kcount", _FILE_SEARCH / 1000) * 1000,
    )
    return rates.cost(usage)


def _of_length(price: Decimal | TieredPrices, input_tokens: int) -> Decimal:
    """Return a price, which may depend on the length of the input."""
    if isinstance(price, Decimal):
        return price
    tiers = (tier.price for tier in reversed(price.tiers) if input_tokens > tier.start)
    return next(tiers, price.base)


_CLAUDE_READ = Decimal("0.1")
_CACHE_WRITE = Decimal("1.25")
_CACHE_WRITE_1H = Decimal(2)
_US_ONLY = Decimal("1.1")
"""https://platform.claude.com/docs/en/manage-claude/data-residency"""

_SEARCH = Decimal(10_000)
"""The price of a million web searches at Anthropic and OpenAI."""

_FILE_SEARCH = Decimal(2_500)
"""The price of a million searches of files at OpenAI."""

_OUTPUT_APART = ("output_reasoning_mtok", "output_citation_mtok")
"""Prices of output that answers do not count apart."""

_TIERS = ("service_tier", "processing", "speed")
"""Where the table has the prices of tiers of service."""


class _Rates(NamedTuple):
    """Dollars per million tokens, per request, and per web search.

    `output` is None for a model that writes nothing, such as an embedding model.
    """

    input: Decimal
    output: Decimal | None
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    request: Decimal = Decimal(0)
    search: Decimal = _SEARCH
    file_search: Decimal = _FILE_SEARCH

    def cost(self, usage: Usage) -> Cost:
        """Return the cost of a call, unknown without its tokens or the price of its output."""
        sent, written = usage.input_tokens, usage.output_tokens
        if sent is None or written is None or (written and self.output is None):
            return Cost()
        extras = usage.extras or Extras()
        cached, stored = extras.cache_read, extras.cache_written
        # Some providers report an input that excludes them.
        fresh = sent if cached + stored > sent else sent - cached - stored
        stored_1h = min(extras.written_1h, stored)
        usd = (
            fresh * self.input
            + cached * self.cache_read
            + (stored - stored_1h) * self.cache_write
            + stored_1h * self.cache_write_1h
            + written * (self.output or 0)
            + extras.searches * self.search
            + extras.file_searches * self.file_search
            + self.request
        )
        return Cost(float(usd / _MILLION), CostSource.COMPUTED)


@cache
def _listed(provider: str | None, model: str) -> ModelInfo | None:
    """Look a model up in the table: finding it costs far more than multiplying."""
    if provider == "scripted":
        return None  # no company sells it, and the table loads slowly
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    try:
        found = calc_price(Tokens(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    # The table matches names by prefix or substring, and takes a model's `-8b` or `-pro` for the
    # model. Only its own names and their versions count.
    return found.model if matching_name(model.lower(), _names(found.model)) else None


def _names(model: ModelInfo) -> frozenset[str]:
    """Return the table's names for a model."""
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
