"""The compliance report after a run: where it is written, and that it needs nothing but events."""

from __future__ import annotations

from typing import Any

import pytest
from workspace import Workspace

from kindlm.testing import LoopbackServer


def files(workspace: Workspace) -> list[str]:
    root = workspace.root
    return sorted(str(f.relative_to(root)) for f in root.rglob("*") if f.suffix in (".md", ".pdf"))


@pytest.mark.parametrize(
    ("compliance", "arguments", "folder"),
    [
        ({"enabled": True, "outputDir": "./evidence"}, (), "evidence"),
        ({"enabled": False}, ("--compliance",), "compliance-reports"),
        (None, ("--compliance",), "compliance-reports"),
        ({"enabled": False}, (), None),
    ],
)
def test_it_is_written_after_a_run_that_wants_it(
    workspace: Workspace,
    server: LoopbackServer,
    compliance: Any,
    arguments: tuple[str, ...],
    folder: str | None,
) -> None:
    changes = {} if compliance is None else {"compliance": compliance}
    workspace.suite(server.url, suite={"name": "orders / nightly"}, **changes)
    done = workspace.run("test", *arguments)
    ((run,),) = workspace.query("SELECT id FROM runs")
    expected = [] if folder is None else [f"{folder}/{run}-orders-nightly.md"]
    assert files(workspace) == expected
    for file in expected:
        assert file in done.stderr
        again = workspace.run("report", run, "--format", "compliance").stdout
        assert (workspace.root / file).read_text() == again


def test_what_it_says_of_the_system_is_in_the_history(
    workspace: Workspace, server: LoopbackServer
) -> None:
    metadata = {"systemName": "Order Desk", "riskLevel": "high"}
    (workspace.root / "mine.md").write_text("# {{ system.systemName }}: {{ gates | length }}\n")
    custom = {"enabled": True, "framework": "custom", "template": "mine.md", "metadata": metadata}
    workspace.suite(server.url, compliance=custom)
    workspace.run("test")
    (workspace.root / "mine.md").unlink()
    (workspace.root / "kindlm.yaml").unlink()
    told = workspace.run("report", "--format", "compliance").stdout
    assert told.startswith("# Order Desk: 4\n")


@pytest.mark.parametrize(
    ("template", "said"),
    [("{% if %}", "mine.md, line 1"), (None, '"mine.md" does not exist')],
)
def test_a_template_that_is_none_is_an_error_before_the_run(
    workspace: Workspace, server: LoopbackServer, template: str | None, said: str
) -> None:
    if template is not None:
        (workspace.root / "mine.md").write_text(template)
    workspace.suite(server.url, compliance={"framework": "custom", "template": "mine.md"})
    done = workspace.run("validate")
    assert done.returncode == 1
    assert said in done.stderr
    assert "kindlm.yaml:" in done.stderr


def test_a_pdf_is_made_where_it_is_asked_for(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.suite(server.url)
    assert workspace.run("test", "--compliance", "--pdf", "out/report.pdf").returncode == 0
    assert (workspace.root / "out/report.pdf").read_bytes().startswith(b"%PDF-")
    refused = workspace.run("test", "--pdf", "x.pdf")
    assert refused.returncode == 1
    assert "Add --compliance" in refused.stderr
    assert len(workspace.query("SELECT id FROM runs")) == 1
