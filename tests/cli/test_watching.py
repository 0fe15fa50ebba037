"""When `kindlm watch` runs the tests again, on real files and in virtual time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from virtual_time import run_at_once

from kindlm.cli.commands.watch_rounds import Problem, Watch, look
from kindlm.cli.options import TestOptions

SUITE = {
    "kindlm": 1,
    "project": "shop",
    "suite": {"name": "orders"},
    "tests": [
        {"name": "t", "command": "python agent.py", "expect": {"output": {"contains": ["x"]}}}
    ],
}
_ticks = count(1_000_000_000, 1_000_000)

Step = Callable[[], object]


@dataclass
class Told:
    """What happened: when rounds began, which lines were told, which errors shown."""

    rounds: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    code: int = -1


def save(path: Path | str, text: str = "") -> None:
    """Write a file at a time of its own: the clock of files is too coarse for virtual time."""
    Path(path).write_text(text, "utf-8")
    now = next(_ticks)
    os.utime(path, ns=(now, now))


def save_suite(path: Path | str = "kindlm.yaml", name: str = "orders") -> None:
    save(path, json.dumps({**SUITE, "suite": {"name": name}}))


def save_note(path: str) -> None:
    save(path, Path(path).read_text("utf-8") + "\n# note")


@pytest.fixture
def project(here: Path) -> Path:
    save_suite()
    save("agent.py")
    return here


def watch(
    steps: Mapping[float, Step],
    *paths: str,
    during: Mapping[int, Step] | None = None,
    code: int = 0,
    ends: float = 60,
) -> Told:
    """Watch for a minute; `steps` happen at their second, `during` in the round of that number.

    A round takes ten seconds.
    """
    told = Told()
    stop = asyncio.Event()

    async def run_round() -> int:
        told.rounds.append(asyncio.get_running_loop().time())
        await asyncio.sleep(5)
        (during or {}).get(len(told.rounds), lambda: None)()
        await asyncio.sleep(5)
        return code

    async def main() -> int:
        for at, step in [*steps.items(), (ends, stop.set)]:
            asyncio.get_running_loop().call_at(at, step)
        options = TestOptions(paths=tuple(map(Path, paths)))
        see = partial(look, options, Path.cwd())
        watch = Watch(see, run_round, told.lines.append, told.problems.extend)
        return await watch.until(stop)

    told.code = run_at_once(main())
    return told


@pytest.mark.parametrize("code", [0, 1])
def test_nothing_runs_again_where_nothing_changes(project: Path, code: int) -> None:
    told = watch({}, code=code)
    assert told.rounds == [0]
    assert told.code == code
    assert told.lines == [
        "── Round 1 ──",
        "Round 1 passed." if code == 0 else "Round 1 did not pass.",
        "Waiting for changes to 2 files; Ctrl-C ends.",
    ]


def test_changes_in_a_burst_make_one_round_after_the_last_of_them(project: Path) -> None:
    steps = {20 + late: lambda: save("agent.py") for late in (0, 0.15, 0.3, 0.45, 0.6)}
    told = watch({**steps, 20.7: save_suite})
    assert len(told.rounds) == 2
    assert told.rounds[1] >= 20.7 + 0.2
    assert "Changed: agent.py, kindlm.yaml" in told.lines


def test_an_agent_that_is_taken_away_is_tested_when_it_is_back(project: Path) -> None:
    command = {"name": "t", "command": "python agent/main.py", "expect": {}}
    Path("agent").mkdir()
    save("agent/main.py")
    save("agent/parts.py")
    save("kindlm.yaml", json.dumps({**SUITE, "tests": [command]}))
    away = {20: lambda: Path("agent").rename("away"), 40: lambda: save_note("kindlm.yaml")}
    back = {60: lambda: Path("away").rename("agent"), 80: lambda: save("agent/parts.py")}
    told = watch({**away, **back}, ends=100)
    assert [round(begun) for begun in told.rounds] == [0, 20, 40, 60, 80]
    assert "Changed: agent/main.py, agent/parts.py" in told.lines


def test_a_program_that_is_an_agent_is_watched_in_its_folder(project: Path) -> None:
    Path("agent").mkdir()
    save("agent/main.py")
    agent = {"id": "a", "adapter": "subprocess", "command": "python main.py", "cwd": "agent"}
    test = {"name": "t", "prompt": "p", "expect": {"output": {"contains": ["x"]}}}
    prompts = {"p": {"user": "Hi"}}
    suite = {**SUITE, "agents": [agent], "prompts": prompts, "tests": [test]}
    save("kindlm.yaml", json.dumps(suite))
    told = watch({20: lambda: save("agent/main.py")})
    assert [round(begun) for begun in told.rounds] == [0, 20]
    assert "Changed: agent/main.py" in told.lines


def test_a_change_while_a_round_runs_makes_another_one_at_once(project: Path) -> None:
    told = watch({}, during={1: lambda: save("agent.py")})
    assert told.rounds == [0, pytest.approx(10.2)]
    assert "Changed while it ran: agent.py. Testing again." in told.lines
    assert told.lines[-1].startswith("Waiting")


def test_tests_that_write_what_is_watched_do_not_run_for_ever(project: Path) -> None:
    writing = {number: lambda: save("agent.py") for number in range(1, 9)}
    told = watch({40: lambda: save("agent.py")}, during=writing, ends=100)
    # The change of a user starts rounds again, as many.
    assert [round(begun) for begun in told.rounds] == [0, 10, 40, 50]
    assert sum("Changed in both of the last rounds: agent.py." in line for line in told.lines) == 2


def test_an_invalid_save_is_shown_once_and_waited_out(project: Path) -> None:
    told = watch({20: lambda: save("kindlm.yaml", "kindlm: 1\ntests: ["), 40: save_suite})
    assert [round(begun) for begun in told.rounds] == [0, 40]
    (problem,) = told.problems
    assert problem.error.where is not None
    assert problem.error.where.line == 2


def test_errors_at_the_beginning_are_waited_out(project: Path) -> None:
    save("kindlm.yaml", "kindlm: 1\ntests: [")
    told = watch({20: save_suite, 40: lambda: save("agent.py")})
    assert [round(begun) for begun in told.rounds] == [20, 40]
    assert len(told.problems) == 1


def test_what_was_known_before_an_invalid_save_is_watched_on(project: Path) -> None:
    """What is wrong may be mended in a file that the broken suite does not tell of any more."""
    (project / "tests").mkdir()
    save_suite("tests/a.yaml")
    save_suite("tests/b.yaml", "other")
    steps = {
        20: lambda: save("tests/a.yaml", "kindlm: 1\ntests: ["),
        40: Path("tests/a.yaml").unlink,
    }
    told = watch(steps, "tests")
    assert [round(begun) for begun in told.rounds] == [0, 40]


def test_a_suite_that_is_gone_is_waited_for(project: Path) -> None:
    told = watch({20: Path("kindlm.yaml").unlink, 40: save_suite})
    assert [round(begun) for begun in told.rounds] == [0, 40]
    assert len(told.problems) == 1


def test_new_suites_of_a_folder_are_tested_and_other_files_are_not(project: Path) -> None:
    (project / "tests").mkdir()
    save_suite("tests/a.yaml")
    steps = {
        15: lambda: save("tests/data.yaml", "x: 1"),
        30: lambda: save_suite("tests/b.yaml", "other"),
        50: lambda: save("tests/data.yaml", "x: 2"),
    }
    told = watch(steps, "tests")
    assert [round(begun) for begun in told.rounds] == [0, 30]
    assert "Changed: tests/b.yaml" in told.lines


def test_a_round_that_is_stopped_is_the_last_one(project: Path) -> None:
    told = watch({}, during={1: lambda: save("agent.py")}, code=1, ends=7)
    assert told.lines == ["── Round 1 ──"]
    assert told.code == 1


@pytest.mark.parametrize("option", ["--resume", "--force-resume", "--dry-run"])
def test_what_is_done_once_is_not_done_in_rounds(kindlm, project, option) -> None:
    done = kindlm("test", "--watch", option)
    assert done.code == 1
    assert f"--watch cannot be combined with {option}." in done.err
    done = kindlm("watch", option)
    assert done.code == 1
    assert f"No such option: {option}" in done.err
    assert option not in kindlm("watch", "--help").out


@pytest.mark.parametrize("arguments", [["nothing.yaml"], ["--reporter", "paper"]])
def test_what_never_can_be_tested_is_reported_at_once(kindlm, here, arguments) -> None:
    assert kindlm("watch", *arguments).code == 1
