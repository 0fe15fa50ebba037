"""One trial of a scenario: the argument of its function."""

from __future__ import annotations

import asyncio
import linecache
import math
import sys
import threading
import traceback
import warnings
from asyncio import Future
from collections.abc import Coroutine, Iterable, Sequence
from types import FrameType
from typing import Any, TypeAlias, overload

from kindlm.checks.base import Check, passed
from kindlm.checks.judge import Judge
from kindlm.checks.judge_decisions import Factuality, Guardrail, Sentiment
from kindlm.errors import ErrorCode, KindlmError, SourceLocation
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import Stage
from kindlm.scenarios.checks import (
    CheckRecorder,
    Checks,
    ConversationChecks,
    RequirementFailed,
    Scope,
    required_text,
)
from kindlm.scenarios.function_thread import FunctionThread
from kindlm.scenarios.under_test import AgentUnderTest, Persona, Place, Reply, SyncAgentUnderTest
from kindlm.scenarios.users import Conversed, Lines, SimulatedUser, SimulationError, Stop
from kindlm.scenarios.verdicts import Pending, Verdict, decided, verdict_of
from kindlm.suite import Expectation
from kindlm.transcript import Message

Checked: TypeAlias = Reply | Conversed | ConversationChecks
"""What a check reads: one answer, a part of the conversation, or all of it so far."""

HEAVIEST = 1_000_000
"""The largest weight of a check."""


