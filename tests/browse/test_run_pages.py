"""The page of a run, and that of its outputs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pages import HOSTILE, assert_harmless, text_of

from kindlm_store import stream_lock


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """A run of two tests on two targets; one of them fails on one target, flaky on the other."""
    writer = history.run("aaaa2222", label="nightly")
    planned = [
        make.planned(n, t, repeat=2) for n in ("greets", "refunds") for t in ("gpt", "claude")
    ]
    writer.suite(tests=planned)
    for repeat in (1, 2):
        for target in ("gpt", "claude"):
            writer.execution("greets", target, repeat=repeat, assertions=(make.passed(),))
            passes = target == "claude" and repeat == 2
            check = make.passed() if passes else make.failed()
            slow = {"latency_ms": 9_000.0, "cost_usd": 0.5} if passes else {}
            writer.execution("refunds", target, repeat=repeat, assertions=(check,), **slow)
    return writer.finish()


def test_verdict_gates_and_totals_are_those_of_the_command(ask: Any, recorded: Any) -> None:
    text = text_of(ask("run/aaaa2222").text)
    assert "failed nightly" in text
    assert "✗ passRateMin 0.62 < 0.95 5 of 8 executions passed" in text
    assert "tests 4: 2 passed, 2 failed" in text
    assert "Slowest refunds claude #2 9.0 s" in text
    assert "Most expensive refunds claude #2 $0.50" in text


def test_tests_and_targets_are_a_grid_with_failures_first(ask: Any, recorded: Any) -> None:
    page = ask("run/aaaa2222").text
    rows = re.findall(r'<th scope="row">(\w+)', page)
    assert rows[:2] == ["refunds", "greets"]
    assert re.findall(r"<thead><tr><th>Test</th><th>(\w+)</th><th>(\w+)</th>", page) == [
        ("gpt", "claude")
    ]
    assert '<span class="bad">1/2 flaky</span>' in page
    (link,) = re.findall(
        r'<a class="repeat good" href="([^"]*)" aria-label="repeat 2: passed"[^>]*>✓',
        page.partition("greets")[0],
    )
    assert ask(link).status_code == 200


def test_failed_assertions_are_grouped_by_cause(ask: Any, recorded: Any) -> None:
    page = ask("run/aaaa2222").text
    (causes,) = re.findall(r'<section aria-labelledby="failed">.*?</section>', page, re.DOTALL)
    assert causes.count("<article") == 1
    assert "failed" in text_of(causes)
    assert "2 tests, 3 of 4 repeats said" in text_of(causes)
    links = re.findall(r'href="([^"]*)"', causes)
    assert len(links) == 3
    assert ask(links[0]).status_code == 200


def test_a_run_of_many_tests_is_paged_failures_first(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    names = [f"test {number:03}" for number in range(301)]
    writer.suite(tests=[make.planned(name) for name in names])
    for name in names:
        passes = name != "test 300"
        writer.execution(name, assertions=(make.passed() if passes else make.failed(),))
    writer.finish()
    first, second, third = (ask(f"run/bbbb3333?page={page}").text for page in (1, 2, 3))

    rows = [re.findall(r'<th scope="row">(test \d+)', page) for page in (first, second)]
    assert rows[0] == ["test 300", *names[:299]]
    assert rows[1] == ["test 299"]
    assert "Tests 1 to 300 of 301" in text_of(first)
    assert 'rel="next" href="/-/kindlm/kindlm/run/bbbb3333?page=2#tests">Next 1 test</a>' in first
    assert 'rel="prev" href="/-/kindlm/kindlm/run/bbbb3333?page=1#tests"' in second
    assert 'rel="next"' not in second
    assert "This run has only 301 tests." in text_of(third)


def test_what_is_most_expensive_counts_judges(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned("plain"), make.planned("judged")])
    writer.execution("plain", assertions=(make.passed(),), cost_usd=0.0025)
    writer.execution("judged", assertions=(make.passed(),), judge="1")
    writer.finish()
    text = text_of(ask("run/bbbb3333").text)
    assert "Most expensive judged gpt #1 $0.0030 plain gpt #1 $0.0025" in text
    assert "cost $0.0055 (agents $0.0035, judges $0.0020)" in text


def test_what_is_most_expensive_is_there_without_any_recorded_latency(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned()])
    writer.execution(assertions=(make.passed(),), cost_usd=0.5, latency_ms=0.0)
    writer.finish()
    text = text_of(ask("run/bbbb3333").text)
    assert "Most expensive greets gpt #1 $0.50" in text
    assert "Slowest" not in text


def test_what_is_most_expensive_counts_judges_of_an_agent_without_a_cost(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned("plain"), make.planned("judged")])
    writer.execution("plain", assertions=(make.passed(),), cost_usd=0.001)
    writer.execution("judged", assertions=(make.passed(),), cost_usd=None, judge="1")
    writer.finish()
    text = text_of(ask("run/bbbb3333").text)
    assert "Most expensive judged gpt #1 $0.0020 + unknown plain gpt #1 $0.0010" in text


def test_what_is_most_expensive_counts_calls_of_an_agent_to_models_once(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned()])
    writer.execution(assertions=(make.passed(),), cost_usd=0.005, models_usd=(0.002, 0.003))
    writer.finish()
    text = text_of(ask("run/bbbb3333").text)
    assert "Most expensive greets gpt #1 $0.0050" in text


def test_many_targets_stand_inside_the_page(ask: Any, history: Any, make: Any) -> None:
    """A column for each would stand beyond its edge."""
    writer = history.run("bbbb3333")
    targets = [f"model {number}" for number in range(5)]
    writer.suite(tests=[make.planned("greets", target) for target in targets])
    for target in targets:
        writer.execution("greets", target, assertions=(make.passed(),))
    writer.finish()
    page = ask("run/bbbb3333").text
    assert "<thead><tr><th>Test</th><th>Results by target</th></tr></thead>" in page
    each = " ".join(f"{target} 1/1 ✓ over time" for target in targets)
    assert f"greets {each}" in text_of(page)


def shards(history: Any, make: Any, *, tests: tuple[str, str] = ("greets", "refunds")) -> None:
    for number, (run, test) in enumerate(zip(("bbbb3333", "cccc4444"), tests, strict=True), 1):
        writer = history.run(run, shard=f"{number}/2", group="nightly")
        writer.suite(tests=[make.planned(test)])
        writer.execution(test, assertions=(make.passed(),))
        writer.finish()


def test_shards_lead_to_their_group_and_back(ask: Any, history: Any, make: Any) -> None:
    shards(history, make)
    group = '<a href="/-/kindlm/kindlm/run/nightly">'
    assert ask("runs").text.count(f"{group}nightly</a>") == 2
    assert f"{group}All shards of nightly as one run</a>" in ask("run/bbbb3333").text
    page = ask("run/nightly").text
    assert '<a href="/-/kindlm/kindlm/run/cccc4444">2/2</a>' in page
    assert "Shards, 2 of 2: 1/2 finished , 2/2 finished" in text_of(page)


def test_a_group_that_is_not_one_run_says_why(ask: Any, history: Any, make: Any) -> None:
    shards(history, make, tests=("greets", "greets"))
    text = text_of(ask("run/nightly").text)
    assert "The shards of group 'nightly' are not parts of one run" in text


def test_what_waits_and_what_runs_is_reported(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333", planned=3)
    writer.suite(tests=[make.planned("done"), make.planned("begun"), make.planned("waits")])
    writer.execution("done", assertions=(make.passed(),))
    writer.execution("begun", finished=False)
    with stream_lock(history.path, "run/bbbb3333"):
        writer.leave()
        text = text_of(ask("run/bbbb3333").text)
    assert "tests 3: 1 passed, 2 pending" in text
    assert "executions 3: 1 passed, 2 pending" in text
    assert re.search(r"begun running.* waits pending", text)
    assert "support kindlm.yaml · so far" in text
    assert "skipped" not in text


def test_a_page_of_a_run_that_goes_on_renews_itself(ask: Any, history: Any, make: Any) -> None:
    before = history.run("aaaa2222")
    before.suite(tests=[make.planned()])
    before.finish()
    writer = history.run("bbbb3333", planned=2)
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(repeat=1)
    with stream_lock(history.path, "run/bbbb3333"):
        writer.leave()
        answer, part = ask("run/bbbb3333"), ask("run/bbbb3333?part=1")
    after = ask("run/bbbb3333")

    assert "data-live" in answer.text
    assert re.search(
        r"updates automatically\.</span>\s+<a [^>]+>What changed since aaaa2222", answer.text
    )
    assert "script-src 'sha256-" in answer.headers["content-security-policy"]
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert "RUNNING" in part.text
    assert "<html" not in part.text
    assert "<script" not in part.text
    assert "KILLED" in after.text
    assert "<script" not in after.text


def test_a_run_is_found_as_the_command_finds_it(ask: Any, recorded: Any) -> None:
    assert "nightly" in ask("run/nightly").text
    assert "nightly" in ask("run/aaaa").text
    assert ask("run/other").status_code == 404


def test_a_suite_that_could_not_be_loaded_says_why(ask: Any, history: Any) -> None:
    writer = history.run("cccc4444")
    writer.skipped_suite(message=HOSTILE)
    writer.finish()
    page = ask("run/cccc4444").text
    assert "CONFIG_VALIDATION_ERROR" in page
    assert "No tests were selected." in page
    assert "<script" not in page


def test_what_agents_wrote_is_text(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("dddd5555", label=HOSTILE)
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)], path=HOSTILE)
    writer.execution(HOSTILE, HOSTILE, assertions=(make.failed(label=HOSTILE, message=HOSTILE),))
    writer.finish()
    page = ask("run/dddd5555").text
    assert "alert(1)" in page
    assert_harmless(page)


def test_outputs_have_a_row_for_each_test_and_a_column_for_each_target(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("aaaa2222")
    planned = [make.planned(n, t, repeat=2) for n in ("greets", "refunds") for t in ("gpt", "opus")]
    writer.suite(tests=[*planned, make.planned("alone", "opus")])
    for name in ("greets", "refunds"):
        for target in ("gpt", "opus"):
            for repeat in (1, 2):
                check = make.passed() if repeat == 1 else make.failed()
                writer.execution(
                    name,
                    target,
                    repeat=repeat,
                    output=f"{name} by {target} #{repeat}",
                    tools=(("lookup", {}, {}),) if name == "refunds" else (),
                    assertions=(check,),
                )
    writer.execution("alone", "opus", error=("PROVIDER_TIMEOUT", 201, "Too slow.", "Wait."))
    writer.finish()
    page = ask("outputs/aaaa2222").text
    text = text_of(page.partition("<main")[2])
    assert "Test gpt opus greets passed 1/2 passed greets by gpt #1 passed 1/2" in text
    assert "refunds by opus #1 called lookup alone not run errored Too slow." in text
    assert "#2" not in text
    (link, *_) = re.findall(
        r'aria-label="refunds on opus: passed"|href="([^"]*execution[^"]*)"', page
    )
    assert ask(link).status_code == 200
    assert 'href="/-/kindlm/kindlm/outputs/aaaa2222"' in ask("run/aaaa2222").text
    assert ask("outputs/other").status_code == 404


def test_many_outputs_are_paged(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    names = [f"test {number:03}" for number in range(101)]
    writer.suite(tests=[make.planned(name) for name in names])
    for name in names:
        writer.execution(name, assertions=(make.passed(),))
    writer.finish()
    first, second, third = (ask(f"outputs/aaaa2222?page={page}").text for page in (1, 2, 3))
    rows = [re.findall(r'<th scope="row">(test \d+)', page) for page in (first, second, third)]
    assert rows == [names[:100], names[100:], []]
    assert 'rel="next" href="/-/kindlm/kindlm/outputs/aaaa2222?page=2"' in first
    assert 'rel="next"' not in second


def test_outputs_are_bounded_masked_text(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE), make.planned("leaks", "gpt")])
    tools = ((HOSTILE, {}, HOSTILE),)
    writer.execution(HOSTILE, HOSTILE, output=HOSTILE * 9_000, tools=tools)
    found = {"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***.com"}
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=[found])
    writer.execution("leaks", "gpt", output="Write to ann@example.com.", assertions=(leak,))
    writer.finish()
    page = ask("outputs/bbbb3333").text
    assert "alert(1)" in page
    assert len(page) < 20_000
    assert "ann@example.com" not in page
    assert "Write to a" in page
    assert_harmless(page)
