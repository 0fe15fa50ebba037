"""The report `junit`, for CI services.

There is a `testsuite` for each suite and target, a `testcase` for each test, and a separate suite
for the gates. The `system-out` of a test lists its repeats. A suite that could not run and an
unfinished run are errors. The sums at the root include failed gates, since some services read
nothing else, but no passed gates.

Elements are those of the schema of Jenkins (`junit-10.xsd` of its xUnit plugin). A `testcase` has
no properties there, so reviews of executions are properties of their `testsuite`. It has the
elements of Maven Surefire for retried tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple, TextIO
from xml.sax.saxutils import escape, quoteattr

from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts
from kindlm.outcome import GateResult, Status
from kindlm.reports.causes import Cause, causes_of
from kindlm.reports.conversation import status_word
from kindlm.reports.facts import show_command, unsettled
from kindlm.reports.figures import comparison
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import Escapes, bounded
from kindlm.wording import count

# Characters that XML 1.0 forbids even as references (section 2.2, Char), and the controls and
# noncharacters that it discourages.
_INVALID = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def escaped(text: str) -> str:
    r"""Return a text with characters that are invalid in XML 1.0 or invisible as `#x1B`.

    `\r\n` becomes `\n`.
    """
    kept = text.replace("\r\n", "\n")
    return _UNSEEN.written(_INVALID.sub(lambda match: _written_out(match[0]), kept))


def _written_out(char: str) -> str:
    return f"#x{ord(char):02X}"


_UNSEEN = Escapes(_written_out)


class XmlWriter:
    """Writes elements directly to a stream, indented by their depth."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._depth = 0
        out.write('<?xml version="1.0" encoding="utf-8"?>')

    @contextmanager
    def element(self, tag: str, attributes: Mapping[str, str]) -> Iterator[None]:
        """Write an element around those that the block writes."""
        self._line(f"<{_start(tag, attributes)}>")
        self._depth += 1
        yield
        self._depth -= 1
        self._line(f"</{tag}>")

    def leaf(self, tag: str, attributes: Mapping[str, str], text: str = "") -> None:
        """Write an element with only text in it."""
        start = _start(tag, attributes)
        self._line(f"<{start}>{escape(escaped(text))}</{tag}>" if text else f"<{start}/>")

    def end(self) -> None:
        """Write the end of the document."""
        self._out.write("\n")

    def _line(self, text: str) -> None:
        self._out.write("\n" + "  " * self._depth + text)


def _start(tag: str, attributes: Mapping[str, str]) -> str:
    values = (f"{name}={quoteattr(escaped(value))}" for name, value in attributes.items())
    return " ".join((tag, *values))


_GATES = "Quality Gates"
_SHARDS = "Shards"
_RUN = "Run"
_TEXT = 20_000
_NOTE = 1_000


class _Part(NamedTuple):
    """An element inside a `testcase`."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


_Case = tuple[str, float, list[_Part]]
"""A `testcase`: its name, its seconds, and what it contains; nothing if it passed."""


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report; it has no options."""
    del options
    xml = XmlWriter(out)
    others = [(name, _counts(cases), cases) for name, cases in _other_suites(view)]
    ran = [suite for suite in view.suites if suite.error_code is None]
    # The sums include no passed gates.
    wrong = (StatusCounts(failed=c.failed, errored=c.errored) for _, c, _ in others)
    counts = sum((*(suite.tests for suite in ran), *wrong), StatusCounts())
    attributes = {
        "name": "KindLM",
        "tests": str(counts.total),
        "failures": str(counts.failed),
        "errors": str(counts.errored),
        "time": _time((view.info.duration_ms or 0.0) / 1000),
    }
    with xml.element("testsuites", attributes):
        for suite in ran:
            for target in view.targets(suite):
                _write_tests(view, suite, target, xml)
        for name, of_cases, cases in others:
            _write_suite(view, xml, name, of_cases, cases)
    xml.end()


