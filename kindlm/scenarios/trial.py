"""One trial of a scenario: what its function is handed."""

from __future__ import annotations

import inspect
import math
from asyncio import Future
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, overload

from kindlm.errors import KindlmError, SourceLocation
from kindlm.outcome import CheckResult
from kindlm.ports import Stage
from kindlm.scenarios.checks import Checks, RequirementFailed, verdict
from kindlm.scenarios.judging import (
    Pending,
    Verdict,
    Wait,
    asked_for,
    factuality_of,
    guardrails_of,
    holds,
    judgement_of,
    sentiment_of,
    verdict_of,
)
from kindlm.scenarios.thread_desk import ThreadDesk, at_once
from kindlm.scenarios.under_test import (
    AgentInThread,
    AgentUnderTest,
    Begun,
    Persona,
    Place,
    Reply,
    SyncAgentUnderTest,
)
from kindlm.scenarios.users import Conversed, Lines, SimulationError, Stop, converse
from kindlm.suite import Expectation


class _Checking:
    """What trials of all kinds have: checks, requirements and scores."""

    def __init__(self, desk: Stage | ThreadDesk, talked: AgentUnderTest, place: Place) -> None:
        self._desk = desk
        self._talked = talked
        self._place = place
        self._converses = False
        self.checked = 0
        self.error: KindlmError | None = None

    def check(self, reply: Reply, *, weight: float = 1.0) -> Checks:
        """Return checks of an answer: each is recorded, and none ends the scenario.

        `weight` is what each of them counts for in the score of the execution.
        """
        return self._checks(reply, weight, required=False)

    @overload
    def require(self, what: Reply, *, weight: float = 1.0) -> Checks: ...

    @overload
    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None: ...

    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None:
        """End the scenario unless something holds: `t.require(reply).contains("A1")`.

        What is no answer of the agent has to be true: `t.require(order_id, "no order id")`. That
        may be a verdict: `t.require(await t.judge(reply, "Is it polite?"))`.

        Raises:
            TypeError: for what is always true, such as a check that was not waited for.
        """
        if isinstance(what, Reply):
            return self._checks(what, weight, required=True)
        if inspect.isawaitable(what):
            if inspect.iscoroutine(what):
                what.close()
            raise TypeError("t.require can not wait: write t.require(await …), or (… .wait())")
        if inspect.isroutine(what):
            raise TypeError(f"t.require was given the function {what!r}: call it")
        is_so = holds(what)
        label = message or "required"
        found = verdict("assert", label, passed=is_so, message=message or "It does not hold")
        expectation = Expectation("assert", label, where=self._place(), weight=_checked(weight))
        self._counting().conclude(expectation, found)
        if not is_so:
            raise RequirementFailed(label)
        return None

    def judge(
        self,
        reply: Reply,
        criteria: str,
        *,
        threshold: float = 3,
        scale: float = 5,
        weight: float = 1.0,
    ) -> Pending[Verdict]:
        """A judge gives the answer at least `threshold` (> 0) of `scale` points for a criterion.

        It sees the conversation until this answer, and never the threshold.
        """
        reply = self._talked.answered(reply)
        return self._asked(judgement_of(reply, criteria, threshold, scale), weight)

    def sentiment(self, reply: Reply, tone: str, *, weight: float = 1.0) -> Pending[Verdict]:
        """A judge finds that the answer has a tone, such as "empathetic"."""
        reply = self._talked.answered(reply)
        return self._asked(sentiment_of(reply, tone), weight)

    def factuality(
        self, reply: Reply, ground_truth: str, *, context: str | None = None, weight: float = 1.0
    ) -> Pending[Verdict]:
        """A judge finds nothing in the answer that contradicts what is true."""
        reply = self._talked.answered(reply)
        return self._asked(factuality_of(reply, ground_truth, context), weight)

    def guardrail(
        self,
        reply: Reply,
        *,
        must: str | Iterable[str] = (),
        must_not: str | Iterable[str] = (),
        weight: float = 1.0,
    ) -> Pending[tuple[Verdict, ...]]:
        """A judge finds that the answer keeps to each of some rules; there is a verdict for each.

        Those of `must` come first.
        """
        reply = self._talked.answered(reply)
        asked = [self._ask(each, weight) for each in guardrails_of(reply, must, must_not)]
        return Pending(asked, lambda found: tuple(map(verdict_of, found)), self._wait)

    def score(self, name: str, value: float) -> None:
        """Record a number from 0 to 1, where more is better; `kindlm diff` compares it.

        It decides nothing; that it falls is taken for a regression.
        """
        asked_for("name", name)
        if not 0 <= value <= 1:
            raise ValueError(
                f"The score {name!r} is {value}: scores are from 0 to 1, so that runs can be"
                " compared. Divide it by the highest one that there can be"
            )
        self._desk.record_score(name, float(value), self._place())

    @property
    def _wait(self) -> Wait | None:
        return None

    def _asked(self, expectation: Expectation, weight: float) -> Pending[Verdict]:
        asked = [self._ask(expectation, weight)]
        return Pending(asked, lambda found: verdict_of(found[0]), self._wait)

    def _ask(self, expectation: Expectation, weight: float) -> Future[CheckResult]:
        placed = replace(expectation, where=self._place(), weight=_checked(weight))
        return self._counting().evaluate(placed)

    def _checks(self, reply: Reply, weight: float, *, required: bool) -> Checks:
        reply = self._talked.answered(reply)
        return Checks(
            _Counted(self), reply, self._place, weight=_checked(weight), required=required
        )

    def _counting(self) -> _Counted:
        return _Counted(self)

    @contextmanager
    def _conversing(self) -> Iterator[None]:
        """Keep what makes the trial errored; raise `RuntimeError` while another one goes on.

        Two users in one conversation would answer one another, in an order that is another one
        each time.
        """
        if self._converses:
            raise RuntimeError("another t.converse of this trial goes on: let it end first")
        self._converses = True
        try:
            yield
        except SimulationError as error:
            self.error = error.error
            raise
        finally:
            self._converses = False


