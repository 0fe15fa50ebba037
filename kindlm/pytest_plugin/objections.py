"""Where pytest fails a test that is recorded as passed: then the run has not passed.

What happens around a scenario (the end of a fixture, a failed subtest, a strict mark that it fails,
a plugin with a mind of its own) is known to pytest alone, and when its test is recorded already.
"""

from __future__ import annotations

import pytest

from kindlm.outcome import Status
from kindlm.wording import count

__all__ = ["Objections"]

_MOST = 3


class Objections:
    """What pytest says of scenarios, beside what is recorded of them."""

    def __init__(self) -> None:
        self._recorded: dict[str, Status | None] = {}
        self._failed: dict[str, str] = {}

    def recorded(self, test: str, status: Status | None) -> None:
        """Take note of what is recorded of a test, the first time that it runs."""
        self._recorded.setdefault(test, status)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of what pytest fails, and in which phase."""
        if report.failed:
            self._failed.setdefault(report.nodeid, report.when)

    @property
    def told(self) -> str | None:
        """Why the run can not be taken for passed; None if pytest agrees with what is recorded."""
        green = (Status.PASSED, Status.SKIPPED)
        found = [
            f"{test} ({phase})"
            for test, phase in self._failed.items()
            if self._recorded.get(test) in green
        ]
        if not found:
            return None
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        listed = ", ".join(found[:_MOST])
        return f"pytest failed {count(len(found), 'test')} that did not fail here: {listed}{more}"
