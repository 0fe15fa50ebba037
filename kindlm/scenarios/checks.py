"""Checks of a scenario, which record results and never raise."""

from __future__ import annotations

import inspect
import json
import math
import re
import threading
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from kindlm.checks.base import Check, in_turn
from kindlm.checks.limits import Cost, Latency, TokenUsage
from kindlm.checks.output import Ban, Demand, Schema
from kindlm.checks.tool_calls import ToolCall
from kindlm.dataclass import dataclass, replace
from kindlm.errors import SourceLocation
from kindlm.json_schema import SchemaIssue, has_no_rule
from kindlm.outcome import CheckResult, Demands, Outcome
from kindlm.ports import CheckContext, Stage
from kindlm.scenarios.function_thread import FunctionThread, raise_unless_of_a_test
from kindlm.scenarios.under_test import Place
from kindlm.scenarios.verdicts import awaited, raised, returned
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import sentence, shown


def required_text(argument: str, text: str) -> str:
    """Return the text of an argument; raises `TypeError` or `ValueError` if there is none."""
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be text, not {text!r}")
    if not text:
        raise ValueError(f"{argument} is empty")
    return text


_MOST_SHOWN = 60
_MOST = 50
"""The most mismatches of an answer that are listed."""


class RequirementFailed(Exception):  # noqa: N818 - not an error of the test
    """A check of `t.require` does not pass: the scenario ends here."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The answers that a check reads, from the turn `first` to the turn `last`, counted from 1.

    `value` returns the argument for a check that is a function of the test. Labels of a whole
    conversation have no turn, since the number of turns differs from run to run.
    """

    value: Callable[[], Any]
    first: int
    last: int
    is_conversation: bool = True

    def labelled(self, label: str) -> str:
        """Return a label that differs from labels of the same check in other scopes."""
        if self.is_conversation:
            return f"conversation: {label}"
        return f"turn {self.last}: {label}" if self.last > 1 else label

    def of_text(self, check: Demand | Ban) -> Check:
        """Return a check of one text as a check of this scope: of any answer, for a ban of all."""
        return _OfAnswers(check, self.first) if self.is_conversation else check


@dataclass(frozen=True, slots=True)
class _OfAnswers(Check):
    """Passes if a demand on a text holds for one of several answers, or a ban for all of them.

    It stops at an undecided answer: otherwise a slow pattern could take its time limit for each.
    """

    check: Demand | Ban
    first: int

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.check.kind

    @property
    def demands(self) -> Demands:  # type: ignore[override]
        return self.check.demands

    @property
    def only_numbers(self) -> bool:  # type: ignore[override]
        return self.check.only_numbers

    def is_slow(self, transcript: Transcript) -> bool:
        return self.check.is_slow(transcript)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        goes_on = Outcome.PASSED if isinstance(self.check, Ban) else Outcome.FAILED
        first: CheckResult | None = None
        for number, turn in enumerate(transcript.turns, self.first):
            result = self.check.evaluate(replace(transcript, turns=(turn,)), context)
            if result.outcome is not goes_on:
                evidence = tuple(in_turn(each, number, turn.text) for each in result.evidence)
                return replace(result, evidence=evidence)
            first = first or result
        assert first is not None, "a scope has an answer"
        if len(transcript.turns) > 1 and goes_on is Outcome.FAILED:
            return replace(first, message=f"No answer matches. The first: {first.message}")
        return first


class CheckRecorder:
    """Runs and records the checks of a trial by its stage, from its `thread` if it has one."""

    def __init__(self, stage: Stage, thread: FunctionThread | None, place: Place) -> None:
        self._stage = stage
        self._thread = thread
        self.place = place
        self.checked = 0
        self.unfinished: dict[Checks, SourceLocation] = {}
        """The places of `t.check(reply)` and `t.require(reply)` without a check so far."""
        self.refused: SourceLocation | None = None
        """The place of a check in another thread, where it cannot be recorded."""
        self._own_thread = threading.get_ident()

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        """Check the conversation so far; see `ports.Stage`."""
        return self._do(expectation, lambda: self._stage.evaluate(expectation, now=now))

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        """Record a result of the script itself; see `ports.Stage`."""
        return self._do(expectation, lambda: self._stage.conclude(expectation, finding))

    def _do(
        self, expectation: Expectation, work: Callable[[], Future[CheckResult]]
    ) -> Future[CheckResult]:
        async def done() -> Future[CheckResult]:
            return work()

        self.checked += expectation.kind != "score"
        if self._thread is not None:
            return self._thread.wait_for(done())
        if threading.get_ident() != self._own_thread:
            self.refused = expectation.where
            raise RuntimeError("a check of an async scenario was made in another thread")
        return work()