class _Checking:
    """The base of trials: checks, requirements and scores."""

    def __init__(self, stage: Stage, place: Place, thread: FunctionThread | None = None) -> None:
        self._stage = stage
        self._recorder = CheckRecorder(stage, thread, place)
        self._wait = None if thread is None else thread.wait_for
        self._conversation = AgentUnderTest(stage, place)
        self._converses = False
        self.error: KindlmError | None = None

    @property
    def checked(self) -> int:
        """The number of checks so far."""
        return self._recorder.checked

    def mistake(self) -> KindlmError | None:
        """Return the error of a test that uses the trial wrongly, so that a check was lost."""
        if (error := self._conversation.unawaited()) is not None:
            return error
        if (at := self._recorder.refused) is not None:
            message = f"The check in line {at.line} was made in another thread: it is not recorded."
            hint = "Let the thread return what it found, and check that in the scenario itself."
        elif (at := next(iter(self._recorder.unfinished.values()), None)) is not None:
            message = f"No check follows t.check(…) or t.require(…) in line {at.line}."
            hint = "Write one: t.check(reply).contains(…)"
        else:
            return self._lost_thread()
        return KindlmError(ErrorCode.ASSERTION_EVAL_ERROR, message, hint, at)

    def _lost_thread(self) -> KindlmError | None:
        """Return the error of a thread that still runs and has this trial."""
        for thread, top in sys._current_frames().items():  # noqa: SLF001
            for frame, _ in traceback.walk_stack(top) if thread != threading.get_ident() else ():
                if any(value is self for value in [*frame.f_locals.values()]):
                    return _lost(frame, "in a thread", "Join the thread: its checks would be lost.")
        return None

    def check(self, what: Checked, *, weight: float = 1.0) -> Checks:
        """Return checks of an answer, or of a conversation that `t.converse` returned.

        kindlm records each check, and no check ends the scenario. `weight` is the weight of each
        check in the score of the execution.
        """
        return self._new_checks(what, weight, required=False)

    @property
    def conversation(self) -> ConversationChecks:
        """Checks of the whole conversation so far: `t.conversation.tool_called("lookup_order")`.

        Raises:
            ValueError: the agent has not answered yet.
        """
        if not (replies := self._conversation.replies):
            raise ValueError("there is no conversation yet: send a message first")
        scope = Scope(lambda: self.messages, 1, replies[-1].turn)
        return ConversationChecks(self._recorder, scope)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far, each with `role` ("user" or "assistant"), `text` and `tool_calls`.

        Raises:
            LookupError: the messages are from a recorded run, which lacks a secret of them.
        """
        return self._conversation.messages

    @overload
    def require(self, what: Reply | ConversationChecks, *, weight: float = 1.0) -> Checks: ...

    @overload
    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None: ...

    def require(self, what: object, message: str = "", *, weight: float = 1.0) -> Checks | None:
        """End the scenario unless a check passes: `t.require(reply).contains("A1")`.

        `what` is an answer, `t.conversation`, or any value that must be true:
        `t.require(order_id, "no order id")`, or a verdict:
        `t.require(await t.judge(reply, "Is it polite?"))`.

        Raises:
            TypeError: the value is always true, such as a coroutine that was not awaited.
        """
        if not isinstance(message, str):
            raise TypeError(f"the message of t.require must be text, not {message!r}")
        if isinstance(what, Reply | ConversationChecks):
            if message:
                way = f"t.require(reply).contains(…), or t.require(reply.text, {message!r})"
                raise TypeError(f"an answer needs a check: {way}")
            return self._new_checks(what, weight, required=True)
        label, where = message or "required", self._recorder.place()
        reason = message or linecache.getline(where.file, where.line or 0).strip() or label
        result = decided(what, "ASSERT_FAILED", reason)
        expectation = Expectation("assert", label, where=where, weight=_valid_weight(weight))
        self._recorder.conclude(expectation, result)
        if result.outcome is not Outcome.PASSED:
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
        """A judge gives at least `threshold` of `scale` points for each criterion.

        The judge sees the conversation up to this answer, or to the end of a conversation, but not
        the threshold. A list of criteria has one question and one verdict for each criterion. A
        threshold of 0 is an error, since every answer would pass.
        """
        scope = self._scope(what)
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale must be a number, more than 0, but is {scale}")
        if not 0 < threshold <= scale:
            limits = f"more than 0, and at most {scale:g}"
            raise ValueError(f"threshold must be {limits}, but is {threshold}")
        listed = [criteria] if isinstance(criteria, str) else list(criteria)
        if not listed:
            raise ValueError("judge needs a criterion")
        min_score = threshold / scale
        judges = [
            Judge.model_construct(criteria=required_text("criteria", each), min_score=min_score)
            for each in listed
        ]
        results = [self._ask(scope, each.on_scale(scale), each.label, weight) for each in judges]
        if isinstance(criteria, str):
            return Pending(results, lambda found: verdict_of(found[0]), self._wait)
        return Pending(results, _verdicts, self._wait)

    def sentiment(self, reply: Reply, tone: str, *, weight: float = 1.0) -> Pending[Verdict]:
        """A judge finds that the answer has a tone, such as "empathetic"."""
        return self._verdict(reply, Sentiment(required_text("tone", tone)), tone, weight)

    def factuality(
        self, reply: Reply, ground_truth: str, *, context: str | None = None, weight: float = 1.0
    ) -> Pending[Verdict]:
        """A judge finds nothing in the answer that contradicts the ground truth."""
        check = Factuality(required_text("ground_truth", ground_truth), context)
        return self._verdict(reply, check, ground_truth, weight)

    def guardrail(
        self,
        reply: Reply,
        *,
        must: str | Iterable[str] = (),
        must_not: str | Iterable[str] = (),
        weight: float = 1.0,
    ) -> Pending[tuple[Verdict, ...]]:
        """A judge finds that the answer keeps to each rule.

        There is a verdict for each rule, for those of `must` first.
        """
        scope = self._scope(self._conversation.own_reply(reply))
        rules = [
            Guardrail(required_text(name, rule), must_not=name == "must_not")
            for name, given in (("must", must), ("must_not", must_not))
            for rule in ([given] if isinstance(given, str) else given)
        ]
        if not rules:
            raise ValueError("guardrail needs a rule: must=[...] or must_not=[...]")
        results = [self._ask(scope, rule, f"{rule.verb}: {rule.rule}", weight) for rule in rules]
        return Pending(results, _verdicts, self._wait)

    def score(self, name: str, value: float) -> None:
        """Record a number from 0 to 1, where more is better.

        The number does not change whether the test passes. `kindlm diff` reports a lower number as
        a regression.
        """
        required_text("name", name)
        if not 0 <= value <= 1:
            wanted = "scores must be from 0 to 1, so that runs are comparable"
            raise ValueError(f"The score {name!r} is {value}: {wanted}. Divide it by the maximum")
        expectation = Expectation("score", name, where=self._recorder.place())
        self._recorder.conclude(expectation, passed(score=float(value)))

    def _verdict(self, reply: Reply, check: Check, label: str, weight: float) -> Pending[Verdict]:
        result = self._ask(self._scope(self._conversation.own_reply(reply)), check, label, weight)
        return Pending([result], lambda found: verdict_of(found[0]), self._wait)

    def _ask(self, scope: Scope, check: Check, label: str, weight: float) -> Future[CheckResult]:
        where = self._recorder.place()
        more = {"turn": scope.last, "where": where, "weight": _valid_weight(weight)}
        return self._recorder.evaluate(check.expected(scope.labelled(label), **more))

    def _new_checks(self, what: Checked, weight: float, *, required: bool) -> Checks:
        scope, weight = self._scope(what), _valid_weight(weight)
        checks = Checks(self._recorder, scope, weight=weight, required=required)
        self._recorder.unfinished[checks] = self._recorder.place()
        return checks

    def _scope(self, what: object) -> Scope:
        """Return the answers that a check reads; raises like `AgentUnderTest.own_reply`."""
        if isinstance(what, ConversationChecks):
            return what.scope_at(self._recorder)
        if isinstance(what, Conversed):
            turns = [self._conversation.own_reply(each).turn for each in what.replies]
            return Scope(lambda: what, turns[0], turns[-1])
        if isinstance(what, tuple) and all(isinstance(each, Message) for each in what):
            raise TypeError("for the whole conversation, write t.conversation, not t.messages")
        reply = self._conversation.own_reply(what)
        return Scope(lambda: reply, reply.turn, reply.turn, is_conversation=False)

    async def _converse(self, user: SimulatedUser) -> Conversed:
        """Let a simulated user talk to the agent; a `SimulationError` makes the trial errored.

        Two users at once would answer each other, in a random order.
        """
        if self._converses:
            raise RuntimeError("another t.converse of this trial is still running: await it first")
        self._converses = True
        try:
            return await user.converse(self._stage.ask, self._conversation)
        except SimulationError as error:
            self.error = error.error
            raise
        finally:
            self._converses = False


def _valid_weight(weight: float) -> float:
    if not 0 < weight <= HEAVIEST:
        raise ValueError(f"weight must be more than 0, and at most {HEAVIEST:,}, but is {weight}")
    return weight


def _verdicts(found: Sequence[CheckResult]) -> tuple[Verdict, ...]:
    return tuple(map(verdict_of, found))


class Trial(_Checking):
    """The argument of an `async` scenario: the agent, and checks of its answers."""

    def __init__(self, stage: Stage, place: Place) -> None:
        super().__init__(stage, place)
        self.agent = self._conversation

    def converse(
        self,
        persona: Persona,
        *,
        goal: str,
        turns: tuple[int, int] = (1, 8),
        script: Lines = (),
        stop: Stop | None = None,
    ) -> Coroutine[Any, Any, Conversed]:
        """Let a model play a person who talks to the agent until a goal is reached.

        The person continues the conversation of this trial. The outcome alone passes or fails
        nothing: check it.

        Args:
            persona: the person.
            goal: the goal, such as "a refund is promised".
            turns: the least and the most messages. Before the least, the goal cannot end the
                conversation.
            script: the first messages; the model writes those that are None. All of them are sent
                before the goal can end the conversation.
            stop: a function that returns whether the conversation ends with an answer.

        Raises:
            AgentError: the agent gave no answer. The trial is then errored.
            SimulationError: the model gave no message, also when it was asked again. The trial is
                then errored.
        """
        user = SimulatedUser(persona, goal, turns, script, stop)
        return self.agent.track("t.converse(…)", self._converse(user))

    def mistake(self) -> KindlmError | None:
        """Return the error of a test that uses the trial wrongly; cancels a task that has it."""
        if (error := super().mistake()) is not None:
            return error
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            frame = getattr(task.get_coro(), "cr_frame", None)
            if frame is None or task.cancelling():
                continue
            if any(value is self for value in [*frame.f_locals.values()]):
                task.cancel()
                return _lost(frame, "as a task", "Await the task: its checks would be lost.")
        return None


class SyncTrial(_Checking):
    """The argument of a scenario that is not `async`, whose function runs in its own thread."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._thread = FunctionThread()
        super().__init__(stage, place, self._thread)
        self.agent = SyncAgentUnderTest(self._conversation, self._thread)

    def converse(
        self,
        persona: Persona,
        *,
        goal: str,
        turns: tuple[int, int] = (1, 8),
        script: Lines = (),
        stop: Stop | None = None,
    ) -> Conversed:
        """Let a model play a person who talks to the agent; see `Trial.converse`.

        `stop` runs in the event loop: it cannot use the trial, and should not block.
        """
        user = SimulatedUser(persona, goal, turns, script, stop)
        return self._thread.wait_for(self._converse(user))

    def end(self) -> None:
        """Cut the trial off: the next use of it ends the function."""
        self._thread.end()


