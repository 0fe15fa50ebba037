"""Histories of runs that nobody ran, written as the engine writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderFailed,
    ProviderPaced,
    ProviderRequested,
    ProviderResponded,
    ToolCalled,
    ToolSimulated,
)
from kindlm.events.run import (
    ContentsPurged,
    GitState,
    PlannedTest,
    ReviewRecorded,
    RunAborted,
    RunFinished,
    RunInterrupted,
    RunLabelled,
    RunSealed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
)
from kindlm.history.run_view import RunView
from kindlm.outcome import CheckResult, Evidence, Gate, Outcome, Status, execution_status
from kindlm.projections import PROJECTIONS
from kindlm.suite import ListedTools
from kindlm.transcript import CostSource, FinishReason, Message, Role, ToolCall
from kindlm_store import Append, EventLog, HeadOf, NewEvent
from kindlm_store.erasing import erase, find_erasable

_ABOUT = {"demands", "duration_ms", "line", "turn", "advisory"}
"""What is said of a check beside its result."""

DEFAULT_GATES = {
    "passRateMin": 0.95,
    "schemaFailuresMax": 0,
    "piiFailuresMax": 0,
    "keywordFailuresMax": 0,
}


class RunWriter:
    """Collects the events of one run; `finish`, `interrupt` or `leave` records them."""

    def __init__(self, history: History, run: str, **started: Any) -> None:
        self._history = history
        self.id = run
        self._started = started
        self._events: list[NewEvent] = []
        self._suites = 0
        self._executions = 0

    def suite(
        self,
        name: str = "support",
        *,
        tests: list[PlannedTest] | None = None,
        gates: dict[str, float] | None = None,
        defaults: dict[str, float] | None = None,
        path: str = "kindlm.yaml",
        tags: list[str] | None = None,
        config_hash: str = "0123456789ab",
        config: str = "{}",
        project: str = "shop",
        servers: tuple[ListedTools, ...] = (),
        baseline_run: str | None = None,
        unread: tuple[str, ...] = (),
    ) -> int:
        """Start a suite; `gates` are those that the user wrote, on top of the defaults."""
        ordinal, self._suites = self._suites, self._suites + 1
        thresholds = (DEFAULT_GATES if defaults is None else defaults) | (gates or {})
        self._add(
            SuiteStarted(
                suite=name,
                ordinal=ordinal,
                project=project,
                front_end="kindlm",
                path=path,
                config_hash=config_hash,
                config=config,
                gates=[
                    Gate(name=gate, threshold=value, written=gate in (gates or {}))
                    for gate, value in thresholds.items()
                ],
                tags=tags or [],
                tests=tests or [],
                servers=servers,
                baseline_run=baseline_run,
                unread=unread,
            )
        )
        return ordinal

    def skipped_suite(
        self,
        name: str = "broken",
        *,
        code: str = "CONFIG_VALIDATION_ERROR",
        message: str = "Unknown key `tset`.",
        tests: int = 0,
    ) -> None:
        """Record a suite that could not be loaded."""
        ordinal, self._suites = self._suites, self._suites + 1
        self._add(
            SuiteSkipped(
                suite=name,
                ordinal=ordinal,
                path=f"{name}.yaml",
                tests=tests,
                error_code=code,
                error_number=102,
                message=message,
            )
        )

    def execution(
        self,
        test: str = "greets",
        target: str = "gpt",
        *,
        repeat: int = 1,
        suite: int = 0,
        number: int | None = None,
        attempt: int = 1,
        system: str | None = "You are kind.",
        user: str = "Hello!",
        output: str | None = "Hi there.",
        assertions: tuple[AssertionEvaluated, ...] = (),
        tools: tuple[tuple[str, Any, Any], ...] = (),
        definitions: list[dict[str, Any]] | None = None,
        failures: tuple[ProviderFailed, ...] = (),
        judge: str | None = None,
        judge_answers_as: str = "judge",
        error: tuple[str, int, str, str | None] | None = None,
        status: Status | None = None,
        finished: bool = True,
        latency_ms: float = 120.0,
        cost_usd: float | None = 0.001,
        tokens: tuple[int | None, int | None] = (10, 5),
        warnings: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
        source: str | None = None,
        provider: str = "openai",
        score: float | None = None,
        retried: bool = False,
        earlier: tuple[str, ...] = (),
        tool_turn: int = 1,
        answers_as: str | None = None,
        models_usd: tuple[float, ...] = (),
        models_failed: int = 0,
        parameters: Mapping[str, float | int | None] = MappingProxyType({}),
    ) -> str:
        """Record one attempt of an execution; return its id.

        `earlier` are the answers of the turns before the last one, `tools` called in `tool_turn`.
        A tool without a result was called by an agent that does not report it. The target says that
        it is the model `answers_as`. Calls of models that it made itself cost `models_usd`.
        In each of its `failures`, `models_failed` of its own calls of models failed, too.

        One that was `retried` is followed by another attempt, of the same `number`.
        """
        if number is None:
            self._executions += 1
            number = self._executions
        subject = f"{number}.{attempt}"
        messages = [Message(Role.USER, user)]
        if system is not None:
            messages.insert(0, Message(Role.SYSTEM, system))
        self._add(
            ExecutionStarted(
                suite=suite,
                test=test,
                target=target,
                repeat=repeat,
                attempt=attempt,
                tags=list(tags),
                source=source,
                messages=[] if status is Status.SKIPPED else messages,
                tools=definitions,
            ),
            subject,
        )
        call = 0
        for number_of_try, failure in enumerate(failures, start=1):
            for purpose in ("test", *["agent"] * models_failed):
                call += 1
                self._request(subject, call, target, attempt=number_of_try, purpose=purpose)
                self._add(replace(failure, call=call), subject)
        talk = [
            (turn, answer, tools if turn == tool_turn else ())
            for turn, answer in enumerate((*earlier, None), start=1)
        ]
        call, follows = self._turns(subject, call, target, talk)
        if output is not None and status is not Status.SKIPPED:
            call += 1
            self._request(
                subject,
                call,
                target,
                after=call - 1,
                provider=provider,
                follows=follows,
                parameters=parameters,
            )
            for number_of_model, usd in enumerate(models_usd, start=call + 1):
                self._request(subject, number_of_model, "gpt-4o", purpose="agent")
                self._respond(subject, number_of_model, "", "gpt-4o", 1.0, usd)
            model = answers_as or target
            self._respond(subject, call, output, model, latency_ms, cost_usd, tokens=tokens)
            call += len(models_usd)
        for index, assertion in enumerate(assertions):
            self._add(replace(assertion, index=index), subject)
        if judge is not None:
            call += 1
            self._request(subject, call, "judge", purpose="judge", after=None)
            self._respond(subject, call, judge, judge_answers_as, 50.0, 0.002)
        if finished:
            outcomes = [assertion.result.outcome for assertion in assertions]
            ended = status or (Status.ERRORED if error else execution_status(outcomes))
            skipped = ended is Status.SKIPPED
            self._add(
                ExecutionFinished(
                    status=ended,
                    error_code=error[0] if error else None,
                    error_number=error[1] if error else None,
                    error=error[2] if error else None,
                    hint=error[3] if error else None,
                    output=None if output is None or skipped else output,
                    answers=0 if output is None or skipped else 1 + bool(tools),
                    latency_ms=0.0 if skipped else latency_ms,
                    input_tokens=None if skipped else tokens[0],
                    output_tokens=None if skipped else tokens[1],
                    cost_usd=None if skipped else cost_usd,
                    cost_source=CostSource.UNKNOWN if cost_usd is None else CostSource.COMPUTED,
                    finish_reason=None if output is None else FinishReason.STOP,
                    warnings=list(warnings),
                    score=score,
                    retried=retried,
                ),
                subject,
            )
        return f"{self.id}-{number}"

    def paced(self) -> None:
        """A provider refused calls: an event about the run, whatever execution was refused."""
        self._add(ProviderPaced(callee="openai", reason="refused", in_flight=2))

    def finish(self, *, duration_ms: float = 1500.0) -> RunView:
        """Record what there is, and end the run."""
        self._record()
        return self.end(duration_ms=duration_ms)

    def end(self, *, duration_ms: float = 1500.0) -> RunView:
        """Seal a run that was left, with the verdict that its read models give."""
        view = self._history.view(self.id)
        finished = RunFinished(
            passed=view.fulfilled,
            exit_code=0 if view.fulfilled else 1,
            gates=[],
            tests={},
            executions={},
            duration_ms=duration_ms,
        )
        stream = f"run/{self.id}"
        self._history.log.submit(
            Append(stream, (new_event(finished),), seal=True),
            Append(
                self._history.journal, (new_event(RunSealed(run=self.id, head=HeadOf(stream))),)
            ),
        ).result()
        return self._history.view(self.id)

    def interrupt(self, reason: str = "SIGINT") -> RunView:
        """Record that the run was stopped."""
        self._add(RunInterrupted(reason=reason))
        return self.leave()

    def abort(self, reason: str) -> RunView:
        """Record that the run could not go on."""
        self._add(RunAborted(reason=reason))
        return self.leave()

    def leave(self) -> RunView:
        """Record what there is, as if the process had been killed."""
        self._record()
        return self._history.view(self.id)

    def _turns(
        self,
        subject: str,
        call: int,
        target: str,
        talk: list[tuple[int, str | None, tuple[tuple[str, Any, Any], ...]]],
    ) -> tuple[int, bool]:
        """Record the tool calls and earlier answers; return the last call, and what follows.

        That is whether the last answer still has to say what the user asked.
        """
        follows = False
        for turn, answer, tools in talk:
            follows = turn > 1
            if tools:
                call += 1
                self._tool_round(subject, call, target, tools, follows=follows)
                follows = False
            if answer is not None:
                call += 1
                self._request(subject, call, target, follows=follows)
                self._respond(subject, call, answer, target, 20.0, 0.0)
        return call, follows

    def _tool_round(
        self,
        subject: str,
        call: int,
        target: str,
        tools: tuple[tuple[str, Any, Any], ...],
        *,
        follows: bool = False,
    ) -> None:
        self._request(subject, call, target, follows=follows)
        calls = [_call(i, name, arguments) for i, (name, arguments, _) in enumerate(tools)]
        self._respond(subject, call, "", target, 20.0, 0.0, calls)
        for i, (name, arguments, response) in enumerate(tools):
            self._add(
                ToolCalled(
                    index=i, call=call, name=name, call_id=f"c{i}", arguments=_text(arguments)
                ),
                subject,
            )
            self._add(
                ToolSimulated(
                    index=i,
                    call_id=f"c{i}",
                    rule="agent" if response is None else "responses[0]",
                    response=response,
                ),
                subject,
            )

    def _request(
        self,
        subject: str,
        call: int,
        model: str,
        *,
        purpose: str = "test",
        attempt: int = 1,
        after: int | None = 0,
        provider: str = "openai",
        follows: bool = False,
        parameters: Mapping[str, float | int | None] = MappingProxyType({}),
    ) -> None:
        asks = after is None or follows
        messages = [Message(Role.USER, "Is it kind?")] if asks else []
        self._add(
            ProviderRequested(
                purpose=purpose,
                provider=provider,
                model=model,
                call=call,
                attempt=attempt,
                fingerprint="f" * 16,
                parameters=parameters,
                after=after,
                messages=messages,
            ),
            subject,
        )

    def _respond(
        self,
        subject: str,
        call: int,
        text: str,
        model: str,
        latency_ms: float,
        cost_usd: float | None,
        tool_calls: list[ToolCall] | None = None,
        *,
        tokens: tuple[int | None, int | None] = (10, 5),
    ) -> None:
        self._add(
            ProviderResponded(
                call=call,
                text=text,
                tool_calls=tool_calls or [],
                finish_reason=FinishReason.TOOL_CALLS if tool_calls else FinishReason.STOP,
                model=model,
                input_tokens=tokens[0],
                output_tokens=tokens[1],
                latency_ms=latency_ms,
                cost_usd=cost_usd,
                cost_source=CostSource.UNKNOWN if cost_usd is None else CostSource.COMPUTED,
                raw=json.dumps({"raw": text}),
            ),
            subject,
        )

    def _add(self, payload: Payload, subject: str | None = None) -> None:
        self._events.append(new_event(payload, subject=subject))

    def _record(self) -> None:
        started = {
            "project": "shop",
            "planned": self._executions,
            "git": GitState(commit="c0ffee" * 6 + "abcd", branch="main", dirty=True),
            "versions": {"kindlm": "0.1.0"},
        } | self._started
        self._history.log.append(
            f"run/{self.id}", [new_event(RunStarted(**started)), *self._events]
        )


@cache
def _file(write: Callable[[History], None]) -> bytes:
    """Return the file of a history, which takes longer to write than to copy."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "kindlm.db")
        history = History(path)
        write(history)
        history.close()
        assert not path.with_name("kindlm.db-wal").exists()
        return path.read_bytes()


