"""The tests that pytest shows as passed, and that did not pass at once or each time."""

from __future__ import annotations

from contextlib import closing

from kindlm.errors import Err
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.pytest_plugin.request import Asked
from kindlm.recording.log import open_log

__all__ = ["flaky_tests"]


def flaky_tests(name: str, asked: Asked) -> list[str]:
    """Return the names of the tests of a run or group that passed, but not all of their attempts.

    Raises `StoreError` if the history can not be read.
    """
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return []
        tests = RunView(reader, found.value).tests()
        return [test.name for test in tests if test.flaky and test.status is Status.PASSED]
