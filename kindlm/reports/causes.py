"""The causes of failed tests: one for all executions that failed in the same way.

Executions share a cause if the same check failed on the same demand, such as a missing tool call,
the same differing arguments, a missing text, or a judge's criterion. The wording of answers does
not matter. All texts of a cause are masked, bounded and safe to print.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kindlm.history.masking import Mask, as_shown
from kindlm.history.rows import AssertionView, AttemptView, ExecutionView, TestView, ToolCallView
from kindlm.history.run_view import RunView
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, Demands, Outcome, Status
from kindlm.reports.commands import place, show_command
from kindlm.reports.conversation import values_of
from kindlm.reports.figures import score_of_limit
from kindlm.reports.untrusted import bounded, json_shown, one_line, visible
from kindlm.wording import count, cut, first_of

_SAID, _CALLED, _VALUE, _SENTENCE = 240, 300, 300, 400
"""The most characters of an answer, of calls, of a value, and of the end of a sentence."""

_NAMED_CALLS, _NAMED, _WARNINGS = 4, 3, 3
"""The most calls, other names, and warnings."""

_QUOTED_LENGTH = 60
"""The answer is not shown if the sentence quotes this many characters of it."""

_MOST_MASKED = 100
"""How many pieces of personal data are masked in the causes of other executions, too."""

_CONTEXT = 80
"""How many characters are shown before the evidence in an answer."""

_ORDER = "TOOL_CALL_ORDER_WRONG"

_ABOUT_TEXT = {
    "CONTAINS_FAILED": "Missing in the answer:",
    "EQUALS_FAILED": "The answer is not",
    "KEYWORD_DENIED": "Forbidden in the answer:",
    "KEYWORD_MISSING": "None of these in the answer:",
    "NOT_CONTAINS_FAILED": "Forbidden in the answer:",
    "NOT_SIMILAR": "The answer is not similar to",
    "PATTERN_NOT_MATCHED": "No match in the answer for the pattern",
    "PATTERN_MATCHED": "The answer matches the forbidden pattern",
    "STARTS_WITH_FAILED": "The answer does not start with",
}
"""Sentences for checks whose messages quote the answer; the expected text follows.

