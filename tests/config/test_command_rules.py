"""Keys of a test that mean nothing beside a command, or without one."""

from __future__ import annotations

from collections.abc import Callable

from kindlm.config import LoadedSuite

Load = Callable[..., LoadedSuite]

COMMAND = """\
kindlm: 1
project: shop
suite: {name: program}
prompts: {ask: {user: Hello}}
tests:
  - name: t
    command: echo hello
    expect: {output: {contains: [hello]}}
"""


def errors(loaded: LoadedSuite) -> list[tuple[str, str | None]]:
    return [
        (found.path, found.error.hint) for found in loaded.diagnostics if found.severity == "error"
    ]


def test_a_prompt_beside_a_command_is_said_to_exclude_it(load: Load) -> None:
    loaded = load(COMMAND.replace("command:", "prompt: ask\n    command:"))
    (found,) = [each for each in loaded.diagnostics if each.severity == "error"]
    assert (loaded.suite, found.path) == (None, "tests[0].prompt")
    assert "`prompt` and `command` cannot be combined" in found.error.message


def test_a_command_may_say_that_it_reports_its_tool_calls(load: Load) -> None:
    loaded = load(COMMAND.replace("command:", "reportsTools: true\n    command:"))
    assert loaded.suite is not None
    command = loaded.suite.cases[0].command
    assert command is not None
    assert command.reports_tools


def test_a_test_without_a_command_says_it_of_its_agent(load: Load, minimal: str) -> None:
    loaded = load(minimal.replace("prompt: ask", "prompt: ask\n    reportsTools: true"))
    ((path, hint),) = errors(loaded)
    assert path == "tests[0].reportsTools"
    assert "`agents`" in (hint or "")


def test_what_is_not_written_changes_no_identity(load: Load) -> None:
    without = load(COMMAND).suite
    said = load(COMMAND.replace("command:", "reportsTools: true\n    command:")).suite
    assert without is not None
    assert said is not None
    assert "reportsTools" not in without.config_text
    assert without.config_hash != said.config_hash
