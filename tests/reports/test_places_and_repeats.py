"""Where reports place tests of a folder, and what they tell of repeats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.history.run_view import RunView
from kindlm.outcome import ScoreLimits
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.execution_text import render_execution

LINE = 12
LEAST = ScoreLimits(min_mean=0.8)


def scored(make: Any, score: float, **fields: Any) -> Any:
    return make.passed("weighted_score", "weighted score", score=score, threshold=0.0, **fields)


@pytest.fixture
def folder(history: Any, make: Any) -> RunView:
    """A run of a folder with two files, in which a guardrail of the second one is broken."""
    run = history.run(planned=2)
    run.suite(
        tests=[
            make.planned("a", line=LINE, file="tests/a.yaml"),
            make.planned("b", line=3, file="tests/b.yaml"),
        ],
        path="tests",
    )
    run.execution("a", assertions=(make.passed(),))
    run.execution("b", assertions=(make.failed("pii", "no personal data", "PII_DETECTED", line=8),))
    return run.finish()


@pytest.mark.parametrize("name", ["terminal", "markdown", "junit"])
def test_failures_are_placed_in_the_file_of_their_test(
    folder: RunView, write: Any, name: str
) -> None:
    assert "tests/b.yaml:8" in write(folder, name)


def test_annotations_and_alerts_are_placed_in_the_file_of_their_test(
    folder: RunView, write: Any
) -> None:
    (result,) = json.loads(write(folder, "sarif"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "tests/b.yaml"
    assert place["region"]["startLine"] == 8
    assert "tests/b.yaml:8" in write(folder, "html")


def test_json_shows_file_and_line_of_each_test(folder: RunView, write: Any) -> None:
    tests = json.loads(write(folder, "json"))["tests"]
    assert [(test["file"], test["line"]) for test in tests] == [
        ("tests/a.yaml", LINE),
        ("tests/b.yaml", 3),
    ]


def test_a_test_without_a_file_is_in_that_of_its_suite(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(line=LINE)])
    run.execution(assertions=(make.passed(),))
    (test,) = json.loads(write(run.finish(), "json"))["tests"]
    assert (test["file"], test["line"], test["repeats"]) == ("kindlm.yaml", LINE, None)


def test_reports_say_what_the_scores_break_and_where_the_test_is(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2, score_limits=LEAST, file="tests/b.yaml")])
    for repeat, score in ((1, 0.7), (2, 0.8)):
        run.execution(repeat=repeat, assertions=(scored(make, score),))
    view = run.finish()
    said = "The mean weighted score is 75, below the minimum of 80"
    for name in ("terminal", "markdown", "junit"):
        assert said in write(view, name)
    (test,) = json.loads(write(view, "json"))["tests"]
    assert test["brokenLimits"] == [said]
    assert (test["status"], test["file"]) == ("failed", "tests/b.yaml")


@pytest.fixture
def repeated(history: Any, make: Any) -> RunView:
    """A test with four repeats: three pass, one errs; it is shown with 90 % intervals."""
    run = history.run(planned=4)
    run.suite(tests=[make.planned(repeat=4, confidence=0.9)])
    for repeat, score in enumerate((0.8, 0.85, 0.9), start=1):
        run.execution(repeat=repeat, assertions=(scored(make, score),))
    run.execution(repeat=4, status="errored")
    return run.finish()


def test_json_shows_the_statistics_of_repeats(repeated: RunView, write: Any) -> None:
    (test,) = json.loads(write(repeated, "json"))["tests"]
    told = test["repeats"]
    assert (told["n"], told["passed"], told["confidence"]) == (4, 3, 0.9)
    # Of 3 of 4, by counting: each of the 6 pairs holds one that passed; 3 of them pass both.
    assert told["passAtK"] == [0.75, 1, 1, 1]
    assert told["passHatK"] == [0.75, 0.5, 0.25, 0]
    # Wilson's formula with z = 1.6449, and Student's with t = 2.92 for two degrees of freedom.
    assert told["passRateInterval"] == pytest.approx([0.3562, 0.9421], abs=0.001)
    assert told["weightedScore"]["mean"] == pytest.approx(0.85)
    assert told["weightedScore"]["stdDev"] == pytest.approx(0.05)
    assert told["weightedScore"]["interval"] == pytest.approx([0.7657, 0.9343], abs=0.0001)


def test_people_read_them_in_the_details(repeated: RunView, write: Any) -> None:
    text = " ".join(write(repeated, "terminal", width=200, verbose=True).split())
    assert "75 % of 4 passed (90 % interval" in text
    assert "pass@2 100 %, pass^2 50 %, pass@4 100 %, pass^4 0 %" in text
    assert "mean 85 of 3 (90 % interval 76.6 to 93.4), standard deviation 5" in text
    assert "pass@2" not in write(repeated, "terminal")  # it errored once: it is not flaky


def test_an_execution_is_shown_with_the_file_of_its_test(folder: RunView) -> None:
    import io

    found = folder.execution("2")
    assert found is not None
    out = io.StringIO()
    render_execution(folder, found, out, ReportOptions(width=200))
    assert "support, tests/b.yaml" in out.getvalue()
    assert "tests/b.yaml:8" in out.getvalue()


def test_the_page_of_a_run_shows_scores_and_which_limits_they_break(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2, score_limits=LEAST)])
    for repeat, score in ((1, 0.7), (2, 0.8)):
        run.execution(repeat=repeat, assertions=(scored(make, score),))
    page = write(run.finish(), "html")
    assert "score 75" in page
    assert "The mean weighted score is 75, below the minimum of 80" in page


def test_what_to_type_next_where_every_repeat_passed_and_the_test_did_not(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2, score_limits=ScoreLimits(max_std_dev=0.01))])
    for repeat, score in ((1, 0.7), (2, 0.8)):
        run.execution(repeat=repeat, assertions=(scored(make, score),))
    view = run.finish()
    assert f"Next: kindlm show {view.id} --verbose" in write(view, "terminal")


def test_a_compliance_document_says_why_such_a_test_failed(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run(planned=2)
    config = {"config": {"compliance": {"metadata": {"systemName": "Orders"}}}}
    run.suite(
        tests=[make.planned(repeat=2, score_limits=LEAST)],
        config=json.dumps(config),
    )
    for repeat, score in ((1, 0.7), (2, 0.8)):
        run.execution(repeat=repeat, assertions=(scored(make, score),))
    (line,) = [line for line in write(run.finish(), "compliance").split("\n") if "| FAIL |" in line]
    assert "The mean weighted score is 75, below the minimum of 80" in line
