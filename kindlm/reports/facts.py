"""The facts of a run that all reports show: verdict, notes, totals, attacks, failures.

They may contain text of models and users, with personal data masked. Each report escapes it for its
format, unless a docstring says that a text is safe to print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kindlm.dataclass import replace
from kindlm.errors import KindlmError
from kindlm.history.groups import Group
from kindlm.history.queries import ATTACKS, SKIPPED, UNPRICED, paid_for_test
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run
from kindlm.history.statistics import wilson_interval
from kindlm.history.verdict import StatusCounts
from kindlm.outcome import NOTHING_CHECKED
from kindlm.reports import figures
from kindlm.reports.untrusted import one_line
from kindlm.spelling import fields_of
from kindlm.wording import count, first_of

_MOST_WARNINGS = 5

_NO_REASON = "its process ended without giving a reason"


class Headline(NamedTuple):
    """A verdict and its reasons; `good` is None if it is neither good nor bad.

    `word` is such as PASSED or REGRESSED, or the state of a run that did not finish.
    """

    word: str
    reasons: tuple[str, ...]
    good: bool | None


def verdict_of(view: RunView) -> Headline:
    """Return the verdict by today's rules, with its reasons."""
    if view.status == "passed":
        return Headline("PASSED", _why_passed(view, view.summary.tests), good=True)
    if view.status == "failed":
        why = _why_unfinished(view, view.missing, view.info.planned)
        return Headline("FAILED", (*why, *_why_failed(view.suites)), good=False)
    return _unfinished(view, view.missing, view.info.planned, view.suites)


def suite_verdict_of(view: RunView, suite: SuiteView) -> Headline:
    """Return the verdict of one suite by today's rules, with its reasons."""
    if suite.error_code is not None:
        return Headline("NOT RUN", ("it could not be loaded",), good=False)
    if is_unfinished(view, suite):
        missing = view.missing_of(suite)
        ended = suite.executions.total - suite.executions.pending
        return _unfinished(view, missing, missing + ended, [suite])
    if not suite.executions.tested:
        return Headline("NOT TESTED", _why_failed([suite]), good=False)
    if suite.passed:
        return Headline("PASSED", _why_passed(view, suite.tests, suite), good=True)
    return Headline("FAILED", _why_failed([suite]), good=False)


def is_unfinished(view: RunView, suite: SuiteView) -> bool:
    """Return whether a suite of a run, or of a group of shards, did not complete.

    A stopped run of several suites may have completed this one; a missing shard affects all suites.
    """
    is_stopped = view.info.ended != "finished" and len(view.suites) == 1
    return bool(lacking_of(view, suite)) or is_stopped


def lacking_of(view: RunView, suite: SuiteView) -> str:
    """Return which results of a suite are missing, in words; "" if none is.

    A gate that passes on a part of the executions may still fail on all of them.
    """
    if missing := view.missing_of(suite):
        return f"{count(missing, 'execution')} did not finish"
    return view.group.what_lacks if view.group is not None else ""


def run_text(view: RunView) -> str:
    """Return the label, the mode, the start and the commit of a run, on one line."""
    info = view.info
    dirty = " with changes" if info.git_dirty else ""
    commit = f"{info.git_branch or 'git'}@{(info.git_commit or '')[:8]}{dirty}"
    parts = [
        info.label,
        None if info.mode == "live" else info.mode,
        f"{info.started_at[:10]} {info.started_at[11:16]} UTC",
        commit if info.git_commit else None,
    ]
    return " · ".join(one_line(part) for part in parts if part)


def git_state(run: Run) -> dict[str, Any]:
    """Return the git state of a run for programs; everything is None outside of a repository."""
    dirty = run.git_dirty if run.git_commit else None
    return {"commit": run.git_commit, "branch": run.git_branch, "dirty": dirty}


def shard_notes(view: RunView) -> Iterator[str]:
    """Yield notes on a shard and its group, or on a group: what is missing, what ran again."""
    if (shard := view.info.shard) is not None:
        if view.shard_of is None:
            yield f"Shard {shard} of a group without a name: it cannot be merged with the others"
        else:
            yield f"Shard {shard} of group {view.shard_of.name}{_lacking(view.shard_of)}"
    if (group := view.group) is not None:
        yield f"{len(group.shards)} of {count(group.count, 'shard')}{_lacking(group)}"
        counting = {shard.index: shard.id for shard in group.shards}
        for old in group.replaced:
            counts = f"run {counting[old.index]} counts, not {old.id}"
            yield f"Shard {old.index}/{group.count} ran again: {counts}"


