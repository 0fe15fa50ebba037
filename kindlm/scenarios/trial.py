"""One trial of a scenario: the argument of its function."""

from __future__ import annotations

import inspect
import linecache
import math
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, overload

from kindlm.checks.base import Check
from kindlm.checks.judge import Factuality, Guardrail, Judge, Sentiment
from kindlm.errors import ErrorCode, KindlmError, Result
from kindlm.outcome import CheckResult
from kindlm.ports import Ask, ModelReply, Question, Stage
from kindlm.scenarios.checks import (
    Checks,
    ConversationChecks,
    Desk,
    Pending,
    RequirementFailed,
    Verdict,
    asked_for,
    holds,
    verdict,
    verdict_of,
)
from kindlm.scenarios.function_thread import FunctionThread, at_once
from kindlm.scenarios.scope import Scope
from kindlm.scenarios.under_test import (
    AgentUnderTest,
    Begun,
    Persona,
    Place,
    Reply,
    SyncAgentUnderTest,
)
from kindlm.scenarios.users import Conversed, Lines, SimulationError, Stop, converse
from kindlm.suite import Expectation
from kindlm.transcript import Message

Checked: TypeAlias = Reply | Conversed | ConversationChecks
"""What checks are of: one answer, a part of the conversation, or all of it so far."""


