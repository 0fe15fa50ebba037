"""What a report is, and where reports are found: by the name of their module.

The report `xyz` is `REPORT` in the module `xyz` or `xyz_report` of this package, or a class that
another package registers. Nothing else names it, and only the one that is asked for is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from typing import Protocol, TextIO

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.run_view import RunView
from kindlm.suggestions import suggest

_ALIASES = {"pretty": "terminal"}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How a report is to look. `database` is the path of the history as the user knows it.

    `named` tells that the user named it, and has to name it again. `first` is what has to be typed
    before anything else can be done with the run. `folder` is where the project lies inside its
    repository, as a path with slashes, empty at its top. `regression_threshold` is how far a mean
    score may fall before that is a regression, None for the default.
    """

    color: bool = False
    width: int = 80
    verbose: bool = False
    database: str | None = None
    named: bool = False
    first: str | None = None
    folder: str = ""
    regression_threshold: float | None = None


class Report(Protocol):
    """Writes a recorded run in one form."""

    @property
    def name(self) -> str:
        """What a user calls it."""
        ...

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
        """Write the run piece by piece; memory does not grow with the number of tests.

        Returns why what was written is not the report that was wanted, None if it is.
        """
        ...


def find_report(name: str) -> Result[Report]:
    """Return the report of that name, or an error that says which there are."""
    wanted = _ALIASES.get(name, name)
    report = _load(wanted) or _load(f"{wanted}_report")
    if report is not None and report.name == wanted:
        return Ok(report)
    from kindlm.reports.of_packages import report_of_package

    return report_of_package(name) or Err(_unknown(name))


def report_names() -> list[str]:
    """Return the names of all reports, those of other packages included."""
    from kindlm.plugins import Report as ReportOfPackage
    from kindlm.plugins import installed

    package = importlib.import_module(__package__)
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    own = {report.name for name in modules if (report := _load(name))}
    return sorted(own | installed(ReportOfPackage.group).keys())


def _load(module: str) -> Report | None:
    if not module.isidentifier():
        return None
    path = f"{__package__}.{module}"
    if importlib.util.find_spec(path) is None:
        return None
    report: Report | None = getattr(importlib.import_module(path), "REPORT", None)
    return report


def _unknown(name: str) -> KindlmError:
    known = report_names()
    near = suggest(name, [*known, *_ALIASES])
    guess = "" if near is None else f"Did you mean {near}? "
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"There is no report {name!r}.",
        f"{guess}There are: {', '.join(known)}",
    )
