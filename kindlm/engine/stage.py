"""One trial of a script: sends its messages, and evaluates its checks.

Checks that ask a judge run beside the script. Each is recorded when it is done, at the position
where the script asked for it. The trial waits for all of them; if it is cut off, it cancels them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.engine.calls import Calls
from kindlm.engine.stop import Clock, cut_off
from kindlm.engine.talk import Talk
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.events.codec import Payload
from kindlm.events.execution_events import AssertionEvaluated
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import CUT_OFF, CheckContext, Checker, ModelReply, Question
from kindlm.suite import Expectation, Script
from kindlm.transcript import Message, Role, Step

_NUMBER = "score"
"""The kind of a script's numbers, which decide nothing and are compared between runs."""

_CANCELLED_ITSELF = KindlmError(
    ErrorCode.ASSERTION_EVAL_ERROR,
    "The scenario cancelled its own task before it finished.",
    "Fix the test; the report shows what it checked before that.",
)


@dataclass(eq=False, repr=False)
class ScriptedTrial:
    """Implements `ports.Stage` for one attempt of an execution."""

    _talk: Talk
    _calls: Calls
    _checker: Checker
    _clock: Clock
    _one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _decided: dict[int, tuple[Expectation, CheckResult]] = field(default_factory=dict)
    _labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    _checks: set[asyncio.Task[CheckResult]] = field(default_factory=set)
    _calling: set[asyncio.Task[Any]] = field(default_factory=set)
    _lacks_answer: bool = False
    _over: asyncio.Future[None] | None = None
    _ended_itself: bool = False

    @property
    def results(self) -> list[CheckResult]:
        """The results so far, in the order in which they were requested."""
        return [self._decided[index][1] for index in sorted(self._decided)]

    @property
    def score(self) -> float | None:
        """The weighted mean of the decided results; None if there are none."""
        scored = [
            (expectation.weight, result.score)
            for expectation, result in self._decided.values()
            if result.score is not None and expectation.kind != _NUMBER
        ]
        whole = sum(weight for weight, _ in scored)
        return sum(weight * score for weight, score in scored) / whole if whole else None

    async def send(self, text: str) -> Result[tuple[Step, str | None]]:
        async with self._while_it_runs(), self._one_by_one:
            if self._lacks_answer:
                self._talk.error = self._talk.error or CUT_OFF
            if self._talk.error is not None:
                return Err(self._talk.error)
            self._lacks_answer = True
            answer = await self._talk.say(Message(Role.USER, text))
            self._lacks_answer = False
            return answer

    def evaluate(
        self, expectation: Expectation, *, now: bool = False
    ) -> asyncio.Future[CheckResult]:
        transcript = self._talk.conversation.transcript
        index, expectation = self._next(expectation)
        started = self._clock.monotonic()
        context = CheckContext(partial(self._calls.ask, index), now=now)
        found = self._checker.evaluate(expectation, transcript, context)
        return self._concluded(index, expectation, found, started)

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> asyncio.Future[CheckResult]:
        index, expectation = self._next(expectation)
        return self._concluded(index, expectation, finding, self._clock.monotonic())

    async def ask(self, question: Question) -> Result[ModelReply]:
        async with self._while_it_runs():
            return await self._calls.ask(None, question)

    def record(self, payload: Payload) -> None:
        self._require_running()
        self._calls.recorder.record(payload)

    async def play(self, script: Script) -> KindlmError | None:
        """Run a script and the checks that it starts; return the error that ended it, if any.

        Once this is cancelled, the script can change nothing any more. Otherwise, a script that
        catches its cancellation and goes on would have no timeout.
        """
        task = asyncio.create_task(script.run(self))
        try:
            await asyncio.wait({task})
            while self._checks:
                # Checks run in parallel with the script.
                await asyncio.wait(self._checks)
            self._ended_itself = True
            # A script that cancels itself, and ends before the cancellation arrives, has no result.
            return _CANCELLED_ITSELF if task.cancelled() else task.result()
        finally:
            self._over = asyncio.get_running_loop().create_future()
            await cut_off({task, *self._checks, *self._calling})

    @asynccontextmanager
    async def _while_it_runs(self) -> AsyncIterator[None]:
        """Let the end of the trial cut off a call that the script does not wait for."""
        await self._block_if_over()
        task = asyncio.current_task()
        assert task is not None
        self._calling.add(task)
        try:
            yield
        finally:
            self._calling.discard(task)

    def _require_running(self) -> None:
        if self._over is not None:
            raise asyncio.CancelledError

    async def _block_if_over(self) -> None:
        if self._over is not None:
            # Raising an error would stop most scripts; one that catches all errors and retries
            # would block the event loop.
            await self._over

    def _next(self, expectation: Expectation) -> tuple[int, Expectation]:
        """Return the position of the next check, and the check with a unique label.

        Labels distinguish checks of one kind where runs are compared. A check after the end of a
        script that was not cut off is reported, and not recorded.
        """
        if self._ended_itself and expectation.where is not None:
            self._calls.run.checked_late(expectation.where)
        self._require_running()
        label = expectation.label
        self._labels[expectation.kind, label] += 1
        number = self._labels[expectation.kind, label]
        named = replace(expectation, label=label if number == 1 else f"{label} #{number}")
        return self._labels.total() - 1, named

    def _concluded(
        self,
        index: int,
        expectation: Expectation,
        finding: Awaitable[CheckResult] | CheckResult,
        started: float,
    ) -> asyncio.Future[CheckResult]:
        """Record a result, now or in a task beside the script."""
        loop = asyncio.get_running_loop()

        def record(result: CheckResult) -> CheckResult:
            duration_ms = (self._clock.monotonic() - started) * 1000
            named = replace(result, kind=expectation.kind, label=expectation.label)
            event = AssertionEvaluated.of(named, index, expectation, duration_ms=duration_ms)
            self._calls.recorder.record(event)
            self._decided[index] = (expectation, named)
            return result

        async def record_later(finding: Awaitable[CheckResult]) -> CheckResult:
            try:
                result = await finding
            except BaseException as error:  # otherwise, nothing would show that a check is missing
                if self._over is not None:
                    raise
                result = CheckResult(
                    expectation.kind,
                    expectation.label,
                    Outcome.INCONCLUSIVE,
                    failure_code="ASSERTION_EVAL_ERROR",
                    message=f"The check ended with {type(error).__name__}: nothing was decided.",
                )
            await self._block_if_over()
            return record(result)

        if isinstance(finding, CheckResult):
            done: asyncio.Future[CheckResult] = loop.create_future()
            done.set_result(record(finding))
            return done
        task = loop.create_task(record_later(finding))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        return task
