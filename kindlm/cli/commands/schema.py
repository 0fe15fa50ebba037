"""`kindlm schema`: print the JSON Schema of kindlm.yaml."""

from __future__ import annotations

import sys
from pathlib import Path

from kindlm.cli.new_project import schema_text
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
