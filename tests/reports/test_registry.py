"""Finding reports by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kindlm import reports
from kindlm.errors import Err, Ok
from kindlm.history.run_view import RunView
from kindlm.reports import report_registry
from kindlm.reports.report_registry import find_report, report_names

_DOCS = Path(__file__).parents[2] / "docs" / "contributing" / "parts.md"


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
    assert "Available: " in report.error.hint
    for name in ("json", "junit", "terminal"):
        assert name in report.error.hint


def test_all_names() -> None:
    assert {"json", "junit", "terminal"} <= set(report_names())


def test_one_file_adds_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varied: RunView, write: Any
) -> None:
    source = re.search(r"<!-- report: works -->\n```python\n(.*?)```", _DOCS.read_text(), re.DOTALL)
    assert source is not None
    assert len(source[1].splitlines()) < 40
    (tmp_path / "failing_report.py").write_text(source[1], "utf-8")
    monkeypatch.setattr(reports, "__path__", [*reports.__path__, str(tmp_path)])
    anew = report_registry._own_reports.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(report_registry, "_own_reports", anew)

    assert "failing" in report_names()
    text = write(varied, "failing")
    assert text.startswith("FAILED\n")
    assert "refunds: No call to refund_order\n" in text


def test_reports_are_listed_without_importing_them() -> None:
    code = (
        "import sys; from kindlm.reports.report_registry import report_names;"
        " print(report_names());"
        " print([name for name in sys.modules if name.endswith(('_report', '.report'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, imported = done.stdout.splitlines()
    assert "junit" in names
    assert imported == "[]"
