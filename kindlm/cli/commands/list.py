"""`kindlm list`: list what `kindlm test` would run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len

from kindlm.cli.console import or_fail
from kindlm.cli.ending import loading
from kindlm.cli.history import project_here
from kindlm.cli.options import LIST_FORMAT, ListFormat, TestOptions, command_options, with_options
from kindlm.dataclass import replace
from kindlm.recording.project import default_paths
from kindlm.reports.untrusted import json_document, one_line
from kindlm.wording import count

if TYPE_CHECKING:
    from kindlm.plan import PlannedCase, PlannedSuite


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
        from kindlm.cli.run_options import load_tests, make_request
        from kindlm.plan import make_plan
        from kindlm.reports.commands import place

    project = project_here(options.database)
    options = replace(options, paths=options.paths or or_fail(default_paths(Path())))
    request = make_request(load_tests(options, project), project, options)
    plan = make_plan(request.suites, request.selection)
    listed = [
        (suite, [case for case in suite.cases if case.selected])
        for suite in plan.suites
        if suite.executions
    ]
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
                    for case in cases
                ],
            }
            for suite, cases in listed
        ]
        sys.stdout.write(json_document(executions=len(plan), suites=suites))
    else:
        for suite, cases in listed:
            where = place(suite.suite.path, None, project.root)
            sys.stdout.write(f"{one_line(suite.suite.name)}  {where}\n")
            width = max(cell_len(one_line(case.case.name)) for case in cases)
            for case in cases:
                name = one_line(case.case.name)
                name += " " * (width - cell_len(name))
                times = "skipped" if case.case.skip else f"× {case.repeat}"
                parts = [", ".join(case.targets), times]
                if tags := _tags(suite, case):
                    parts.append(f"tags: {', '.join(tags)}")
                sys.stdout.write(f"  {name}  {'  '.join(map(one_line, parts))}\n")
        tests = sum(len(cases) for _, cases in listed)
        sys.stdout.write(f"{count(tests, 'test')}, {count(len(plan), 'execution')}\n")
    return 0 if len(plan) and not request.skipped else 1


def _tags(suite: PlannedSuite, case: PlannedCase) -> list[str]:
    return list(dict.fromkeys((*suite.suite.tags, *case.case.tags)))
