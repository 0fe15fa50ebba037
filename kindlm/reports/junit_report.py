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


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report; it has no options."""
    del options
    xml = XmlWriter(out)
    other_suites = list(_other_suites(view))
    tags = Counter(case.tag for _, cases in other_suites for case in cases)
    others = StatusCounts(failed=tags["failure"], errored=tags["error"])
    ran = [suite for suite in view.suites if suite.error_code is None]
    counts = sum((suite.tests for suite in ran), others)
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
                _write_suite(view, suite, target, xml)
        for name, cases in other_suites:
            _write_cases(view, name, cases, xml)
    xml.end()


def _write_suite(view: RunView, suite: SuiteView, target: str, xml: XmlWriter) -> None:
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
    shard, group, info = view.shard, view.group, view.info
    properties = {
        "kindlm.shard": shard.name(shard.index) if shard else None,
        "kindlm.group": group.name if group else shard.group if shard else None,
        "kindlm.run": ", ".join(view.runs),
        "kindlm.suite": suite.name,
        "kindlm.target": target,
        "kindlm.path": suite.path,
        "kindlm.configHash": suite.config_hash or "",
        "kindlm.label": info.label or None,
        "kindlm.commit": info.git_commit or None,
    }
    known = [(name, value) for name, value in properties.items() if value is not None]
    with xml.element("testsuite", _suite_attributes(view, name, StatusCounts(**statuses), seconds)):
        with xml.element("properties", {}):
            for key, value in (*known, *_reviews(view, tests())):
                xml.leaf("property", {"name": key, "value": value})
        any_warnings = bool(view.warnings_of_passed(suite))
        for test in tests():
            _write_test(view, test, name, xml, any_warnings=any_warnings)


def _reviews(view: RunView, tests: Iterable[TestView]) -> Iterator[tuple[str, str]]:
    for test in tests if view.reviewed().executions else ():
        for execution in view.executions(test):
            for review in view.reviews(execution):
                verdict = f"{'pass' if review.passed else 'fail'} by {review.by} at {review.at}"
                note = f": {bounded(review.note, _NOTE)}" if review.note else ""
                yield f"kindlm.review.{execution.id}", f"{verdict}{note}"


def _write_test(
    view: RunView, test: TestView, classname: str, xml: XmlWriter, *, any_warnings: bool
) -> None:
    """Write a test; `any_warnings` is whether any execution of its suite passed with a warning."""
    attributes = {"name": test.name, "classname": classname, "time": _time(_seconds(test))}
    is_plain = test.status is Status.PASSED and test.counts.total == 1 and not test.passed_later
    executions = [] if is_plain and not any_warnings else list(view.executions(test))
    # The causes of the other executions have their warnings.
    passed = (execution for execution in executions if execution.status is Status.PASSED)
    warnings = {text: None for execution in passed for text in execution.warnings}
    if is_plain and not warnings:
        xml.leaf("testcase", attributes)
        return
    with xml.element("testcase", attributes):
        if test.status is Status.SKIPPED:
            message = _why_skipped(view, test)
            xml.leaf("skipped", {"message": message} if message else {})
            return
        if test.status in (Status.FAILED, Status.ERRORED):
            tag = "failure" if test.status is Status.FAILED else "error"
            causes = [cause for cause in causes_of(view, [test]) if cause.how is test.status]
            for cause in causes:
                xml.leaf(tag, _cause_attributes(cause), _cause_text(cause))
            if not causes:
                # Without this element, the test would count as passed.
                message = f"{test.counts.passed} of {test.counts.tested} repeats passed"
                xml.leaf(tag, {"message": message, "type": test.status.value})
        # Surefire reports retried failures of a passed test as `flaky…`, of others as `rerun…`.
        kind = "flaky" if test.status is Status.PASSED else "rerun"
        for cause in causes_of(view, [test], retried=True):
            outcome = "Failure" if cause.how is Status.FAILED else "Error"
            with xml.element(f"{kind}{outcome}", _cause_attributes(cause)):
                xml.leaf("stackTrace", {}, _cause_text(cause))
        lines = [
            f"repeat {execution.repeat}: {status_word(execution)}  {show_command(execution.id)}"
            for execution in executions
        ]
        lines += [f"warning: {bounded(text, _NOTE)}" for text in warnings]
        if test.passed_later:
            lines.append(f"flaky: passed only on retry in {count(test.passed_later, 'repeat')}")
        elif test.flaky:
            lines.append("flaky: passed in some repeats and failed in others")
        xml.leaf("system-out", {}, "\n".join(lines))


def _why_skipped(view: RunView, test: TestView) -> str | None:
    """Return why a test was not run; None if its `skip` says so."""
    if not test.counts.total:
        return "not run"
    for execution in view.executions(test):
        if execution.warnings:
            return execution.warnings[0]
    return None


def _cause_text(cause: Cause) -> str:
    """Return a cause in full, with its message, since some services only show this text."""
    rows = [f"{name}: {text}" for name, text in cause.rows]
    look = show_command(cause.executions[0])
    return "\n".join((cause.sentence, *rows, cause.place(), look))[:_TEXT]


def _cause_attributes(cause: Cause) -> dict[str, str]:
    hit = len(cause.executions)
    message = f"{cause.sentence} (×{hit})" if hit > 1 else cause.sentence
    return {"message": message, "type": cause.code or cause.kind or cause.how.value}


class _Case(NamedTuple):
    """A `testcase` for something else than a test; the element `tag` is None if it passed."""

    name: str
    tag: str | None = None
    message: str = ""
    type: str = ""
    text: str = ""


def _other_suites(view: RunView) -> Iterator[tuple[str, list[_Case]]]:
    """Yield the name and the cases of suites that could not run, an incomplete run, and gates."""
    for suite in view.suites:
        if suite.error_code is not None:
            text = (suite.error or "")[:_TEXT]
            first = text.partition("\n")[0]
            yield suite.name, [_Case(suite.path, "error", first, suite.error_code, text)]
    if view.group is not None and (lacking := view.group.lacking):
        kind = "GROUP_INCOMPLETE"
        yield _SHARDS, [_Case(f"shard {shard}", "error", how, kind) for shard, how in lacking]
    elif (no_verdict := unsettled(view)) is not None:
        yield _RUN, [_Case("finished", "error", no_verdict.message, no_verdict.code)]
    suites = [suite for suite in view.suites if suite.gates]
    for suite in suites:
        missing = view.missing_of(suite)
        name = _GATES if len(suites) == 1 else f"{_GATES} [{suite.full_name}]"
        yield name, [_gate_case(gate, missing) for gate in suite.gates]


def _gate_case(gate: GateResult, missing: int) -> _Case:
    if not gate.passed:
        return _Case(gate.name, "failure", comparison(gate), "GATE_FAILED", gate.message)
    if not missing:
        return _Case(gate.name)
    # A gate that passes on a part of the executions may still fail on all of them.
    so_far = f"so far {comparison(gate)}: {count(missing, 'execution')} did not finish"
    return _Case(gate.name, "skipped", so_far)


def _write_cases(view: RunView, name: str, cases: list[_Case], xml: XmlWriter) -> None:
    tags = Counter(case.tag for case in cases)
    counts = StatusCounts(tags[None], tags["failure"], tags["error"], tags["skipped"])
    with xml.element("testsuite", _suite_attributes(view, name, counts, 0.0)):
        for case in cases:
            attributes = {"name": case.name, "classname": name, "time": _time(0)}
            if case.tag is None:
                xml.leaf("testcase", attributes)
                continue
            with xml.element("testcase", attributes):
                kind = {"type": case.type} if case.type else {}
                xml.leaf(case.tag, {"message": case.message, **kind}, case.text)


def _suite_attributes(
    view: RunView, name: str, counts: StatusCounts, seconds: float
) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(counts.total),
        "failures": str(counts.failed),
        "errors": str(counts.errored),
        "skipped": str(counts.untested),
        "time": _time(seconds),
        "timestamp": view.info.started_at[:19],
    }


def _seconds(test: TestView) -> float:
    """Return the total time of all repeats of a test."""
    return (test.latency_ms or 0.0) * test.counts.tested / 1000


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"
