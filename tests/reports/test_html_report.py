"""The report `html`: a run as one file."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from compared_runs import record_run
from pages import HOSTILE, assert_harmless, text_of
from recorded_history import History

from kindlm.errors import Ok
from kindlm.history.queries import paid_for_execution
from kindlm.reports import figures, html_report
from kindlm.reports.report_registry import ReportOptions, find_report


def written(view: Any) -> str:
    found = find_report("html")
    assert isinstance(found, Ok)
    out = io.StringIO()
    found.value.write(view, out, ReportOptions())
    return out.getvalue()


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned(repeat=2), make.planned("refunds", repeat=2)])
    long = "Always look the order up first. " * 20
    for repeat in (1, 2):
        writer.execution(repeat=repeat, system=long, assertions=(make.passed(),))
        writer.execution(
            "refunds",
            repeat=repeat,
            system=long,
            tools=(("issue_refund", {"order": "A-100"}, {"ok": True}),),
            assertions=(make.failed(reasoning="It refunded at once."),),
        )
    return writer.finish()


def test_it_shows_the_run_and_its_executions_those_that_failed_first(recorded: Any) -> None:
    page = written(recorded)
    text = text_of(page)
    assert "failed aaaa2222" in text
    order = re.findall(r'<div id="(aaaa2222-\d+)"', page)
    assert order == ["aaaa2222-2", "aaaa2222-4", "aaaa2222-1", "aaaa2222-3"]
    assert 'issue_refund { "order": "A-100" } { "ok": true }' in text
    assert "judge It refunded at once." in text


def test_it_says_how_many_failing_tests_have_no_cause_in_it(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    names = [f"t{number}" for number in range(205)]  # more than it lists
    writer.suite(tests=[make.planned(name) for name in names])
    for name in names:
        writer.execution(name, assertions=(make.failed(),))
    text = text_of(written(writer.finish()))
    assert "50 tests, 50 of 50 repeats" in text
    assert "155 more failing tests are not grouped here." in text


def test_the_cost_of_an_execution_says_that_a_part_is_unknown(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(cost_usd=None, judge="0.9", assertions=(make.passed(),))
    view = writer.finish()
    (test,) = view.tests()
    (execution,) = view.executions(test)
    known = figures.money(paid_for_execution(view.db, execution.id).total_usd or 0.0)
    assert f"#1, 120 ms, {known} + unknown" in text_of(written(view))


def test_it_says_what_changed_since_the_run_before(history: History) -> None:
    record_run(history, "before", {"greets": "+++", "refunds": "+++++", HOSTILE: "+++"})
    record_run(history, "after", {"greets": "+++", "refunds": "-----", "new": "+"})
    assert "since run" not in written(history.view("before"))
    page = written(history.view("after"))
    assert_harmless(page)
    text = text_of(page)
    assert "regressed since run before 1 test got worse, confirmed; 1 test removed;" in text
    assert "✗ refunds gpt passed 5/5 → failed 0/5 regressed, confirmed: checks" in text
    assert "+ new gpt not defined → passed 1/1 added In full: kindlm diff before after" in text
    assert '<a href="#after-4">refunds</a>' in page
    record_run(history, "again", {"greets": "+++", "refunds": "-----", "new": "+"})
    assert '<span class="status soft">unchanged</span>' in written(history.view("again"))


def test_a_result_that_the_agent_did_not_report_is_not_shown_as_null(
    history: Any, make: Any
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(tools=(("lookup", {"order": "A-100"}, None),))
    text = text_of(written(writer.finish()))
    assert 'called lookup { "order": "A-100" } no result reported assistant' in text


def test_every_link_leads_to_a_place_in_the_file(recorded: Any) -> None:
    page = written(recorded)
    places = set(re.findall(r'\sid="([^"]+)"', page))
    links = set(re.findall(r'href="([^"]*)"', page)) - {"data:,"}
    assert {link for link in links if not link.startswith("#")} == set()
    assert {link.removeprefix("#") for link in links} <= places
    assert "#aaaa2222-2" in links


def test_what_is_said_again_stands_in_it_once(recorded: Any) -> None:
    page = written(recorded)
    assert page.count(("Always look the order up first. " * 20).rstrip()) == 1
    assert page.count("whole text</a>") == 3


def places_and_links(page: str) -> tuple[set[str], set[str]]:
    links = set(re.findall(r'href="#([^"]*)"', page)) - {"content"}
    return set(re.findall(r'\sid="([^"]+)"', page)), links


def test_a_large_run_stays_below_two_megabytes_and_counts_what_it_leaves_out(
    history: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_report, "_MOST_BYTES", 190_000)
    writer = history.run("eeee6666")
    writer.suite(tests=[make.planned(repeat=40), make.planned("fine")])
    texts = [f"{number} " + "word " * 700 for number in range(56)]
    # The second one has no room, and others that say the same would link to it.
    for repeat, said in enumerate((texts[:10], texts, *[texts[50:52]] * 38), start=1):
        writer.execution(
            repeat=repeat,
            output=f"{repeat} " + "word " * 700,
            tools=tuple(("lookup", {"order": number}, text) for number, text in enumerate(said)),
            assertions=(make.failed(),),
        )
    writer.execution("fine")
    page = written(writer.finish())
    assert len(page.encode()) < 200_000
    assert re.findall(r'<div id="eeee6666-(\d+)"', page) == ["1"]
    assert "and 40 more, of which 39 failed." in text_of(page)
    places, links = places_and_links(page)
    assert links <= places


def test_what_agents_wrote_is_text(history: Any, make: Any) -> None:
    writer = history.run("cccc4444", label=HOSTILE, versions={"kindlm": HOSTILE})
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)], path=HOSTILE, gates={HOSTILE: 1})
    writer.skipped_suite(code=HOSTILE)
    writer.execution(
        HOSTILE,
        HOSTILE,
        system=HOSTILE * 100,
        user=HOSTILE * 100,
        output=HOSTILE,
        tools=((HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),),
        error=(HOSTILE, 201, HOSTILE, HOSTILE),
        failures=(make.provider_failed(HOSTILE),),
        assertions=(make.failed(label=HOSTILE, code=HOSTILE, message=HOSTILE, reasoning=HOSTILE),),
    )
    page = written(writer.finish())
    assert "alert(1)" in page
    assert_harmless(page)
    assert "script-src" not in page


def test_a_call_that_was_cut_off_is_not_taken_for_an_erased_response(
    history: Any, make: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(finished=False, output=None)
    run._request("1.1", 1, "gpt")
    told = text_of(written(run.interrupt("SIGINT")))
    assert "No response was recorded." in told
    assert "[erased]" not in told
