"""The coordinator, with workers that do in the history what processes would do there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pytest
import typer
from recorded_history import History
from suites import make_suite

from kindlm.cli.run_options import parse_shard
from kindlm.dataclass import replace
from kindlm.engine.resources import Limits
from kindlm.engine.stop import Stop
from kindlm.fleet import coordinator as module
from kindlm.fleet.coordinator import Coordinator, Durations, longest_first, shard_count
from kindlm.fleet.workers import ShardEnd, ShardJob
from kindlm.guard import ENDED_BY_USER_CODE
from kindlm.plan import Plan, make_plan
from kindlm.suite import Case, Prompt
from kindlm.team.protocol import NOT_TAKEN


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.001)


_NO_LIMITS = Limits()

Work = Callable[["Workers", int], ShardEnd]


class Workers:
    """A fleet whose workers do their work as soon as it is submitted, one piece after another."""

    capacity = 2

    def __init__(self, history: History, *works: Work) -> None:
        self.history = history
        self.coordinator: Coordinator
        self.claimed: list[dict[str, object]] = []
        self.submitted: list[int] = []
        self._works: Iterator[Work] = iter(works)

    def submit(self, job: ShardJob) -> Future[ShardEnd]:
        shard = job.shard
        self.submitted.append(shard)
        pending: Future[ShardEnd] = Future()
        try:
            pending.set_result(next(self._works)(self, shard))
        except OSError as error:
            pending.set_exception(error)
        return pending

    def interrupt(self) -> None:
        raise AssertionError

    def close(self) -> None: ...

    def claim(self, shard: int) -> str:
        answer = self.coordinator.claim(shard)
        self.claimed.append(answer)
        return str(answer["lease"])


def finishes(workers: Workers, shard: int) -> ShardEnd:
    lease = workers.claim(shard)
    record(workers, shard).finish()
    workers.coordinator.pushed(lease, [f"r{shard}"])
    return ShardEnd(0)


def is_killed(workers: Workers, shard: int) -> ShardEnd:
    workers.coordinator.pushed(workers.claim(shard), [f"r{shard}"])
    return ShardEnd(-9, "out of memory")


def record(workers: Workers, shard: int, cost_usd: float | None = 0.001):  # type: ignore[no-untyped-def]
    run = workers.history.run(f"r{shard}", group="g", shard=f"{shard}/2", planned=1)
    run.suite()
    run.execution(cost_usd=cost_usd)
    return run


def carry_out(
    history: History,
    works: Sequence[Work],
    limits: Limits = _NO_LIMITS,
    shards: int = 1,
    earlier: Sequence[str] = (),
) -> tuple[Coordinator, Workers, Stop, set[str]]:
    workers, stop, news = Workers(history, *works), Stop(), set[str]()
    left = dict.fromkeys(range(1, shards + 1))
    coordinator = Coordinator(history.log, left, ["base"], limits, stop, news.update, earlier)
    workers.coordinator = coordinator
    jobs = {shard: ShardJob("http://x", "kdl_x", shard, (), (), ".") for shard in left}
    asyncio.run(coordinator.carry_out(workers, jobs))
    return coordinator, workers, stop, news


def test_shards_that_finish_are_done(history: History) -> None:
    coordinator, workers, stop, news = carry_out(history, [finishes, finishes], shards=2)
    assert (coordinator.undone, coordinator.refusal, stop.reason) == ({}, None, None)
    assert workers.submitted == [1, 2]
    assert news == {"r1", "r2"}
    assert coordinator.claim(1) == {"lease": None}
    assert not coordinator.hear("1.1")
    assert workers.claimed[0] == {
        "lease": "1.1", "run": None, "bring": ["base"], "max_rpm": None, "max_time_s": None,
    }  # fmt: skip


def test_a_shard_whose_worker_was_killed_goes_on_elsewhere_with_its_run(history: History) -> None:
    coordinator, workers, _, _ = carry_out(history, [is_killed, finishes])
    assert coordinator.undone == {}
    assert [claim["lease"] for claim in workers.claimed] == ["1.1", "1.2"]
    assert workers.claimed[1]["run"] == "r1"
    assert workers.claimed[1]["bring"] == ["base", "r1"]


def test_a_shard_that_ends_three_workers_is_given_up(history: History) -> None:
    coordinator, workers, stop, _ = carry_out(history, [is_killed] * 3)
    assert coordinator.undone == {
        1: "3 workers were lost with it, the last one: signal 9: out of memory"
    }
    assert len(workers.claimed) == 3
    assert stop.reason is None


def test_what_keeps_a_job_from_being_carried_out_is_no_refusal(history: History) -> None:
    def breaks(workers: Workers, shard: int) -> ShardEnd:
        raise OSError("no such machine")

    coordinator, _, _, _ = carry_out(history, [breaks, finishes])
    assert (coordinator.undone, coordinator.refusal) == ({}, None)


def test_a_command_that_does_not_even_begin_ends_the_run_and_is_said_once(history: History) -> None:
    def refuses(workers: Workers, shard: int) -> ShardEnd:
        workers.claim(shard)
        return ShardEnd(1, "✗ No such file")

    coordinator, workers, stop, _ = carry_out(history, [refuses, refuses], shards=2)
    assert coordinator.refusal == "✗ No such file"
    assert set(coordinator.undone) == {1, 2}
    assert workers.submitted == [1, 2]
    assert stop.reason == "a worker did not begin"


def test_a_command_that_ends_without_a_word_is_no_empty_refusal(history: History) -> None:
    def ends(workers: Workers, shard: int) -> ShardEnd:
        workers.claim(shard)
        return ShardEnd(1)

    coordinator, _, stop, _ = carry_out(history, [ends])
    assert coordinator.refusal is None
    assert "ended before it began, without output" in (stop.reason or "")


def test_a_worker_that_was_heard_of_has_begun_even_if_it_pushed_no_events(
    history: History,
) -> None:
    def ends_early(workers: Workers, shard: int) -> ShardEnd:
        workers.coordinator.pushed(workers.claim(shard), [])
        return ShardEnd(1, "no space left on the device")

    coordinator, workers, stop, _ = carry_out(history, [ends_early, finishes])
    assert (coordinator.undone, coordinator.refusal, stop.reason) == ({}, None, None)
    assert workers.submitted == [1, 1]


@pytest.mark.parametrize("has_pushed", [True, False])
def test_a_shard_whose_worker_code_of_a_user_has_ended_is_not_tried_again(
    history: History, has_pushed: bool
) -> None:
    how = "kindlm's process was ended while it ran t.py::test_a: os._exit(0) at t.py:3"

    def is_ended(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        if has_pushed:
            workers.coordinator.pushed(lease, [])
        return ShardEnd(ENDED_BY_USER_CODE, f"! A warning\n✗ {how}.\n  See: https://kindlm.test")

    coordinator, workers, stop, _ = carry_out(history, [is_ended, finishes], shards=2)
    assert coordinator.undone == {1: how}
    assert coordinator.ended == {1}
    assert workers.submitted == [1, 2]
    assert (coordinator.refusal, stop.reason) == (None, None)


def test_what_an_earlier_worker_of_a_shard_pushed_does_not_count_for_the_next_one(
    history: History,
) -> None:
    def refuses(workers: Workers, shard: int) -> ShardEnd:
        workers.claim(shard)
        return ShardEnd(1, "✗ No such file")

    coordinator, _, stop, _ = carry_out(history, [is_killed, refuses])
    assert coordinator.undone == {1: "its worker did not begin"}
    assert stop.reason == "a worker did not begin"


def test_a_run_that_a_limit_of_its_own_has_ended_does_not_go_on(history: History) -> None:
    def aborts(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        record(workers, shard).abort("the provider takes no calls")
        workers.coordinator.pushed(lease, [f"r{shard}"])
        return ShardEnd(1)

    coordinator, workers, _, _ = carry_out(history, [aborts])
    assert coordinator.undone == {1: "the provider takes no calls"}
    assert workers.submitted == [1]


def test_a_worker_that_was_ended_by_a_signal_is_replaced(history: History) -> None:
    def is_evicted(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        record(workers, shard).interrupt("SIGTERM")
        workers.coordinator.pushed(lease, [f"r{shard}"])
        return ShardEnd(1)

    def goes_on(workers: Workers, shard: int) -> ShardEnd:
        workers.coordinator.pushed(workers.claim(shard), [f"r{shard}"])
        return ShardEnd(-9)

    _, workers, _, _ = carry_out(history, [is_evicted, goes_on, goes_on])
    assert [claim["run"] for claim in workers.claimed] == [None, "r1", "r1"]


def test_costs_of_all_workers_together_end_the_run(history: History) -> None:
    def spends(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        record(workers, shard, cost_usd=0.6).leave()
        workers.coordinator.pushed(lease, [f"r{shard}"])
        return ShardEnd(-9)

    limits = Limits(max_cost_usd=1.0)
    coordinator, workers, stop, _ = carry_out(history, [spends] * 2, limits, shards=2)
    assert stop.aborted
    assert stop.reason == "$1.2000 spent, more than --max-cost 1 allows"
    assert workers.submitted == [1, 2]
    assert set(coordinator.undone.values()) == {stop.reason}
    assert coordinator.pushed("1.1", []).stop == stop.reason
    assert coordinator.claim(1) == {"lease": None}


@pytest.mark.parametrize(
    ("cost_usd", "reason"),
    [(None, "a call of unknown cost was made: --max-cost 1 cannot be kept"), (0.1, None)],
)
def test_a_call_of_unknown_cost_ends_the_run_unless_it_was_made_before(
    history: History, cost_usd: float | None, reason: str | None
) -> None:
    def spends(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        record(workers, shard, cost_usd=cost_usd).finish()
        workers.coordinator.pushed(lease, [f"r{shard}"])
        return ShardEnd(0)

    run = history.run("r0", group="g", shard="3/3", planned=1)
    run.suite()
    run.execution(cost_usd=None)
    run.finish()
    limits = Limits(max_cost_usd=1.0)
    _, workers, stop, _ = carry_out(history, [spends] * 2, limits, shards=2, earlier=["r0"])
    assert workers.submitted == [1, 2]
    assert stop.reason == reason


def test_a_shard_has_the_time_that_is_left_of_the_run(history: History) -> None:
    at = [100.0]
    left = dict.fromkeys((1, 2, 3))
    limits = Limits(max_time_s=60.0)
    coordinator = Coordinator(
        history.log, left, [], limits, Stop(), lambda _: None, clock=lambda: at[0]
    )
    times = []
    for shard, at[0] in ((1, 100.0), (2, 145.0), (3, 170.0)):
        times.append(coordinator.claim(shard)["max_time_s"])
    assert times == [60.0, 15.0, 0.1]


def test_a_run_of_workers_ends_when_its_time_is_over(history: History) -> None:
    at = [0.0]

    def waits(workers: Workers, shard: int) -> ShardEnd:
        at[0] += 61.0
        return is_killed(workers, shard)

    workers, stop = Workers(history, waits, finishes), Stop()
    limits = Limits(max_time_s=60.0)
    coordinator = Coordinator(
        history.log, {1: None}, [], limits, stop, lambda _: None, clock=lambda: at[0]
    )
    workers.coordinator = coordinator
    job = ShardJob("http://x", "kdl_x", 1, (), (), ".")
    workers.interrupt = lambda: None  # type: ignore[method-assign]
    asyncio.run(coordinator.carry_out(workers, {1: job}))
    assert stop.reason == "the run took longer than 60 s (--max-time)"
    assert workers.submitted == [1]


def test_a_rate_is_shared_by_the_workers_that_can_still_have_a_shard(history: History) -> None:
    rates = []

    def asks(workers: Workers, shard: int) -> ShardEnd:
        end = finishes(workers, shard)
        rates.append(workers.coordinator.pushed(f"{shard}.1", []).max_rpm)
        return end

    coordinator, workers, _, _ = carry_out(history, [asks] * 3, Limits(max_rpm=60.0), shards=3)
    assert rates == [30.0] * 3
    assert [claim["max_rpm"] for claim in workers.claimed] == [30.0] * 3
    assert coordinator.pushed("3.1", []).max_rpm == 60.0


def test_only_the_newest_lease_of_a_shard_is_current(history: History) -> None:
    coordinator = Coordinator(history.log, {1: None}, [], Limits(), Stop(), lambda _: None)
    assert coordinator.claim(1)["lease"] == "1.1"
    assert coordinator.hear("1.1")
    assert coordinator.claim(1)["lease"] == "1.2"
    assert not coordinator.hear("1.1")
    assert not coordinator.hear("")
    assert coordinator.workers == 1


@pytest.mark.parametrize("is_finished", [True, False])
def test_what_a_resumed_group_has_cost_before_counts(history: History, is_finished: bool) -> None:
    run = history.run("r2", group="g", shard="2/2", planned=1)
    run.suite()
    run.execution(cost_usd=1.2)
    (run.finish if is_finished else run.leave)()
    stop = Stop()
    coordinator = Coordinator(
        history.log, {1: None}, [], Limits(max_cost_usd=1.0), stop, lambda _: None, ["r2"]
    )
    workers = Workers(history, finishes)
    asyncio.run(coordinator.carry_out(workers, {1: ShardJob("http://x", "", 1, (), (), ".")}))
    assert stop.reason == "$1.2000 spent, more than --max-cost 1 allows"
    assert workers.submitted == []


def test_a_shard_whose_events_are_not_taken_is_not_paid_for_again(history: History) -> None:
    def is_refused(workers: Workers, shard: int) -> ShardEnd:
        workers.coordinator.pushed(workers.claim(shard), [f"r{shard}"])
        return ShardEnd(NOT_TAKEN, "✗ The history server answered 422: Line 3 is too long.")

    coordinator, workers, _, _ = carry_out(history, [is_refused])
    assert workers.submitted == [1]
    assert coordinator.undone == {1: "The history server answered 422: Line 3 is too long"}
    assert coordinator.ended == set()


def test_what_cannot_be_kept_is_not_paid_for(history: History) -> None:
    def is_refused(workers: Workers, shard: int) -> ShardEnd:
        lease = workers.claim(shard)
        record(workers, shard)
        workers.coordinator.pushed(lease, [f"r{shard}"])
        workers.coordinator.failed(OSError("no space left"))
        assert not workers.coordinator.hear(lease)
        return ShardEnd(1)

    coordinator, workers, stop, _ = carry_out(history, [is_refused])
    assert workers.submitted == [1]
    assert coordinator.claim(1) == {"lease": None}
    assert stop.aborted
    assert str(coordinator.failure) == "no space left"
    assert coordinator.undone == {1: "the history cannot store what workers push"}


def test_warnings_of_workers_are_shown_once(history: History) -> None:
    limit = "! The cost limit cannot be enforced.\n  Add the price.\n  Or the cost."
    said = [f"1 event\n{limit}\nNext: …\n  (indented)", f"{limit}\n! Another\n✗ An error\n  hint"]

    def finishes_with(text: str) -> Work:
        def work(workers: Workers, shard: int) -> ShardEnd:
            return replace(finishes(workers, shard), output=text)

        return work

    shown: list[tuple[str, str | None]] = []
    workers = Workers(history, *map(finishes_with, said))
    left: dict[int, str | None] = {1: None, 2: None}
    workers.coordinator = Coordinator(
        history.log,
        left,
        [],
        Limits(),
        Stop(),
        lambda _: None,
        warn=lambda message, hint: shown.append((message, hint)),
    )
    jobs = {shard: ShardJob("http://x", "", shard, (), (), ".") for shard in left}
    asyncio.run(workers.coordinator.carry_out(workers, jobs))
    assert shown == [
        ("The cost limit cannot be enforced.", "Add the price.\nOr the cost."),
        ("Another", None),
    ]


def plan_of(names: str, **fields: int) -> Plan:
    cases = (
        Case(name, prompt=Prompt("hi"), targets=("m",), repeat=fields.get(name, 1))
        for name in names
    )
    return make_plan([make_suite(*cases)])


def took(**tests: float) -> Durations:
    return {("kindlm.yaml", test, "m"): ms for test, ms in tests.items()}


def test_there_are_four_shards_a_worker_and_never_more_than_tests() -> None:
    assert shard_count(plan_of("abcdefghij"), 2) == 8
    assert shard_count(plan_of("abc", a=100), 2) == 3


def test_the_shard_that_takes_longest_goes_first() -> None:
    plan = plan_of("abcdef")
    assert longest_first(plan, 3, took(a=1, b=9, c=2, d=1, e=1, f=2)) == [2, 3, 1]


def test_repeats_count() -> None:
    assert longest_first(plan_of("abc", c=5), 3, took(a=2, b=3, c=1)) == [3, 2, 1]


def test_what_the_history_does_not_know_takes_as_long_as_the_others() -> None:
    assert longest_first(plan_of("abcd"), 4, took(a=1, c=9)) == [3, 2, 4, 1]
    assert longest_first(plan_of("abc"), 3, {}) == [1, 2, 3]


def test_there_are_no_more_shards_than_a_history_takes_from_elsewhere() -> None:
    assert parse_shard("5/9999") == (5, 9_999)
    with pytest.raises(typer.Exit):
        parse_shard("5/10000")
