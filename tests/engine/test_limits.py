"""What ends a run or an execution early: costs, time, and the waits between tries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from engine_calls import make_calls
from evaluated import demand
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import LoopClock, run_at_once

from kindlm.engine.calls import MAX_DELAY_S, retry_delay
from kindlm.engine.pace import Pace
from kindlm.engine.resources import Limits
from kindlm.engine.stop import Budget, Deadline, Permit, Stop
from kindlm.errors import ErrorCode, Ok, Result
from kindlm.outcome import Gate, Status
from kindlm.plan import Earlier
from kindlm.ports import Embedding, Provenance
from kindlm.providers.embedders import LocalEmbedder
from kindlm.suite import AgentTarget, Expectation, Price
from kindlm.transcript import Cost, CostSource, Usage

CALL_USD = 0.01
PRICES = {"model-1": Price(0, 2)}
ANSWER = {"usage": Usage(10, 5_000)}
AT_ONCE = 4
SIMILAR = demand("similar_to", "Hi", {"text": "Hi", "method": "embedding"})


def judged(passes: int = 12) -> Expectation:
    params = {"criteria": "is kind", "minScore": 0.5, "passes": passes}
    return demand("judge", "is kind", params)


def gate(usd: float) -> Gate:
    return Gate("costMaxUsd", usd, written=True)


def suite_of(make, *cases, **fields):
    return make.suite(*cases, prices=PRICES, concurrency=AT_ONCE, **fields)


def conversations(make):
    """Who would go on for long: with turns of tools, with judges, with further messages."""
    tool = make.tool("lookup", default={"ok": True})
    return [
        make.case("tools", tools=(tool,), max_turns=20, repeat=8),
        make.case("judges", expectations=(judged(),), repeat=8),
        make.case("messages", follow_ups=("and?",) * 10, repeat=8),
    ]


def answers(bench, make, case):
    calls = [make.call()] if case.name == "tools" else []
    bench.queue(make.reply("Hello there", *calls, **ANSWER))
    bench.client.judgement = make.reply('{"score": 1, "reasoning": "yes"}', **ANSWER)


@pytest.mark.parametrize("which", range(3))
def test_no_call_of_any_kind_starts_once_the_run_has_spent_its_money(bench, make, which):
    case = conversations(make)[which]
    answers(bench, make, case)
    stop = Stop()
    limit = 10 * CALL_USD
    done = asyncio.run(bench.run([suite_of(make, case)], stop, limits=Limits(max_cost_usd=limit)))
    assert not done
    # Ten are paid with it, the eleventh passes it, and what was in flight then is answered.
    assert 11 <= len(bench.client.requests) <= 10 + AT_ONCE
    assert stop.aborted
    spent = len(bench.client.requests) * CALL_USD
    assert stop.reason == f"${spent:.4f} spent, more than --max-cost allows ($0.1)"
    ended = {event.subject for event in bench.events("execution.finished")}
    started = {event.subject for event in bench.events("execution.started")}
    assert started - ended
    # What was cut off is told by nothing but its calls, all of which were answered.
    assert len(bench.events("provider.responded")) == len(bench.client.requests)
    assert bench.events("provider.failed") == []


def test_no_call_starts_in_a_run_without_any_time(bench, make):
    stop = Stop()
    suite = make.suite(make.case(repeat=3), concurrency=AT_ONCE)
    assert not asyncio.run(bench.run([suite], stop, limits=Limits(max_time_s=0)))
    assert (bench.client.requests, bench.events("execution.started")) == ([], [])
    assert stop.reason == "the run took longer than 0 s (--max-time)"


@pytest.mark.parametrize("which", range(3))
def test_no_call_starts_after_one_of_unknown_cost(bench, make, which):
    case = conversations(make)[which]
    answers(bench, make, case)
    stop = Stop()
    suite = make.suite(case, concurrency=AT_ONCE)
    assert not asyncio.run(bench.run([suite], stop, limits=Limits(max_cost_usd=100.0)))
    assert len(bench.client.requests) <= AT_ONCE
    assert stop.aborted
    assert stop.reason == (
        'a call of unknown cost was made to "model-1", so the limit cannot be kept'
    )


@pytest.mark.parametrize("which", ["model", "judge", "embedder", "agent"])
def test_the_cost_of_a_call_is_unknown_if_kindlm_itself_fails_in_it(bench, make, which):
    crash = RuntimeError("a bug")
    bench.queue(*([] if which == "model" else [make.reply("Hi")]), crash)
    bench.agent.outcomes = [crash]
    bench.embedder = Remote(crash=crash)
    checks = {"judge": (judged(1),), "embedder": (SIMILAR,)}.get(which, ())
    target = "shop" if which == "agent" else "m"
    suite = make.suite(
        make.case(targets=(target,), expectations=checks, repeat=3),
        agents={"shop": AgentTarget("shop", "http", "http://127.0.0.1:1/chat")},
        prices=PRICES,
        concurrency=1,
    )
    stop = Stop()
    assert not asyncio.run(bench.run([suite], stop, limits=Limits(max_cost_usd=1.0)))
    assert "a call of unknown cost was made" in (stop.reason or "")
    (failed,) = bench.events("provider.failed", "agent.failed")
    assert (failed.data["cost_source"], failed.data["error_code"]) == ("unknown", "UNKNOWN_ERROR")
    assert "RuntimeError: a bug" in (bench.text(failed.data["message"]) or "")


def test_embeddings_on_this_machine_cost_nothing(bench, make):
    class Local(LocalEmbedder):
        def _encode(self, texts):
            return [[1.0]] * len(texts)

    bench.embedder = Local("potion", None)
    answers(bench, make, make.case())
    suite = suite_of(make, make.case(expectations=(SIMILAR,), repeat=5))
    assert asyncio.run(bench.run([suite], limits=Limits(max_cost_usd=1.0)))
    costs = [event.data["cost_usd"] for event in bench.events("provider.responded")]
    assert sorted(costs) == [0.0] * 5 + [CALL_USD] * 5


@dataclass
class Remote:
    """An embedder of the provider `p`; implements `Embedder`."""

    provider: str = "p"
    model: str = "embedder-1"
    asked: int = 0
    crash: Exception | None = None

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        self.asked += 1
        if self.crash is not None:
            raise self.crash
        return Ok(Embedding(((1.0,),) * len(texts), 5.0, Usage(1_000)))

    async def aclose(self) -> None:
        """Do nothing."""


def test_embeddings_of_a_provider_cost_the_price_of_their_texts(bench, make):
    bench.embedder = Remote()
    bench.queue(make.reply("Hi"))
    prices = {"model-1": Price(0, 0), "embedder-1": Price(10, 1_000)}
    finished = bench.execute(make.case(expectations=(SIMILAR,)), prices=prices)
    assert (finished.status, finished.cost_usd) == (Status.PASSED, 0.01)
    *_, answered = bench.events("provider.responded")
    assert answered.data["gen_ai.usage.input_tokens"] == 1_000


def test_a_limit_of_nothing_allows_no_embedding_of_a_recorded_answer(bench, make):
    recorded = Ok(make.reply("Hi", recorded=Provenance("k3f9x2ab-1.1/1", Cost(0.0))))
    bench.answers = lambda _: SimpleNamespace(answer=lambda _: recorded)
    bench.embedder = Remote()
    suite = suite_of(make, make.case(expectations=(SIMILAR,)))
    assert not asyncio.run(bench.run([suite], limits=Limits(max_cost_usd=0.0)))
    assert bench.embedder.asked == 0


@pytest.mark.parametrize("which", range(3))
def test_a_limit_of_nothing_allows_no_call(bench, make, which):
    case = conversations(make)[which]
    answers(bench, make, case)
    stop = Stop()
    limits = Limits(max_cost_usd=0.0)
    assert not asyncio.run(bench.run([suite_of(make, case)], stop, limits=limits))
    assert bench.client.requests == []
    assert stop.aborted
    assert stop.reason == "--max-cost 0 allows no call"
    assert bench.events("execution.finished") == []


def test_what_was_cut_off_is_run_again_when_there_is_more_money(bench, make):
    suite = suite_of(make, make.case(expectations=(judged(3),), repeat=6))
    answers(bench, make, suite.cases[0])
    limits = Limits(max_cost_usd=9 * CALL_USD)
    assert not asyncio.run(bench.run([suite], limits=limits))
    spent = {0: len(bench.client.requests) * CALL_USD}
    ended = {event.subject.split(".")[0] for event in bench.events("execution.finished")}
    begun = {event.subject.split(".")[0] for event in bench.events("execution.started")}
    earlier = Earlier(frozenset(ended), dict.fromkeys(begun - ended, 1), spent_usd=spent)
    assert asyncio.run(bench.run([suite], limits=Limits(max_cost_usd=1.0), earlier=earlier))
    ends = bench.events("execution.finished")
    assert sorted(event.subject.split(".")[0] for event in ends) == list("123456")
    assert {event.data["status"] for event in ends} == {"passed"}
    assert {f"{number}.2" for number in begun - ended} <= {event.subject for event in ends}


@pytest.mark.parametrize("again", [{}, {"retryable": True}, {"resend": True}])
def test_answers_that_cannot_be_used_are_paid_for(bench, make, again):
    error = make.failure(ErrorCode.PROVIDER_API_ERROR, model="model-1", **again, **ANSWER)
    bench.queue(error)
    suite = suite_of(make, make.case(repeat=20))
    assert not asyncio.run(bench.run([suite], limits=Limits(max_cost_usd=10 * CALL_USD)))
    assert 11 <= len(bench.client.requests) <= 10 + AT_ONCE
    failed = [event.data for event in bench.events("provider.failed")]
    assert sum(data["cost_usd"] for data in failed) == pytest.approx(len(failed) * CALL_USD)
    assert (failed[0]["cost_source"], failed[0]["gen_ai.response.model"]) == ("computed", "model-1")
    assert failed[0]["gen_ai.usage.output_tokens"] == 5_000


@pytest.mark.parametrize("calls", [0, 10])
@pytest.mark.parametrize("which", range(3))
def test_a_suite_that_has_spent_its_money_makes_no_call_and_others_go_on(bench, make, which, calls):
    case = conversations(make)[which]
    answers(bench, make, case)
    poor = suite_of(make, case, name="poor", gates=(gate(calls * CALL_USD),))
    other = make.case("other", repeat=2, max_turns=1)
    rich = suite_of(make, other, name="rich", gates=(gate(9.0),))
    assert asyncio.run(bench.run([poor, rich]))
    statuses: dict[str, set[Status]] = {"poor": set(), "rich": set()}
    for finished in bench.finished:
        statuses[finished.execution.suite.suite.name].add(finished.status)
    assert Status.SKIPPED in statuses["poor"]
    assert len(bench.finished) == 10
    assert Status.SKIPPED not in statuses["rich"]
    assert len(bench.client.requests) <= calls + AT_ONCE + 2
    reasons = {
        warning
        for event in bench.events("execution.finished")
        if event.data["status"] == "skipped"
        for warning in bench.warnings(event)
    }
    limit = f"{calls * CALL_USD:g}"
    assert reasons == {f"the suite had spent more than its costMaxUsd of ${limit}"}


def test_who_waits_to_try_again_is_cut_off_when_the_money_is_spent(bench, make):
    """One pauses for an hour by its own clock; the answers of the others pass the limit."""
    retry = make.failure(ErrorCode.PROVIDER_NETWORK_ERROR, retryable=True)
    bench.queue(retry, make.reply("fine", **ANSWER))
    bench.clock.sleeps_for_ever = True
    suite = suite_of(make, make.case(repeat=6))
    limits = Limits(max_cost_usd=2.5 * CALL_USD)
    assert not asyncio.run(asyncio.wait_for(bench.run([suite], limits=limits), 30))
    assert len(bench.client.requests) <= 3 + AT_ONCE


@pytest.mark.parametrize("retry_after", [None, 30.0])
def test_waiting_executions_get_no_grace(bench, make, retry_after):
    code = ErrorCode.PROVIDER_RATE_LIMIT if retry_after else ErrorCode.PROVIDER_NETWORK_ERROR
    bench.queue(make.failure(code, retryable=True, retry_after=retry_after))
    bench.clock.sleeps_for_ever = True
    stop = Stop(grace_s=3_600)

    async def stopped() -> bool:
        running = asyncio.create_task(
            bench.run([make.suite(make.case(repeat=4), concurrency=2)], stop)
        )
        while len(bench.client.requests) < 2 or bench.client.running:
            await asyncio.sleep(0)
        stop.request("Ctrl-C")
        return await asyncio.wait_for(running, 30)

    assert not asyncio.run(stopped())
    assert bench.events("execution.finished") == []
    assert len(bench.client.requests) == 2


def test_what_a_provider_asks_to_wait_is_no_time_of_the_execution(bench, make):
    limit = make.failure(ErrorCode.PROVIDER_RATE_LIMIT, retryable=True, retry_after=120.0)
    bench.queue(limit, limit, make.reply("fine"))
    finished = bench.execute(make.case(), execution_timeout_ms=60_000)
    assert finished.status is Status.PASSED
    assert [delay for delay in bench.clock.slept if delay > 60] == [120.0, 120.0]


def test_a_wait_of_more_than_five_minutes_is_not_waited_for(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_RATE_LIMIT, retryable=True, retry_after=301.0))
    finished = bench.execute(make.case())
    assert finished.status is Status.ERRORED
    assert len(bench.client.requests) == 1


def test_a_model_that_answers_by_another_name_costs_what_the_user_says(bench, make):
    bench.queue(make.reply("fine", model="gpt-4o-behind-a-gateway", **ANSWER))
    suite = suite_of(make, make.case(repeat=9))
    limits = Limits(max_cost_usd=2 * CALL_USD)
    assert not asyncio.run(bench.run([suite], limits=limits))
    assert len(bench.client.requests) <= 2 + AT_ONCE


USD = st.integers(0, 50).map(lambda cents: cents / 100)


class Reviewed(Stop):
    """Counts how often waiting executions are reviewed."""

    reviews = 0

    def review(self) -> None:
        self.reviews += 1


def cost(usd: float) -> Cost:
    return Cost(usd, CostSource.COMPUTED)


@given(st.lists(st.tuples(st.sampled_from([0, 1]), USD)), USD, USD)
def test_a_limit_holds_up_its_own_suite_only(
    spent: list[tuple[int, float]], limit: float, most: float
) -> None:
    stop = Reviewed()
    budget = Budget(stop, {0: limit}, most)
    for ordinal, usd in spent:
        budget.spend(ordinal, "m", cost(usd))
    total = sum(usd for _, usd in spent)
    assert math.isclose(budget.total_usd, total, abs_tol=1e-9)
    assert budget.is_used_up is (total > most and not math.isclose(total, most))
    assert bool(stop.reviews) is any(budget.is_spent(ordinal) for ordinal, _ in spent)
    assert stop.aborted is budget.is_used_up
    of_suite = math.fsum(usd for ordinal, usd in spent if ordinal == 0)
    if not math.isclose(of_suite, limit):
        assert (budget.limit_exceeded(0) == limit) is (of_suite > limit)
    assert budget.limit_exceeded(1) is None


def test_to_spend_exactly_what_is_allowed_is_allowed() -> None:
    budget = Budget(Stop(), {0: 0.5}, 0.5)
    budget.spend(0, "m", cost(0.5))
    assert not budget.is_used_up
    assert budget.limit_exceeded(0) is None


def test_what_is_off_by_rounding_alone_is_within_the_limit() -> None:
    budget = Budget(Stop(), {0: 0.6}, 0.6)
    for _ in range(60):
        budget.spend(0, "m", cost(0.01))
    assert not budget.is_spent(0)
    budget.spend(0, "m", cost(0.000_001))
    assert budget.is_used_up
    assert budget.limit_exceeded(0) == 0.6


def test_what_earlier_sessions_spent_counts() -> None:
    budget = Budget(Stop(), {0: 0.5}, 2.0, {0: 0.6, 1: 1.5})
    assert budget.is_used_up
    assert budget.limit_exceeded(0) == 0.5


def test_without_a_limit_nothing_is_used_up() -> None:
    budget = Budget(Stop(), {})
    budget.spend(0, "m", cost(1e9))
    assert not budget.is_used_up
    assert budget.limit_exceeded(0) is None


def test_a_model_without_a_price_is_reported_once_where_there_is_a_limit() -> None:
    told: list[str] = []
    budget = Budget(Stop(), {0: 1.0}, unpriced=told.append)
    for ordinal, model in [(0, "new"), (0, "new"), (1, "other"), (0, "newer")]:
        budget.spend(ordinal, model, Cost())
    assert told == ["new", "newer"]
    assert budget.total_usd == 0
    assert not budget.is_spent(0)


def test_a_call_of_unknown_cost_passes_the_limit_of_the_run_alone() -> None:
    stop = Reviewed()
    budget = Budget(stop, {0: 1.0}, 2.0)
    budget.report_unpriced(0, "new")
    assert not budget.is_used_up
    budget.spend(0, "newer", Cost())
    assert budget.is_used_up
    assert budget.limit_exceeded(0) is None
    assert "newer" in budget.why_used_up


def test_who_waits_when_a_run_stops_is_cut_off_once_and_makes_no_more_calls() -> None:
    async def execution() -> tuple[bool, bool]:
        stop = Stop()
        permit = Permit(stop, Budget(stop, {}), 0)
        try:
            with permit.waiting():
                with permit.waiting():
                    await asyncio.sleep(0)
                stop.request("enough")
                stop.review()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            return permit.takes_back(), permit.is_over
        return False, False

    assert asyncio.run(asyncio.wait_for(execution(), 5)) == (True, True)


def test_who_does_not_wait_when_a_run_stops_goes_on() -> None:
    async def execution() -> bool:
        stop = Stop()
        permit = Permit(stop, Budget(stop, {}), 0)
        stop.request("enough")
        permit.review()
        await permit.to_call()
        return permit.is_over

    assert not asyncio.run(execution())


TIME_S = 60.0


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_work_that_never_ends_is_ended() -> None:
    async def whole() -> None:
        with pytest.raises(TimeoutError):
            async with Deadline(TIME_S, LoopClock()).timeout:
                await for_ever()

    run_at_once(whole())


def test_time_that_stands_still_does_not_run_out_and_runs_on_afterwards() -> None:
    came_back: list[bool] = []

    async def work() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        async with deadline.timeout:
            with deadline.paused():
                await asyncio.sleep(4 * TIME_S)
            came_back.append(True)
            await for_ever()

    with pytest.raises(TimeoutError):
        run_at_once(work())
    assert came_back


def test_how_much_is_left_does_not_shrink_while_time_stands_still() -> None:
    async def whole() -> None:
        deadline = Deadline(3_600, LoopClock())
        async with deadline.timeout:
            assert deadline.leaves(3_590)
            assert not deadline.leaves(3_600)
            with deadline.paused():
                await asyncio.sleep(TIME_S)
            assert deadline.leaves(3_590)

    run_at_once(whole())


def test_time_stands_still_until_the_last_one_goes_on() -> None:
    async def whole() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        first_goes_on, second_goes_on = asyncio.Event(), asyncio.Event()

        async def wait(until: asyncio.Event) -> None:
            with deadline.paused():
                await until.wait()

        async with deadline.timeout:
            waiting = [asyncio.create_task(wait(e)) for e in (first_goes_on, second_goes_on)]
            await asyncio.sleep(0)
            first_goes_on.set()
            await asyncio.sleep(4 * TIME_S)
            assert deadline.leaves(TIME_S / 2)
            second_goes_on.set()
            await asyncio.gather(*waiting)

    run_at_once(whole())


def test_time_that_stands_still_already_does_not_shrink() -> None:
    async def whole() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        async with deadline.timeout:
            with deadline.paused():
                await asyncio.sleep(4 * TIME_S)
                with deadline.paused():
                    await asyncio.sleep(TIME_S)
            assert deadline.leaves(TIME_S / 2)

    run_at_once(whole())


def test_who_waits_beyond_the_end_of_an_execution_goes_on() -> None:
    """A call that an agent left behind waits for the pace, and the execution ends meanwhile."""

    async def whole() -> None:
        deadline, goes_on = Deadline(TIME_S, LoopClock()), asyncio.Event()

        async def wait() -> str:
            with deadline.paused():
                await goes_on.wait()
            with deadline.paused():
                return "came"

        async with deadline.timeout:
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
        goes_on.set()
        assert await waiting == "came"

    run_at_once(whole())


def test_who_is_cancelled_while_time_stands_still_is_cancelled() -> None:
    async def whole() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        waits = asyncio.Event()

        async def work() -> None:
            async with deadline.timeout:
                with deadline.paused():
                    waits.set()
                    await for_ever()

        task = asyncio.create_task(work())
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_at_once(whole())


def test_waiting_for_a_turn_takes_none_of_the_time_of_an_execution() -> None:
    async def whole() -> None:
        clock = LoopClock()
        pace = Pace("p", clock, lambda change: None, most=1)
        first = await pace.turn()
        deadline = Deadline(TIME_S, clock)
        calls = make_calls(clock, deadline)

        async def give_back() -> None:
            await asyncio.sleep(4 * TIME_S)
            pace.answered(first)

        giving = asyncio.create_task(give_back())
        async with deadline.timeout:
            await calls.turn(pace)
        await giving

    run_at_once(whole())


def test_the_wait_doubles_with_each_try():
    delays = [retry_delay(attempt, None, 0.5) for attempt in range(4)]
    assert delays == [0.25, 0.5, 1.0, 2.0]


def test_what_the_provider_says_is_taken_as_it_is():
    assert retry_delay(5, 7.5, 0.9) == 7.5


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_no_wait_is_longer_than_the_longest_or_shorter_than_half_the_base(attempt, random):
    assert 0.25 <= retry_delay(attempt, None, random) <= MAX_DELAY_S


def test_what_leads_to_the_settings_of_a_run_does_not_show_them() -> None:
    async def shown() -> list[str]:
        clock = LoopClock()
        calls = make_calls(clock, Deadline(1, clock))
        return [repr(calls), repr(calls.run)]

    assert not any("Suite(" in text for text in run_at_once(shown()))
