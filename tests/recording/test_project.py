"""The configuration of a project, read from TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindlm.errors import Err
from kindlm.recording.project import remote_name, report_files

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


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://example.com/acme/shop.git", "shop"),
        ("git@example.com:acme/shop.git", "shop"),
        ("../copies/shop/", "shop"),
        ("https://example.com/shop.git?private_token=glpat-SECRET12345#x", "shop"),
        ("https://ci:glpat-SECRET12345@example.com", None),
    ],
)
def test_the_name_of_a_repository_holds_no_credentials(
    tmp_path: Path, remote: str, name: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "objects").mkdir()
    (tmp_path / ".git" / "refs").mkdir()
    (tmp_path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = "{remote}"\n')
    assert remote_name(tmp_path) == name
