"""Writes files without ever taking the place of one that is there, unless that is asked for."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile

__all__ = ["check_folder", "free_name", "write_file"]


def free_name(stem: str, suffix: str, taken: Collection[str], folder: Path, *, force: bool) -> str:
    """Return the first name that is free: `stem.suffix`, else with a number.

    Names that are `taken` are not; files in the folder are left alone unless `force` is set. Case
    does not tell names apart, since it does not on all file systems.
    """
    there: set[str] = set()
    if not force and folder.is_dir():
        there = {entry.name.lower() for entry in folder.iterdir()}
    used = there | {name.lower() for name in taken}
    names = (f"{stem}{'' if number == 1 else f'_{number}'}{suffix}" for number in count(1))
    return next(name for name in names if name.lower() not in used)


def check_folder(folder: Path) -> None:
    """Make sure that files can be written into a folder; nothing of that stays.

    Raises:
        OSError: they can not.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def write_file(file: Path, text: str, *, force: bool) -> Path:
    """Write a text into a file and return it; into one with a number if it came up meanwhile.

    Raises:
        OSError: it can not be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    taken: list[str] = []
    while True:
        free = free_name(file.stem, file.suffix, taken, file.parent, force=force)
        path = file.with_name(free)
        try:
            with path.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
                opened.write(text)
        except FileExistsError:
            taken.append(free)
        else:
            return path
