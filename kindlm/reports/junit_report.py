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

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TextIO
from xml.etree import ElementTree as ET

from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts
from kindlm.outcome import Status
from kindlm.reports.causes import Cause, causes_of
from kindlm.reports.commands import show_command
from kindlm.reports.conversation import status_word
from kindlm.reports.facts import lacking_of, unsettled
from kindlm.reports.figures import comparison
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import bounded, written_out
from kindlm.wording import count


def escaped(text: str) -> str:
    r"""Return a text with characters that are invalid in XML 1.0 or invisible as `#x1B`.

    `\r\n` becomes `\n`.
    """
    return written_out(text.replace("\r\n", "\n"), lambda char: f"#x{ord(char):02X}")


def _element(tag: str, text: str = "", **attributes: str) -> ET.Element:
    """Return an element with any text and attributes, escaped."""
    made = ET.Element(tag, {name: escaped(value) for name, value in attributes.items()})
    made.text = escaped(text)
    return made


def _written(element: ET.Element) -> str:
    ET.indent(element)
    return f"{ET.tostring(element, 'unicode')}\n"


def _start(tag: str, name: str, counts: StatusCounts, seconds: float, **more: str) -> str:
    """Return the start tag of an element whose content is written piece by piece."""
    numbers = {"tests": counts.total, "failures": counts.failed, "errors": counts.errored}
    sums = {key: str(number) for key, number in numbers.items()}
    element = _element(tag, name=name, **sums, time=f"{seconds:.3f}", **more)
    whole = ET.tostring(element, "unicode", short_empty_elements=False)
    return f"{whole.removesuffix(f'</{tag}>')}\n"


