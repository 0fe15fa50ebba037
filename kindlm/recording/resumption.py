"""From a run that did not finish to the request that finishes it, or why that can not be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.resumption import RecordedSuite, RecordedTest, Unfinished
from kindlm.plan import Places, PlannedSuite, make_plan
from kindlm.providers.registry import check_settings
from kindlm.recording.request import Resuming, RunRequest, SkippedSuite
from kindlm.recording.serving import Served

__all__ = ["lost_suite", "resumed"]


def resumed(request: RunRequest, unfinished: Unfinished, *, force: bool) -> Result[RunRequest]:
    """Return the request that finishes a run, unless it would be another run by now.

    A changed configuration is accepted if it is forced. The tests must be the same even then:
    executions are known by their place in the plan.
    """
    wrong = _other_suites(request, unfinished)
    if wrong is not None:
        return Err(wrong)
    places = Places(_ordinals(request, unfinished), unfinished.started)
    suites = sorted(request.suites, key=lambda suite: places.ordinals[suite.path])
    plan = make_plan(suites, request.selection, places=places)
    before = {suite.path: suite for suite in unfinished.suites}
    changed: list[str] = []
    for now in map(_as_recorded_suite, plan.suites):
        if now.path not in unfinished.started_paths:
            continue  # One that could not start, for want of a key or a port, may start now.
        then = before[now.path]
        if then.tests != now.tests:
            return Err(_other_tests(unfinished.run, now, then))
        if then.config_hash != now.config_hash:
            changed.append(now.name)
    if changed and not force:
        return Err(_changed(unfinished.run, changed))
    resuming = Resuming(places, tuple(changed))
    return Ok(replace(request, suites=suites, group=unfinished.group, resuming=resuming))


def lost_suite(served: Served, request: RunRequest, before: Unfinished) -> SkippedSuite | None:
    """Return a suite that had started and can not go on now: a program or a key is missing.

    To go on without it would seal a run that is not what it began as, and may have been paid for.
    """
    for ordinal, skipped in sorted(served.skipped.items()):
        if ordinal in before.started:
            return skipped
    if request.derived is not None:
        return None  # Nobody is called without whom it could not go on.
    left = {
        (each.suite.ordinal, each.target): each.suite.suite
        for each in served.plan
        if each.id not in before.earlier.finished
        and each.suite.ordinal in before.started
        and not each.case.skip
    }
    for (_, target), suite in left.items():
        model = suite.models.get(target)
        if model is not None:
            usable = check_settings(suite.providers[model.provider], request.environ)
            if isinstance(usable, Err):
                return SkippedSuite(suite.name, suite.path, 0, usable.error)
    return None


def _other_suites(request: RunRequest, unfinished: Unfinished) -> KindlmError | None:
    """Return an error if the files do not hold the suites that the run began with."""
    then = {suite.path: suite.name for suite in unfinished.suites}
    broken = {suite.path for suite in request.skipped}
    now = _names(request)
    # Of a run that was killed at its very start, not all suites may have been written down.
    new = now.keys() - then.keys() if unfinished.has_begun else set()
    differences = [f"{now[path]!r} is new" for path in sorted(new)]
    differences += [f"{then[path]!r} is gone" for path in sorted(then.keys() - now.keys())]
    differences += [
        f"{now[path]!r} has an error now" for path in sorted(unfinished.started_paths & broken)
    ]
    if not differences:
        return None
    return _refused(unfinished.run, "the suites are not the same", differences)


def _ordinals(request: RunRequest, unfinished: Unfinished) -> Mapping[str, int]:
    """Return the ordinals of all suites: the recorded ones, and the next for those that have none.

    What could not be loaded comes last, as in a run that begins.
    """
    ordinals = {suite.path: suite.ordinal for suite in unfinished.suites}
    free = max(ordinals.values(), default=-1) + 1
    for path in _names(request):
        if path not in ordinals:
            ordinals[path] = free
            free += 1
    return ordinals


def _names(request: RunRequest) -> dict[str, str]:
    names = {suite.path: suite.name for suite in request.suites}
    return names | {suite.path: suite.name for suite in request.skipped}


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


def _other_tests(run: str, now: RecordedSuite, before: RecordedSuite) -> KindlmError:
    named_now = {(test.name, test.target) for test in now.tests}
    named_before = {(test.name, test.target) for test in before.tests}
    differences = [f"{_test(key)} is new" for key in sorted(named_now - named_before)]
    differences += [f"{_test(key)} is gone" for key in sorted(named_before - named_now)]
    differences = differences or ["their order, selection, repeats or skips differ"]
    return _refused(run, f"the tests of suite {now.name!r} are not the same", differences)


def _test(key: tuple[str, str]) -> str:
    name, target = key
    return f"{name!r} on {target!r}"


def _refused(run: str, what: str, differences: Sequence[str]) -> KindlmError:
    more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed: {what} ({'; '.join(differences[:5])}{more}).",
        "Put the files back as they were, or begin a new run: kindlm test",
    )


def _changed(run: str, changed: Sequence[str]) -> KindlmError:
    names = ", ".join(repr(name) for name in changed)
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed: the configuration of {names} has changed since.",
        "Put it back as it was, begin a new run, or mix both on purpose with --force-resume.",
    )
