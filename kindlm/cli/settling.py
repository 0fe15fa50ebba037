"""What `kindlm settle` does: repeats the suspected tests of a run until they are decided."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import fail, make_console, note, set_verbose, show
from kindlm.cli.history import open_history, open_recorded, or_fail
from kindlm.cli.interruption import HeldSignals
from kindlm.cli.reading import report_options, require_names
from kindlm.cli.settle_before import RepeatsOfBefore
from kindlm.cli.settle_request import SettledPair, SettleOptions, request_repeats
from kindlm.cli.settle_rounds import AT_A_TIME, Rounds, wanted_suspects
from kindlm.cli.test_run import record_run
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.diff.evidence_values import TestPair
from kindlm.history.diff.power import chance_to_settle
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.diff.values import QualifiedName
from kindlm.history.run_names import find_pair
from kindlm.history.run_view import RunView
from kindlm.recording.git import commit_of
from kindlm.recording.log import new_run_id
from kindlm.recording.project import find_project, regression_threshold
from kindlm.recording.request import RunRequest, Settling
from kindlm.recording.resumption import read_unfinished
from kindlm.reports.diff.parts import check_name
from kindlm.reports.diff.text import not_comparable_text
from kindlm.reports.terminal.settling import Settled, write_planned, write_settled
from kindlm_store import LockHeldError, StreamLock

_WORTH_IT = 10
"""Repeats of BEFORE are suggested where so many more of 100 drops would be confirmed."""


def settle_runs(options: SettleOptions) -> int:
    """Add repeats to what is suspected; return 1 if a regression is confirmed.

    Also if something else than the evidence or a budget ended it, such as Ctrl-C. Faults of the
    user end the command through `fail`.
    """
    set_verbose(options.verbose)
    console = make_console()
    require_names(options.before, options.after)
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    threshold = or_fail(regression_threshold(project.root))
    with open_history(options.database) as db:
        revision = partial(commit_of, project.root)
        before, after = or_fail(find_pair(db, options.before, options.after, revision))
        _require_live(RunView(db, after))
        if options.grows_both:
            _require_live(RunView(db, before))
        diff = compare_runs(db, before, after, DiffOptions())
        pair = SettledPair(
            before,
            after,
            diff.counted_attempts,
            diff.pairs,
            threshold,
            read_unfinished(db, before if options.of_before else after),
            {
                (test.key, check.key): check_name(check)
                for test in diff.tests
                if test.evidence.dropped_checks
                for check in diff.details(test).checks
                if check.key is not None
            },
        )
        found = wanted_suspects(db, pair, options)
        unseen = not_comparable_text(diff)
        of_before = None if options.both is None else RepeatsOfBefore(db, pair, options)
    if unseen is not None:
        note(f"{unseen}.", console)
    if not found:
        note(_nothing_suspected(pair, options.tests), console)
        return 0
    open_tests = [test.key for test in found if test.is_open]
    if not open_tests:
        return (
            0
            if options.of_before
            else _tell(Settled(before, after, found, labels=pair.labels), options)
        )
    request = or_fail(request_repeats(pair, open_tests, project, options, console))
    if of_before is not None and not of_before.check(request.database):
        return 1
    if not options.of_before:
        note(_chances(pair.tests, open_tests, options), console)
    if options.dry_run:
        return _tell_plan(Settled(before, after, found, labels=pair.labels), options)
    return _settle(pair, request, options, console, of_before)


def _chances(
    tests: Mapping[QualifiedName, TestPair],
    open_tests: Sequence[QualifiedName],
    options: SettleOptions,
) -> str:
    """Return how likely the repeats are to decide, before they are spent."""
    both, alone = (
        round(100 * chance_to_settle(tests, open_tests, both=sides)) for sides in (True, False)
    )
    said = "If these tests dropped by 30 points, more repeats of"
    if options.grows_both:
        return f"{said} both sides confirm at least {both} of 100 of them."
    few = f"at least {alone} of 100" if alone else "almost none"
    said = f"{said} AFTER confirm {few} of them"
    if both - alone < _WORTH_IT:
        return f"{said}."
    return f"{said}, repeats of both sides at least {both} of 100: kindlm settle --both FOLDER"


def _settle(
    pair: SettledPair,
    request: RunRequest,
    options: SettleOptions,
    console: Console,
    of_before: RepeatsOfBefore | None,
) -> int:
    run = new_run_id()
    repeat_before = None
    if of_before is not None:

        async def repeat_before(db: sqlite3.Connection, repeats: int) -> str | None:
            return await of_before.add(db, request.database, repeats)

    rounds = Rounds(run, pair, options, console, repeat_before)
    settling = Settling(pair.repeated, pair.recorded.baselines, rounds.next)
    request = replace(request, settling=settling)
    # Lines are told of each round; only a bar shows what goes on inside one.
    progress = options.progress and console.is_terminal
    with HeldSignals() as held:
        try:
            with StreamLock(request.database, f"settling/{pair.repeated}"):
                record_run(request, run, console, progress=progress, held=held)
        except LockHeldError as error:
            fail([_settled_elsewhere(pair.repeated, error)], console)
        return _report(pair, request, run, rounds, options, console, of_before)


def _report(
    pair: SettledPair,
    request: RunRequest,
    run: str,
    rounds: Rounds,
    options: SettleOptions,
    console: Console,
    of_before: RepeatsOfBefore | None,
) -> int:
    """Write the verdicts, read from the history; return the exit code."""
    with open_recorded(request.database, run) as view:
        if view is None:
            return 1
        _tell_unstarted(view, console)
        repeats_before, cost_before = of_before.made(view.db) if of_before else (0, 0.0)
        costs = view.summary.cost_usd, cost_before
        settled = Settled(
            pair.before,
            pair.after,
            wanted_suspects(view.db, pair, options),
            run,
            view.summary.executions.tested,
            None if None in costs else sum(cost for cost in costs if cost is not None),
            view.info.reason or rounds.ended,
            repeats_before,
            pair.labels,
        )
    by_budget = view.info.ended == "aborted" and options.max_cost_usd is not None
    done = (view.info.ended == "finished" and not rounds.is_stuck) or by_budget
    if options.of_before:
        return 0 if done else 1
    return max(_tell(settled, options), 0 if done else 1)


def _tell(settled: Settled, options: SettleOptions) -> int:
    write_settled(settled, sys.stdout, report_options(options.database, verbose=options.verbose))
    sys.stdout.flush()
    return 1 if settled.confirmed else 0


def _tell_plan(settled: Settled, options: SettleOptions) -> int:
    """Say what would be run; return 0."""
    most = sum(test.room for test in settled.suspects)
    if options.grows_both:
        most += sum(test.room_before for test in settled.suspects)
    if options.max_runs is not None:
        most = min(most, options.max_runs)
    shown = report_options(options.database, verbose=options.verbose)
    write_planned(settled, most, AT_A_TIME, sys.stdout, shown)
    return 0


def _tell_unstarted(view: RunView, console: Console) -> None:
    """Show why suites could not start; their tests stay open."""
    for suite in view.suites:
        if suite.error_code is not None:
            message = suite.error or f"The suite {suite.name!r} could not start."
            show([KindlmError(ErrorCode[suite.error_code], message, suite.hint)], console)


def _nothing_suspected(pair: SettledPair, wanted: Sequence[str]) -> str:
    named = f" named like {', '.join(wanted)}" if wanted else ""
    return (
        f"Nothing to settle: no test{named} is suspected of having got worse between"
        f" {pair.before} and {pair.after}."
    )


def _require_live(view: RunView) -> None:
    """End the command if repeats can not be added to a run."""
    info = view.info
    if info.mode == "settled":
        hint = f"Name the run that it adds to: kindlm settle BEFORE {info.source_run}"
        fail([_refused(f"Run {view.id} holds repeats of another run.", hint)])
    if info.mode != "live":
        hint = "Name a run of kindlm test. All runs: kindlm runs"
        fail([_refused(f"Run {view.id} is {info.mode}: it called nobody.", hint)])
    if info.ended != "finished":
        resumed = f"Finish it first: kindlm test --resume {view.id}"
        hint = resumed if view.runner is None else "Name a run that has finished: kindlm runs"
        fail([_refused(f"Run {view.id} is {view.status}: it has not finished.", hint)])


def _settled_elsewhere(run: str, error: LockHeldError) -> KindlmError:
    who = error.holder
    by = f"process {who.pid} on {who.host} since {who.since}" if who else "another process"
    return _refused(
        f"Run {run} is being settled already: {by} does it.", "Wait until it has ended."
    )


def _refused(message: str, hint: str) -> KindlmError:
    return KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint)
