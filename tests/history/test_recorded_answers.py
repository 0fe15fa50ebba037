"""Answers of judges that are given again: each of them once, in the order in which they came."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.events.codec import new_event
from kindlm.events.execution_events import ExecutionStarted, ProviderRequested, ProviderResponded
from kindlm.events.run import RunStarted, SuiteStarted
from kindlm.history.recorded_answers import RescoredAnswers
from kindlm.plan import make_plan
from kindlm.ports import Asked, ModelRequest, Purpose
from kindlm.suite import Case, ModelParams, ModelTarget, Prompt, ProviderSettings, Suite

ASKED = Asked(Purpose.JUDGE, "p", "f", ModelRequest("m", (), ModelParams(), 1.0))

(EXECUTION,) = make_plan(
    [
        Suite(
            name="s",
            project="shop",
            front_end="kindlm",
            path="kindlm.yaml",
            config_hash="0" * 12,
            config_text="{}",
            providers={"p": ProviderSettings("p", "scripted")},
            models={"m": ModelTarget("m", "p", "m")},
            cases=(Case("t", prompt=Prompt("Hi"), targets=("m",)),),
            gates=(),
        )
    ]
)


def request(call: int) -> ProviderRequested:
    return ProviderRequested(purpose="judge", provider="p", model="m", call=call, fingerprint="f")


def record(history: Any, run: str, *attempts: list[str]) -> None:
    """Record the same question again and again; an answer is a text, or that of an earlier call."""
    events = [
        new_event(RunStarted(project="shop", planned=1, versions={})),
        new_event(
            SuiteStarted(
                suite="s",
                ordinal=0,
                project="shop",
                front_end="kindlm",
                path="kindlm.yaml",
                config_hash="0" * 12,
                config="{}",
                gates=[],
                tests=[],
            )
        ),
    ]
    for attempt, answers in enumerate(attempts, start=1):
        began = ExecutionStarted(
            suite=0, test="t", target="m", repeat=1, attempt=attempt, messages=()
        )
        told: list[Any] = [began]
        for call, answer in enumerate(answers, start=1):
            text, _, origin = answer.partition(" of ")
            said = ProviderResponded(
                call=call, text=text, latency_ms=1.0, recorded_in=origin or None
            )
            told += [request(call), said]
        events += [new_event(event, subject=f"1.{attempt}") for event in told]
    history.log.append(f"run/{run}", events)
    history.log.flush().result()


def given(history: Any, *runs: str) -> list[str]:
    """Return what a judge is given, until it is to be asked."""
    reader = history.reader()
    answers = RescoredAnswers(reader, runs, EXECUTION)
    said = []
    while isinstance(answer := answers.answer(ASKED), Ok):
        said.append(answer.value.text)
    assert answer is None
    return said


def test_each_pass_gets_the_next_answer(history: Any) -> None:
    record(history, "live0000", ["one", "two"])
    assert given(history, "live0000") == ["one", "two"]


def test_what_a_later_run_asked_besides_comes_behind(history: Any) -> None:
    record(history, "live0000", ["one", "two"])
    record(history, "again000", ["one of live0000-1.1/1", "two of live0000-1.1/2", "three"])
    assert given(history, "live0000", "again000") == ["one", "two", "three"]
    assert given(history, "again000", "live0000") == ["one", "two", "three"]


def test_all_answers_are_given_before_a_judge_is_asked(history: Any) -> None:
    record(history, "live0000", ["cut"], ["one"])
    record(history, "again000", ["more"])
    assert given(history, "live0000", "again000") == ["one", "cut", "more"]


def test_an_answer_that_moved_in_a_later_run_is_not_given_twice(history: Any) -> None:
    record(history, "live0000", ["one", "two"])
    record(history, "again000", ["two of live0000-1.1/2"])
    assert given(history, "again000", "live0000") == ["two", "one"]


def test_the_last_attempt_comes_first(history: Any) -> None:
    record(history, "live0000", ["cut", "off"], ["one"])
    assert given(history, "live0000") == ["one", "cut", "off"]


def test_another_run_has_the_answer_that_was_purged(history: Any) -> None:
    record(history, "live0000", ["one", "two"])
    record(history, "again000", ["instead"])
    history.erase("run/live0000")
    assert given(history, "live0000", "again000") == ["instead"]


@pytest.mark.parametrize("purpose", [Purpose.TEST, Purpose.SIMULATE])
def test_targets_and_simulated_users_get_no_answers_of_judges(
    history: Any, purpose: Purpose
) -> None:
    record(history, "live0000", ["one"])
    asked = Asked(purpose, "p", "f", ASKED.request)
    answer = RescoredAnswers(history.reader(), ["live0000"], EXECUTION).answer(asked)
    if purpose is Purpose.TEST:
        assert answer is None
    else:
        assert isinstance(answer, Err)
        assert answer.error.code is ErrorCode.PROVIDER_NOT_FOUND
