"""The JSON Schema of kindlm.yaml as a file that editors read."""

from __future__ import annotations

import json
from pathlib import Path

from kindlm.cli.console import fail, show
from kindlm.config import Diagnostic, schema_with_packages
from kindlm.errors import ErrorCode, KindlmError, SourceLocation


def schema_text() -> str:
    """Return the schema as indented JSON, with what installed packages add.

    A faulty package is left out, with a warning: what the others add can be used.
    """
    schema, errors = schema_with_packages()
    show(Diagnostic(error, "warning", "", None) for error in errors)
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"


def write_schema(path: Path) -> None:
    """Write the schema to a file; end the command if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(schema_text(), "utf-8")
    except OSError as error:
        fail(
            [
                KindlmError(
                    ErrorCode.UNKNOWN_ERROR,
                    f"The schema can not be written: {error.strerror or error}.",
                    "Choose another file with --output.",
                    where=SourceLocation(str(path)),
                )
            ]
        )
