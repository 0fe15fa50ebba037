"""`kindlm baseline`: setting, listing, comparing and removing."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from kindlm.events.codec import new_event
from kindlm.events.run import BaselineSet
from kindlm_store import NewEvent

CLOCK_AHEAD = "2999-01-01T00:00:00.000000Z"


@pytest.fixture
def record(history: Any, make: Any) -> Any:
    """Record a run of one target; `passed` says y or n for each repeat of each test."""

    def call(
        run: str,
        passed: str = "yyy",
        *,
        suites: tuple[str, ...] = ("support",),
        tests: tuple[str, ...] = ("greets",),
        output: str = "Hi there.",
    ) -> Any:
        writer = history.run(run)
        for ordinal, suite in enumerate(suites):
            writer.suite(suite, tests=[make.planned(test, repeat=len(passed)) for test in tests])
            for test in tests:
                for repeat, good in enumerate(passed, start=1):
                    checks = (make.passed() if good == "y" else make.failed(),)
                    writer.execution(
                        test, suite=ordinal, repeat=repeat, output=output, assertions=checks
                    )
        return writer

    return call


@pytest.fixture
def baseline(kindlm: Any, history: Any) -> Any:
    """Run `kindlm baseline` on the history."""

    def call(action: str, *arguments: str) -> Any:
        return kindlm("baseline", action, *arguments, "--db", history.path)

    return call


def listed(baseline: Any) -> list[tuple[str, str | None, str, bool]]:
    report = json.loads(baseline("list", "--format", "json").out)
    return [(b["suite"], b["label"], b["run"], b["active"]) for b in report["baselines"]]


def journal(history: Any) -> list[tuple[str, dict[str, Any]]]:
    events = history.log.read(types=["baseline.set", "baseline.removed"])
    return [(event.type, event.data) for event in events]


def test_set_the_newest_run_that_finished_becomes_the_baseline_of_its_suites(
    baseline: Any, record: Any
) -> None:
    record("run1", suites=("support", "sales")).finish()
    record("run2").interrupt()

    outcome = baseline("set")

    assert outcome.code == 0
    assert outcome.out == ""
    assert "support: run run1 is now the baseline (no baseline before)." in outcome.err
    assert listed(baseline) == [
        ("sales", None, "run1", True),
        ("support", None, "run1", True),
    ]


def test_set_who_set_it_is_recorded(baseline: Any, record: Any, history: Any) -> None:
    record("run1").finish()

    baseline("set")

    ((kind, data),) = journal(history)
    assert kind == "baseline.set"
    assert re.fullmatch(r"[^@]+@[^@]+", data["by"])
    (event,) = history.log.read(types=["baseline.set"])
    assert event.stream.startswith("journal/")


def test_set_it_says_what_it_was_before(baseline: Any, record: Any) -> None:
    for run in ("run1", "run2"):
        record(run).finish()
    baseline("set", "run1", "--label", "v1")

    assert "(before: run run1 (v1))." in baseline("set").err
    assert listed(baseline) == [
        ("support", None, "run2", True),
        ("support", "v1", "run1", False),
    ]
    assert "(before: run run2)." in baseline("set").err


def test_diff_by_default_fails_where_the_suites_have_different_baselines(
    kindlm: Any, baseline: Any, record: Any, history: Any
) -> None:
    record("run1", suites=("support", "sales")).finish()
    baseline("set", "-s", "support")
    record("run2", suites=("support", "sales")).finish()
    baseline("set", "-s", "sales")
    for run in ("run3", "run4"):
        record(run, "nnn", suites=("support", "sales")).finish()

    outcome = kindlm("diff", "--db", history.path)

    assert outcome.code == 1
    assert outcome.out == ""
    assert "different baselines" in outcome.err
    assert kindlm("diff", "previous", "--db", history.path).code == 0


def test_set_a_json_report_names_its_run(
    kindlm: Any, record: Any, baseline: Any, history: Any, here: Any
) -> None:
    for run in ("run1", "run2"):
        record(run).finish()
    report = kindlm("report", "run1", "--format", "json", "--db", history.path).out
    (here / "results.json").write_text(report, encoding="utf-8")

    assert baseline("set", "results.json", "--label", "v1").code == 0

    assert listed(baseline) == [("support", "v1", "run1", True)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run2",), "only a run of tests that finished"),
        (("nothing",), "There is no run"),
        (("run1", "--suite", "sales"), "Its suites are: support"),
        (("--suite", "sales"), "No run of suite 'sales' has finished"),
        (("broken.json",), "is not a JSON report of a run"),
    ],
)
def test_set_what_cannot_be_one_is_refused(
    baseline: Any, record: Any, history: Any, here: Any, arguments: tuple[str, ...], words: str
) -> None:
    record("run1").finish()
    record("run2").interrupt()
    (here / "broken.json").write_text('{"run": [', encoding="utf-8")

    outcome = baseline("set", *arguments)

    assert outcome.code == 1
    assert words in outcome.err
    assert journal(history) == []


def test_set_a_run_with_nothing_in_it_is_refused(baseline: Any, history: Any) -> None:
    writer = history.run("run1")
    writer.skipped_suite()
    writer.finish()

    assert "tested no suite" in baseline("set").err


def test_set_gaps_are_reported(baseline: Any, history: Any, make: Any) -> None:
    writer = history.run("run1")
    tests = [make.planned("greets"), make.planned("waves", selected=False)]
    # A test with `skip: true` runs in no other run either.
    writer.suite(tests=[*tests, make.planned("never", skip=True)])
    writer.execution("greets", assertions=(make.failed(), make.passed("drift")))
    writer.finish()

    outcome = baseline("set")

    assert outcome.code == 0
    assert "1 of its 2 tests did not run" in outcome.err


def test_set_a_failing_run_is_warned_of(baseline: Any, record: Any) -> None:
    record("run1").finish()
    record("run2", "nnn").finish()

    failing, passing = baseline("set"), baseline("set", "run1")

    assert failing.code == 0
    assert "This run failed, so later runs are compared with a failing run." in failing.err
    assert "This run failed" not in passing.err


def test_set_it_counts_although_another_clock_was_ahead(
    baseline: Any, record: Any, history: Any
) -> None:
    for run in ("run1", "run2"):
        record(run).finish()
    event = new_event(BaselineSet(project="shop", suite="support", run="run1", by="me@ahead"))
    early = NewEvent(event.type, event.data, at=CLOCK_AHEAD)
    history.log.append("journal/ahead", [early])

    assert baseline("set", "run2").code == 0
    assert listed(baseline) == [("support", None, "run2", True)]
    assert baseline("remove").code == 0
    assert listed(baseline) == []


def test_remove_the_run_stays(kindlm: Any, record: Any, baseline: Any, history: Any) -> None:
    record("run1").finish()
    baseline("set")

    outcome = baseline("remove")

    assert outcome.code == 0
    assert "run run1 is no longer the baseline" in outcome.err
    assert "kindlm baseline set" in outcome.err
    assert listed(baseline) == []
    assert kindlm("show", "run1", "--db", history.path).code == 0


def test_remove_where_none_is_set_says_how_to_set_one(baseline: Any, record: Any) -> None:
    record("run1").finish()
    outcome = baseline("remove")
    assert "No baseline is set." in outcome.err
    assert "Set one: kindlm baseline set" in outcome.err
    assert "kindlm baseline list" in baseline("remove", "--label", "v1").err


def test_remove_the_one_before_counts_again(baseline: Any, record: Any) -> None:
    for run in ("run1", "run2"):
        record(run).finish()
    baseline("set", "run1", "--label", "v1")
    baseline("set", "run2")

    assert "The baseline is now run run1 (v1)." in baseline("remove").err
    assert baseline("remove", "--label", "v1").code == 0
    assert listed(baseline) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "nothing"), "No baseline of suite 'nothing' is set"),
        (("--label", "v9"), "No baseline 'v9' is set"),
        ((), "several baselines: sales of shop, support of shop"),
    ],
)
def test_remove_which_one_has_to_be_clear(
    baseline: Any, record: Any, arguments: tuple[str, ...], words: str
) -> None:
    record("run1", suites=("support", "sales")).finish()
    baseline("set")

    outcome = baseline("remove", *arguments)

    assert outcome.code == 1
    assert words in outcome.err
    assert len(listed(baseline)) == 2
    assert baseline("remove", "--suite", "sales").code == 0
    assert listed(baseline) == [("support", None, "run1", True)]


def test_remove_projects_that_share_a_history_are_distinguished(
    baseline: Any, record: Any, history: Any
) -> None:
    record("run1").finish()
    baseline("set")
    payload = BaselineSet(project="other", suite="support", run="run1", by="me")
    history.log.append("journal/other", [new_event(payload)])

    assert "several baselines: support of other, support of shop" in baseline("remove").err
    assert baseline("remove", "--project", "other").code == 0
    assert listed(baseline) == [("support", None, "run1", True)]


def test_list_the_active_one_has_an_arrow(baseline: Any, record: Any) -> None:
    record("run1").finish()
    baseline("set", "--label", "v1\x1b[2J")
    baseline("set")

    lines = baseline("list").out.splitlines()

    assert [line.split()[0] for line in lines] == ["SUITE", "→", "support"]
    assert "\x1b" not in "".join(lines)


def test_list_one_whose_run_is_not_here_is_marked(baseline: Any, record: Any, history: Any) -> None:
    record("run1").finish()
    payload = BaselineSet(project="shop", suite="support", run="elsewhere", by="me")
    history.log.append("journal/other", [new_event(payload)])

    assert "elsewhere (not here)" in baseline("list").out
    report = json.loads(baseline("list", "--format", "json").out)
    assert [one["here"] for one in report["baselines"]] == [False]


def test_list_none_is_set(baseline: Any, record: Any) -> None:
    record("run1").finish()

    outcome = baseline("list")

    assert (outcome.code, outcome.out) == (0, "")
    assert "kindlm baseline set" in outcome.err


def test_list_without_a_history_it_says_so(kindlm: Any) -> None:
    for action in ("list", "set", "compare", "remove"):
        outcome = kindlm("baseline", action)
        assert (outcome.code, outcome.out) == (1, "")
        assert "kindlm test" in outcome.err


def test_list_without_an_action_it_shows_how_it_is_used(kindlm: Any) -> None:
    outcome = kindlm("baseline")

    assert (outcome.code, outcome.out) == (1, "")
    for action in ("set", "list", "compare", "remove"):
        assert action in outcome.err


@pytest.mark.parametrize(
    ("before", "after", "verdict", "code"),
    [
        ("yyy", "yyn", "SUSPECTED: 1 test may have got worse", 0),
        ("yyyyy", "nnnnn", "REGRESSED: 1 test got worse, confirmed", 1),
        ("y", "n", "REGRESSED: 1 test newly failed", 1),
        ("yn", "yyyyynnnnn", "UNCHANGED: 1 as before", 0),
    ],
)
def test_compare_it_says_what_a_comparison_of_the_runs_says(
    kindlm: Any,
    record: Any,
    baseline: Any,
    history: Any,
    before: str,
    after: str,
    verdict: str,
    code: int,
) -> None:
    record("run1", before).finish()
    record("run2", after).finish()
    baseline("set", "run1")

    outcome = baseline("compare")

    assert outcome.code == code
    assert outcome.err == "support: baseline run run1\n"
    assert verdict in outcome.out
    diff = kindlm("diff", "baseline", "latest", "--db", history.path)
    assert (diff.code, diff.out) == (code, outcome.out)


def test_compare_many_small_losses_in_several_suites_are_a_regression_of_the_run(
    baseline: Any, record: Any
) -> None:
    tests = tuple(f"test {number}" for number in range(5))
    record("run1", "yyyyyyyy", suites=("support", "sales"), tests=tests).finish()
    record("run2", "yynyyyyy", suites=("support", "sales"), tests=tests).finish()
    baseline("set", "run1")

    outcome = baseline("compare")

    assert outcome.code == 1
    assert "the run as a whole passes less often" in outcome.out


def test_compare_a_removed_test_fails_and_a_new_one_does_not(baseline: Any, record: Any) -> None:
    record("run1", tests=("greets", "waves")).finish()
    record("run2", tests=("greets", "nods")).finish()
    baseline("set", "run1")

    outcome = baseline("compare")

    assert outcome.code == 1
    assert "1 test compared, 1 added, 1 removed" in outcome.out
    baseline("set", "run2")
    assert baseline("compare").code == 0


def test_compare_a_named_run_with_a_named_baseline(baseline: Any, record: Any) -> None:
    record("run1", "n").finish()
    record("run2", "y").finish()
    record("run3", "y").finish()
    baseline("set", "run1", "--label", "old")
    baseline("set", "run2")

    assert "UNCHANGED" in baseline("compare").out
    assert "improved" in baseline("compare", "run3", "--label", "old").out
    assert "REGRESSED" in baseline("compare", "run1").out
    assert "UNCHANGED" in baseline("compare", "run2").out


def test_compare_each_suite_with_its_own_baseline(baseline: Any, record: Any) -> None:
    record("run1", suites=("support", "sales")).finish()
    baseline("set")
    record("run2", "nnn", suites=("support", "sales")).finish()
    baseline("set", "--suite", "sales")
    record("run3", "nnn", suites=("support", "sales")).finish()

    report = json.loads(baseline("compare", "--format", "json").out)

    found = {each["suites"][0]: each for each in report["comparisons"]}
    assert {suite: each["baseline"]["run"] for suite, each in found.items()} == {
        "support": "run1",
        "sales": "run2",
    }
    kinds = {
        suite: [(test["suite"], test["change"]) for test in each["diff"]["tests"]]
        for suite, each in found.items()
    }
    assert kinds == {"support": [("support", "regressed")], "sales": [("sales", "unchanged")]}


def test_compare_suites_without_one_are_named(baseline: Any, record: Any) -> None:
    record("run1", suites=("support", "sales")).finish()
    baseline("set", "--suite", "support")

    outcome = baseline("compare")
    assert outcome.code == 0
    assert "sales: no baseline" in outcome.err
    asked = baseline("compare", "--suite", "sales")
    assert (asked.code, asked.out) == (1, "")
    assert 'Baseline not found for suite "sales"' in asked.err


def test_compare_no_baseline_at_all_is_an_error(baseline: Any, record: Any) -> None:
    record("run1").finish()

    outcome = baseline("compare", "--verbose")

    assert (outcome.code, outcome.out) == (1, "")
    assert 'Baseline not found for suite "support"' in outcome.err
    assert "Run: kindlm baseline set" in outcome.err
    assert "500" in outcome.err
    labelled = baseline("compare", "--label", "main branch")
    assert "Run: kindlm baseline set --label 'main branch'" in labelled.err


def test_compare_a_baseline_that_is_gone_is_reported_and_others_are_compared(
    baseline: Any, record: Any, history: Any
) -> None:
    record("run1", suites=("support", "sales")).finish()
    baseline("set", "--suite", "sales")
    payload = BaselineSet(project="shop", suite="support", run="elsewhere", by="me")
    history.log.append("journal/other", [new_event(payload)])

    outcome = baseline("compare", "--verbose")

    assert outcome.code == 1
    assert "501" in outcome.err
    assert "UNCHANGED: 1 as before" in outcome.out


def test_compare_a_suite_that_could_not_be_loaded_is_no_success(baseline: Any, record: Any) -> None:
    record("run1").finish()
    baseline("set")
    writer = record("run2")
    writer.skipped_suite("broken")
    writer.finish()

    outcome = baseline("compare")

    assert outcome.code == 1
    assert "broken: the suite could not be loaded" in outcome.err


def test_compare_of_a_run_that_was_stopped_the_rest_is_not_run(
    baseline: Any, record: Any, history: Any, make: Any
) -> None:
    record("run1", tests=("greets", "waves")).finish()
    baseline("set")
    writer = history.run("run2")
    writer.suite(tests=[make.planned("greets"), make.planned("waves")])
    writer.execution(assertions=(make.passed(),))
    writer.interrupt()

    outcome = baseline("compare", "run2")

    assert outcome.code == 1
    assert "INCOMPLETE: run run2 was interrupted" in outcome.err
    assert "The comparison fails." in outcome.err
    assert "kindlm test --resume run2" in outcome.err
    assert "INCOMPLETE" in outcome.out
    report = json.loads(baseline("compare", "run2", "--format", "json").out)
    assert (report["complete"], report["fails"]) == (False, True)


def test_compare_programs_get_json(baseline: Any, record: Any) -> None:
    record("run1", tests=("greets", "waves")).finish()
    record("run2", "yyn", suites=("support", "sales")).finish()
    baseline("set", "run1", "--label", "v1")

    outcome = baseline("compare", "--format", "json")

    assert outcome.code == 1
    report = json.loads(outcome.out)
    assert (report["run"], report["fails"], report["unloadedSuites"]) == ("run2", True, [])
    (comparison,) = report["comparisons"]
    assert comparison["suites"] == ["support"]
    assert comparison["baseline"] == {"run": "run1", "group": None, "runs": ["run1"]}
    assert comparison["errors"] == []
    diff = comparison["diff"]
    assert diff["verdict"]["verdict"] == "regressed"
    assert [(test["name"], test["change"]) for test in diff["tests"]] == [
        ("greets", "regressed"),
        ("waves", "removed"),
    ]


def test_nothing_is_compared_with_a_baseline_whose_events_were_changed(
    kindlm: Any, history: Any, baseline: Any, record: Any
) -> None:
    for run in ("run1", "run2", "run3"):
        record(run).finish()
    baseline("set", "run1")
    diff = ("diff", "--db", history.path)
    assert kindlm(*diff).code == 0
    with closing(sqlite3.connect(history.path)) as connection, connection:
        connection.execute("DROP TRIGGER events_update")
        connection.execute(
            "UPDATE events SET subject = 'x' WHERE version = 2 AND stream ="
            " (SELECT id FROM streams WHERE name = 'run/run1')"
        )
    for sides in ((), ("run1", "run3")):
        refused = kindlm(*diff, *sides)
        assert (refused.code, refused.out) == (1, "")
        assert "run run1, cannot be used: the run was changed after it was recorded" in refused.err
        assert "kindlm history verify run1" in refused.err
    # It is no baseline of theirs.
    assert kindlm(*diff, "previous").code == 0
