"""What is shown of scenarios that passed only when they were run again: what each attempt found."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from xml.etree import ElementTree as ET

import pytest
from pages import text_of
from scenario_project import Project

from kindlm.cli.app import run
from kindlm.reports.pages.execution_page import execution_page
from kindlm.reports.pages.html_document import Links, PageRequest, render_part

TEST = """
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("good")
"""


@pytest.fixture(autouse=True)
def retries(project: Project) -> None:
    project.configure("[eval]\nretries = 2\n")


def record(project: Project, *texts: str | int) -> None:
    """Run the test with an agent that says these, then the last one for ever."""
    project.agent.say(*texts)
    project.test(tests=TEST)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    run(list(arguments))
    return capsys.readouterr().out


def test_an_execution_is_shown_with_what_each_attempt_found(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", 400, "good")
    told = shown(capsys, "show", "latest", "1")
    first, second, third = (told.index(f"Transcript of attempt {number}") for number in (1, 2, 3))
    assert "✗ contains good" in told[told.index("Assertions of attempt 1") : second]
    assert first < second < told.index("Error of attempt 2") < third
    assert "HTTP 400" in told[second:third]
    assert "✓ contains good" in told[told.index("Assertions of attempt 3") :]


def test_one_attempt_needs_no_number(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, "good")
    assert "attempt" not in shown(capsys, "show", "latest", "1")


def test_the_details_report_each_attempt(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", "good")
    told = shown(capsys, "show", "latest", "--verbose")
    assert "✗ contains good" in told[told.index("attempt 1: failed") :]
    assert "✓ contains good" in told[told.index("attempt 2: passed") :]


def test_the_json_report_holds_what_was_run_again(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", 400, "good")
    (test,) = json.loads(shown(capsys, "report", "latest", "--format", "json"))["tests"]
    (execution,) = test["executions"]
    first, second = execution["retriedAttempts"]
    assert (first["attempt"], first["status"], first["output"]) == (1, "failed", "bad")
    assert [(found["label"], found["outcome"]) for found in first["assertions"]] == [
        ("good", "failed")
    ]
    assert (second["attempt"], second["status"]) == (2, "errored")
    assert second["error"]["code"] == "PROVIDER_API_ERROR"
    assert second["error"]["message"]
    assert [found["outcome"] for found in execution["assertions"]] == ["passed"]


def test_a_flaky_test_is_one_to_what_reads_junit(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", 400, "good")
    root = ET.fromstring(shown(capsys, "report", "latest", "--format", "junit"))
    case = root.find(".//testcase[@name='tests/test_it.py::test_it']")
    assert case is not None
    assert [child.tag for child in case] == ["flakyFailure", "flakyError", "system-out"]
    said = 'Missing in the answer: "good"'
    assert case[0].attrib == {"message": said, "type": "CONTAINS_FAILED"}
    assert "tests/test_it.py:4" in (case[0].findtext("stackTrace") or "")
    assert "passed only on retry" in (case.findtext("system-out") or "")
    assert (root.get("failures"), root.get("errors")) == ("0", "0")


def test_a_test_that_fails_each_time_has_the_other_times_beside_its_failure(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad")
    root = ET.fromstring(shown(capsys, "report", "latest", "--format", "junit"))
    case = root.find(".//testcase[@name='tests/test_it.py::test_it']")
    assert case is not None
    assert [child.tag for child in case] == ["failure", "rerunFailure", "system-out"]
    assert case[1].get("message") == 'Missing in the answer: "good" (×2)'
    assert root.get("failures") == "1"


def test_a_comment_says_why_a_test_is_flaky(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", "good")
    told = shown(capsys, "report", "latest", "--format", "markdown")
    assert "1/1 flaky" in told
    assert "Missing in the answer: &#34;good&#34;" in told[told.index("#### Passed on retry") :]


def test_the_page_of_an_execution_says_why_it_was_run_again(project: Project) -> None:
    record(project, "bad", 400, "good")
    with closing(sqlite3.connect(project.root / ".kindlm" / "kindlm.db")) as db:
        db.row_factory = sqlite3.Row
        (wanted,) = db.execute("SELECT id FROM executions").fetchone()
        page = execution_page(db, PageRequest(wanted))
        assert page is not None
        text = text_of(render_part(page, Links()))
    first, second, third = (text.index(f"Conversation of attempt {n}") for n in (1, 2, 3))
    assert (
        "failed kindlm retried this attempt. failed contains good CONTAINS_FAILED"
        in text[first:second]
    )
    assert "errored kindlm retried this attempt." in text[second:third]
    assert "passed contains good" in text[third:]


def test_the_report_in_one_file_says_why_a_test_is_flaky(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", "good")
    text = text_of(shown(capsys, "report", "latest", "--format", "html"))
    assert "1/1 flaky" in text
    assert "CONTAINS_FAILED" in text[text.index("attempt 1: failed") : text.index("attempt 2")]


def test_what_passed_only_when_run_again_is_flaky_over_time(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    record(project, "bad", "good")
    told = json.loads(shown(capsys, "runs", "--test", "test_it", "--format", "json"))
    (test,) = told["tests"]
    assert test["flakiness"] == {"within": None, "between": 1.0, "passedLater": 1}
    text = shown(capsys, "runs", "--test", "test_it")
    assert "1 of 2 executions passed only when run again" in text
    assert "1/1 flaky" in text
