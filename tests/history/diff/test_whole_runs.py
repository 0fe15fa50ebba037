"""What is said of two runs as a whole, and which tests of them count."""

from __future__ import annotations

import pytest
from compared_runs import compared, record_run
from recorded_history import History, Make

from kindlm.history.diff.evidence_values import Change, FailOn, Kind, Verdict
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.groups import group_of


def test_a_test_that_a_whole_run_before_did_not_select_is_no_gap_of_it(history: History) -> None:
    record_run(history, "before", {"a": "", "b": "+"}, unselected=("a",))
    record_run(history, "after", {"a": "+", "b": "+"})
    assert not compared(history).lacked_results


def test_a_stopped_run_with_nothing_to_compare_is_incomplete(history: History) -> None:
    record_run(history, "before", {"a": "+"})
    record_run(history, "after", {"a": ""}, finish=False).interrupt()
    diff = compared(history)
    assert (diff.compared, diff.verdict, diff.fails) == (0, Verdict.INCOMPLETE, True)


def test_conversations_that_are_the_same_are_known_without_their_texts(history: History) -> None:
    record_run(history, "before", {"a": "+++"})
    again = [
        {"assertions": (Make.passed(),), "source": f"before-{number}.1", "output": "secret"}
        for number in (1, 2, 3)
    ]
    record_run(history, "after", {"a": again}, mode="rescored", source_run="before")
    history.erase("run/before")
    (test,) = compared(history).tests
    assert (test.kind, test.behaviour.erased) == (Kind.UNCHANGED, False)
    assert not compared(history, fail_on=FailOn.BEHAVIOUR).fails


@pytest.mark.parametrize(
    ("config", "kind"), [("0" * 12, Kind.UNCHANGED), ("1" * 12, Kind.OTHER_CHECKS)]
)
def test_one_label_that_differs_is_another_check_only_if_the_suite_does(
    history: History, config: str, kind: Kind
) -> None:
    for run, label, config_hash in (("before", "order 1", "0" * 12), ("after", "order 2", config)):
        writer = history.run(run)
        writer.suite(tests=[Make.planned("a")], config_hash=config_hash)
        writer.execution("a", assertions=(Make.passed(label=label),))
        writer.finish()
    (test,) = compared(history).tests
    assert test.kind is kind


def test_repeats_that_were_added_to_both_runs_count_on_their_sides(history: History) -> None:
    record_run(history, "before", {"a": "++++"})
    record_run(history, "after", {"a": "+---"})
    record_run(history, "more", {"a": "+-"}, mode="settled", source_run="before")
    record_run(history, "most", {"a": "++++"}, mode="settled", source_run="after")
    (test,) = compared(history).tests
    assert (test.added_before, test.added) == ((1, 2), (4, 4))
    assert test.pass_rates == pytest.approx((5 / 6, 5 / 8))


def test_suites_are_named_only_if_there_are_several(history: History) -> None:
    for run in ("before", "after"):
        record_run(history, run, {"a": "+"})
    assert not compared(history).has_several_suites
    for run in ("first", "second"):
        writer = history.run(run)
        for ordinal, suite in enumerate(("one", "two")):
            writer.suite(suite, tests=[Make.planned("a")])
            writer.execution("a", suite=ordinal, assertions=(Make.passed(),))
        writer.finish()
    assert compare_runs(history.reader(), "first", "second", DiffOptions()).has_several_suites


def test_shards_are_compared_with_a_run_of_all_their_tests(history: History) -> None:
    tests = {"a": "+++", "b": "+++", "c": "+++"}
    record_run(history, "before", tests)
    for number, own in enumerate(({"b": "---"}, {"a": "+++", "c": "+++"}), start=1):
        shard = {"shard": f"{number}/2", "group": "g"}
        record_run(history, f"part{number}", dict.fromkeys(tests, "") | own, **shard)
    group = group_of(history.reader(), ("part1", "part2"))
    diff = compare_runs(history.reader(), "before", group, DiffOptions())
    assert [(test.key.name, test.evidence.change) for test in diff.tests] == [
        ("a", Change.UNCHANGED),
        ("b", Change.REGRESSED),
        ("c", Change.UNCHANGED),
    ]


@pytest.mark.parametrize(
    ("unread", "change"), [((), Change.REMOVED), (("b.yaml",), Change.NOT_RUN)]
)
def test_a_test_may_be_defined_in_a_file_that_could_not_be_loaded(
    history: History, unread: tuple[str, ...], change: Change
) -> None:
    record_run(history, "before", {"a": "+", "gone": "+"})
    writer = history.run("after")
    writer.suite(tests=[Make.planned("a")], unread=unread)
    writer.execution("a", assertions=(Make.passed(),))
    writer.finish()
    assert [test.evidence.change for test in compared(history).tests] == [Change.UNCHANGED, change]


def test_a_suite_is_whole_if_one_of_its_name_in_another_project_is_not(history: History) -> None:
    for run in ("before", "after"):
        writer = history.run(run, planned=2)
        for project in ("shop", "desk"):
            suite = writer.suite(project=project, tests=[Make.planned("a")])
            if project == "shop":
                writer.execution("a", suite=suite, assertions=(Make.passed(),))
        writer.interrupt()
    for project in ("shop", "desk"):
        diff = compared(history, suites=frozenset([(project, "support")]))
        assert diff.lacks_results == (project == "desk")