class Checks:
    """Checks of one answer: `t.check(reply).contains("A1").latency(5000)`.

    Checks of `t.check(talk)` and `t.conversation` read all answers of a conversation. kindlm
    records each check with its line in the test file. With `required`, the first check that does
    not pass ends the scenario.
    """

    def __init__(
        self, recorder: CheckRecorder, scope: Scope, *, weight: float = 1.0, required: bool = False
    ) -> None:
        self._recorder = recorder
        self._scope = scope
        self._weight = weight
        self._required = required

    def __bool__(self) -> bool:
        """Raise: kindlm records the results, which may not be known yet."""
        raise TypeError("checks are neither true nor false: t.require(reply).contains(…) stops")

    def equals(self, text: str) -> Self:
        """The answer, or one of several answers, is this text, apart from spaces around both."""
        return self._text(Demand("equals", _not_blank(text)), text)

    def starts_with(self, text: str) -> Self:
        """The answer, or one of several answers, begins with a text, in upper or lower case."""
        return self._text(Demand("starts_with", _not_blank(text)), text)

    def contains_any(self, texts: Iterable[str]) -> Self:
        """The answer, or one of several answers, contains one of the texts, in any case.

        Raises:
            TypeError, ValueError: there are no texts, or one of them is blank.
        """
        if isinstance(texts, str) or not (wanted := list(map(_not_blank, texts))):
            raise TypeError(f"contains_any takes a list of texts, not {texts!r}")
        if isinstance(texts, set | frozenset):
            wanted.sort()  # a set has another order, and the check another label, in each process
        return self._text(Demand("contains_any", wanted), " | ".join(wanted))

    def contains(self, text: str) -> Self:
        """The answer, or one of several answers, contains a text, in upper or lower case."""
        return self._text(Demand("contains", _not_empty(text)), text)

    def not_contains(self, text: str) -> Self:
        """Neither the answer nor any of several answers contains a text, in any case."""
        return self._text(Ban("not_contains", _not_empty(text)), text)

    def matches(self, pattern: str | re.Pattern[str]) -> Self:
        """A regular expression matches in the answer, or in one of several, as by `re.search`."""
        return self._text(Demand("matches", _pattern("matches", pattern)), pattern)

    def not_matches(self, pattern: str | re.Pattern[str]) -> Self:
        """A regular expression does not match in the answer, nor in any of several answers."""
        return self._text(Ban("not_matches", _pattern("not_matches", pattern)), pattern)

    def json_schema(self, schema: Mapping[str, Any] | type[Any]) -> Self:
        """The answer is JSON that fits a JSON Schema, or a pydantic model with its validators.

        Raises:
            TypeError: the argument is not a schema, or the check reads a conversation.
        """
        if self._scope.is_conversation:
            raise TypeError("json_schema is about one answer: write t.check(reply).json_schema(…)")
        if isinstance(schema, Mapping):
            if has_no_rule(schema):
                raise ValueError(f"json_schema got no keyword of JSON Schema: {shown(schema)}")
            name = "the schema"
            return self._check(Schema(dict(schema), name), name)
        if not (inspect.isclass(schema) and issubclass(schema, BaseModel)):
            raise TypeError(f"json_schema takes a mapping or a pydantic model, not {schema!r}")
        name, document = schema.__name__, schema.model_json_schema()
        issues = partial(_issues, schema)
        return self._check(Schema(document, name, issues), name)

    def latency(self, max_ms: float) -> Self:
        """The answer, or several answers together, took at most `max_ms` milliseconds."""
        limit = Latency.model_construct(max_ms=_limit("max_ms", max_ms))
        return self._check(limit, f"{max_ms:g} ms")

    def cost(self, max_usd: float) -> Self:
        """The answer, or several answers together, cost at most `max_usd` US dollars.

        An unknown cost leaves the check undecided.
        """
        limit = Cost.model_construct(max_usd=_limit("max_usd", max_usd))
        return self._check(limit, f"${max_usd:g}")

    def token_usage(self, max_tokens: int) -> Self:
        """The answer, or several answers together, took at most `max_tokens`, input and output.

        An unknown number leaves the check undecided.
        """
        most = _limit("max_tokens", max_tokens)
        return self._check(TokenUsage(max_tokens), f"{most:,} tokens")

    def tool_called(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Self:
        """The agent called a tool for this answer; the call has at least these `arguments`."""
        return self._check(_call(tool, arguments), tool)

    def tool_not_called(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Self:
        """The agent did not call a tool for this answer, or not with these `arguments`."""
        return self._check(_call(tool, arguments, should_not_call=True), tool)

    def custom(self, name: str, function: Callable[[Any], Any]) -> Self:
        """Your own function returns a true value for a good answer.

        Its argument is the reply, the result of `t.converse`, or the messages of `t.conversation`.
        It may be `async`. An `AssertionError` fails the check, and any other error leaves it
        undecided.
        """
        label = self._scope.labelled(required_text("name", name))
        expectation = Expectation("custom", label, **self._about())
        try:
            value = function(self._scope.value())
            result = None if inspect.isawaitable(value) else returned(name, value)
        except BaseException as error:  # noqa: BLE001 - the user's function
            raise_unless_of_a_test(error)
            result = raised(name, error)
        if result is None and self._required:
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError("t.require cannot wait for an async function: use t.check")
        self._recorder.conclude(expectation, result or awaited(name, value))
        if result is not None and self._required:
            self._stop_unless_passed(result)
        return self

    def _text(self, check: Demand | Ban, label: str | re.Pattern[str]) -> Self:
        text = label if isinstance(label, str) else label.pattern
        short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        return self._check(self._scope.of_text(check), short)

    def _check(self, check: Check, label: str) -> Self:
        expectation = check.expected(self._scope.labelled(label), **self._about())
        done = self._recorder.evaluate(expectation, now=self._required)
        if self._required:
            self._stop_unless_passed(done.result())
        return self

    def _stop_unless_passed(self, result: CheckResult) -> None:
        if result.outcome is not Outcome.PASSED:
            raise RequirementFailed(result.message)

    def _about(self) -> dict[str, Any]:
        self._recorder.unfinished.pop(self, None)
        where, since, turn = self._recorder.place(), self._scope.first, self._scope.last
        return {"where": where, "turn": turn, "since": since, "weight": self._weight}


class ConversationChecks(Checks):
    """Checks of the whole conversation so far; `t.check` and `t.judge` take this like a reply."""

    def scope_at(self, recorder: CheckRecorder) -> Scope:
        """Return the answers of the conversation; raises `ValueError` in another trial."""
        if self._recorder is not recorder:
            raise ValueError("this is the conversation of another trial")
        return self._scope


def _issues(model: type[BaseModel], value: Any) -> list[SchemaIssue]:
    """Return the errors of a model's validators for a value that fits the model's schema."""
    try:
        model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        issues = []
        for each in found[:_MOST]:
            parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"])
            issues.append(SchemaIssue(f"${''.join(parts)}", sentence(each["msg"])))
        return issues
    return []


_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def _pattern(name: str, pattern: object) -> str:
    """Return a pattern with its flags, as `(?i)refund`."""
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise TypeError(f"{name} takes a pattern, not {pattern!r}")
    if not text:
        raise ValueError(f"{name} needs a pattern, and this one is empty")
    if "\b" in text:
        raise ValueError(f'the pattern of {name} has a backspace: write r"\\bword\\b"')
    flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
    letters = "".join(letter for letter, flag in _FLAGS.items() if flags & flag)
    return f"(?{letters}){text}" if letters else text


def _call(
    tool: str, arguments: Mapping[str, Any] | None, *, should_not_call: bool = False
) -> ToolCall:
    call: dict[str, Any] = {"tool": required_text("tool", tool), "should_not_call": should_not_call}
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"arguments must be a mapping, not {arguments!r}")
        call["args_match"] = dict(arguments)
        try:
            json.dumps(call)
        except (TypeError, ValueError) as error:
            hint = "leave out what may be anything, or use custom(…)"
            raise TypeError(f"arguments must be JSON: {error}: {hint}") from error
    return ToolCall.model_construct(**call)


def _limit(argument: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} must be a number, not {value!r}")
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{argument} must be a number, at least 0, but is {value}")
    return value


_not_empty = partial(required_text, "the text of a check")
"""Returns the text of a check; raises for an empty text, which every answer contains."""


def _not_blank(text: str) -> str:
    if not _not_empty(text).strip():
        raise ValueError("a check of the text needs more than spaces")
    return text
