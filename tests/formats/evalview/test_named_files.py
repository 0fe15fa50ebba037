"""Files of a folder that are named by themselves: the suite is that of the folder all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.app import run
from kindlm.errors import Ok
from kindlm.recording.loading import Loaded, load_paths
from kindlm_store import open_reader

Call = Callable[..., tuple[int, dict[str, Any]]]

CASE = """\
name: {name}
input: {{query: "What of {name}?"}}
expected: {{output: {{contains: [asked]}}}}
thresholds: {{min_score: 40}}
"""

NAMES = ("a", "b", "c")


@pytest.fixture
def project(tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path, ".evalview/config", f"endpoint: {agent.url}\n")
    for name in NAMES:
        write(tmp_path, f"cases/{name}", CASE.format(name=name))
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.fixture
def call(project: Path) -> Call:
    """Call a command that runs tests; return its exit code and its JSON report."""

    def called(command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        report = project / "report.json"
        code = run([command, *arguments, "--no-progress", "-q", "--reporter", f"json={report}"])
        return code, json.loads(report.read_text("utf-8"))

    return called


def suites(project: Path) -> set[tuple[str, str, str]]:
    """Return the name, path and hash of each suite that was recorded."""
    with closing(open_reader(project / ".kindlm" / "kindlm.db")) as db:
        rows = db.execute("SELECT name, path, config_hash FROM suites")
        return {(row[0], row[1], row[2]) for row in rows}


def ran(report: dict[str, Any]) -> set[str]:
    return {test["name"] for test in report["tests"] if test["status"] != "skipped"}


def kinds(report: str) -> dict[str, str]:
    found = json.loads(report)
    tests = found["tests"] if "tests" in found else found["comparisons"][0]["diff"]["tests"]
    return {test["name"]: test["change"] for test in tests}


def test_a_suite_is_the_same_whichever_way_its_cases_are_named(
    project: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(call("test", "cases")[1]) == set(NAMES)
    assert ran(call("test", "cases/b.yaml")[1]) == {"b"}
    assert ran(call("test", "./cases/a.yaml", "cases/c.yaml")[1]) == {"a", "c"}
    assert ran(call("test", "cases", "--shard", "2/2", "--run-group", "g")[1]) == {"b"}
    monkeypatch.chdir(project / "cases")
    assert ran(call("test", ".")[1]) == set(NAMES)
    assert ran(call("test", "b.yaml")[1]) == {"b"}
    ((name, path, _),) = suites(project)
    assert (name, path) == ("cases", "cases")


def test_shards_of_different_files_are_not_parts_of_one_run(
    project: Path, call: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shard(index: int, group: str, *paths: str) -> None:
        assert call("test", *paths, "--shard", f"{index}/2", "--run-group", group)[0] == 0

    shard(1, "different", "cases/a.yaml", "cases/b.yaml")
    shard(2, "different", "cases")
    shard(1, "alike", "cases")
    monkeypatch.chdir(project / "cases")
    shard(2, "alike", str(project / "cases"))
    capsys.readouterr()
    assert run(["show", "different"]) == 1
    assert "ran with different options (paths)" in " ".join(capsys.readouterr().err.split())
    assert run(["show", "alike"]) == 0


def test_what_was_not_named_was_not_run_and_is_not_removed(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    call("test", "cases")
    call("test", "cases/a.yaml")
    capsys.readouterr()
    assert run(["diff", "previous", "latest", "--format", "json"]) == 0
    assert kinds(capsys.readouterr().out) == {"a": "unchanged", "b": "not run", "c": "not run"}


@pytest.mark.parametrize("named", ["cases/a.yaml", "cases"])
def test_tests_of_a_file_that_could_not_be_loaded_are_not_removed(
    project: Path, call: Call, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    call("test", "cases")
    assert run(["baseline", "set"]) == 0
    write(project, "cases/b", CASE.format(name="b").replace("[asked]", "[asked"))
    assert call("test", named)[0] == int(named == "cases")
    capsys.readouterr()
    run(["diff", "previous", "latest", "--format", "json"])
    assert kinds(capsys.readouterr().out)["b"] == "not run"
    run(["baseline", "compare", "--format", "json"])
    assert kinds(capsys.readouterr().out)["b"] == "not run"


def test_only_what_is_wrong_with_the_named_file_is_reported(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "cases/b", CASE.format(name="b") + "metadata: 1\n")
    write(project, "cases/c", CASE.format(name="c").replace("[asked]", "[asked"))
    assert run(["validate", "cases/a.yaml"]) == 0
    assert capsys.readouterr().out.endswith("1 file, 1 test: no problems\n")
    assert run(["validate", "cases/b.yaml"]) == 0
    assert capsys.readouterr().out.endswith("1 file, 1 test: 1 warning\n")
    assert run(["validate", "cases/c.yaml"]) == 1
    assert run(["test", "--no-progress", "-q", "cases/a.yaml"]) == 0


def test_a_run_of_one_file_is_resumed_rescored_and_replayed_as_that(
    project: Path, agent: Any, call: Call
) -> None:
    code, report = call("test", "cases/b.yaml", "--max-time", "0")
    assert report["run"]["status"] == "aborted"
    code, report = call("test", "--resume")
    assert (code, ran(report)) == (0, {"b"})
    write(project, "cases/c", CASE.format(name="c").replace("[asked]", "[asked"))
    for arguments in (["rescore"], ["rescore", "-c", "cases/b.yaml"], ["replay", "cases/b.yaml"]):
        code, report = call(*arguments)
        assert (code, ran(report)) == (0, {"b"}), arguments
    assert [asked["query"] for asked in agent.asked] == ["What of b?"]


def test_replayed_without_a_path_is_what_the_run_tested_and_what_is_new_in_it(
    project: Path, agent: Any, call: Call
) -> None:
    call("test", "cases/a.yaml")
    assert (code_and_ran := call("replay"))[0] == 0
    assert ran(code_and_ran[1]) == {"a"}
    call("test", "cases", "-t", "b")
    code, report = call("replay")
    assert (code, ran(report)) == (0, {"b"})
    write(project, "cases/d", CASE.format(name="d"))
    code, report = call("replay")
    assert (code, ran(report)) == (1, {"b", "d"})
    code, report = call("replay", "cases")
    assert (code, ran(report)) == (1, {*NAMES, "d"})


def test_a_file_with_a_syntax_error_is_reported_beside_good_ones_and_its_test_is_not_removed(
    project: Path, call: Call, capfd: pytest.CaptureFixture[str]
) -> None:
    call("test", "cases")
    write(project, "cases/b", "name: [\n")
    capfd.readouterr()
    code, report = call("test", "cases")
    assert (code, ran(report)) == (1, {"a", "c"})
    assert "b.yaml" in capfd.readouterr().err
    run(["diff", "previous", "latest", "--format", "json"])
    assert kinds(capfd.readouterr().out)["b"] == "not run"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (CASE.replace("name:", "nane:").replace("input", "imput"), '"name"'),
        (CASE.replace("name:", "Name:").replace("input", "Input"), '"input"'),
    ],
)
def test_a_case_whose_keys_are_misspelt_is_an_error_that_says_what_is_meant(
    project: Path, call: Call, text: str, hint: str
) -> None:
    write(project, "cases/b", text.format(name="b"))
    found = loaded(project / "cases", root=project)
    assert [skipped.path for skipped in found.skipped] == ["cases/b.yaml"]
    hints = [item.error.hint for item in found.diagnostics]
    assert f"Did you mean {hint}?" in hints


def loaded(*paths: Path, root: Path) -> Loaded:
    result = load_paths(paths, root)
    assert isinstance(result, Ok)
    return result.value


def test_a_link_is_the_case_that_it_leads_to(project: Path) -> None:
    (project / "cases" / "z.yaml").symlink_to("a.yaml")
    (whole,) = loaded(project / "cases", root=project).suites
    found = loaded(project / "cases" / "z.yaml", root=project)
    assert found.suites[0].config_hash == whole.config_hash
    assert found.unnamed == {("cases", "b"), ("cases", "c")}


def test_a_file_of_another_suffix_is_a_case_once_it_is_named(project: Path) -> None:
    (project / "cases" / "b.yaml").rename(project / "cases" / "b.case")
    found = loaded(project / "cases" / "b.case", root=project)
    assert found.unnamed == {("cases", "a"), ("cases", "c")}


@pytest.fixture
def unreadable(project: Path) -> str:
    """A file that nobody can read, not even root."""
    memory = Path("/proc/self/mem")
    if not memory.exists():
        pytest.skip("there is no file here that cannot be read")
    (project / "cases" / "odd.yaml").symlink_to(memory)
    return "cases/odd.yaml"


def test_a_file_that_cannot_be_read_is_reported_and_the_others_run(
    project: Path, call: Call, unreadable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = call("test", "cases")
    assert (code, ran(report) >= set(NAMES)) == (1, True)
    told = capsys.readouterr().err
    assert told.count(f"'{unreadable}' cannot be read: Input/output error") == 1
    assert call("test", "cases/a.yaml")[0] == 0


def test_a_file_that_cannot_be_read_beside_other_suites_is_reported(
    project: Path, unreadable: str
) -> None:
    assert unreadable
    for name in NAMES:
        (project / "cases" / f"{name}.yaml").unlink()
    write(project, "cases/own", "kindlm: 1\n")
    found = loaded(project / "cases", root=project)
    assert [Path(skipped.path).name for skipped in found.skipped] == ["odd.yaml", "own.yaml"]
    assert len(found.files) == 2
