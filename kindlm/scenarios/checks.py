"""Checks of a scenario, which record results and never raise; and the verdict of a judge."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import threading
import traceback
from asyncio import Future
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from pydantic import BaseModel, ValidationError

from kindlm.checks import base
from kindlm.checks.base import Check
from kindlm.checks.limits import Cost, Latency, TokenUsage
from kindlm.checks.output import (
    Contains,
    ContainsAny,
    Equals,
    Matches,
    NotContains,
    NotMatches,
    StartsWith,
)
from kindlm.checks.output_schema import Schema
from kindlm.checks.tool_calls import ToolCall
from kindlm.dataclass import dataclass, replace
from kindlm.errors import SourceLocation
from kindlm.json_schema import SchemaIssue, has_no_rule
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import Stage
from kindlm.scenarios.function_thread import FunctionThread, raise_unless_of_a_test
from kindlm.scenarios.scope import Scope
from kindlm.scenarios.under_test import Place
from kindlm.suggestions import hint_for
from kindlm.suite import Expectation
from kindlm.wording import sentence, shown

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said.

    Attributes:
        passed: whether it is as expected; None if the judge could not be asked, or gave no answer.
        score: from 0 to 1; None if nothing was decided.
        reasoning: why, in the judge's words.
    """

    passed: bool | None
    score: float | None
    reasoning: str

    def __bool__(self) -> bool:
        """Return whether it is as expected; what was not decided is not."""
        return self.passed is True


def holds(found: object) -> bool | None:
    """Return whether a value is true; None if it is a verdict, or some, that decided nothing.

    Raises:
        TypeError: for what is always true, such as a generator that never ran.
    """
    several = found if isinstance(found, tuple | list) else ()
    if isinstance(found, _ALWAYS_TRUE) or inspect.isroutine(found):
        if inspect.iscoroutine(found):
            found.close()  # or Python warns of it, too
        raise TypeError(f"a {type(found).__name__} is always true: none of it ran")
    if any(isinstance(each, Awaitable) for each in several):
        raise TypeError(f"a {type(found).__name__} is always true: await what it holds")
    if isinstance(found, Verdict):
        return found.passed
    if several and all(isinstance(each, Verdict) for each in several):
        decided = [each.passed for each in several]
        return False if False in decided else None if None in decided else True
    return bool(found)


