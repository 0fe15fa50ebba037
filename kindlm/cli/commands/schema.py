"""`kindlm schema`: print the JSON Schema of kindlm.yaml."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kindlm.cli.console import show
from kindlm.cli.options import option
from kindlm.cli.reporters import STDOUT


def schema_command(
    output: Path | None = option("--output -o FILE", "Write to FILE. Default: stdout."),
) -> None:
    """Print the JSON Schema of kindlm.yaml."""
    if output in (None, STDOUT):
        sys.stdout.write(schema_text())
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(schema_text(), "utf-8")


def schema_text() -> str:
    """Return the schema as indented JSON, including what installed packages add.

    A faulty package is left out, with a warning. Faulty reports of packages get one, too.
    """
    from kindlm.config.diagnostics import Diagnostic
    from kindlm.config.published import schema_with_packages
    from kindlm.reports.report_registry import faulty_reports

    schema, errors = schema_with_packages()
    show(Diagnostic(error, "warning") for error in (*errors, *faulty_reports()))
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"
