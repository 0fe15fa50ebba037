"""The report `junit`, for CI services.

A `testsuite` for each suite and target, a `testcase` for each test; its repeats are listed in the
`system-out`. The gates are a separate suite. A suite that could not run is an error, and so is an
unfinished run, of which everything that ran may have passed. The sums at the root count all
failures and errors, gates included, since some readers look at nothing else. Passed gates do not
count there.

Reviews of executions are properties of their `testsuite`: the schema of Jenkins (`junit-10.xsd` of
its xUnit plugin) has no properties, file or line of a `testcase`. It has Maven Surefire's elements
for repeated tests, which are used here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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

# What XML 1.0 has no way to write, not even as a character reference (section 2.2, Char), and the
# controls and noncharacters that it discourages.
_INVALID = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def escaped(text: str) -> str:
    r"""Return a text with the characters that XML 1.0 cannot hold written out, such as `#x1B`.

    So are invisible ones, such as marks that change the direction of a text.
    `\r\n` is a line break.
    """
    kept = text.replace("\r\n", "\n")
    return _UNSEEN.written(_INVALID.sub(lambda match: _written_out(match[0]), kept))


def _written_out(char: str) -> str:
    return f"#x{ord(char):02X}"


_UNSEEN = Escapes(_written_out)


class XmlWriter:
    """Writes elements one after the other; nothing is kept but how deep it is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._depth = 0
        out.write('<?xml version="1.0" encoding="utf-8"?>')

    @contextmanager
    def element(self, tag: str, attributes: Mapping[str, str]) -> Iterator[None]:
        """Write an element around what is written inside the block."""
        self._line(f"<{_start(tag, attributes)}>")
        self._depth += 1
        yield
        self._depth -= 1
        self._line(f"</{tag}>")

    def leaf(self, tag: str, attributes: Mapping[str, str], text: str = "") -> None:
        """Write an element with nothing but text in it."""
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


