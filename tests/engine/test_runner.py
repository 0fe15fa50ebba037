"""A whole plan: the pool, the error boundary around each execution, and stopping."""

from __future__ import annotations

import asyncio

from kindlm.engine.stop import Stop
from kindlm.errors import ErrorCode
from kindlm.outcome import Status


def test_every_execution_of_every_suite_runs_once(bench, make):
    suites = [make.suite(make.case("a", repeat=3), make.case("b")), make.suite(make.case("c"))]
    assert asyncio.run(bench.run(suites))
    names = [(f.execution.case.name, f.execution.repeat) for f in bench.finished]
    assert sorted(names) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    assert sorted({event.subject for event in bench.events()}) == [
        "1.1",
        "2.1",
        "3.1",
        "4.1",
        "5.1",
    ]


def test_no_more_run_at_once_than_the_suite_allows(bench, make):
    asyncio.run(bench.run([make.suite(make.case(repeat=20), concurrency=3)]))
    assert bench.client.most_at_once == 3


def test_an_execution_that_fails_leaves_the_others_alone(bench, make):
    bench.queue(
        make.reply("fine"),
        make.failure(ErrorCode.PROVIDER_AUTH_ERROR),
        RuntimeError("a bug"),
        make.reply("fine"),
    )
    asyncio.run(bench.run([make.suite(make.case(repeat=4), concurrency=1)]))
    statuses = [finished.status for finished in bench.finished]
    assert statuses == [Status.PASSED, Status.ERRORED, Status.ERRORED, Status.PASSED]


def test_a_skipped_case_is_recorded_and_nothing_is_called(bench, make):
    asyncio.run(bench.run([make.suite(make.case(skip=True, repeat=3))]))
    assert bench.client.requests == []
    (end,) = bench.events("execution.finished")
    assert end.data["status"] == "skipped"


def test_clients_are_closed_at_the_end(bench, make):
    asyncio.run(bench.run([make.suite()]))
    assert bench.client.closed


def test_after_a_stop_nothing_new_starts_and_what_is_in_flight_finishes(bench, make):
    stop = Stop()
    suite = make.suite(make.case(repeat=10), concurrency=2)

    async def stopped() -> bool:
        bench.client.gate = asyncio.Event()
        running = asyncio.create_task(bench.run([suite], stop))
        while bench.client.running < 2:
            await asyncio.sleep(0)
        stop.request("Ctrl-C")
        bench.client.gate.set()
        return await running

    assert not asyncio.run(stopped())
    assert len(bench.events("execution.finished")) == 2
    assert len(bench.client.requests) == 2


def test_a_second_stop_cancels_what_is_in_flight(bench, make):
    stop = Stop(grace_s=3600)

    async def stopped() -> bool:
        bench.client.gate = asyncio.Event()
        running = asyncio.create_task(bench.run([make.suite()], stop))
        while not bench.client.running:
            await asyncio.sleep(0)
        stop.request("Ctrl-C")
        stop.at_once.set()
        return await running

    assert not asyncio.run(stopped())
    assert bench.events("execution.finished") == []
    assert bench.client.closed


def test_a_stop_that_comes_with_the_last_execution_leaves_the_run_complete(bench, make):
    stop = Stop()

    async def stopped() -> bool:
        bench.client.gate = asyncio.Event()
        running = asyncio.create_task(bench.run([make.suite()], stop))
        while not bench.client.running:
            await asyncio.sleep(0)
        stop.request("Ctrl-C")
        bench.client.gate.set()
        return await running

    assert asyncio.run(stopped())


def test_a_provider_that_wants_to_be_left_alone_for_long_is_reported(bench, make):
    limit = ErrorCode.PROVIDER_RATE_LIMIT
    bench.queue(make.failure(limit, retryable=True, retry_after=60.0), make.reply("fine"))
    asyncio.run(bench.run([make.suite(make.case(repeat=1))]))
    assert bench.held_up == [("p", 60.0)]
    assert [event.data["callee"] for event in bench.events("provider.paced")][:1] == ["p"]


def test_a_short_pause_is_no_news(bench, make):
    limit = ErrorCode.PROVIDER_RATE_LIMIT
    bench.queue(make.failure(limit, retryable=True, retry_after=2.0), make.reply("fine"))
    asyncio.run(bench.run([make.suite(make.case(repeat=1))]))
    assert bench.held_up == []


def test_an_account_that_has_to_pay_slows_no_other_test(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_RATE_LIMIT, retryable=False, unpaid=True))
    asyncio.run(bench.run([make.suite(make.case(repeat=30))]))
    assert len(bench.events("execution.finished")) == 30
    assert bench.events("provider.paced") == []
