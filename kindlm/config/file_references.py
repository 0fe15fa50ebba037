"""The files and schemas that tests and prompts bring along."""

from __future__ import annotations

from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles
from kindlm.config.json_schemas import schema_fault
from kindlm.config.places import Path
from kindlm.config.raw import Raw, items, section
from kindlm.errors import Err, Result

__all__ = ["SYSTEM_FILE_KEYS", "check_files"]

SYSTEM_FILE_KEYS = ("systemFile", "system_prompt_file")


def check_files(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report files that are not there, lead out of the folder, or are no valid JSON Schema."""
    for name, prompt in section(raw, "prompts").items():
        for key in (*SYSTEM_FILE_KEYS, "userFile"):
            file = prompt.get(key) if isinstance(prompt, dict) else None
            if isinstance(file, str) and file:
                _report(("prompts", name, key), file, files.text(file), reporter)
    for path, test in items(raw, "tests"):
        _check_test(path, test, reporter, files)


def _check_test(path: Path, test: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    expect = section(test, "expect")
    output = section(expect, "output")
    file = output.get("schemaFile")
    # With format text the file is not used, which is a warning: it may as well be absent.
    if isinstance(file, str) and file and output.get("format") == "json":
        place = (*path, "expect", "output", "schemaFile")
        _report(place, file, files.schema(file), reporter)
    for place, call in items(expect, "toolCalls"):
        file = call.get("argsSchema")
        if isinstance(file, str) and file:
            full = (*path, "expect", *place, "argsSchema")
            _report(full, file, files.schema(file), reporter)
    for place, tool in items(test, "tools"):
        _check_parameters((*path, *place, "parameters"), tool, reporter)


def _check_parameters(path: Path, tool: Raw, reporter: Reporter) -> None:
    parameters = tool.get("parameters")
    fault = schema_fault(parameters) if isinstance(parameters, dict) else None
    if fault is not None:
        reporter.error(
            path,
            f'The parameters of the tool "{tool.get("name")}" are not a valid JSON Schema: {fault}',
            "Providers refuse such a tool",
            reason="invalid_schema",
        )


def _report(path: Path, file: str, result: Result[Any], reporter: Reporter) -> None:
    if isinstance(result, Err):
        error = result.error
        reporter.error(path, error.message, error.hint, reason="file", code=error.code, value=file)
