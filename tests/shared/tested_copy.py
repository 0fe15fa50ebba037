"""Which copy of the packages the tests import: that of the checkout, or one that is equal to it."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kindlm", "store/kindlm_store", "migrations/kindlm_migrations")


def refuse_another_copy() -> None:
    """Raise an error if the tests would say nothing about the code in the checkout.

    `python -m pytest` imports the checkout, while the programs that tests start do not.
    """
    site = Path(sysconfig.get_path("purelib"))
    for checkout in (ROOT / package for package in PACKAGES):
        imported = Path(import_module(checkout.name).__file__ or "").parent
        installed = site / checkout.name if (site / checkout.name).is_dir() else imported
        for name in (*stale_files(checkout, imported), *stale_files(checkout, installed)):
            raise pytest.UsageError(
                f"The tests would run {installed}, whose {name} differs from the checkout. "
                "Install the checkout itself: .venv/bin/pip install -e '.[dev]'"
            )


def stale_files(checkout: Path, imported: Path) -> Iterator[Path]:
    """Yield the files of a package in the checkout whose imported copy is absent or different."""
    for path in checkout.rglob("*.*") if checkout != imported else ():
        if path.is_dir() or path.suffix == ".pyc":
            continue
        name = path.relative_to(checkout)
        copy = imported / name
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            yield name