class History:
    """A database with recorded runs, whose notes are in `journal`.

    A new one holds what `write` records, each time the same events; nothing without it.
    """

    def __init__(
        self,
        path: Path,
        journal: str = "journal/j",
        write: Callable[[History], None] | None = None,
    ) -> None:
        self.path = path
        self.journal = journal
        if write is not None and not path.exists():
            path.write_bytes(_file(write))
        self.log = EventLog.open(path, projections=PROJECTIONS)
        self._readers: list[Any] = []

    def run(self, run: str = "k3f9x2ab", **started: Any) -> RunWriter:
        """Begin to write a run."""
        return RunWriter(self, run, **started)

    def label(self, run: str, label: str) -> None:
        """Give a run a name, as the journal does."""
        self.log.append(self.journal, [new_event(RunLabelled(run=run, label=label, by="me"))])

    def review(
        self, run: str, execution: int, *, passed: bool, note: str | None = None, by: str = "me"
    ) -> None:
        """Record what a person says of an execution, as the journal does."""
        said = ReviewRecorded(
            run=run,
            execution=execution,
            passed=passed,
            note=note,
            by=by,
        )
        self.log.append(self.journal, [new_event(said)])

    def erase(self, stream: str) -> None:
        """Erase the texts of a stream, as purging does."""
        runs = [stream.removeprefix("run/")] if stream.startswith("run/") else []
        purged = ContentsPurged(texts=1, runs=runs, matching=False, by="me")
        found = find_erasable(self.log, [stream])
        assert erase(self.log, found, lambda _: Append("journal/p", [new_event(purged)])).texts

    def reader(self) -> Any:
        """Return a read-only connection that is closed with the history."""
        reader = self.log.reader()
        self._readers.append(reader)
        return reader

    def view(self, run: str) -> RunView:
        """Return a run as reports read it."""
        assert not self.log.projection_errors()
        return RunView(self.reader(), run)

    def close(self) -> None:
        """Close everything that was opened."""
        for reader in self._readers:
            reader.close()
        self.log.close()