def _write_tests(view: RunView, suite: SuiteView, target: str, xml: XmlWriter) -> None:
    """Write the tests of a suite on one target."""

    def tests() -> Iterator[TestView]:
        return (test for test in view.tests(suite.id) if test.target == target)

    statuses, seconds = Counter[str](), 0.0
    for test in tests():
        statuses[test.status.value] += 1
        seconds += _seconds(test)
    if not statuses:
        return
    # CI services merge tests of the same name and suite, so the name includes the target.
    name = suite.full_name
    if len(view.targets(suite)) > 1:
        name = f"{name} [{target}]"
    group, info = view.group or view.shard_of, view.info
    properties = {
        "kindlm.shard": info.shard,
        "kindlm.group": group.name if group else None,
        "kindlm.run": ", ".join(view.runs),
        "kindlm.suite": suite.name,
        "kindlm.target": target,
        "kindlm.path": suite.path,
        "kindlm.configHash": suite.config_hash or "",
        "kindlm.label": info.label or None,
        "kindlm.commit": info.git_commit or None,
    }
    known = [(name, value) for name, value in properties.items() if value is not None]
    warned = bool(view.warnings_of_passed(suite))
    cases = ((test.name, _seconds(test), _parts(view, test, warned=warned)) for test in tests())
    counts = StatusCounts(**statuses)
    _write_suite(view, xml, name, counts, cases, seconds, chain(known, _reviews(view, tests())))


def _write_suite(
    view: RunView,
    xml: XmlWriter,
    name: str,
    counts: StatusCounts,
    cases: Iterable[_Case],
    seconds: float = 0.0,
    properties: Iterable[tuple[str, str]] = (),
) -> None:
    attributes = {
        "name": name,
        "tests": str(counts.total),
        "failures": str(counts.failed),
        "errors": str(counts.errored),
        "skipped": str(counts.untested),
        "time": _time(seconds),
        "timestamp": view.info.started_at[:19],
    }
    with xml.element("testsuite", attributes):
        if properties:
            with xml.element("properties", {}):
                for key, value in properties:
                    xml.leaf("property", {"name": key, "value": value})
        for case, took, parts in cases:
            attributes = {"name": case, "classname": name, "time": _time(took)}
            if not parts:
                xml.leaf("testcase", attributes)
                continue
            with xml.element("testcase", attributes):
                for part in parts:
                    if part.tag.startswith(("flaky", "rerun")):
                        with xml.element(part.tag, part.attributes):
                            xml.leaf("stackTrace", {}, part.text)
                    else:
                        xml.leaf(*part)


def _reviews(view: RunView, tests: Iterable[TestView]) -> Iterator[tuple[str, str]]:
    for test in tests if view.reviewed().executions else ():
        for execution in view.executions(test):
            for review in view.reviews(execution):
                verdict = f"{'pass' if review.passed else 'fail'} by {review.by} at {review.at}"
                note = f": {bounded(review.note, _NOTE)}" if review.note else ""
                yield f"kindlm.review.{execution.id}", f"{verdict}{note}"


