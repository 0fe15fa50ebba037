"""Repeats the suspected tests of a run until they are decided: the work of `kindlm settle`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from kindlm.cli.commands.settle import SettleOptions
from kindlm.cli.commands.settle_rounds import RepeatsOfBefore, Rounds, SettledPair, is_named
from kindlm.cli.console import fail_if, is_interactive, note, or_fail, refuse, show
from kindlm.cli.history import (
    commit_named,
    open_history,
    open_recorded,
    project_here,
    report_options,
    warn_of_other_commit,
)
from kindlm.cli.options import TestOptions, given_again
from kindlm.cli.run_options import make_request
from kindlm.cli.run_recording import held_signals, record_run
from kindlm.config import suite_identity
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.diff.power import chance_to_settle
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.run_names import find_sides, one_run
from kindlm.history.run_view import RunView
from kindlm.plan import QualifiedName, Selection, make_plan
from kindlm.recording.history_file import new_run_id, open_log
from kindlm.recording.loading import load_paths
from kindlm.recording.project import Project, project_name, regression_threshold, root_of
from kindlm.recording.request import RunRequest, Settling
from kindlm.recording.resumption import lost_access, read_unfinished
from kindlm.reports.diff.parts import check_name
from kindlm.reports.diff.phrases import lacking_text
from kindlm.reports.terminal.settled_tests import Settled, write_planned, write_settled
from kindlm.reports.untrusted import one_line
from kindlm_store import LockHeldError, stream_lock

_WORTH_IT = 10
"""`--both` is suggested if it would confirm so many more of 100 drops."""


def settle_runs(options: SettleOptions) -> int:
    """Add repeats to suspected tests.

    Returns 1 if a regression is confirmed, or if anything but the evidence or a budget ended the
    repeats, such as Ctrl-C. User errors end the command through `fail`.
    """
    project = project_here(options.database)
    threshold = or_fail(regression_threshold(project.root))
    with open_history(options.database) as db:
        compared = or_fail(find_sides(db, options.before, options.after, commit_named))
        before, after = (or_fail(one_run(side)) for side in compared)
        _require_live(RunView(db, after))
        if options.grows_both:
            _require_live(RunView(db, before))
        diff = compare_runs(db, before, after, DiffOptions())
        pair = SettledPair(
            options,
            before,
            after,
            diff.counted_attempts,
            diff.pairs,
            threshold,
            read_unfinished(db, before if options.of_before else after),
        )
        labels = {
            (test.key, check.key): check_name(check)
            for test in diff.tests
            if test.evidence.dropped_checks
            for check in diff.details(test).checks
            if check.key is not None
        }
        found = pair.suspects(db)
        repeated = RunView(db, pair.recorded.run).info
        unseen = lacking_text(diff.before) if diff.lacked_results else None
        of_before = None
        if options.both is not None:
            of_before = RepeatsOfBefore(db, pair, project_name(project.root))
    for part in options.tests:
        if not any(is_named(key, part) for key in pair.tests):
            refuse(
                f"No test or suite of these runs has {part!r} in its name.",
                "Leave --test out to settle all of them.",
            )
    if unseen is not None:
        note(f"Not all tests can be settled: before, {unseen}.")
    if not found:
        named = f" named like {', '.join(options.tests)}" if options.tests else ""
        note(
            f"Nothing to settle: no test{named} is suspected of having got worse between {before}"
            f" and {after}."
        )
        return 0
    selecting = given_again(options, ("tests", "both"))
    again = "".join(f" {one_line(shlex.quote(word))}" for word in selecting)
    settled = Settled(before, after, found, labels=labels, options=again)
    open_tests = [test.key for test in found if test.is_open]
    if not open_tests:
        return 0 if options.of_before else _show(settled, options)
    request = _request_repeats(pair, open_tests, project)
    if options.dry_run or not options.of_before:  # each round of BEFORE is a process
        warn_of_other_commit(repeated, project.root)
    if of_before is not None and not of_before.check(request.database):
        return 1
    if options.both is not None and root_of(options.both.resolve()) == project.root:
        # Also by an unset variable, or a checkout inside the project without a file in its root.
        refuse(
            "--both names a folder of this project, whose agent is that of AFTER.",
            "Check out the commit of BEFORE elsewhere: git worktree add ../old COMMIT",
        )
    if not options.of_before:
        note(_chances(pair, open_tests))
    if options.dry_run:
        sides = [test.room + (test.room_before if options.grows_both else 0) for test in found]
        most = min(sum(sides), options.max_runs or sys.maxsize)
        write_planned(settled, most, sys.stdout, report_options(options.database))
        return 0
    return _settle(Rounds(new_run_id(), request.database, pair, of_before), request, settled)


def _chances(pair: SettledPair, open_tests: Sequence[QualifiedName]) -> str:
    """Return how likely repeats are to confirm a drop, for the user to know before they cost."""
    both, alone = (
        round(100 * chance_to_settle(pair.tests, open_tests, both=sides)) for sides in (True, False)
    )
    text = "If these tests dropped by 30 points, more repeats of"
    if pair.options.grows_both:
        return f"{text} both sides confirm at least {both} of 100 of them."
    few = f"at least {alone} of 100" if alone else "almost none"
    text = f"{text} AFTER confirm {few} of them"
    if both - alone < _WORTH_IT:
        return f"{text}."
    return f"{text}, repeats of both sides at least {both} of 100: kindlm settle --both FOLDER"


def _settle(rounds: Rounds, request: RunRequest, settled: Settled) -> int:
    options, then, of_before = rounds.pair.options, rounds.pair.recorded, rounds.of_before
    settling = Settling(then.run, then.baselines, then.cassettes, rounds.next)
    request = replace(request, settling=settling)
    # Without a terminal, the lines of each round are enough.
    progress = not options.no_progress and is_interactive(sys.stderr)
    with held_signals() as held:
        open_log(request.database).close()  # created, or the command ends
        try:
            with stream_lock(request.database, f"settling/{then.run}"):
                record_run(request, rounds.run, progress=progress, held=held)
        except LockHeldError as error:
            message = f"Run {then.run} is being settled already, in {error.by}."
            refuse(message, "Wait until it has ended.")
        with open_recorded(request.database, rounds.run) as view:
            for suite in view.suites:
                if suite.error_code is not None:
                    message = suite.error or f"The suite {suite.name!r} could not start."
                    show([KindlmError(ErrorCode[suite.error_code], message, suite.hint)])
            before, cost_before = of_before.made(view.db) if of_before else (0, 0.0)
            costs = view.summary.paid.whole_usd, cost_before
            settled = settled._replace(
                suspects=rounds.pair.suspects(view.db),
                run=rounds.run,
                repeats=view.summary.executions.tested,
                cost_usd=None if None in costs else sum(filter(None, costs)),
                ended=view.info.reason or rounds.ended,
                repeats_before=before,
            )
        by_budget = view.info.ended == "aborted" and "--max-cost" in (view.info.reason or "")
        done = (view.info.ended == "finished" and not rounds.is_stuck) or by_budget
        shown = 0 if options.of_before else _show(settled, options)
        return max(shown, 0 if done else 1)


def _show(settled: Settled, options: SettleOptions) -> int:
    write_settled(settled, sys.stdout, report_options(options.database))
    sys.stdout.flush()
    return 1 if settled.confirmed else 0


def _require_live(view: RunView) -> None:
    """End the command if a run cannot get repeats: a finished run of `kindlm test` can."""
    info = view.info
    if info.mode != "live" or info.ended != "finished":
        what = info.mode if info.mode != "live" else view.status
        refuse(
            f"Run {view.id} is {what}: only a finished run of kindlm test gets repeats.",
            "Name another one, or finish it: kindlm test --resume RUN. All runs: kindlm runs",
        )


def _request_repeats(
    pair: SettledPair, tests: Sequence[QualifiedName], project: Project
) -> RunRequest:
    """Return the request for more repeats of some tests, with the suites of the repeated run.

    The command ends if a suite has changed since, or if a provider cannot be called.
    """
    options, then, root = pair.options, pair.recorded.options, project.root
    wanted = {(key.project, key.suite) for key in tests}
    recorded = [s for s in pair.recorded.started.values() if (s.project, s.suite) in wanted]
    paths = [root / suite.path for suite in recorded]
    loaded = or_fail(load_paths(paths, root, compat=then.compat == "evalview"))
    kept = []
    for suite in recorded:
        path = suite_identity(root / suite.path, root)
        there = {each.name: each for each in loaded.suites if each.path == path}
        now = there.get(suite.suite)
        if now is None or now.config_hash != suite.config_hash:
            wrong = "has changed" if now else f"now holds {', '.join(map(repr, there)) or 'none'}"
            show([item for item in loaded.diagnostics if item.severity == "error"])
            refuse(
                f"Suite {suite.suite!r} is not what run {pair.recorded.run} ran: {suite.path}"
                f" {wrong}.",
                "Put it back as it was, such as in a checkout: git worktree add ../old COMMIT",
            )
        # The project may be named after the folder, and another checkout has another one.
        kept.append(replace(now, project=suite.project))
    cost = options.max_cost_usd
    if cost is not None and options.both is not None:
        cost /= 2  # the other half is for BEFORE, which another process repeats
    request = make_request(
        replace(loaded, suites=tuple(kept), skipped=()),
        project,
        TestOptions(
            paths=loaded.files,
            tests=options.tests,
            concurrency=options.concurrency or then.concurrency,
            timeout_ms=then.timeout_ms,
            compat="evalview" if then.compat == "evalview" else None,
            max_cost_usd=cost,
            max_rpm=then.max_rpm,
        ),
    )
    selection = Selection(only=frozenset(tests))
    for planned in make_plan(request.suites, selection).suites:
        providers = dict(planned.suite.providers)
        for name, each in planned.suite.providers.items():
            if "{{" in (each.base_url or ""):
                # The port of a service is known only once it runs.
                providers[name] = replace(each, base_url="http://127.0.0.1")
        reachable = replace(planned.suite, providers=providers)
        cases = [(entry.case, target) for entry in planned.cases for target in entry.targets]
        # Errored repeats count as failed.
        fail_if(lost_access(reachable, cases, pair.recorded, request.environ))
    return replace(request, selection=selection)
