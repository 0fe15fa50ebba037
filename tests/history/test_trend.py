"""A test over its runs: how flaky it is, and what it cost."""

from __future__ import annotations

import pytest
from recorded_history import History, Make

from kindlm.history.trends import Trend, find_tests, read_trend
from kindlm.plan import QualifiedName


def record(history: History, run: str, *signs: str, mode: str = "live") -> None:
    """Record a run of a test; each repeat passed (`+`), failed (`-`), or passed later (`-+`)."""
    made = {"+": Make.passed, "-": Make.failed}
    writer = history.run(run, mode=mode)
    writer.suite(tests=[Make.planned(repeat=len(signs))])
    for number, attempts in enumerate(signs, start=1):
        for attempt, sign in enumerate(attempts, start=1):
            writer.execution(
                repeat=number,
                number=number,
                attempt=attempt,
                assertions=(made[sign](),),
                retried=attempt < len(attempts),
            )
    writer.finish()


def trend(history: History) -> Trend:
    name = QualifiedName("shop", "support", "greets", "gpt")
    return read_trend(history.reader(), name, limit=9)


def test_what_passed_only_when_it_was_run_again_counts_as_flaky(history: History) -> None:
    record(history, "aaaa2222", "+", "+")
    record(history, "bbbb2222", "+", "-+")
    found = trend(history)
    assert found.flakiness == (2 / 4, 1.0)
    assert found.passed_later == (1, 4)
    assert [point.test.flaky for point in found.points] == [True, False]


def test_each_repeat_that_passed_later_counts(history: History) -> None:
    record(history, "aaaa2222", "-+", "-+", "+", "-")
    assert trend(history).passed_later == (2, 4)


def test_only_live_runs_show_how_flaky_a_test_is(history: History) -> None:
    for run, sign, mode in (
        ("aaaa2222", "+", "live"),
        ("bbbb2222", "-", "imported"),
        ("cccc2222", "+", "live"),
    ):
        record(history, run, sign, mode=mode)
    found = trend(history)
    assert len(found.counted) == 3
    assert found.flakiness.between == 0.0


def test_a_cost_with_an_unknown_part_is_unknown(history: History) -> None:
    for run, costs in (("aaaa2222", (0.002, 0.003)), ("bbbb2222", (0.002, None))):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=2)])
        for repeat, cost in enumerate(costs, start=1):
            writer.execution(repeat=repeat, assertions=(Make.passed(),), cost_usd=cost)
        writer.finish()
    assert [point.cost_usd for point in trend(history).points] == [None, pytest.approx(0.005)]


def test_a_run_that_never_came_to_the_test_leaves_a_gap(history: History) -> None:
    record(history, "aaaa2222", "+")
    stopped = history.run("bbbb2222")
    stopped.suite(tests=[Make.planned()])
    stopped.interrupt()
    found = trend(history)
    assert [point.run.id for point in found.counted] == ["bbbb2222", "aaaa2222"]
    assert found.flakiness.between is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Größe", ["Größe"]),
        ("GRÖSSE", ["Größe", "Größe prüfen"]),
        ("prÜf", ["Größe prüfen"]),
        ("Preis", []),
    ],
)
def test_a_test_is_found_by_its_name_or_a_part_of_it_in_any_case(
    history: History, name: str, found: list[str]
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned("Größe"), Make.planned("Größe prüfen")])
    writer.finish()
    assert [test.name for test in find_tests(history.reader(), name)] == found
