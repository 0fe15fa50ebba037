"""The files that prompts and expectations bring along."""

from __future__ import annotations

from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles
from kindlm.config.json_schemas import warn_of_misspelt
from kindlm.config.places import Path
from kindlm.config.raw import Raw, expectations, items, section
from kindlm.errors import Err, Ok, Result

SYSTEM_FILE_KEYS = ("systemFile", "system_prompt_file")


def check_files(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report files that are not there, lead out of the folder, or are no valid JSON Schema."""
    for name, prompt in section(raw, "prompts").items():
        for key in (*SYSTEM_FILE_KEYS, "userFile"):
            file = prompt.get(key) if isinstance(prompt, dict) else None
            if isinstance(file, str) and file:
                report_file(("prompts", name, key), file, files.text(file), reporter)
    for path, test in items(raw, "tests"):
        _check_test(path, test, reporter, files)


def _check_test(path: Path, test: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    for place, expect in expectations(test):
        _check_expectations((*path, *place), expect, reporter, files)


def _check_expectations(
    path: Path, expect: Raw, reporter: Reporter, files: ReferencedFiles
) -> None:
    output = section(expect, "output")
    file = output.get("schemaFile")
    # With format text the file is not used, which is a warning: it may as well be absent.
    if isinstance(file, str) and file and output.get("format") == "json":
        report_schema((*path, "output", "schemaFile"), file, files, reporter)
    for place, call in items(expect, "toolCalls"):
        file = call.get("argsSchema")
        if isinstance(file, str) and file:
            report_schema((*path, *place, "argsSchema"), file, files, reporter)


def report_file(path: Path, file: str, result: Result[Any], reporter: Reporter) -> None:
    """Report that a file that is referred to cannot be used, if so."""
    if isinstance(result, Err):
        error = result.error
        reporter.error(path, error.message, error.hint, reason="file", code=error.code, value=file)


def report_schema(path: Path, file: str, files: ReferencedFiles, reporter: Reporter) -> Result[Any]:
    """Report a JSON Schema that cannot be used, or has misspelt keywords; return it."""
    schema = files.schema(file)
    report_file(path, file, schema, reporter)
    if isinstance(schema, Ok):
        warn_of_misspelt(path, schema.value, f'"{file}"', reporter)
    return schema
