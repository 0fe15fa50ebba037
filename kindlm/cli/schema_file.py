"""The JSON Schema of kindlm.yaml as a file that editors read."""

from __future__ import annotations

import json
from pathlib import Path

from kindlm.cli.console import fail
from kindlm.config import json_schema
from kindlm.errors import ErrorCode, KindlmError, SourceLocation

__all__ = ["schema_text", "write_schema"]


def schema_text() -> str:
    """Return the schema as indented JSON."""
    return json.dumps(json_schema(), ensure_ascii=False, indent=2) + "\n"


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
