"""The reports that the project's configuration asks for, written at the end of a session."""

from __future__ import annotations

import os
from contextlib import closing

from kindlm.cli.reporters import configured_reporters, of_project, spare, write_reports
from kindlm.errors import Err, KindlmError
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.pytest_plugin.request import Asked
from kindlm.recording.log import open_log
from kindlm.reports.registry import ReportOptions

__all__ = ["write_configured_reports"]


def write_configured_reports(name: str, asked: Asked) -> list[KindlmError]:
    """Write the reports of a run or group; return why some could not be written.

    Raises `StoreError` if the history can not be read.
    """
    reporters = configured_reporters(asked.root)
    if isinstance(reporters, Err):
        return [reporters.error]
    if not reporters.value:
        return []
    spared = spare(reporters.value, asked.database)
    if isinstance(spared, Err):
        return [spared.error]
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return [found.error]
        look = ReportOptions(database=os.path.relpath(asked.database), named=asked.named)
        view = RunView(reader, found.value)
        return write_reports(reporters.value, view, of_project(look, asked.root))