def _lacking(group: Group) -> str:
    return "" if group.complete else f"; {group.what_lacks}"


def _unfinished(view: RunView, missing: int, planned: int, suites: Sequence[SuiteView]) -> Headline:
    why = _why_unfinished(view, missing, planned)
    failed = () if view.status == "running" else _why_failed(suites)
    return Headline(view.status.upper(), (*why, *failed), good=False)


def _why_unfinished(view: RunView, missing: int, planned: int) -> tuple[str, ...]:
    executions = count(planned, "execution")
    if view.status == "running":
        return (f"{missing:,} of {executions} have not finished yet",)
    left = (f"{missing:,} of {executions} did not finish",) if missing else ()
    # A run that finished has all its results, unless another program left some out.
    return left if view.info.ended == "finished" else (view.info.reason or _NO_REASON, *left)


def _why_passed(
    view: RunView, tests: StatusCounts, suite: SuiteView | None = None
) -> tuple[str, ...]:
    unchecked = dict(view.warnings_of_passed(suite)).get(NOTHING_CHECKED)
    nothing = [f"nothing was checked in {count(unchecked, 'execution')}"] if unchecked else []
    skipped = [f"{tests.skipped:,} skipped"] if tests.skipped else []
    return (f"{count(tests.passed, 'test')} passed", *nothing, *_tolerated(tests.failed), *skipped)


def _tolerated(failed: int) -> tuple[str, ...]:
    return (f"{count(failed, 'failed test')} tolerated",) if failed else ()


def _why_failed(suites: Sequence[SuiteView]) -> tuple[str, ...]:
    reasons = []
    loaded = [suite for suite in suites if suite.error_code is None]
    # Failures that a suite tolerates do not make the run fail.
    tolerated = sum(suite.tests.failed for suite in loaded if suite.tolerates)
    failed = sum(suite.tests.failed for suite in loaded) - tolerated
    if failed:
        reasons.append(f"{count(failed, 'test')} failed")
    if errored := sum(suite.tests.errored for suite in suites):
        reasons.append(f"{count(errored, 'test')} errored")
    elif not failed and (errored := sum(suite.executions.errored for suite in suites)):
        reasons.append(f"{count(errored, 'execution')} errored, which no gate tolerates")
    if broken := [suite for suite in suites if suite.error_code is not None]:
        reasons.append(f"{count(len(broken), 'suite')} could not be run")
    several = sum(bool(suite.gates) for suite in suites) > 1
    reasons += [
        f"gate {gate.name} {figures.comparison(gate)}{f' in {suite.full_name}' if several else ''}"
        for suite in suites
        for gate in suite.gates
        if not gate.passed
    ]
    reasons += _tolerated(tolerated)
    if not any(suite.executions.tested for suite in suites):
        reasons.append("nothing was tested")
    return tuple(reasons)


def notes_of(view: RunView) -> Iterator[str]:
    """Yield notes on a run, such as on its shards, or what was skipped or is not compared."""
    yield from shard_notes(view)
    if (then := then_text(view)) is not None:
        yield then
    if isinstance(problem := view.before, KindlmError):
        yield f"Not compared: {problem.message} {problem.hint or ''}".strip()
    for suite, reason, number in view.ask(SKIPPED):
        yield f"{count(number, 'execution')} of {one_line(suite)} skipped: {reason}"
    # The causes of other executions have their warnings.
    warnings = view.warnings_of_passed()
    for warning, number in warnings[:_MOST_WARNINGS]:
        yield f"Warning in {count(number, 'execution')}: {warning}"
    if len(warnings) > _MOST_WARNINGS:
        yield f"… and {len(warnings) - _MOST_WARNINGS:,} more warnings"


def then_text(view: RunView) -> str | None:
    """Return the verdict that users saw when the run ended, None if it is today's."""
    if view.info.passed in (None, view.passed):
        return None
    return f"When the run ended, it was reported as {'passed' if view.info.passed else 'failed'}."


