"""The cost of recording: the same run with its events stored and with them discarded."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import in_process
from benchmarks.provider import provider
from benchmarks.workspaces import KEY, write_project


def recorder(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time of the executions of a run, without start-up and reports."""
    times: dict[bool, list[float]] = {True: [], False: []}
    with provider() as server:
        for _ in range(sizes.runs):
            for stored in (True, False):
                seconds = in_process(
                    "recorder.time_of_executions", tests=sizes.tests, url=server.url, stored=stored
                )
                times[stored].append(seconds)
    yield Figure(f"{sizes.tests:,} tests, stored", times[True], "s")
    yield Figure(f"{sizes.tests:,} tests, events built and thrown away", times[False], "s")
    ratios = [on / off for on, off in zip(times[True], times[False], strict=True)]
    yield Figure("stored to thrown away", ratios, "×", "at most 1.35 ×")


def time_of_executions(tests: int, url: str, *, stored: bool) -> float:
    """Return the seconds from the start of the first execution until the last one is stored."""
    from kindlm.cli.commands.test_run import run_tests
    from kindlm.cli.options import TestOptions
    from kindlm.recording import session

    if not stored:
        _throw_away_executions()
    run_plan, took = vars(session)["run_plan"], 0.0

    async def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal took
        began = time.perf_counter()
        complete = await run_plan(*arguments, **options)
        took = time.perf_counter() - began
        return complete

    vars(session)["run_plan"] = timed
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        write_project(Path(folder), tests=tests, url=url)
        os.chdir(folder)
        os.environ |= {"OPENAI_API_KEY": KEY, "CI": "true"}
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            run_tests(TestOptions())
        os.chdir("/")
    return took


def _throw_away_executions() -> None:
    """Make the log discard events of executions; those of a run and its suites are stored."""
    from kindlm_store import Append, EventLog, Ticket

    submit = EventLog.submit

    def submit_rest(log: EventLog, *appends: Append) -> Ticket:
        if any(event.subject is None for append in appends for event in append.events):
            return submit(log, *appends)
        ticket = Ticket()
        ticket.set_result(None)
        return ticket

    EventLog.submit = submit_rest  # type: ignore[assignment, method-assign]