class Make:
    """Short constructors for the parts of a run."""

    SKIPPED = Status.SKIPPED

    @staticmethod
    def planned(name: str = "greets", target: str = "gpt", **fields: Any) -> PlannedTest:
        """Return the identity of a test."""
        return PlannedTest(name=name, target=target, **fields)

    @staticmethod
    def passed(kind: str = "contains", label: str = "contains hi", **fields: Any) -> Any:
        """Return an assertion that passed."""
        outcome = fields.pop("outcome", Outcome.PASSED)
        return _evaluated(kind, label, outcome, {"score": 1.0} | fields)

    @staticmethod
    def failed(
        kind: str = "contains",
        label: str = "contains hi",
        code: str = "CONTAINS_FAILED",
        message: str = 'Expected the output to contain "hi".',
        **fields: Any,
    ) -> Any:
        """Return an assertion that failed; `expected` and `actual` are JSON values."""
        fields["evidence"] = tuple(Evidence(**e) for e in fields.get("evidence", []))
        fields |= {"failure_code": code, "message": message}
        outcome = fields.pop("outcome", Outcome.FAILED)
        written = {"score": 0.0, "line": 42, "duration_ms": 1.5} | fields
        return _evaluated(kind, label, outcome, written)

    @staticmethod
    def provider_failed(code: str = "PROVIDER_RATE_LIMIT", **fields: Any) -> ProviderFailed:
        """Return a failed model call."""
        values = {
            "call": 0,
            "error_code": code,
            "error_number": 202,
            "status": 429,
            "message": "Too many requests.",
            "latency_ms": 5.0,
            "retry_in_ms": 800.0,
        }
        return ProviderFailed(**(values | fields))


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _call(number: int, name: str, arguments: Any) -> ToolCall:
    if isinstance(arguments, dict):
        return ToolCall(f"c{number}", name, arguments)
    return ToolCall(f"c{number}", name, {}, malformed=_text(arguments))


def _evaluated(kind: str, label: str, outcome: Outcome, values: dict[str, Any]) -> Any:
    about = {name: values.pop(name) for name in _ABOUT & values.keys()}
    return AssertionEvaluated(index=0, result=CheckResult(kind, label, outcome, **values), **about)
