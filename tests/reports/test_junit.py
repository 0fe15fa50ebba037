"""The JUnit report: what CI services read."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.reports.github_annotations import annotations_of
from kindlm.reports.junit_report import escaped

# What Maven Surefire and Jenkins tell of tests that were run again; GitLab passes over it.
RERUN = ["flakyFailure", "flakyError", "rerunFailure", "rerunError"]

# Which attributes an element must have, which it may have, and its children in their order: what
# the schemas of Jenkins (junit-10.xsd) and GitLab have in common.
SCHEMA: dict[str, tuple[set[str], set[str], list[str]]] = {
    "testsuites": ({"tests", "failures", "errors"}, {"name", "time"}, ["testsuite"]),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"skipped", "time", "timestamp"},
        ["properties", "testcase", "system-out"],
    ),
    "properties": (set(), set(), ["property"]),
    "property": ({"name", "value"}, set(), []),
    "testcase": (
        {"name", "classname"},
        {"time"},
        ["skipped", "error", "failure", *RERUN, "system-out"],
    ),
    **dict.fromkeys(RERUN, ({"type"}, {"message"}, ["stackTrace"])),
    "stackTrace": (set(), set(), []),
    "skipped": (set(), {"message"}, []),
    "error": ({"message", "type"}, set(), []),
    "failure": ({"message", "type"}, set(), []),
    "system-out": (set(), set(), []),
}


def valid(text: str) -> ET.Element:
    """Parse a report and hold it to the schema and to its own counts."""
    text.encode("utf-8")
    root = ET.fromstring(text.encode("utf-8"))
    for element in root.iter():
        required, optional, children = SCHEMA[element.tag]
        assert required <= set(element.attrib) <= required | optional
        places = [children.index(child.tag) for child in element]
        assert places == sorted(places)
        # Jenkins: groups of three digits with commas between them, or digits, then a fraction.
        assert re.fullmatch(r"\d+(\.\d+)?", element.get("time", "0"), re.ASCII)
    for suite in root.iter("testsuite"):
        cases = list(suite.iter("testcase"))
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(sum(case.find("failure") is not None for case in cases))
        assert suite.get("errors") == str(sum(case.find("error") is not None for case in cases))
    for wrong in ("failures", "errors"):
        assert root.get(wrong) == str(sum(int(suite.attrib[wrong]) for suite in root))
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names))
    return root


def cases(root: ET.Element) -> dict[tuple[str | None, str | None], ET.Element]:
    return {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}


def test_a_suite_for_each_suite_and_target(varied: Any, write: Any) -> None:
    root = valid(write(varied, "junit"))

    assert root.attrib == {
        "name": "KindLM", "tests": "9", "failures": "5", "errors": "2", "time": "1.500",
    }  # fmt: skip
    assert [
        (s.get("name"), s.get("tests"), s.get("failures"), s.get("errors"), s.get("skipped"))
        for s in root
    ] == [
        ("support [gpt]", "3", "1", "0", "1"),
        ("support [claude]", "2", "1", "1", "0"),
        ("broken", "1", "0", "1", "0"),
        ("Quality Gates", "6", "3", "0", "0"),
    ]
    properties = {p.get("name"): p.get("value") for p in root[0].iter("property")}
    assert properties["kindlm.target"] == "gpt"
    assert properties["kindlm.run"] == "k3f9x2ab"


def test_a_failed_gate_is_a_failure_of_the_whole(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()], gates={"latencyMaxMs": 0.001, "costMaxUsd": 1})
    run.execution(assertions=(make.passed(),))
    root = valid(write(run.finish(), "junit"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")


def test_failures_errors_and_skips(varied: Any, write: Any) -> None:
    found = cases(valid(write(varied, "junit")))

    (failure,) = found["support [gpt]", "refunds"].findall("failure")
    assert failure.attrib == {
        "message": "No call to refund_order (×3)",
        "type": "TOOL_CALL_MISSING",
    }
    assert failure.text is not None
    first, *rows = failure.text.splitlines()
    assert first == "No call to refund_order"
    assert "called: lookup_order" in "\n".join(rows)
    assert rows[-1].startswith("look: kindlm show k3f9x2ab ")
    (error,) = found["support [claude]", "refunds"].findall("error")
    assert error.get("message") == "The provider refused: too many requests."
    assert error.get("type") == "PROVIDER_RATE_LIMIT"
    assert "fix: Lower defaults.concurrency." in (error.text or "").splitlines()
    assert found["support [gpt]", "later"].find("skipped") is not None
    assert found["broken", "broken.yaml"][0].get("type") == "CONFIG_VALIDATION_ERROR"
    assert found["Quality Gates", "judgeAvgMin"][0].get("message") == "0.71 < 0.80"
    assert not list(found["Quality Gates", "piiFailuresMax"])


def test_repeats_are_reported_in_the_output(varied: Any, write: Any) -> None:
    found = cases(valid(write(varied, "junit")))

    assert found["support [claude]", "greets"].findtext("system-out") == (
        "repeat 1: passed  kindlm show k3f9x2ab 2\n"
        "repeat 2: failed  kindlm show k3f9x2ab 4\n"
        "flaky: passed in some repeats and failed in others"
    )


def test_reviews_are_properties_of_their_suite(history: Any, make: Any, write: Any) -> None:
    email = "jane.roe@example.com"
    found = {"source": "output", "start": 0, "end": 20, "name": "email", "excerpt": "ja**om"}
    run = history.run(label="nightly")
    run.suite(tests=[make.planned("greets", "gpt"), make.planned("greets", "claude")])
    leak = make.failed("pii", "pii", "PII_DETECTED", "Found.", evidence=[found])
    run.execution("greets", "gpt", assertions=(make.passed(),))
    run.execution("greets", "claude", output=email, assertions=(leak,))
    run.finish()
    history.review(run.id, 2, passed=True, note=f"I know\n{email} \x1b[31m", by="ada@desk")
    root = valid(write(history.view(run.id), "junit"))

    gpt, claude = (
        {p.get("name"): p.get("value") or "" for p in suite.iter("property")} for suite in root[:2]
    )
    assert not [name for name in gpt if name and name.startswith("kindlm.review")]
    assert gpt["kindlm.label"] == "nightly"
    review = claude[f"kindlm.review.{run.id}-2"]
    assert review.startswith("pass by ada@desk at 2")
    assert review.endswith(": I know\nja****************om #x1B[31m")


def test_an_undecided_assertion_is_an_error(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(
        assertions=(
            make.failed("judge", "is kind", "JUDGE_EVAL_ERROR", outcome="inconclusive", score=None),
        )
    )
    case = cases(valid(write(run.finish(), "junit")))["support", "greets"]
    assert [child.tag for child in case] == ["error", "system-out"]
    assert case[0].get("type") == "JUDGE_EVAL_ERROR"


def test_tests_that_did_not_run_are_skipped(history: Any, make: Any, write: Any) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned("first"), make.planned("second")])
    run.execution("first", assertions=(make.passed(),))
    found = cases(valid(write(run.interrupt(), "junit")))

    skipped = found["support", "second"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not run"


@pytest.mark.parametrize("end", ["interrupt", "abort", "leave"])
def test_a_run_that_did_not_end_is_an_error_and_its_gates_have_not_passed(
    history: Any, make: Any, write: Any, end: str
) -> None:
    run = history.run(planned=4)
    run.suite("whole", tests=[make.planned("first")])
    run.suite("part", tests=[make.planned("second", repeat=3)])
    run.execution("first", suite=0, assertions=(make.passed(),))
    run.execution("second", suite=1, assertions=(make.passed(),))
    reason = "--max-time 2 was reached"
    view = run.leave() if end == "leave" else getattr(run, end)(reason)
    root = valid(write(view, "junit"))

    found = cases(root)
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    (error,) = found["Run", "finished"]
    code = {"interrupt": "RUN_INTERRUPTED", "abort": "RUN_ABORTED", "leave": "RUN_KILLED"}[end]
    assert (error.tag, error.get("type")) == ("error", code)
    said = error.get("message") or ""
    assert said.endswith("; 2 of 4 executions did not finish")
    assert end == "leave" or said.startswith(reason)
    assert not list(found["Quality Gates [whole]", "passRateMin"])
    (skipped,) = found["Quality Gates [part]", "passRateMin"]
    assert (skipped.tag, skipped.get("message")) == (
        "skipped", "so far 1.00 ≥ 0.95: 2 executions did not finish",
    )  # fmt: skip


def test_a_run_that_tested_nothing_is_an_error(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(skip=True)])
    run.execution(status=make.SKIPPED)
    view = run.finish()
    root = valid(write(view, "junit"))

    assert view.status == "failed"
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    (error,) = cases(root)["Run", "finished"]
    assert (error.get("type"), error.get("message")) == ("NOTHING_TESTED", "Nothing was tested.")
    (found,) = json.loads(write(view, "json"))["errors"]
    assert (found["code"], found["message"]) == ("NOTHING_TESTED", "Nothing was tested.")
    (shown,) = annotations_of(view)
    assert (shown.title, shown.message) == ("Nothing tested", "Nothing was tested.")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x1b[31m", "#x1B[31m"),
        ("nul\x00", "nul#x00"),
        ("half\ud83d", "half#xD83D"),
        ("non\uffff", "non#xFFFF"),
        ("a\r\nb\rc", "a\nb#x0Dc"),
        ("a\u202eb\u200bc\U000e0041", "a#x202Eb#x200Bc#xE0041"),
        ("\t\n é 日本 👩", "\t\n é 日本 👩"),
    ],
)
def test_what_xml_cannot_hold_is_written_out(text: str, written: str) -> None:
    assert escaped(text) == written


def test_markup_in_content_stays_content(history: Any, make: Any, write: Any) -> None:
    hostile = "a <b> \"c\" & 'd' ]]> <![CDATA[ <!-- \x1b[31m\nsecond"
    run = history.run()
    run.suite(hostile, tests=[make.planned(hostile)])
    run.execution(hostile, assertions=(make.failed(label=hostile, message=hostile),))
    root = valid(write(run.finish(), "junit"))

    shown = hostile.replace("\x1b", "#x1B")
    case = cases(root)[shown, shown]
    said = hostile.replace("\x1b", "\\x1b")
    assert case[0].get("message") == said
    assert (case[0].text or "").startswith(f"{said}\n")


def test_what_was_run_again_fails_no_test_that_passed_then(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned("flaky"), make.planned("bad"), make.planned("good")])
    hi = 'Expected the output to contain "hi".'
    error = ("PROVIDER_TIMEOUT", 302, "It took too long.", "Wait.")
    run.execution("flaky", assertions=(make.failed(label="hi"),), retried=True)
    run.execution("flaky", number=1, attempt=2, output=None, error=error, retried=True)
    run.execution("flaky", number=1, attempt=3, assertions=(make.passed(label="hi"),))
    run.execution("bad", number=2, assertions=(make.failed(label="hi"),), retried=True)
    run.execution("bad", number=2, attempt=2, assertions=(make.failed(label="ho"),))
    run.execution("good", number=3, assertions=(make.passed(),))
    root = valid(write(run.finish(), "junit"))
    told = {
        case.get("name"): [(child.tag, child.get("message")) for child in case][:-1]
        for case in root.iter("testcase")
        if case.get("classname") == "support"
    }
    assert told == {
        "flaky": [("flakyFailure", hi), ("flakyError", "It took too long.")],
        "bad": [("failure", hi), ("rerunFailure", hi)],
        "good": [],
    }


texts = st.text(alphabet=st.characters(), max_size=30)
numbers = count()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, texts, texts)
def test_any_text_anywhere_is_well_formed(
    history: Any, make: Any, write: Any, one: str, two: str, three: str
) -> None:
    run = history.run(f"run{next(numbers)}")
    run.suite(one, tests=[make.planned(two, three)], path=three)
    run.skipped_suite(two, message=three)
    run.execution(
        two,
        three,
        repeat=1,
        output=one,
        assertions=(make.failed(label=one, message=two, reasoning=three),),
    )
    ET.fromstring(write(run.finish(), "junit").encode("utf-8"))
