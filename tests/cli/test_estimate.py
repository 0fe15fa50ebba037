"""The estimate of `--dry-run`: calls, tokens and dollars by the rules that it states."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluated import demand

from kindlm.cli.app import normalise
from kindlm.cli.commands.test_dry_run import Estimate, _write_totals, estimate_execution
from kindlm.pricing import prices_of
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm.suite import (
    AgentTarget,
    Case,
    ModelParams,
    ModelTarget,
    Price,
    Prompt,
    ProviderSettings,
    Suite,
)

PRICES = {"house": Price(1_000_000, 2_000_000)}
"""A dollar for a token that is sent, two for one that comes back."""


def estimate(case: Case, target: str = "gpt", **changes: Any) -> Estimate:
    values: dict[str, Any] = {
        "name": "support",
        "project": "shop",
        "front_end": "kindlm",
        "path": "kindlm.yaml",
        "config_hash": "0123456789ab",
        "config_text": "{}",
        "providers": {"p": ProviderSettings("p", "openai")},
        "models": {"gpt": ModelTarget("gpt", "p", "house", ModelParams(max_tokens=10))},
        "agents": {"shop": AgentTarget("shop", "http", "http://127.0.0.1:1")},
        "cases": (case,),
        "gates": (),
        "prices": PRICES,
    }
    suite = Suite(**{**values, **changes})
    return estimate_execution(suite, case, target, prices_of(suite))


def case(user: str = "x" * 40, **changes: Any) -> Case:
    return Case("greets", Prompt(user), targets=("gpt",), **changes)


def test_four_characters_are_a_token_and_answers_are_as_long_as_they_may() -> None:
    assert estimate(case()) == Estimate(
        calls=1, input_tokens=10, output_tokens=10, cost_usd=pytest.approx(10 + 20)
    )


def test_what_was_said_is_sent_again_with_each_message() -> None:
    found = estimate(case(follow_ups=("y" * 40,)))
    # 10 tokens; then those, an answer of 10, and 10 new ones.
    assert (found.calls, found.input_tokens, found.output_tokens) == (2, 10 + 30, 20)


def test_each_pass_of_a_judge_is_a_call() -> None:
    judging = demand("judge", "kind", {"criteria": "x" * 400, "minScore": 1, "passes": 3})
    found = estimate(case(expectations=(judging,)))
    assert (found.calls, found.judge_calls) == (1, 3)
    assert found.output_tokens == 10 + 3 * 512  # tokens at most in the answer of a judge
    assert found.input_tokens > 10 + 3 * (10 + 10 + 100)


def test_a_judge_gets_all_that_was_said() -> None:
    judging = demand("judge", "kind", {"criteria": "x", "minScore": 1})
    short = estimate(case("x" * 40, expectations=(judging,)))
    more = replace(case(expectations=(judging,)), prompt=Prompt("x" * 80, system="y" * 80))
    assert estimate(more).input_tokens == short.input_tokens + 2 * (10 + 20)
    twice = replace(case(expectations=(judging,)), follow_ups=("x" * 40,))
    # The second request has the first message and its answer before it.
    assert estimate(twice).input_tokens == short.input_tokens + 30 + (10 + 10)


@pytest.mark.parametrize(
    ("check", "tokens"),
    [
        (demand("similar_to", "s", {"text": "x" * 80, "method": "judge"}), 20 + 10),
        (demand("drift", "d", {"maxScore": 0.1, "method": "judge"}), 10 + 10),
    ],
)
def test_a_comparison_by_a_judge_is_a_call_with_both_texts(check: Any, tokens: int) -> None:
    found = estimate(case(expectations=(check,)))
    assert (found.calls, found.judge_calls, found.unknown) == (1, 1, frozenset())
    assert found.input_tokens == 10 + tokens + 500  # tokens of the judge's instructions
    assert found.cost_usd == pytest.approx(found.input_tokens + 2 * (10 + 512))
    assert estimate(case(expectations=(check,)), prices={}).unknown == {"house"}


def test_what_embeddings_cost_is_not_known() -> None:
    check = demand("similar_to", "s", {"text": "Hi"})
    found = estimate(case(expectations=(check,)))
    assert (found.judge_calls, found.unknown) == (0, {"similar_to"})
    offline = {"p": ProviderSettings("p", "scripted")}
    assert estimate(case(expectations=(check,)), providers=offline).unknown == frozenset()
    both = {**offline, "q": ProviderSettings("q", "openai")}
    assert estimate(case(expectations=(check,)), providers=both).unknown == {"similar_to"}


def test_what_an_agent_spends_is_not_known() -> None:
    assert estimate(case(follow_ups=("more",)), "shop") == Estimate(
        calls=2, unknown=frozenset({"shop"})
    )


@pytest.mark.parametrize(
    ("target", "checks", "tokens"),
    [
        ("shop", (), "  unknown"),
        ("shop", ({"criteria": "x", "minScore": 1},), "as far as is known"),
        ("gpt", (), "about 10 in, at most 10 out"),
    ],
)
def test_tokens_of_an_agent_are_not_said_to_be_none(
    target: str, checks: tuple[dict[str, Any], ...], tokens: str
) -> None:
    asked = case(expectations=tuple(demand("judge", "kind", each) for each in checks))
    out = io.StringIO()
    _write_totals(estimate(asked, target), Page(out, ReportOptions(width=100)))
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("Tokens")]
    assert line.endswith(tokens)


@pytest.mark.parametrize(
    ("target", "checks", "cost"),
    [
        ("gpt", (), "about $30.00"),
        ("shop", (), "unknown"),
        (
            "gpt",
            (demand("similar_to", "s", {"text": "Hi"}),),
            "about $30.00 plus an unknown amount",
        ),
    ],
)
def test_a_cost_is_only_said_to_have_an_unknown_part_if_it_has_one(
    target: str, checks: tuple[Any, ...], cost: str
) -> None:
    out = io.StringIO()
    found = estimate(case(expectations=checks), target)
    _write_totals(found, Page(out, ReportOptions(width=100)))
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("Cost")]
    assert line.removeprefix("Cost").strip() == cost


def test_an_agent_that_the_user_calls_free_costs_nothing() -> None:
    assert estimate(case(), "shop", prices={"shop": Price(0, 0)}) == Estimate(calls=1)


def test_what_a_script_answers_costs_nothing() -> None:
    found = estimate(case(), providers={"p": ProviderSettings("p", "scripted")}, prices={})
    assert (found.cost_usd, found.unknown) == (0, frozenset())


def test_a_script_that_stands_for_a_model_costs_what_the_user_says() -> None:
    found = estimate(case(), providers={"p": ProviderSettings("p", "scripted")})
    assert found.cost_usd == pytest.approx(10 + 20)


def test_a_model_without_a_price_is_named() -> None:
    found = estimate(case(), prices={})
    assert (found.cost_usd, found.unknown) == (0, {"house"})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("run --tag a --save", "test --tags a"),
        ("test --runs=3 --filter-failing", "test --repeat=3 --failed"),
        ("verify latest", "history verify latest"),
        ("report --format json", "report --format json"),
        ("test -- --tag", "test -- --tag"),
        ("", ""),
    ],
)
def test_names_of_other_tools_become_ours(theirs: str, ours: str) -> None:
    assert normalise(theirs.split()) == ours.split()


SUITE = """
kindlm: 1
project: shop
suite: { name: support }
providers: { openai: { apiKeyEnv: SHOP_KEY } }
models: [ { id: gpt, provider: openai, model: gpt-4o } ]
prompts: { hello: { user: hi } }
tests: [ { name: greets, prompt: hello, expect: { output: { contains: [hi] } } } ]
"""


def test_a_dry_run_names_the_keys_that_a_run_would_lack(kindlm: Any, here: Path) -> None:
    (here / "kindlm.yaml").write_text(SUITE, encoding="utf-8")
    (here / "other.yaml").write_text(SUITE.replace("support", "sales"), encoding="utf-8")
    planned = kindlm("test", "--dry-run", "kindlm.yaml", "other.yaml")
    assert planned.code == 0
    assert " ".join(planned.err.split()).count("SHOP_KEY is not set") == 1

    (here / ".env").write_text("SHOP_KEY=sk-0123456789abcdef", encoding="utf-8")
    assert "SHOP_KEY" not in kindlm("test", "--dry-run").err


def test_a_dry_run_takes_a_port_that_it_cannot_know_as_it_is(kindlm: Any, here: Path) -> None:
    local = 'apiKeyEnv: SHOP_KEY, baseUrl: "http://127.0.0.1:{{serve.api.port}}/v1"'
    suite = SUITE.replace("apiKeyEnv: SHOP_KEY", local)
    suite += "serve: [ { name: api, command: 'python -m http.server', ready: { line: on } } ]"
    (here / "kindlm.yaml").write_text(suite, encoding="utf-8")
    (here / ".env").write_text("SHOP_KEY=sk-0123456789abcdef", encoding="utf-8")
    planned = kindlm("test", "--dry-run")
    assert planned.code == 0, planned.err
    assert "not an http" not in planned.err
