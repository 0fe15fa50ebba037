"""Attempts that are read back from their events: their requests, their answers, what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_history import History

from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    AgentFailed,
    AgentReplied,
    AgentSent,
    ExecutionStarted,
    ProviderFailed,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.events.run import RunStarted
from kindlm.history.queries import Paid, paid_for_execution
from kindlm.history.recorded_attempts import RecordedAttempt
from kindlm.ports import AnsweredThen
from kindlm.transcript import CostSource, Message, PaidBefore, Role
from kindlm_store import NewEvent

FAILED = {
    "error_code": "PROVIDER_SERVER_ERROR",
    "error_number": 204,
    "message": "Unavailable.",
    "latency_ms": 5.0,
}


def recorded(history: History, *events: Payload, raw: tuple[NewEvent, ...] = ()) -> RecordedAttempt:
    """Return an attempt with these events."""
    began = ExecutionStarted(
        suite=0, test="t", target="m", repeat=1, attempt=1, messages=[user("Hello")]
    )
    made = [new_event(event, subject="1.1") for event in (began, *events)]
    run = new_event(RunStarted(project="shop", planned=1, versions={}))
    history.log.append("run/abc11111", [run, *made, *raw])
    return RecordedAttempt(history.reader(), "abc11111-1", 1)


def user(text: str) -> Message:
    return Message(Role.USER, text)


def asked(call: int, fingerprint: str = "f", **more: Any) -> ProviderRequested:
    about = {"purpose": "test", "provider": "p", "model": "m", "fingerprint": fingerprint}
    return ProviderRequested(call=call, **{**about, **more})


def said(call: int, text: str = "Yes.", **more: Any) -> ProviderResponded:
    return ProviderResponded(call=call, text=text, latency_ms=1.0, **more)


def sent(call: int, attempt: int) -> AgentSent:
    return AgentSent(agent="shop", adapter="http", call=call, attempt=attempt, after=0)


def test_a_request_has_the_whole_conversation_before_it(history: History) -> None:
    attempt = recorded(
        history,
        asked(1, after=0),
        said(1, "One."),
        asked(2, after=1, messages=[user("And?")]),
        said(2, "Two."),
        asked(3, after=2, messages=[user("And then?")]),
    )
    texts = [(message.role, message.text) for message in attempt.request(3).messages]
    assert texts == [
        (Role.USER, "Hello"),
        (Role.ASSISTANT, "One."),
        (Role.USER, "And?"),
        (Role.ASSISTANT, "Two."),
        (Role.USER, "And then?"),
    ]


def test_an_answer_that_cannot_be_read_is_an_error_and_not_a_purged_one(history: History) -> None:
    unreadable = NewEvent("provider.responded", {"call": 1}, subject="1.1")
    attempt = recorded(history, asked(1), asked(2), raw=(unreadable,))
    with pytest.raises(ValueError, match="Field required"):
        attempt.answer(1)
    assert attempt.answer(2) is None


def test_only_failed_tries_of_the_same_request_were_paid_before_its_answer(
    history: History,
) -> None:
    """Two judges are asked at once: the other one was paid for its own answer."""
    charged = {"cost_usd": 0.25, "cost_source": CostSource.COMPUTED, **FAILED}
    attempt = recorded(
        history,
        asked(1, "one", purpose="judge"),
        ProviderFailed(call=1, retry_in_ms=10.0, **charged),
        asked(2, "two", purpose="judge"),
        said(2, cost_usd=4.0, cost_source=CostSource.COMPUTED),
        asked(3, "one", purpose="judge", attempt=2),
        said(3, cost_usd=8.0, cost_source=CostSource.COMPUTED),
    )
    assert attempt.paid_before(3) == PaidBefore(0.25)


def test_each_failed_try_of_an_agent_has_its_cost(history: History) -> None:
    def failed(call: int, usd: float) -> AgentFailed:
        charged = {"cost_usd": usd, "cost_source": CostSource.COMPUTED, **FAILED}
        return AgentFailed(call=call, retry_in_ms=10.0, **charged)

    attempt = recorded(
        history,
        sent(1, 1),
        failed(1, 0.25),
        sent(2, 2),
        failed(2, 0.5),
        sent(3, 3),
        AgentReplied(call=3, text="Yes.", latency_ms=7.0),
    )
    tries = PaidBefore(0.25), PaidBefore(0.5)
    assert attempt.messages_to_agent() == [AnsweredThen(PaidBefore(), tries, 7.0)]


def test_the_model_calls_of_an_agent_cost_something_where_the_agent_failed(
    history: History,
) -> None:
    """The cost of an answer includes them."""

    def called(call: int, usd: float) -> tuple[Payload, Payload]:
        cost = {"cost_usd": usd, "cost_source": CostSource.COMPUTED}
        return asked(call, purpose="agent"), said(call, **cost)

    recorded(
        history,
        sent(1, 1),
        *called(2, 1.0),
        *called(3, 2.0),
        AgentFailed(call=1, retry_in_ms=10.0, **FAILED),
        sent(4, 2),
        *called(5, 4.0),
        AgentReplied(
            call=4, text="Yes.", latency_ms=7.0, cost_usd=8.0, cost_source=CostSource.COMPUTED
        ),
    )
    assert paid_for_execution(history.reader(), "abc11111-1") == Paid(1.0 + 2.0 + 8.0)


def test_the_answer_of_an_agent_includes_no_model_call_of_another_attempt(
    history: History,
) -> None:
    cost = {"cost_source": CostSource.COMPUTED}

    def called(call: int, usd: float) -> tuple[Payload, Payload]:
        return asked(call, purpose="agent"), said(call, cost_usd=usd, **cost)

    recorded(
        history,
        sent(1, 1),
        AgentFailed(call=1, retry_in_ms=10.0, **FAILED),
        sent(2, 2),
        *called(3, 1.0),
        AgentFailed(call=2, **FAILED),
    )
    again = (
        ExecutionStarted(suite=0, test="t", target="m", repeat=1, attempt=2, messages=()),
        sent(1, 1),
        *called(2, 2.0),
        *called(3, 4.0),
        AgentReplied(call=1, text="Yes.", latency_ms=7.0, cost_usd=8.0, **cost),
    )
    history.log.append("run/abc11111", [new_event(event, subject="1.2") for event in again])
    assert paid_for_execution(history.reader(), "abc11111-1") == Paid(1.0 + 8.0)
