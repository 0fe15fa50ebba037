"""`--pdf` without the packages that it needs: told before anything is run or written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from checked_server import LoopbackServer
from workspace import new_workspace

from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.reports import compliance_report

AGENT: dict[str, Any] = {"rules": [{"name": "answer", "when": {}, "reply": {"text": "Hello."}}]}


@pytest.mark.parametrize("missing", ["fpdf", "markdown_it"])
def test_a_missing_extra_is_reported_first(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test-9f8e7d")
    (here / "old.pdf").write_text("as it was")
    with LoopbackServer(AGENT) as server:
        new_workspace(here).suite(server.url, tests=[{"name": "greets", "prompt": "ask"}])
        monkeypatch.setitem(sys.modules, missing, None)
        refused = kindlm("test", "--compliance", "--pdf", "old.pdf")
        assert refused.code == 1
        assert "pip install 'kindlm[pdf]'" in refused.err
        assert not server.requests
        assert not (here / "compliance-reports").exists()
        kindlm("test")
    refused = kindlm("report", "--format", "compliance", "-o", "new.md", "--pdf", "old.pdf")
    assert refused.code == 1
    assert "pip install 'kindlm[pdf]'" in refused.err
    assert not (here / "new.md").exists()
    assert (here / "old.pdf").read_text() == "as it was"


def test_a_document_that_is_written_twice_is_made_once(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test-9f8e7d")
    read, suites = compliance_report.read_facts, list[str]()

    def counted(view: RunView, suite: SuiteView, threshold: float) -> Any:
        suites.append(suite.name)
        return read(view, suite, threshold)

    monkeypatch.setattr(compliance_report, "read_facts", counted)
    with LoopbackServer(AGENT) as server:
        new_workspace(here).suite(server.url, tests=[{"name": "greets", "prompt": "ask"}])
        kindlm("test", "--compliance", "--pdf", "new.pdf")
    assert len(suites) == 1
    assert len(list((here / "compliance-reports").iterdir())) == 1
    assert (here / "new.pdf").exists()


def test_a_document_that_cannot_be_written_names_the_history(kindlm: Any, here: Path) -> None:
    assert kindlm("init", ".").code == 0
    (here / "compliance-reports").touch()
    done = kindlm("test", "--compliance", "--db", "all.db")
    assert done.code == 1
    assert " --format compliance -o FILE --db all.db\n" in done.err
