"""Runs that are killed at moments of chance: the history is whole, and the run is finished."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from checked_server import LoopbackServer
from orders import asked, comparable, events_of, order, serve_orders, write_orders
from workspace import Workspace, new_workspace, until

TESTS = 12

LATER, SOONER = 1.2, 0.7
"""By what the moments of kills are multiplied after one that came too early, or too late."""


def ordinary(folder: Path, server: LoopbackServer) -> Workspace:
    folder.mkdir()
    workspace = new_workspace(folder)
    # Answers take their time, so that there is something to be killed in.
    tests = [order(f"k{n}", says="delivered" if n % 5 else "nowhere") for n in range(TESTS)]
    write_orders(workspace, server, tests, defaults={"concurrency": 3})
    return workspace


@dataclass
class Aim:
    """Between how many seconds after its start a run is killed.

    They are measured once, and what else the machine does meanwhile changes: each miss moves them.
    """

    earliest: float
    latest: float

    def move(self, factor: float) -> None:
        self.earliest *= factor
        self.latest *= factor


def kill_somewhere(workspace: Workspace, dice: Random, aim: Aim, *arguments: str) -> None:
    process = workspace.start("test", *arguments)
    # No wait for anything: the moment itself is left to chance.
    time.sleep(dice.uniform(aim.earliest, aim.latest))
    process.kill()
    process.communicate()


def ended(workspace: Workspace) -> dict[str, str]:
    """The executions that are known to have ended, and how, by test."""
    return dict(workspace.query("SELECT test, status FROM executions WHERE status IS NOT NULL"))


def in_flight(workspace: Workspace) -> bool:
    return bool(workspace.query("SELECT 1 FROM runs WHERE ended IS NULL"))


def is_recorded(workspace: Workspace) -> bool:
    """Whether the process came as far as to write anything of the run."""
    if not workspace.database.exists():
        return False
    with suppress(sqlite3.OperationalError):
        return bool(workspace.query("SELECT 1 FROM runs"))
    return False


@pytest.mark.timeout(7_200)
def test_killed_at_any_moment_and_resumed(tmp_path: Path, rounds: int, dice: Random) -> None:
    with serve_orders() as server:
        server.use_faults([{"latencyMs": 30}])
        whole = ordinary(tmp_path / "whole", server)
        began = time.monotonic()
        # Started as those that are killed, so that it takes as long.
        process = whole.start("test", "--reporter", "json")
        until(lambda: server.requests)
        asking = time.monotonic() - began
        written, _ = process.communicate()
        aim = Aim(0.5 * asking, 1.2 * (time.monotonic() - began))
        expected = json.loads(written)
        # 200 of them when the tests are asked to go on for longer.
        hits = []
        for number in range(3 if rounds == 1 else max(200, 3 * rounds)):
            workspace = ordinary(tmp_path / str(number), server)
            # Chance may miss: most of what a process takes is to start. Each second one asks.
            behind = len(server.requests) if number % 2 else None
            hits.append(killed_and_finished(workspace, server, dice, aim, expected, behind))
        assert any(hits)


def killed_and_finished(
    workspace: Workspace,
    server: LoopbackServer,
    dice: Random,
    aim: Aim,
    expected: Any,
    behind: int | None,
) -> bool:
    """Kill a run up to three times and finish it; return whether it was hit while it went on.

    It is killed at any moment at first, or after the first request behind so many others.
    """
    if behind is not None:
        process = workspace.start("test")
        until(lambda: len(server.requests) > behind)
        time.sleep(dice.uniform(0, 0.1))
        process.kill()
        process.communicate()
    else:
        kill_somewhere(workspace, dice, aim)
    if not is_recorded(workspace):
        aim.move(LATER)
    elif not in_flight(workspace):
        aim.move(SOONER)
    hit = False
    for _ in range(dice.randrange(3)):
        if not (is_recorded(workspace) and in_flight(workspace)):
            break
        hit = True
        assert_whole(workspace)
        known, events = ended(workspace), events_of(workspace)
        since = len(server.requests)
        kill_somewhere(workspace, dice, aim, "--resume")
        assert_untouched(workspace, server, known, events, since)
    if not is_recorded(workspace):
        return hit
    if in_flight(workspace):
        hit = True
        assert_whole(workspace)
        known, events = ended(workspace), events_of(workspace)
        since = len(server.requests)
        workspace.report("--resume")
        assert_untouched(workspace, server, known, events, since)
    assert_whole(workspace)
    report = json.loads(workspace.run("report", "--format", "json").stdout)
    assert without_spend(comparable(report)) == without_spend(comparable(expected))
    spent = workspace.query("SELECT sum(cost_usd), sum(purpose = 'test') FROM provider_calls")
    told = report["summary"]["costUsd"] + report["summary"]["judgeCostUsd"]
    assert abs(told - spent[0][0]) < 1e-9
    return hit


def assert_whole(workspace: Workspace) -> None:
    verified = workspace.run("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert workspace.query("PRAGMA integrity_check") == [("ok",)]


def assert_untouched(
    workspace: Workspace,
    server: LoopbackServer,
    known: dict[str, str],
    events: list[tuple[Any, ...]],
    since: int,
) -> None:
    """What had ended is as it was, and no model was asked about it again."""
    assert events_of(workspace)[: len(events)] == events
    assert ended(workspace).items() >= known.items()
    again = {name for name, _ in asked(server, since)}
    assert not again & known.keys()


def without_spend(report: Any) -> Any:
    """What is left of a report without what later attempts spent on top."""
    summary = {
        name: value
        for name, value in report["summary"].items()
        if name not in ("costUsd", "judgeCostUsd", "tokens")
    }
    return report | {"summary": summary}


def test_killed_right_after_each_of_the_first_requests(tmp_path: Path) -> None:
    """The moments in which the first things are written, one after another."""
    with serve_orders() as server:
        for count in (1, 3):
            workspace = ordinary(tmp_path / str(count), server)
            since = len(server.requests)
            process = workspace.start("test", "-j", "1")
            while len(server.requests) - since < count:
                assert process.poll() is None
                time.sleep(0.001)
            process.kill()
            process.communicate()
            assert_whole(workspace)
            known = ended(workspace)
            asked_before: Counter[tuple[str, str]] = asked(server, since)
            report = workspace.report("--resume")
            assert report["summary"]["executions"]["total"] == TESTS
            times = asked(server, since)
            for name in known:
                assert times[name, "agent"] == asked_before[name, "agent"] == 1
