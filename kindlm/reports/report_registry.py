"""Finds reports by name: kindlm's own by their module, others by their entry point.

The report `xyz` is written by `write_report` in the module `xyz_report` of this package, or it is a
class that another package registers. Only the report that is asked for is imported.
"""

from __future__ import annotations

import io
import json
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kindlm import reports
from kindlm.dataclass import dataclass
from kindlm.errors import Err, KindlmError, Ok, Result, broken, misuse
from kindlm.history.run_view import RunView
from kindlm.reports.untrusted import visible
from kindlm.suggestions import suggest

if TYPE_CHECKING:
    from kindlm import packages, plugins

_ALIASES = {"pretty": "terminal"}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How a report is to look.

    With `quiet`, a run that passed is its verdict alone. `durations` is how many of the slowest
    tests are shown. `database` is the path of the history if the user named it, and has to name it
    again.

    `first` is what has to be typed before anything else can be done with the run. `folder` is where
    the project lies inside its repository, as a path with slashes, empty at its top.
    `regression_threshold` is how far a mean score may fall before that is a regression, None for
    the default. `not_loaded` are the paths of the suites of which the user has just seen why they
    could not be loaded.

    `root` is where the project is: paths are relative to it, and a person reads and types them from
    the current folder. `default_paths` are those, from the root, that `kindlm test` runs in the
    current folder if no path is named.
    """

    color: bool = False
    width: int = 80
    verbose: bool = False
    quiet: bool = False
    durations: int = 0
    database: str | None = None
    first: str | None = None
    folder: str = ""
    regression_threshold: float | None = None
    not_loaded: frozenset[str] = frozenset()
    root: Path | None = None
    default_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A form in which a recorded run is written; users call it by its name.

    `write` writes the run piece by piece; memory does not grow with the number of tests. It returns
    why what was written is not the report that was wanted, None if it is. It raises `NoReportError`
    if there is no report, and nothing was written.
    """

    name: str
    write: Callable[[RunView, TextIO, ReportOptions], KindlmError | None]


class NoReportError(Exception):
    """There is no report: code of a package is faulty, or what it made `needs_file`."""

    def __init__(self, error: KindlmError, *, needs_file: bool = False) -> None:
        super().__init__(error.message)
        self.error, self.needs_file = error, needs_file


def find_report(name: str) -> Result[Report]:
    """Return the report of that name, or an error that says which there are."""
    from kindlm import packages, plugins

    own_name = _ALIASES.get(name, name)
    if (module := _own_reports().get(own_name)) is not None:
        return Ok(Report(own_name, import_module(module).write_report))
    found = packages.find(plugins.Report, name)
    if found is None:
        known = report_names()
        near = suggest(name, [*known, *_ALIASES])
        hint = f"There are: {', '.join(known)}"
        if near is not None:
            hint = f"Did you mean {near}? {hint}"
        else:
            hint += f". {packages.provided(plugins.Report.group, _own_reports())}"
        return Err(misuse(f"There is no report {name!r}.", hint))
    if isinstance(found, Err):
        return found
    plugin = packages.installed(plugins.Report.group)[name][0]
    return Ok(Report(plugin.name, partial(_write_of_package, plugin, found.value)))


def report_names() -> list[str]:
    """Return the names of all reports, those of other packages included."""
    from kindlm import packages, plugins

    return sorted(_own_reports().keys() | packages.installed(plugins.Report.group).keys())


def faulty_reports() -> list[KindlmError]:
    """Return what is wrong with reports of packages, names of kindlm's own reports included."""
    from kindlm import packages, plugins

    return packages.all_of(plugins.Report, {*_own_reports(), *_ALIASES})[1]


@cache
def _own_reports() -> dict[str, str]:
    """Return the modules of kindlm's own reports by the names of the reports."""
    modules = pkgutil.iter_modules(reports.__path__, f"{reports.__name__}.")
    return {
        module.name.rpartition(".")[2].removesuffix("_report"): module.name
        for module in modules
        if module.name.endswith("_report")
    }


def _write_of_package(
    plugin: packages.Plugin,
    made_by: type[plugins.Report],
    view: RunView,
    out: TextIO,
    options: ReportOptions,
) -> None:
    """Write what another package makes of the document of the JSON report.

    Unlike kindlm's own reports, it holds the whole run in memory.
    """
    from kindlm import packages
    from kindlm.reports import json_report

    document = io.StringIO()
    json_report.write_report(view, document, options)
    try:
        rendered: Any = made_by().render(json.loads(document.getvalue()))
    except packages.CRASHES as error:
        raise NoReportError(packages.crashed(plugin, "crashed", error)) from error
    if isinstance(rendered, str):
        # A lone surrogate has no UTF-8, and escape sequences belong into no terminal.
        text = rendered.encode("utf-8", "backslashreplace").decode()
        out.write(visible(text) if out.isatty() else text)
        return
    if not isinstance(rendered, bytes):
        wrong = f"{plugin} returned neither text nor bytes, but {type(rendered).__name__}"
        raise NoReportError(broken(wrong, packages.advice(plugin)))
    if out.isatty() or not hasattr(out, "buffer"):
        wrong = f"{plugin} is not text, and cannot be printed"
        raise NoReportError(broken(wrong, "Name a file"), needs_file=True)
    out.flush()
    out.buffer.write(rendered)
