"""Suites of several projects that have one name: no report takes a test of one for another's."""

from __future__ import annotations

import json
from html import unescape
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pages import text_of
from recorded_history import History, Make

from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.pages.html_document import Links, PageRequest, render_part
from kindlm.reports.pages.run_pages import outputs_page, read_grid, run_document

LEAK = Make.failed("pii", "pii", "PII_DETECTED", "Personal data, 1 match.")


def record(history: History, run: str, *projects: str, leaks: tuple[str, ...]) -> RunView:
    writer = history.run(run)
    for project in projects:
        writer.suite(tests=[Make.planned()], project=project, path=f"{project}/kindlm.yaml")
    for number, project in enumerate(projects):
        checked = LEAK if project in leaks else Make.passed("pii", "pii")
        writer.execution(suite=number, output=f"Said in {project}.", assertions=(checked,))
    return writer.finish()


@pytest.fixture
def both(history: History) -> RunView:
    """A run of two suites with the same test; that of the first one fails."""
    return record(history, "aaaa2222", "fair", "shop", leaks=("fair",))


def test_the_grid_of_a_run_has_the_tests_of_each_project(both: RunView) -> None:
    rows = read_grid(both, lambda test: test, limit=9, failed_first=True).rows
    found = [(name.project, cells["gpt"].status) for name, cells in rows]
    assert found == [("fair", Status.FAILED), ("shop", Status.PASSED)]


def test_the_outputs_of_a_run_are_those_of_each_project(both: RunView) -> None:
    page = outputs_page(both.db, PageRequest(both.id))
    assert page is not None
    rows: Any = page.values["grid"].rows
    assert [row["gpt"]["execution"].output for _, row in rows] == ["Said in fair.", "Said in shop."]


def test_pages_name_the_files_of_suites_of_one_name(both: RunView) -> None:
    for page in (outputs_page(both.db, PageRequest(both.id)), run_document(both)):
        assert page is not None
        text = text_of(render_part(page, Links()))
        for project in ("fair", "shop"):
            assert f"greets support ({project}/kindlm.yaml)" in text


def test_no_two_test_cases_of_junit_have_the_same_name(both: RunView, write: Any) -> None:
    cases = ET.fromstring(write(both, "junit")).iter("testcase")
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert ("support (fair/kindlm.yaml)", "greets") in names
    assert len(names) == len(set(names))


def test_a_finding_of_code_scanning_is_known_by_its_project(history: History, write: Any) -> None:
    def fingerprints(run: str, *projects: str) -> list[str]:
        report = json.loads(write(record(history, run, *projects, leaks=projects), "sarif"))
        results = report["runs"][0]["results"]
        return [result["partialFingerprints"]["kindlm/v1"] for result in results]

    fair, shop = fingerprints("aaaa2222", "fair", "shop")
    assert fair != shop
    assert fingerprints("bbbb3333", "shop", "fair") == [shop, fair]
    assert fingerprints("cccc4444", "shop") == [shop]


@pytest.mark.parametrize("report", ["terminal", "markdown"])
def test_suites_of_one_name_are_told_apart_by_their_files(
    both: RunView, write: Any, report: str
) -> None:
    shown = " ".join(unescape(write(both, report)).split())
    assert "in support (fair/kindlm.yaml)" in shown
    assert "in support (shop/kindlm.yaml)" not in shown
    assert shown.count("support (shop/kindlm.yaml)") > 0


def test_a_suite_whose_name_no_other_has_goes_by_it(history: History, write: Any) -> None:
    shown = write(record(history, "aaaa2222", "fair", leaks=("fair",)), "terminal")
    assert "support  1 test" in shown
