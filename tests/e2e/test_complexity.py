"""What an execution costs does not depend on how many there are: work, bytes, memory, requests.

The same suite runs with a few executions and with four times as many. Nothing is timed: counted are
SQL statements, bytes, events, requests, connections and what is held in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
from checked_server import LoopbackServer
from workspace import as_yaml

FEW, MANY = 10, 40
CONCURRENCY = 4
EVENTS_EACH = 7
"""Started, requested, responded, three assertions, finished."""

ANSWER = "Order A1 was delivered. " * 150
AGENT = {"rules": [{"name": "answer", "when": {}, "reply": {"text": ANSWER}}]}


@dataclass(frozen=True)
class Cost:
    """What a run of `executions` took; memory and files in bytes."""

    executions: int
    statements: int
    steps: int
    bytes_written: int
    bytes_stored: int
    events: int
    requests: int
    connections: int
    held: int
    peak: int

    def each(self, name: str) -> float:
        total: int = getattr(self, name)
        return total / self.executions


@dataclass(frozen=True)
class Growth:
    few: Cost
    many: Cost

    def more(self, name: str) -> float:
        """What each further execution adds."""
        added: int = getattr(self.many, name) - getattr(self.few, name)
        return added / (MANY - FEW)


def suite(tests: int, server: LoopbackServer) -> dict[str, Any]:
    expect = {
        "output": {"contains": ["delivered"], "notContains": ["lost"], "maxLength": len(ANSWER)}
    }
    return {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "orders"},
        "providers": {"openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}},
        "models": [{"id": "gpt", "provider": "openai", "model": "gpt-4o"}],
        "prompts": {"ask": {"user": "Where is order {{order}}?"}},
        "defaults": {"concurrency": CONCURRENCY},
        "tests": [
            {"name": f"order {n}", "prompt": "ask", "vars": {"order": f"A{n}"}, "expect": expect}
            for n in range(tests)
        ],
    }


def run(folder: Path, *, tests: int, repeats: int) -> Cost:
    folder.mkdir()
    with LoopbackServer(AGENT) as server:
        text = as_yaml(suite(tests, server))
        folder.joinpath("kindlm.yaml").write_text(text, encoding="utf-8")
        kept = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "XDG_CACHE_HOME")
            if name in os.environ
        }
        # A module of the folder that it runs in is found.
        shutil.copy(Path(__file__).with_name("counted_run.py"), folder)
        done = loaded_kindlm.run(
            ["counts.json", "test", "--runs", str(repeats)],
            cwd=folder,
            env={**kept, "OPENAI_API_KEY": "sk-complexity-7f3a9c51d2e84b06", "CI": "true"},
            timeout_s=200,
            module="counted_run",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        requests = len(server.requests)
    database = folder / ".kindlm" / "kindlm.db"
    with closing(sqlite3.connect(database)) as db:
        (events,) = db.execute("SELECT count(*) FROM events").fetchone()
    counts = json.loads(folder.joinpath("counts.json").read_text("utf-8"))
    stored = database.stat().st_size
    return Cost(tests * repeats, **counts, events=events, requests=requests, bytes_stored=stored)


def more_tests(folder: Path, executions: int) -> Cost:
    return run(folder, tests=executions, repeats=1)


def more_repeats(folder: Path, executions: int) -> Cost:
    return run(folder, tests=1, repeats=executions)


@pytest.fixture(scope="module", params=[more_tests, more_repeats], ids=lambda make: make.__name__)
def growth(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Growth:
    make: Callable[[Path, int], Cost] = request.param
    folder = tmp_path_factory.mktemp("complexity")
    return Growth(make(folder / "few", FEW), make(folder / "many", MANY))


def test_events_of_an_execution_stay_the_same(growth: Growth) -> None:
    assert growth.more("events") == EVENTS_EACH


def test_each_execution_calls_the_model_once(growth: Growth) -> None:
    assert growth.few.each("requests") == growth.many.each("requests") == 1


def test_connections_are_used_again(growth: Growth) -> None:
    assert growth.many.connections <= CONCURRENCY


@pytest.mark.parametrize("what", ["statements", "steps"])
def test_work_of_the_database_for_an_execution_does_not_grow(growth: Growth, what: str) -> None:
    # How many events share a transaction depends on the moment. Work that grows with the run would
    # be four times as much.
    assert growth.many.each(what) < 1.5 * growth.few.each(what)


@pytest.mark.parametrize("what", ["bytes_written", "bytes_stored"])
def test_bytes_of_an_execution_do_not_grow(growth: Growth, what: str) -> None:
    assert growth.many.each(what) < 1.5 * growth.few.each(what)


def test_results_are_not_kept_in_memory(growth: Growth) -> None:
    # Caches of a bounded size fill up: some hundred bytes. What the writer needs once is counted
    # if the first model call is quicker.
    assert growth.more("held") < len(ANSWER)


def test_peak_memory_does_not_grow_with_the_results(growth: Growth) -> None:
    # What is in flight, and what the garbage collector has not found yet.
    assert growth.more("peak") < 3 * len(ANSWER)
