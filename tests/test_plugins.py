"""Packages are looked for only where a name is used that is not one of kindlm's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kindlm.config import load_suite
from kindlm.packages import installed

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_entry_points_are_read_only_for_names_of_packages() -> None:
    installed.cache_clear()
    for suite in ("every-field", "support-agent"):
        load_suite(EXAMPLES / suite / "kindlm.yaml")
    assert installed.cache_info().currsize == 0
    load_suite(EXAMPLES / "plugin" / "kindlm.yaml")
    assert installed.cache_info().currsize > 0


@pytest.mark.parametrize("module", ["gone", "builtins"])
def test_options_can_be_written_where_no_source_is(module: str) -> None:
    """In a notebook, a shell or `python -c`."""
    written = "from kindlm.section import Section\nclass Options(Section):\n    name: str = 'a'\n"
    held: dict[str, Any] = {"__name__": module}
    exec(written, held)
    assert held["Options"].model_json_schema()["properties"]["name"]["default"] == "a"