class _Checking:
    """What trials of all kinds have: checks, requirements and scores."""

    def __init__(
        self,
        stage: Stage,
        talked: AgentUnderTest,
        place: Place,
        thread: FunctionThread | None = None,
    ) -> None:
        self._stage = stage
        self._desk = Desk(stage, thread)
        self._wait = None if thread is None else thread.wait_for
        self._talked = talked
        self._place = place
        self._converses = False
        self.error: KindlmError | None = None

    @property
    def checked(self) -> int:
        """How many checks were asked for."""
        return self._desk.checked

    def mistake(self) -> KindlmError | None:
        """Return the error of a function that asked for something that was lost, else None."""
        if (at := self._desk.refused) is not None:
            message = f"The check in line {at.line} was made in another thread: it is not recorded."
            hint = "Let the thread return what it found, and check that in the scenario itself."
        elif (at := next(iter(self._desk.begun.values()), None)) is not None:
            message = f"No check follows t.check(…) or t.require(…) in line {at.line}."
            hint = "Write one: t.check(reply).contains(…)"
        else:
            return None
        return KindlmError(ErrorCode.ASSERTION_EVAL_ERROR, message, hint, at)

    def check(self, what: Checked, *, weight: float = 1.0) -> Checks:
        """Return checks of an answer, or of a conversation that `t.converse` returned.

        Each is recorded, and none ends the scenario. `weight` is what each of them counts for in
        the score of the execution.
        """
        return self._begun_checks(what, weight, required=False)

    @property
    def conversation(self) -> ConversationChecks:
        """Checks of the whole conversation so far: `t.conversation.tool_called("lookup_order")`.

        Raises:
            ValueError: the agent did not answer anything yet.
        """
        replies = self._talked.replies
        if not replies:
            raise ValueError("there is no conversation yet: send a message first")
        scope = Scope(lambda: self.messages, 1, replies[-1].turn)
        return ConversationChecks(self._desk, scope, self._place)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the user and the agent said so far, each with `role`, `text` and `tool_calls`.

        `role` is "user" or "assistant".

        Raises:
            LookupError: a recorded run is looked at again, and a secret was taken out of this.
        """
        return self._talked.messages

    @overload
    def require(self, what: Reply | ConversationChecks, *, weight: float = 1.0) -> Checks: ...

    @overload
    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None: ...

    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None:
        """End the scenario unless something holds: `t.require(reply).contains("A1")`.

        `t.conversation` may stand for the answer. What is neither has to be true:
        `t.require(order_id, "no order id")`. That may be a verdict:
        `t.require(await t.judge(reply, "Is it polite?"))`.

        Raises:
            TypeError: for what is always true, such as a check that was not waited for.
        """
        if not isinstance(message, str):
            raise TypeError(f"the message of t.require must be a text, not {message!r}")
        if isinstance(what, Reply | ConversationChecks):
            if message:
                raise TypeError(
                    "an answer needs a check: t.require(reply).contains(…), or"
                    f" t.require(reply.text, {message!r})"
                )
            return self._begun_checks(what, weight, required=True)
        if inspect.isawaitable(what):
            if inspect.iscoroutine(what):
                what.close()
            raise TypeError("t.require cannot wait: write t.require(await …), or (… .wait())")
        if inspect.isroutine(what):
            raise TypeError(f"t.require was given the function {what!r}: call it")
        is_so = holds(what)
        label, where = message or "required", self._place()
        said = message or linecache.getline(where.file, where.line or 0).strip() or label
        found = verdict("assert", label, passed=is_so, message=said)
        expectation = Expectation("assert", label, where=where, weight=_checked(weight))
        self._desk.conclude(expectation, found)
        if not is_so:
            raise RequirementFailed(label)
        return None

    @overload
    def judge(
        self,
        what: Checked,
        criteria: str,
        *,
        threshold: float = 3,
        scale: float = 5,
        weight: float = 1.0,
    ) -> Pending[Verdict]: ...

    @overload
    def judge(
        self,
        what: Checked,
        criteria: list[str] | tuple[str, ...],
        *,
        threshold: float = 3,
        scale: float = 5,
        weight: float = 1.0,
    ) -> Pending[tuple[Verdict, ...]]: ...

    def judge(
        self,
        what: Checked,
        criteria: str | list[str] | tuple[str, ...],
        *,
        threshold: float = 3,
        scale: float = 5,
        weight: float = 1.0,
    ) -> Pending[Verdict] | Pending[tuple[Verdict, ...]]:
        """A judge gives at least `threshold` (> 0) of `scale` points for each criterion.

        It sees the conversation up to this answer, or to the end of a conversation, and never the
        threshold. A threshold of 0 is an error, since no answer would miss it. A list of criteria
        is a question each, and has a verdict for each.
        """
        scope = self._scope(what)
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale must be a number, more than 0, but is {scale}")
        if not 0 < threshold <= scale:
            raise ValueError(
                f"threshold must be more than 0, and at most {scale:g}, but is {threshold}"
            )
        listed = [criteria] if isinstance(criteria, str) else list(criteria)
        if not listed:
            raise ValueError("judge needs a criterion")
        least = threshold / scale
        judges = [
            Judge.model_construct(criteria=asked_for("criteria", each), min_score=least)
            for each in listed
        ]
        asked = [self._ask(scope, each.on_scale(scale), each.label, weight) for each in judges]
        if isinstance(criteria, str):
            return Pending(asked, lambda found: verdict_of(found[0]), self._wait)
        return Pending(asked, _verdicts, self._wait)

    def sentiment(self, reply: Reply, tone: str, *, weight: float = 1.0) -> Pending[Verdict]:
        """A judge finds that the answer has a tone, such as "empathetic"."""
        return self._verdict(reply, Sentiment(asked_for("tone", tone)), tone, weight)

    def factuality(
        self, reply: Reply, ground_truth: str, *, context: str | None = None, weight: float = 1.0
    ) -> Pending[Verdict]:
        """A judge finds nothing in the answer that contradicts what is true."""
        check = Factuality(asked_for("ground_truth", ground_truth), context)
        return self._verdict(reply, check, ground_truth, weight)

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
        scope = self._scope(self._talked.answered(reply))
        rules = [Guardrail(asked_for("must", rule)) for rule in _listed(must)]
        rules += [
            Guardrail(asked_for("must_not", rule), must_not=True) for rule in _listed(must_not)
        ]
        if not rules:
            raise ValueError("guardrail needs a rule: must=[...] or must_not=[...]")
        asked = [self._ask(scope, rule, f"{rule.verb}: {rule.rule}", weight) for rule in rules]
        return Pending(asked, _verdicts, self._wait)

    def score(self, name: str, value: float) -> None:
        """Record a number from 0 to 1, where more is better; `kindlm diff` compares it.

        It decides nothing; that it falls is taken for a regression.
        """
        asked_for("name", name)
        if not 0 <= value <= 1:
            raise ValueError(
                f"The score {name!r} is {value}: scores must be from 0 to 1, so that runs are "
                "comparable. Divide it by the maximum"
            )
        self._desk.record_score(name, float(value), self._place())

    def _verdict(self, reply: Reply, check: Check, label: str, weight: float) -> Pending[Verdict]:
        asked = [self._ask(self._scope(self._talked.answered(reply)), check, label, weight)]
        return Pending(asked, lambda found: verdict_of(found[0]), self._wait)

    def _ask(self, scope: Scope, check: Check, label: str, weight: float) -> Future[CheckResult]:
        where = self._place()
        more = {"turn": scope.last, "where": where, "weight": _checked(weight)}
        return self._desk.evaluate(check.expected(scope.labelled(label), **more))

    def _begun_checks(self, what: Checked, weight: float, *, required: bool) -> Checks:
        scope, weight = self._scope(what), _checked(weight)
        checks = Checks(self._desk, scope, self._place, weight=weight, required=required)
        self._desk.begun[checks] = self._place()
        return checks

    def _scope(self, what: object) -> Scope:
        """Return what a check is asked for about; see `AgentUnderTest.answered`."""
        if isinstance(what, ConversationChecks):
            return what.scope_at(self._desk)
        if isinstance(what, Conversed):
            turns = [self._talked.answered(each).turn for each in what.replies]
            return Scope(lambda: what, turns[0], turns[-1])
        if isinstance(what, tuple) and all(isinstance(each, Message) for each in what):
            raise TypeError("for the whole conversation, write t.conversation, not t.messages")
        reply = self._talked.answered(what)
        return Scope(lambda: reply, reply.turn, reply.turn, is_conversation=False)

    async def _conversed(
        self,
        ask: Ask,
        send: Callable[[str], Awaitable[Reply]],
        persona: Persona,
        goal: str,
        turns: tuple[int, int],
        script: Lines,
        stop: Stop | None,
    ) -> Conversed:
        """Converse, and keep what makes the trial errored.

        Two users in one conversation would answer one another, in an order that is another one
        each time.
        """
        if self._converses:
            raise RuntimeError("another t.converse of this trial is still running: await it first")
        self._converses = True
        try:
            return await converse(ask, self._talked, send, persona, goal, turns, script, stop)
        except SimulationError as error:
            self.error = error.error
            raise
        finally:
            self._converses = False


def _checked(weight: float) -> float:
    if not (weight > 0 and math.isfinite(weight)):
        raise ValueError(f"weight must be more than 0, but is {weight}")
    return weight


def _verdicts(found: Sequence[CheckResult]) -> tuple[Verdict, ...]:
    return tuple(map(verdict_of, found))


def _listed(rules: str | Iterable[str]) -> list[str]:
    return [rules] if isinstance(rules, str) else list(rules)


class Trial(_Checking):
    """What an `async` scenario works with: the agent, and checks of what it answers."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._begun = Begun()
        self.agent = AgentUnderTest(stage, place, self._begun)
        super().__init__(stage, self.agent, place)

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
        ask, send = self._stage.ask, self.agent.send
        talk = self._conversed(ask, send, persona, goal, turns, script, stop)
        return self._begun.hand_out("t.converse(…)", self._place(), talk)

    def mistake(self) -> KindlmError | None:
        """Return the error of a function that asked for something that was lost, else None.

        What was not awaited is closed.
        """
        forgotten = self._begun.forgotten()
        if forgotten is None:
            return super().mistake()
        what, where = forgotten
        message = f"The scenario never awaited {what}, so it had no effect."
        hint = f"Write `await {what}` in line {where.line}."
        return KindlmError(ErrorCode.ASSERTION_EVAL_ERROR, message, hint, where)


class SyncTrial(_Checking):
    """What a scenario works with that is no `async` function. It runs in a thread of its own."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._thread = FunctionThread()
        agent = AgentUnderTest(stage, place, Begun())
        super().__init__(stage, agent, place, self._thread)
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

        async def ask(question: Question) -> Result[ModelReply]:
            return self._thread.wait_for(self._stage.ask(question))

        async def send(message: str) -> Reply:
            return self.agent.send(message)

        # In this thread, in which `stop` may use the trial as the rest of the scenario does.
        return at_once(self._conversed(ask, send, persona, goal, turns, script, stop))

    def end(self) -> None:
        """Cut the trial off: whatever its function does next with it ends the function."""
        self._thread.end()
