"""Repeats the suspected tests of a run until they are decided: the work of `kindlm settle`.

Each round has a few repeats of each open test. A separate process repeats BEFORE, in the checkout
of its agent, since two versions of an agent have modules, variables and `.env` files of the same
names.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kindlm.cli.commands.settle import SettleOptions
from kindlm.cli.console import is_interactive, note, or_fail, refuse, show
from kindlm.cli.history import (
    commit_named,
    open_history,
    open_recorded,
    project_here,
    report_options,
)
from kindlm.cli.options import TestOptions, given_again
from kindlm.cli.run_options import make_request
from kindlm.cli.run_recording import held_signals, record_run
from kindlm.config import suite_identity
from kindlm.dataclass import replace
from kindlm.engine.stop import Stop
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.diff.evidence_values import CheckPair, TestPair
from kindlm.history.diff.power import chance_to_settle
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.diff.samples import Attempts
from kindlm.history.run_names import find_sides, one_run
from kindlm.history.run_view import RunView
from kindlm.history.settling import (
    AddedRepeats,
    Suspect,
    read_added,
    share_out,
    suspects,
)
from kindlm.keeper import KINDLM
from kindlm.money import exceeds
from kindlm.plan import Plan, QualifiedName, Selection, plan_repeats
from kindlm.providers.provider_registry import check_settings
from kindlm.recording.history_file import new_run_id, open_log
from kindlm.recording.loading import Loaded, load_paths
from kindlm.recording.project import Project, project_name, regression_threshold
from kindlm.recording.request import RunRequest, Settling
from kindlm.recording.resumption import Unfinished, read_unfinished
from kindlm.reports.diff.parts import check_name
from kindlm.reports.diff.phrases import lacking_text
from kindlm.reports.terminal.settled_tests import Settled, counts_text, write_planned, write_settled
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import LockHeldError, stream_lock

_WORTH_IT = 10
"""`--both` is suggested if it would confirm so many more of 100 drops."""

_ADDED = "SELECT id FROM runs WHERE mode = 'settled' AND source_run = ?"


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
        found = pair.suspects(db, options)
        unseen = lacking_text(diff.before) if diff.lacked_results else None
        of_before = None
        if options.both is not None:
            of_before = RepeatsOfBefore(db, pair, options, project_name(project.root))
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
    request = _request_repeats(pair, open_tests, project, options)
    if of_before is not None and not of_before.check(request.database):
        return 1
    if not options.of_before:
        note(_chances(pair.tests, open_tests, options))
    if options.dry_run:
        sides = [test.room + (test.room_before if options.grows_both else 0) for test in found]
        most = min(sum(sides), options.max_runs or sys.maxsize)
        write_planned(settled, most, sys.stdout, report_options(options.database))
        return 0
    rounds = Rounds(new_run_id(), request.database, pair, options, of_before)
    return _settle(rounds, request, settled)


def _chances(
    tests: Mapping[QualifiedName, TestPair],
    open_tests: Sequence[QualifiedName],
    options: SettleOptions,
) -> str:
    """Return how likely repeats are to confirm a drop, for the user to know before they cost."""
    both, alone = (
        round(100 * chance_to_settle(tests, open_tests, both=sides)) for sides in (True, False)
    )
    text = "If these tests dropped by 30 points, more repeats of"
    if options.grows_both:
        return f"{text} both sides confirm at least {both} of 100 of them."
    few = f"at least {alone} of 100" if alone else "almost none"
    text = f"{text} AFTER confirm {few} of them"
    if both - alone < _WORTH_IT:
        return f"{text}."
    return f"{text}, repeats of both sides at least {both} of 100: kindlm settle --both FOLDER"


def _settle(rounds: Rounds, request: RunRequest, settled: Settled) -> int:
    pair, options, run = rounds.pair, rounds.options, rounds.run
    settling = Settling(pair.recorded.run, pair.recorded.baselines, rounds.next)
    request = replace(request, settling=settling)
    # Without a terminal, the lines of each round are enough.
    progress = not options.no_progress and is_interactive(sys.stderr)
    with held_signals() as held:
        open_log(request.database).close()  # created, or the command ends
        try:
            with stream_lock(request.database, f"settling/{pair.recorded.run}"):
                record_run(request, run, progress=progress, held=held)
        except LockHeldError as error:
            message = f"Run {pair.recorded.run} is being settled already, in {error.by}."
            refuse(message, "Wait until it has ended.")
        return _report(rounds, settled)


def _report(rounds: Rounds, settled: Settled) -> int:
    options, of_before = rounds.options, rounds.of_before
    with open_recorded(rounds.database, rounds.run) as view:
        for suite in view.suites:
            if suite.error_code is not None:
                message = suite.error or f"The suite {suite.name!r} could not start."
                show([KindlmError(ErrorCode[suite.error_code], message, suite.hint)])
        repeats_before, cost_before = of_before.made(view.db) if of_before else (0, 0.0)
        costs = view.summary.paid.whole_usd, cost_before
        settled = settled._replace(
            suspects=rounds.pair.suspects(view.db, options),
            run=rounds.run,
            repeats=view.summary.executions.tested,
            cost_usd=None if None in costs else sum(filter(None, costs)),
            ended=view.info.reason or rounds.ended,
            repeats_before=repeats_before,
        )
    by_budget = view.info.ended == "aborted" and "--max-cost" in (view.info.reason or "")
    done = (view.info.ended == "finished" and not rounds.is_stuck) or by_budget
    if options.of_before:
        return 0 if done else 1
    return max(_show(settled, options), 0 if done else 1)


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
    pair: SettledPair, tests: Sequence[QualifiedName], project: Project, options: SettleOptions
) -> RunRequest:
    """Return the request for more repeats of some tests, with the suites of the repeated run.

    The command ends if a suite has changed since, or if a target cannot be called.
    """
    loaded = _loaded(pair, {(key.project, key.suite) for key in tests}, project.root)
    then = pair.recorded.options
    cost = options.max_cost_usd
    if cost is not None and options.both is not None:
        cost /= 2  # the other half is for BEFORE, which another process repeats
    request = make_request(
        loaded,
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
    for suite in request.suites:
        targets = {key.target for key in tests if key[:2] == (suite.project, suite.name)}
        for name in sorted({suite.models[each].provider for each in targets & {*suite.models}}):
            settings = suite.providers[name]
            if "{{" in (settings.base_url or ""):
                # The port of a service is known only once it runs.
                settings = replace(settings, base_url="http://127.0.0.1")
            or_fail(check_settings(settings, request.environ))  # errored repeats count as failed
    return replace(request, selection=Selection(only=frozenset(tests)))


def _loaded(pair: SettledPair, wanted: set[tuple[str, str]], root: Path) -> Loaded:
    """Load the wanted suites, by project and name; end the command if one has changed."""
    recorded = [s for s in pair.recorded.started.values() if (s.project, s.suite) in wanted]
    paths = [root / suite.path for suite in recorded]
    compat = pair.recorded.options.compat == "evalview"
    loaded = or_fail(load_paths(paths, root, compat=compat))
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
    return replace(loaded, suites=tuple(kept), skipped=())


@dataclass(frozen=True, slots=True)
class SettledPair:
    """Two runs, with the tests that both ran, and the record of the run that is repeated.

    `attempts` are the attempts that count, if executions were rerun.
    """

    before: str
    after: str
    attempts: Attempts
    tests: Mapping[QualifiedName, TestPair]
    threshold: float | None
    recorded: Unfinished

    def suspects(self, db: sqlite3.Connection, options: SettleOptions) -> list[Suspect]:
        """Return the current state of suspected tests that `--test` selects."""
        found = suspects(
            self.tests,
            read_added(db, [self.before], self.attempts),
            read_added(db, [self.after], self.attempts),
            self.threshold,
            both=options.grows_both,
        )
        parts = [part.casefold() for part in options.tests] or [""]
        return [
            test
            for test in found
            if any(
                part in name.casefold()
                for part in parts
                for name in (test.key.suite, test.key.name)
            )
        ]


@dataclass(slots=True)
class Rounds:
    """Plans each round from the recorded results of earlier rounds, and reports it.

    `of_before` also repeats BEFORE. `ended` is why the rounds ended with an open test, unless the
    run was stopped. `is_stuck` means that no further repeat can be run.
    """

    run: str
    database: Path
    pair: SettledPair
    options: SettleOptions
    of_before: RepeatsOfBefore | None
    ended: str | None = field(default=None, init=False)
    is_stuck: bool = field(default=False, init=False)
    _rounds: int = field(default=0, init=False)
    _planned: int = field(default=0, init=False)
    _planned_before: int = field(default=0, init=False)
    _added: int = field(default=-1, init=False)

    async def next(self, db: sqlite3.Connection, plan: Plan, stop: Stop) -> Plan | None:
        """Return the next repeats of the tests of the plan; None at the end."""
        is_of_before = self.options.of_before
        while not (self._rounds and is_of_before):
            found = self.pair.suspects(db, self.options)
            if self._rounds:
                self._note_round(found)
            left = (self.options.max_runs or sys.maxsize) - self._planned - self._planned_before
            both = self.options.grows_both
            most = left // 2 if both and not is_of_before else left
            before, after = share_out(found, most, both=both)
            earlier, self._added = self._added, sum(_added(test.rate) for test in found)
            if any(test.is_open for test in found):
                if self._added == earlier:
                    self.is_stuck = True
                    self.ended = f"No repeat of the last round was answered: kindlm show {self.run}"
                elif not (before or after):
                    self.ended = f"--max-runs {self.options.max_runs} is used up."
            if self.ended or not (before or after):
                break
            self._rounds += 1
            if self.of_before is not None and before:
                repeats = sum(before.values())
                self._planned_before += repeats
                self.ended = await self.of_before.add(db, self.database, repeats, stop)
                self.is_stuck = self.ended is not None
                if self.is_stuck:
                    break
            if shares := before if is_of_before else after:
                following = plan_repeats(plan, self._numbers(db, shares), self._planned)
                self._planned += len(following)
                return following
        return None

    def _note_round(self, found: Sequence[Suspect]) -> None:
        still = sum(test.is_open for test in found)
        of = count(len(found), "suspected test")
        note(f"Round {self._rounds}: {still:,} of {of} still open")
        for test in found:
            name = f"{test.key.name} · {test.key.target}"
            standing = "open" if test.is_open else test.standing or "scores only"
            note(f"  {name}  {counts_text(test.rate)}  {standing}")

    def _numbers(
        self, db: sqlite3.Connection, shares: Mapping[QualifiedName, int]
    ) -> dict[QualifiedName, range]:
        """Return the numbers of the next repeats, after those planned in the run and added since.

        No number is used twice, so that each repeat is an independent sample.
        """
        recorded = self.pair.recorded
        added = read_added(db, [recorded.run], self.pair.attempts)
        last: dict[QualifiedName, int] = {
            key: added.get(key, AddedRepeats()).last for key in shares
        }
        for suite in recorded.started.values():
            for test in suite.tests:
                key = QualifiedName(suite.project, suite.suite, test.name, test.target)
                if key in last:
                    last[key] = max(last[key], test.repeat)
        return {key: range(last[key] + 1, last[key] + 1 + share) for key, share in shares.items()}


def _added(rate: CheckPair) -> int:
    return len(rate.added) + len(rate.added_before)


class RepeatsOfBefore:
    """Adds repeats to BEFORE with the suites in a folder, for half of the cost limit."""

    def __init__(
        self, db: sqlite3.Connection, pair: SettledPair, options: SettleOptions, project: str
    ) -> None:
        assert options.both is not None
        # Without a configured name, the project would be named after the folder of the checkout.
        self._environ = {**os.environ, "KINDLM_PROJECT": project}
        self._pair = pair
        self._options = options
        self._folder: Path = options.both
        self._earlier = {run for (run,) in db.execute(_ADDED, (pair.before,))}

    def check(self, database: Path) -> bool:
        """Return whether the folder holds the suites that BEFORE ran."""
        done = subprocess.run(
            [*self._command(database), "--dry-run"],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0

    async def add(
        self, db: sqlite3.Connection, database: Path, repeats: int, stop: Stop
    ) -> str | None:
        """Add at most so many repeats; return why that failed, else None.

        The process that adds them stops if this one does.
        """
        command = [*self._command(database), "--max-runs", str(repeats)]
        if self._options.max_cost_usd is not None:
            _, spent = self.made(db)
            if spent is None:
                return (
                    "The cost of BEFORE's repeats is unknown, so --max-cost cannot be kept:"
                    " add the price of the model under `prices`."
                )
            if not exceeds(self._options.max_cost_usd / 2, spent):
                return "BEFORE's half of --max-cost is used up."
            command += ["--max-cost", f"{self._options.max_cost_usd / 2 - spent:.12f}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process only
        )
        ended = asyncio.ensure_future(process.wait())
        for asked in (stop.requested, stop.at_once):
            waiting = asyncio.ensure_future(asked.wait())
            await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if process.returncode is None:
                process.terminate()
        failed = await ended != 0
        return f"BEFORE could not be repeated in {self._folder}." if failed else None

    def made(self, db: sqlite3.Connection) -> tuple[int, float | None]:
        """Return how many repeats were added to BEFORE, and their cost; None if it is unknown."""
        runs = {run for (run,) in db.execute(_ADDED, (self._pair.before,))} - self._earlier
        found = [RunView(db, run).summary for run in runs]
        costs = [each.paid.whole_usd for each in found]
        cost = None if None in costs else sum(filter(None, costs))
        return sum(summary.executions.tested for summary in found), cost

    def _command(self, database: Path) -> list[str]:
        given = given_again(self._options, ("tests", "concurrency"))
        command = [*KINDLM, "settle", "--of-before", "--no-progress", *given]
        return [*command, self._pair.before, self._pair.after, "--db", str(database)]
