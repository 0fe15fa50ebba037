"""Checks are compared like tests: one that fails now is seen though its test failed before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from compared_runs import compared, record_run
from recorded_history import History, Make

from kindlm.history.diff.evidence import RATES_LEVEL
from kindlm.history.diff.evidence_values import Change, Kind, Strength, TestDiff
from kindlm.history.statistics.pass_rates import repeats_needed
from kindlm.outcome import Outcome
from kindlm.reports.diff.phrases import headline_of

_ERRORED = {"error": ("ENGINE_MAX_TURNS", 401, "10 model calls", None)}


_SIGNS: dict[str, Callable[[str], Any]] = {
    "+": lambda label: Make.passed(label=label),
    "-": lambda label: Make.failed(label=label),
    "?": lambda label: Make.passed(label=label, outcome=Outcome.INCONCLUSIVE, score=None),
    ".": lambda label: None,
}


def check(label: str, *, passed: bool, **fields: Any) -> Any:
    return (Make.passed if passed else Make.failed)(label=label, **fields)


def repeats(**checks: str) -> list[dict[str, Any]]:
    """The repeats of a test: of each check, `+` passed, `-` failed, `?` undecided, `.` not made."""
    found: list[dict[str, Any]] = []
    for signs in zip(*checks.values(), strict=True):
        made = [_SIGNS[sign](label) for label, sign in zip(checks, signs, strict=True)]
        kept = tuple(one for one in made if one is not None)
        found.append({"assertions": kept})
    return found


def diff_of(history: History, before: Any, after: Any, **options: Any) -> TestDiff:
    record_run(history, "before", {"it": before})
    record_run(history, "after", {"it": after})
    (test,) = compared(history, **options).tests
    return test


def test_a_check_that_fails_now_is_a_regression_of_a_test_that_failed_before(
    history: History,
) -> None:
    before = repeats(never="-----", works="+++++")
    test = diff_of(history, before, repeats(never="-----", works="-----"))
    assert (test.evidence.change, test.evidence.strength, test.kind) == (
        Change.REGRESSED,
        Strength.CONFIRMED,
        Kind.REGRESSED,
    )
    ((check, found),) = test.evidence.dropped_checks.items()
    assert (check.label, found.before, found.after) == ("works", (5, 5), (0, 5))
    diff = compared(history)
    assert diff.fails
    assert headline_of(diff).word == "REGRESSED"
    told = {each.label: each.evidence for each in diff.details(test).checks}
    assert told == {"never": None, "works": found}


def test_a_check_that_passes_now_improves_no_test_that_still_fails(history: History) -> None:
    after = repeats(never="-----", works="+++++")
    test = diff_of(history, repeats(never="-----", works="-----"), after)
    assert (test.evidence.change, test.kind) == (Change.UNCHANGED, Kind.OTHER_BEHAVIOUR)


def test_a_suspected_check_says_how_many_repeats_would_settle_it(history: History) -> None:
    before = repeats(never="-----", once="+++++", more="+++++")
    test = diff_of(history, before, repeats(never="-----", once="-++++", more="---++"))
    assert test.evidence.strength is Strength.SUSPECTED
    assert test.evidence.repeats_to_settle == repeats_needed(1.0, 0.4, RATES_LEVEL)


def test_the_surest_check_comes_first(history: History) -> None:
    before = repeats(never="-----", once="+++++", always="+++++")
    test = diff_of(history, before, repeats(never="-----", once="-++++", always="-----"))
    found = {check.label: each.strength for check, each in test.evidence.dropped_checks.items()}
    assert list(found.items()) == [
        ("always", Strength.CONFIRMED),
        ("once", Strength.SUSPECTED),
    ]


@pytest.mark.parametrize(
    ("before", "after", "strength", "fails"),
    [
        ("+++++", "---++", Strength.SUSPECTED, False),
        ("+++", "---", Strength.CONFIRMED, True),
        ("+", "-", Strength.ONE_SAMPLE, True),
        ("+", "---", Strength.ONE_SAMPLE, True),
        ("-----", "-----", None, False),
        ("++-++", "+-+++", None, False),
        # What could not be decided did not pass; what was not made says nothing.
        ("+++++", "?????", Strength.CONFIRMED, True),
        ("+++++", ".....", None, False),
    ],
)
def test_the_evidence_is_that_of_tests(
    history: History, before: str, after: str, strength: Strength | None, fails: bool
) -> None:
    old = repeats(never="-" * len(before), it=before)
    test = diff_of(history, old, repeats(never="-" * len(after), it=after))
    assert test.evidence.strength is strength
    assert test.fails is fails
    assert compared(history).fails is fails


def test_a_repeat_that_errors_passes_no_check(history: History) -> None:
    before = repeats(never="-----", works="+++++")
    assert diff_of(history, before, [_ERRORED] * 5).evidence.strength is Strength.CONFIRMED


def test_a_repeat_that_errors_among_others_passes_no_check(history: History) -> None:
    before = repeats(never="------", works="++++++")
    after = [*repeats(never="--", works="++"), *[_ERRORED] * 4]
    test = diff_of(history, before, after)
    ((check, found),) = test.evidence.dropped_checks.items()
    assert (check.label, found.after) == ("works", (2, 6))


def test_a_repeat_that_errors_after_a_check_counts_once_for_it(history: History) -> None:
    before = repeats(never="------", works="++++++")
    decided = [_ERRORED | each for each in repeats(never="----", works="++++")]
    test = diff_of(history, before, [*repeats(never="--", works="++"), *decided])
    assert not test.evidence.dropped_checks


def test_a_check_that_no_repeat_made_says_nothing_though_some_errored(history: History) -> None:
    before = repeats(never="------", works="++++++")
    after = [*repeats(never="--", works=".."), *[_ERRORED] * 4]
    assert not diff_of(history, before, after).evidence.dropped_checks


def test_a_test_that_fails_for_another_reason_each_time_is_decided_like_a_flaky_test(
    history: History,
) -> None:
    either = repeats(first="+-+-+-", second="-+-+-+")
    other = repeats(first="-+-+-+", second="+-+-+-")
    assert diff_of(history, either, other).evidence.change is Change.UNCHANGED


def test_one_sample_of_another_reason_to_fail_is_marked(history: History) -> None:
    test = diff_of(history, repeats(a="+", b="-"), repeats(a="-", b="+"))
    assert (test.evidence.strength, test.kind) == (Strength.ONE_SAMPLE, Kind.REGRESSED)
    assert headline_of(compared(history)).reasons == (
        "1 test that failed before newly failed other checks",
    )


def test_a_tolerated_failure_of_a_check_fails_no_comparison(history: History) -> None:
    planned = [Make.planned("it", repeat=5, pass_rate=0.5)]
    for name, signs in (("before", "+"), ("after", "+-+-+")):
        run = history.run(name)
        run.suite(tests=planned)
        for number, execution in enumerate(repeats(works=signs), start=1):
            run.execution("it", repeat=number, **execution)
        run.finish()
    assert not compared(history).fails


@pytest.mark.parametrize("other", [{"threshold": 2.0}, {"kind": "matches"}, {"label": "new"}])
def test_another_demand_is_another_check(history: History, other: dict[str, Any]) -> None:
    never = Make.failed(label="never")
    usual: dict[str, Any] = {"kind": "latency", "label": "it", "threshold": 1.0}
    before = [{"assertions": (never, Make.passed(**usual))}] * 5
    after = [{"assertions": (never, Make.failed(**usual | other))}] * 5
    assert diff_of(history, before, after).evidence.change is Change.UNCHANGED


@pytest.mark.parametrize(
    ("kind", "label", "expect"),
    [
        ("tool_called", "lookup", lambda it: {"toolCalls": [{"tool": "lookup", "argsMatch": it}]}),
        ("polite", "polite", lambda it: {"polite": {"words": it}}),
        ("polite", "polite", lambda it: {"polite": [it]}),
    ],
)
def test_a_demand_that_was_rewritten_is_another_check(
    history: History, kind: str, label: str, expect: Callable[[Any], Any]
) -> None:
    names = "rewritten", "same"
    for order, (run_name, make) in enumerate((("before", Make.passed), ("after", Make.failed))):
        tests = [
            {"name": name, "expect": expect({"id": id_})}
            for name, id_ in zip(names, (order, 0), strict=True)
        ]
        run = history.run(run_name)
        run.suite(
            tests=[Make.planned(name, repeat=5) for name in names],
            config=json.dumps({"config": {"tests": tests}, "files": {}}),
            config_hash=f"{order}" * 12,
        )
        found = (Make.failed(label="never"), make(kind, label))
        for name in names:
            for number in range(1, 6):
                run.execution(name, repeat=number, assertions=found)
        run.finish()
    changes = {test.key.name: test.evidence.change for test in compared(history).tests}
    assert changes == {"rewritten": Change.UNCHANGED, "same": Change.REGRESSED}


@pytest.mark.parametrize(
    ("kind", "changes", "found"),
    [
        ("contains", 501, Change.REGRESSED),
        ("tool_called", 501, Change.UNCHANGED),
        ("tool_called", None, Change.REGRESSED),
    ],
)
def test_a_check_may_be_another_one_beyond_500_changes_if_its_label_does_not_say_everything(
    history: History, kind: str, changes: int | None, found: Change
) -> None:
    """Without the texts, the results of checks are compared all the same."""
    change = {f"k{number}": 0 for number in range(changes or 0)}
    for run_name, make, more in (("before", Make.passed, {}), ("after", Make.failed, change)):
        run = history.run(run_name)
        config = json.dumps({"config": {"name": run_name, **more}, "files": {}})
        run.suite(tests=[Make.planned("it", repeat=5)], config=config, config_hash=run_name)
        for number in range(1, 6):
            checks = (Make.failed(label="never"), make(kind, "lookup"))
            run.execution("it", repeat=number, assertions=checks)
        run.finish()
    if changes is None:
        history.erase("run/before")
    (test,) = compared(history).tests
    assert test.evidence.change is found


@pytest.mark.parametrize(("kind", "of"), [("schema", "{}"), ("python", "{}:is_good")])
def test_a_check_by_a_file_that_was_rewritten_is_another_check(
    history: History, kind: str, of: str
) -> None:
    names = "rewritten", "same"
    for order, (run_name, make) in enumerate((("before", Make.passed), ("after", Make.failed))):
        files = {"rewritten": f"{order}" * 12, "same": "a" * 12}
        run = history.run(run_name)
        run.suite(
            tests=[Make.planned(name, repeat=5) for name in names],
            config=json.dumps({"config": {"tests": []}, "files": files}),
            config_hash=f"{order}" * 12,
        )
        for name in names:
            found = (Make.failed(label="never"), make(kind, of.format(name)))
            for number in range(1, 6):
                run.execution(name, repeat=number, assertions=found)
        run.finish()
    changes = {test.key.name: test.evidence.change for test in compared(history).tests}
    assert changes == {"rewritten": Change.UNCHANGED, "same": Change.REGRESSED}


@pytest.mark.parametrize(
    ("then", "change"), [("aaaaaaaa", Change.REGRESSED), ("bbbbbbbb", Change.UNCHANGED)]
)
def test_drift_from_another_baseline_is_another_check(
    history: History, then: str, change: Change
) -> None:
    for run_name, baseline, make in (
        ("before", then, Make.passed),
        ("after", "aaaaaaaa", Make.failed),
    ):
        run = history.run(run_name)
        run.suite(tests=[Make.planned("it", repeat=5)], baseline_run=baseline)
        found = (Make.failed(label="never"), make("drift", "drift"))
        for number in range(1, 6):
            run.execution("it", repeat=number, assertions=found)
        run.finish()
    (test,) = compared(history).tests
    assert test.evidence.change is change


def test_the_same_demand_after_each_turn_is_a_check_for_each(history: History) -> None:
    def execution(second: bool) -> dict[str, Any]:
        never, polite = Make.failed(label="polite"), check("polite", passed=second)
        return {"assertions": (never, polite)}

    test = diff_of(history, [execution(True)] * 5, [execution(False)] * 5)
    assert [check.number for check in test.evidence.dropped_checks] == [1]
    assert test.fails


def test_a_check_that_falls_in_a_test_that_passes_more_often_is_suspected(
    history: History,
) -> None:
    before = repeats(first="-----", second="+++++")
    test = diff_of(history, before, repeats(first="++---", second="++++-"))
    assert (test.evidence.change, test.evidence.strength) == (Change.REGRESSED, Strength.SUSPECTED)


def test_a_failing_test_that_was_not_run_again_has_no_checks_to_compare(history: History) -> None:
    record_run(history, "before", {"it": repeats(works="-----"), "other": repeats(works="+")})
    record_run(history, "after", {"it": [], "other": repeats(works="+")})
    changes = [test.evidence.change for test in compared(history).tests]
    assert sorted(changes) == [Change.NOT_RUN, Change.UNCHANGED]


def test_details_of_tests_that_ran_once_take_few_queries(history: History) -> None:
    test = diff_of(history, repeats(works="+"), repeats(works="-"))
    diff, asked = compared(history), list[str]()
    diff.before.db.set_trace_callback(asked.append)
    try:
        diff.details(test)
    finally:
        diff.before.db.set_trace_callback(None)
    assert sum(query.lstrip().startswith("SELECT") for query in asked) < 20
