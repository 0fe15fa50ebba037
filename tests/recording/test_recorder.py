"""The recorder of a run: personal data is hidden beside the calls, all stays in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluated import demand
from suites import make_suite

from kindlm.engine.attempt import Finished
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.execution_events import AssertionEvaluated, ExecutionFinished, ExecutionStarted
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Outcome, Status
from kindlm.plan import Plan, Selection, make_plan
from kindlm.recording.recorder import RunRecorder
from kindlm.suite import Case, Prompt
from kindlm_store import EventLog

SLOW = r"^(a|a)*$"
EMAIL = "jane.roe@example.com"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "kindlm.db") as log:
        yield log


def plan(*, redact: bool, pattern: str = SLOW) -> Plan:
    params = {"customPatterns": [{"name": "slow", "pattern": pattern}]}
    case = Case(
        "greets",
        Prompt("Hi"),
        targets=("gpt",),
        expectations=(demand("pii", "pii", params),),
    )
    suite = make_suite(case, redact_pii=redact)
    return make_plan([suite], Selection())


def started(test: str) -> ExecutionStarted:
    return ExecutionStarted(suite=0, test=test, target="gpt", repeat=1, attempt=1, messages=[])


def finished(output: str) -> ExecutionFinished:
    return ExecutionFinished(status=Status.PASSED, output=output)


@pytest.mark.usefixtures("impatient_patterns")
def test_slow_patterns_hold_up_no_call_and_keep_the_order(log: EventLog) -> None:
    given_up: list[str] = []
    threads: list[threading.Thread] = []

    def tell(pattern: str) -> None:
        given_up.append(pattern)
        threads.append(threading.current_thread())

    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(plan(redact=True).suites, tell)
        first, second = recorder.about("1.1"), recorder.about("2.1")
        first.record(started("first"))
        first.record(finished("a" * 40 + "!"))
        second.record(started("second"))
        second.record(finished(EMAIL))
        await second.durable()
        await first.durable()
        recorder.close()

    asyncio.run(record())
    assert [(event.subject, event.type) for event in log.read()] == [
        ("1.1", "execution.started"),
        ("1.1", "execution.finished"),
        ("2.1", "execution.started"),
        ("2.1", "execution.finished"),
    ]
    assert given_up == [SLOW]
    assert threads[0] is not threading.main_thread()


@pytest.mark.usefixtures("impatient_patterns")
def test_who_stops_waiting_loses_no_event(log: EventLog) -> None:
    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(plan(redact=True).suites, lambda _: None)
        recorder.record(started("first"))
        recorder.record(finished("a" * 40 + "!"))
        recorder.record(finished("last"))
        waiting = asyncio.create_task(recorder.durable())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await recorder.durable()
        recorder.close()

    asyncio.run(record())
    assert len(list(log.read())) == 3


@pytest.mark.parametrize("redact", [True, False])
def test_events_that_several_threads_record_are_all_kept(log: EventLog, redact: bool) -> None:
    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(plan(redact=redact).suites, lambda _: None)

        def from_a_thread(subject: str) -> None:
            about = recorder.about(subject)
            for number in range(300):
                about.record(started(f"{number}"))

        threads = [asyncio.to_thread(from_a_thread, name) for name in ("1.1", "2.1")]
        others = asyncio.gather(*threads)
        here = recorder.about("3.1")
        for number in range(300):
            here.record(started(f"{number}"))
            await asyncio.sleep(0)
        await others
        await recorder.durable()
        recorder.close()

    asyncio.run(record())
    recorded = [(event.subject, event.data["test"]) for event in log.read()]
    assert len(recorded) == 900
    for subject in ("1.1", "2.1", "3.1"):
        assert [test for about, test in recorded if about == subject] == [
            str(number) for number in range(300)
        ]


def test_durable_waits_for_events_that_another_thread_is_handing_over(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, begun, may_go_on = EventLog.submit, threading.Event(), threading.Event()

    def slow(self: EventLog, submission: Any) -> Any:
        begun.set()
        may_go_on.wait(60)
        return submit(self, submission)

    monkeypatch.setattr(EventLog, "submit", slow)

    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        other = threading.Thread(target=recorder.record, args=(started("first"),))
        other.start()
        begun.wait(60)
        threading.Timer(0.2, may_go_on.set).start()
        await recorder.durable()
        assert may_go_on.is_set()
        assert len(list(log.read())) == 1
        other.join()
        recorder.close()

    asyncio.run(record())


def test_while_code_of_a_user_goes_on_each_event_reaches_the_log_at_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "user_code", {1: ("it", 60.0)})

    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.record(started("first"))
        # The turn of the event loop does not end.
        log.flush().result()
        assert len(list(log.read())) == 1
        recorder.close()

    asyncio.run(record())


@pytest.mark.parametrize(
    ("kind", "params", "stays"),
    [
        ("latency", {"maxMs": 5000}, True),
        ("cost", {"maxUsd": 5000}, True),
        ("max_length", {"max": 5000}, True),
        ("contains", {"text": "5000"}, False),
    ],
)
def test_what_checks_have_measured_stays(
    log: EventLog, kind: str, params: dict[str, Any], stays: bool
) -> None:
    planned = plan(redact=True, pattern=r"\d{4,}")
    recorder = RunRecorder(log, "run/r")
    recorder.hide_personal_data(planned.suites, lambda _: None)
    message = "Expected at most 5000, it took 61234."
    result = CheckResult(kind, "x", Outcome.FAILED, message=message, actual=61234)
    evaluated = AssertionEvaluated.of(result, 0, demand(kind, "x", params), duration_ms=1.0)
    recorder.record(started("measures"))
    recorder.record(evaluated)
    recorder.close()
    log.flush().result()
    _, event = log.read()
    recorded = [log.text(event.data[name]["$ref"]) for name in ("message", "actual")]
    assert (recorded == [message, "61234"]) is stays
    (execution,) = planned
    shown = recorder.shown(Finished(execution, Status.FAILED, None, (result,)))
    assert (shown.failed[0].message == message) is stays


@pytest.mark.parametrize("redact", [True, False])
def test_what_is_shown_is_what_is_recorded(log: EventLog, redact: bool) -> None:
    planned = plan(redact=redact)
    recorder = RunRecorder(log, "run/r")
    recorder.hide_personal_data(planned.suites, lambda _: None)
    (execution,) = planned
    error = KindlmError(ErrorCode.PROVIDER_API_ERROR, f"OpenAI returned 400: no {EMAIL}")
    result = CheckResult("contains", "c", Outcome.FAILED, message=f'Expected "{EMAIL}".')
    shown = recorder.shown(Finished(execution, Status.ERRORED, error, (result,)))
    recorder.close()
    assert shown.error is not None
    texts = (shown.error.message, shown.failed[0].message)
    assert all((EMAIL in text) is not redact for text in texts)
