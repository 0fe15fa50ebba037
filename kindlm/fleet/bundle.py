"""Packs the files of a project that another machine needs to run its tests.

A bundle is a ZIP file whose entries have paths from the project's root. It leaves out `.env` files:
workers have their own variables.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

from kindlm.errors import Err, Ok, Result, misuse
from kindlm.recording.watched_files import is_installed

MOST_BYTES = 50_000_000
MOST_FILES = 4_000


def pack(files: Iterable[Path], root: Path) -> Result[bytes]:
    """Pack files below `root`; return an error if one is elsewhere, or if they are too large."""
    found: dict[str, Path] = {}
    for path in files:
        is_environment = path.name.startswith(".env.") or ".env" in (path.name, path.suffix)
        if path.is_dir() or is_environment or is_installed(path):
            continue
        name = _name_in(path, root)
        if name is None or not name.isprintable():
            where = "outside of the project" if name is None else "not named in plain characters"
            message = f"The tests cannot run on other machines: {str(path)!r} is {where}."
            hint = f"Only files below {root} are sent; move it there, or run the tests here."
            return Err(misuse(message, hint))
        found[name] = path
    size = sum(path.stat().st_size for path in found.values())
    if size > MOST_BYTES or len(found) > MOST_FILES:
        largest = max(found, key=lambda name: found[name].stat().st_size)
        needed = f"{len(found):,} files with {size / 1e6:,.1f} MB"
        message = f"The tests cannot run on other machines: they need {needed}."
        most = f"{MOST_FILES:,} files with {MOST_BYTES / 1e6:,.0f} MB"
        return Err(misuse(message, f"At most {most} are sent. The largest is {largest}."))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as bundle:
        for name, path in sorted(found.items()):
            bundle.write(path, name)
    return Ok(packed.getvalue())


def unpack(data: bytes, into: Path) -> None:
    """Unpack a bundle into a folder; only its owner can access the files."""
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        for entry in bundle.infolist():
            Path(bundle.extract(entry, into)).chmod(entry.external_attr >> 16 & 0o700)


def _name_in(path: Path, root: Path) -> str | None:
    """Return a file's path from the root; None if it, or the target of its link, is elsewhere."""
    real, top = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if not real.is_relative_to(top):
        return None
    named = Path(os.path.abspath(path))  # noqa: PTH100 - the link's own name, without dots
    if named.is_relative_to(root):
        return named.relative_to(root).as_posix()
    return real.relative_to(top).as_posix()
