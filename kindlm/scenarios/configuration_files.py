"""Where the configuration of a project's scenarios is: `kindlm.toml`, or `[tool.kindlm]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.load import read_bytes
from kindlm.config.raw import section
from kindlm.errors import Err, ErrorCode, KindlmError, SourceLocation
from kindlm.formats.evalview.toml_document import read_toml
from kindlm.scenarios.configuration import (
    LoadedConfiguration,
    ProjectConfiguration,
    read_configuration,
)
from kindlm.scenarios.tool_table import names_kindlm

_IN_PYPROJECT = ("tool", "kindlm")


def load_configuration(root: Path, environ: Mapping[str, str]) -> LoadedConfiguration:
    """Load the configuration of a project. Never raises for what a user did.

    It is kindlm.toml, else `[tool.kindlm]` of pyproject.toml; that there are both is told.
    """
    file, pyproject = root / "kindlm.toml", root / "pyproject.toml"
    if file.is_file():
        found = _load(file, (), environ)
        second = _load(pyproject, _IN_PYPROJECT, environ) if pyproject.is_file() else None
        if second is None or second.file is None:
            return found
        return replace(found, diagnostics=(*found.diagnostics, _second(pyproject)))
    if not pyproject.is_file():
        return LoadedConfiguration(ProjectConfiguration(), None, None)
    return _load(pyproject, _IN_PYPROJECT, environ)


def _load(file: Path, path: tuple[str, ...], environ: Mapping[str, str]) -> LoadedConfiguration:
    """Load the tables at `path` of a file; `file` of the result is None if they are not there."""
    data = read_bytes(file)
    if isinstance(data, Err):
        return LoadedConfiguration(None, None, file, (Diagnostic(data.error, "error", "", None),))
    document = read_toml(data.value)
    whole = Reporter(str(file), document)
    text = data.value.decode("utf-8", errors="replace")
    is_ours = _has(document.value[0], path) if document.readable else names_kindlm(text)
    if path and not is_ours:
        # Another tool's file, with nothing of ours in it; or nobody can know.
        told = () if document.readable else (_unread(file),)
        return LoadedConfiguration(ProjectConfiguration(), None, None, told)
    whole.problems()
    if path and document.readable and not isinstance(_at(document.value[0], path), dict):
        message = f"`{'.'.join(path)}` has to be a table"
        whole.error((0, *path), message, f"Write [{'.'.join(path)}]", reason="schema")
    if whole.has_errors:
        return LoadedConfiguration(None, None, file, tuple(whole.diagnostics))
    part = document.part(0)
    for name in path:
        part = part.part(name)
    return read_configuration(part, file, environ)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    *above, last = path
    return section(value, *above).get(last)


def _has(value: Any, path: tuple[str, ...]) -> bool:
    return not path or _at(value, path) not in (None, {})


def _unread(file: Path) -> Diagnostic:
    error = KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"{file.name} can not be read: what [tool.kindlm] may say there does not hold",
        "Mend the file: it is TOML, https://toml.io",
        SourceLocation(str(file)),
        {"reason": "syntax"},
    )
    return Diagnostic(error, "warning", "", None)


def _second(file: Path) -> Diagnostic:
    error = KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"[tool.kindlm] of {file.name} does not hold: there is a kindlm.toml",
        "Keep one of the two.",
        SourceLocation(str(file)),
        {"reason": "two_configurations"},
    )
    return Diagnostic(error, "warning", "tool.kindlm", None)
