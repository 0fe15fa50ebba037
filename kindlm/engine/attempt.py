"""One attempt of an execution from start to finish: converse, check, record.

Whatever goes wrong inside, the execution ends with an `execution.finished`: an error of a provider
or a crash of kindlm makes it errored and leaves the rest of the run alone.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from kindlm.engine.calls import Calls, definition_of
from kindlm.engine.file_words import in_words_of, said_in_words_of
from kindlm.engine.log import FieldLog, about_execution
from kindlm.engine.pace import Callee
from kindlm.engine.resources import Run
from kindlm.engine.stop import Deadline
from kindlm.engine.talk import AgentTalk, HeldTalk, ModelTalk, Talk, first_messages
from kindlm.engine.tools import AgentTools, Tools
from kindlm.engine.trial import ScriptedTrial
from kindlm.engine.turns import Reservation
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AssertionEvaluated, ExecutionFinished, ExecutionStarted
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Outcome, Status, execution_status
from kindlm.plan import Execution
from kindlm.ports import (
    CheckContext,
    Embedding,
    HeldConversation,
    NothingHeld,
    RecordedAnswers,
    Recorder,
)
from kindlm.suite import AgentTarget, Case, Command, Script, SimulatedTool
from kindlm.transcript import (
    Message,
    Step,
    Transcript,
    calls_lack_a_secret,
    cost_of,
    text_lacks_a_secret,
)

__all__ = ["Finished", "callee", "end_lost", "run_execution", "skip_execution"]

_log = FieldLog(__name__)

_TAKEN_OUT = (
    "A secret was taken out of what was recorded here: checks that look at that are undecided, and"
    " a judge sees [redacted] in its place."
)


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended, for the progress that is shown while a run goes on.

    `cost_usd` is what all its calls cost, judges too, as far as that is known.
    """

    execution: Execution
    status: Status
    error: KindlmError | None = None
    failed: tuple[CheckResult, ...] = ()
    latency_ms: float = 0.0
    cost_usd: float = 0.0
    retried: bool = False


def _started(
    execution: Execution,
    attempt: int,
    *,
    messages: Sequence[Message] = (),
    tools: Sequence[SimulatedTool] = (),
    source: str | None = None,
) -> ExecutionStarted:
    """Return the event that an attempt began."""
    suite = execution.suite.suite
    return ExecutionStarted(
        suite=execution.suite.ordinal,
        test=execution.case.name,
        target=execution.target,
        repeat=execution.repeat,
        attempt=attempt,
        tags=list(dict.fromkeys((*suite.tags, *execution.case.tags))),
        messages=messages,
        tools=[definition_of(tool) for tool in tools] or None,
        source=source,
    )


async def skip_execution(
    execution: Execution,
    run: Recorder,
    *,
    attempt: int = 1,
    reason: str | None = None,
    status: Status = Status.SKIPPED,
) -> Finished:
    """Record that an execution was skipped: because its test says so, or for a `reason`.

    One that was to be run again stays as it was: that is its `status`.
    """
    recorder = run.about(execution.subject(attempt))
    recorder.record(_started(execution, attempt))
    warnings = [] if reason is None else [reason]
    recorder.record(ExecutionFinished(status=status, warnings=warnings))
    await recorder.durable()
    return Finished(execution, status)


async def end_lost(
    execution: Execution, run: Recorder, attempt: int | None, error: KindlmError
) -> Finished:
    """Record the end of an execution that took its process with it.

    `attempt` is the one that was recorded as started by then, if any.
    """
    if attempt is None:
        run.about(execution.subject(1)).record(_started(execution, 1))
    return await _end_errored(execution, run.about(execution.subject(attempt or 1)), error)


async def _end_errored(execution: Execution, recorder: Recorder, error: KindlmError) -> Finished:
    """Record the end of an attempt that was recorded as started, and found nothing out."""
    recorder.record(_errored(error))
    await recorder.durable()
    return Finished(execution, Status.ERRORED, error)


def _errored(error: KindlmError) -> ExecutionFinished:
    """Return the event that an attempt ended with an error, of which nothing else is known."""
    return ExecutionFinished(
        status=Status.ERRORED,
        error_code=error.code.name,
        error_number=error.code.value,
        error=error.message,
        hint=error.hint,
        trace=error.trace or None,
    )


