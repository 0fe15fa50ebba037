"""`kindlm runs --test`: a test over time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.cli.commands.runs import sparkline
from kindlm.events.run import GitState


@pytest.fixture
def record(history: Any, make: Any) -> Any:
    """Record a run of one test; `passed` says y or n for each repeat."""

    def call(
        run: str,
        passed: str = "yy",
        *,
        test: str = "greets",
        target: str = "gpt",
        suite: str = "support",
        commit: str = "a" * 40,
        judge: float | None = None,
        dirty: bool = False,
        config_hash: str = "0123456789ab",
        model: str | None = None,
        **started: Any,
    ) -> Any:
        writer = history.run(
            run, git=GitState(commit=commit, branch="main", dirty=dirty), **started
        )
        planned = [make.planned(test, target, repeat=len(passed))]
        writer.suite(suite, tests=planned, config_hash=config_hash)
        for repeat, good in enumerate(passed, start=1):
            said = make.passed() if good == "y" else make.failed()
            judged = [] if judge is None else [make.passed(kind="judge", label="kind", score=judge)]
            writer.execution(
                test,
                target,
                repeat=repeat,
                assertions=(said, *judged),
                latency_ms=100.0,
                answers_as=model,
            )
        return writer

    return call


@pytest.fixture
def runs(kindlm: Any, history: Any) -> Any:
    """Run `kindlm runs` on the history."""

    def call(*arguments: str) -> Any:
        return kindlm("runs", *arguments, "--db", history.path)

    return call


def points(runs: Any, *arguments: str) -> list[dict[str, Any]]:
    (test,) = json.loads(runs(*arguments, "--format", "json").out)["tests"]
    found: list[dict[str, Any]] = test["runs"]
    return found


def test_each_run_has_a_line_the_newest_first(runs: Any, record: Any) -> None:
    record("run1", "yy", judge=0.9).finish()
    record("run2", "yn", judge=0.7, label="v2", commit="b" * 40).finish()

    outcome = runs("--test", "greets")

    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "greets · gpt  support, shop"
    assert [line.split()[0] for line in lines[-2:]] == ["run2", "run1"]
    for part in ("v2", "failed", "1/2", "0.70", "100 ms", "$0.0020", "gpt", "bbbbbbbb"):
        assert part in lines[-2]
    assert lines[-2].endswith("git aaaaaaaa → bbbbbbbb")
    assert "75 %, 3 of 4" in outcome.out
    assert "0.70 to 0.90" in outcome.out


def test_programs_get_all_of_it(runs: Any, record: Any) -> None:
    record("run1", "yy", judge=0.9).finish()
    record("run2", "yn").finish()

    report = json.loads(runs("-t", "greets", "--format", "json").out)

    (test,) = report["tests"]
    assert (test["project"], test["suite"], test["target"]) == ("shop", "support", "gpt")
    assert test["flakiness"] == {"within": 0.5, "between": 1.0, "passedLater": 0}
    newer, older = test["runs"]
    assert (newer["id"], newer["status"], newer["passRate"]) == ("run2", "failed", 0.5)
    assert newer["executions"] == {"passed": 1, "failed": 1, "errored": 0, "skipped": 0}
    assert (newer["judgeAvg"], older["judgeAvg"]) == (None, 0.9)
    assert (newer["latencyAvgMs"], newer["costUsd"], newer["models"]) == (100.0, 0.002, ["gpt"])
    assert (newer["changes"], older["changes"]) == ([], [])


def test_what_changed_is_reported_also_of_the_oldest_that_is_listed(runs: Any, record: Any) -> None:
    record("run1").finish()
    record("run2", commit="b" * 40, versions={"kindlm": "0.2.0"}).finish()

    (newest,) = points(runs, "-t", "greets", "--limit", "1")

    assert newest["changes"] == ["git aaaaaaaa → bbbbbbbb", "kindlm 0.1.0 → 0.2.0"]


def test_another_configuration_or_model_and_uncommitted_changes_are_reported(
    runs: Any, record: Any
) -> None:
    record("run1", model="m-1").finish()
    record("run2", model="m-2", config_hash="ba9876543210", dirty=True).finish()

    newest, _ = points(runs, "-t", "greets")

    assert newest["changes"] == ["config", "model m-1 → m-2", "uncommitted changes"]


def test_a_run_that_was_stopped_is_marked(runs: Any, history: Any, make: Any, record: Any) -> None:
    record("run1").finish()
    record("run2", "y").interrupt()
    writer = history.run("run3")
    writer.suite(tests=[make.planned(repeat=2)])
    writer.interrupt()

    outcome = runs("-t", "greets")

    untouched, stopped, _ = outcome.out.splitlines()[-3:]
    assert "interrupted" in stopped
    assert "1/1" in stopped
    assert " - " in untouched
    assert "skipped" in untouched


def test_conversations_are_counted_once_and_added_repeats_are_distinguished(
    runs: Any, record: Any
) -> None:
    record("run1", "yyyy").finish()
    record("run2", "nnnn", mode="rescored", source_run="run1").finish()
    record("run3", "nnnn", mode="replayed", source_run="run1").finish()
    record("run4", "nn", mode="settled", source_run="run1").finish()
    shown = runs("-t", "greets").out
    assert "100 %, 4 of 4\n" in shown
    assert all(run in shown for run in ("run1", "run2", "run3", "run4"))


def test_tests_of_one_name_are_distinguished(runs: Any, record: Any) -> None:
    record("run1").finish()
    record("run2", target="claude").finish()
    record("run3", suite="sales").finish()

    def found(*options: str) -> list[tuple[str, str]]:
        report = json.loads(runs("-t", "greets", "--format", "json", *options).out)
        return [(test["suite"], test["target"]) for test in report["tests"]]

    assert found() == [("sales", "gpt"), ("support", "claude"), ("support", "gpt")]
    assert found("--suite", "sales") == [("sales", "gpt")]
    assert found("--model", "claude") == [("support", "claude")]
    missed = runs("-t", "greets", "--suite", "sales", "--model", "claude")
    assert (missed.code, missed.out) == (1, "")
    assert "of suite 'sales' on 'claude'" in missed.err


def test_a_part_of_the_name_will_do_unless_it_is_a_name(runs: Any, record: Any) -> None:
    record("run1", test="greets warmly").finish()
    record("run2", test="Greets").finish()

    assert "greets warmly · gpt" in runs("-t", "WARM").out
    both = runs("-t", "greets").out
    assert "greets warmly · gpt" in both
    assert "Greets · gpt" in both
    assert "warmly" not in runs("-t", "Greets").out


def test_names_reach_the_terminal_harmless(runs: Any, record: Any) -> None:
    record("run1", test="x\x1b[2J", label="y\x1b[2J").finish()

    assert "\x1b" not in runs("-t", "x").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-t", "nothing"), "has 'nothing' in its name"),
        (("--model", "gpt"), "goes with --test"),
        (("-t", "greets", "--since", "soon"), "not an age or a date"),
    ],
)
def test_what_cannot_be_shown(
    runs: Any, record: Any, arguments: tuple[str, ...], words: str
) -> None:
    record("run1").finish()

    outcome = runs(*arguments)

    assert (outcome.code, outcome.out) == (1, "")
    assert words in outcome.err


def test_a_sparkline_scales_values_and_leaves_gaps() -> None:
    assert sparkline([0.0, 0.5, 1.0, None], 1) == "▁▅█ "
    assert sparkline([0.0, 0.0], 0) == "██"
    assert sparkline([], 1) == ""
