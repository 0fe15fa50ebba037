"""Packages are looked for only where a name is used that is not one of kindlm's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("suite", "reads"), [("every-field", False), ("support-agent", False), ("plugin", True)]
)
def test_entry_points_are_read_only_for_names_of_packages(suite: str, reads: bool) -> None:
    program = (
        "import sys, pathlib\n"
        "from kindlm.config import load_suite\n"
        "load_suite(pathlib.Path(sys.argv[1]))\n"
        "from kindlm.packages import installed\n"
        "print(installed.cache_info().currsize > 0)\n"
    )
    file = EXAMPLES / suite / "kindlm.yaml"
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(reads)


@pytest.mark.parametrize("module", ["gone", "builtins"])
def test_options_can_be_written_where_no_source_is(module: str) -> None:
    """In a notebook, a shell or `python -c`."""
    written = "from kindlm.section import Section\nclass Options(Section):\n    name: str = 'a'\n"
    held: dict[str, Any] = {"__name__": module}
    exec(written, held)
    assert held["Options"].model_json_schema()["properties"]["name"]["default"] == "a"