def figures_of(view: RunView) -> Iterator[str]:
    """Yield the figures of a run in brief: passed executions, judges, cost, reviews and time."""
    summary = view.summary
    counts = summary.executions
    if counts.tested:
        end = "" if view.status == "passed" else " passed"
        yield f"{counts.passed:,} of {count(counts.tested, 'execution')}{end}"
    if summary.judge_average is not None:
        yield f"judges {figures.score(summary.judge_average)}"
    if (usd := summary.paid.total_usd) is not None:
        unknown = f" and {unknown_cost_text(view)}" if summary.paid.unknown else ""
        yield f"{figures.money(usd)}{unknown}"
    elif summary.paid.unknown:
        yield "cost unknown"
    if then := figures.total(summary.paid_then):
        yield f"{then} when it was recorded"
    if summary.calls_from_history and view.info.mode == "live":
        calls = count(summary.calls, "call")
        yield f"{summary.calls_from_history:,} of {calls} from the history"
    if (people := view.reviewed(None)).disputed:
        yield f"{people.disputed:,} disputed by reviewers"
    if view.info.duration_ms is not None:
        yield figures.duration(view.info.duration_ms)


_NAMED_MODELS = 5


def totals_of(view: RunView, suite: SuiteView | None = None) -> Iterator[tuple[str, str]]:
    """Yield the figures of the run, or of one suite of it, each with its name."""
    summary = view.summary if suite is None else suite.figures
    pending = "pending" if view.status == "running" else "not run"
    yield "tests", f"{summary.tests.total:,}: {figures.tally(summary.tests, pending)}"
    missing = view.missing if suite is None else view.missing_of(suite)
    # Executions that have not begun are pending, too.
    waiting = max(missing - summary.executions.pending, 0)
    executions = summary.executions + StatusCounts(pending=waiting)
    yield "executions", f"{executions.total:,}: {figures.tally(executions, pending)}"
    if executions.pass_rate is not None:
        interval = figures.interval_text(executions.passed, executions.tested)
        yield "pass rate", f"{figures.percent(executions.pass_rate)} (95 % interval: {interval})"
    if (attacks := attacks_of(view, suite)) is not None:
        yield "attack success rate", str(attacks)
        if attacks.classes:
            yield "attacks by class", attacks.by_class
    if summary.judge_average is not None:
        yield "judge", f"mean score {figures.score(summary.judge_average)}"
    if summary.drift_maximum is not None:
        yield "drift", f"at most {figures.score(summary.drift_maximum)}"
    if summary.input_tokens is not None or summary.output_tokens is not None:
        yield "tokens", figures.tokens(summary.input_tokens, summary.output_tokens)
    known = replace(summary.paid, unknown=0)
    costs = [] if known.total_usd is None else [figures.cost(known)]
    if summary.paid.unknown:
        costs.append(unknown_cost_text(view, suite))
    # The original cost of another run's answers follows the cost of this run.
    then = figures.cost(summary.paid_then)
    recorded = "" if then == "none" else f"; when it was recorded {then}"
    yield "cost", (", ".join(costs) or "none") + recorded
    if summary.calls_from_history and view.info.mode == "live":
        calls = count(summary.calls, "call")
        yield "cache", f"{summary.calls_from_history:,} of {calls} answered from the history"
    if (people := view.reviewed(suite)).executions:
        reviewed = f"{count(people.executions, 'execution')} reviewed"
        yield "reviews", f"{reviewed}, {people.disputed:,} of them disputed"
    # The duration of a single suite is not recorded.
    took = view.info.duration_ms if suite is None else None
    times = [] if took is None else [figures.duration(took)]
    if summary.latency_average_ms is not None:
        times.append(f"mean latency {figures.duration(summary.latency_average_ms)}")
    if times:
        yield "time", ", ".join(times)


_CLASS = re.compile(r"(?:ASI|LLM)(?:0[1-9]|10)")
"""Tags that are classes of OWASP's lists for agents (ASI) and for models (LLM)."""


