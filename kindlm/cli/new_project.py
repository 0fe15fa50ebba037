"""Writes the files of a new project, from a template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from kindlm.cli.console import refuse, show

_SCHEMA = Path(".kindlm", "kindlm.schema.json")
_IGNORED = f"""\
# What kindlm recorded. The schema stays: it lets editors complete kindlm.yaml.
.kindlm/*
!{_SCHEMA.as_posix()}
"""

_UNWRITABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufdd0\ufffe\uffff]")
"""Characters that JSON does not escape, and that YAML or TOML refuses."""


def create_project(
    folder: Path, template: str, values: Mapping[str, str], *, overwrite: bool
) -> list[Path]:
    """Write the files of a template into a folder, and return their paths.

    `values` replace the marks of the template. Without `overwrite`, the command ends if one of the
    files exists. Lines for .gitignore and .env are added to existing files.
    """
    source = Path(__file__).parent / "templates" / template
    marks = {"__PROJECT__": quoted(folder.resolve().name or "my-project"), **values}
    mark = re.compile("|".join(map(re.escape, marks)))
    texts = {
        file.relative_to(source).as_posix(): mark.sub(
            lambda found: marks[found[0]], file.read_text("utf-8")
        )
        for file in sorted(source.rglob("*"))
        if file.is_file() and file.suffix != ".pyc"
    }
    settings = texts.pop("env", "")  # lines for .env
    existing = [folder / name for name in texts if (folder / name).exists()]
    if existing and not overwrite:
        verb = "exists" if len(existing) == 1 else "exist"
        refuse(
            f"{', '.join(map(str, existing))} already {verb}; nothing was written.",
            "Overwrite with --force, or name another folder: kindlm init DIR",
        )
    if "kindlm.yaml" in texts:
        texts[str(_SCHEMA)] = schema_text()
    written = [folder / name for name in texts]
    for path, text in zip(written, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())  # encoded first: an error leaves no empty file
    if _add(folder / ".gitignore", _IGNORED, unless=".kindlm"):
        written.append(folder / ".gitignore")
    if settings:
        first = next(line for line in settings.splitlines() if "=" in line)
        if _add(folder / ".env", settings, unless=first.partition("=")[0]):
            written.append(folder / ".env")
    return written


def quoted(text: str) -> str:
    """Return a text as a string of YAML and of TOML.

    This is JSON, in which a "?" replaces the characters that those refuse.
    """
    return json.dumps(_UNWRITABLE.sub("?", text), ensure_ascii=False)


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


def schema_text() -> str:
    """Return the schema as indented JSON, including what installed packages add.

    A faulty package is left out, with a warning. Faulty reports of packages get one, too.
    """
    from kindlm.config.diagnostics import Diagnostic
    from kindlm.config.published import schema_with_packages
    from kindlm.reports.report_registry import faulty_reports

    schema, errors = schema_with_packages()
    show(Diagnostic(error, "warning") for error in (*errors, *faulty_reports()))
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"
