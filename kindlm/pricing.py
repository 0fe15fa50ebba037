"""The cost of tokens: by the user's prices, then by a table that works offline.

A dated or tagged version of a model (`gpt-4o-2024-08-06`, `x@20250514`, `y-latest`) has the price
of the model; any other longer name (`gpt-4o-mini`, `o3-pro`) is another model. Without a price, the
cost is unknown, never 0. It is also unknown if the call has a service tier without a price, or
something else that is charged.

A prompt cache has separate prices. If the table has none, Anthropic's documented factors apply: a
token written costs 1.25 times an input token, or twice as much if it is kept for an hour. A token
read costs as much as other input, or a tenth of that with a user's price for a Claude model.
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
    """Return the prices of a suite.

    Presets, and others at their usual address, have the prices of their type under any name.
    """
    sellers = {
        each.name: each.type
        for each in suite.providers.values()
        if each.base_url is None or getattr(each.options, "usual_base_url", None) is not None
    }
    return PriceTable(suite.prices, sellers)


class PriceTable:
    """The prices of models.

    `prices` are the user's own by model name. `sellers` are the table's names of providers by the
    user's names.
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
        """Return the cost of a call, unknown if the model has no price or usage is missing.

        `model` is the one that answered; if it has no price, the price of the `requested` name
        applies: gateways and deployments answer with their own names of models. A cost that the
        provider reports takes precedence over listed prices, but not over the user's prices. A
        user's price of 0 costs 0 for any number of tokens, even an unknown one. For an agent,
        `provider` is None, `model` may be None, and `requested` is the agent's name, for which only
        the user can set a price.
        """
        provider = None if provider is None else self._sellers.get(provider, provider)
        price = self._users(model) or self._users(requested)
        if price is not None and price.input_usd == price.output_usd == 0:
            return Cost(0.0, CostSource.COMPUTED)
        if price is None and provider == "scripted":
            reported_usd = 0.0  # no one is paid for scripted replies
        if price is None and reported_usd is not None:
            return Cost(reported_usd, CostSource.REPORTED)
        if usage.total is None:
            return Cost()
        if price is None:
            named = requested or model or ""
            if provider == "pydantic-ai" and ":" in named:
                # The model's name includes its provider: `google:gemini-2.5-pro`.
                provider, _, bare = named.partition(":")
                model, requested = (bare if requested is None else model), bare
            elif provider == "anthropic-bedrock":
                # The price depends on the region, which only the requested name has.
                provider, model, requested = "aws", _REVISION.sub("", named), None
            names = (model, requested if provider is not None else None)
            costs = (
                _listed_cost(provider, name, usage)
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

    def _users(self, model: str | None) -> Price | None:
        if model is None or not self._prices:
            return None
        if model not in self._found:
            name = matching_name(model, self._prices)
            self._found[model] = None if name is None else self._prices[name]
        return self._found[model]


def matching_name(model: str, names: Collection[str]) -> str | None:
    """Return the model's own name among `names`, or the longest name it is a version of."""
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
        model = model.removeprefix("google/")  # the publisher
    # LiteLLM puts the provider before the model: `openai/gpt-4o`.
    found = _listed(provider, model) or _listed(provider, model.removeprefix(f"{provider}/"))
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
        return Cost()  # the model has no price for text, or several
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
    """Return the price for an input of a length."""
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
"""Prices of output that answers do not count separately."""

_TIERS = ("service_tier", "processing", "speed")
"""The table's dimensions for service tiers."""


class _Rates(NamedTuple):
    """Dollars per million tokens, requests and searches; `output` is None for embedding models."""

    input: Decimal
    output: Decimal | None
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    request: Decimal = Decimal(0)
    search: Decimal = _SEARCH
    file_search: Decimal = _FILE_SEARCH

    def cost(self, usage: Usage) -> Cost:
        """Return the cost of a call; unknown without tokens or a price for output."""
        sent, written = usage.input_tokens, usage.output_tokens
        if sent is None or written is None or (written and self.output is None):
            return Cost()
        extras = usage.extras or Extras()
        cached, stored = extras.cache_read, extras.cache_written
        # Some providers exclude cached tokens from the input.
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
    """Return a model in the table; None if it has none. The search is slow, so it is cached."""
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    try:
        found = calc_price(Tokens(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    # The table matches names by prefix or substring, so that `-8b` or `-pro` of a model match it.
    # Only exact names and their versions count.
    return found.model if matching_name(model.lower(), _names(found.model)) else None


def _names(model: ModelInfo) -> frozenset[str]:
    """Return the table's names for a model."""
    names = {model.id}
    clauses: list[object] = [model.match]
    for clause in clauses:  # grows as it goes
        for key, part in vars(clause).items():
            if key in ("equals", "starts_with", "contains"):
                names.add(part)
            elif isinstance(part, list):
                clauses.extend(part)
    return frozenset(name.lower() for name in names)
