"""What pytest objects to: it may fail a test that is already recorded as passed.

It does so when a fixture is torn down, because of a failed subtest, a strict xfail mark, or another
plugin. Such a run does not pass.
"""

from __future__ import annotations

import pytest

from kindlm.outcome import Status
from kindlm.wording import count, first_of

_MOST = 3


class Objections:
    """Finds tests that pytest fails although they are recorded as passed or skipped."""

    def __init__(self) -> None:
        self._recorded: dict[str, Status | None] = {}
        self._failed: dict[str, str] = {}

    def recorded(self, test: str, status: Status | None) -> None:
        """Note the recorded status of a test, the first time that it runs."""
        self._recorded.setdefault(test, status)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests pytest fails, and in which phase."""
        if report.failed:
            self._failed.setdefault(report.nodeid, report.when)

    @property
    def told(self) -> str | None:
        """Why the run does not pass; None if pytest agrees with what is recorded."""
        green = (Status.PASSED, Status.SKIPPED)
        found = [
            f"{test} ({phase})"
            for test, phase in self._failed.items()
            if self._recorded.get(test) in green
        ]
        if not found:
            return None
        tests = count(len(found), "test")
        return f"pytest failed {tests} that did not fail here: {first_of(found, _MOST)}"
