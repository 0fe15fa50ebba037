"""`kindlm show`: show a run, its shards, or one execution with its transcript."""

from __future__ import annotations

import sys
from pathlib import Path

from kindlm.cli.console import or_fail
from kindlm.cli.history import exit_for, find_execution, open_view, report_options
from kindlm.cli.options import DATABASE, DURATIONS, EXECUTION, RUN_OR_GROUP
from kindlm.dataclass import replace


def show_command(
    run: str = RUN_OR_GROUP,
    execution: str | None = EXECUTION,
    db: Path | None = DATABASE,
    durations: int = DURATIONS,
) -> None:
    """Show a run, or one execution with its transcript."""
    options = replace(report_options(db), durations=durations)
    with open_view(db, run) as view:
        if execution is None:
            from kindlm.reports.terminal_report import write_report

            write_report(view, sys.stdout, options)
            exit_for(view)
            return
        from kindlm.reports.terminal.execution_text import render_execution

        render_execution(view, or_fail(find_execution(view, execution)), sys.stdout, options)
