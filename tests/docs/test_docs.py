"""What the docs say is true: examples run, and generated parts are up to date."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import loaded_kindlm
from workspace import new_workspace

from kindlm.cli.app import run
from kindlm.projections import VIEWS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "store" / "README.md", *ROOT.glob("docs/**/*.md")])


def block(page: str, marker: str, language: str) -> str:
    """Return the code behind an HTML comment of a page."""
    text = (ROOT / page).read_text("utf-8")
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"{page} has no {marker!r}"
    return found[1]


def test_the_first_suite_of_the_docs_passes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suite = block("docs/tutorial/getting-started.md", "suite: runs", "yaml")
    Path("kindlm.yaml").write_text(suite, "utf-8")
    assert run(["test", "--reporter", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["executions"]["passed"] == 1
    assert len(report["tests"][0]["executions"][0]["assertions"]) == 3


def test_the_checks_of_the_docs_pass(tmp_path):
    page = "docs/how-to/checks.md"
    (tmp_path / "kindlm.yaml").write_text(block(page, "checks: suite", "yaml"), "utf-8")
    (tmp_path / "checks.py").write_text(block(page, "checks: function", "python"), "utf-8")
    (tmp_path / "judge.yaml").write_text(block(page, "checks: judge", "yaml"), "utf-8")
    done = new_workspace(tmp_path).run("test", "kindlm.yaml", "judge.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_import_of_the_docs_writes_the_suite_of_the_docs(tmp_path, monkeypatch, capsys):
    page = "docs/how-to/import-suites.md"
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    Path("promptfooconfig.yaml").write_text(block(page, "import: config", "yaml"), "utf-8")
    assert run(["import-suite", "promptfooconfig.yaml"]) == 0
    assert capsys.readouterr().err == block(page, "import: output", "console").partition("\n")[2]
    assert Path("kindlm.yaml").read_text("utf-8") == block(page, "import: suite", "yaml")


def test_the_attacks_of_the_docs_run(tmp_path, monkeypatch, capsys):
    page = "docs/how-to/attack-tests.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "support.md").write_text("You serve a shop.", "utf-8")
    suite = tmp_path / "kindlm.yaml"
    for what, listed in (("model", "openai/gpt-4o"), ("agent", "agent  skipped")):
        suite.write_text(block(page, f"attacks: {what}", "yaml"), "utf-8")
        assert run(["list", "pack:owasp-agentic"]) == 0
        printed = capsys.readouterr().out
        assert listed in printed
        assert "40 tests" in printed
    suite.write_text(block(page, "attacks: canary", "yaml"), "utf-8")
    assert run(["test"]) == 0
    assert "Attack success rate: 0 of 1 (0 %" in capsys.readouterr().out


OTHER_ROOMS = ("store/", "migrations/")
DEVELOPERS = (
    "contributing/parts.md",
    "how-to/extending.md",
    "explanation/inside.md",
    "explanation/inside-parts.md",
)
SOURCES = [
    path.relative_to(ROOT).as_posix()
    for room in ("kindlm", "store", "migrations", "tests", "docs")
    for path in ROOT.joinpath(room).rglob("*.py")
]


def test_every_room_and_module_has_its_place_in_the_description():
    page = (ROOT / "docs" / "explanation" / "inside.md").read_text("utf-8")
    rooms = page.partition("## The rooms\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \|", rooms, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]
    named = [name.removeprefix("kindlm/") for name in names if not name.startswith(OTHER_ROOMS)]
    package = ROOT / "kindlm"
    modules = [path.name for path in package.glob("[!_]*.py")]
    packages = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert sorted(named) == sorted(modules + packages)


NAMES = r"((?:`[\w.]+`(?:,? and |, | or ))*`[\w.]+`)"
PLACED = re.compile(rf"{NAMES}s? (?:\(|in |of )`([\w/.]+\.py)`")


def test_names_are_in_the_modules_that_the_docs_name():
    text = "".join((ROOT / "docs" / page).read_text("utf-8") for page in DEVELOPERS)
    placed = PLACED.findall(" ".join(text.split()))
    assert len(placed) > 50
    for names, module in placed:
        files = [path for path in SOURCES if f"/{path}".endswith(f"/{module}")]
        code = "".join((ROOT / path).read_text("utf-8") for path in files)
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b{name}\b", code), f"{module} has no {name}"


def test_the_views_that_stay_are_there():
    page = (ROOT / "docs" / "reference" / "stability.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert {*named} <= {*VIEWS.views, "event_log"}
    assert len(named) == 8


def test_generated_parts_are_up_to_date():
    pages = [str(page) for page in PAGES if "[[[cog" in page.read_text("utf-8")]
    assert pages
    done = loaded_kindlm.run(
        ["--check", *pages],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        timeout_s=200.0,
        module="cogapp",
    )
    assert done.returncode == 0, done.stdout + done.stderr
