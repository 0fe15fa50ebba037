"""What became of each test, from two recorded runs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from compared_runs import compared, passes, record_run
from recorded_history import History, Make

from kindlm.history.diff.compared_tests import compare_figures, compare_models
from kindlm.history.diff.details import Edit
from kindlm.history.diff.evidence_values import Change, FailOn, Kind, Strength, TestDiff, Verdict
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.statistics import mean_interval
from kindlm.outcome import Outcome
from kindlm.reports.diff.parts import call_aside, changed_checks, check_text, measures
from kindlm.reports.diff.phrases import (
    figure_rows,
    headline_of,
    needs_text,
    next_step,
    notes_of,
    rate_text,
)


def diff_of(history: History, before: Any, after: Any, **options: Any) -> TestDiff:
    record_run(history, "before", {"a": before})
    record_run(history, "after", {"a": after})
    (test,) = compared(history, **options).tests
    return test


@pytest.mark.parametrize(
    ("before", "after", "change", "strength", "kind", "fails"),
    [
        ("+++++", "-----", Change.REGRESSED, Strength.CONFIRMED, Kind.REGRESSED, True),
        ("-----", "+++++", Change.IMPROVED, Strength.CONFIRMED, Kind.IMPROVED, False),
        ("+++++", "++++-", Change.REGRESSED, Strength.SUSPECTED, Kind.SUSPECTED, False),
        ("+", "-", Change.REGRESSED, Strength.ONE_SAMPLE, Kind.REGRESSED, True),
        ("-", "+", Change.IMPROVED, Strength.ONE_SAMPLE, Kind.IMPROVED, False),
        ("+-+", "-++", Change.UNCHANGED, None, Kind.UNCHANGED, False),
        ("+++++", "!!!!!", Change.REGRESSED, Strength.CONFIRMED, Kind.REGRESSED, True),
        ("---", "!!!", Change.UNCHANGED, None, Kind.OTHER_BEHAVIOUR, False),
    ],
)
def test_pass_rates(
    history: History, before: str, after: str, change: Any, strength: Any, kind: Any, fails: bool
) -> None:
    test = diff_of(history, before, after)
    assert (test.evidence.change, test.evidence.strength, test.kind) == (change, strength, kind)
    assert test.fails is fails
    assert compared(history).fails is fails


def test_tests_of_one_side_only(history: History) -> None:
    record_run(history, "before", {"stays": "+", "gone": "+", "skipped": "+", "never": ""})
    record_run(
        history, "after", {"new": "+", "stays": "+", "skipped": "", "never": "", "newbad": "-"}
    )
    diff = compared(history)
    assert [(test.key.name, test.kind) for test in diff.tests] == [
        ("new", Kind.ADDED),
        ("stays", Kind.UNCHANGED),
        ("skipped", Kind.NOT_RUN),
        ("never", Kind.NOT_RUN),
        ("newbad", Kind.NEW_FAILING),
        ("gone", Kind.REMOVED),
    ]
    assert [test.key.name for test in diff.tests if test.fails] == ["gone"]
    assert diff.fails


def test_a_test_that_was_only_defined_before_is_not_new(history: History) -> None:
    record_run(history, "before", {"a": "", "b": "+"})
    record_run(history, "after", {"a": "+", "b": "+"})
    assert [test.kind for test in compared(history).tests] == [Kind.NOT_RUN, Kind.UNCHANGED]


def test_the_same_name_in_other_suites_and_on_other_targets_is_another_test(
    history: History,
) -> None:
    for run, target in (("before", "gpt"), ("after", "claude")):
        writer = history.run(run)
        writer.suite("one", tests=[Make.planned("a"), Make.planned("a", target=f"{target}-2")])
        writer.suite("two", tests=[Make.planned("a")])
        for suite, name in ((0, "gpt"), (0, f"{target}-2"), (1, "gpt")):
            writer.execution("a", name, suite=suite, assertions=(Make.passed(),))
        writer.finish()
    assert [(t.key.suite, t.key.target, t.kind.value) for t in compared(history).tests] == [
        ("one", "gpt", "unchanged"),
        ("one", "claude-2", "added"),
        ("two", "gpt", "unchanged"),
        ("one", "gpt-2", "removed"),
    ]


def record_files(history: History, run: str, files: dict[tuple[str, str], dict[str, str]]) -> None:
    """Record a run of suites of one name, by project and path, with tests and their repeats."""
    writer = history.run(run)
    for ordinal, ((project, path), tests) in enumerate(files.items()):
        planned = [Make.planned(name, repeat=len(repeats)) for name, repeats in tests.items()]
        writer.suite("agents", tests=planned, project=project, path=path)
        for name, repeats in tests.items():
            for number, fields in enumerate(passes(repeats), start=1):
                writer.execution(name, suite=ordinal, repeat=number, **fields)
    writer.finish()


def test_files_of_a_project_with_suites_of_one_name_are_one_suite(history: History) -> None:
    one, two = ("shop", "one.yaml"), ("shop", "two.yaml")
    record_files(history, "before", {one: {"a": "+++++", "moves": "+++++"}, two: {"b": "+++++"}})
    record_files(history, "after", {one: {"a": "-----"}, two: {"b": "+++++", "moves": "-----"}})
    diff = compared(history)
    assert [(test.key.name, test.kind) for test in diff.tests] == [
        ("a", Kind.REGRESSED),
        ("b", Kind.UNCHANGED),
        ("moves", Kind.REGRESSED),
    ]
    assert diff.fails
    alone = compare_runs(history.reader(), "after", "after", DiffOptions())
    assert (alone.compared, alone.verdict) == (3, Verdict.UNCHANGED)


def test_a_test_of_a_file_that_is_not_there_any_more_is_removed(history: History) -> None:
    one, two = ("shop", "one.yaml"), ("shop", "two.yaml")
    record_files(history, "before", {one: {"a": "+"}, two: {"b": "+"}})
    record_files(history, "after", {one: {"a": "+"}})
    diff = compared(history)
    assert [test.kind for test in diff.tests] == [Kind.UNCHANGED, Kind.REMOVED]
    assert diff.fails


def test_a_file_of_a_suite_that_could_not_be_loaded_leaves_its_tests_unknown(
    history: History,
) -> None:
    one, two = ("shop", "one.yaml"), ("shop", "two.yaml")
    record_files(history, "before", {one: {"a": "+"}, two: {"b": "+"}})
    after = history.run("after")
    after.suite("agents", tests=[Make.planned("a")], path="one.yaml")
    after.skipped_suite("agents")
    after.execution("a", assertions=(Make.passed(),))
    after.finish()
    diff = compared(history)
    assert [test.kind for test in diff.tests] == [Kind.UNCHANGED, Kind.NOT_RUN]
    assert (diff.verdict, diff.fails) == (Verdict.INCOMPLETE, True)


@pytest.mark.parametrize(
    "tests",
    [
        [("fair", "a"), ("shop", "a")],
        [("shop", "a"), ("fair", "a")],
        [("shop", "a"), ("shop", "b")],
    ],
)
def test_what_is_demanded_in_one_file_changes_nothing_in_another_one(
    history: History, tests: list[tuple[str, str]]
) -> None:
    for run, least, checked in (("before", 0.8, Make.passed), ("after", 0.9, Make.failed)):
        expect = {"judge": [{"criteria": "polite", "minScore": least}]}
        changed = {"config": {"tests": [{"name": name, "expect": expect} for name in "ab"]}}
        writer = history.run(run)
        for file, (project, name) in enumerate(tests):
            config = {"config": json.dumps(changed), "config_hash": run} if file == 0 else {}
            planned = [Make.planned(name, repeat=5)]
            path = f"{file}.yaml"
            writer.suite("agents", tests=planned, project=project, path=path, **config)
            for repeat in range(1, 6):
                polite = checked("judge", "polite")
                writer.execution(name, suite=file, repeat=repeat, assertions=(polite,))
        writer.finish()
    diff = compared(history)
    assert [diff.details(test).config for test in diff.tests] == [("expect",), ()]
    assert [len(pair.checks) for pair in diff.pairs.values()] == [0, 1]


def test_whole_runs_without_a_common_test_are_not_incomplete(history: History) -> None:
    record_run(history, "before", {"a": "+"})
    record_run(history, "after", {"b": "+"})
    diff = compared(history)
    assert (diff.verdict, diff.fails) == (Verdict.NOTHING_COMPARED, True)


def test_a_suite_that_was_not_asked_for_is_not_run_rather_than_removed(history: History) -> None:
    record_run(history, "before", {"a": "+"}, suite="billing")
    record_run(history, "after", {"a": "+"})
    diff = compared(history)
    assert [test.kind for test in diff.tests] == [Kind.ADDED, Kind.NOT_RUN]
    assert diff.left_out == ("billing",)
    assert diff.fails, "nothing was compared"
    assert not compared(history, fail_on=FailOn.NEVER).fails


def test_a_suite_that_could_not_be_loaded_fails(history: History) -> None:
    before = history.run("before")
    before.suite("good", tests=[Make.planned("a")])
    before.suite("broken", tests=[Make.planned("b")])
    before.execution("a")
    before.execution("b", suite=1)
    before.finish()
    after = history.run("after")
    after.suite("good", tests=[Make.planned("a")])
    after.skipped_suite("broken")
    after.execution("a")
    after.finish()
    diff = compared(history)
    assert diff.unloaded == ("broken",)
    assert {test.key.name: test.kind for test in diff.tests}["b"] is Kind.NOT_RUN
    assert diff.fails
    corrected = compare_runs(history.reader(), "after", "before", DiffOptions())
    assert corrected.left_out == (), "that it has no project there says nothing of the other run"


def test_a_run_that_was_stopped_is_compared_as_far_as_it_went(history: History) -> None:
    record_run(history, "before", {"a": "+++", "b": "+++"})
    stopped = record_run(history, "after", {"a": "--", "b": ""}, finish=False)
    stopped.execution("a", repeat=3, finished=False)
    stopped.interrupt()
    a, b = compared(history).tests
    assert (a.after and a.after.counts.n, a.evidence.change) == (2, Change.REGRESSED)
    assert b.evidence.change is Change.NOT_RUN


def test_an_execution_that_was_begun_again_counts_once(history: History) -> None:
    record_run(history, "before", {"a": "+"})
    after = record_run(history, "after", {"a": ""}, finish=False)
    lost = {"tools": (("lookup", {}, {}),), "assertions": (Make.failed(),), "finished": False}
    after.execution("a", number=1, attempt=1, **lost)
    after.execution("a", number=1, attempt=2, assertions=(Make.passed(),))
    after.finish()
    (test,) = compared(history).tests
    assert test.kind is Kind.UNCHANGED


def test_what_ran_before_the_suite_was_changed_is_left_out(history: History) -> None:
    record_run(history, "before", {"b": "+", "d": "+"})
    resumed = history.run("after")
    resumed.suite(tests=[Make.planned("b"), Make.planned("d")])
    for test in "abcde":
        resumed.execution(test, tools=((test, {}, {}),), assertions=(Make.failed(label=test),))
    resumed.finish()
    b, d = compared(history).tests
    assert [b.key.name, d.key.name] == ["b", "d"]
    assert [call.made.tool for call in compared(history).details(d).calls] == ["d"]
    assert d.kind is Kind.REGRESSED


@pytest.mark.parametrize(
    ("threshold", "change"), [(0.05, Change.REGRESSED), (0.3, Change.UNCHANGED)]
)
def test_a_mean_score_that_drops_is_a_regression_even_if_the_test_passes(
    history: History, threshold: float, change: Change
) -> None:
    def judged(score: float) -> list[dict[str, Any]]:
        return [{"assertions": (Make.passed("judge", "kind", score=score),)}] * 3

    test = diff_of(history, judged(0.95), judged(0.75), regression_threshold=threshold)
    assert test.evidence.change is change
    assert bool(test.evidence.dropped_scores) is (change is Change.REGRESSED)


def test_a_weighted_score_that_drops_is_a_regression(history: History) -> None:
    def weighed(score: float) -> list[dict[str, Any]]:
        return [{"assertions": (Make.passed("score", "weighted score", score=score),)}] * 3

    test = diff_of(history, weighed(0.95), weighed(0.75))
    assert (test.evidence.change, test.evidence.strength) == (Change.REGRESSED, Strength.SUSPECTED)
    assert test.evidence.dropped_scores == ("weighted score",)
    (check,) = compared(history).details(test).checks
    assert check.score_dropped
    figures = {figure.name: figure for figure in compare_figures(compared(history).tests)}
    assert "judge" not in figures
    assert (figures["score"].before, figures["score"].after) == pytest.approx((0.95, 0.75))


def graded(kind: str, score: float) -> list[dict[str, Any]]:
    return [{"assertions": (Make.passed(kind, "it", score=score),)}] * 10


@pytest.mark.parametrize("kind", ["python", "similar_to", "hallucination", "acme_tone"])
def test_a_drop_of_any_score_is_a_regression(history: History, kind: str) -> None:
    test = diff_of(history, graded(kind, 1.0), graded(kind, 0.2))
    assert (test.evidence.change, test.evidence.strength) == (Change.REGRESSED, Strength.CONFIRMED)
    assert test.evidence.dropped_scores == (f"{kind} it",)
    assert test.before is not None
    assert test.before.scores == {f"{kind} it": (1.0,) * 10}
    (check,) = changed_checks(compared(history).details(test).checks)
    assert check_text(check) == "10/10, mean score 1.00 → 0.20"
    figures = {figure.name for figure in compare_figures(compared(history).tests)}
    assert not figures & {"judge", "score"}


def test_a_score_that_rises_is_an_improvement(history: History) -> None:
    test = diff_of(history, graded("python", 0.2), graded("python", 0.7))
    assert (test.evidence.change, test.evidence.strength) == (Change.IMPROVED, Strength.CONFIRMED)


@pytest.mark.parametrize("kind", ["python", "contains", "acme_tone"])
def test_a_score_that_says_only_whether_a_check_passed_does_not_count_twice(
    history: History, kind: str
) -> None:
    repeats = [
        {"assertions": (make(kind, "it", score=score),)}
        for make, score in ((Make.passed, 1.0), (Make.failed, 0.0))
    ]
    test = diff_of(history, repeats[:1] * 9 + repeats[1:], repeats[:1] * 3 + repeats[1:] * 7)
    assert test.evidence.change is Change.REGRESSED
    assert test.evidence.dropped_scores == ()
    assert [side.scores for side in (test.before, test.after) if side] == [{}, {}]


@pytest.mark.parametrize("kind", ["drift", "evalview_verdict"])
def test_a_score_that_is_compared_otherwise_does_not_count_twice(
    history: History, kind: str
) -> None:
    assert diff_of(history, graded(kind, 1.0), graded(kind, 0.2)).evidence.dropped_scores == ()


@pytest.mark.parametrize(
    ("fail_on", "before", "after", "fails"),
    [
        (FailOn.DEFAULT, {"tools": (("a", {}, {}),)}, {"tools": (("b", {}, {}),)}, False),
        (FailOn.BEHAVIOUR, {"tools": (("a", {}, {}),)}, {"tools": (("b", {}, {}),)}, True),
        (FailOn.BEHAVIOUR, {"output": "one"}, {"output": "two"}, False),
        (FailOn.NEVER, {}, {"assertions": (Make.failed(),)}, False),
    ],
)
def test_what_fails_is_what_was_asked_for(
    history: History, fail_on: FailOn, before: Any, after: Any, fails: bool
) -> None:
    assert diff_of(history, [before], [after], fail_on=fail_on).fails is fails
    assert compared(history, fail_on=fail_on).fails is fails


def test_any_regression_fails_if_asked_for(history: History) -> None:
    assert not diff_of(history, "+++++", "++++-").fails
    assert compared(history, fail_on=FailOn.ANY).fails


def test_tests_can_be_chosen_by_name(history: History) -> None:
    record_run(history, "before", {"Refund": "+", "greet": "+"})
    record_run(history, "after", {"Refund": "+", "greet": "-"})
    assert [test.key.name for test in compared(history, test="refUND").tests] == ["Refund"]
    assert not compared(history, test="refund").fails
    assert compared(history, test="nothing").tests == ()


def test_a_test_that_is_chosen_is_judged_with_all_others(history: History) -> None:
    others = {f"other {number}": ("++-", "+--") for number in range(5)}
    tests = {"chosen": ("+++", "---"), **others}
    record_run(history, "before", {name: before for name, (before, _) in tests.items()})
    record_run(history, "after", {name: after for name, (_, after) in tests.items()})
    (told, *_) = compared(history).tests
    (chosen,) = compared(history, test="chosen").tests
    assert chosen == told
    assert chosen.evidence.strength is Strength.SUSPECTED
    assert not compared(history, test="chosen").fails


def test_tests_that_are_chosen_stand_for_no_run_as_a_whole(history: History) -> None:
    lost = {f"lost {number}": "++-+++++" for number in range(8)}
    record_run(history, "before", {**lost, "kept": "+"})
    record_run(history, "after", {**dict.fromkeys(lost, "+-+--+++"), "kept": "+"})
    assert compared(history).evidence.run_regressed
    assert compared(history, test="support").fails, "that is the suite: all of them"
    assert not compared(history, test="lost").fails


def test_a_run_and_what_was_rescored_from_it_differ_by_expectations_alone(
    history: History,
) -> None:
    record_run(history, "before", {"a": "+++"})
    rescored = [
        {"assertions": (Make.failed(),), "source": f"before-{number}.1"} for number in (1, 2, 3)
    ]
    record_run(history, "after", {"a": rescored[:1]}, mode="rescored", source_run="before")
    (test,) = compared(history).tests
    assert (test.evidence.strength, test.kind) == (Strength.EXPECTATIONS, Kind.REGRESSED)
    assert test.fails
    assert "the conversations are the same" in (needs_text(test) or "")
    assert "settle" not in next_step(compared(history)).command
    record_run(history, "other", {"a": rescored}, mode="rescored", source_run="before")
    (test,) = compare_runs(history.reader(), "other", "after", DiffOptions()).tests
    assert test.evidence.change is Change.UNCHANGED


@pytest.mark.parametrize(
    ("before", "shared", "new", "change", "counts"),
    [
        pytest.param("++--", [3], "", Change.UNCHANGED, [(0, 1), (0, 1)], id="some are left out"),
        pytest.param("+++", [1, 2], "--", Change.REGRESSED, [(3, 3), (0, 2)], id="some are added"),
    ],
)
def test_conversations_of_both_sides_are_no_evidence(
    history: History, before: str, shared: list[int], new: str, change: Change, counts: Any
) -> None:
    record_run(history, "before", {"a": before})
    after = [{**passes(before[number - 1])[0], "source": f"before-{number}.1"} for number in shared]
    record_run(history, "after", {"a": [*after, *passes(new)]})
    (test,) = compared(history).tests
    assert test.evidence.change is change
    assert [
        (side.counts.passed, side.counts.n) for side in (test.pair.before, test.pair.after)
    ] == counts


def test_repeats_that_were_added_count_in_the_pass_rates(history: History) -> None:
    record_run(history, "before", {"a": "++++", "b": "++++"})
    record_run(history, "after", {"a": "+---", "b": "++++"})
    assert rate_text(compared(history)) == "100 % → 62.5 %"
    record_run(history, "more", {"a": "++++"}, mode="settled", source_run="after")
    assert rate_text(compared(history)) == "100 % → 81.2 %"
    measured = dict(measures(compared(history).tests[0]))
    assert measured["pass rate"].startswith("100 % → 62.5 %, p = ")
    assert measured["pass rate"].endswith(" without the added repeats")
    assert measured["change"].endswith(" points (95 % interval with the added repeats)")


def test_the_change_of_the_run_says_which_tests_it_is_about(history: History) -> None:
    repeated, single = ([f"{kind}{n}" for n in range(8)] for kind in "rs")
    record_run(history, "before", dict.fromkeys(repeated, "+++++") | dict.fromkeys(single, "+"))
    record_run(history, "after", dict.fromkeys(repeated, "-----") | dict.fromkeys(single, "+"))
    diff = compared(history)
    whole = "the run as a whole passes less often, by 100 points on average over 8 tests"
    assert whole in headline_of(diff).reasons
    assert (rate_text(diff) or "").startswith(
        "100 % → 50 %, 95 % interval of the change in 8 of 16 tests: "
    )


def test_a_change_that_two_decimals_would_hide_is_shown(history: History) -> None:
    for run, grade, latency_ms in (("before", 0.877, 76.45), ("after", 0.8742, 76.55)):
        judged = {"assertions": (Make.passed("judge", score=grade),), "latency_ms": latency_ms}
        record_run(history, run, {"a": [judged]})
    rows = dict(figure_rows(compared(history)))
    assert rows["judge"] == "0.88 → 0.87 (-0.003)"
    assert rows["latency"] == "76 ms → 77 ms (+0.1 %)"


def test_the_interval_and_p_leave_out_repeats_that_were_added_to_one_side(history: History) -> None:
    stable = dict.fromkeys("bcdef", "+++++")
    record_run(history, "before", {"a": "+" * 10, **stable})
    record_run(history, "after", {"a": "+++++-----", **stable})
    record_run(history, "more", {"a": "+++++-----"}, mode="settled", source_run="before")
    assert "95 % interval of the change without added repeats: " in (
        rate_text(compared(history)) or ""
    )
    measured = dict(measures(compared(history).tests[0]))
    assert measured["pass rate"].endswith(" without the added repeats")


def test_details_show_the_executions_that_stand_for_both_sides(history: History) -> None:
    before = {
        "tools": (("lookup", {"id": "A1"}, {"ok": True}), ("refund", {"amount": 10}, {})),
        "output": "Refunded 10 dollars.",
        "assertions": (Make.passed(),),
    }
    after = {
        "tools": (("refund", {"amount": 20}, {}),),
        "output": "Refunded 20 dollars.",
        "assertions": (Make.failed(message="No hi."),),
    }
    test = diff_of(history, [before] * 3, [after] * 2 + [before])
    details = compared(history).details(test)
    assert [(call.edit.value, call.made.tool) for call in details.calls] == [
        ("removed", "lookup"),
        ("arguments", "refund"),
    ]
    assert [(s.tools, s.before, s.after) for s in details.sequences] == [
        (("lookup", "refund"), 3, 1),
        (("refund",), 0, 2),
    ]
    (check,) = details.checks
    assert (check.before.passed, check.before.of) == (3, 3)
    assert (check.after.passed, check.after.of) == (1, 3)
    assert (check.failure_code, check.message) == ("CONTAINS_FAILED", "No hi.")
    assert [text for edit, text in details.words["output"].segments if edit != "kept"] == [
        " 10",
        " 20",
    ]


def test_the_prompt_is_compared_as_it_was_sent(history: History) -> None:
    test = diff_of(history, [{"system": "Be kind."}], [{"system": "Be quick."}])
    details = compared(history).details(test)
    assert details.words.keys() == {"system"}
    assert len(details.words["system"].segments) > 1


def test_personal_data_that_was_found_is_shown_redacted(history: History) -> None:
    card = "4111 1111 1111 1111"
    evidence = {"source": "output", "start": 9, "end": 28, "excerpt": "41***************11"}
    leak = {
        "output": f"Card is: {card}.",
        "assertions": (Make.failed("pii", "pii", "PII_DETECTED", evidence=[evidence]),),
    }
    test = diff_of(history, [{"output": "Card is: hidden."}], [leak])
    assert card not in repr(compared(history).details(test))


ADDRESS = "jane.doe@example.com"
FOUND = {"source": "output", "start": 8, "end": 28, "excerpt": "ja****om"}


def test_what_only_one_side_looked_for_is_redacted_on_both(history: History) -> None:
    says = f"Mail to {ADDRESS} today."
    quoting = Make.failed("contains", f"contains {ADDRESS}", message=f"Only {ADDRESS}.")
    before = {"output": f"Yes: {says}", "assertions": (quoting,), "system": f"I am {ADDRESS}."}
    after = {
        "output": says,
        "tools": (("send", {"to": ADDRESS}, {}),),
        "assertions": (Make.failed("pii", "pii", "PII_DETECTED", evidence=[FOUND]),),
    }
    test = diff_of(history, [before], [after])
    details = compared(history).details(test)
    assert "system" in details.words
    assert [check.kind for check in details.checks] == ["pii", "contains"]
    assert ADDRESS not in repr(details)
    assert "ja******" in repr(details)


def test_a_new_check_for_personal_data_changes_no_words(history: History) -> None:
    says = {"output": f"Mail to {ADDRESS} today."}
    found = Make.failed("pii", "pii", "PII_DETECTED", evidence=[FOUND])
    test = diff_of(history, [says], [says | {"assertions": (found,)}])
    assert compared(history).details(test).words.keys() == set()


def test_another_model_of_the_same_target_is_told(history: History) -> None:
    for run, model in (("before", "m-2026-01"), ("after", "m-2026-11")):
        record_run(history, run, {"a": [{"answers_as": model}] * 2, "b": [{"answers_as": "m"}]})
    diff = compared(history)
    assert [tuple(change) for change in compare_models(diff.tests)] == [
        ("gpt", ("m", "m-2026-01"), ("m", "m-2026-11"))
    ]
    same = compare_runs(history.reader(), "before", "before", DiffOptions())
    assert list(compare_models(same.tests)) == []
    said = "gpt answered as another model: m, m-2026-01 → m, m-2026-11."
    assert said in list(notes_of(diff))
    by_name = {test.key.name: dict(measures(test)) for test in diff.tests}
    assert by_name["a"]["model"] == "m-2026-01 → m-2026-11"
    assert "model" not in by_name["b"]


def test_the_same_tests_on_another_target_tell_how_to_compare_models(history: History) -> None:
    record_run(history, "before", {"a": "++", "b": "++"}, target="m-old")
    record_run(history, "after", {"a": "++", "b": "+-"}, target="m-new")
    diff = compared(history)
    (note,) = notes_of(diff)
    assert note.startswith("Tests on another target are other tests: m-old → m-new. To compare")
    assert next_step(diff).why == "choose two runs of the same tests and targets"
    record_run(history, "fewer", {"a": "++"}, target="m-new")
    assert list(notes_of(compare_runs(history.reader(), "after", "fewer", DiffOptions()))) == []


def test_another_model_of_the_same_judge_is_told(history: History) -> None:
    for run, model in (("before", "j-2026-01"), ("after", "j-2026-11")):
        judged = {"judge": '{"score": 0.9}', "judge_answers_as": model}
        record_run(history, run, {"a": [judged] * 2, "b": "++"})
    said = "The judge judge answered as another model: j-2026-01 → j-2026-11."
    assert list(notes_of(compared(history))) == [said]
    same = compare_runs(history.reader(), "after", "after", DiffOptions())
    assert same.judges == ()
    record_run(history, "unjudged", {"a": "++", "b": "++"})
    assert compare_runs(history.reader(), "after", "unjudged", DiffOptions()).judges == ()


def test_numbers_of_the_runs_as_a_whole(history: History) -> None:
    record_run(history, "before", {"a": [{"latency_ms": 100}] * 2, "b": [{"latency_ms": 300}]})
    record_run(history, "after", {"a": [{"latency_ms": 200}] * 2, "b": [{"latency_ms": 500}]})
    figures = {figure.name: figure for figure in compare_figures(compared(history).tests)}
    # Each test counts once, however often it was repeated.
    assert (figures["latency"].before, figures["latency"].after) == (200, 350)
    assert figures["latency"].interval == mean_interval([100, 200])


@pytest.mark.parametrize("fail_on", [FailOn.DEFAULT, FailOn.NEVER])
def test_a_run_that_was_stopped_is_never_unchanged(history: History, fail_on: FailOn) -> None:
    record_run(history, "before", {"a": "+++", "b": "+++"})
    record_run(history, "after", {"a": "+++", "b": ""}, finish=False).interrupt()
    diff = compared(history, fail_on=fail_on)
    assert (diff.verdict, headline_of(diff).word) == (Verdict.INCOMPLETE, "INCOMPLETE")
    assert "run after was interrupted" in headline_of(diff).reasons[0]
    assert next_step(diff).command == "kindlm test --resume after"
    assert diff.fails is (fail_on is not FailOn.NEVER)


def test_what_got_worse_in_a_run_that_was_stopped_is_said_first(history: History) -> None:
    record_run(history, "before", {"a": "+++++", "b": "+++"})
    record_run(history, "after", {"a": "-----", "b": ""}, finish=False).interrupt()
    diff = compared(history)
    assert diff.verdict is Verdict.REGRESSED
    assert "run after was interrupted" in headline_of(diff).reasons[1]


def test_a_stopped_run_before_is_named_and_does_not_fail(history: History) -> None:
    record_run(history, "before", {"a": "+++", "b": "", "c": ""}, finish=False).interrupt()
    record_run(history, "after", {"a": "+++", "b": "+++", "c": ""})
    diff = compared(history)
    headline = headline_of(diff)
    assert (diff.verdict, headline.good, diff.fails) == (Verdict.UNCHANGED, None, False)
    (note,) = notes_of(diff)
    assert note.startswith("Run before is interrupted: ")


def test_texts_that_were_erased_are_neither_a_change_nor_none(history: History) -> None:
    tools = (("lookup", {"id": "secret"}, {}),)
    record_run(history, "before", {"a": [{"output": "secret one", "tools": tools}]})
    record_run(history, "after", {"a": [{"output": "secret two", "tools": tools}]})
    assert compared(history).tests[0].kind is Kind.OTHER_WORDS
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL WHERE body LIKE '%secret%'"
        )
    diff = compared(history)
    assert diff.tests[0].kind is Kind.ERASED
    assert "output" not in diff.details(diff.tests[0]).words
    headline = headline_of(diff)
    assert (headline.word, headline.good) == ("SAME RESULTS", None)
    assert headline.reasons == ("1 test with the same result, whose texts were erased or withheld",)
    assert not diff.fails
    assert compared(history, fail_on=FailOn.BEHAVIOUR).fails


def test_a_text_that_one_side_lacks_shows_no_change(history: History) -> None:
    tools = (("lookup", {"id": "secret"}, {}),)
    record_run(history, "before", {"a": [{"output": "secret", "tools": tools}]})
    tools = (("lookup", {"id": "known"}, {}),)
    record_run(history, "after", {"a": [{"output": "another", "tools": tools}]})
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL WHERE body LIKE '%secret%'"
        )
    diff = compared(history)
    details = diff.details(diff.tests[0])
    assert not details.calls_changed
    ((edit, text),) = details.words["output"].segments
    assert (edit, text) == (Edit.KEPT, "[not compared: erased or withheld]")


def test_erased_arguments_are_not_shown_as_equal(history: History) -> None:
    tools = (("lookup", {"id": "secret"}, {}), ("refund", {"id": 1}, {}))
    record_run(history, "before", {"a": [{"tools": tools}]})
    record_run(history, "after", {"a": [{"tools": (("lookup", {"id": "known"}, {}),)}]})
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL WHERE body LIKE '%secret%'"
        )
    diff = compared(history)
    calls = diff.details(diff.tests[0]).calls
    assert [(call.made.tool, call_aside(call)) for call in calls] == [
        ("lookup", "[not compared: erased or withheld]"),
        ("refund", '{"id": 1}'),
    ]


CHECKED = Make.passed(label="hi")
MORE = Make.passed("max_length", "at most 10")
LEFT_OUT = Make.passed("max_length", "at most 10", outcome=Outcome.SKIPPED)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ({"assertions": (CHECKED, MORE)}, {"assertions": (CHECKED,)}, Kind.OTHER_CHECKS),
        ({"assertions": (CHECKED,)}, {"assertions": (CHECKED, MORE)}, Kind.OTHER_CHECKS),
        (
            {"assertions": (CHECKED, MORE)},
            {"assertions": (CHECKED,), "tools": (("a", {}, {}),)},
            Kind.OTHER_BEHAVIOUR,
        ),
        ({"assertions": (CHECKED, Make.failed())}, {"assertions": (CHECKED,)}, Kind.IMPROVED),
        ({"assertions": (CHECKED,)}, {"assertions": (CHECKED, Make.failed())}, Kind.REGRESSED),
        # What was skipped, or only advises, is no check that is made.
        (
            {"assertions": (CHECKED,)},
            {"assertions": (CHECKED, LEFT_OUT)},
            Kind.UNCHANGED,
        ),
        (
            {"assertions": (CHECKED, Make.passed("pii", "pii", advisory=True))},
            {"assertions": (CHECKED,)},
            Kind.UNCHANGED,
        ),
        (
            {"assertions": (CHECKED, MORE)},
            {"assertions": (CHECKED, replace(MORE, advisory=True))},
            Kind.OTHER_CHECKS,
        ),
    ],
)
@pytest.mark.parametrize("repeats", [1, 3])
def test_checks_that_are_made_on_one_side_only(
    history: History, before: Any, after: Any, kind: Kind, repeats: int
) -> None:
    assert diff_of(history, [before] * repeats, [after] * repeats).kind is kind


def test_what_checks_something_else_and_was_erased_is_not_good(history: History) -> None:
    for run, checks in (("before", (CHECKED, MORE)), ("after", (CHECKED,))):
        record_run(history, run, {"a": [{"output": "secret", "assertions": checks}]})
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL WHERE body = 'secret'"
        )
    diff = compared(history)
    assert diff.tests[0].kind is Kind.OTHER_CHECKS
    headline = headline_of(diff)
    assert (headline.word, headline.good) == ("SAME RESULTS", None)
    assert headline.reasons == ("1 test checked something else with the same result",)
    assert compared(history, fail_on=FailOn.BEHAVIOUR).fails
