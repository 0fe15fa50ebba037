"""From a run that did not finish to the request that finishes it, or why that can not be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kindlm.cli.request import TestOptions
from kindlm.cli.run_request import Resuming, RunRequest
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.resumption import RecordedSuite, RecordedTest, Unfinished
from kindlm.plan import PlannedSuite, make_plan

__all__ = ["as_recorded", "no_selection", "resumed"]


def no_selection(options: TestOptions) -> KindlmError | None:
    """Return what is wrong with options that would change what the resumed run consists of."""
    given = {
        "PATH": options.paths,
        "--suite": options.suite,
        "--test": options.tests,
        "--tags": options.tags,
        "--model": options.models,
        "--failed": options.failed,
        "--runs": options.repeat,
        "--gate": options.gate,
        "--label": options.label,
        "--shard": options.shard,
        "--run-group": options.run_group,
        "--dry-run": options.dry_run,
    }
    wrong = [name for name, value in given.items() if value]
    if not wrong:
        return None
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"--resume goes on with what the run began with; it does not take {', '.join(wrong)}.",
        "Leave that out, or begin a new run without --resume.",
    )


def as_recorded(options: TestOptions, unfinished: Unfinished, root: Path) -> TestOptions:
    """Return the options of the run's first session, with what is given anew for this one."""
    recorded = unfinished.options
    return replace(
        options,
        paths=tuple(root / path for path in recorded.paths),
        suite=recorded.suite,
        tests=tuple(recorded.tests),
        tags=tuple(recorded.tags),
        models=tuple(recorded.models),
        repeat=recorded.repeat,
        gate=recorded.gate,
        shard=recorded.shard,
        concurrency=options.concurrency or recorded.concurrency,
        timeout_ms=options.timeout_ms or recorded.timeout_ms,
        max_cost_usd=_given(options.max_cost_usd, recorded.max_cost_usd),
        max_rpm=_given(options.max_rpm, recorded.max_rpm),
    )


def resumed(request: RunRequest, unfinished: Unfinished, *, force: bool) -> Result[RunRequest]:
    """Return the request that finishes a run, unless it would be another run by now.

    A changed configuration is accepted if it is forced. The tests must be the same even then:
    executions are known by their place in the plan.
    """
    changed = _changed_suites(unfinished, request)
    if isinstance(changed, Err):
        return changed
    if changed.value and not force:
        return Err(_changed(unfinished.run, changed.value))
    return Ok(replace(request, group=unfinished.group, resuming=Resuming(changed.value)))


def _changed_suites(unfinished: Unfinished, request: RunRequest) -> Result[tuple[str, ...]]:
    """Return the suites whose configuration has changed; an error if their tests have."""
    if not unfinished.suites:
        return Ok(())  # it was stopped before anything of it was written down
    now = [_as_recorded_suite(each) for each in make_plan(request.suites, request.selection).suites]
    if {s.path for s in now} | {s.path for s in request.skipped} != {
        s.path for s in unfinished.suites
    }:
        return Err(_other_suites(unfinished, request))
    # One that could not start then, for want of a key or a port, may start now.
    then = {suite.path: suite for suite in unfinished.suites if suite.config_hash is not None}
    changed: list[str] = []
    for suite in now:
        before = then.get(suite.path)
        if before is None:
            continue
        if (before.ordinal, before.tests) != (suite.ordinal, suite.tests):
            return Err(_other_tests(unfinished.run, suite, before))
        if before.config_hash != suite.config_hash:
            changed.append(suite.name)
    return Ok(tuple(changed))


def _as_recorded_suite(planned: PlannedSuite) -> RecordedSuite:
    suite = planned.suite
    tests = [
        RecordedTest(
            entry.case.name,
            target,
            entry.selected and target in entry.targets,
            entry.case.skip,
            entry.repeat,
        )
        for entry in planned.cases
        for target in entry.case.targets
    ]
    return RecordedSuite(planned.ordinal, suite.name, suite.path, suite.config_hash, tuple(tests))


def _given(now: float | None, then: float | None) -> float | None:
    return then if now is None else now


def _other_suites(unfinished: Unfinished, request: RunRequest) -> KindlmError:
    names = {suite.name for suite in request.suites} | {suite.name for suite in request.skipped}
    known = {suite.name for suite in unfinished.suites}
    differences = [f"{name!r} is new" for name in sorted(names - known)]
    differences += [f"{name!r} is gone or has an error now" for name in sorted(known - names)]
    return _refused(unfinished.run, "the suites are not the same", differences)


def _other_tests(run: str, now: RecordedSuite, before: RecordedSuite) -> KindlmError:
    named_now = {(test.name, test.target) for test in now.tests}
    named_before = {(test.name, test.target) for test in before.tests}
    differences = [f"{name!r} is new" for name, _ in sorted(named_now - named_before)]
    differences += [f"{name!r} is gone" for name, _ in sorted(named_before - named_now)]
    differences = differences or ["their order, repeats or skips differ"]
    return _refused(run, f"the tests of suite {now.name!r} are not the same", differences)


def _refused(run: str, what: str, differences: Sequence[str]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed: {what} ({'; '.join(differences[:5]) or 'other order'}).",
        "Put the files back as they were, or begin a new run: kindlm test",
    )


def _changed(run: str, changed: Sequence[str]) -> KindlmError:
    names = ", ".join(repr(name) for name in changed)
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed: the configuration of {names} has changed since.",
        "Put it back as it was, begin a new run, or mix both on purpose with --force-resume.",
    )