For other checks, the message itself is the sentence.
"""

Row = tuple[str, str]
"""A name and its text."""


@dataclass(slots=True)
class Cause:
    """One cause of failures, and the `executions` that it concerns.

    `how` is errored if no check ran. `kind` is that of the check, `code` its failure code or that
    of the error. `places` are the files of the suites, and the lines if known. `rows` are details,
    such as the expected and the made calls of the first execution, and `trace` is its traceback.
    """

    how: Status
    code: str | None
    sentence: str
    kind: str = ""
    rows: Sequence[Row] = ()
    trace: str | None = None
    executions: list[str] = field(default_factory=list)
    places: dict[tuple[str, int | None], None] = field(default_factory=dict)
    tests: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """The number of tested repeats of each test, by suite, name and target."""

    def place(self, root: Path | None = None) -> str:
        """Return the first place, and the number of others: `kindlm.yaml:41 and 2 more places`.

        In the project at `root`, it is relative to the current folder.
        """
        file, line = next(iter(self.places))
        more = len(self.places) - 1
        first = place(file, line, root)
        return f"{first} and {count(more, 'more place')}" if more else first

    @property
    def whom(self) -> str:
        """The number of tests and repeats, `8 tests, 24 of 24 repeats`, or the name of the test."""
        hit, tested = len({*self.executions}), sum(self.tests.values())
        if len(self.tests) > 1:
            return f"{len(self.tests):,} tests, {hit:,} of {count(tested, 'repeat')}"
        ((_, test, target),) = self.tests
        repeats = "" if tested < 2 else f", {hit:,} of {count(tested, 'repeat')}"
        return f"{one_line(test, 100)} · {one_line(target, 60)}{repeats}"

    @property
    def where(self) -> str | None:
        """The affected tests and targets; None for one test, which `whom` names."""
        if len(self.tests) < 2:
            return None
        tests, targets = (_named(test[part] for test in self.tests) for part in (1, 2))
        return f"{tests} · {targets}"

    @property
    def details(self) -> list[Row]:
        """The rows, the affected tests, the place, and the command that shows an execution."""
        tests = [] if self.where is None else [("tests", self.where)]
        look = show_command(self.executions[0])
        return [*self.rows, *tests, ("at", self.place()), ("look", look)]


def causes_of(view: RunView, tests: Iterable[TestView], *, retried: bool = False) -> list[Cause]:
    """Return the causes of failed tests, the most frequent first.

    With `retried`, return those of failed attempts that were retried; a cause lists an execution
    once for each attempt.
    """
    causes = dict[tuple[Any, ...], Cause]()
    personal_data = dict[str, str]()
    for test in tests:
        name = (test.suite_id, test.name.removeprefix(f"{test.file}::"), test.target)
        tested = test.counts.tested
        for limit in () if retried else test.broken_limits:
            # A limit is for all repeats of a test together, so each of them may have passed.
            cause = causes.setdefault(("limit", limit), Cause(Status.FAILED, None, f"{limit}."))
            cause.places[test.file, test.line] = None
            cause.tests[name] = tested
            ended = (e for e in view.executions(test) if e.status not in (None, Status.SKIPPED))
            cause.executions += [execution.id for execution in ended]
        for execution in view.executions(test):
            wrong = execution.status in (Status.FAILED, Status.ERRORED)
            if not (execution.attempt > 1 if retried else wrong):
                continue
            attempts, mask = as_shown(view.attempts(execution))
            if len(personal_data) < _MOST_MASKED:
                personal_data |= mask.replacements
            failed = attempts[:-1] if retried else attempts[-1:]
            for attempt in failed:
                found = dict[tuple[Any, ...], Cause]()
                for key, line, make in _failures(view, test, attempt):
                    cause = found[key] = causes.get(key) or causes.setdefault(key, make())
                    cause.tests[name] = tested
                    cause.places[test.file, line] = None
                for cause in found.values():
                    cause.executions.append(execution.id)
    if mask_of_all := Mask(personal_data):
        for cause in causes.values():
            cause.sentence = mask_of_all.text(cause.sentence)
            cause.rows = [(name, mask_of_all.text(text)) for name, text in cause.rows]
            cause.trace = mask_of_all.text(cause.trace)
    return sorted(causes.values(), key=lambda cause: -len(cause.executions))


def _failures(
    view: RunView, test: TestView, attempt: AttemptView
) -> Iterator[tuple[tuple[Any, ...], int | None, Callable[[], Cause]]]:
    """Yield for each failure its key, its line in the suite, and a function for its cause.

    Failures with the same key have the same cause.
    """
    execution = attempt.execution
    if execution.error_code is not None:
        key = (execution.error_code, _alike(execution.error or ""))
        yield key, test.line, lambda: _errored(view, execution)
    for assertion in attempt.assertions:
        if assertion.is_wrong:
            demand = demand_of(assertion)
            # Without `expected`, the options of a package's check may differ between places.
            by_line = _is_of_package(assertion) and assertion.expected is None
            line = assertion.line if by_line or assertion.kind == "assert" else None
            what = (assertion.kind, assertion.failure_code, assertion.outcome, assertion.threshold)
            key = (*what, line, *demand.key)
            if assertion.outcome is Outcome.INCONCLUSIVE or assertion.failure_code == _ORDER:
                # Several checks may report alike that calls are unseen, or in the wrong order.
                key = (assertion.outcome, *demand.key)
            yield key, assertion.line, partial(_failed, attempt, assertion, demand)


_CHANGING = re.compile(r': [\[{"].*|[0-9a-f]{8,}|\d+', re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?')


def _alike(message: str) -> str:
    """Return a message without numbers, ids and quoted answers, which differ between tries."""
    return _CHANGING.sub("#", message[:_VALUE])


def _errored(view: RunView, execution: ExecutionView) -> Cause:
    message, tries = execution.error or "", 0
    for call in view.calls(execution):
        # The failed calls in a row at the end of the attempt, without those that an agent made.
        if call.attempt == execution.attempt and call.purpose != "agent":
            tries = tries + 1 if call.status == "failed" else 0
    code = f"{one_line(execution.error_code or '')} ({execution.error_number})"
    rows = [("error", code + (f", after {tries} tries" if tries > 1 else ""))]
    own = own_frame(execution.trace)
    if own is not None and own.split()[0] not in message:
        rows.append(("code", one_line(own)))
    if execution.hint:
        rows.append(("fix", visible(bounded(execution.hint, 500, lines=5))))
    rows += _warnings(execution)
    return Cause(
        Status.ERRORED,
        execution.error_code,
        visible(bounded(message, 1_000, lines=10)) or "It errored without a message.",
        rows=rows,
        trace=execution.trace,
    )


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_OF_LIBRARIES = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python|[/\\]kindlm[/\\]|^<")


def own_frame(trace: str | None) -> str | None:
    """Return the last line of the user's own code in a traceback: `agent.py:41 KeyError: 'id'`."""
    if not trace:
        return None
    frames = [frame for frame in _FRAME.findall(trace) if not _OF_LIBRARIES.search(frame[0])]
    if not frames:
        return None
    file, line = frames[-1]
    here = os.path.relpath(file)
    raised = trace.rstrip().rsplit("\n", 1)[-1].strip()
    return f"{file if here.startswith('..') else here}:{line} {raised}"


