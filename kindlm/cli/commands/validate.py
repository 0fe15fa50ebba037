"""`kindlm validate`, `kindlm list` and `kindlm schema`: test files, without running them.

`list` shows what `kindlm test` would run; `schema` prints the JSON Schema of kindlm.yaml.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TextIO

import typer
from rich.cells import cell_len

from kindlm.cli.console import note, or_fail, refuse, show
from kindlm.cli.ending import loading
from kindlm.cli.history import project_here
from kindlm.cli.options import (
    LIST_FORMAT,
    STRICT,
    ListFormat,
    TestOptions,
    argument,
    command_options,
    option,
    with_options,
)
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, SourceLocation
from kindlm.recording.project import default_paths, find_project
from kindlm.recording.secrets import redactor
from kindlm.reports.untrusted import json_document, one_line
from kindlm.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kindlm.config.diagnostics import Diagnostic
    from kindlm.plan import Plan, PlannedCase, PlannedSuite
    from kindlm.recording.loading import Loaded


def validate_command(
    paths: list[Path] | None = argument(
        "PATH", "Files, folders or pack:NAME. Default: what `kindlm test` runs.", default=None
    ),
    form: ListFormat = option("--format", "json is for editors.", default="terminal"),
    strict: bool = STRICT,
) -> None:
    """Check test files without running them."""
    with loading():
        from kindlm.recording.loading import load_paths

    root = or_fail(find_project(Path.cwd(), database=None, environ=os.environ)).root
    held = paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(held, root, strict=strict))
    files = len(loaded.files)
    tests = sum(len(suite.cases) for suite in loaded.suites) - len(loaded.unnamed)
    tests += sum(skipped.tests for skipped in loaded.skipped)
    diagnostics = [*loaded.diagnostics, *_unset(loaded, root)]
    severities = [found.severity for found in diagnostics]
    errors, warnings = severities.count("error"), severities.count("warning")
    if form == "json":
        # For editors; lines and columns count from 1.
        document = json_document(
            files=files,
            tests=tests,
            errors=errors,
            warnings=warnings,
            diagnostics=[_diagnostic(found) for found in diagnostics],
            ignored=[str(path) for path in loaded.ignored],
        )
        sys.stdout.write(redactor(os.environ)(document))
    else:
        show(diagnostics)
        if loaded.ignored:
            note(loaded.told_of_ignored)
        found = [count(errors, "error")] if errors else []
        found += [count(warnings, "warning")] if warnings else []
        problems = ", ".join(found) or "no problems"
        sys.stdout.write(f"{count(files, 'file')}, {count(tests, 'test')}: {problems}\n")
    if errors:
        raise typer.Exit(1)


def _unset(loaded: Loaded, root: Path) -> Iterator[Diagnostic]:
    """Yield a warning for each suite that uses variables without a value.

    It is no error: a suite may be validated where the keys that its runs need are not.
    """
    from kindlm.config.diagnostics import Diagnostic
    from kindlm.config.interpolation import unset_variables
    from kindlm.recording.project import run_environment
    from kindlm.reports.facts import typed_path

    environ = run_environment([*loaded.folders, root], os.environ)
    for suite in loaded.suites:
        for error in unset_variables(suite, environ):
            where = SourceLocation(typed_path(suite.path, root))
            yield Diagnostic(replace(error, where=where), "warning")


def _diagnostic(found: Diagnostic) -> dict[str, object]:
    error = found.error
    where = error.where
    return {
        "file": where.file if where else None,
        "line": where.line if where else None,
        "column": where.column if where else None,
        "severity": found.severity,
        "code": error.code.name,
        "number": error.code.value,
        "reason": error.details.get("reason"),
        "path": found.path,
        "message": error.message,
        "hint": error.hint,
    }


@command_options
class ListOptions(TestOptions):
    """The options of `kindlm list`, as typed."""

    takes: ClassVar[tuple[str, ...]] = (
        "paths", "config", "suite", "tests", "keywords", "tags", "models", "failed", "repeat",
        "shard", "strict", "form", "database",
    )  # fmt: skip

    form: ListFormat = LIST_FORMAT


@with_options
def list_command(options: ListOptions) -> int:
    """List what `kindlm test` would run.

    Shows suites, tests, targets, repeats and tags. Exits with 1 if there is nothing to run.
    """
    with loading():
        from kindlm.cli.run_options import make_request
        from kindlm.cli.run_recording import tell_loaded
        from kindlm.plan import make_plan
        from kindlm.recording.loading import load_paths
        from kindlm.recording.project import default_paths

    project = project_here(options.database)
    options = replace(options, paths=options.paths or or_fail(default_paths(Path())))
    loaded = or_fail(load_paths(options.paths, project.root, strict=options.strict))
    tell_loaded(loaded, options)
    request = make_request(loaded, project, options)
    plan = make_plan(request.suites, request.selection)
    if options.form == "json":
        suites = [
            {
                "name": suite.suite.name,
                "path": suite.suite.path,
                "tests": [
                    {
                        "name": case.case.name,
                        "targets": list(case.targets),
                        "tags": _tags(suite, case),
                        "repeat": case.repeat,
                        "skip": bool(case.case.skip),
                    }
                    for case in _selected(suite)
                ],
            }
            for suite in plan.suites
            if suite.executions
        ]
        sys.stdout.write(json_document(executions=len(plan), suites=suites))
    else:
        _write_list(plan, sys.stdout, project.root)
    return 0 if len(plan) and not request.skipped else 1


def _write_list(plan: Plan, out: TextIO, root: Path) -> None:
    """Write a plan for people: a line for each suite, and one for each test."""
    from kindlm.reports.facts import place

    tests = 0
    for suite in (suite for suite in plan.suites if suite.executions):
        cases = _selected(suite)
        tests += len(cases)
        out.write(f"{one_line(suite.suite.name)}  {place(suite.suite.path, None, root)}\n")
        width = max(cell_len(one_line(case.case.name)) for case in cases)
        for case in cases:
            name = one_line(case.case.name)
            name += " " * (width - cell_len(name))
            parts = [", ".join(case.targets), "skipped" if case.case.skip else f"× {case.repeat}"]
            if tags := _tags(suite, case):
                parts.append(f"tags: {', '.join(tags)}")
            out.write(f"  {name}  {'  '.join(map(one_line, parts))}\n")
    out.write(f"{count(tests, 'test')}, {count(len(plan), 'execution')}\n")


def _selected(suite: PlannedSuite) -> list[PlannedCase]:
    return [case for case in suite.cases if case.selected]


def _tags(suite: PlannedSuite, case: PlannedCase) -> list[str]:
    return list(dict.fromkeys((*suite.suite.tags, *case.case.tags)))


def schema_command(
    output: Path | None = option("--output -o FILE", "Write to FILE. Default: stdout."),
) -> None:
    """Print the JSON Schema of kindlm.yaml."""
    if output is None:
        sys.stdout.write(schema_text())
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(schema_text(), "utf-8")
    except OSError as error:
        refuse(
            f"The schema cannot be written: {error.strerror or error}.",
            "Choose another file with --output.",
            code=ErrorCode.UNKNOWN_ERROR,
            where=SourceLocation(str(output)),
        )


def schema_text() -> str:
    """Return the schema as indented JSON, with what installed packages add.

    A faulty package is left out, with a warning: what the others add can be used. There is one for
    each faulty report of a package, too.
    """
    from kindlm.config.diagnostics import Diagnostic
    from kindlm.config.published import schema_with_packages
    from kindlm.reports.report_registry import faulty_reports

    schema, errors = schema_with_packages()
    show(Diagnostic(error, "warning") for error in (*errors, *faulty_reports()))
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"
