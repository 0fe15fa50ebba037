"""The configuration of a project, read from TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindlm.errors import Err
from kindlm.recording.project import report_files

DEEP = "[" * 3_000 + "]" * 3_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kindlm.toml", f"x = {DEEP}"),
        ("pyproject.toml", f"[tool.kindlm]\nx = {DEEP}"),
    ],
)
def test_a_file_that_is_nested_too_deeply_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    found = report_files(tmp_path)

    assert isinstance(found, Err)
    assert found.error.message == f"{name} cannot be read: it is nested too deeply."
