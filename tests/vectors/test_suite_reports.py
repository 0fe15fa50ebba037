"""The vectors of suites that are about the reports for machines and for auditors."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from vector_cases import Departure, known

from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports import compliance_report, junit_report
from kindlm.reports.compliance_report import SEPARATOR
from kindlm.reports.report_registry import ReportOptions

Vector = dict[str, Any]

# What our report holds beyond the vectors.
BEYOND: Final = {"properties", "system-out"}

# A threshold that lets a gate pass or fail, whatever was measured.
PASSING: Final = {True: -1.0, False: 1e9}


WORDS: Final = {"PASS": "PASS", "FAIL": "FAIL", "SKIP": "FAIL", "NOT MEASURED": "PASS"}
"""How the vector calls what we say: a skipped test is no failed one here, nor has a gate passed
that had nothing to judge."""


def reshaped(rule: str, shape: Callable[[Vector, Vector], list[Vector]]) -> Departure:
    """Return a departure in the elements of suites: what `shape` makes of each, with its suite."""

    def ours(case: Vector) -> Vector:
        suites = {suite["name"]: suite for suite in case["input"]["run"]["suites"]}
        xml = case["expected"]["xml"]
        children: list[Vector] = []
        for element in xml["children"]:
            suite = suites.get(element["attrs"]["name"])
            children += [element] if suite is None else shape(element, suite)
        return {"xml": xml | {"children": children}}

    return Departure(rule, lambda case: True, ours)


def each_test(
    shape: Callable[[Vector, Vector], Vector],
) -> Callable[[Vector, Vector], list[Vector]]:
    """Return what reshapes the element of each test of a suite."""

    def of(element: Vector, suite: Vector) -> list[Vector]:
        cases = zip(element["children"], suite["tests"], strict=True)
        return [element | {"children": [shape(case, test) for case, test in cases]}]

    return of


def by_target(element: Vector, suite: Vector) -> list[Vector]:
    """Split the element of a suite by target."""
    targets = list(dict.fromkeys(test["modelId"] for test in suite["tests"]))
    if len(targets) < 2:
        return [element]
    split = []
    for target in targets:
        pairs = [
            (case, test)
            for case, test in zip(element["children"], suite["tests"], strict=True)
            if test["modelId"] == target
        ]
        name = f"{suite['name']} [{target}]"
        statuses = [test["status"] for _, test in pairs]
        attrs = {
            "name": name,
            "tests": str(len(pairs)),
            "failures": str(statuses.count("failed")),
            "errors": str(statuses.count("errored")),
            "time": f"{sum(test['latencyMs'] for _, test in pairs) / 1000:.3f}",
        }
        cases = [case | {"attrs": case["attrs"] | {"classname": name}} for case, _ in pairs]
        split.append(element | {"attrs": attrs, "children": cases})
    return split


def with_error(case: Vector, test: Vector) -> Vector:
    if test["status"] != "errored" or case.get("children"):
        return case
    return case | {"children": [{"tag": "error", "attrs": {}}]}


def named(case: Vector, test: Vector) -> Vector:
    """Give a failure its reason as its message; its text adds what was said, where, and more."""
    labels = {each["label"] for each in test["assertions"]}
    children = [
        child
        | {
            "attrs": child["attrs"] | {"message": child["text"]},
            "text": f'{child["text"]}\nsaid: "Hi there."\nat: kindlm.yaml:42\n'
            "look: kindlm show k3f9x2ab 1",
        }
        if child["attrs"].get("message") in labels
        else child
        for child in case.get("children", [])
    ]
    return case | {"children": children} if children else case


def nothing_ran(case: Vector) -> bool:
    suites = case["input"]["run"]["suites"]
    return all(test["status"] == "skipped" for suite in suites for test in suite["tests"])


def with_run(case: Vector) -> Vector:
    """Add the error of a run that tested nothing."""
    xml = case["expected"]["xml"]
    attrs = {"name": "finished", "classname": "Run", "time": "0.000"}
    error = {"tag": "error", "attrs": {"type": "NOTHING_TESTED"}}
    run = {
        "tag": "testsuite",
        "attrs": {"name": "Run", "tests": "1", "failures": "0", "errors": "1", "time": "0.000"},
        "children": [{"tag": "testcase", "attrs": attrs, "children": [error]}],
    }
    sums = {name: str(int(xml["attrs"][name]) + 1) for name in ("tests", "errors")}
    return {"xml": xml | {"attrs": xml["attrs"] | sums, "children": [*xml["children"], run]}}


DEPARTURES: Final = (
    Departure(
        "a run that tested nothing has failed, and an error says so, or readers take it for passed",
        nothing_ran,
        with_run,
    ),
    reshaped(
        "the message of a failure is its reason; its text adds the answer, the place and a command",
        each_test(named),
    ),
    reshaped(
        "a test that errored has an error element, or readers take it for passed",
        each_test(with_error),
    ),
    # The last one: it takes apart what the others find by its suite.
    reshaped(
        "one testsuite for each suite and target, or two targets give one name twice", by_target
    ),
)


@pytest.mark.vectors("suite.jsonl", "junit", departures=DEPARTURES)
def test_junit(vector: Vector, history: Any, make: Any, tmp_path: Any) -> None:
    given = vector["input"]
    expected = vector["expected"]["xml"]
    file = tmp_path / "report.xml"
    with file.open("w", encoding="utf-8") as out:
        junit_report.write_report(recorded(given, history, make), out, ReportOptions())
    compare(expected, ET.parse(file).getroot())


@pytest.mark.vectors(
    "suite.jsonl",
    "compliance",
    ignores=("metadata",),
    beside=(
        "content_hash_is_sha256_of_text_before_separator",
        "format",
        "missing_metadata_shown_as",
        "run_hash_equals_content_hash",
        "run_hash_is_sha256_of_sorted_json_of_content_and_metadata",
        "verdict",
    ),
)
def test_compliance(vector: dict[str, Any], history: Any, make: Any) -> None:
    out = io.StringIO()
    compliance_report.write_report(recorded(vector["input"], history, make), out, ReportOptions())
    document, expected = out.getvalue(), vector["expected"]

    parts = dict(re.findall(r"(?ms)^### Article (\d+):.*?$(.*?)(?=^##|\Z)", document))
    # Articles 11, 14 and 72 are beyond the vector.
    found = [int(number) for number in parts if int(number) in expected["articles_in_order"]]
    assert found == expected["articles_in_order"]
    for article, evidence in expected["gate_evidence_by_article"].items():
        told = re.findall(r"(?m)^- (PASS|FAIL|NOT MEASURED) (\w+):", parts[article])
        assert [(WORDS[status], gate) for status, gate in told] == [
            (each["status"], each["gate"]) for each in evidence
        ]

    row = r"(?m)^\| (\w+) \| (PASS|FAIL|NOT MEASURED) \| (?:[\d.]+|none) \| \S+ \|"
    table = [(name, WORDS[status]) for name, status in re.findall(row, document)]
    assert table == [(name, status) for name, status, *_ in expected["summary_table"]]
    tests = re.findall(r"(?m)^\| (\w+) \| m \| (PASS|FAIL|SKIP) \|", document)
    assert [[WORDS[status], name] for name, status in tests] == expected["test_lines"]
    assert any(status != WORDS[status] for _, status in tests), "else it is no departure"

    content, _, below = document.rpartition(SEPARATOR)
    assert hashlib.sha256(content.encode()).hexdigest() in below


def recorded(given: Vector, history: Any, make: Any) -> RunView:
    """Record the run that a vector describes."""
    run = history.run()
    gates = {
        gate["gateName"]: PASSING[gate["passed"] == gate["gateName"].endswith("Min")]
        for gate in given["gates"]["gates"]
    }
    for ordinal, suite in enumerate(given["run"]["suites"]):
        tests = [make.planned(test["name"], test["modelId"]) for test in suite["tests"]]
        run.suite(suite["name"], tests=tests, gates=gates, defaults={})
        gates = {}
        for test in suite["tests"]:
            known(test, "name", "modelId", "status", "assertions", "latencyMs", "costUsd", "error")
            run.execution(
                test["name"],
                test["modelId"],
                suite=ordinal,
                status=Status(test["status"]),
                latency_ms=test["latencyMs"],
                assertions=tuple(assertion(make, each) for each in test["assertions"]),
                error=error(test.get("error")),
            )
    return run.finish(duration_ms=given["run"]["durationMs"])


def assertion(make: Any, given: Vector) -> Any:
    if given["passed"]:
        return make.passed(given["assertionType"], given["label"], score=given["score"])
    return make.failed(
        given["assertionType"],
        given["label"],
        given["failureCode"],
        given.get("failureMessage", ""),
        score=given["score"],
    )


def error(given: Vector | None) -> tuple[str, int, str, None] | None:
    return None if given is None else (given["code"], 999, given["message"], None)


def compare(expected: Vector, found: ET.Element) -> None:
    """Hold an element to what is expected of it; it may have attributes beyond."""
    assert found.tag == expected["tag"]
    for name, value in expected["attrs"].items():
        # The wording of a gate's failure is a message, and no part of a case.
        if found.get("type") != "GATE_FAILED":
            assert (name, found.get(name)) == (name, value)
    if "text" in expected and found.get("type") != "GATE_FAILED":
        assert found.text == expected["text"]
    children = [child for child in found if child.tag not in BEYOND]
    assert [child.tag for child in children] == [c["tag"] for c in expected.get("children", [])]
    for child, wanted in zip(children, expected.get("children", []), strict=True):
        compare(wanted, child)