_GATES = "Quality Gates"
_SHARDS = "Shards"
_RUN = "Run"
_TEXT = 20_000
_NOTE = 1_000


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report; it has no options."""
    del options
    others = [(name, _counts(cases), cases) for name, cases in _other_suites(view)]
    ran = [suite for suite in view.suites if suite.error_code is None]
    # The sums include no passed gates.
    wrong = (StatusCounts(failed=c.failed, errored=c.errored) for _, c, _ in others)
    counts = sum((*(suite.tests for suite in ran), *wrong), StatusCounts())
    out.write('<?xml version="1.0" encoding="utf-8"?>\n')
    out.write(_start("testsuites", "KindLM", counts, (view.info.duration_ms or 0.0) / 1000))
    for suite in ran:
        for target in view.targets(suite):
            out.writelines(_tests(view, suite, target))
    for name, of_cases, cases in others:
        out.writelines(_suite(view, name, of_cases, cases))
    out.write("</testsuites>\n")


def _tests(view: RunView, suite: SuiteView, target: str) -> Iterator[str]:
    """Yield the tests of a suite on one target."""

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
    known = [(key, value) for key, value in properties.items() if value is not None]
    warned = bool(view.warnings_of_passed(suite))
    cases = (
        _case(name, test.name, *_parts(view, test, warned=warned), seconds=_seconds(test))
        for test in tests()
    )
    counts = StatusCounts(**statuses)
    yield from _suite(view, name, counts, cases, seconds, chain(known, _reviews(view, tests())))


def _suite(
    view: RunView,
    name: str,
    counts: StatusCounts,
    cases: Iterable[ET.Element],
    seconds: float = 0.0,
    properties: Iterable[tuple[str, str]] = (),
) -> Iterator[str]:
    more = {"skipped": str(counts.untested), "timestamp": view.info.started_at[:19]}
    yield _start("testsuite", name, counts, seconds, **more)
    if properties:
        group = ET.Element("properties")
        group.extend(_element("property", name=key, value=value) for key, value in properties)
        yield _written(group)
    yield from map(_written, cases)
    yield "</testsuite>\n"


def _case(suite: str, name: str, *parts: ET.Element, seconds: float = 0.0) -> ET.Element:
    """Return a `testcase` with parts that say how it went; it passed if it has none."""
    case = _element("testcase", name=name, classname=suite, time=f"{seconds:.3f}")
    case.extend(parts)
    return case


def _reviews(view: RunView, tests: Iterable[TestView]) -> Iterator[tuple[str, str]]:
    for test in tests if view.reviewed().executions else ():
        for execution in view.executions(test):
            for review in view.reviews(execution):
                verdict = f"{'pass' if review.passed else 'fail'} by {review.by} at {review.at}"
                note = f": {bounded(review.note, _NOTE)}" if review.note else ""
                yield f"kindlm.review.{execution.id}", f"{verdict}{note}"


def _parts(view: RunView, test: TestView, *, warned: bool) -> list[ET.Element]:
    """Return the elements of a test; `warned` is whether any execution passed with a warning."""
    is_plain = test.status is Status.PASSED and test.counts.total == 1 and not test.passed_later
    executions = [] if is_plain and not warned else list(view.executions(test))
    if test.status is Status.SKIPPED:
        # The `skip` of a test gives no reason.
        reasons = [text for execution in executions for text in execution.warnings]
        message = reasons[0] if reasons else "" if test.counts.total else "not run"
        return [_element("skipped", message=message) if message else _element("skipped")]
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
            parts = [_element(tag, message=message, type=test.status.value)]
    # Surefire reports retried failures of a passed test as `flaky…`, of others as `rerun…`.
    kind = "flaky" if test.status is Status.PASSED else "rerun"
    for cause in causes_of(view, [test], retried=True):
        outcome = "Failure" if cause.how is Status.FAILED else "Error"
        retried = _of_cause(f"{kind}{outcome}", cause)
        ET.SubElement(retried, "stackTrace").text = retried.text
        retried.text = None
        parts.append(retried)
    lines = [
        f"repeat {execution.repeat}: {status_word(execution)}  {show_command(execution.id)}"
        for execution in executions
    ]
    lines += [f"warning: {bounded(text, _NOTE)}" for text in warnings]
    if test.passed_later:
        lines.append(f"flaky: passed only on retry in {count(test.passed_later, 'repeat')}")
    elif test.flaky:
        lines.append("flaky: passed in some repeats and failed in others")
    return [*parts, _element("system-out", "\n".join(lines))]


def _of_cause(tag: str, cause: Cause) -> ET.Element:
    """Return a cause in full, with its message also in its text: some services only show that."""
    hit = len(cause.executions)
    message = f"{cause.sentence} (×{hit})" if hit > 1 else cause.sentence
    text = "\n".join((cause.sentence, *(f"{name}: {text}" for name, text in cause.details)))
    kind = cause.code or cause.kind or cause.how.value
    return _element(tag, text[:_TEXT], message=message, type=kind)


def _counts(cases: list[ET.Element]) -> StatusCounts:
    tags = Counter(case[0].tag if len(case) else None for case in cases)
    return StatusCounts(tags[None], tags["failure"], tags["error"], tags["skipped"])


def _other_suites(view: RunView) -> Iterator[tuple[str, list[ET.Element]]]:
    """Yield the name and the cases of suites that could not run, an incomplete run, and gates."""

    def error(suite: str, name: str, message: str, code: str, text: str = "") -> ET.Element:
        return _case(suite, name, _element("error", text, message=message, type=code))

    for suite in view.suites:
        if suite.error_code is not None:
            text = (suite.error or "")[:_TEXT]
            first = text.partition("\n")[0]
            yield suite.name, [error(suite.name, suite.path, first, suite.error_code, text)]
    if view.group is not None and (lacking := view.group.lacking):
        code = "GROUP_INCOMPLETE"
        yield _SHARDS, [error(_SHARDS, f"shard {index}", how, code) for index, how in lacking]
    elif (no_verdict := unsettled(view)) is not None:
        yield _RUN, [error(_RUN, "finished", no_verdict.message, no_verdict.code)]
    suites = [suite for suite in view.suites if suite.gates]
    for suite in suites:
        missing = lacking_of(view, suite)
        name = _GATES if len(suites) == 1 else f"{_GATES} [{suite.full_name}]"
        cases = [_case(name, gate.name) for gate in suite.gates]
        for case, gate in zip(cases, suite.gates, strict=True):
            shown = comparison(gate)
            if not gate.passed:
                case.append(_element("failure", gate.message, message=shown, type="GATE_FAILED"))
            elif missing:
                case.append(_element("skipped", message=f"so far {shown}: {missing}"))
        yield name, cases


def _seconds(test: TestView) -> float:
    """Return the total time of all repeats of a test."""
    return (test.latency_ms or 0.0) * test.counts.tested / 1000
