"""The verdict of a run in words, and the next command to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.history.groups import Group, Shard
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts
from kindlm.reports.figures import comparison
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_FINISHED_BY = {
    "live": "kindlm test --resume {run}",
    "rescored": "kindlm rescore --resume {run}",
    "replayed": "kindlm replay --from {source}",
}
"""What finishes a run that was stopped, by its mode."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word` is PASSED, FAILED, or how a run stands that did not finish."""

    word: str
    reasons: tuple[str, ...]
    passed: bool

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.word}: {', '.join(self.reasons)}"


def verdict_of(view: RunView) -> Verdict:
    """Return the verdict by today's rules, with what decided it."""
    status = view.status
    word = status.upper()
    if status == "passed":
        return Verdict(word, _why_passed(view.summary.tests), passed=True)
    if status == "failed":
        return Verdict(word, _why_failed(view.suites), passed=False)
    return _unfinished(view, view.missing, view.info.planned, view.suites)


def suite_verdict_of(view: RunView, suite: SuiteView) -> Verdict:
    """Return the verdict of one suite by today's rules, with what decided it."""
    if suite.error_code is not None:
        return Verdict("NOT RUN", ("it could not be loaded",), passed=False)
    if missing := view.missing_of(suite):
        ended = suite.executions.total - suite.executions.pending
        return _unfinished(view, missing, missing + ended, [suite])
    if not suite.executions.tested:
        return Verdict("NOT TESTED", _why_failed([suite]), passed=False)
    if suite.passed:
        return Verdict("PASSED", _why_passed(suite.tests), passed=True)
    return Verdict("FAILED", _why_failed([suite]), passed=False)


def describe_shard(shard: Shard) -> str:
    """Return which part of a group a run is, and what of the group is not in the history."""
    own = shard.name(shard.index)
    if shard.group is None:
        return f"Shard {own} of a group without a name: it can not be put together"
    parts = [f"Shard {own} of group {shard.group}"]
    for how, indices in (("not here", shard.missing), ("not finished", shard.unfinished)):
        if indices:
            parts.append(f"{how}: {', '.join(map(shard.name, indices))}")
    return "; ".join(parts)


def describe_group(group: Group) -> tuple[str, ...]:
    """Return what a group has, what it lacks, and which of its runs do not count."""
    lines = [f"{len(group.shards)} of {count(group.count, 'shard')}"]
    if not group.complete:
        lines.append(f"Incomplete: {group.what_lacks}")
    counting = {shard.index: shard.run for shard in group.shards}
    lines += [
        f"Shard {shard.index}/{group.count} ran again: run {counting[shard.index]} counts,"
        f" not {shard.run}"
        for shard in group.replaced
    ]
    return tuple(lines)


def show_run(view: RunView) -> str:
    """Return the command that shows a run, or a group."""
    return f"kindlm show {shlex.quote(one_line(view.id))}"


def show_command(execution: str) -> str:
    """Return the command that shows an execution, by its id."""
    run, _, number = execution.rpartition("-")
    return f"kindlm show {run} {number}"


def next_command(view: RunView) -> str:
    """Return what to type next.

    That is what finishes a run that was stopped, or brings in its other shards, else what shows the
    first execution that did not pass, else the history.
    """
    was_stopped = view.status in ("interrupted", "aborted", "killed")
    if (was_stopped or view.status == "incomplete") and view.runner is not None:
        return f"{view.runner} --kindlm --lf"  # who chose the tests has to choose them again
    if was_stopped and view.info.mode in _FINISHED_BY:
        command = _FINISHED_BY[view.info.mode].format(run=view.id, source=view.info.source_run)
        # The limit that stopped it holds for its next session, too, unless another one is given.
        spent = view.info.ended == "aborted" and "--max-cost" in (view.info.reason or "")
        return f"{command} --max-cost MORE" if spent else command
    if view.group is not None and view.group.missing:
        return "kindlm merge DB"
    if view.group is not None and not view.group.complete:
        stopped = [shard for shard in view.group.unfinished if shard.state != "running"]
        return f"kindlm test --resume {stopped[0].run}" if stopped else show_run(view)
    if (failing := _show_failing(view)) is not None:
        return failing
    for suite in view.suites:
        if suite.error_code is not None:
            return f"kindlm validate {suite.path}"
    return "kindlm browse"


def _show_failing(view: RunView) -> str | None:
    """Return what shows the first execution that did not pass, None if there is none."""
    broken = False
    for test in view.tests():
        broken = broken or bool(test.broken_limits)
        if not (test.counts.failed or test.counts.errored):
            continue
        for execution in view.executions(test):
            if execution.status in ("failed", "errored"):
                return show_command(execution.id)
    # Every repeat passed, and a test did not: the details tell of all of them.
    return f"{show_run(view)} --verbose" if broken else None


def _unfinished(view: RunView, missing: int, planned: int, suites: Sequence[SuiteView]) -> Verdict:
    """Return how a run, or suites of it, stand that did not come to their end."""
    word, executions = view.status.upper(), count(planned, "execution")
    if view.status == "running":
        return Verdict(word, (f"{missing:,} of {executions} have not ended yet",), passed=False)
    reasons = _why_failed(suites)
    if missing:
        reasons = (f"{missing:,} of {executions} did not run to their end", *reasons)
    reason = view.info.reason or "its process ended before it could say why"
    return Verdict(word, (reason, *reasons), passed=False)


def _why_passed(tests: StatusCounts) -> tuple[str, ...]:
    tolerated = [f"{count(tests.failed, 'failed test')} tolerated"] if tests.failed else []
    skipped = [f"{tests.skipped:,} skipped"] if tests.skipped else []
    return (f"{count(tests.passed, 'test')} passed", *tolerated, *skipped)


def _why_failed(suites: Sequence[SuiteView]) -> tuple[str, ...]:
    reasons = []
    # Failures that a suite tolerates are not why the run failed.
    failed = sum(s.tests.failed for s in suites if s.error_code is None and not s.tolerates)
    if failed:
        reasons.append(f"{count(failed, 'test')} failed")
    if errored := sum(suite.tests.errored for suite in suites):
        reasons.append(f"{count(errored, 'test')} errored")
    if broken := [suite for suite in suites if suite.error_code is not None]:
        reasons.append(f"{count(len(broken), 'suite')} could not be run")
    several = sum(bool(suite.gates) for suite in suites) > 1
    reasons += [
        f"gate {gate.name} {comparison(gate)}{f' in {suite.name}' if several else ''}"
        for suite in suites
        for gate in suite.gates
        if not gate.passed
    ]
    if not any(suite.executions.tested for suite in suites):
        reasons.append("nothing was tested")
    return tuple(reasons)
