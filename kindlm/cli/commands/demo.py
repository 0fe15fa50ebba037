"""`kindlm demo`: finds a change in a bundled agent, without a key or a network."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import closing
from pathlib import Path

import typer

from kindlm.cli.console import or_fail, refuse, wants_color
from kindlm.cli.options import argument
from kindlm.cli.scaffold import create_project
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm_store import open_reader

_GOOD_AGENT = "support"

_CHANGED_AGENT = "support-changed"


def demo_command(
    folder: Path = argument(
        "FOLDER", "Folder for the files and the history of the demo.", default=Path("kindlm-demo")
    ),
) -> None:
    """Watch kindlm find a change in a bundled agent."""
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.diff.terminal import write_diff

    options = ReportOptions(
        color=wants_color(sys.stdout),
        width=shutil.get_terminal_size().columns,
        database=str(_database(folder)),  # suggested commands need it outside the folder
    )
    page = Page(sys.stdout, options)
    _write_files(folder)
    page.unbroken((f"Created a support agent and its tests in {folder}/.", "dim"))

    page.heading("1  The agent as it is")
    _choose_agent(folder, _GOOD_AGENT)
    before = _record(folder, "before", page)
    page.heading("2  The same agent, after a change for speed")
    _choose_agent(folder, _CHANGED_AGENT)
    after = _record(folder, "after", page)

    page.heading("3  What changed: kindlm diff")
    page.blank()
    with closing(open_reader(_database(folder))) as reader:
        diff = compare_runs(reader, before, after, DiffOptions())
        write_diff(diff, sys.stdout, options)
        is_as_planned = diff.before.passed and not diff.after.passed and diff.fails
    page.heading("Look closer")
    for kindlm, what in (
        ("kindlm diff", "this comparison, also with --format html"),
        ("kindlm browse", "the whole history, in Datasette"),
        (f"kindlm show {after} 1", "one conversation with all its evidence"),
        ("kindlm test", f"run it yourself; the agent is {_agent_file(folder).name}"),
    ):
        command = f"cd {shlex.quote(str(folder))} && {kindlm}"
        page.unbroken((f"{command:<44}", "bold"), (f" {what}", "dim"), indent=3)
    if not is_as_planned:
        raise typer.Exit(1)


def _write_files(folder: Path) -> None:
    """Write the files of the demo, unless they exist; refuse a folder with other content."""
    mark, agent = folder / ".kindlm" / "demo", _agent_file(folder)
    if mark.exists():
        known = [_agent_text(name).encode() for name in (_GOOD_AGENT, _CHANGED_AGENT)]
        if agent.exists() and agent.read_bytes() not in known:
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
    create_project(folder, "agent", overwrite=False)
    _choose_agent(folder, _GOOD_AGENT)
    mark.touch()


def _choose_agent(folder: Path, name: str) -> None:
    _agent_file(folder).write_text(_agent_text(name), encoding="utf-8")


def _agent_text(name: str) -> str:
    return f"# The agent under test, played by kindlm's loopback server.\nextends: {name}\n"


def _record(folder: Path, label: str, page: Page) -> str:
    from kindlm.cli.options import TestOptions
    from kindlm.cli.run_options import make_request
    from kindlm.cli.run_recording import record_run
    from kindlm.history.run_view import RunView
    from kindlm.recording.history_file import new_run_id
    from kindlm.recording.loading import load_paths
    from kindlm.recording.project import Project

    root = folder.resolve()
    options = TestOptions(paths=(root / "kindlm.yaml",), label=label)
    loaded = or_fail(load_paths(options.paths, root))
    request = make_request(loaded, Project(root, _database(root)), options)
    run = new_run_id()
    record_run(request, run)
    with closing(open_reader(_database(folder))) as reader:
        view = RunView(reader, run)
        if view.is_recorded and view.info.ended == "finished":
            return run
    page.blank()
    page.line("The run did not finish, so the demo ends here. Start it again: kindlm demo")
    raise typer.Exit(1)


def _agent_file(folder: Path) -> Path:
    return folder / "agent.yaml"


def _database(folder: Path) -> Path:
    return folder / ".kindlm" / "kindlm.db"
