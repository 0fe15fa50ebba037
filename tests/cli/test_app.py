"""The command line as a whole: start-up, exit codes, and how it ends when things go wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm import reports
from kindlm.cli import console
from kindlm.cli.app import COMMANDS, load_command

REPORTS = Path(reports.__path__[0])

HEAVY = {
    "anthropic",
    "asyncio",
    "datasette",
    "genai_prices",
    "httpx",
    "httpx2",
    "jinja2",
    "jsonschema",
    "kindlm.config",
    "kindlm.engine",
    "kindlm.events",
    "kindlm.history",
    "kindlm_store",
    "openai",
    "pydantic",
    "regex",
    "rich",
    "sqlite_utils",
    "uvicorn",
    "yaml",
}


# What only reads a history is at hand for it; to show values, rich and pydantic are there anyway.
FOR_READING = {"kindlm.history", "kindlm_store", "pydantic", "rich"}


def loaded_by(*commands: tuple[str, ...]) -> tuple[int, set[str]]:
    """Return the exit code of commands in a fresh process, and the modules they have loaded."""
    script = (
        "import sys, json\n"
        "from kindlm.cli.app import run\n"
        f"code = max(run(list(command)) for command in {commands!r})\n"
        "json.dump([code, sorted(sys.modules)], sys.stderr)\n"
    )
    # Without any secret: to hide one, the words of the events have to be known.
    environ = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, check=True, env=environ)
    code, loaded = json.loads(done.stderr.decode().splitlines()[-1])
    return code, set(loaded)


def test_help_loads_nothing_heavy() -> None:
    code, loaded = loaded_by(("--help",))
    assert code == 0
    assert loaded & HEAVY == set()


def test_the_list_of_commands_says_what_their_own_help_begins_with() -> None:
    for group, prefix in ((load_command(""), ""), (load_command("history"), "history ")):
        for name, text in (each for texts in group.sections.values() for each in texts.items()):
            its = load_command(prefix + name).help
            assert " ".join(its.split()).startswith(text), name


def test_what_only_reads_loads_little(history: Any) -> None:
    run = history.run()
    run.suite()
    run.execution()
    run.finish()
    db = ("--db", str(history.path))
    code, loaded = loaded_by(("runs", *db), ("show", *db), ("show", "latest", "1", *db))
    assert code == 0
    assert loaded & (HEAVY - FOR_READING) == set()


@pytest.mark.parametrize("group", [[], ["history"], ["baseline"], ["token"]])
def test_lists_of_commands_show_whole_sentences_on_a_narrow_terminal(
    kindlm: Any, monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = kindlm(*group, "--help").out
    assert [line for line in text.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize("arguments", [["--help"], ["--help", "runs"], ["-h", "test"]])
def test_help_names_every_command(kindlm: Any, arguments: list[str]) -> None:
    outcome = kindlm(*arguments)
    for name in ("init", "validate", "test", "runs", "show", "report", "browse", "history"):
        assert f"\n  {name} " in outcome.out
    # Names of other tools work, but help shows ours.
    assert "\n  run " not in outcome.out


@pytest.mark.parametrize("command", ["test", "report"])
def test_help_names_every_report(kindlm: Any, command: str) -> None:
    own = {file.name.removesuffix("_report.py") for file in REPORTS.glob("*_report.py")}
    text = " ".join(kindlm(command, "--help").out.split())
    listed = re.search(r"terminal, json[^.]* of a package\.", text)
    assert listed
    assert own <= {*re.findall(r"\w+", listed[0])} | (
        {"compliance"} if command == "test" else set()
    )


@pytest.mark.parametrize(
    "arguments", [("runs", "--suite", "a\udcff"), ("diff", "a\udcff"), ("import", "\udcff.db")]
)
def test_an_argument_that_is_no_utf8_is_a_mistake_of_use(
    kindlm: Any, here: Path, arguments: tuple[str, ...]
) -> None:
    outcome = kindlm(*arguments)
    assert outcome.code == 1
    assert "is not UTF-8" in outcome.err
    assert r"\xff" in outcome.err
    assert not list(here.iterdir())


@pytest.mark.parametrize("arguments", [["runs"], ["bogus"], ["test"]])
def test_a_folder_that_was_removed_is_a_mistake_of_use(
    arguments: list[str], kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = here / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    outcome = kindlm(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("✗ The current folder does not exist any more.\n")


def test_the_version_is_printed(kindlm: Any) -> None:
    from kindlm import __version__

    outcome = kindlm("--version")
    assert (outcome.code, outcome.out) == (0, f"kindlm {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["runs", "--nonsense"],
        ["runs", "--limit", "0"],
        ["init", "--template", "nonsense"],
    ],
)
def test_wrong_usage_exits_with_1_and_writes_no_report(kindlm: Any, arguments: list[str]) -> None:
    outcome = kindlm(*arguments)
    assert outcome.code == 1
    assert outcome.out == ""
    assert "--help" in outcome.err


def options_with_one_value() -> Iterator[tuple[list[str], Any]]:
    for name in COMMANDS:
        command = load_command(name)
        for under, each in getattr(command, "commands", {"": command}).items():
            for option in each.params if each else ():
                if option.param_type_name == "option" and not (option.is_flag or option.multiple):
                    yield [*name.split(), *under.split()], option


def test_an_option_with_one_value_is_given_once(kindlm: Any) -> None:
    found = list(options_with_one_value())
    assert len(found) > 150
    for command, option in found:
        value = ["1"] * option.nargs
        outcome = kindlm(*command, option.opts[0], *value, option.opts[-1], *value)
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(f"✗ {option.opts[0]} is given 2 times, and takes one value.")
        assert f"kindlm {' '.join(command)} --help" in outcome.err


def test_help_is_shown_also_beside_wrong_usage(kindlm: Any) -> None:
    outcome = kindlm("test", "-s", "a", "-s", "b", "", "--help")
    assert outcome.code == 0
    assert "--suite" in outcome.out


@pytest.mark.parametrize("form", [["-s", ""], ["--test="], ["-c", ""], [""], ["kindlm.yaml", ""]])
@pytest.mark.parametrize("command", ["test", "list", "watch", "replay"])
def test_an_empty_text_chooses_no_tests(kindlm: Any, command: str, form: list[str]) -> None:
    outcome = kindlm(command, *form)
    assert outcome.code == 1
    assert re.match(r"✗ (--suite|--test|--config|PATH|RUN) is empty\.\n", outcome.err)


def test_a_short_option_takes_its_value_after_an_equals_sign(kindlm: Any, here: Path) -> None:
    assert kindlm("schema", "-o=s.json").code == 0
    assert kindlm("schema", "-o", "-").out == (here / "s.json").read_text("utf-8")
    assert [path.name for path in here.iterdir()] == ["s.json"]


def test_commands_with_a_history_are_suggested_with_the_one_that_was_named() -> None:
    takes = {
        " ".join([name, *under.split()])
        for name in COMMANDS
        for under, each in getattr(load_command(name), "commands", {"": load_command(name)}).items()
        if each and any("--db" in parameter.opts for parameter in each.params)
    }
    console.set_database("h.db")
    for name in {*takes, *COMMANDS} - {"history", "baseline", "token"}:
        more = " --db h.db" if name in takes else ""
        assert (
            console.typed(f"Try: kindlm {name} a.b; or not")
            == f"Try: kindlm {name} a.b{more}; or not"
        )
    assert console.typed("Try: kindlm runs --db o.db") == "Try: kindlm runs --db o.db"
    of_group = "See it: kindlm show 'nightly, GPU'"
    assert console.typed(f"{of_group}. Or not") == f"{of_group} --db h.db. Or not"
    console.set_database(None)


def test_a_command_that_does_not_know_an_option_says_where_to_look(kindlm: Any) -> None:
    outcome = kindlm("runs", "--nonsense")
    assert outcome.err.startswith("✗ No such option: --nonsense")
    assert "kindlm runs --help" in outcome.err


def test_a_changed_table_is_one_line_and_a_trace_if_asked_for(kindlm: Any, history: Any) -> None:
    run = history.run()
    run.suite()
    run.finish()
    with closing(sqlite3.connect(history.path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET started_at = '0'")
    plain = kindlm("runs", "--db", history.path)
    assert plain.code == 1
    assert plain.err.startswith("✗ kindlm itself failed: ValueError: ")
    assert "find changed events: kindlm history verify" in plain.err
    assert "tables again: kindlm history rebuild" in plain.err
    assert "Traceback" not in plain.err
    assert "--verbose" in plain.err
    assert "Traceback" in kindlm("runs", "--db", history.path, "--verbose").err


def test_debug_shows_traces_too(kindlm: Any, history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = history.run()
    run.suite()
    run.finish()
    with closing(sqlite3.connect(history.path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET started_at = '0'")
    monkeypatch.setenv("DEBUG", "other,kindlm*")
    assert "Traceback" in kindlm("runs", "--db", history.path).err


@pytest.mark.parametrize(("options", "is_asked"), [("-xv", True), ("-vq", True), ("-x", False)])
def test_short_options_may_be_written_together(kindlm: Any, options: str, is_asked: bool) -> None:
    assert kindlm("init", ".").code == 0
    assert ("finish reason stop" in " ".join(kindlm("test", options).out.split())) is is_asked


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_not_an_error(process: Any, unbuffered: str) -> None:
    started = process("explain", environ={"PYTHONUNBUFFERED": unbuffered})
    started.stdout.close()
    assert started.stderr.read() == b""
    started.stderr.close()
    assert started.wait(30) == 1


def print_codes(redirection: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "kindlm", "explain"])
    return subprocess.run(
        ["sh", "-c", f"{command} {redirection}"], capture_output=True, text=True, check=False
    )


def test_standard_output_that_takes_nothing_is_an_error_to_tell(here: Path) -> None:
    full = print_codes("> /dev/full")
    assert full.returncode == 1
    assert full.stderr.startswith("✗ No space left on device.\n")
    assert "Exception ignored" not in full.stderr


@pytest.mark.parametrize("redirection", [">&-", "2>&-"])
def test_streams_may_be_closed(here: Path, redirection: str) -> None:
    closed = print_codes(redirection)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_output_is_utf_8_in_every_locale(process: Any, history: Any) -> None:
    run = history.run(label="Prüfung ✓")
    run.suite()
    run.finish()
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    out, _ = process("runs", "--db", history.path, environ=settings).communicate(timeout=30)
    assert "Prüfung ✓" in out.decode("utf-8")


def test_python_m_kindlm_passes_the_exit_code_on(process: Any) -> None:
    started = process("runs")
    out, err = started.communicate(timeout=30)
    assert started.returncode == 1
    assert out == b""
    assert "kindlm test" in err.decode()
