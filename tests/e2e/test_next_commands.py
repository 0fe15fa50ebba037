"""The command after `Next:` does what it says where it is typed."""

from __future__ import annotations

import shlex
import sys

import pytest
from inside import run_inside

SCENARIO = """
from kindlm import Trial, scenario


def answer(message: str) -> str:
    return "It is lost in the post."


@scenario("says where it is", agent=answer)
async def test_order(t: Trial) -> None:
    t.check(await t.agent.send("Where is it?")).contains("delivered")
"""


def next_command(shown: str) -> list[str]:
    """Return the words of the command that a report ends with, without `kindlm`."""
    (line,) = [line for line in shown.splitlines() if line.startswith("Next: ")]
    return shlex.split(line.removeprefix("Next: "))[1:]


def run_in(workspace, folder, *arguments, **env):
    return run_inside(arguments, cwd=folder, env={**workspace.env, **env})


@pytest.fixture
def failing(workspace, server):
    """A suite that passes, one beside it that fails, and one in a folder that fails."""
    suite = workspace.suite(server.url)
    passing = suite.read_text("utf-8")
    for name, test in (("other.yaml", "other"), ("my suites/my.yaml", "mine")):
        file = workspace.root / name
        file.parent.mkdir(exist_ok=True)
        text = passing.replace("name: orders", f"name: {test}").replace("delivered\n", "gone\n")
        file.write_text(text.replace("- delivered", "- gone"), "utf-8")
    return workspace


@pytest.mark.parametrize("path", ["other.yaml", "my suites/my.yaml", "my suites"])
def test_what_failed_is_run_again_on_the_paths_of_the_run(failing, path):
    assert failing.run("test").returncode == 0
    red = failing.run("test", path)
    assert red.returncode == 1
    command = next_command(red.stdout)
    assert command == ["test", path, "--failed"]

    again = failing.run(*command)
    assert again.returncode == 1
    assert "0 of 1 execution passed" in again.stdout
    # Also if the run is shown later.
    assert next_command(failing.run("show").stdout) == command


@pytest.mark.parametrize(
    "chosen",
    [
        ("-k", "mine or other"),
        ("--suite", "mine", "--compat", "evalview"),
        ("--test", "mine", "--test", "other"),
    ],
)
def test_what_failed_is_chosen_again_as_it_was(failing, chosen):
    red = failing.run("test", "kindlm.yaml", "other.yaml", "my suites", *chosen)
    command = next_command(red.stdout)
    assert command[-len(chosen) - 1 :] == [*chosen, "--failed"]
    again = failing.run(*command)
    assert again.returncode == 1
    assert next_command(again.stdout)[:-1] == command[:-1]


def test_paths_of_the_run_are_typed_from_the_current_folder(failing):
    folder = failing.root / "my suites"
    red = run_in(failing, folder, "test", "my.yaml", "../other.yaml")
    command = next_command(red.stdout)
    assert command == ["test", "my.yaml", "../other.yaml", "--failed"]
    assert " my.yaml:" in red.stdout
    assert "0 of 2 executions passed" in run_in(failing, folder, *command).stdout
    assert "mine  my.yaml\n" in run_in(failing, folder, "test", "my.yaml", "--dry-run").stdout
    assert "mine  my.yaml\n" in run_in(failing, folder, "list", "my.yaml").stdout
    assert next_command(failing.run("show").stdout)[1:3] == ["my suites/my.yaml", "other.yaml"]


def test_a_run_without_paths_is_run_again_without_paths(workspace, server):
    suite = workspace.suite(server.url)
    suite.write_text(suite.read_text("utf-8").replace("- delivered", "- gone"), "utf-8")
    for arguments in ([], ["kindlm.yaml"]):
        assert next_command(workspace.run("test", *arguments).stdout) == ["test", "--failed"]


