"""`kindlm validate`: all problems of all files, without running anything."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.console import note, or_fail, show
from kindlm.cli.options import ListFormat, StrictOption, VerboseOption
from kindlm.config import Diagnostic
from kindlm.recording.loading import Loaded, default_paths, load_paths
from kindlm.recording.project import find_project
from kindlm.recording.secrets import redactor
from kindlm.reports.untrusted import printed_json
from kindlm.wording import count


def validate_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Files, folders or pack:NAME. By default what kindlm test runs.",
        ),
    ] = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="For people, or for editors.")
    ] = ListFormat.TERMINAL,
    strict: StrictOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check suites without running them: nothing is called."""
    del verbose
    root = or_fail(find_project(Path.cwd(), database=None, environ=os.environ)).root
    held = paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(held, root, strict=strict))
    summary = summarise(loaded)
    if form is ListFormat.JSON:
        sys.stdout.write(redactor(os.environ)(validation_json(loaded, summary)))
    else:
        show(loaded.diagnostics)
        if loaded.ignored:
            note(f"Ignored, no tests: {', '.join(map(str, loaded.ignored))}")
        sys.stdout.write(f"{summary}\n")
    raise typer.Exit(1 if summary.errors else 0)


@dataclass(frozen=True, slots=True)
class ValidationSummary:
    """How many files, tests and problems there are."""

    files: int
    tests: int
    errors: int
    warnings: int

    def __str__(self) -> str:
        """Return the counts as one line."""
        found = [count(self.errors, "error"), count(self.warnings, "warning")]
        problems = ", ".join(text for text in found if not text.startswith("0 "))
        return (
            f"{count(self.files, 'file')}, {count(self.tests, 'test')}: {problems or 'no problems'}"
        )


def summarise(loaded: Loaded) -> ValidationSummary:
    """Count what was loaded and what is wrong with it."""
    severities = [found.severity for found in loaded.diagnostics]
    return ValidationSummary(
        files=len(loaded.files),
        tests=sum(len(suite.cases) for suite in loaded.suites)
        - len(loaded.unnamed)
        + sum(skipped.tests for skipped in loaded.skipped),
        errors=severities.count("error"),
        warnings=severities.count("warning"),
    )


def validation_json(loaded: Loaded, summary: ValidationSummary) -> str:
    """Return everything that was found, for editors; lines and columns count from 1."""
    document = {
        "schemaVersion": 1,
        "files": summary.files,
        "tests": summary.tests,
        "errors": summary.errors,
        "warnings": summary.warnings,
        "diagnostics": [_diagnostic(found) for found in loaded.diagnostics],
        "ignored": [str(path) for path in loaded.ignored],
    }
    return printed_json(document, indent=2) + "\n"


def _diagnostic(found: Diagnostic) -> dict[str, object]:
    error = found.error
    where = error.where
    return {
        "file": where.file if where else None,
        "line": where.line if where else None,
        "column": where.column if where else None,
        "severity": found.severity,
        "code": error.code.name,
        "number": error.code.value,
        "reason": error.details.get("reason"),
        "path": found.path,
        "message": error.message,
        "hint": error.hint,
    }
