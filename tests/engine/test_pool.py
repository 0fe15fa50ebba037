"""Which executions go on at once: places, lanes, and how the whole ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import make_suite

from kindlm.engine.attempt import Finished
from kindlm.engine.pace import Callee, Pace, Turn
from kindlm.engine.resources import OneForEach
from kindlm.engine.runner import Pool
from kindlm.engine.stop import Clock, Stop
from kindlm.outcome import Status
from kindlm.plan import Earlier, Execution, Plan, make_plan
from kindlm.suite import Case, Command, ModelTarget, Prompt, ProviderSettings, Suite
from kindlm_store import WriteFailedError


def suite(
    name: str, tests: int, *, concurrency: int = 4, provider: str = "p", skip: bool = False
) -> Suite:
    cases = [
        Case(f"{name}{number}", prompt=Prompt("hi"), targets=("m",), skip=skip)
        for number in range(tests)
    ]
    return make_suite(
        *cases,
        name=name,
        concurrency=concurrency,
        providers={provider: ProviderSettings(provider, "scripted")},
        models={"m": ModelTarget("m", provider, "x")},
    )


class Hall:
    """Where executions go on: they stay until they are let out, unless the doors are open."""

    def __init__(self, plan: Plan, *, is_open: bool = True) -> None:
        self.plan = plan
        self.stop = Stop(grace_s=3_600)
        self.paces = OneForEach(self._pace)
        self.made: list[tuple[Callee, Pace]] = []
        self.reserved: dict[str, Turn] = {}
        self.started: list[str] = []
        self.inside: dict[str, asyncio.Event] = {}
        self.most = Counter[int | str]()
        self.cancelled: list[str] = []
        self.cut_off: set[str] = set()
        self.calls: Callable[[Execution], bool] = lambda execution: not execution.case.skip
        self.fails: dict[str, Exception] = {}
        self.reported: list[str] = []
        self.fail: set[str] = set()
        self.disk = asyncio.Event()
        self.disk.set()
        self._is_open = is_open
        self._now = Counter[int | str]()

    def _pace(self, callee: Callee) -> Pace:
        pace = Pace("p", Clock(), lambda change: None, most=100)
        self.made.append((callee, pace))
        return pace

    async def work(self, execution: Execution) -> Finished | None:
        name, ordinal = execution.case.name, execution.suite.ordinal
        self.started.append(name)
        self._now.update([ordinal, "all"])
        self.most |= self._now
        self.inside[name] = asyncio.Event()
        try:
            if not self._is_open:
                await self.inside[name].wait()
            await asyncio.sleep(0)
            if name in self.fails:
                raise self.fails[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            del self.inside[name]
            self._now.subtract([ordinal, "all"])
            if (reserved := self.reserved.pop(execution.id, None)) is not None:
                reserved.pace.answered(reserved)
        return (
            None
            if name in self.cut_off
            else Finished(execution, Status.FAILED if name in self.fail else Status.PASSED)
        )

    async def report(self, finished: Finished) -> None:
        await self.disk.wait()
        self.reported.append(finished.execution.case.name)

    def run(self, done: Sequence[str] = ()) -> asyncio.Task[bool]:
        run: Any = SimpleNamespace(
            stop=self.stop,
            paces=self.paces,
            reserved=self.reserved,
            earlier=Earlier(finished=frozenset(done)),
        )
        return asyncio.create_task(PoolOfHall(self, run).run())

    async def fills(self, *names: str) -> None:
        """Return when exactly these are inside, and nobody else comes."""
        async with asyncio.timeout(5):
            while set(self.inside) != set(names):
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert set(self.inside) == set(names)

    def let_out(self, *names: str) -> None:
        for name in names:
            self.inside[name].set()


class PoolOfHall(Pool):
    """A pool whose executions go on in a hall."""

    def __init__(self, hall: Hall, run: Any) -> None:
        super().__init__(run, hall.plan, lambda finished: None)
        self._will_call, self._work, self._report = hall.calls, hall.work, hall.report


def run_all(*suites: Suite, done: Sequence[str] = ()) -> Hall:
    async def whole() -> Hall:
        hall = Hall(make_plan(suites))
        assert await hall.run(done)
        return hall

    return asyncio.run(whole())


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5), st.sampled_from("pq")), max_size=4),
    st.sets(st.integers(1, 48).map(str)),
)
def test_places_are_never_exceeded_and_everything_is_done_once(
    shapes: list[tuple[int, int, str]], done: set[str]
) -> None:
    suites = [
        suite("abcd"[at], tests, concurrency=concurrency, provider=provider)
        for at, (tests, concurrency, provider) in enumerate(shapes)
    ]
    hall = run_all(*suites, done=list(done))
    left = [each.case.name for each in hall.plan if each.id not in done]
    assert sorted(hall.started) == sorted(left)
    limits = [concurrency for _, concurrency, _ in shapes]
    for ordinal, most in enumerate(limits):
        assert hall.most[ordinal] <= most
    assert hall.most["all"] <= max(limits, default=0)
    # Who asks the same provider is asked in the order of the plan.
    for provider in "pq":
        lane = [name for name in hall.started if shapes["abcd".index(name[0])][2] == provider]
        assert lane == [name for name in left if name in lane]


def test_the_next_suite_begins_while_the_last_test_of_one_goes_on() -> None:
    async def whole() -> None:
        hall = Hall(
            make_plan([suite("a", 2, concurrency=2), suite("b", 2, concurrency=2)]), is_open=False
        )
        running = hall.run()
        await hall.fills("a0", "a1")
        hall.let_out("a0")
        await hall.fills("a1", "b0")
        hall.let_out("b0")
        await hall.fills("a1", "b1")
        hall.let_out("a1", "b1")
        assert await running

    asyncio.run(whole())


def test_a_provider_that_allows_nothing_now_holds_up_no_other() -> None:
    async def whole() -> None:
        slow = suite("a", 8, concurrency=2, provider="slow")
        quick = suite("b", 8, concurrency=2, provider="quick")
        hall = Hall(make_plan([slow, quick]))
        pace = hall.paces.get(slow.providers["slow"])
        pace.refused(await pace.turn(), 3_600)
        running = hall.run()
        async with asyncio.timeout(5):
            while len(hall.started) < 8:
                await asyncio.sleep(0)
        assert hall.started == [f"b{n}" for n in range(8)]
        hall.stop.wind_down("enough")
        assert not await running
        assert len(hall.started) == 8

    asyncio.run(whole())


def test_a_command_needs_no_permission() -> None:
    async def whole() -> None:
        asking = suite("a", 2)
        command = Command(("true",), "/")
        starting = replace(
            asking,
            cases=(Case("c", prompt=Prompt(""), targets=("command",), command=command),),
            name="b",
        )
        hall = Hall(make_plan([asking, starting]))
        pace = hall.paces.get(asking.providers["p"])
        pace.refused(await pace.turn(), 3_600)
        running = hall.run()
        async with asyncio.timeout(5):
            while hall.started != ["c"]:
                await asyncio.sleep(0)
        hall.stop.wind_down("enough")
        assert not await running

    asyncio.run(whole())


def test_tests_without_calls_wait_for_no_turn() -> None:
    async def whole() -> None:
        skipped = suite("a", 3, skip=True)
        hall = Hall(make_plan([skipped]))
        pace = hall.paces.get(skipped.providers["p"])
        pace.refused(await pace.turn(), 3_600)
        async with asyncio.timeout(5):
            assert await hall.run()
        assert hall.started == ["a0", "a1", "a2"]

    asyncio.run(whole())


def test_the_first_calls_are_sent_before_all_places_are_taken() -> None:
    class Timeline(Hall):
        async def work(self, execution: Execution) -> Finished | None:
            timeline.append("start")
            finished = await super().work(execution)
            timeline.append("sent")
            return finished

    timeline: list[str] = []

    async def whole() -> None:
        hall = Timeline(make_plan([suite("a", 32, concurrency=32)]))
        hall.calls = lambda execution: False
        assert await hall.run()

    asyncio.run(whole())
    assert timeline.index("sent") <= 16
    assert timeline.count("start") == timeline.count("sent") == 32


def test_what_passed_leaves_its_place_while_the_disk_takes_it() -> None:
    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 20, concurrency=8)]))
        hall.disk.clear()
        running = hall.run()
        await hall.fills()
        # Eight are on their way to the disk, and eight more hold their places until they are.
        assert (len(hall.started), hall.reported) == (16, [])
        hall.disk.set()
        assert await running
        assert hall.reported == [f"a{n}" for n in range(20)]

    asyncio.run(whole())


def test_what_did_not_pass_keeps_its_place_until_it_is_reported() -> None:
    """What is reported may end the run: nothing is to start before."""

    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 20, concurrency=8)]))
        hall.fail = {f"a{n}" for n in range(8)}
        hall.disk.clear()
        running = hall.run()
        await hall.fills()
        hall.stop.wind_down("the first failure")
        hall.disk.set()
        assert not await running
        assert hall.started == hall.reported == [f"a{n}" for n in range(8)]

    asyncio.run(whole())


def test_a_history_that_takes_nothing_any_more_ends_everything() -> None:
    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 9, concurrency=3)]), is_open=False)
        hall.fails["a1"] = WriteFailedError("the disk is full")
        running = hall.run()
        await hall.fills("a0", "a1", "a2")
        hall.let_out("a1")
        with pytest.raises(WriteFailedError, match="the disk is full"):
            await running
        assert sorted(hall.cancelled) == ["a0", "a2"]
        assert hall.started == ["a0", "a1", "a2"]

    asyncio.run(whole())


def test_once_the_run_winds_down_no_place_that_is_freed_is_taken() -> None:
    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 9, concurrency=2)]), is_open=False)
        running = hall.run()
        await hall.fills("a0", "a1")
        hall.let_out("a0")
        hall.stop.wind_down("enough")
        await hall.fills("a1")
        hall.let_out("a1")
        assert not await running
        assert hall.started == ["a0", "a1"]
        assert hall.cancelled == []

    asyncio.run(whole())


@pytest.mark.parametrize("done", [[], ["1"], ["1", "2"]])
def test_a_run_that_is_to_stop_before_it_begins_starts_nothing(done: list[str]) -> None:
    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 2)]))
        hall.stop.abort("no money")
        assert await hall.run(done) is (len(done) == 2)
        assert hall.started == []

    asyncio.run(whole())


def test_a_plan_without_executions_is_complete() -> None:
    assert run_all().started == []
    assert run_all(suite("a", 0)).started == []


def test_a_plan_is_not_done_while_one_of_it_was_cut_off() -> None:
    async def whole() -> None:
        hall = Hall(make_plan([suite("a", 3)]))
        hall.cut_off = {"a1"}
        assert not await hall.run()
        assert sorted(hall.started) == ["a0", "a1", "a2"]

    asyncio.run(whole())
