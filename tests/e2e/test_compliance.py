"""The compliance report after a run: where it is written, and that it needs nothing but events."""

from __future__ import annotations

import re
from typing import Any

import pytest
from checked_server import LoopbackServer
from workspace import Workspace


@pytest.fixture(autouse=True)
def _latin_letters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no font with all letters: that takes longer than all else that makes a PDF."""
    monkeypatch.setattr("kindlm.reports.compliance_report._FONTS", ())


def files(workspace: Workspace) -> list[str]:
    root = workspace.root
    return sorted(str(f.relative_to(root)) for f in root.rglob("*") if f.suffix in (".md", ".pdf"))


@pytest.mark.parametrize(
    ("compliance", "arguments", "folder"),
    [
        ({"enabled": True, "outputDir": "./evidence"}, (), "evidence"),
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


def test_the_name_of_a_group_leads_out_of_no_folder(
    workspace: Workspace, server: LoopbackServer
) -> None:
    tests = [workspace.test("one"), workspace.test("two")]
    workspace.suite(server.url, tests=tests, compliance={"enabled": True})
    group = ("--run-group", "../../gh/12")
    workspace.run("test", "--shard", "1/2", *group)
    done = workspace.run_apart("test", "--resume", group[1])
    assert "PASSED: 2 tests passed" in done.stdout
    assert "compliance-reports/gh-12-orders.md" in files(workspace)
    assert not list(workspace.root.parent.glob("gh*"))


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
    [
        ("{% if %}", "mine.md, line 1"),
        ("{{ " + "(" * 5_000, "mine.md: it nests too deeply"),
        (None, '"mine.md" does not exist'),
    ],
)
def test_an_invalid_template_is_an_error_before_the_run(
    workspace: Workspace, server: LoopbackServer, template: str | None, said: str
) -> None:
    if template is not None:
        (workspace.root / "mine.md").write_text(template)
    workspace.suite(server.url, compliance={"framework": "custom", "template": "mine.md"})
    done = workspace.run("validate")
    assert done.returncode == 1
    assert said in done.stderr
    assert "kindlm.yaml:" in done.stderr


def test_suites_whose_names_are_alike_in_files_do_not_overwrite_each_other(
    workspace: Workspace, server: LoopbackServer
) -> None:
    for name, suite in (("a.yaml", "問い合わせ"), ("b.yaml", "注文"), ("c.yaml", "Suite")):
        workspace.suite(server.url, suite={"name": suite}).rename(workspace.root / name)
    workspace.run("test", "a.yaml", "b.yaml", "c.yaml", "--compliance")
    ((run,),) = workspace.query("SELECT id FROM runs")
    folder = workspace.root / "compliance-reports"
    texts = {file.name: file.read_text() for file in folder.iterdir()}
    assert sorted(texts) == [f"{run}-Suite-3.md", f"{run}-suite-2.md", f"{run}-suite.md"]
    for text, suite in zip(texts.values(), ("問い合わせ", "注文", "Suite"), strict=False):
        assert sum(f"for {suite}\n" in each for each in texts.values()) == 1, text


def test_a_folder_that_cannot_be_written_to_loses_no_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "taken").write_text("a file")
    workspace.suite(server.url, compliance={"enabled": True, "outputDir": "taken/reports"})
    done = workspace.run("test", "--reporter", "json=report.json")
    assert done.returncode == 1
    assert "compliance report could not be written" in done.stderr
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert workspace.query("SELECT ended, passed FROM runs") == [("finished", 1)]
    assert (workspace.root / "report.json").stat().st_size
    assert workspace.run("report", "--format", "compliance", "-o", "late.md").returncode == 0


def test_a_folder_behind_a_link_or_above_is_written_to(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "kept").mkdir()
    (workspace.root / "link").symlink_to("kept")
    (workspace.root / "suites").mkdir()
    written = workspace.suite(server.url, compliance={"enabled": True, "outputDir": "../link/x"})
    written.rename(workspace.root / "suites/kindlm.yaml")
    assert workspace.run("test", "suites/kindlm.yaml").returncode == 0
    ((run,),) = workspace.query("SELECT id FROM runs")
    assert files(workspace) == [f"kept/x/{run}-orders.md"]


@pytest.mark.parametrize("folder", ["link/out", "/tmp/out"])
def test_a_folder_outside_of_the_project_is_refused_before_anything_is_called(
    workspace: Workspace, server: LoopbackServer, folder: str
) -> None:
    (workspace.root / "link").symlink_to(workspace.root.parent)
    workspace.suite(server.url, compliance={"enabled": True, "outputDir": folder})
    done = workspace.run("test")
    assert done.returncode == 1
    assert "is outside the project" in done.stderr
    assert not server.requests
    assert not (workspace.root.parent / "out").exists()


def test_a_template_that_fails_is_reported_and_changes_no_verdict(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "mine.md").write_text("{{ 'x' * 10 ** 10 }}")
    custom = {"enabled": True, "framework": "custom", "template": "mine.md"}
    workspace.suite(server.url, compliance=custom)
    said = "The template mine.md of the compliance report failed: it takes more than"
    done = workspace.run("test", "--pdf", "out.pdf")
    assert done.returncode == 1
    assert done.stderr.count(said) == 1
    assert "Compliance report:" not in done.stderr
    assert workspace.query("SELECT passed FROM runs") == [(1,)]
    file, template, pdf = files(workspace)
    assert (template, pdf) == ("mine.md", "out.pdf")
    assert (workspace.root / file).read_text().startswith("# The report could not be written\n")
    for arguments in (("--format", "compliance"), ("--pdf", "again.pdf")):
        again = workspace.run("report", *arguments)
        assert again.returncode == 1
        assert said in again.stderr


def test_a_pdf_holds_the_documents_that_are_enabled_or_asked_for(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.suite(server.url, compliance={"enabled": True})
    assert workspace.run("test", "--pdf", "out.pdf").returncode == 0
    assert (workspace.root / "out.pdf").read_bytes().startswith(b"%PDF-")
    refused = workspace.run("test", "--pdf", "-")
    assert refused.returncode == 1
    assert "Name a file: --pdf FILE" in refused.stderr
    assert workspace.run("report", "--pdf", "-").returncode == 1
    assert not (workspace.root / "-").exists()
    workspace.suite(server.url)
    refused = workspace.run("test", "--pdf", "other.pdf")
    assert refused.returncode == 1
    assert "Add --compliance" in refused.stderr
    assert "compliance.enabled" in refused.stderr
    assert len(workspace.query("SELECT id FROM runs")) == 1
    assert workspace.run("test", "--compliance", "--pdf", "new/out.pdf").returncode == 0
    assert (workspace.root / "new/out.pdf").read_bytes().startswith(b"%PDF-")


def test_it_is_written_where_no_run_has_finished_yet(
    workspace: Workspace, server: LoopbackServer
) -> None:
    failing = workspace.test(expect={"output": {"contains": ["nothing of the kind"]}})
    workspace.suite(server.url, tests=[failing, workspace.test("second")])
    done = workspace.run("test", "--compliance", "--fail-fast", "--concurrency", "1")
    assert done.returncode == 1
    assert workspace.query("SELECT ended FROM runs") == [("interrupted",)]
    (file,) = files(workspace)
    assert "| none finished | | | |" in (workspace.root / file).read_text()


def test_shards_are_compared_with_the_accepted_run_as_one(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.suite(server.url, tests=[workspace.test(name) for name in ("first", "second")])
    workspace.run("test")
    workspace.run("baseline", "set", "latest")
    for shard in ("1/2", "2/2"):
        workspace.run("test", "--shard", shard, "--run-group", "nightly")
    told = workspace.run("report", "nightly", "--format", "compliance").stdout
    assert "This suite compared with it: **UNCHANGED**; 2 as before\n" in told


def test_a_pdf_that_cannot_be_written_is_reported(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.suite(server.url)
    done = workspace.run("test", "--compliance", "--pdf", "/dev/full")
    assert done.returncode == 1
    assert "could not be written to /dev/full: No space left on device" in done.stderr
    assert "--format compliance --pdf FILE" in done.stderr
    assert workspace.query("SELECT ended, passed FROM runs") == [("finished", 1)]


def test_a_pdf_takes_the_place_of_nothing_else(
    workspace: Workspace, server: LoopbackServer
) -> None:
    suite = workspace.suite(server.url)
    workspace.run("test")
    kept = suite.read_bytes()
    test = ("test", "--compliance", "--reporter", "json=kept.md", "--pdf")
    report = ("report", "--format", "compliance", "-o", "kept.md", "--pdf")
    taken = (".kindlm/kindlm.db", "kept.md", ".")
    # A report of a recorded run has nothing to do with the suites that are there.
    for command in (
        (*test, "kindlm.yaml"),
        *((*c, file) for c in (test, report) for file in taken),
    ):
        done = workspace.run(*command)
        assert done.returncode == 1, command
        assert re.search("would (overwrite|be written)|is a folder", done.stderr), command
    assert suite.read_bytes() == kept
    assert files(workspace) == []
    assert len(workspace.query("SELECT id FROM runs")) == 1
