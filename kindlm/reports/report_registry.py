"""Finds reports by name: kindlm's own by their module, others by their entry point.

The report `xyz` is `write_report` in the module `xyz_report` of this package, or a class that
another package registers. Only the requested report is imported.
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
from kindlm.errors import Err, KindlmError, Ok, Raised, Result, broken, misuse
from kindlm.history.run_view import RunView
from kindlm.reports.untrusted import visible

if TYPE_CHECKING:
    from kindlm import packages, plugins

_ALIASES = {"pretty": "terminal"}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of all reports.

    Attributes:
        quiet: Only write the verdict of a run that passed.
        durations: How many of the slowest tests to show.
        database: The history if the user named it; commands in the report name it, too.
        first: The command to type before any other on this run, if there is one.
        folder: The folder of the project in its repository, with slashes; "" at the top.
        regression_threshold: How far a mean score may fall, None for the default.
        not_loaded: Paths of suites whose load errors the user has just seen.
        root: The folder of the project, to show paths relative to the current folder.
        default_paths: The paths, relative to `root`, that `kindlm test` runs if none is named.
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
class Reporter:
    """A format for a recorded run, its name for users, and its file; None is standard output.

    `write` writes the run piece by piece: memory does not grow with the number of tests. It returns
    an error if it wrote something else than the requested report. It raises `errors.Raised` if it
    wrote nothing: a package's report failed, or is binary and needs a file.
    """

    name: str
    write: Callable[[RunView, TextIO, ReportOptions], KindlmError | None]
    file: Path | None = None


def find_report(name: str) -> Result[Reporter]:
    """Return the report of that name, or an error that lists the names."""
    from kindlm import packages, plugins

    own_name = _ALIASES.get(name, name)
    if (module := _own_reports().get(own_name)) is not None:
        return Ok(Reporter(own_name, import_module(module).write_report))
    found = packages.find(plugins.Report, name)
    if found is None:
        known = report_names()
        hint = f"Available: {', '.join(known)}. {packages.IF_PROVIDED}"
        return Err(misuse(f"There is no report {name!r}.", hint))
    if isinstance(found, Err):
        return found
    plugin = packages.installed(plugins.Report.group)[name][0]
    return Ok(Reporter(plugin.name, partial(_write_of_package, plugin, found.value)))


def report_names() -> list[str]:
    """Return the names of all reports, including those of other packages."""
    from kindlm import packages, plugins

    return sorted(_own_reports().keys() | packages.installed(plugins.Report.group).keys())


def faulty_reports() -> list[KindlmError]:
    """Return the errors of other packages' reports, such as a name that kindlm uses itself."""
    from kindlm import packages, plugins

    return packages.all_of(plugins.Report, {*_own_reports(), *_ALIASES})[1]


@cache
def _own_reports() -> dict[str, str]:
    modules = [module.name for module in pkgutil.iter_modules(reports.__path__)]
    return {
        module.removesuffix("_report"): f"{reports.__name__}.{module}"
        for module in modules
        if module.endswith("_report")
    }


def _write_of_package(
    plugin: packages.Plugin,
    made_by: type[plugins.Report],
    view: RunView,
    out: TextIO,
    options: ReportOptions,
) -> None:
    """Write the report of another package, which gets the JSON report, whole, in memory."""
    from kindlm import packages
    from kindlm.reports import json_report

    document = io.StringIO()
    json_report.write_report(view, document, options)
    try:
        rendered: Any = made_by().render(json.loads(document.getvalue()))
    except packages.CRASHES as error:
        raise Raised(packages.crashed(plugin, "crashed", error)) from error
    if isinstance(rendered, str):
        # UTF-8 has no lone surrogates; escape sequences must not reach a terminal.
        text = rendered.encode("utf-8", "backslashreplace").decode()
        out.write(visible(text) if out.isatty() else text)
        return
    if not isinstance(rendered, bytes):
        wrong = f"{plugin} returned neither text nor bytes, but {type(rendered).__name__}"
        raise Raised(broken(wrong, packages.advice(plugin)))
    if out.isatty() or not hasattr(out, "buffer"):
        wrong = f"{plugin} is not text, and cannot be printed"
        raise Raised(broken(wrong, "Name a file"))
    out.flush()
    out.buffer.write(rendered)
