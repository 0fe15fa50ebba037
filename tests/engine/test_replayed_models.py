"""Agents whose models answer as an earlier run did: what they cost, and what was never asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kindlm.errors import ErrorCode, KindlmError
from kindlm.outcome import NOTHING_CHECKED, Status
from kindlm.ports import Agent, AgentReply, ReplayedModels
from kindlm.suite import AgentTarget, RecordedAnswer
from kindlm.transcript import PaidBefore, Usage

MISS = KindlmError(ErrorCode.PROVIDER_NOT_FOUND, "never recorded", "Record it")


@dataclass
class Models:
    """Implements `RecordedAnswers` and `ReplayedModels`."""

    missed: KindlmError | None = None
    source: str = "k3f9x2ab-17.1"
    warnings: tuple[str, ...] = ("Answered as repeat 1 was.",)

    def models(self) -> ReplayedModels:
        return self

    def answer(self, path: str, body: object) -> str:
        raise AssertionError("the agent has no gateway here")

    def then(self, message: int, failed: int) -> tuple[PaidBefore, float | None]:
        return PaidBefore(0.5, 10 * message + 3 - failed), [900.0, 700.0][message]

    def agent(self) -> Agent:
        raise AssertionError("the real agent is asked")


@pytest.fixture
def replay(bench, make):
    """Return a function that asks an agent again, and gives the end of its test."""

    def replay(models: Models, *outcomes: AgentReply | KindlmError, **case):
        bench.answers = lambda execution: models
        bench.agent.outcomes = list(outcomes)
        target = AgentTarget("shop", "http", "http://127.0.0.1:1")
        return bench.execute(make.case(targets=("shop",), **case), agents={"shop": target})

    return replay


AGAIN = {"status": 500, "retryable": True}
ANSWER = AgentReply("Hi", None, 5.0, usage=Usage(10, 2), reported_cost_usd=0.25)


def test_costs_and_times_are_those_of_the_record(replay, bench) -> None:
    finished = replay(Models(), ANSWER)
    assert finished.cost_usd == 0
    (reply,), (end,) = bench.events("agent.replied"), bench.events("execution.finished")
    assert reply.data["models_of"] == "k3f9x2ab-17.1"
    assert (reply.data["failed_then_usd"], reply.data["unknown_then"]) == (0.5, 3)
    for data in (reply.data, end.data):
        assert (data["cost_usd"], data["cost_then_usd"]) == (0, 0.25)
    assert (reply.data["latency_ms"], end.data["latency_ms"]) == (900.0, 900.0)
    assert bench.warnings(end) == ["Answered as repeat 1 was.", NOTHING_CHECKED]


def test_a_try_that_fails_again_is_not_counted_as_one_that_failed_then(replay, bench) -> None:
    failure = KindlmError(ErrorCode.PROVIDER_API_ERROR, "", details=AGAIN)
    replay(Models(), failure, ANSWER, ANSWER, follow_ups=("More",))
    replies = bench.events("agent.replied")
    assert [reply.data["unknown_then"] for reply in replies] == [2, 13]


def test_what_a_failed_try_spends_is_paid_already(replay, bench) -> None:
    spent = {**AGAIN, "tokens": [10, 2], "cost_usd": 0.4}
    failure = KindlmError(ErrorCode.PROVIDER_API_ERROR, "", details=spent)
    assert replay(Models(), failure, ANSWER).cost_usd == 0
    (failed,) = bench.events("agent.failed")
    assert "cost_usd" not in failed.data


def test_a_cost_that_was_not_known_then_is_not_known_now(replay, bench) -> None:
    replay(Models(), replace(ANSWER, reported_cost_usd=None))
    (reply,) = bench.events("agent.replied")
    assert reply.data.get("cost_usd") is None
    assert reply.data.get("cost_then_usd") is None


@pytest.mark.parametrize(
    "made_of_it",
    [
        ANSWER,
        KindlmError(ErrorCode.PROVIDER_API_ERROR, "422", details=AGAIN),
    ],
)
def test_a_request_that_was_never_recorded_is_the_error_whatever_the_agent_makes_of_it(
    replay, bench, made_of_it
) -> None:
    finished = replay(Models(MISS), made_of_it)
    assert finished.status is Status.ERRORED
    assert finished.error is not None
    assert (finished.error.message, finished.error.hint) == ("never recorded", "Record it")
    (end,) = bench.events("execution.finished")
    assert end.data.get("cost_usd") is None
    # It would be missed again.
    assert len(bench.agent.requests) == 1


class ToolResults(Models):
    """The results of tools in an earlier run, for a model that is called again."""

    def models(self) -> None:
        return None

    def answer(self, asked: object) -> None:
        return None

    def tool_results(self) -> dict[str, list[RecordedAnswer]]:
        return {name: [RecordedAnswer({}, "then")] for name in ("lookup", "refund")}


def test_only_tools_of_a_server_have_their_results_from_the_record(bench, make) -> None:
    bench.answers = lambda execution: ToolResults()
    calls = make.call("lookup", "c1"), make.call("refund", "c2")
    bench.queue(make.reply("", *calls), make.reply("done"))
    tools = make.tool("lookup", server="shop"), make.tool("refund", default="now")
    assert bench.execute(make.case(tools=tools)).status is Status.PASSED
    _, second = bench.client.requests
    assert [message.text for message in second.messages[-2:]] == ["then", "now"]