def _lost(frame: FrameType, how: str, hint: str) -> KindlmError:
    at = SourceLocation(frame.f_code.co_filename, frame.f_lineno)
    message = f"The scenario ended while {frame.f_code.co_name} still ran {how}."
    return KindlmError(ErrorCode.ASSERTION_EVAL_ERROR, message, hint, at)


# Without this function of CPython, there would be nothing to replace below.
_warn = getattr(warnings, "_warn_unawaited_coroutine", print)


def _remember(coroutine: Any) -> None:
    """Let a trial remember a function of the test that has it or an answer, and never ran.

    Python calls this when it frees a coroutine that was never awaited, and would only warn.
    """
    held = list(coroutine.cr_frame.f_locals.values())
    if any(isinstance(each, Reply) for each in held):
        stack = traceback.walk_stack(sys._getframe(1))  # noqa: SLF001
        held += [each for frame, _ in stack for each in frame.f_locals.values()]
    if (trial := next((each for each in held if isinstance(each, _Checking)), None)) is None:
        _warn(coroutine)
    else:
        _ = trial._conversation.track(f"{coroutine.__name__}(…)", coroutine)  # noqa: SLF001


warnings._warn_unawaited_coroutine = _remember  # type: ignore[attr-defined]  # noqa: SLF001
