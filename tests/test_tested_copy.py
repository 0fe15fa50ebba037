"""Tests of an installed copy that differs from the checkout would say nothing about the change."""

from __future__ import annotations

from pathlib import Path

from tested_copy import stale_files


def test_a_changed_or_new_file_is_not_in_the_imported_copy(tmp_path: Path) -> None:
    checkout, imported = tmp_path / "checkout", tmp_path / "imported"
    for folder in (checkout, imported):
        folder.joinpath("checks").mkdir(parents=True)
        folder.joinpath("checks", "same.py").write_text("A = 1\n")
        folder.joinpath("checks", "changed.html").write_text(f"{folder.name}\n")
    checkout.joinpath("checks", "new.py").write_text("")
    checkout.joinpath("checks", "same.pyc").write_text("compiled")
    imported.joinpath("only_built.md").write_text("")
    stale = {str(name) for name in stale_files(checkout, imported)}
    assert stale == {"checks/changed.html", "checks/new.py"}
    assert not [*stale_files(checkout, checkout)]
