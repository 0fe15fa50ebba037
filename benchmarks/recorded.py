"""Records a long history with the events of real runs of five suites.

Each execution has seven events: its start, the request to a model and the response, three checks,
and its end. System prompts and questions are the same in each run, answers are not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.events.run import (
    GateVerdict,
    GitState,
    PlannedTest,
    RunFinished,
    RunSealed,
    RunStarted,
    SuiteStarted,
)
from kindlm.outcome import CheckResult, Gate, GateResult, Outcome, Status
from kindlm.projections import PROJECTIONS
from kindlm.transcript import CostSource, FinishReason, Message, Role
from kindlm_store import Append, EventLog, HeadOf, NewEvent

EVENTS_PER_EXECUTION = 7

SYSTEM = "You are a customer support agent for ACME Corp. Always look up the order first. " * 4
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_CHECKS = ("contains", "not_contains", "max_length")
_FAILS_EVERY = 50
_RETRIED_EVERY = 10


def run_name(number: int) -> str:
    """Return the id of a run by its number, from 0."""
    return f"r{number:07}"


def record_history(
    path: Path,
    *,
    runs: int,
    tests: int,
    latest_tests: int = 0,
    latest_fails: bool = False,
    retried: bool = False,
) -> int:
    """Record `runs` runs of `tests` executions each; return the number of events.

    The last run has `latest_tests` executions if given. With `latest_fails`, all of them fail, as
    in an outage. With `retried`, one in ten executions of each run fails at first and is retried.
    """
    with EventLog.open(path, projections=PROJECTIONS) as log:
        asyncio.run(_record(log, runs, tests, latest_tests or tests, latest_fails, retried))
        with closing(log.reader()) as reader:
            count: int = reader.execute("SELECT max(seq) FROM events").fetchone()[0]
    return count


async def _record(
    log: EventLog, runs: int, tests: int, latest_tests: int, latest_fails: bool, retried: bool
) -> None:
    for run in range(runs):
        is_latest = run == runs - 1
        name, size = run_name(run), latest_tests if is_latest else tests
        began = _FIRST_DAY + timedelta(minutes=10 * run)
        stream = f"run/{name}"
        log.submit(Append(stream, [_at(began, payload) for payload in _beginning(run, size)]))
        for number in range(1, size + 1):
            at = began + timedelta(milliseconds=number)
            is_retried = retried and number % _RETRIED_EVERY == 0
            fails = is_latest and latest_fails
            events = execution_events(run, number, at, fails=fails, retried=is_retried)
            log.submit(Append(stream, list(events)))
            if number % 500 == 0:
                await log.flush()  # so that the queue stays small
        log.submit(
            Append(stream, (_at(began + timedelta(minutes=5), _end(name, size)),), seal=True),
            Append(f"journal/{name}", (new_event(RunSealed(run=name, head=HeadOf(stream))),)),
        )
    await log.flush()


def execution_events(
    run: int, number: int, at: datetime, *, fails: bool = False, retried: bool = False
) -> Iterator[NewEvent]:
    """Yield the events of one execution; one in fifty fails in any case."""
    failed = fails or (run + number) % _FAILS_EVERY == 0
    if retried:
        for payload in _execution(run, number, failed=True, retried=True):
            yield _at(at, payload, f"{number}.1")
    attempt = 2 if retried else 1
    for payload in _execution(run, number, failed=failed, attempt=attempt):
        yield _at(at, payload, f"{number}.{attempt}")


def run_events(executions: int) -> tuple[list[NewEvent], list[NewEvent]]:
    """Return the events that begin a run, and all events of its executions."""
    start = [new_event(payload) for payload in _beginning(0, executions)]
    numbers = range(1, executions + 1)
    return start, [event for n in numbers for event in execution_events(0, n, _FIRST_DAY)]


def _at(moment: datetime, payload: Payload, subject: str | None = None) -> NewEvent:
    return new_event(payload, subject=subject, at=moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def _beginning(run: int, tests: int) -> Iterator[Payload]:
    yield RunStarted(
        project="shop",
        planned=tests,
        label="nightly" if run % 100 == 0 else None,
        git=GitState(commit=f"{run:040x}", branch="main"),
        versions={"kindlm": "0.1.0"},
    )
    yield SuiteStarted(
        suite=f"support {run % 5}",
        ordinal=0,
        project="shop",
        front_end="kindlm",
        path="kindlm.yaml",
        config_hash="0123456789ab",
        config=json.dumps({"suite": run % 5, "tests": tests}),
        gates=[Gate(name="passRateMin", threshold=0.95, written=True)],
        tests=[PlannedTest(name=_test(n), target="gpt", line=n) for n in range(1, tests + 1)],
    )


def _test(number: int) -> str:
    return f"answers question {number}"


def _answer(run: int, number: int) -> str:
    return (
        f"Order {number} of customer {run} was shipped on Tuesday and arrives in three days. " * 3
    )


def _execution(
    run: int, number: int, *, failed: bool, attempt: int = 1, retried: bool = False
) -> Iterator[Payload]:
    question = f"Where is my order {number}? I have been waiting for it since last week."
    answer = _answer(run, number)
    yield ExecutionStarted(
        suite=0,
        test=_test(number),
        target="gpt",
        repeat=1,
        attempt=attempt,
        messages=[
            Message(Role.SYSTEM, SYSTEM),
            Message(Role.USER, question),
        ],
    )
    yield ProviderRequested(
        purpose="test",
        provider="openai",
        model="gpt-4o",
        call=1,
        fingerprint=f"{number:016x}",
        parameters={"temperature": 0.2, "max_tokens": 1024},
        after=0,
    )
    yield _response(run, number, answer)
    for index, kind in enumerate(_CHECKS):
        fails = failed and index == 0
        yield AssertionEvaluated(
            index=index,
            result=CheckResult(
                kind,
                f"{kind} {number}",
                Outcome.FAILED if fails else Outcome.PASSED,
                score=0.0 if fails else 1.0,
                failure_code="CONTAINS_FAILED" if fails else None,
                message='Expected the output to contain "refund".' if fails else "",
            ),
            duration_ms=0.02,
            line=number,
        )
    yield ExecutionFinished(
        status=Status.FAILED if failed else Status.PASSED,
        output=answer,
        answers=1,
        latency_ms=612.5,
        input_tokens=120,
        output_tokens=60,
        cost_usd=0.0009,
        cost_source=CostSource.COMPUTED,
        finish_reason=FinishReason.STOP,
        retried=retried,
    )


def _response(run: int, number: int, answer: str) -> ProviderResponded:
    message = {"role": "assistant", "content": answer, "refusal": None}
    raw = {
        "id": f"chatcmpl-{run}-{number}",
        "object": "chat.completion",
        "created": 1_790_000_000 + run,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 60, "total_tokens": 180},
    }
    return ProviderResponded(
        call=1,
        text=answer,
        finish_reason=FinishReason.STOP,
        model="gpt-4o-2024-08-06",
        input_tokens=120,
        output_tokens=60,
        latency_ms=612.5,
        cost_usd=0.0009,
        cost_source=CostSource.COMPUTED,
        raw=json.dumps(raw),
    )


def _end(run: str, tests: int) -> RunFinished:
    result = GateResult(
        name="passRateMin",
        threshold=0.95,
        actual=0.98,
        passed=True,
        written=True,
        message="98 % passed",
    )
    gate = GateVerdict(suite=f"{run}/0", result=result)
    return RunFinished(
        passed=True,
        exit_code=0,
        gates=[gate],
        tests={"passed": tests},
        executions={"passed": tests},
        duration_ms=5_000.0,
    )
