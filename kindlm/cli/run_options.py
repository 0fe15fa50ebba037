"""Turns the options of `kindlm test` and the loaded suites into the request of a run.

Invalid options end the command. A resumed run keeps its original options; only a few may be given
again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from kindlm.bounds import MAX_SHARDS, MAX_WORKERS, SCHEDULERS
from kindlm.cli.console import fail_if, note, or_fail, refuse, show, warn
from kindlm.cli.history import open_history
from kindlm.cli.options import TestOptions, option_name, refuse_together
from kindlm.cli.reporters import spare
from kindlm.dataclass import replace
from kindlm.engine.resources import Limits
from kindlm.events.run import RunOptions
from kindlm.history.run_names import label_problem
from kindlm.outcome import Gate
from kindlm.plan import QualifiedName, Selection, fits_nothing, parse_keywords
from kindlm.recording.loading import Loaded, load_paths
from kindlm.recording.project import Project, paths_from, run_environment
from kindlm.recording.request import RunRequest
from kindlm.recording.resumption import Unfinished
from kindlm.reports.figures import percent
from kindlm.reports.report_registry import Reporter
from kindlm.suite import Suite

RECORDED_OPTIONS = [field.name for field in fields(RunOptions) if field.name != "runner"]
"""The options recorded with a run. They have the same names in `TestOptions`."""

_NOT_KEPT = ("fail_fast", "force_resume")
"""Recorded options that do not apply when the run is resumed."""

NOT_RESUMED = (
    "suite", "tests", "tags", "models", "keywords", "failed", "repeat", "gate", "label", "cache",
    "compat", "shard", "run_group", "dry_run",
)  # fmt: skip
"""Options that would change the tests of a resumed run."""

_GIVEN_ANEW = ("concurrency", "timeout_ms", "max_cost_usd", "max_rpm")

_CI_RUNS = (
    "GITHUB_RUN_ID", "CI_PIPELINE_ID", "CIRCLE_WORKFLOW_ID", "BUILDKITE_BUILD_ID", "BUILD_TAG",
    "BUILD_BUILDID",
)  # fmt: skip
"""Variables with the id of a CI run, which all its jobs share: on GitHub, GitLab, CircleCI,
Buildkite, Jenkins and Azure Pipelines. None changes if only failed jobs run again, so that their
shards stay in the same group."""


def make_request(
    loaded: Loaded, project: Project, options: TestOptions, unfinished: Unfinished | None = None
) -> RunRequest:
    """Return the request of a run.

    `unfinished` is the run to resume. It keeps the tests that `--failed` selected then.
    """
    _check_options(options)
    label = options.label and options.label.strip()
    fail_if(None if label is None else label_problem(label))
    suites = _gated(loaded.suites, options)
    known = {target for suite in suites for target in (*suite.models, *suite.agents)}
    if unknown := [model for model in options.models if model not in known]:
        refuse(f"No model has the id {unknown[0]!r}.", f"Models are: {', '.join(sorted(known))}")
    unfit = [test for test in options.tests if fits_nothing(suites, test)]
    if unfit and len(options.tests) > 1:  # with one, the caller finds that nothing is selected
        refuse(f"No test has {unfit[0]!r} in its name.", "kindlm list shows the tests.")
    tags = {tag.lower() for it in suites for case in it.cases for tag in (*it.tags, *case.tags)}
    lost = [tag for tag in options.tags if tag and tag.lower() not in tags]
    if lost and len(options.tags) > 1 and options.warnings:
        warn(f"No test has the tag {lost[0]!r}.", "kindlm list shows the tests with their tags.")
    keywords = options.keywords
    environ = run_environment([*loaded.folders, project.root], os.environ)
    of_ci = next((environ[name] for name in _CI_RUNS if environ.get(name)), None)
    group = options.run_group or of_ci
    recorded = {name: getattr(options, name) for name in RECORDED_OPTIONS}
    recorded["compat"] = "evalview" if options.compat == "evalview" else None
    recorded["paths"] = paths_from(project.root, options.paths)
    return RunRequest(
        suites=tuple(
            replace(
                suite,
                concurrency=options.concurrency or suite.concurrency,
                timeout_ms=options.timeout_ms or suite.timeout_ms,
            )
            for suite in suites
        ),
        skipped=loaded.skipped,
        selection=Selection(
            suite=options.suite,
            tests=options.tests,
            tags=options.tags,
            models=options.models,
            keywords=None if keywords is None else or_fail(parse_keywords(keywords)),
            repeat=options.repeat,
            only=_failing(suites, options.database, unfinished) if options.failed else None,
            unnamed=loaded.unnamed,
            shard=None if options.shard is None else parse_shard(options.shard),
        ),
        root=project.root,
        database=project.database,
        environ=environ,
        options=RunOptions(**recorded),
        limits=Limits(options.max_cost_usd, options.max_time_s, options.max_rpm),
        label=label,
        group=group if options.shard else None,
    )


def load_tests(
    options: TestOptions,
    project: Project,
    reporters: Sequence[Reporter] = (),
    *,
    is_run: bool = True,
) -> Loaded:
    """Load the suites in the paths of the options, and show problems of their files.

    The command ends if they cannot be loaded, or if a report would overwrite one. Unless it
    `is_run`, keys for agents may be missing.
    """
    compat = options.compat == "evalview"
    loaded = or_fail(
        load_paths(options.paths, project.root, strict=options.strict, compat=compat, is_run=is_run)
    )
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    show(found for found in loaded.diagnostics if found.severity == "error" or options.warnings)
    if loaded.ignored and options.warnings:
        note(loaded.ignored_message)
    return loaded


def wants_push(request: RunRequest, options: TestOptions) -> bool:
    """Return whether to send the run to a history server."""
    return options.push or any(suite.upload.enabled for suite in request.suites)


def _gated(suites: tuple[Suite, ...], options: TestOptions) -> tuple[Suite, ...]:
    """Return the suites with the pass rate of `--gate`, and show how kindlm read it."""
    if options.gate is None:
        return suites
    try:
        number = float(options.gate)
    except ValueError:
        number = -1.0
    # 0 to 1 is a fraction, above that percent.
    rate = number if number <= 1 else number / 100
    if not 0 <= rate <= 1:
        refuse(
            f"--gate {options.gate!r} is not a pass rate.",
            "Write a percentage or a fraction: --gate 95, --gate 0.95",
        )
    if rate == 0 and options.strict:
        refuse("--gate 0 allows all tests to fail.", "Write a higher rate, or leave out --strict.")
    if options.warnings:
        note(f"--gate {options.gate}: at least {percent(rate)} of executions must pass.")
    gate = Gate("passRateMin", rate, written=True)
    return tuple(
        replace(suite, gates=(gate, *(own for own in suite.gates if own.name != gate.name)))
        for suite in suites
    )


def _failing(
    suites: Iterable[Suite], database: Path | None, unfinished: Unfinished | None
) -> frozenset[QualifiedName]:
    from kindlm.history.trends import failing_tests  # only `--failed` needs it

    # Started suites keep their selection, since tests may have passed meanwhile.
    started = () if unfinished is None else unfinished.started_paths
    kept = frozenset() if unfinished is None else unfinished.selected
    with open_history(database) as connection:
        return kept | {
            QualifiedName(suite.project, suite.name, test, target)
            for suite in suites
            if suite.path not in started
            for test, target in failing_tests(
                connection,
                suite.project,
                suite.name,
                {(case.name, target) for case in suite.cases for target in case.targets},
            )
        }


def _check_options(options: TestOptions) -> None:
    for attribute in ("max_cost_usd", "max_time_s", "max_rpm"):
        value, name = getattr(options, attribute), option_name(options, attribute)
        if value is not None and not math.isfinite(value):
            refuse(f"{name} {value} is not a limit.", "Write a number, or leave it out.")
    group = options.run_group
    if group is not None:
        fail_if(label_problem(group, "--run-group"))
        if not (options.shard or options.workers):
            refuse("--run-group requires --shard.", "Say which shard this is, such as --shard 1/4.")
    if (workers := options.workers) is None:
        if options.listen is not None:
            refuse("--listen requires --workers.", "Name a scheduler: --workers tcp://HOST:8786")
        return
    is_cluster = workers.startswith(SCHEDULERS)
    if not (is_cluster or (_is_number(workers) and 1 <= int(workers) <= MAX_WORKERS)):
        refuse(
            f"--workers {workers!r} is not a number of processes.",
            f"Write how many work on the tests, from 1 to {MAX_WORKERS}: --workers 4; or the"
            " address of a scheduler: --workers tcp://HOST:8786",
        )
    if not is_cluster:
        refuse_together(f"--workers {workers}", options, "listen", "insecure")
    # Workers see no earlier runs, and `--workers` makes the shards.
    refuse_together("--workers", options, "shard", "cache", "failed")


def as_recorded(options: TestOptions, unfinished: Unfinished, root: Path) -> TestOptions:
    """Return the options that an unfinished run began with, and those given anew to resume it.

    `resumed` checks that paths given anew hold the same suites.
    """
    recorded = unfinished.options
    paths = tuple(options.paths) or tuple(root / path for path in recorded.paths)
    old = {name: getattr(recorded, name) for name in RECORDED_OPTIONS if name not in _NOT_KEPT}
    new = {name: given for name in _GIVEN_ANEW if (given := getattr(options, name)) is not None}
    return replace(options, **old | new | {"paths": paths})


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of `--shard I/N`; shards are numbered from 1."""
    index, slash, shards = text.partition("/")
    is_shard = slash and _is_number(index) and _is_number(shards)
    if not (is_shard and 1 <= int(index) <= int(shards) <= MAX_SHARDS):
        refuse(
            f"--shard {text!r} is not a shard.",
            f"Write its number and the number of shards, at most {MAX_SHARDS:,}: --shard 2/4",
        )
    return int(index), int(shards)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6
