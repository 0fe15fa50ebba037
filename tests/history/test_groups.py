"""Which parts of a group the history has, and what they are together."""

from __future__ import annotations

import io
from dataclasses import fields

import pytest

from kindlm.errors import Err, Ok
from kindlm.events.run import GitState, RunOptions
from kindlm.history.groups import SELECTING
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.report_registry import ReportOptions, find_report


def shard_run(history, make, name, shard, *, group="g", project="shop", finished=True):
    run = history.run(name, shard=shard, group=group, project=project)
    run.suite(tests=[make.planned()])
    run.execution()
    return run.finish() if finished else run.leave()


def test_what_is_missing_and_what_did_not_finish(history, make):
    shard_run(history, make, "aaaa2222", "1/4")
    view = shard_run(history, make, "bbbb2222", "2/4", finished=False)
    assert view.shard_of.count == 4
    assert view.shard_of.missing == (3, 4)
    assert [shard.index for shard in view.shard_of.unfinished] == [2]


def test_a_part_that_finished_once_is_there_however_often_it_was_stopped(history, make):
    shard_run(history, make, "aaaa2222", "1/2", finished=False)
    shard_run(history, make, "bbbb2222", "1/2")
    view = shard_run(history, make, "cccc2222", "1/2", finished=False)
    assert view.shard_of.missing == (2,)
    assert view.shard_of.unfinished == ()


@pytest.mark.parametrize(
    "other", [{"group": "h"}, {"project": "garden"}, {"shard": "2/3"}, {"shard": "2/22"}]
)
def test_parts_of_other_groups_do_not_count(history, make, other):
    shard_run(history, make, "aaaa2222", **({"shard": "2/2"} | other))
    view = shard_run(history, make, "bbbb2222", "1/2")
    assert (view.shard_of.runs, view.shard_of.missing) == (("bbbb2222",), (2,))


def test_a_run_that_is_whole_is_no_shard(history, make):
    assert shard_run(history, make, "aaaa2222", None).shard_of is None


def test_without_a_group_nothing_is_known_of_others(history, make):
    assert shard_run(history, make, "aaaa2222", "1/3", group=None).shard_of is None


def group_of(history, name="g"):
    found = find_run_or_group(history.reader(), name)
    assert isinstance(found, Ok), found
    return found.value


def test_a_run_is_meant_before_a_group_and_a_group_before_a_label(history, make):
    shard_run(history, make, "aaaa2222", "1/1", group="bbbb2222")
    shard_run(history, make, "bbbb2222", "1/1", group="v2")
    history.label("aaaa2222", "v2")
    assert group_of(history, "bbbb2222") == "bbbb2222"
    assert group_of(history, "v2").runs == ("bbbb2222",)
    assert group_of(history, "aaaa") == "aaaa2222"


def test_a_group_lasts_from_its_first_shard_to_the_end_of_its_last(history, make):
    for name, shard, test, milliseconds in (
        ("aaaa2222", "1/2", "one", 1000.0),
        ("bbbb2222", "2/2", "two", 250.0),
    ):
        run = history.run(name, shard=shard, group="g")
        run.suite(tests=[make.planned(each, selected=each == test) for each in ("one", "two")])
        run.execution(test, assertions=(make.passed(),))
        run.finish(duration_ms=milliseconds)
    first, last = (RunView(history.reader(), name).info for name in ("aaaa2222", "bbbb2222"))
    whole = RunView(history.reader(), group_of(history)).info
    assert (whole.started_at, whole.finished_at) == (first.started_at, last.finished_at)
    assert (whole.ended, whole.duration_ms) == ("finished", 1250.0)
    history.run("cccc2222", shard="1/2", group="h").finish()
    history.run("dddd2222", shard="2/2", group="h").leave()
    part = RunView(history.reader(), group_of(history, "h")).info
    assert (part.ended, part.finished_at, part.duration_ms) == ("incomplete", None, None)


