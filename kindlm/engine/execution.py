"""One execution from start to finish: converse, check, record.

Whatever goes wrong inside, the execution ends with an `execution.finished`: an error of a provider
or a crash of our own makes it errored and leaves the rest of the run alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from kindlm.engine.agent_conversation import AgentConversation
from kindlm.engine.agent_tools import AgentTools
from kindlm.engine.calls import CallCounter, Caller, Means
from kindlm.engine.clients import Clients
from kindlm.engine.conversation import (
    Conversation,
    ModelConversation,
    PastConversation,
    ToolRecorder,
    first_messages,
)
from kindlm.engine.file_words import in_words_of
from kindlm.engine.finishing import Finished, crashed, finished_event, skip_execution, too_slow
from kindlm.engine.log import FieldLog, about_execution
from kindlm.engine.pace import Callee, Paces, Reservation, Turns
from kindlm.engine.recording import (
    assertion_event,
    execution_facts,
    message_data,
    subject,
    tools_text,
)
from kindlm.engine.scripted_trial import HeldVoice, NoVoice, ScriptedTrial, Voice
from kindlm.engine.stop import Budget, Deadline, Permits
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.events import ExecutionStarted
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Outcome, Status, execution_status
from kindlm.plan import Execution
from kindlm.ports import (
    AgentFactory,
    AnswerSource,
    BaselineLookup,
    CheckContext,
    Checker,
    Clock,
    Embedding,
    HeldConversation,
    NothingHeld,
    Pricing,
    Recorder,
    SimulatorFactory,
    TranscriptSource,
)
from kindlm.suite import AgentTarget, Command, Script
from kindlm.transcript import Message, Transcript

__all__ = ["Doers", "callee", "run_execution"]


_log = FieldLog(__name__)


@dataclass(frozen=True, slots=True)
class Doers:
    """What an execution works with: implementations of the ports, and what the run shares."""

    clients: Clients
    paces: Paces
    budget: Budget
    permits: Permits
    pricing: Pricing
    simulators: SimulatorFactory
    agents: AgentFactory
    checker: Checker
    baselines: BaselineLookup
    recorder: Recorder
    clock: Clock
    transcripts: TranscriptSource | None = None
    answers: AnswerSource | None = None
    asks_what_is_new: bool = True

    @property
    def call_targets(self) -> bool:
        """Whether targets may be called: not all that they do is taken from another run."""
        return self.transcripts is None and (self.answers is None or self.asks_what_is_new)


async def run_execution(
    execution: Execution,
    doers: Doers,
    *,
    attempt: int = 1,
    reserved: Reservation | None = None,
    may_rerun: Callable[[], bool] = lambda: False,
) -> Finished | None:
    """Run one execution; when this returns, its end is on disk. None if it was cut off before.

    `reserved` is the turn for its first call, if that was taken already. With conversations of an
    earlier run, it is skipped if none was held for it. `may_rerun` tells whether it can be run
    again if it did not pass; then it has not ended, and what is returned is `retried`.
    """
    held = None if doers.transcripts is None else doers.transcripts.find(execution)
    if isinstance(held, NothingHeld):
        return await skip_execution(execution, doers.recorder, attempt=attempt, reason=held.reason)
    if held is not None:
        past, agent = held.transcript.from_record(), _agent(execution)
        # What the suite says of the agent now counts: that is no answer of its own.
        if agent is not None:
            past = replace(past, reports_tools=agent.reports_tools, prints_calls=agent.prints_calls)
        held = replace(held, transcript=past)
    name = execution.case.name
    with about_execution(subject(execution, attempt), name, execution.target), _guarded(execution):
        finished = await _Attempt(execution, doers, attempt, reserved, held).run(may_rerun)
        if finished is None:
            _log.info("The execution was cut off")
        else:
            _log_end(finished)
    return finished


def _guarded(execution: Execution) -> AbstractContextManager[None]:
    """Return the context for what may run code of a user in this process."""
    case = execution.case
    if case.script is None:
        return nullcontext()
    timeout_ms = case.timeout_ms or execution.suite.suite.execution_timeout_ms
    return guard.execution(execution.id, case.name, timeout_ms / 1000)


def callee(execution: Execution) -> Callee | None:
    """Return the provider or agent that an execution calls, None if it starts a command."""
    suite, target = execution.suite.suite, execution.target
    if execution.case.command is not None:
        return None
    model = suite.models.get(target)
    if model is not None:
        return suite.providers[model.provider]
    return execution.case.agent or suite.agents[target]


def _agent(execution: Execution) -> AgentTarget | Command | None:
    """Return the agent, or the program that is the agent, of an execution; None on a model."""
    case = execution.case
    return case.command or case.agent or execution.suite.suite.agents.get(execution.target)


class _Attempt:
    """One attempt of an execution, and what came of it so far."""

    def __init__(
        self,
        execution: Execution,
        doers: Doers,
        number: int,
        reserved: Reservation | None,
        held: HeldConversation | None,
    ) -> None:
        self._execution = execution
        self._suite = execution.suite.suite
        self._case = execution.case
        self._doers = doers
        self._number = number
        self._recorder = doers.recorder.about(subject(execution, number))
        self._answers = None if doers.answers is None else doers.answers(execution)
        self._timeout_ms = execution.case.timeout_ms or self._suite.execution_timeout_ms
        deadline = Deadline(self._timeout_ms / 1000, doers.clock)
        self._means = Means(
            self._recorder,
            doers.clock,
            CallCounter(
                partial(doers.budget.spend, execution.suite.ordinal), last=held.calls if held else 0
            ),
            doers.pricing,
            Turns(doers.paces, deadline, reserved),
            deadline,
            doers.permits.issue(execution.suite.ordinal),
        )
        self._caller = Caller(self._suite, doers.clients, self._means, self._answers)
        self._held = held
        self._conversation = Conversation(Transcript(self._case.prompt.system))
        self._results: list[CheckResult] = []
        self._deciding: list[CheckResult] = []
        self._trial: ScriptedTrial | None = None

    async def run(self, may_rerun: Callable[[], bool]) -> Finished | None:
        """Converse and check, and record how it ended; None if it was cut off."""
        self._recorder.record(self._start())
        try:
            error = in_words_of(self._suite, await self._guarded())
        except asyncio.CancelledError:
            if self._means.permit.takes_back():
                return None
            raise
        status = Status.ERRORED if error else execution_status([r.outcome for r in self._deciding])
        retried = status in (Status.FAILED, Status.ERRORED) and may_rerun()
        self._recorder.record(
            finished_event(
                self._suite,
                self._conversation,
                status,
                error,
                is_held=self._held is not None,
                score=None if self._trial is None else self._trial.score,
                retried=retried,
            )
        )
        await self._recorder.durable()
        undone = (Outcome.FAILED, Outcome.INCONCLUSIVE)
        return Finished(
            self._execution,
            status,
            error,
            tuple(result for result in self._deciding if result.outcome in undone),
            self._conversation.transcript.latency_ms,
            self._means.counter.spent_usd,
            retried,
        )

    async def _guarded(self) -> KindlmError | None:
        """Do the work within its time; return the error that makes the execution errored."""
        try:
            async with self._means.deadline:
                if self._case.script is not None:
                    return await self._play(self._case.script)
                await self._converse()
                if self._conversation.is_checkable:
                    await self._check()
        except TimeoutError:
            return too_slow(self._timeout_ms, self._case)
        except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
            return crashed(crash)
        finally:
            self._means.turns.release()
        return self._conversation.error

    async def _play(self, script: Script) -> KindlmError | None:
        """Let a script hold the conversation and check it; return what makes it errored."""
        talk = self._voice()
        if isinstance(talk, Err):
            return talk.error
        doers, voice = self._doers, talk.value
        trial = self._trial = ScriptedTrial(
            voice,
            caller=self._caller,
            checker=doers.checker,
            recorder=self._recorder,
            clock=doers.clock,
        )
        try:
            async with voice:
                error = await trial.play(script)
        finally:
            self._conversation = voice.state
            self._deciding = self._results = trial.results
        if not self._means.deadline.leaves(0):
            # One that blocks holds up the event loop, and so what would cut it off.
            raise TimeoutError
        return self._conversation.error or error

    def _voice(self) -> Result[Voice]:
        """Return what says the messages of a script."""
        if self._held is not None:
            return Ok(HeldVoice(self._held))
        if self._case.agent is None and self._execution.target in self._suite.models:
            return Ok(NoVoice())
        agent = self._talk_to_agent()
        return agent if isinstance(agent, Err) else Ok(agent.value)

    async def _converse(self) -> None:
        talk = self._talk()
        if isinstance(talk, Err):
            self._conversation = Conversation(self._conversation.transcript, talk.error)
            return
        try:
            await talk.value.hold()
        finally:
            self._conversation = talk.value.state

    def _talk(self) -> Result[ModelConversation | AgentConversation | PastConversation]:
        """Return the conversation that fits the target: a model, a live agent, or a command."""
        if self._held is not None:
            return Ok(PastConversation(self._held))
        case = self._case
        model = self._suite.models.get(self._execution.target)
        if case.command is None and model is not None:
            tools = self._tools()
            timeout_s = self._suite.timeout_ms / 1000
            return Ok(ModelConversation(case, model, self._caller, tools, timeout_s))
        agent = self._talk_to_agent()
        return agent if isinstance(agent, Err) else Ok(agent.value)

    def _talk_to_agent(self) -> Result[AgentConversation]:
        case, doers = self._case, self._doers
        if case.fault is not None:
            return Err(case.fault)
        target = _agent(self._execution)
        assert target is not None, "only agents are talked to"
        recorded = None if self._answers is None else self._answers.agent()
        agent = doers.agents(target) if recorded is None else Ok(recorded)
        if isinstance(agent, Err):
            return agent
        return Ok(
            AgentConversation(
                case,
                self._suite,
                agent.value,
                name=self._execution.target,
                target=target,
                tools=AgentTools(self._tools() if case.tools else None),
                conversation=uuid4().hex,
                means=self._means,
                queue=self._means.turns.at(callee(self._execution) if recorded is None else None),
            )
        )

    def _tools(self) -> ToolRecorder:
        simulator = self._doers.simulators(self._case.tools)
        return ToolRecorder(simulator, self._recorder, self._doers.clock)

    async def _check(self) -> None:
        """Evaluate all expectations; those before a crash or the end of the time are kept."""
        context = self._context()
        transcript = self._conversation.transcript
        clock = self._doers.clock
        for expectation in self._case.expectations:
            self._caller.assertion = len(self._results)
            seen = replace(context, earlier=tuple(self._results))
            started = clock.monotonic()
            found = await self._doers.checker.evaluate(expectation, transcript, seen)
            duration_ms = (clock.monotonic() - started) * 1000 / max(len(found), 1)
            for result in found:
                event = assertion_event(
                    result, len(self._results), expectation, duration_ms=duration_ms
                )
                self._recorder.record(event)
                self._results.append(result)
                if not expectation.advisory:
                    self._deciding.append(result)

    def _context(self) -> CheckContext:
        """Return what checks may use; the baseline is looked up only where drift is checked."""
        ask = self._caller.ask
        if not any(expectation.kind == "drift" for expectation in self._case.expectations):
            return CheckContext(ask)
        lookup, suite = self._doers.baselines, self._suite
        run = lookup.run(suite.project, suite.name)
        if isinstance(run, Err):
            return CheckContext(ask, self._embed, baseline_error=run.error)
        if run.value is None:
            return CheckContext(ask, self._embed)
        text = lookup.output(run.value, suite.name, self._case.name, self._execution.target)
        return CheckContext(ask, self._embed, baseline=text)

    async def _embed(self, texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        ordinal, target = self._execution.suite.ordinal, self._execution.target
        embedder = self._doers.clients.embedder(ordinal, self._suite, target)
        if isinstance(embedder, Err):
            return embedder
        found = await self._caller.embed(embedder.value, texts)
        name = f"{embedder.value.provider}/{embedder.value.model}"
        return found if isinstance(found, Err) else Ok((found.value, name))

    def _start(self) -> ExecutionStarted:
        return ExecutionStarted(
            **execution_facts(self._execution),
            attempt=self._number,
            messages=[message_data(message) for message in self._first_messages()],
            tools=None if self._held else tools_text(self._case.tools),
            source=self._held.source if self._held else None,
        )

    def _first_messages(self) -> Sequence[Message]:
        return self._held.messages if self._held else first_messages(self._case)


def _log_end(finished: Finished) -> None:
    latency_ms = round(finished.latency_ms, 3)
    if finished.error is None:
        _log.info("The execution ended", status=finished.status, latency_ms=latency_ms)
    else:
        _log.error("The execution errored", code=finished.error.code.name, latency_ms=latency_ms)
