"""`kindlm demo`: finds a change in a bundled agent, without a key or a network."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import closing
from pathlib import Path

import typer

from kindlm.cli.console import or_fail, refuse, wants_color
from kindlm.cli.history import open_recorded
from kindlm.cli.new_project import create_project
from kindlm.cli.options import TestOptions, argument
from kindlm.recording.project import Project
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm_store import open_reader

_AGENT = "# The agent under test, played by kindlm's loopback server.\nextends: {}\n"
_GOOD = _AGENT.format("support")
_CHANGED = _AGENT.format("support-changed")


def demo_command(
    folder: Path = argument(
        "FOLDER", "Folder for the files and the history of the demo.", default=Path("kindlm-demo")
    ),
) -> None:
    """Watch kindlm find a change in a bundled agent."""
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.diff.terminal import write_diff

    agent = folder / "agent.yaml"
    database = folder / ".kindlm" / "kindlm.db"
    options = ReportOptions(
        color=wants_color(sys.stdout),
        width=shutil.get_terminal_size().columns,
        database=str(database),  # suggested commands need it outside the folder
    )
    page = Page(sys.stdout, options)
    _write_files(folder, agent)
    page.unbroken((f"Created a support agent and its tests in {folder}/.", "dim"))

    page.heading("1  The agent as it is")
    agent.write_text(_GOOD, encoding="utf-8")
    before = _record(folder, database, "before")
    page.heading("2  The same agent, after a change for speed")
    agent.write_text(_CHANGED, encoding="utf-8")
    after = _record(folder, database, "after")

    page.heading("3  What changed: kindlm diff")
    page.blank()
    with closing(open_reader(database)) as reader:
        diff = compare_runs(reader, before, after, DiffOptions())
        write_diff(diff, sys.stdout, options)
        is_as_planned = diff.before.passed and not diff.after.passed and diff.fails
    page.heading("Look closer")
    for command, what in (
        ("kindlm diff", "this comparison, also with --format html"),
        ("kindlm browse", "the whole history, in Datasette"),
        (f"kindlm show {after} 1", "one conversation with all its evidence"),
        ("kindlm test", f"run it yourself; the agent is {agent.name}"),
    ):
        line = f"cd {shlex.quote(str(folder))} && {command}"
        page.unbroken((f"{line:<44}", "bold"), (f" {what}", "dim"), indent=3)
    if not is_as_planned:
        raise typer.Exit(1)


def _write_files(folder: Path, agent: Path) -> None:
    """Write the files of the demo, unless they exist; refuse a folder with other content."""
    mark = folder / ".kindlm" / "demo"
    if mark.exists():
        if agent.exists() and agent.read_text("utf-8", "replace") not in (_GOOD, _CHANGED):
            refuse(
                f"{agent} was edited, and the demo would overwrite it.",
                "Move it away, or name another folder: kindlm demo FOLDER",
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        refuse(
            f"The folder {folder} already holds other files.",
            "Name another one: kindlm demo FOLDER",
        )
    create_project(folder, "agent", {}, overwrite=False)
    agent.write_text(_GOOD, encoding="utf-8")
    mark.touch()


def _record(folder: Path, database: Path, label: str) -> str:
    from kindlm.cli.run_options import make_request
    from kindlm.cli.run_recording import record_run
    from kindlm.recording.history_file import new_run_id
    from kindlm.recording.loading import load_paths

    root = folder.resolve()
    options = TestOptions(paths=(root / "kindlm.yaml",), label=label)
    loaded = or_fail(load_paths(options.paths, root))
    run = new_run_id()
    record_run(make_request(loaded, Project(root, database.absolute()), options), run)
    with open_recorded(database, run) as view:
        if view.info.ended != "finished":
            refuse("The run did not finish, so the demo ends here.", "Start it again: kindlm demo")
    return run
