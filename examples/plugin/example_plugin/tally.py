"""A report: `kindlm test --reporter tally`, or `kindlm report --format tally`."""

from collections.abc import Mapping
from typing import Any

from kindlm.plugins import Report


class Tally(Report):
    """One line for each test."""

    def render(self, run: Mapping[str, Any]) -> str:
        lines = [f"{test['status']:8} {test['name']}" for test in run["tests"]]
        return "\n".join([f"run {run['run']['id']}", *lines]) + "\n"
