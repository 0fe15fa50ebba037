"""Writes a new project: the files of a template, the schema for editors, and `.gitignore`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from kindlm.cli.commands.schema import schema_text
from kindlm.cli.console import refuse
from kindlm.errors import ErrorCode, SourceLocation

_SETTINGS = "env"
"""The file of a template that is added to .env."""

_PROJECT_MARK = "__PROJECT__"
_SUITE = "kindlm.yaml"
_SCHEMA = Path(".kindlm", "kindlm.schema.json")
_IGNORED = f"""\
# What kindlm recorded. The schema stays: it lets editors complete kindlm.yaml.
.kindlm/*
!{_SCHEMA.as_posix()}
"""

_UNWRITABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufdd0\ufffe\uffff]")
"""The characters that JSON leaves as they are, and YAML or TOML refuses."""


def create_project(
    folder: Path,
    template: str,
    *,
    overwrite: bool,
    values: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write the files of a template into a folder; return those that were written.

    `values` are put in place of the marks that the template has for them. Nothing is written if a
    file of the template is there already, unless `overwrite` is set. An existing .gitignore or .env
    is added to, never replaced.
    """
    texts = _template_texts(template, folder.resolve().name, values)
    settings = texts.pop(_SETTINGS, "")
    try:
        taken = [folder / name for name in texts if (folder / name).exists()]
        if taken and not overwrite:
            verb = "is" if len(taken) == 1 else "are"
            refuse(
                f"{', '.join(map(str, taken))} {verb} there already; nothing was written.",
                "Overwrite with --force, or name another folder: kindlm init DIR",
            )
        folder.mkdir(parents=True, exist_ok=True)
        written = [_write(folder / name, text) for name, text in texts.items()]
        if _SUITE in texts:
            written.append(_write(folder / _SCHEMA, schema_text()))
        if _add(folder / ".gitignore", _IGNORED, says=".kindlm"):
            written.append(folder / ".gitignore")
        if settings:
            first = next(line for line in settings.splitlines() if "=" in line)
            if _add(folder / ".env", settings, says=first.partition("=")[0]):
                written.append(folder / ".env")
    except OSError as error:
        refuse(
            f"The project cannot be written: {error.strerror or error}.",
            "Check the permissions, or name another folder: kindlm init DIR",
            code=ErrorCode.UNKNOWN_ERROR,
            where=SourceLocation(str(error.filename or folder)),
        )
    return written


def _template_texts(template: str, project: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a template by name, with the project's name and `values` put in."""
    source = Path(__file__).with_name("templates") / template
    marks = {_PROJECT_MARK: quoted(project or "my-project"), **values}
    pattern = re.compile("|".join(map(re.escape, marks)))
    return {
        file.relative_to(source).as_posix(): pattern.sub(
            lambda mark: marks[mark[0]], file.read_text("utf-8")
        )
        for file in sorted(source.rglob("*"))
        if file.is_file() and file.suffix != ".pyc"
    }


def quoted(text: str) -> str:
    """Return a text as a string of YAML and of TOML.

    Both take what JSON writes, except for some characters. A "?" replaces each of those.
    """
    return json.dumps(_UNWRITABLE.sub("?", text), ensure_ascii=False)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())  # a text that cannot be encoded leaves no empty file
    return path


def _add(path: Path, text: str, *, says: str) -> bool:
    """Add a text to a file, unless one of its lines begins with what it `says` already."""
    present = path.read_text("utf-8", errors="replace") if path.exists() else ""
    if any(line.strip().lstrip("/").startswith(says) for line in present.splitlines()):
        return False
    separator = "" if not present or present.endswith("\n") else "\n"
    blank = "\n" if present else ""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{separator}{blank}{text}")
    return True
