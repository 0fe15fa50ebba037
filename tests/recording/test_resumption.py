"""What is recorded of a run that is resumed: read from the events that its sessions began with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kindlm.errors import Ok
from kindlm.events.codec import Payload, new_event
from kindlm.events.run import (
    PlannedTest,
    RunOptions,
    RunResumed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
)
from kindlm.projections import PROJECTIONS
from kindlm.recording.resumption import Unfinished, find_unfinished, read_unfinished
from kindlm_store import EventLog

SECOND = "2026-01-02T03:04:{:02}.000000Z"


def started(name: str, ordinal: int, *, baseline: str | None = None) -> SuiteStarted:
    return SuiteStarted(
        suite=name,
        ordinal=ordinal,
        project="shop",
        front_end="kindlm",
        path=f"{name}.yaml",
        config_hash="0123456789ab",
        config="kindlm: 1",
        gates=(),
        baseline_run=baseline,
        tests=(
            PlannedTest(name="chosen", target="gpt", repeat=3),
            PlannedTest(name="left out", target="gpt", selected=False),
        ),
    )


def skipped(name: str, ordinal: int) -> SuiteSkipped:
    return SuiteSkipped(
        suite=name,
        ordinal=ordinal,
        path=f"{name}.yaml",
        tests=2,
        error_code="CONFIG_PARSE_ERROR",
        error_number=101,
        message="It cannot be read.",
    )


def recorded(folder: Path, *events: tuple[int, Payload]) -> Unfinished:
    """Record events of one run, each at a second, and return what is read of it."""
    with EventLog.open(folder / "history.db", projections=PROJECTIONS) as log:
        made = [new_event(event, at=SECOND.format(at)) for at, event in events]
        log.append("run/k3f9x2ab", made)
        with closing(log.reader()) as reader:
            return read_unfinished(reader, "k3f9x2ab")


def run(**more: object) -> RunStarted:
    return RunStarted(project="shop", planned=6, versions={}, **more)  # type: ignore[arg-type]


def resumed(planned: int) -> RunResumed:
    return RunResumed(by="host:1", planned=planned)


def test_suites_keep_the_order_in_which_they_first_started(tmp_path: Path) -> None:
    found = recorded(
        tmp_path,
        (0, run()),
        (0, started("b", 1)),
        (0, started("c", 2)),
        (0, skipped("a", 0)),
        (0, skipped("d", 3)),
        (1, resumed(9)),
        (1, started("b", 1, baseline="earlier")),
        (1, started("c", 2)),
        (1, started("a", 0)),
        (1, skipped("d", 3)),
    )
    assert list(found.started) == [1, 2, 0]
    assert list(found.skipped) == [3]
    assert found.started_paths == {"a.yaml", "b.yaml", "c.yaml"}
    assert found.planned == 9
    assert found.baselines["shop", "b"] == "earlier"
    assert found.selected == {("shop", name, "chosen", "gpt") for name in "abc"}
    assert not found.is_finished


def test_what_a_run_was_asked_for_is_what_its_first_session_was(tmp_path: Path) -> None:
    options = RunOptions(paths=("a.yaml",), tests=("refund",), max_cost_usd=0.5)
    found = recorded(tmp_path, (0, run(options=options, group="nightly")), (1, resumed(6)))
    assert (found.options, found.group) == (options, "nightly")
    assert (found.started, found.skipped) == ({}, {})


def test_the_latest_run_to_resume_is_one_of_kindlm_with_the_same_paths(tmp_path: Path) -> None:
    started_with = {
        "oldest": RunOptions(paths=("a.yaml",)),
        "middle": RunOptions(paths=("b.yaml",)),
        "newest": RunOptions(paths=("a.yaml",), runner="pytest"),
    }
    with EventLog.open(tmp_path / "history.db", projections=PROJECTIONS) as log:
        for at, (name, options) in enumerate(started_with.items()):
            log.append(f"run/{name}", [new_event(run(options=options), at=SECOND.format(at))])
        with closing(log.reader()) as reader:
            assert find_unfinished(reader, "latest") == Ok("middle")
            assert find_unfinished(reader, "latest", paths=["a.yaml"]) == Ok("oldest")
            assert find_unfinished(reader, "latest", paths=["c.yaml"]) == Ok("middle")


def test_without_paths_the_latest_run_to_resume_is_the_newest_of_all(tmp_path: Path) -> None:
    # Runs of `kindlm rescore` record paths only if some were given.
    started_with = {"older": RunOptions(), "newer": RunOptions(paths=("a.yaml",))}
    with EventLog.open(tmp_path / "history.db", projections=PROJECTIONS) as log:
        for at, (name, options) in enumerate(started_with.items()):
            log.append(f"run/{name}", [new_event(run(options=options), at=SECOND.format(at))])
        with closing(log.reader()) as reader:
            assert find_unfinished(reader, "latest") == Ok("newer")
