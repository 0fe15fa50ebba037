"""What tokens cost, and what nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.pricing import PriceTable, matching_name
from kindlm.suite import Price
from kindlm.transcript import Cost, CostSource, Extras, Usage

MILLION = Usage(1_000_000, 1_000_000)
NAMES = {"gpt-4o": 1, "gpt-4o-mini": 1, "o3": 1, "claude-opus-4": 1, "claude-opus-4-5": 1}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-latest", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-1", None),
        ("gpt-4o-audio-preview-2024-12-17", None),
        ("gpt-4oo", None),
        ("gpt-5o-2024-08-06", None),
        ("o3-pro", None),
        ("o3-mini-2025-01-31", None),
        ("my-gpt-4o", None),
        ("", None),
    ],
)
def test_a_name_stands_for_its_versions_alone(model, name):
    assert matching_name(model, NAMES) == name


@examples(100)
@given(st.sampled_from(sorted(NAMES)), st.text(alphabet="abcxyz-.0123456789", max_size=12))
def test_a_match_never_drops_a_word(name, rest):
    matched = matching_name(name + rest, NAMES)
    if matched is not None:
        dropped = (name + rest).removeprefix(matched).replace("-latest", "")
        assert not any(character.isalpha() for character in dropped)


def test_the_users_prices_win():
    table = PriceTable({"gpt-4o": Price(1.0, 2.0)})
    assert table.cost("openai", "gpt-4o-2024-08-06", MILLION) == Cost(3.0, CostSource.COMPUTED)


def test_what_is_reported_counts_before_listed_prices_and_after_those_of_the_user():
    table = PriceTable({"x": Price(1.0, 2.0)})
    assert table.cost("p", "x", MILLION, 0.5) == Cost(3.0, CostSource.COMPUTED)
    assert table.cost("openai", "gpt-4o", MILLION, 0.5) == Cost(0.5, CostSource.REPORTED)
    assert table.cost("p", "nobody-knows", MILLION, 0.0) == Cost(0.0, CostSource.REPORTED)


def test_listed_prices_need_no_network():
    table = PriceTable({})
    cost = table.cost("openai", "gpt-4o-2024-08-06", Usage(1_000_000, 500_000))
    assert cost == Cost(7.5, CostSource.COMPUTED)
    assert table.cost("openai", "gpt-4o-mini-2024-07-18", MILLION).usd == 0.75


def test_a_price_with_tiers_is_worked_out_for_the_amount():
    table = PriceTable({})
    few = table.cost("anthropic", "claude-sonnet-4-5-20250929", Usage(1000, 1000)).usd
    many = table.cost("anthropic", "claude-sonnet-4-5-20250929", Usage(1_000_000, 1000)).usd
    assert few == 0.018
    assert many is not None
    assert many > 3.0


@pytest.mark.parametrize(
    ("provider", "model", "usage"),
    [
        ("openai", "gpt-4oo", MILLION),
        ("nobody", "gpt-4o", MILLION),
        ("nobody", "openai:gpt-4o", MILLION),
        ("openai", "gpt-4o", Usage(None, 5)),
        ("openai", "gpt-4o", Usage(5, None)),
        ("gemini", "gemini-1.5-flash-8b", MILLION),
        ("anthropic", "claude-3-haiku-pro", MILLION),
        ("openai", "text-embedding-3-small", MILLION),
    ],
)
def test_what_is_not_known_is_not_zero(provider, model, usage):
    assert PriceTable({}).cost(provider, model, usage) == Cost(None, CostSource.UNKNOWN)


def test_the_name_of_another_provider_before_a_model_makes_it_another_model():
    assert PriceTable({}).cost("openai", "azure/gpt-4o", MILLION).usd is None


def test_some_providers_charge_for_the_request_too():
    assert PriceTable({}).cost("perplexity", "sonar", MILLION).usd == 1.0 + 1.0 + 0.012


def test_no_tokens_cost_nothing():
    cost = PriceTable({}).cost("openai", "gpt-4o", Usage(0, 0))
    assert cost == Cost(0.0, CostSource.COMPUTED)


def test_what_the_user_says_is_free_costs_nothing_however_many_tokens_it_took():
    table = PriceTable({"command": Price(0.0, 0.0), "half-free": Price(0.0, 1.0)})
    assert table.cost("command", "command", Usage()) == Cost(0.0, CostSource.COMPUTED)
    assert table.cost("command", "half-free", Usage()) == Cost(None, CostSource.UNKNOWN)


def test_output_that_the_user_says_is_free_costs_nothing_beside_input_that_is_not():
    table = PriceTable({"half-free": Price(1.0, 0.0)})
    assert table.cost("command", "half-free", MILLION) == Cost(1.0, CostSource.COMPUTED)


def test_the_name_that_was_asked_for_has_the_price_where_the_one_that_answered_has_none():
    users = PriceTable({"our-deployment": Price(1.0, 2.0)})
    priced = Cost(3.0, CostSource.COMPUTED)
    assert users.cost("p", "nobody-knows", MILLION, requested="our-deployment") == priced
    listed = PriceTable({}).cost("openai", "gpt-4o", MILLION)
    fallback = PriceTable({}).cost("openai", "nobody-knows", MILLION, requested="gpt-4o")
    assert fallback == listed
    assert PriceTable({}).cost("p", "nobody-knows", MILLION, requested="nor-this") == Cost()


def test_without_a_provider_a_model_is_known_by_its_name():
    table = PriceTable({})
    assert table.cost(None, "gpt-4o-2024-08-06", Usage(1_000_000, 0)).usd == 2.5
    assert table.cost(None, "gpt-4o-ours", MILLION) == Cost()
    assert table.cost(None, "http", MILLION) == Cost()


def test_the_name_of_an_agent_is_no_name_of_a_model():
    assert PriceTable({}).cost(None, None, MILLION, requested="gpt-4o") == Cost()
    assert PriceTable({}).cost(None, "nobody-knows", MILLION, requested="gpt-4o") == Cost()
    users = PriceTable({"shop": Price(1.0, 2.0)})
    assert users.cost(None, None, MILLION, requested="shop") == Cost(3.0, CostSource.COMPUTED)


def test_a_price_of_the_user_for_the_name_asked_for_counts_before_listed_prices():
    table = PriceTable({"our-deployment": Price(1.0, 2.0)})
    priced = Cost(3.0, CostSource.COMPUTED)
    assert table.cost("openai", "gpt-4o", MILLION, requested="our-deployment") == priced
    assert table.cost("openai", "gpt-4o", MILLION, 0.5, requested="our-deployment") == priced


def test_the_model_that_answered_counts_before_the_name_asked_for():
    table = PriceTable({"gpt-4o": Price(1.0, 2.0), "our-deployment": Price(9.0, 9.0)})
    priced = Cost(3.0, CostSource.COMPUTED)
    assert table.cost("openai", "gpt-4o", MILLION, requested="our-deployment") == priced
    mini = PriceTable({}).cost("openai", "gpt-4o-mini", MILLION)
    assert PriceTable({}).cost("openai", "gpt-4o-mini", MILLION, requested="gpt-4o") == mini


@pytest.mark.parametrize(
    ("provider", "model", "requested", "seller", "name"),
    [
        (
            "pydantic-ai",
            "gemini-2.5-flash",
            "google:gemini-2.5-flash",
            "google",
            "gemini-2.5-flash",
        ),
        ("pydantic-ai", "google:gemini-2.5-flash", None, "google", "gemini-2.5-flash"),
        ("openai", "openai/gpt-4o", None, "openai", "gpt-4o"),
        ("openai", "eu", "openai/gpt-4o", "openai", "gpt-4o"),
        (
            "anthropic-bedrock",
            "claude-sonnet-4-5-20250929",
            "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "aws",
            "eu.anthropic.claude-sonnet-4-5-20250929",
        ),
        (
            "anthropic-bedrock",
            "claude-sonnet-4-5-20250929",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "aws",
            "global.anthropic.claude-sonnet-4-5-20250929",
        ),
    ],
)
def test_the_price_is_that_of_who_sells_the_model(provider, model, requested, seller, name):
    expected = PriceTable({}).cost(seller, name, MILLION)
    assert expected.usd
    assert PriceTable({}).cost(provider, model, MILLION, requested=requested) == expected


@pytest.mark.parametrize(
    ("model", "cache", "usd"),
    [
        ("claude-opus-4-8", Extras(cache_read=1_000_000), 0.5),
        ("claude-opus-4-8", Extras(cache_written=1_000_000), 6.25),
        ("claude-opus-4-8", Extras(cache_written=1_000_000, written_1h=1_000_000), 10.0),
        ("claude-opus-4-8", Extras(100_000, 300_000, 100_000), 5.3),
        ("gpt-5", Extras(cache_read=1_000_000), 0.125),
        ("gpt-4o", Extras(cache_read=500_000), 1.875),
        # Its table says nothing of caches.
        ("gpt-4", Extras(cache_read=500_000), 30.0),
        ("gpt-4", Extras(cache_written=1_000_000), 37.5),
    ],
)
def test_a_cache_of_prompts_has_prices_of_its_own(model, cache, usd):
    assert PriceTable({}).cost(None, model, Usage(1_000_000, 0, cache)).usd == usd


def test_a_price_with_tiers_counts_what_the_cache_held():
    table, model = PriceTable({}), "claude-sonnet-4-5"
    few = table.cost("anthropic", model, Usage(10_000, 0, Extras(cache_written=10_000)))
    many = table.cost("anthropic", model, Usage(1_000_000, 0, Extras(cache_written=1_000_000)))
    assert (few.usd, many.usd) == (0.0375, 7.5)


@pytest.mark.parametrize(
    ("model", "requested", "cache", "usd"),
    [
        ("claude-x", None, Extras(cache_read=1_000_000), 0.1),
        ("claude-x-20260101", "ours", Extras(cache_read=1_000_000), 0.1),
        ("ours", "ours", Extras(cache_read=1_000_000), 1.0),
        ("ours", "ours", Extras(cache_written=1_000_000), 1.25),
        ("ours", "ours", Extras(cache_written=1_000_000, written_1h=600_000), 1.7),
    ],
)
def test_prices_of_the_user_extend_to_the_cache(model, requested, cache, usd):
    table = PriceTable({"ours": Price(1.0, 2.0), "claude-x": Price(1.0, 2.0)})
    cost = table.cost("p", model, Usage(1_000_000, 0, cache), requested=requested)
    assert cost == Cost(usd, CostSource.COMPUTED)


def test_a_user_may_say_what_reading_from_the_cache_costs():
    table = PriceTable({"claude-x": Price(1.0, 2.0, 0.5)})
    assert table.cost("p", "claude-x", Usage(10, 0, Extras(cache_read=10))).usd == 0.000005


def test_a_cache_that_the_input_cannot_include_costs_something_beside_it():
    usage = Usage(1_000_000, 0, Extras(cache_read=2_000_000))
    assert PriceTable({}).cost("openai", "gpt-5", usage).usd == 1.25 + 0.25


def test_what_is_written_at_several_prices_has_an_unknown_cost():
    """The answer counts what was thought and cited with other output."""
    assert PriceTable({}).cost("perplexity", "sonar-deep-research", Usage(10, 10)) == Cost()


def test_vectors_cost_what_their_texts_do():
    cost = PriceTable({}).cost("openai", "text-embedding-3-small", Usage(1_000_000, 0))
    assert cost == Cost(0.02, CostSource.COMPUTED)


@pytest.mark.parametrize(
    ("prices", "provider", "model", "usd"),
    [
        ({}, "anthropic", "claude-opus-4-8", 0.03),
        ({}, "openai", "gpt-5", 0.03),
        ({}, "google", "gemini-2.5-pro", 0.105),
        ({"ours": Price(1.0, 1.0)}, "openai", "ours", 0.03),
        ({"ours": Price(0.0, 0.0)}, "openai", "ours", 0.0),
    ],
)
def test_searches_of_the_web_cost_something(prices, provider, model, usd):
    assert PriceTable(prices).cost(provider, model, Usage(0, 0, Extras(searches=3))).usd == usd


@pytest.mark.parametrize(
    ("provider", "model", "tier", "usd"),
    [
        ("openai", "gpt-5", None, 1.25),
        ("openai", "gpt-5", "flex", 0.625),
        ("openai", "gpt-5-2025-08-07", "priority", 2.5),
        ("openai", "gpt-4.1", "flex", None),
        ("openai", "gpt-5", "scale", None),
        ("anthropic", "claude-opus-4-8", "priority", None),
        ("anthropic", "claude-opus-4-8", "batch", 2.5),
        ("anthropic", "claude-opus-4-8", "fast", 10.0),
    ],
)
def test_a_tier_of_service_costs_its_own_price_and_without_one_nobody_knows(
    provider, model, tier, usd
):
    usage = Usage(1_000_000, 0, Extras(tier=tier))
    source = CostSource.UNKNOWN if usd is None else CostSource.COMPUTED
    assert PriceTable({}).cost(provider, model, usage) == Cost(usd, source)


def test_what_is_charged_apart_without_a_price_makes_the_cost_unknown():
    usage = Usage(1_000_000, 0, Extras(unpriced=True))
    assert PriceTable({}).cost("openai", "gpt-5", usage) == Cost()
    assert PriceTable({"gpt-5": Price(1.0, 2.0)}).cost("openai", "gpt-5", usage).usd == 1.0


def test_inference_in_the_us_alone_costs_a_tenth_more():
    usage = Usage(2_000_000, 1_000_000, Extras(1_000_000, us_only=True, searches=100))
    cost = PriceTable({}).cost("anthropic", "claude-opus-4-8", usage)
    assert cost.usd == pytest.approx(1.1 * (5 + 0.5 + 25) + 1)
    table = PriceTable({"claude-opus-4-8": Price(1.0, 2.0, 0.0)})
    assert table.cost("anthropic", "claude-opus-4-8", usage).usd == 1.0 + 2.0 + 1


def test_what_the_user_says_is_the_price_of_any_tier():
    table = PriceTable({"gpt-5": Price(1.0, 2.0)})
    assert table.cost("openai", "gpt-5", Usage(1_000_000, 0, Extras(tier="scale"))).usd == 1.0


@pytest.mark.parametrize("model", ["gpt-5", "gpt-4o", "ours"])
def test_searches_of_files_cost_something(model):
    table = PriceTable({"ours": Price(1.0, 1.0)})
    assert table.cost("openai", model, Usage(0, 0, Extras(file_searches=2))).usd == 0.005