def _checked(weight: float) -> float:
    if not (weight > 0 and math.isfinite(weight)):
        raise ValueError(f"weight must be more than 0, but is {weight}")
    return weight


class _Counted:
    """Hands checks in, and counts them."""

    def __init__(self, trial: _Checking) -> None:
        self._trial = trial

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        self._trial.checked += 1
        return self._trial._desk.evaluate(expectation, now=now)  # noqa: SLF001 - of this module

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        self._trial.checked += 1
        return self._trial._desk.conclude(expectation, finding)  # noqa: SLF001 - of this module


class Trial(_Checking):
    """What an `async` scenario works with: the agent, and checks of what it answers."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._begun = Begun()
        self.agent = AgentUnderTest(stage, place, self._begun)
        super().__init__(stage, self.agent, place)
        self._stage = stage

    def converse(
        self,
        persona: Persona,
        *,
        goal: str,
        turns: tuple[int, int] = (1, 8),
        script: Lines = (),
        stop: Stop | None = None,
    ) -> Coroutine[Any, Any, Conversed]:
        """Let a model play a person who talks to the agent until they have what they want.

        It goes on with what was said before. What comes of it decides nothing by itself: check it.

        Args:
            persona: who they are.
            goal: what they want, such as "a refund is promised".
            turns: how many messages there are at least, whatever the model says of its goal, and
                at most.
            script: what they say first, message by message; where it is None, the model speaks.
                All of it is said before the goal can end the conversation.
            stop: says of an answer whether the conversation ends with it.

        Raises:
            AgentError: the agent gave no answer.
            SimulationError: the model gave no message, also when it was asked again. After both,
                the trial is errored.
        """

        async def talk() -> Conversed:
            with self._conversing():
                return await converse(
                    self._stage,
                    self.agent,
                    persona,
                    goal=goal,
                    turns=turns,
                    script=script,
                    stop=stop,
                )

        return self._begun.hand_out("t.converse(…)", self._place(), talk())

    def forgotten(self) -> tuple[str, SourceLocation] | None:
        """Return what the function called and did not await, and where; None if it did."""
        return self._begun.forgotten()


class SyncTrial(_Checking):
    """What a scenario works with that is no `async` function. It runs in a thread of its own."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._thread = ThreadDesk(stage)
        agent = AgentUnderTest(stage, place, Begun())
        super().__init__(self._thread, agent, place)
        self.agent = SyncAgentUnderTest(agent, self._thread)

    def converse(
        self,
        persona: Persona,
        *,
        goal: str,
        turns: tuple[int, int] = (1, 8),
        script: Lines = (),
        stop: Stop | None = None,
    ) -> Conversed:
        """Let a model play a person who talks to the agent; see `Trial.converse`."""
        with self._conversing():
            # In this thread, in which `stop` may use the trial as the rest of the scenario does.
            return at_once(
                converse(
                    self._thread,
                    AgentInThread(self._talked, self._thread),
                    persona,
                    goal=goal,
                    turns=turns,
                    script=script,
                    stop=stop,
                )
            )

    @property
    def _wait(self) -> Wait | None:
        return self._thread.wait_for

    def end(self) -> None:
        """Cut the trial off: whatever its function does next with it ends the function."""
        self._thread.end()
