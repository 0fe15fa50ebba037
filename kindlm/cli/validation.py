"""What `kindlm validate` found: counts for people, diagnostics for editors."""

from __future__ import annotations

from dataclasses import dataclass

from kindlm.config import Diagnostic
from kindlm.recording.loading import Loaded
from kindlm.reports.untrusted import printed_json
from kindlm.wording import count


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