def _parts(view: RunView, test: TestView, *, warned: bool) -> list[_Part]:
    """Return the elements of a test; `warned` is whether any execution passed with a warning."""
    is_plain = test.status is Status.PASSED and test.counts.total == 1 and not test.passed_later
    executions = [] if is_plain and not warned else list(view.executions(test))
    if test.status is Status.SKIPPED:
        # The `skip` of a test gives no reason.
        reasons = [text for execution in executions for text in execution.warnings]
        message = reasons[0] if reasons else "" if test.counts.total else "not run"
        return [_Part("skipped", {"message": message} if message else {})]
    # The causes of the other executions have their warnings.
    passed = (execution for execution in executions if execution.status is Status.PASSED)
    warnings = {text: None for execution in passed for text in execution.warnings}
    if is_plain and not warnings:
        return []
    parts = []
    if test.status is not Status.PASSED:
        tag = "failure" if test.status is Status.FAILED else "error"
        causes = [cause for cause in causes_of(view, [test]) if cause.how is test.status]
        parts = [_of_cause(tag, cause) for cause in causes]
        if not parts:
            # Without this element, the test would count as passed.
            message = f"{test.counts.passed} of {test.counts.tested} repeats passed"
            parts = [_Part(tag, {"message": message, "type": test.status.value})]
    # Surefire reports retried failures of a passed test as `flaky…`, of others as `rerun…`.
    kind = "flaky" if test.status is Status.PASSED else "rerun"
    for cause in causes_of(view, [test], retried=True):
        outcome = "Failure" if cause.how is Status.FAILED else "Error"
        parts.append(_of_cause(f"{kind}{outcome}", cause))
    lines = [
        f"repeat {execution.repeat}: {status_word(execution)}  {show_command(execution.id)}"
        for execution in executions
    ]
    lines += [f"warning: {bounded(text, _NOTE)}" for text in warnings]
    if test.passed_later:
        lines.append(f"flaky: passed only on retry in {count(test.passed_later, 'repeat')}")
    elif test.flaky:
        lines.append("flaky: passed in some repeats and failed in others")
    return [*parts, _Part("system-out", {}, "\n".join(lines))]


def _of_cause(tag: str, cause: Cause) -> _Part:
    """Return a cause in full, with its message also in its text: some services only show that."""
    hit = len(cause.executions)
    message = f"{cause.sentence} (×{hit})" if hit > 1 else cause.sentence
    rows = [f"{name}: {text}" for name, text in cause.rows]
    text = "\n".join((cause.sentence, *rows, cause.place(), show_command(cause.executions[0])))
    kind = cause.code or cause.kind or cause.how.value
    return _Part(tag, {"message": message, "type": kind}, text[:_TEXT])


def _counts(cases: list[_Case]) -> StatusCounts:
    tags = Counter(parts[0].tag if parts else None for _, _, parts in cases)
    return StatusCounts(tags[None], tags["failure"], tags["error"], tags["skipped"])


def _other_suites(view: RunView) -> Iterator[tuple[str, list[_Case]]]:
    """Yield the name and the cases of suites that could not run, an incomplete run, and gates."""

    def error(name: str, message: str, code: str, text: str = "") -> _Case:
        return name, 0.0, [_Part("error", {"message": message, "type": code}, text)]

    for suite in view.suites:
        if suite.error_code is not None:
            text = (suite.error or "")[:_TEXT]
            first = text.partition("\n")[0]
            yield suite.name, [error(suite.path, first, suite.error_code, text)]
    if view.group is not None and (lacking := view.group.lacking):
        yield _SHARDS, [error(f"shard {s}", how, "GROUP_INCOMPLETE") for s, how in lacking]
    elif (no_verdict := unsettled(view)) is not None:
        yield _RUN, [error("finished", no_verdict.message, no_verdict.code)]
    suites = [suite for suite in view.suites if suite.gates]
    for suite in suites:
        missing = view.missing_of(suite)
        name = _GATES if len(suites) == 1 else f"{_GATES} [{suite.full_name}]"
        yield name, [(gate.name, 0.0, _parts_of_gate(gate, missing)) for gate in suite.gates]


def _parts_of_gate(gate: GateResult, missing: int) -> list[_Part]:
    if not gate.passed:
        attributes = {"message": comparison(gate), "type": "GATE_FAILED"}
        return [_Part("failure", attributes, gate.message)]
    # A gate that passes on a part of the executions may still fail on all of them.
    so_far = f"so far {comparison(gate)}: {count(missing, 'execution')} did not finish"
    return [_Part("skipped", {"message": so_far})] if missing else []


def _seconds(test: TestView) -> float:
    """Return the total time of all repeats of a test."""
    return (test.latency_ms or 0.0) * test.counts.tested / 1000


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"