_ALWAYS_TRUE = (Awaitable, Iterator, AsyncIterator)

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""Blocks until a coroutine is done."""


class Pending(Generic[V]):
    """A check that a judge was asked for: `await` it for the verdict, or leave it.

    It goes on by itself, and is recorded before the scenario ends, whether anybody waits or not.
    """

    def __init__(
        self,
        asked: Sequence[Future[CheckResult]],
        read: Callable[[Sequence[CheckResult]], V],
        wait: Wait | None = None,
    ) -> None:
        self._asked = asked
        self._read = read
        self._wait = wait

    def __await__(self) -> Generator[Any, None, V]:
        """Wait for the verdict."""
        return self._results().__await__()

    def __bool__(self) -> bool:
        """Refuse: nothing is known yet."""
        raise TypeError("this verdict was not awaited: write await t.judge(…), or (…).wait()")

    def wait(self) -> V:
        """Wait for the verdict in a scenario that is no `async` function.

        Raises:
            RuntimeError: the scenario is an `async` one.
        """
        if self._wait is None:
            raise RuntimeError("an async scenario awaits it: await t.judge(...)")
        found: V = self._wait(self._results())
        return found

    async def _results(self) -> V:
        # Shielded: who stops waiting, as in a timeout of the test, cancels no check.
        return self._read([await asyncio.shield(each) for each in self._asked])


def verdict_of(result: CheckResult) -> Verdict:
    """Return a result as a test sees it."""
    decided = {Outcome.PASSED: True, Outcome.FAILED: False}.get(result.outcome)
    return Verdict(decided, result.score, result.reasoning or result.message)


def asked_for(argument: str, text: str) -> str:
    """Return a text that says what is asked for; raise `TypeError` or `ValueError` for none."""
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be a text, not {text!r}")
    if not text:
        raise ValueError(f"{argument} is empty")
    return text


_MOST_SHOWN = 60
_MOST = 50
"""How many mismatches of an answer are listed."""


class RequirementFailed(Exception):  # noqa: N818 - no error of the test
    """Something that `t.require` asked for does not hold: the scenario ends here."""


class Desk:
    """Hands in the checks of a trial at its stage, from its `thread` if it has one; counts them.

    See `ports.Stage`.
    """

    def __init__(self, stage: Stage, thread: FunctionThread | None) -> None:
        self._stage = stage
        self._thread = thread
        self.checked = 0
        self.begun: dict[Checks, SourceLocation] = {}
        """The places of `t.check(reply)` and `t.require(reply)` that no check followed yet."""
        self.refused: SourceLocation | None = None
        """The place of a check that was made in another thread, where it cannot be recorded."""
        self._made_in = threading.get_ident()

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        """Check what was said until now."""
        self._count(expectation)
        return self._do(lambda: self._stage.evaluate(expectation, now=now))

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        """Record what the script itself found out."""
        self._count(expectation)
        return self._do(lambda: self._stage.conclude(expectation, finding))

    def record_score(self, name: str, value: float, where: SourceLocation) -> None:
        """Record a number from 0 to 1."""
        self._do(lambda: self._stage.record_score(name, value, where))

    def _do(self, work: Callable[[], V]) -> V:
        return work() if self._thread is None else self._thread.do(work)

    def _count(self, expectation: Expectation) -> None:
        self.checked += 1
        if self._thread is None and threading.get_ident() != self._made_in:
            self.refused = expectation.where
            raise RuntimeError("a check of an async scenario was made in another thread")


class Checks:
    """Checks of one answer, one after the other: `t.check(reply).contains("A1").latency(5000)`.

    They may also be of all answers of a conversation: `t.check(talk)`, `t.conversation`. Each is
    recorded with its place in the test file. With `required`, the first one that does not pass ends
    the scenario.
    """

    def __init__(
        self, desk: Desk, scope: Scope, place: Place, *, weight: float = 1.0, required: bool = False
    ) -> None:
        self._desk = desk
        self._scope = scope
        self._place = place
        self._weight = weight
        self._required = required

    def __bool__(self) -> bool:
        """Refuse: what they found is recorded, and may not be known yet."""
        raise TypeError("checks are neither true nor false: t.require(reply).contains(…) stops")

    if not TYPE_CHECKING:  # type checkers know the names

        def __getattr__(self, name: str) -> NoReturn:
            checks = [each for each in dir(type(self)) if not each.startswith("_")]
            hint = hint_for(name, checks, "Checks are")
            raise AttributeError(f'There is no check "{name}". {hint}', name=name)

    def equals(self, text: str) -> Self:
        """The answer is a text, apart from spaces around both; of several answers, one is."""
        return self._check(self._scope.of_text(Equals(_solid(text))), _short(text))

    def starts_with(self, text: str) -> Self:
        """The answer begins with a text, whatever its case; of several answers, one does."""
        return self._check(self._scope.of_text(StartsWith(_solid(text))), _short(text))

    def contains_any(self, texts: Iterable[str]) -> Self:
        """The answer contains one of some texts, whatever its case; of several answers, one does.

        Raises:
            TypeError, ValueError: the text is missing, or one of them is empty.
        """
        if isinstance(texts, str) or not (wanted := tuple(map(_solid, texts))):
            raise TypeError(f"contains_any takes a list of texts, not {texts!r}")
        return self._check(self._scope.of_text(ContainsAny(wanted)), _short(" | ".join(wanted)))

    def contains(self, text: str) -> Self:
        """The answer contains a text, whatever its case; of several answers, one does."""
        return self._check(self._scope.of_text(Contains(_given(text))), _short(text))

    def not_contains(self, text: str) -> Self:
        """The answer does not contain a text, whatever its case; of several answers, none does."""
        check = self._scope.of_text(NotContains(_given(text)), of_all=True)
        return self._check(check, _short(text))

    def matches(self, pattern: str | re.Pattern[str]) -> Self:
        """A regular expression matches somewhere in the answer, or in one of several answers.

        It is found as `re.search` would find it.
        """
        written, letters = _pattern("matches", pattern)
        return self._check(self._scope.of_text(Matches(written, letters)), _short(written))

    def not_matches(self, pattern: str | re.Pattern[str]) -> Self:
        """A regular expression matches nowhere in the answer, or in any of several answers."""
        written, letters = _pattern("not_matches", pattern)
        check = self._scope.of_text(NotMatches(written, letters), of_all=True)
        return self._check(check, _short(written))

    def json_schema(self, schema: Mapping[str, Any] | type[Any]) -> Self:
        """The answer is JSON that fits a JSON Schema, or a pydantic model with its validators.

        Raises:
            TypeError: it is no schema, or this is about a conversation.
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
        """The answer took at most so many milliseconds; several answers took them together."""
        limit = Latency.model_construct(max_ms=_limit("max_ms", max_ms))
        return self._check(limit, f"{max_ms:g} ms")

    def cost(self, max_usd: float) -> Self:
        """The answer cost at most so many US dollars; several answers cost them together.

        It is undecided if that is not known.
        """
        limit = Cost.model_construct(max_usd=_limit("max_usd", max_usd))
        return self._check(limit, f"${max_usd:g}")

    def token_usage(self, max_tokens: int) -> Self:
        """The answer took at most so many tokens, in and out; several answers took them together.

        It is undecided if they are not known.
        """
        most = _limit("max_tokens", max_tokens)
        return self._check(TokenUsage(max_tokens), f"{most:,} tokens")

    def tool_called(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Self:
        """The agent called a tool for this answer, with `arguments` among those of the call."""
        return self._check(_call(tool, arguments), tool)

    def tool_not_called(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Self:
        """The agent did not call a tool for this answer, or not with these `arguments`."""
        return self._check(_call(tool, arguments, should_not_call=True), tool)

    def custom(self, name: str, function: Callable[[Any], Any]) -> Self:
        """A function of your own says whether the answer is good.

        It is given what is checked: the reply, what `t.converse` returned, or the messages of
        `t.conversation`. It may be `async`. What it returns is taken as true or false; an
        `AssertionError` fails the check, and any other error leaves it undecided.
        """
        label = self._scope.labelled(asked_for("name", name))
        expectation = Expectation("custom", label, **self._about())
        try:
            found = function(self._scope.value())
            is_so = None if inspect.isawaitable(found) else _decided(name, found)
        except BaseException as error:  # noqa: BLE001 - the user's function
            raise_unless_of_a_test(error)
            return self._concluded(expectation, _raised(name, error))
        if is_so is not None:
            return self._concluded(expectation, is_so)
        if self._required:
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("t.require cannot wait for an async function: use t.check")
        self._desk.conclude(expectation, _awaited(name, found))
        return self

    def _check(self, check: Check, label: str) -> Self:
        expectation = check.expected(self._scope.labelled(label), **self._about())
        done = self._desk.evaluate(expectation, now=self._required)
        if self._required:
            self._stop_unless_passed(done.result())
        return self

    def _concluded(self, expectation: Expectation, result: CheckResult) -> Self:
        self._desk.conclude(expectation, result)
        if self._required:
            self._stop_unless_passed(result)
        return self

    def _stop_unless_passed(self, result: CheckResult) -> None:
        if result.outcome is not Outcome.PASSED:
            raise RequirementFailed(result.message)

    def _about(self) -> dict[str, Any]:
        self._desk.begun.pop(self, None)
        since, turn = self._scope.first, self._scope.last
        return {"where": self._place(), "turn": turn, "since": since, "weight": self._weight}


class ConversationChecks(Checks):
    """Checks of the whole conversation so far; `t.check` and `t.judge` take it like a reply."""

    def scope_at(self, desk: Desk) -> Scope:
        """Return what they are of; raise `ValueError` if that is in another trial."""
        if self._desk is not desk:
            raise ValueError("this is the conversation of another trial")
        return self._scope


def verdict(kind: str, label: str, *, passed: bool | None, message: str = "") -> CheckResult:
    """Return the result of a check that the test itself decided; None means undecided."""
    codes = {
        "assert": "ASSERT_FAILED",
        "custom": "CUSTOM_CHECK_FAILED",
        "checked": "NOTHING_CHECKED",
    }
    found = base.passed() if passed else base.failed(codes[kind], message)
    if passed is None:
        found = base.undecided("The judge decided nothing.")
    return replace(found, kind=kind, label=label)


def _issues(model: type[BaseModel], value: Any) -> list[SchemaIssue]:
    """Return the errors of a model's validators for a value that fits its schema."""
    try:
        model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [SchemaIssue(_path(each["loc"]), sentence(each["msg"])) for each in found[:_MOST]]
    return []


def _path(place: Iterable[int | str]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"${''.join(parts)}"


_FLAGS = (
    ("a", re.ASCII),
    ("i", re.IGNORECASE),
    ("m", re.MULTILINE),
    ("s", re.DOTALL),
    ("x", re.VERBOSE),
)


def _pattern(name: str, pattern: object) -> tuple[str, str]:
    """Return what is written as a pattern, and the letters of its flags."""
    written = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(written, str):
        raise TypeError(f"{name} takes a pattern, not {pattern!r}")
    if not written:
        raise ValueError(f"{name} needs a pattern, and this one is empty")
    flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
    return written, "".join(letter for letter, flag in _FLAGS if flags & flag)


def _call(
    tool: str, arguments: Mapping[str, Any] | None, *, should_not_call: bool = False
) -> ToolCall:
    name, wanted = asked_for("tool", tool), None
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"arguments must be a mapping, not {arguments!r}")
        wanted = dict(arguments)
        try:
            json.dumps(wanted)
        except (TypeError, ValueError) as error:
            hint = "leave out what may be anything, or use custom(…)"
            raise TypeError(f"arguments must be JSON: {error}: {hint}") from error
    return ToolCall.model_construct(tool=name, args_match=wanted, should_not_call=should_not_call)


def _limit(argument: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} must be a number, not {value!r}")
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{argument} must be a number, at least 0, but is {value}")
    return value


def _given(text: str) -> str:
    """Return the text of a check; raise for none, which every answer contains."""
    if not isinstance(text, str):
        raise TypeError(f"a check of the text takes a text, not {text!r}")
    if not text:
        raise ValueError("a check of the text needs a text, and this one is empty")
    return text


def _solid(text: str) -> str:
    if not _given(text).strip():
        raise ValueError("a check of the text needs more than spaces")
    return text


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _decided(name: str, found: object) -> CheckResult:
    message = f"The check {shown(name)} returned {shown(repr(found))}"
    return verdict("custom", name, passed=holds(found), message=message)


async def _awaited(name: str, finding: Awaitable[Any]) -> CheckResult:
    try:
        return _decided(name, await finding)
    except BaseException as error:  # noqa: BLE001 - the user's function
        raise_unless_of_a_test(error)
        return _raised(name, error)


def _raised(name: str, error: BaseException) -> CheckResult:
    if isinstance(error, AssertionError):
        message = str(error) or f"The check {shown(name)} failed"
        return verdict("custom", name, passed=False, message=message)
    message = f"The check raised {type(error).__name__}: {shown(str(error))}"
    found = base.undecided(message, trace="".join(traceback.format_exception(error)))
    return replace(found, kind="custom", label=name)