async def run_execution(
    execution: Execution,
    run: Run,
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
    transcripts, source = run.ports.transcripts, run.ports.answers
    try:
        held = None if transcripts is None else transcripts.find(execution)
        answers = None if source is None else source(execution)
    except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
        recorder = run.ports.recorder.about(execution.subject(attempt))
        recorder.record(_started(execution, attempt))
        return await _end_errored(execution, recorder, _crashed(crash))
    if isinstance(held, NothingHeld):
        recorder = run.ports.recorder
        return await skip_execution(execution, recorder, attempt=attempt, reason=held.reason)
    if held is not None:
        past, agent = held.transcript.from_record(), _agent(execution)
        # What the suite says of the agent now counts: that is no answer of its own.
        if agent is not None:
            past = replace(past, reports_tools=agent.reports_tools, prints_calls=agent.prints_calls)
        held = replace(held, transcript=past)
    name = execution.case.name
    with about_execution(execution.subject(attempt), name, execution.target), _guarded(execution):
        finished = await _Attempt(execution, run, attempt, reserved, held, answers).run(may_rerun)
        if finished is None:
            _log.info("The execution was cut off")
        else:
            latency_ms = round(finished.latency_ms, 3)
            if finished.error is None:
                _log.info("The execution ended", status=finished.status, latency_ms=latency_ms)
            else:
                code = finished.error.code.name
                _log.error("The execution errored", code=code, latency_ms=latency_ms)
    return finished


def _guarded(execution: Execution) -> AbstractContextManager[None]:
    """Return the context for what may run code of a user in this process."""
    case = execution.case
    if case.script is None and not guard.has_packages:
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
        run: Run,
        number: int,
        reserved: Reservation | None,
        held: HeldConversation | None,
        answers: RecordedAnswers | None,
    ) -> None:
        self._execution = execution
        self._suite = execution.suite.suite
        self._case = execution.case
        self._ports = run.ports
        self._number = number
        self._held = held
        self._recorder = run.ports.recorder.about(execution.subject(number))
        self._answers = answers
        self._timeout_ms = execution.case.timeout_ms or self._suite.execution_timeout_ms
        self._deadline = Deadline(self._timeout_ms / 1000, run.ports.clock)
        self._calls = Calls(
            run,
            execution.suite,
            self._recorder,
            self._deadline,
            reserved=reserved,
            answers=self._answers,
            last=held.calls if held else 0,
        )
        self._talk = Talk(Transcript(self._case.prompt.system))
        self._results: list[CheckResult] = []
        self._deciding: list[CheckResult] = []
        self._score: float | None = None

    async def run(self, may_rerun: Callable[[], bool]) -> Finished | None:
        """Converse and check, and record how it ended; None if it was cut off."""
        held, case = self._held, self._case
        error = self._record(
            _started(
                self._execution,
                self._number,
                messages=held.messages if held else first_messages(case),
                tools=() if held else case.tools,
                source=held.source if held else None,
            ),
            lambda _: _started(self._execution, self._number),
        )
        try:
            if error is None:
                error = in_words_of(self._suite, await self._guarded())
            else:
                self._calls.turns.release()
        except asyncio.CancelledError:
            if self._calls.permit.takes_back():
                return None
            raise
        status = Status.ERRORED if error else execution_status([r.outcome for r in self._deciding])
        retried = status in (Status.FAILED, Status.ERRORED) and may_rerun()
        unfit = self._record(self._finished_event(status, error, retried=retried), _errored)
        if unfit is not None:
            status, error, retried = Status.ERRORED, unfit, False
        await self._recorder.durable()
        undone = (Outcome.FAILED, Outcome.INCONCLUSIVE)
        return Finished(
            self._execution,
            status,
            error,
            tuple([result for result in self._deciding if result.outcome in undone]),
            self._talk.transcript.latency_ms,
            self._calls.spent_usd,
            retried,
        )

    def _record(
        self,
        event: ExecutionStarted | ExecutionFinished,
        bare: Callable[[KindlmError], ExecutionStarted | ExecutionFinished],
    ) -> KindlmError | None:
        """Record an event, or a bare one if the store refuses what is in it; return that error."""
        try:
            self._recorder.record(event)
        except ValueError as refused:
            error = _crashed(refused)
            self._recorder.record(bare(error))
            return error
        return None

    async def _guarded(self) -> KindlmError | None:
        """Do the work within its time; return the error that makes the execution errored."""
        try:
            async with self._deadline:
                talk = self._make_talk()
                if isinstance(talk, Err):
                    return talk.error
                self._talk = talk.value
                if self._case.script is not None:
                    return await self._play(self._case.script)
                await self._talk.hold()
                if self._talk.is_checkable:
                    await self._check()
        except TimeoutError:
            return _too_slow(self._timeout_ms, self._case)
        except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
            return _crashed(crash)
        finally:
            self._calls.turns.release()
        return self._talk.error

    def _make_talk(self) -> Result[Talk]:
        """Return the conversation that fits the target: a model, a live agent, or a command."""
        if self._held is not None:
            return Ok(HeldTalk(self._held))
        case, target = self._case, self._execution.target
        model = self._suite.models.get(target)
        if case.script is not None:
            if case.agent is None and model is not None:
                return Ok(Talk())  # the script of a model only asks questions
        elif case.command is None and model is not None:
            return Ok(ModelTalk(case, model, self._calls, self._tools()))
        if case.fault is not None:
            return Err(case.fault)
        agent_target = _agent(self._execution)
        assert agent_target is not None, "only agents are talked to"
        recorded = None if self._answers is None else self._answers.agent()
        agent = self._ports.agents(agent_target) if recorded is None else Ok(recorded)
        if isinstance(agent, Err):
            return agent
        return Ok(
            AgentTalk(
                case,
                agent.value,
                self._calls,
                name=target,
                target=agent_target,
                callee=callee(self._execution) if recorded is None else None,
                tools=AgentTools(self._tools() if case.tools else None),
            )
        )

    def _tools(self) -> Tools:
        ports = self._ports
        return Tools(ports.simulators(self._case.tools), self._recorder, ports.clock)

    async def _play(self, script: Script) -> KindlmError | None:
        """Let a script hold the conversation and check it; return what makes it errored."""
        trial = ScriptedTrial(self._talk, self._calls, self._ports.checker, self._ports.clock)
        try:
            async with self._talk:
                error = await trial.play(script)
        finally:
            self._deciding = self._results = trial.results
            self._score = trial.score
        if not self._deadline.leaves(0):
            # One that blocks holds up the event loop, and so what would cut it off.
            raise TimeoutError
        return self._talk.error or error

    async def _check(self) -> None:
        """Evaluate all expectations; those before a crash or the end of the time are kept."""
        context = self._context()
        transcript = self._talk.transcript
        clock = self._ports.clock
        for expectation in self._case.expectations:
            self._calls.assertion = len(self._results)
            seen = replace(context, earlier=tuple(self._results))
            started = clock.monotonic()
            found = self._ports.checker.evaluate(expectation, transcript, seen)
            result = found if isinstance(found, CheckResult) else await found
            duration_ms = (clock.monotonic() - started) * 1000
            event = AssertionEvaluated.of(
                result, len(self._results), expectation, duration_ms=duration_ms
            )
            self._recorder.record(event)
            self._results.append(result)
            if not expectation.advisory:
                self._deciding.append(result)

    def _context(self) -> CheckContext:
        """Return what checks may use; the baseline is looked up only where drift is checked."""
        ask = self._calls.ask
        if "drift" not in {expectation.kind for expectation in self._case.expectations}:
            return CheckContext(ask)
        lookup, suite = self._ports.baselines, self._suite
        run = lookup.run(suite.project, suite.name)
        if isinstance(run, Err):
            return CheckContext(ask, self._embed, baseline_error=run.error)
        if run.value is None:
            return CheckContext(ask, self._embed)
        text = lookup.output(run.value, suite.name, self._case.name, self._execution.target)
        return CheckContext(ask, self._embed, baseline=text)

    async def _embed(self, texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        ordinal, target = self._execution.suite.ordinal, self._execution.target
        embedder = self._calls.run.embedder(ordinal, self._suite, target)
        if isinstance(embedder, Err):
            return embedder
        found = await self._calls.embed(embedder.value, texts)
        name = f"{embedder.value.provider}/{embedder.value.model}"
        return found if isinstance(found, Err) else Ok((found.value, name))

    def _finished_event(
        self, status: Status, error: KindlmError | None, *, retried: bool
    ) -> ExecutionFinished:
        transcript, is_held = self._talk.transcript, self._held is not None
        # Warnings name what can be set by the keys of the user's file.
        warnings = [said_in_words_of(self._suite, warning) for warning in self._talk.warnings]
        steps = list(transcript.steps)
        taken: list[Step] = []
        paid: list[Step] = []
        for step in steps:
            # What was paid for in an earlier run costs nothing now.
            (taken if is_held or step.recorded else paid).append(step)
            if text_lacks_a_secret(step) or calls_lack_a_secret(step):
                warnings = list(dict.fromkeys((*warnings, _TAKEN_OUT)))
        usage = transcript.usage
        return ExecutionFinished(
            status=status,
            error_code=error.code.name if error else None,
            error_number=error.code.value if error else None,
            error=error.message if error else None,
            hint=error.hint if error else None,
            trace=error.trace or None if error else None,
            output=transcript.text if steps else None,
            answers=len(steps),
            latency_ms=round(transcript.latency_ms, 3),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=cost_of(paid).usd if paid or not steps else 0.0,
            cost_source=transcript.cost.source,
            cost_then_usd=cost_of(taken).usd,
            finish_reason=steps[-1].finish_reason if steps else None,
            warnings=warnings,
            score=self._score,
            retried=retried,
        )


def _crashed(crash: Exception) -> KindlmError:
    """Return the error of an execution in which kindlm itself failed."""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"kindlm itself failed: {type(crash).__name__}: {crash}",
        "This is a bug. Run again with --verbose and report the traceback.",
        trace="".join(traceback.format_exception(crash)),
    )


def _too_slow(timeout_ms: int, case: Case) -> KindlmError:
    """Return the error of an execution that was cut off when its time was over."""
    limit = "defaults.executionTimeoutMs"
    if case.script is not None:
        limit = "`timeout` of the scenario, or eval.default_timeout"
    return KindlmError(
        ErrorCode.PROVIDER_TIMEOUT,
        f"The execution took longer than {timeout_ms} ms.",
        f"Raise {limit}, or look at which call was slow: kindlm show",
    )