def test_a_file_of_scenarios_in_a_project_without_a_suite_is_named_again(workspace):
    (workspace.root / "test_orders.py").write_text(SCENARIO, "utf-8")
    red = workspace.run("test", "test_orders.py")
    command = next_command(red.stdout)
    assert command == ["test", "test_orders.py", "--failed"]
    assert "0 of 1 execution passed" in workspace.run(*command).stdout


def test_a_history_that_was_named_is_named_again_when_a_run_is_shown(failing):
    failing.run("test", "other.yaml", "--db", "h.db")
    shown = failing.run("show", "--db", "h.db").stdout
    assert next_command(shown) == ["test", "other.yaml", "--failed", "--db", "h.db"]
    (look,) = [line.split()[2:] for line in shown.splitlines() if line.startswith("    look ")]
    assert failing.run(*look).returncode == 0


def test_where_nothing_has_failed_the_hint_names_the_paths_of_the_command(failing):
    failing.run("test")
    done = failing.run("test", "my suites", "--failed")
    assert "Run all of them: kindlm test 'my suites'" in done.stderr


def test_a_suite_with_a_mistake_is_validated_from_the_current_folder(failing):
    folder = failing.root / "my suites"
    (folder / "my.yaml").write_text("kindlm: 1\nagnt: http://127.0.0.1:1\n", "utf-8")
    red = run_in(failing, folder, "test", "my.yaml")
    command = next_command(red.stdout)
    assert command == ["validate", "my.yaml"]
    assert 'Unknown key "agnt"' in run_in(failing, folder, *command).stderr
    assert next_command(failing.run("show").stdout) == ["validate", "my suites/my.yaml"]
    # Who reads a comment is in the repository.
    report = run_in(failing, folder, "report", "--format", "markdown").stdout
    assert "`kindlm validate 'my suites/my.yaml'`" in report


def test_beside_failed_tests_a_suite_with_a_mistake_comes_first(failing):
    (failing.root / "broken.yaml").write_text("kindlm: 1\nagnt: http://127.0.0.1:1\n", "utf-8")
    red = failing.run("test", ".")
    assert "FAILED: 2 tests failed, 1 suite could not be run" in " ".join(red.stdout.split())
    assert next_command(red.stdout) == ["validate", "broken.yaml"]


def test_a_history_that_was_named_is_named_in_each_hint_of_a_command_that_takes_it(workspace):
    for arguments, suggested in (
        (["runs"], "Record a run: kindlm test --db 'a b.db'\n"),
        (["test", "--resume"], "Record a run: kindlm test --db 'a b.db'\n"),
        (["runs", "--nonsense"], "For help: kindlm runs --help\n"),
        (["push", "--insecure"], "Record a run: kindlm test --db 'a b.db'\n"),
    ):
        assert suggested in workspace.run(*arguments, "--db", "a b.db").stderr
    (workspace.root / "a b.db").write_text("no database", "utf-8")
    hint = "restore this one from a backup; kindlm history backup makes them.\n"
    assert hint in workspace.run("runs", "--db", "a b.db").stderr
    workspace.run("runs", "--db=a b.db")
    assert "Record a run: kindlm test\n" in workspace.run("runs").stderr


def test_a_command_without_a_history_gets_none(workspace):
    (workspace.root / "kindlm.yaml").write_text("kindlm: 1\nagnt: http://127.0.0.1:1\n", "utf-8")
    command = next_command(workspace.run("test", "--db", "h.db").stdout)
    assert command == ["validate", "kindlm.yaml"]
    assert 'Unknown key "agnt"' in workspace.run(*command).stderr


def test_a_service_that_does_not_start_is_tried_again(workspace, server):
    command = f"{sys.executable} -c 'raise SystemExit(1)'"
    service = {"name": "shop", "command": command, "ready": {"line": "never"}}
    workspace.suite(server.url, serve=[service])
    red = workspace.run("test", "kindlm.yaml")
    assert "CONFIG_FILE_REF_ERROR" in red.stdout
    assert next_command(red.stdout) == ["test"]