def _failed(attempt: AttemptView, assertion: AssertionView, demand: Demand) -> Cause:
    rows = list(demand.rows)
    about_tools = assertion.kind.startswith(("tool", "trajectory", "forbidden", "canary_arguments"))
    # A user's own check may concern tool calls, too.
    about_tools |= bool(attempt.tool_calls) and assertion.kind in ("assert", "custom")
    if about_tools:
        rows.append(("called", _called(assertion, attempt.tool_calls)))
    answer = _answer(assertion, demand, attempt.execution.output)
    if answer is not None and assertion.demands is not Demands.LIMIT:
        rows.append(("said", answer))
    if assertion.reasoning and assertion.kind != "drift":
        rows.append(("judge", visible(bounded(assertion.reasoning, _SAID, lines=3))))
    rows += _warnings(attempt.execution)
    return Cause(
        Status.FAILED if assertion.outcome is Outcome.FAILED else Status.ERRORED,
        assertion.failure_code,
        demand.sentence,
        assertion.kind,
        rows=rows,
        trace=assertion.trace,
    )


def _warnings(execution: ExecutionView) -> list[Row]:
    shown = execution.warnings[:_WARNINGS]
    return [("warning", visible(bounded(text, _VALUE, lines=3))) for text in shown]


def _called(assertion: AssertionView, made: Sequence[ToolCallView]) -> str:
    """Return the call that failed a check, or all calls of the execution."""
    actual = assertion.actual
    is_call = isinstance(actual, dict) and {"tool", "arguments"} <= actual.keys()
    if is_call and assertion.failure_code != _ORDER:
        return _call(actual["tool"], actual["arguments"])
    calls = (_call(call.tool, call.arguments) for call in made)
    return cut(first_of(calls, _NAMED_CALLS), _CALLED) or "no tool"


def _answer(assertion: AssertionView, demand: Demand, text: str | None) -> str | None:
    """Return the beginning of the final answer, or the part with the evidence of the check.

    It is None if the sentence already quotes the answer.
    """
    if not text:
        return None
    quoted = json.dumps(text[:_QUOTED_LENGTH], ensure_ascii=False)
    if (quoted if len(text) <= _QUOTED_LENGTH else quoted[:-1]) in demand.sentence:
        return None
    starts = [found.start for found in assertion.evidence if found.source == "output"]
    start = max(starts[0] - _CONTEXT, 0) if starts else 0
    inside = visible(" ".join(text[start : start + 4 * _SAID].split()))
    return f'"{"…" if start else ""}{cut(inside, _SAID)}"'


class Demand(NamedTuple):
    """The demand of a check and how it failed, in words; equal keys have the same cause."""

    key: tuple[Any, ...]
    sentence: str
    rows: tuple[Row, ...] = ()


