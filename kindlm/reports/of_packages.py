"""Reports of other packages, made from the document of the JSON report."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any, TextIO

from kindlm import plugins
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.run_view import RunView
from kindlm.reports.registry import Report, ReportOptions
from kindlm.reports.untrusted import visible


def report_of_package(name: str) -> Result[Report] | None:
    """Return a report of another package, None if no package has it."""
    found = plugins.find(plugins.Report, name)
    if found is None or isinstance(found, Err):
        return found
    return Ok(_ReportOfPackage(plugins.installed(plugins.Report.group)[name][0], found.value))


@dataclass(frozen=True, slots=True)
class _ReportOfPackage:
    """Implements `Report`. Unlike kindlm's own, it holds the whole run in memory."""

    plugin: plugins.Plugin
    made_by: type[plugins.Report]

    @property
    def name(self) -> str:
        return self.plugin.name

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
        """Write what the package makes of the run."""
        from kindlm.reports.json_report import REPORT

        document = io.StringIO()
        REPORT.write(view, document, options)
        try:
            rendered: Any = self.made_by().render(json.loads(document.getvalue()))
        except plugins.CRASHES as error:
            return plugins.crashed(self.plugin, "crashed", error)
        if isinstance(rendered, str):
            # A lone surrogate has no UTF-8, and escape sequences belong into no terminal.
            text = rendered.encode("utf-8", "backslashreplace").decode()
            out.write(visible(text) if out.isatty() else text)
            return None
        if not isinstance(rendered, bytes):
            kind = type(rendered).__name__
            hint = f"Update {self.plugin.package}, or report this to its authors"
            return self._error(f"returned neither text nor bytes, but {kind}", hint)
        if out.isatty() or not hasattr(out, "buffer"):
            hint = f"Name a file: --reporter {self.name}=FILE"
            return self._error("is not text, and cannot be printed", hint)
        out.flush()
        out.buffer.write(rendered)
        return None

    def _error(self, what: str, hint: str) -> KindlmError:
        return KindlmError(ErrorCode.UNKNOWN_ERROR, f"{self.plugin} {what}", hint)