@pytest.mark.parametrize(
    ("second", "shown"),
    [
        (GitState(commit="a" * 40, branch="main"), ("a" * 40, "main", True)),
        (GitState(commit="b" * 40, branch="main"), (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_a_group_has_the_commit_that_all_its_shards_tested(history, second, shown):
    first = GitState(commit="a" * 40, branch="main", dirty=True)
    history.run("aaaa2222", shard="1/2", group="g", git=first).finish()
    history.run("bbbb2222", shard="2/2", group="g", git=second).finish()
    whole = RunView(history.reader(), group_of(history)).info
    assert (whole.git_commit, whole.git_branch, whole.git_dirty) == shown


def test_a_test_that_two_shards_ran_is_no_part_of_one_run(history, make):
    shard_run(history, make, "aaaa2222", "1/2")
    shard_run(history, make, "bbbb2222", "2/2")
    found = find_run_or_group(history.reader(), "g")
    assert isinstance(found, Err)
    assert "both have the test 'greets' on gpt" in found.error.message


def test_a_suite_that_one_shard_could_not_load_has_not_been_run_as_a_whole(history, make):
    names = ("one", "two", "three")
    run = history.run("aaaa2222", shard="1/2", group="g")
    run.suite(tests=[make.planned(name, selected=name != "two") for name in names], path="s.yaml")
    run.execution("one", assertions=(make.passed(),))
    run.execution("three", assertions=(make.passed(),))
    run.finish()
    run = history.run("bbbb2222", shard="2/2", group="g")
    run.skipped_suite("s", tests=3)
    run.finish()
    view = RunView(history.reader(), group_of(history))
    (suite,) = view.suites
    assert suite.error == "Unknown key `tset`."
    assert (suite.tests.passed, suite.tests.skipped) == (2, 1)
    assert [test.name for test in view.tests()] == ["one", "three"]
    assert (view.status, view.passed) == ("failed", False)


@pytest.mark.parametrize(
    ("end", "has_run", "alike"),
    [("finish", False, False), ("leave", True, False), ("leave", False, True)],
)
def test_a_shard_may_lack_suites_until_it_finishes_or_begins_an_execution(
    history, make, end, has_run, alike
):
    one, two = (make.planned(name) for name in ("one", "two"))
    whole = history.run("aaaa2222", shard="1/2", group="g")
    whole.suite("a", tests=[one], path="a.yaml")
    whole.suite("b", tests=[], path="b.yaml")
    whole.finish()
    part = history.run("bbbb2222", shard="2/2", group="g")
    part.suite("a", tests=[two], path="a.yaml")
    if has_run:
        part.execution("two")
    getattr(part, end)()
    found = find_run_or_group(history.reader(), "g")
    assert isinstance(found, Ok if alike else Err), found
    if not alike:
        assert "ran different suites" in found.error.message


NOT_SELECTING = {
    "concurrency",
    "timeout_ms",
    "fail_fast",
    "shard",
    "force_resume",
    "max_cost_usd",
    "max_rpm",
    "cache",
}
"""The options that shards of one run may differ in. An option that decides which tests a run has,
or how they are judged, belongs to `SELECTING` instead."""


def test_each_option_is_compared_or_selects_nothing():
    assert {option.name for option in fields(RunOptions)} == {
        *SELECTING,
        *NOT_SELECTING,
    }


GIVEN = {
    "paths": ["a"],
    "tests": ["a"],
    "tags": ["a"],
    "models": ["a"],
    "repeat": 3,
    "failed": True,
    "runner": "pytest",
}


@pytest.mark.parametrize("name", SELECTING)
def test_shards_that_were_selected_differently_are_no_parts_of_one_run(history, make, name):
    given = GIVEN.get(name, "text")
    for run, shard, options in (
        ("aaaa2222", "1/2", RunOptions()),
        ("bbbb2222", "2/2", RunOptions(**{name: given})),
    ):
        writer = history.run(run, shard=shard, group="g", options=options)
        writer.suite(tests=[make.planned(shard)])
        writer.execution(shard, assertions=(make.passed(),))
        writer.finish()
    found = find_run_or_group(history.reader(), "g")
    assert isinstance(found, Err)
    assert f"different options ({name})" in found.error.message


@pytest.mark.parametrize(("second", "alike"), [("bd", True), ("d", False)])
def test_failed_tests_are_dealt_to_all_shards_in_turn(history, make, second, alike):
    # Where a and c pass before the second shard begins, it is dealt every second of b and d.
    for run, shard, chosen in (("aaaa2222", "1/2", "ac"), ("bbbb2222", "2/2", second)):
        writer = history.run(run, shard=shard, group="g", options=RunOptions(failed=True))
        writer.suite(tests=[make.planned(name, selected=name in chosen) for name in "abcd"])
        for name in chosen:
            writer.execution(name, assertions=(make.passed(),))
        writer.finish()
    found = find_run_or_group(history.reader(), "g")
    assert isinstance(found, Ok if alike else Err), found
    if not alike:
        assert "(--failed)" in found.error.message


@pytest.mark.parametrize("form", ["terminal", "json", "junit"])
def test_more_shards_are_no_more_questions(history, make, form):
    asked = []
    for count in (2, 12):
        for index in range(1, count + 1):
            run = history.run(f"run{count}of{index}", shard=f"{index}/{count}", group=f"of{count}")
            tests = [make.planned(f"test {n}", selected=n % count == index - 1) for n in range(12)]
            run.suite(tests=tests)
            for test in tests:
                if test.selected:
                    run.execution(test.name, assertions=(make.passed(),))
            run.finish()
        db = history.reader()
        view = RunView(db, group_of(history, f"of{count}"))
        statements = []
        db.set_trace_callback(statements.append)
        find_report(form).value.write(view, io.StringIO(), ReportOptions())
        asked.append(len(statements))
    assert asked[0] == asked[1] > 0