@dataclass(slots=True)
class Attacks:
    """The number of attacks in tests with the tag `attack`, and how many of them succeeded.

    An attack succeeds if a check that forbids something fails; other failed checks, such as for an
    undone task, do not count. Each repeat is an attempt. Executions that errored are `undecided`
    and not in `attempts`. `classes` are the successes and attempts of each class.
    """

    successes: int = 0
    attempts: int = 0
    undecided: int = 0
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the rate with its interval: `3 of 36 (8.3 %, 95 % interval 2.9 % to 21.8 %)`."""
        shown = f"{self.successes:,} of {self.attempts:,}"
        if self.attempts:
            rate = figures.percent(self.successes / self.attempts)
            interval = figures.interval_text(self.successes, self.attempts)
            shown += f" ({rate}, 95 % interval {interval})"
        return shown + (f", {self.undecided:,} undecided not counted" if self.undecided else "")

    @property
    def by_class(self) -> str:
        """The successes and attempts of each class: `ASI01 1/12, LLM02 0/4`."""
        return ", ".join(f"{name} {won:,}/{of:,}" for name, (won, of) in self.classes.items())

    def as_json(self) -> dict[str, Any]:
        """Return them in the form of the JSON report."""
        return {
            **fields_of(self, "successes attempts undecided"),
            "rate": self.successes / self.attempts if self.attempts else None,
            "interval": wilson_interval(self.successes, self.attempts),
            "classes": [
                {"name": name, "successes": won, "attempts": of}
                for name, (won, of) in self.classes.items()
            ],
        }


def attacks_of(view: RunView, suite: SuiteView | None = None) -> Attacks | None:
    """Return the attacks of a run, or of one suite of it; None if it has none."""
    found = Attacks()
    for tags, executions, successes, undecided in view.ask(ATTACKS, suite):
        attempts = executions - undecided
        found.successes += successes
        found.attempts += attempts
        found.undecided += undecided
        for name in filter(_CLASS.fullmatch, json.loads(tags)):
            won, of = found.classes.get(name, (0, 0))
            found.classes[name] = (won + successes, of + attempts)
    found.classes = dict(sorted(found.classes.items()))
    return found if found.attempts or found.undecided else None


def repeats_text(test: TestView) -> str:
    """Return how many repeats of a test passed, `2/3 flaky`, or why there is no result."""
    counts = test.counts
    if counts.tested:
        return f"{counts.passed}/{counts.tested}{' flaky' if test.flaky else ''}"
    return "unfinished" if counts.pending else "skipped" if counts.total else "not run"


def cost_of(view: RunView, test: TestView) -> str:
    """Return the cost of a test, including judges and reruns; "" if it is unknown."""
    paid = paid_for_test(view.db, test.suite_id, test.name, test.target)
    usd = None if paid.unknown else paid.total_usd
    if view.info.mode == "imported":
        usd = test.cost_usd  # its calls may not be recorded
    return "" if usd is None else figures.money(usd)


def unknown_cost_text(view: RunView, suite: SuiteView | None = None) -> str:
    """Return which calls have an unknown cost: `unknown for 3 calls of gpt-4o`."""
    summary = view.summary if suite is None else suite.figures
    unpriced = view.ask(UNPRICED, suite)
    models = first_of((one_line(model, 60) for (model,) in unpriced), _NAMED_MODELS)
    return f"unknown for {count(summary.paid.unknown, 'call')} of {models}"


class Unsettled(NamedTuple):
    """Why a run proves nothing; `code` is such as `RUN_ABORTED` or `GROUP_INCOMPLETE`."""

    code: str
    message: str


def unsettled(view: RunView) -> Unsettled | None:
    """Return why a run, or a group of shards, did not finish or tested nothing, or None.

    Formats for programs show it as an error: a stopped run may have recorded only passed tests, and
    a run whose tests were all skipped fails without a failed test.
    """
    tested = view.summary.executions.tested
    if view.status == "failed" and not tested and all(suite.passed for suite in view.suites):
        return Unsettled("NOTHING_TESTED", "Nothing was tested.")
    if view.group is not None and not view.group.complete:
        return Unsettled(f"GROUP_{view.status.upper()}", view.group.what_lacks)
    why = "; ".join(_why_unfinished(view, view.missing, view.info.planned))
    if view.status in ("passed", "failed"):
        return Unsettled("RUN_INCOMPLETE", why) if why else None
    return Unsettled(f"RUN_{view.status.upper()}", why)


def went_wrong(view: RunView) -> Iterator[tuple[SuiteView, TestView]]:
    """Yield the tests with failed or errored repeats, even if they passed."""
    for suite in view.suites:
        yield from ((suite, test) for test in view.tests(suite.id) if is_wrong(test))


def is_wrong(test: TestView) -> bool:
    """Return whether a test has failed or errored repeats, or broke a limit."""
    return bool(test.counts.failed or test.counts.errored or test.broken_limits)
