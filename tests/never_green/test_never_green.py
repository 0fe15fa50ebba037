"""One table of ways in which a run must not be green, each run through the real command line.

It runs in the process of the tests, but for what is green: that has a process of its own. Rows that
change one test, its agent, model or program, or what that answers, are the tests of one run, each
with its own.

The table is `ways/*.yaml`, one file an area. Each file begins with a `base` that is green, which a
test checks, too: so a row fails for what it changes, and for nothing else. To add a row, copy one.

A row has:

- `way`: what went wrong, as a name; unique in the table.
- `suite`, `agent`, `test`: merged into `kindlm.yaml`, its first agent or test; null deletes.
- `expect`: replaces what the first test expects.
- `files`: written over those of the base; a mapping is written as YAML, null deletes the file.
- `answers`: what the server at `PEER` answers, one for each request; the last one stays.
- `env`: variables of the command; null deletes one.
- `sql`: statements run on the history before the command.
- `run`: the command, `test` by default.
- `status`: of the executions that the command recorded; `not run` if it recorded none. What ends
  the process may end it before or after one is recorded.
- `says`: what the command prints, in any order and case; line breaks count as spaces. Or the code
  that an assertion failed with.
- `exit`: 1 by default.
- `ends`: true where code of a user ends its process: that is one of its own then.
- `holds_up`: true where it holds its process up: it is then noticed ten times as fast.
- `steps`: several of these, one after the other; `exit` is 0 by default for all but the last.

`PEER` in a file stands for the address of a server on loopback, `CLOSED` for one where nothing
listens, `SCRIPT` for the Python that runs the tests, `SHARED` for the folder `tests/shared`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shlex
import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import loaded_kindlm
import pytest
import yaml
from free_ports import free_ports
from raw_peer import http_answer, open_peer
from workspace import as_yaml, new_workspace

_AREAS: Final = {
    path.stem: yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    for path in sorted((Path(__file__).parent / "ways").glob("*.yaml"))
}


_TOGETHER: Final = {"agents": 3, "checks": 1, "models": 1, "programs": 1, "unseen": 1}
"""Of areas whose ways are mostly tests of one run: how many runs there are."""


_OWN_FILES: Final = {"checks": {"checks.py", "s.json"}, "programs": {"agent.py"}}
"""Of these areas: the files that a test of such a run has for itself, under a name of its own."""


def _fits_beside_others(area: str, way: Mapping[str, Any]) -> bool:
    of_one_test = {"way", "agent", "test", "expect", "files", "answers", "status", "says"}
    # A judge is one model for all tests.
    has_judge = area == "models" and "judge" in way.get("expect", {})
    return (
        area in _TOGETHER
        and set(way) <= of_one_test
        and set(way.get("files", {})) <= _OWN_FILES.get(area, set())
        and way["status"] in ("failed", "errored")
        and not has_judge
    )


_ALONE: Final = [
    pytest.param(area["base"], way, id=f"{name}: {way['way']}")
    for name, area in _AREAS.items()
    for way in area["ways"]
    if not _fits_beside_others(name, way)
]
_MOST_AGENTS = 50
"""A suite may have no more."""
_KEYS: Final = {
    "way", "suite", "agent", "test", "expect", "files", "answers", "env", "sql", "run", "status",
    "says", "exit", "ends", "holds_up", "steps",
}  # fmt: skip


def test_the_table_is_long_and_says_nothing_twice() -> None:
    names = [f"{name}: {way['way']}" for name, area in _AREAS.items() for way in area["ways"]]
    assert len(set(names)) == len(names) >= 120
    for area in _AREAS.values():
        for row in area["ways"]:
            for step in (row, *row.get("steps", [])):
                assert set(step) <= _KEYS
            last = row["steps"][-1] if "steps" in row else row
            assert {"says"} <= set(last), row["way"]
            assert "status" in last or last.keys() & {"ends", "holds_up"}, row["way"]


@pytest.mark.parametrize("area", _AREAS)
def test_without_any_of_these_the_run_is_green(area: str, tmp_path: Path) -> None:
    base = _AREAS[area]["base"]
    green = {"status": "passed", "exit": 0, "says": base.get("says", "PASSED")}
    for number, ends in enumerate((True, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _take(folder, base, [{**green, "ends": ends}])


@pytest.mark.parametrize(
    ("area", "part"), [(area, part) for area, parts in _TOGETHER.items() for part in range(parts)]
)
def test_none_of_these_tests_is_green(area: str, part: int, tmp_path: Path) -> None:
    base, suite = _AREAS[area]["base"], copy.deepcopy(_AREAS[area]["base"]["files"]["kindlm.yaml"])
    ways = [way for way in _AREAS[area]["ways"] if _fits_beside_others(area, way)]
    assert len(ways) < _TOGETHER[area] * _MOST_AGENTS
    ways = ways[part * _MOST_AGENTS :][:_MOST_AGENTS]
    agents, models, tests = [], [], []
    providers: dict[str, Any] = {}
    own_files: dict[str, Any] = {}
    with _serving(*(way.get("answers", base.get("answers", [])) for way in ways)) as addresses:
        for number, (way, address) in enumerate(zip(ways, addresses, strict=True)):
            files = copy.deepcopy(base["files"])
            _change(files, way)
            text = _with_own_names(area, number, json.dumps(files["kindlm.yaml"]))
            own = json.loads(_with_places(text, address))
            for name in _OWN_FILES.get(area, set()) & set(files):
                own_files[_with_own_names(area, number, name)] = files[name]
            test = own["tests"][0] | {"name": str(number)}
            if "agents" in own:
                agents.append(own["agents"][0] | {"id": f"agent{number}"})
                test["models"] = [f"agent{number}"]
            elif area == "models":
                providers[f"openai{number}"] = {"type": "openai", **own["providers"]["openai"]}
                named = {"id": f"gpt{number}", "provider": f"openai{number}"}
                models.append(own["models"][0] | named)
                test["models"] = [f"gpt{number}"]
            tests.append(test)
        own_parts = {"agents": agents, "models": models, "providers": providers}
        suite |= {"tests": tests, **{name: part for name, part in own_parts.items() if part}}
        workspace = new_workspace(tmp_path)
        workspace.env |= base.get("env", {})
        _write(tmp_path, {**base["files"], **own_files, "kindlm.yaml": suite}, "")
        arguments = ("--reporter", "terminal", "--reporter", "json=report.json")
        done = workspace.run("test", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["tests"]
    told = {each["name"]: each for each in found}
    assert len(told) == len(ways), done.stdout + done.stderr
    for number, way in enumerate(ways):
        test = told[str(number)]
        assert test["status"] == way["status"], way["way"]
        # The report has what is wrong, the terminal also what to do about it.
        seen = f"{_texts(test)} {done.stdout}"
        says = [_with_own_names(area, number, text) for text in _listed(way["says"])]
        assert not [text for text in says if not _has(seen, text)], way["way"]


def _with_own_names(area: str, number: int, text: str) -> str:
    for name in _OWN_FILES.get(area, ()):
        text = text.replace(name, f"own{number}_{name}")
    return text


def _texts(value: Any) -> str:
    """Return all texts in a part of a report."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return " ".join(map(_texts, inside))
    return str(value)


