"""The report `html`: a run as one file."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from pages import HOSTILE, assert_harmless, text_of

from kindlm.errors import Ok
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


def test_a_thousand_executions_stay_below_two_megabytes(history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned(f"t{n}", repeat=10) for n in range(100)])
    for number in range(100):
        for repeat in range(1, 11):
            check = make.failed() if number < 20 else make.passed()
            writer.execution(
                f"t{number}",
                repeat=repeat,
                system="You serve a shop. " * 100,
                output=f"{number} {repeat} " + "word " * 300,
                assertions=(check, make.passed("judge", "kind"), make.passed("pii", "pii")),
            )
    page = written(writer.finish())
    assert 500_000 < len(page.encode()) < 2_000_000
    whole = set(re.findall(r'<div id="bbbb3333-(\d+)"', page))
    named = set(re.findall(r'<p class="x" id="bbbb3333-(\d+)"', page))
    assert {str(number) for number in range(1, 201)} <= whole, "many that failed are there"
    assert named, "the others are named where they find no room"
    assert whole | named == {str(number) for number in range(1, 1_001)}
    assert f"only the names of {len(named):,} executions" in text_of(page)


def test_so_many_executions_that_they_are_only_counted_stay_below_two_megabytes(
    history: Any, make: Any
) -> None:
    writer = history.run("dddd5555")
    writer.suite(tests=[make.planned(f"t{n}", repeat=100) for n in range(40)])
    for number in range(40):
        for repeat in range(1, 101):
            writer.execution(
                f"t{number}",
                repeat=repeat,
                output=f"{number} {repeat} " + "word " * 700,
                assertions=(make.failed(message=f"{number} {repeat}: it is not so."),),
            )
    page = written(writer.finish())
    assert 1_500_000 < len(page.encode()) < 2_000_000
    places, links = places_and_links(page)
    assert links <= places
    shown = sum(place.startswith("dddd5555-") for place in places)
    left_out = 4_000 - shown
    assert left_out > 0
    assert f"and {left_out:,} more, of which {left_out:,} failed." in text_of(page)


def test_what_finds_no_room_is_named_and_nothing_refers_to_its_texts(
    history: Any, make: Any
) -> None:
    writer = history.run("eeee6666")
    writer.suite(tests=[make.planned(repeat=3)])
    texts = [f"{number} " + "word " * 700 for number in range(560)]
    for repeat, said in enumerate((texts[:400], texts[400:], texts[400:410]), start=1):
        writer.execution(
            repeat=repeat,
            tools=tuple(("lookup", {"order": number}, text) for number, text in enumerate(said)),
            assertions=(make.failed(),),
        )
    page = written(writer.finish())
    assert len(page.encode()) < 2_000_000
    assert re.findall(r'<p class="x" id="eeee6666-(\d+)"', page) == ["2"]
    places, links = places_and_links(page)
    assert links <= places


def test_what_agents_wrote_is_text(history: Any, make: Any) -> None:
    writer = history.run("cccc4444", label=HOSTILE)
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)], path=HOSTILE)
    writer.execution(
        HOSTILE,
        HOSTILE,
        system=HOSTILE * 100,
        user=HOSTILE * 100,
        output=HOSTILE,
        tools=((HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),),
        error=("PROVIDER_TIMEOUT", 201, HOSTILE, HOSTILE),
        assertions=(make.failed(label=HOSTILE, message=HOSTILE, reasoning=HOSTILE),),
    )
    page = written(writer.finish())
    assert "alert(1)" in page
    assert_harmless(page)
    assert "script-src" not in page
