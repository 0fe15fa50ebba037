"""Writes a new project: the files of a template, the schema for editors, and `.gitignore`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from kindlm.cli.commands.schema import schema_text
from kindlm.cli.console import refuse

_SETTINGS = "env"
"""The file of a template whose lines go into .env."""

_PROJECT_MARK = "__PROJECT__"
_SUITE = "kindlm.yaml"
_SCHEMA = Path(".kindlm", "kindlm.schema.json")
_IGNORED = f"""\
# What kindlm recorded. The schema stays: it lets editors complete kindlm.yaml.
.kindlm/*
!{_SCHEMA.as_posix()}
"""

_UNWRITABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufdd0\ufffe\uffff]")
"""Characters that JSON does not escape, and that YAML or TOML refuses."""


def create_project(
    folder: Path,
    template: str,
    *,
    overwrite: bool,
    values: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write the files of a template into a folder, and return their paths.

    `values` replace the marks of the template. Without `overwrite`, the command ends if one of the
    files exists. Lines for .gitignore and .env are added to existing files.
    """
    texts = _template_texts(template, folder.resolve().name, values)
    settings = texts.pop(_SETTINGS, "")
    existing = [folder / name for name in texts if (folder / name).exists()]
    if existing and not overwrite:
        verb = "exists" if len(existing) == 1 else "exist"
        refuse(
            f"{', '.join(map(str, existing))} already {verb}; nothing was written.",
            "Overwrite with --force, or name another folder: kindlm init DIR",
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = [_write(folder / name, text) for name, text in texts.items()]
    if _SUITE in texts:
        written.append(_write(folder / _SCHEMA, schema_text()))
    if _add(folder / ".gitignore", _IGNORED, unless=".kindlm"):
        written.append(folder / ".gitignore")
    if settings:
        first = next(line for line in settings.splitlines() if "=" in line)
        if _add(folder / ".env", settings, unless=first.partition("=")[0]):
            written.append(folder / ".env")
    return written


def _template_texts(template: str, project: str, values: Mapping[str, str]) -> dict[str, str]:
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

    This is JSON, in which a "?" replaces the characters that those refuse.
    """
    return json.dumps(_UNWRITABLE.sub("?", text), ensure_ascii=False)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())  # encoded first: an error leaves no empty file
    return path


def _add(path: Path, text: str, *, unless: str) -> bool:
    """Add a text to a file, unless one of its lines begins with `unless`."""
    present = path.read_text("utf-8", errors="replace") if path.exists() else ""
    if any(line.strip().lstrip("/").startswith(unless) for line in present.splitlines()):
        return False
    separator = "" if not present or present.endswith("\n") else "\n"
    blank = "\n" if present else ""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{separator}{blank}{text}")
    return True
