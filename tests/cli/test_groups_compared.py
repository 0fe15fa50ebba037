"""Groups of shards are compared like runs, also by words such as `previous`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest


def test_groups_are_compared_as_runs_are(kindlm: Any, history: Any, shard: Any) -> None:
    for before, after, count in (("whole1", "whole2", 1), ("monday", "tuesday", 3)):
        for name, failing in ((before, ()), (after, ("t1", "t4"))):
            for index in range(1, count + 1):
                run = name if count == 1 else f"{name}{index}"
                shard(run, f"{index}/{count}", group=name, failing=failing)

    def compared(*sides: str) -> tuple[int, Any]:
        done = kindlm("diff", *sides, "--format", "json", "--db", history.path)
        diff = json.loads(done.out)
        for name in ("before", "after"):
            diff[name] = None
        diff["verdict"]["next"] = None
        for test in diff["tests"]:
            test["before"]["execution"] = test["after"]["execution"] = None
        return done.code, diff

    expected = compared("whole1", "whole2")
    assert expected[0] == 1
    assert len(expected[1]["tests"]) == 6
    assert compared("monday", "tuesday") == expected
    assert compared("whole1", "tuesday") == expected
    shown = kindlm("diff", "monday", "tuesday", "--db", history.path).out
    assert "kindlm show tuesday2 1" in shown
    assert kindlm("diff", "monday", "monday", "--db", history.path).code == 0


def test_a_group_without_a_test_may_be_the_next_baseline(
    kindlm: Any, history: Any, make: Any
) -> None:
    for group, names in (("monday 1", ("t0", "t1", "t2")), ("tuesday 1", ("t0", "t1"))):
        for index in (0, 1):
            writer = history.run(f"{group[:3]}{index}", shard=f"{index + 1}/2", group=group)
            chosen = names[index::2]
            writer.suite(tests=[make.planned(name, selected=name in chosen) for name in names])
            for name in chosen:
                writer.execution(name, assertions=(make.passed(),))
            writer.finish()
    done = kindlm("diff", "monday 1", "tuesday 1", "--db", history.path)
    assert done.code == 1
    assert "Next  kindlm baseline set 'tuesday 1'" in done.out


def test_a_comparison_says_which_shard_is_missing(kindlm: Any, history: Any, shard: Any) -> None:
    shard("whole1", "1/1")
    shard("aaaa2222", "1/2")
    shown = kindlm("diff", "whole1", "nightly", "--db", history.path)
    assert "Group nightly is incomplete: shard 2/2 is not here." in shown.out


@pytest.fixture
def compared(kindlm: Any, history: Any) -> Callable[..., Any]:
    """Return the ids of both sides of a comparison, or what was said instead."""

    def call(*sides: str) -> Any:
        done = kindlm("diff", *sides, "--format", "json", "--db", history.path)
        if not done.out:
            return done.err
        diff = json.loads(done.out)
        return diff["before"]["id"], diff["after"]["id"]

    return call


def test_words_of_a_comparison_mean_groups_of_which_several_shards_are_here(
    shard: Any, compared: Any
) -> None:
    shard("whole", "1/1")
    for group in ("monday", "tuesday"):
        for part in (1, 2):
            shard(f"{group}{part}", f"{part}/2", group=group)
    for sides, expected in (
        ((), ("monday", "tuesday")),
        (("previous", "latest"), ("monday", "tuesday")),
        (("latest~1",), ("monday", "tuesday")),
        (("previous", "latest~1"), ("whole", "monday")),
        (("monday",), ("monday", "tuesday")),
        (("git:c0ffeec",), ("tuesday", "tuesday")),
        (("previous", "tuesday2"), ("monday", "tuesday2")),
    ):
        assert compared(*sides) == expected


@pytest.mark.parametrize("ends", [None, "interrupt"])
def test_words_pass_over_groups_that_are_not_complete(
    shard: Any, compared: Any, ends: str | None
) -> None:
    for group in ("monday", "tuesday", "wednesday", "thursday"):
        for part in (1, 2, 3):
            is_left = group in ("tuesday", "thursday") and part == 2
            if not is_left:
                shard(f"{group}{part}", f"{part}/3", group=group)
            elif ends is not None:
                shard(f"{group}{part}", f"{part}/3", group=group, ends=ends)
    assert compared() == ("monday", "wednesday")
    assert compared("latest~1") == ("monday", "wednesday")
    assert compared("git:c0ffeec") == ("wednesday", "wednesday")
    assert compared("previous", "thursday") == ("wednesday", "thursday")
    assert compared("tuesday", "latest") == ("tuesday", "wednesday")


@pytest.mark.parametrize("command", [("diff",), ("baseline", "compare")])
def test_that_the_newest_run_or_group_is_passed_over_is_said(
    kindlm: Any, history: Any, shard: Any, command: tuple[str, ...]
) -> None:
    def passed_over() -> str:
        done = kindlm(*command, "--db", history.path)
        assert done.code == 0
        return str(done.err)

    shard("aaaa2222", "1/1")
    assert kindlm("baseline", "set", "--db", history.path).code == 0
    shard("bbbb2222", "1/1")
    assert "is unfinished" not in passed_over()
    shard("cccc2222", "1/1", ends="interrupt", failing=("t0",))
    assert "The newest one, run cccc2222, is unfinished: it is not compared." in passed_over()
    shard("dddd2222", "1/3", group="monday", failing=("t0",))
    shard("eeee2222", "2/3", group="monday")
    assert "The newest one, group monday, is unfinished: it is not compared." in passed_over()
    shard("ffff2222", "1/1")
    assert "is unfinished" not in passed_over()


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_that_the_newest_run_is_a_single_shard_is_said(
    kindlm: Any, history: Any, shard: Any, command: str
) -> None:
    shard("aaaa2222", "1/1")
    shard("bbbb2222", "1/3")
    shard("cccc2222", "2/3")
    only = "Run cccc2222, the newest finished one, is only shard 2/3."
    assert only in kindlm(command, "--db", history.path).err
    assert "only shard" not in kindlm(command, "cccc2222", "--db", history.path).err
    assert "only shard" not in kindlm(command, "aaaa2222", "--db", history.path).err


def test_groups_of_one_name_in_several_projects_are_known_apart(
    kindlm: Any, history: Any, shard: Any, compared: Any
) -> None:
    groups = ("monday", "tuesday")
    for group in groups:
        for part in (1, 2):
            of_group: dict[str, str] = {"shard": f"{part}/2", "group": group}
            history.run(f"garden{group}{part}", **of_group, project="garden").finish()
    for group in groups:
        for part in (1, 2):
            shard(f"{group}{part}", f"{part}/2", group=group)
    assert compared() == groups
    followed = kindlm("tail", "latest", "--db", history.path)
    assert (followed.code, followed.out.splitlines()[-1]) == (0, "PASSED: 6 tests passed")
    assert kindlm("baseline", "set", "--db", history.path).code == 0
    assert compared("baseline", "latest~1") == ("tuesday", "monday")


def test_a_whole_run_is_compared_with_the_group_before_it(
    kindlm: Any, history: Any, shard: Any, compared: Any
) -> None:
    for part in (1, 2):
        shard(f"monday{part}", f"{part}/2", group="monday")
    shard("whole", "1/1", failing=("t1",))
    assert compared() == ("monday", "whole")
    shown = kindlm("show", "whole", "--db", history.path).out
    assert "Since monday: 1 test newly failed" in shown
    assert "kindlm diff monday whole" in shown
    report = kindlm("report", "whole", "--format", "markdown", "--db", history.path)
    assert "#### Since run `monday`: " in report.out


def test_a_group_is_before_another_though_a_shard_of_it_ran_later(
    shard: Any, compared: Any
) -> None:
    for run in ("monday1", "tuesday1", "monday2", "tuesday2"):
        shard(run, f"{run[-1]}/2", group=run[:-1])
    assert compared() == ("monday", "tuesday")
    assert "No run of 'support' finished before" in compared("previous", "monday")


def test_a_shard_that_is_alone_is_compared_with_the_same_part(shard: Any, compared: Any) -> None:
    for group in ("monday", "tuesday"):
        shard(f"{group}2", "2/2", group=group)
    assert compared() == ("monday2", "tuesday2")
    for part in (1, 2):
        shard(f"friday{part}", f"{part}/2", group="friday")
    # The rest of Tuesday is not here: nothing to compare all of Friday with.
    assert "before group 'friday'" in compared()


def test_words_say_of_a_group_that_is_no_run_why(shard: Any, compared: Any) -> None:
    shard("whole", "1/1")
    shard("aaaa2222", "1/2")
    shard("bbbb2222", "2/2", config_hash="fedcba987654")
    said = " ".join(compared().split())
    assert "The shards of group 'nightly' are not parts of one run" in said
    assert "kindlm runs" in said


def test_the_baseline_of_a_group_is_that_of_its_suites(
    kindlm: Any, history: Any, shard: Any, compared: Any
) -> None:
    shard("whole", "1/1")
    for part in (1, 2):
        shard(f"monday{part}", f"{part}/2", group="monday")
    assert "(group 'monday')" in " ".join(compared("baseline").split())
    assert kindlm("baseline", "set", "whole", "--db", history.path).code == 0
    assert compared("baseline") == ("whole", "monday")