# What faulty code of a user is warned of ends nothing.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("base", "way"), _ALONE)
def test_a_run_is_not_green(base: dict[str, Any], way: dict[str, Any], tmp_path: Path) -> None:
    _take(tmp_path, base, way.get("steps") or [way])


def _take(folder: Path, base: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    workspace = new_workspace(folder)
    files: dict[str, Any] = copy.deepcopy(base.get("files", {}))
    answers = base.get("answers", [])
    for number, step in enumerate(steps, start=1):
        _change(files, step)
        answers = step.get("answers", answers)
        env = {**base.get("env", {}), **step.get("env", {})}
        for name, value in env.items():
            workspace.env.pop(name, None)
            if value is not None:
                workspace.env[name] = value
        for statement in _listed(step.get("sql", [])):
            with closing(sqlite3.connect(workspace.database)) as history:
                history.executescript(statement)
        before = _runs(workspace.database)
        with _serving(answers) as (address,):
            _write(folder, files, address)
            arguments = shlex.split(step.get("run", base.get("run", "test")))
            if step.get("ends"):
                done = workspace.run_apart(*arguments)
            elif step.get("holds_up"):
                done = loaded_kindlm.run(
                    arguments, cwd=folder, env=workspace.env, timeout_s=120, grace_polls=5
                )
            else:
                done = workspace.run(*arguments)
        codes, statuses = _recorded(workspace.database, before)
        printed = " ".join((done.stdout + done.stderr).split() + codes)
        shown = f"step {number}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == step.get("exit", int(number == len(steps))), shown
        lacking = [text for text in _listed(step.get("says", [])) if not _has(printed, text)]
        assert not lacking, shown
        if "status" in step:
            assert statuses == step["status"], shown


def _change(files: dict[str, Any], step: Mapping[str, Any]) -> None:
    """Put what a step changes into the files of the project."""
    suite = files.get("kindlm.yaml")
    if {"suite", "agent", "test", "expect"} & set(step):
        assert isinstance(suite, dict)
        _merge(suite, step.get("suite", {}))
        if "agent" in step:
            _merge(suite["agents"][0], step["agent"])
        if "test" in step:
            _merge(suite["tests"][0], step["test"])
        if "expect" in step:
            suite["tests"][0]["expect"] = step["expect"]
    files.update(step.get("files", {}))


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _write(folder: Path, files: Mapping[str, Any], address: str) -> None:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else as_yaml(content)
        path.write_text(_with_places(text, address), encoding="utf-8")


def _with_places(text: str, address: str) -> str:
    text = text.replace("PEER", address).replace("SCRIPT", sys.executable)
    text = text.replace("SHARED", str(Path(__file__).parents[1] / "shared"))
    return text.replace("CLOSED", f"http://127.0.0.1:{free_ports(1)[0]}")


@contextmanager
def _serving(*answers: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Serve each list of answers in a thread, and yield their addresses."""
    if not any(answers):
        yield ["http://127.0.0.1:9"] * len(answers)
        return
    loop = asyncio.new_event_loop()
    started: list[str] = []
    up, end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for each in answers:
                peer = await stack.enter_async_context(open_peer(*map(_bytes, each)))
                started.append(peer.url)
            up.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        up.wait()
        yield started
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def _bytes(answer: Mapping[str, Any]) -> bytes | None:
    """Return an answer as it goes over the wire: `cut` without one, `raw` as it is."""
    if answer.get("cut"):
        return None
    if "raw" in answer:
        return answer["raw"].replace("\n", "\r\n").encode()
    kind = answer.get("kind")
    if "events" in answer:
        body: Any = "".join(f"data: {_line(event)}\n\n" for event in answer["events"])
        kind = kind or "text/event-stream"
    elif "text" in answer:
        body, kind = answer["text"], kind or "text/plain"
    else:
        body = json.dumps(answer["json"])
    headers = {"connection": "close", **answer.get("headers", {})}
    return http_answer(answer.get("status", 200), body, headers, kind=kind or "application/json")


def _line(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event)


def _has(printed: str, text: str) -> bool:
    return " ".join(text.split()).casefold() in printed.casefold()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_history(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:6] == b"SQLite"


def _runs(database: Path) -> set[str]:
    if not _is_history(database):
        return set()
    with closing(sqlite3.connect(database)) as history:
        return {run for (run,) in history.execute("SELECT id FROM runs")}


def _recorded(database: Path, before: set[str]) -> tuple[list[str], str]:
    """Return what runs since `before` recorded: codes of assertions, statuses of executions."""
    codes: list[str] = []
    if not _is_history(database):
        return codes, "not run"
    with closing(sqlite3.connect(database)) as history:
        with suppress(sqlite3.DatabaseError):  # tables that a way has replaced
            failed = history.execute(
                "SELECT DISTINCT e.run, a.failure_code FROM assertions a"
                " JOIN executions e ON e.id = a.execution WHERE a.failure_code IS NOT NULL"
            )
            codes = [code for run, code in failed if run not in before]
        statuses = {
            status or "unfinished"
            for run, status in history.execute("SELECT run, status FROM executions")
            if run not in before
        }
    return codes, ", ".join(sorted(statuses)) or "not run"
