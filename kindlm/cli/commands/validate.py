"""`kindlm validate`: check test files without running them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from kindlm.cli.console import note, or_fail, show
from kindlm.cli.ending import loading
from kindlm.cli.options import STRICT, ListFormat, argument, option
from kindlm.dataclass import replace
from kindlm.errors import SourceLocation
from kindlm.recording.project import default_paths, find_project, run_environment
from kindlm.recording.secrets import redactor
from kindlm.reports.untrusted import json_document
from kindlm.wording import count

_PLACE = ("file", "line", "column")


def validate_command(
    paths: list[Path] | None = argument(
        "PATH", "Files, folders or pack:NAME. Default: what `kindlm test` runs.", default=None
    ),
    form: ListFormat = option("--format", "json is for editors.", default="terminal"),
    strict: bool = STRICT,
) -> None:
    """Check test files without running them."""
    with loading():
        from kindlm.cli.compliance import folder_outside
        from kindlm.config.diagnostics import Diagnostic
        from kindlm.config.interpolation import unset_variables
        from kindlm.recording.loading import load_paths
        from kindlm.reports.commands import typed_path

    root = or_fail(find_project()).root
    held = paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(held, root, strict=strict))
    files = len(loaded.files)
    tests = sum(len(suite.cases) for suite in loaded.suites) - len(loaded.unnamed)
    tests += sum(skipped.tests for skipped in loaded.skipped)
    diagnostics = [*loaded.diagnostics]
    environ = run_environment([*loaded.folders, root], os.environ)
    for suite in loaded.suites:
        # Variables without a value are no error: the keys may only be where the tests run.
        where = SourceLocation(typed_path(suite.path, root))
        diagnostics += (
            Diagnostic(replace(error, where=where), "warning")
            for error in unset_variables(suite, environ)
        )
        outside = folder_outside(suite, root) if suite.has_document else None
        diagnostics += () if outside is None else (Diagnostic(outside),)
    severities = [found.severity for found in diagnostics]
    errors, warnings = severities.count("error"), severities.count("warning")
    if form == "json":
        # For editors; lines and columns count from 1.
        document = json_document(
            files=files,
            tests=tests,
            errors=errors,
            warnings=warnings,
            diagnostics=[
                {
                    **{name: getattr(found.error.where, name, None) for name in _PLACE},
                    "severity": found.severity,
                    "code": found.error.code.name,
                    "number": found.error.code.value,
                    "reason": found.error.details.get("reason"),
                    "path": found.path,
                    "message": found.error.message,
                    "hint": found.error.hint,
                }
                for found in diagnostics
            ],
            ignored=[str(path) for path in loaded.ignored],
        )
        sys.stdout.write(redactor()(document))
    else:
        show(diagnostics)
        if loaded.ignored:
            note(loaded.ignored_message)
        found = [count(errors, "error")] if errors else []
        found += [count(warnings, "warning")] if warnings else []
        problems = ", ".join(found) or "no problems"
        sys.stdout.write(f"{count(files, 'file')}, {count(tests, 'test')}: {problems}\n")
    if errors:
        raise typer.Exit(1)
