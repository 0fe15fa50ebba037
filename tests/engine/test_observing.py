"""Observers of agents: what they see gets into the answer, the record and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from evaluated import demand
from virtual_time import LoopClock, run_at_once

from kindlm.engine.agent_talk import ObservedCalls
from kindlm.engine.pace import Pace
from kindlm.engine.resources import OneForEach
from kindlm.errors import ErrorCode, KindlmError
from kindlm.outcome import Status
from kindlm.ports import AgentReply, CallDesk, Seen
from kindlm.suite import AgentTarget, Command, Price
from kindlm.transcript import Cost, CostSource, ToolCall, ToolUse, Usage

BANNED = demand("tool_not_called", "refund", {"tool": "refund"})
WANTED = demand("tool_called", "lookup", {"tool": "lookup"})


def use(name: str, call_id: str = "c1", response: object = None, **arguments: object) -> ToolUse:
    return ToolUse(ToolCall(call_id, name, arguments), response)


@dataclass
class Watcher:
    """Sees what it is told to see; implements `Observer` and `Observation`."""

    what: Seen
    spends: float = 0.0
    calls: list[int] = field(default_factory=list)
    closed: int = 0
    cause: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=lambda: {"traceparent": "00-1-2-01"})

    late: str | None = None

    def observe(self, target: AgentTarget | Command, desk: CallDesk) -> Watcher:
        self.desk = desk
        return self

    async def begin(self, call: int) -> None:
        self.calls.append(call)

    async def seen(self) -> Seen:
        self._spend()
        return self.what

    async def trouble(self) -> str | None:
        self._spend()
        return self.cause

    def _spend(self) -> None:
        if self.spends:
            self.desk.spend("model-1", Cost(self.spends, CostSource.COMPUTED))

    def close(self) -> str | None:
        self.closed += 1
        return self.late


@pytest.fixture
def talk(bench, make):
    """Return a function that runs one test of an agent and gives its end and its answer."""

    def talk(watcher: Watcher, reply: AgentReply, *expectations, **agent):
        bench.observers = (watcher,)
        bench.agent.outcomes = [reply]
        target = AgentTarget("shop", "http", "http://127.0.0.1:1", **agent)
        case = make.case(targets=("shop",), expectations=expectations)
        finished = bench.execute(case, agents={"shop": target})
        (event,) = bench.events("agent.replied")
        return finished, event.data

    return talk


def names(data) -> list[str]:
    return [call["name"] for call in data.get("tool_calls", [])]


def test_calls_that_were_seen_count_and_a_call_that_was_also_told_counts_once(talk, bench) -> None:
    watcher = Watcher(
        Seen(
            (use("lookup", "c1", {"status": "late"}, order="A1"), use("refund", "c2")),
        )
    )
    told = AgentReply("Done.", None, 5.0, tool_uses=(use("lookup", "told_0", order="A1"),))
    finished, data = talk(watcher, told, WANTED, BANNED)
    assert names(data) == ["lookup", "refund"]
    assert bench.json(data["tool_calls"][0]["response"]) == {"status": "late"}
    assert finished.status is Status.FAILED
    assert [found.label for found in finished.failed] == ["refund"]
    assert bench.agent.requests[0].headers == {"traceparent": "00-1-2-01"}
    assert watcher.calls == [1]
    assert watcher.closed == 1


def test_what_came_after_the_last_answer_is_a_warning_of_the_execution(talk, bench) -> None:
    talk(Watcher(Seen(), late="It went on."), AgentReply("Done.", None, 5.0))
    (event,) = bench.events("execution.finished")
    assert "It went on." in map(bench.text, event.data["warnings"])


@pytest.mark.parametrize(
    "told",
    [use("lookup", "told_0"), use("lookup", "c1", order="A1", verbose=False)],
    ids=["no arguments", "other arguments of the same id"],
)
def test_a_call_that_was_told_in_part_counts_once(talk, bench, told: ToolUse) -> None:
    seen = Seen((use("lookup", "c1", "late", order="A1"),))
    _, data = talk(Watcher(seen), AgentReply("Done.", None, 5.0, tool_uses=(told,)))
    assert [bench.json(call["arguments"])["order"] for call in data["tool_calls"]] == ["A1"]
    assert bench.json(data["tool_calls"][0]["response"]) == "late"


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_agent_that_says_and_calls_nothing_passes_no_ban(talk, text) -> None:
    finished, _ = talk(Watcher(Seen()), AgentReply(text, None, 5.0), BANNED)
    assert finished.error is not None
    assert finished.error.code is ErrorCode.ENGINE_EMPTY_RESPONSE


def test_an_agent_that_is_seen_to_call_no_tools_passes_a_ban(talk) -> None:
    finished, _ = talk(Watcher(Seen()), AgentReply("Hi", None, 5.0), BANNED)
    assert finished.status is Status.PASSED


@pytest.mark.parametrize("check", [WANTED, BANNED])
def test_checks_are_undecided_where_calls_may_be_missing(talk, check) -> None:
    seen = Seen((use("lookup"),), missing="The trace is not complete.")
    finished, _ = talk(Watcher(seen), AgentReply("Hi", None, 5.0), check)
    assert finished.status is Status.ERRORED
    assert [found.message for found in finished.failed] == ["The trace is not complete."]


def test_an_agent_that_reports_its_calls_misses_none(talk) -> None:
    reply = AgentReply("Hi", None, 5.0, reports_tools=True)
    finished, data = talk(Watcher(Seen(missing="not complete")), reply, BANNED)
    assert finished.status is Status.PASSED
    assert "unseen" not in data


@pytest.mark.parametrize(("missing", "status"), [("late", Status.ERRORED), (None, Status.PASSED)])
def test_observers_that_see_all_make_up_for_a_report_that_lacks_calls(talk, missing, status):
    reply = AgentReply("Hi", None, 5.0, reports_tools=True, unseen="An agent is a tool.")
    finished, _ = talk(Watcher(Seen(missing=missing)), reply, BANNED)
    assert finished.status is status


def test_what_observers_know_of_a_failure_is_in_its_error(bench, make) -> None:
    bench.observers = (Watcher(Seen(), cause="Its call failed: 401."),)
    bench.agent.outcomes = [KindlmError(ErrorCode.PROVIDER_API_ERROR, "It returned 500.", "Look")]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    finished = bench.execute(make.case(targets=("shop",)), agents={"shop": target})
    assert finished.error is not None
    assert finished.error.message == "It returned 500. Its call failed: 401."


def test_observers_of_an_agent_that_cannot_be_opened_are_closed(
    bench, make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(agent: object) -> None:
        raise OSError("no process")

    monkeypatch.setattr(type(bench.agent), "__aenter__", fail)
    watcher = Watcher(Seen())
    bench.observers = (watcher,)
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    finished = bench.execute(make.case(targets=("shop",)), agents={"shop": target})
    assert finished.status is Status.ERRORED
    assert watcher.closed == 1


def test_observers_of_an_agent_that_does_not_exist_are_closed(bench, make) -> None:
    unknown = KindlmError(ErrorCode.PROVIDER_NOT_FOUND, "There is no such agent.")
    bench.no_agent = unknown
    watcher = Watcher(Seen())
    bench.observers = (watcher,)
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    finished = bench.execute(make.case(targets=("shop",)), agents={"shop": target})
    assert finished.error == unknown
    assert watcher.closed == 1


@pytest.mark.parametrize(
    ("reported_usd", "seen_usd", "spent_usd", "cost"),
    [
        (0.2, 0.25, 0.25, (0.2, "reported")),
        (0.0, 0.25, 0.25, (0.25, "computed")),
        (0.0, 0.0, 0.0, (0.0, "reported")),
        # One of the calls that were seen has a cost, and another one has none.
        (0.0, None, 0.25, (None, "unknown")),
        # No call that was seen has a known cost.
        (0.0, None, 0.0, (None, "unknown")),
    ],
)
def test_a_reported_cost_of_nothing_does_not_hide_what_was_seen(
    talk, reported_usd, seen_usd, spent_usd, cost
) -> None:
    source = CostSource.UNKNOWN if seen_usd is None else CostSource.COMPUTED
    seen = Seen(usage=Usage(10, 2), cost=Cost(seen_usd, source))
    reply = AgentReply("Hi", None, 5.0, usage=Usage(0, 0), reported_cost_usd=reported_usd)
    finished, data = talk(Watcher(seen, spends=spent_usd), reply)
    assert (data.get("cost_usd"), data["cost_source"]) == cost
    assert finished.cost_usd == spent_usd


@pytest.mark.parametrize(("seen_usd", "rest_usd"), [(0.0, 0.4), (0.25, 0.15), (0.5, 0.0)])
def test_what_an_agent_spent_counts_though_it_failed(bench, make, seen_usd, rest_usd) -> None:
    bench.observers = (Watcher(Seen(), spends=seen_usd),)
    spent = {"tokens": [10, 2], "cost_usd": 0.4, "model": "model-1"}
    bench.agent.outcomes = [make.failure(ErrorCode.PROVIDER_API_ERROR, **spent)]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    finished = bench.execute(make.case(targets=("shop",)), agents={"shop": target})
    (event,) = bench.events("agent.failed")
    assert event.data["cost_usd"] == pytest.approx(rest_usd)
    assert (event.data["cost_source"], event.data["gen_ai.response.model"]) == (
        "reported",
        "model-1",
    )
    assert event.data.get("gen_ai.usage.input_tokens") == (None if seen_usd else 10)
    assert finished.cost_usd == pytest.approx(seen_usd + rest_usd)


def test_an_agent_that_failed_without_a_known_cost_spent_what_was_seen(bench, make) -> None:
    bench.observers = (Watcher(Seen(), spends=0.25),)
    bench.agent.outcomes = [make.failure(ErrorCode.PROVIDER_API_ERROR, tokens=[10, 2])]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    finished = bench.execute(make.case(targets=("shop",)), agents={"shop": target})
    assert finished.cost_usd == 0.25


def test_a_reported_cost_of_nothing_counts_where_no_call_was_seen(talk) -> None:
    _, data = talk(Watcher(Seen()), AgentReply("Hi", None, 5.0, reported_cost_usd=0.0))
    assert (data["cost_usd"], data["cost_source"]) == (0.0, "reported")


def test_tokens_have_the_price_of_the_model_that_the_suite_names(bench, make) -> None:
    bench.agent.outcomes = [AgentReply("Hi", None, 5.0, usage=Usage(1_000_000, 1_000_000))]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1", model="model-1")
    case, prices = make.case(targets=("shop",)), {"model-1": Price(1.0, 2.0)}
    finished = bench.execute(case, agents={"shop": target}, prices=prices)
    assert finished.cost_usd == 3.0


def test_tokens_have_a_price_where_the_cost_of_what_was_seen_is_unknown(bench, make) -> None:
    bench.observers = (Watcher(Seen(cost=Cost())),)
    bench.agent.outcomes = [AgentReply("Hi", None, 5.0, usage=Usage(1_000_000, 1_000_000))]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    case, prices = make.case(targets=("shop",)), {"shop": Price(1.0, 2.0)}
    finished = bench.execute(case, agents={"shop": target}, prices=prices)
    assert finished.cost_usd == 3.0


@pytest.mark.parametrize(
    ("prices", "status", "usd"),
    [({}, Status.ERRORED, None), ({"shop": Price(1.0, 2.0)}, Status.PASSED, 3.0)],
)
def test_tokens_that_observers_saw_have_no_price_where_that_of_a_call_is_unknown(
    bench, make, prices, status, usd
) -> None:
    """One of several models may have none, or a call has a fee that tokens do not show."""
    tokens = Usage(1_000_000, 1_000_000)
    bench.observers = (Watcher(Seen(usage=tokens, cost=Cost(), model="gpt-4o")),)
    bench.agent.outcomes = [AgentReply("Hi", None, 5.0)]
    limit = demand("cost", "limit", {"maxUsd": 100.0})
    case = make.case(targets=("shop",), expectations=(limit,))
    target = AgentTarget("shop", "http", "http://127.0.0.1:1", model="gpt-4o")
    finished = bench.execute(case, agents={"shop": target}, prices=prices)
    (event,) = bench.events("agent.replied")
    assert (finished.status, event.data.get("cost_usd")) == (status, usd)


def test_what_observers_spent_is_counted_once(talk) -> None:
    seen = Seen(usage=Usage(10, 2), cost=Cost(0.25, CostSource.COMPUTED), model="model-1")
    finished, data = talk(Watcher(seen, spends=0.25), AgentReply("Hi", None, 5.0))
    assert finished.cost_usd == 0.25
    assert (data["cost_usd"], data["cost_source"]) == (0.25, "computed")
    assert data["gen_ai.usage.input_tokens"] == 10


def test_what_observers_spent_on_one_message_pays_nothing_of_the_next(bench, make) -> None:
    bench.observers = (Watcher(Seen(), spends=0.1),)
    bench.agent.outcomes = [AgentReply("Hi", None, 5.0, reported_cost_usd=0.4)]
    target = AgentTarget("shop", "http", "http://127.0.0.1:1")
    case = make.case(targets=("shop",), follow_ups=("More", "Again"))
    finished = bench.execute(case, agents={"shop": target})
    assert finished.cost_usd == pytest.approx(1.2)


def test_calls_that_cannot_be_assigned_keep_to_the_pace_of_the_others() -> None:
    def pace(_callee: object) -> Pace:
        return Pace("openai", LoopClock(), lambda _: None, max_rpm=60, most=6)

    async def starts() -> list[float]:
        calls = SimpleNamespace(run=SimpleNamespace(max_rpm=60, paces=OneForEach(pace)))
        desk, at = ObservedCalls("1.1", calls).unassigned(), []  # type: ignore[arg-type]
        for _ in range(3):
            async with desk.paced("openai"):
                at.append(LoopClock().monotonic())
        return at

    assert run_at_once(starts()) == [0.0, 1.0, 2.0]