def demand_of(assertion: CheckResult) -> Demand:
    """Return the demand of a recorded assertion; older records may lack parts."""
    expected, actual, label = assertion.expected, assertion.actual, assertion.label
    if assertion.outcome is Outcome.INCONCLUSIVE:
        why = _alike(_QUOTED.sub("#", assertion.message or ""))
        return Demand((why,), _message(assertion), _more(assertion))
    tool = expected.get("tool") if isinstance(expected, dict) else None
    scored = None
    if assertion.score is not None and assertion.threshold is not None:
        scored = score_of_limit(assertion.score, assertion.threshold)
    match assertion.failure_code:
        case "TOOL_CALL_MISSING" if isinstance(tool, str):
            return Demand((tool,), f"No call to {one_line(tool, 60)}", _wanted(expected))
        case "TOOL_CALL_UNEXPECTED" if isinstance(expected, dict):
            name = tool if isinstance(tool, str) else label
            wanted = [("expected", f"no {text}") for _, text in _wanted(expected)]
            return Demand((name,), f"Forbidden call to {one_line(name, 60)}", tuple(wanted))
        case "TOOL_CALL_ARGS_MISMATCH" if isinstance(tool, str) and isinstance(actual, dict):
            paths = _paths(expected, actual.get("arguments"))
            words = f"Wrong arguments in the call to {one_line(tool, 60)}"
            named = f": {one_line(', '.join(paths), _SENTENCE)}" if any(paths) else ""
            return Demand((tool, *paths), words + named, _wanted(expected))
        case "TOOL_CALL_ORDER_WRONG" if isinstance(tool, str):
            sentence = _message(assertion).removesuffix(".")
            return Demand((sentence,), sentence, _wanted(expected))
        case str() as code if code in _ABOUT_TEXT and isinstance(expected, str | list):
            words = _ABOUT_TEXT[code if isinstance(expected, str) else "KEYWORD_MISSING"]
            rows = (("score", scored),) if scored and code == "NOT_SIMILAR" else ()
            return Demand((label,), f"{words} {json_shown(expected, _VALUE)}", rows)
        case "PII_DETECTED" if isinstance(actual, list) and actual:
            names = sorted({str(found.get("name")) for found in actual})
            values = [f"{found.get('name')} {found.get('redacted')}" for found in actual]
            in_answer = all(found.get("source", "output") == "output" for found in actual)
            where = "in the answer" if in_answer else "in what the agent wrote"
            shown = one_line(_named(values), _SENTENCE)
            return Demand((*names,), f"Personal data {where}: {shown}")
        case "SCHEMA_INVALID" if isinstance(actual, list):
            paths = tuple(str(found.get("path")) for found in actual)
            return Demand((label, *paths), _message(assertion))
        case "SCORE_BELOW_THRESHOLD" if assertion.threshold is not None:
            # The message is about the parts of one score; other tests may lack other parts.
            sentence = f"The weighted score is below {100 * assertion.threshold:g}"
            return Demand((label,), sentence, (("score", _message(assertion)),))
        case "JUDGE_BELOW_THRESHOLD" if scored is not None:
            sentence = f"The judge's score is too low: {one_line(label, _SENTENCE)}"
            return Demand((label,), sentence, (("score", scored),))
    key: tuple[Any, ...] = (label,)
    if _is_of_package(assertion):
        # Its message begins with its own code.
        key = (label, assertion.message.partition(":")[0], json.dumps(expected))
    return Demand(key, _message(assertion), _more(assertion))


def _is_of_package(assertion: CheckResult) -> bool:
    is_own = assertion.kind in ("custom", "python")
    return assertion.failure_code == "CUSTOM_CHECK_FAILED" and not is_own


def _message(assertion: CheckResult) -> str:
    text = visible(bounded(assertion.message, 1_000, lines=10))
    how = "failed" if assertion.outcome is Outcome.FAILED else "was undecided"
    return text or f"{one_line(assertion.kind)} {one_line(assertion.label)} {how}"


def _more(assertion: CheckResult) -> tuple[Row, ...]:
    has_values = assertion.kind in ("assert", "custom", "score")
    return tuple(values_of(assertion, _VALUE)) if has_values else ()


def _wanted(expected: Any) -> tuple[Row, ...]:
    """Return the row of the expected call, if the suite demands more than the tool's name."""
    if not isinstance(expected, dict) or "tool" not in expected:
        return ()
    parts = {key: part for key, part in expected.items() if key not in ("tool", "shouldNotCall")}
    if not parts:
        return ()
    text = _call(str(expected.get("tool")), parts.pop("argsMatch", None))
    more = (
        f"{key}: {one_line(part) if isinstance(part, str) else json_shown(part, _VALUE)}"
        for key, part in parts.items()
    )
    return (("expected", ", ".join((text, *more))),)


def _paths(expected: dict[str, Any], arguments: Any) -> tuple[str, ...]:
    is_exact = bool(expected.get("argsExact"))
    wanted = expected.get("argsMatch", {} if is_exact else None)
    if wanted is None or not isinstance(arguments, dict):
        return ("not a JSON object",)
    return tuple(found.path for found in mismatches(wanted, arguments, exact=is_exact))


def _call(tool: str, arguments: Any) -> str:
    name = one_line(str(tool), 60)
    return name if arguments is None else f"{name} {json_shown(arguments, _VALUE)}"


def _named(texts: Iterable[str]) -> str:
    """Return the first distinct texts, and the number of the others: `a, b, c, … 2 more`."""
    found = [one_line(text, 100) for text in dict.fromkeys(texts)]
    others = [f"… {len(found) - _NAMED:,} more"] if len(found) > _NAMED else []
    return ", ".join([*found[:_NAMED], *others])
