"""The report `sarif`: findings of guardrails, for code scanning, at the lines of their checks.

SARIF 2.1.0 is https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. There is one result
for each broken guardrail of a test on a target, whatever the number of repeats. Its fingerprint is
the same in every run, so that code scanning recognises it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, TextIO
from urllib.parse import quote

from kindlm import __version__
from kindlm.checks.base import rules
from kindlm.history.masking import as_shown
from kindlm.history.rows import AssertionView, SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.reports.commands import show_command
from kindlm.reports.facts import unsettled, went_wrong
from kindlm.reports.github_annotations import in_folder
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import bounded, json_in_pieces, visible

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_TEXT = 2_000
_EXECUTIONS = 20

_Finding = tuple[AssertionView, dict[str, None]]
"""The first assertion on a broken guardrail, and all executions with one."""


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report, result by result."""
    described = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.title},
            "help": {"text": "Read the execution with kindlm show."},
            "defaultConfiguration": {"level": "error"},
            "properties": {"tags": ["guardrail"]},
        }
        for rule in rules().values()
    ]
    info = view.info
    broken = any(suite.error_code is not None for suite in view.suites)
    # What errored may have checked no guardrail: an absent finding is not a fixed one.
    errored = view.summary.executions.errored > 0
    invocation = {
        "executionSuccessful": unsettled(view) is None and not broken and not errored,
        "startTimeUtc": info.started_at,
        **({} if info.finished_at is None else {"endTimeUtc": info.finished_at}),
    }
    head = {
        "tool": {"driver": {"name": "kindlm", "version": __version__, "rules": described}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "properties": {"run": view.id, "project": info.project, "head": info.head},
    }
    results = (
        _result(view, suite, test, found, options.folder)
        for suite, test in went_wrong(view)
        for found in _broken_guardrails(view, test)
    )
    out.write(f'{{"$schema": "{_SCHEMA}", "version": "2.1.0", "runs": [')
    out.writelines(json_in_pieces(head, "results", results))
    out.write("]}\n")


def _broken_guardrails(view: RunView, test: TestView) -> Iterable[_Finding]:
    found: dict[tuple[str, str, Outcome], _Finding] = {}
    for execution in view.executions(test):
        if execution.status not in (Status.FAILED, Status.ERRORED):
            continue
        (*_, last), _ = as_shown(view.attempts(execution))
        for assertion in last.assertions:
            if assertion.is_wrong and assertion.kind in rules():
                key = (assertion.kind, assertion.label, assertion.outcome)
                found.setdefault(key, (assertion, {}))[1][execution.id] = None
    return found.values()


def _result(
    view: RunView, suite: SuiteView, test: TestView, found: _Finding, folder: str
) -> dict[str, Any]:
    assertion, executions = found[0], list(found[1])
    kinds = rules()
    rule = kinds[assertion.kind]
    decided = assertion.outcome is Outcome.FAILED
    # The fingerprint depends neither on the place in the file nor on the answer.
    project = suite.project or view.info.project
    parts = [project, suite.name, test.name, test.target, assertion.kind, assertion.label]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    message = bounded(assertion.message or assertion.label, _TEXT)
    times = f"In {len(executions)} of {test.counts.tested} executions"
    look = show_command(executions[0])
    # Text of models must not become a link (section 3.11.6).
    text = visible(f"{test.name} on {test.target}: {message} {times}: {look}").replace("](", "] (")
    path = in_folder(folder, test.file)
    artifact = (
        {"uri": f"file://{quote(path)}"}
        if path.startswith("/")
        else {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
    )
    line = assertion.line or test.line or 1
    name = visible(f"{suite.name} / {test.name} / {test.target}")
    return {
        "ruleId": rule.id,
        "ruleIndex": list(kinds).index(assertion.kind),
        # An `open` result is not decided, and has no level (section 3.27.10).
        "kind": "fail" if decided else "open",
        "level": "error" if decided else "none",
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}},
                "logicalLocations": [{"fullyQualifiedName": name, "kind": "test"}],
            }
        ],
        "occurrenceCount": len(executions),
        # GitHub reads the second one.
        "partialFingerprints": {"kindlm/v1": fingerprint, "primaryLocationLineHash": fingerprint},
        "properties": {
            "target": test.target,
            "failureCode": assertion.failure_code,
            "executions": executions[:_EXECUTIONS],
        },
    }