@dataclass(slots=True)
class _Group:
    """The tests of a suite on one target: what a `testsuite` has to say before its first test."""

    suite: SuiteView
    target: str
    name: str
    counts: StatusCounts = field(default_factory=StatusCounts)
    seconds: float = 0.0


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report; it has no options."""
    del options
    xml = XmlWriter(out)
    groups = [group for suite in view.suites for group in _groups(view, suite)]
    beside = list(_beside(view))
    tags = Counter(case.tag for _, cases in beside for case in cases)
    others = StatusCounts(failed=tags["failure"], errored=tags["error"])
    counts = sum((group.counts for group in groups), others)
    seconds = (view.info.duration_ms or 0.0) / 1000 or sum(group.seconds for group in groups)
    attributes = {
        "name": "KindLM",
        "tests": str(counts.total),
        "failures": str(counts.failed),
        "errors": str(counts.errored),
        "time": _time(seconds),
    }
    with xml.element("testsuites", attributes):
        for group in groups:
            _write_group(view, group, xml)
        for name, cases in beside:
            _write_cases(view, name, cases, xml)
    xml.end()


def _groups(view: RunView, suite: SuiteView) -> Iterator[_Group]:
    """Yield a group for each target of which the run selected something."""
    targets = view.targets(suite)
    # A suite with one target goes by its own name; else CI services would take the same test on
    # two targets for one. So they would in two suites of one name.
    name = suite.full_name
    groups = {
        target: _Group(suite, target, name if len(targets) == 1 else f"{name} [{target}]")
        for target in targets
    }
    for test in view.tests(suite.id):
        group = groups[test.target]
        group.counts += StatusCounts(**{test.status.value: 1})
        group.seconds += _seconds(test)
    return (group for group in groups.values() if group.counts.total)


def _write_group(view: RunView, group: _Group, xml: XmlWriter) -> None:
    with xml.element("testsuite", _suite_attributes(view, group.name, group.counts, group.seconds)):
        shard = view.shard
        with xml.element("properties", {}):
            for name, value in (
                *((("kindlm.shard", shard.name(shard.index)),) if shard else ()),
                *((("kindlm.group", shard.group),) if shard and shard.group else ()),
                *((("kindlm.group", view.group.name),) if view.group else ()),
                ("kindlm.run", ", ".join(view.runs)),
                ("kindlm.suite", group.suite.name),
                ("kindlm.target", group.target),
                ("kindlm.path", group.suite.path),
                ("kindlm.configHash", group.suite.config_hash or ""),
                *((("kindlm.label", view.info.label),) if view.info.label else ()),
                *((("kindlm.commit", view.info.git_commit),) if view.info.git_commit else ()),
                *_reviews(view, group),
            ):
                xml.leaf("property", {"name": name, "value": value})
        for test in view.tests(group.suite.id):
            if test.target == group.target:
                _write_test(view, test, group.name, xml)


def _reviews(view: RunView, group: _Group) -> Iterator[tuple[str, str]]:
    """Yield what people said of the executions of a group, as names and values of properties."""
    if not view.reviewed().executions:
        return
    for test in view.tests(group.suite.id):
        if test.target != group.target:
            continue
        for execution in view.executions(test):
            for review in view.reviews(execution):
                said = f"{'pass' if review.passed else 'fail'} by {review.by} at {review.at}"
                note = f": {bounded(review.note, _NOTE)}" if review.note else ""
                yield f"kindlm.review.{execution.id}", f"{said}{note}"


def _write_test(view: RunView, test: TestView, classname: str, xml: XmlWriter) -> None:
    attributes = {"name": test.name, "classname": classname, "time": _time(_seconds(test))}
    if test.status is Status.PASSED and test.counts.total == 1 and not test.passed_later:
        xml.leaf("testcase", attributes)
        return
    with xml.element("testcase", attributes):
        if test.status is Status.SKIPPED:
            message = _why_skipped(view, test)
            xml.leaf("skipped", {"message": message} if message else {})
            return
        if test.status in (Status.FAILED, Status.ERRORED):
            tag = "failure" if test.status is Status.FAILED else "error"
            told = [cause for cause in causes_of(view, [test]) if cause.how is test.status]
            for cause in told:
                xml.leaf(tag, _cause_attributes(cause), _cause_text(cause))
            if not told:
                # Without this element, readers would take the test for one that passed.
                message = f"{test.counts.passed} of {test.counts.tested} repeats passed"
                xml.leaf(tag, {"message": message, "type": test.status.value})
        # What went wrong before executions were run again, in the elements of Surefire. They are
        # `flaky…` in a test that passes after all, else `rerun…`; none of them fails a test.
        kind = "flaky" if test.status is Status.PASSED else "rerun"
        for cause in causes_of(view, [test], retried=True):
            outcome = "Failure" if cause.how is Status.FAILED else "Error"
            with xml.element(f"{kind}{outcome}", _cause_attributes(cause)):
                xml.leaf("stackTrace", {}, _cause_text(cause))
        # How each repeat came out, and where to read more.
        lines = [
            f"repeat {execution.repeat}: {status_word(execution)}  {show_command(execution.id)}"
            for execution in view.executions(test)
        ]
        if test.passed_later:
            again = count(test.passed_later, "repeat")
            lines.append(f"flaky: passed only when run again in {again}")
        elif test.flaky:
            lines.append("flaky: passed in some repeats and failed in others")
        xml.leaf("system-out", {}, "\n".join(lines))


def _why_skipped(view: RunView, test: TestView) -> str | None:
    """Return why nothing of a test was run; None if the test itself says so."""
    if not test.counts.total:
        return "not run"
    for execution in view.executions(test):
        if execution.warnings:
            return execution.warnings[0]
    return None


def _cause_text(cause: Cause) -> str:
    """Return all that is known of a cause: some readers show this alone, without its message."""
    rows = [f"{name}: {text}" for name, text in cause.rows]
    look = show_command(cause.executions[0])
    return "\n".join((cause.sentence, *rows, cause.place, look))[:_TEXT]


def _cause_attributes(cause: Cause) -> dict[str, str]:
    hit = len(cause.executions)
    message = f"{cause.sentence} (×{hit})" if hit > 1 else cause.sentence
    return {"message": message, "type": cause.code or cause.kind or cause.how.value}


class _Case(NamedTuple):
    """A test case that is no test; the element `tag` says what is wrong, None: nothing is."""

    name: str
    tag: str | None = None
    message: str = ""
    type: str = ""
    text: str = ""


def _beside(view: RunView) -> Iterator[tuple[str, list[_Case]]]:
    """Yield names and cases of what stands beside the tests: suites that could not be run, gates.

    Also what a run or a group lacks, so that readers do not take a part for all.
    """
    for suite in view.suites:
        if suite.error_code is not None:
            text = (suite.error or "")[:_TEXT]
            first = text.partition("\n")[0]
            yield suite.name, [_Case(suite.path, "error", first, suite.error_code, text)]
    # The shards say more exactly what a group lacks.
    if view.group is not None and (lacking := view.group.lacking):
        kind = "GROUP_INCOMPLETE"
        yield _SHARDS, [_Case(f"shard {shard}", "error", how, kind) for shard, how in lacking]
    elif (without := unsettled(view)) is not None:
        yield _RUN, [_Case("came to its end", "error", without.message, without.code)]
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
    so_far = f"so far {comparison(gate)}: {count(missing, 'execution')} did not end"
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
    """Return the time that all repeats of a test took together."""
    return (test.latency_ms or 0.0) * test.counts.tested / 1000


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"
