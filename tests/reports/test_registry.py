"""Finding reports by name."""

from __future__ import annotations

import pytest

from kindlm.errors import Err, Ok
from kindlm.reports.registry import find_report, report_names


@pytest.mark.parametrize(
    ("asked", "found"),
    [("terminal", "terminal"), ("pretty", "terminal"), ("json", "json"), ("junit", "junit")],
)
def test_reports_are_found_by_name(asked: str, found: str) -> None:
    report = find_report(asked)
    assert isinstance(report, Ok)
    assert report.value.name == found


@pytest.mark.parametrize(
    "asked", ["jnit", "registry", "untrusted", "json_report", "", "../x", "a.b"]
)
def test_an_unknown_report_is_an_error_that_names_the_known(asked: str) -> None:
    report = find_report(asked)
    assert isinstance(report, Err)
    assert report.error.hint is not None
    assert "There are: " in report.error.hint
    for name in ("json", "junit", "terminal"):
        assert name in report.error.hint


def test_a_typo_gets_a_guess() -> None:
    report = find_report("jnit")
    assert isinstance(report, Err)
    assert report.error.hint is not None
    assert report.error.hint.startswith("Did you mean junit?")


def test_all_names() -> None:
    assert {"json", "junit", "terminal"} <= set(report_names())
