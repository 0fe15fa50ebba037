"""Resumes an unfinished run: reads its state, and makes the request that continues it.

Executions are identified by their place in the plan, so the suites and tests must be the same as at
the beginning, in the same order. `--force-resume` accepts a changed configuration.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse, not_there
from kindlm.events import load_event
from kindlm.events.run import PlannedTest, RunOptions, RunStarted, SuiteSkipped, SuiteStarted
from kindlm.history.run_names import find_run
from kindlm.history.runs import held_lock, options_of, runner_of
from kindlm.plan import Earlier, Places, Plan, QualifiedName, make_plan
from kindlm.providers.provider_registry import check_settings
from kindlm.recording.project import commit_of
from kindlm.recording.request import RunRequest, SkippedSuite
from kindlm.recording.serving import Served
from kindlm.recording.session_events import planned_tests
from kindlm.suite import Case, Suite
from kindlm.wording import listed
from kindlm_store import unreadable_wal

_UNFINISHED = """
SELECT id FROM runs WHERE ended IS NOT 'finished' AND mode = ?
 ORDER BY started_at DESC, id
"""

# How the run and its suites began, in all sessions.
_BEGINNINGS = """
SELECT type, data FROM event_log
 WHERE stream = 'run/' || ? AND type IN ('run.started', 'suite.started', 'suite.skipped')
 ORDER BY version
"""

# An execution that a cost limit left out has not ended: the limit may be higher now.
_EXECUTIONS = """
SELECT e.number, e.attempt, iif(e.status = 'skipped' AND NOT p.skip, NULL, e.status) AS status,
       (SELECT count(*) FROM retried_attempts r WHERE r.execution = e.id)
  FROM executions e
  LEFT JOIN planned_tests p ON p.suite = e.suite AND p.test = e.test AND p.target = e.target
 WHERE e.run = ?
"""

_SPENT = """
SELECT s.ordinal, total(p.cost_usd), total(p.unknown_costs)
  FROM spend p JOIN suites s ON s.id = p.suite
 WHERE p.run = ? GROUP BY s.ordinal
"""

# The providers that judged, played users or embedded, unless recorded answers were used.
_ASKED = """
SELECT DISTINCT s.project, s.name, p.provider
  FROM provider_calls p
  JOIN executions e ON e.id = p.execution
  JOIN suites s ON s.id = e.suite
 WHERE p.run = ? AND p.purpose <> 'test' AND p.recorded_in IS NULL
"""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The record of a run that can be resumed, unless it `is_finished`.

    `started` are its suites as they last started, by ordinal, in the order of their first starts;
    `skipped` are those that never started. `asked` are the providers that judged answers, played
    users or embedded, by project and name of the suite.
    """

    run: str
    options: RunOptions
    group: str | None
    planned: int
    started: Mapping[int, SuiteStarted]
    skipped: Mapping[int, SuiteSkipped]
    earlier: Earlier
    asked: Mapping[tuple[str, str], Collection[str]]
    is_finished: bool = False

    @property
    def baselines(self) -> dict[tuple[str, str], str | None]:
        """The baseline that each suite began with, by project and name; None for no baseline."""
        return {(each.project, each.suite): each.baseline_run for each in self.started.values()}

    @property
    def cassettes(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        """The runs of its cassettes, by their names, for each suite by project and name."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        # Several files may have suites of one name, where equal names are the same run.
        for suite in self.started.values():
            named = found.setdefault((suite.project, suite.suite), {})
            named.update({each.name: each.run for each in suite.cassettes})
        return found

    @property
    def started_paths(self) -> frozenset[str]:
        """The files of the suites that have started."""
        return frozenset(suite.path for suite in self.started.values())

    @property
    def selected(self) -> frozenset[QualifiedName]:
        """The tests that were selected."""
        return frozenset(
            QualifiedName(suite.project, suite.suite, test.name, test.target)
            for suite in self.started.values()
            for test in suite.tests
            if test.selected
        )


def find_unfinished(
    db: sqlite3.Connection, wanted: str, mode: str = "live", paths: Sequence[str] = ()
) -> Result[str]:
    """Return the id of the run to resume; it must have the given mode.

    `latest` is the latest unfinished run, preferably one that no process records and that was
    started with the same `paths`, in recorded form.
    """
    if wanted == "latest":
        unfinished = [run for (run,) in db.execute(_UNFINISHED, (mode,))]
        if not unfinished:
            message = "There is nothing to resume: no recorded run is unfinished."
            if wal := unreadable_wal(Path(db.execute("PRAGMA database_list").fetchone()[2])):
                message += f" The latest records may be lost: {wal} cannot be read."
            hint = "Run the tests (kindlm test), or missing shards (kindlm test --resume GROUP)."
            return Err(not_there(message, hint))
        options = options_of(db, *unfinished)

        def key(run: str) -> tuple[bool, bool, bool]:
            is_running = held_lock(db, run) is not None
            is_other = options[run].get("paths") != [*paths]
            return options[run].get("runner") is not None, is_running, is_other

        run = min(unfinished, key=key)
    else:
        found = find_run(db, wanted, partial(commit_of, Path.cwd()))
        if isinstance(found, Err):
            return found
        run = found.value
    ended, is_a = db.execute("SELECT ended, mode FROM runs WHERE id = ?", (run,)).fetchone()
    if ended == "finished":
        return _invalid(
            f"Run {run} has finished; nothing is left to run.",
            f"See it, and what to run next: kindlm show {run}",
        )
    if is_a != mode:
        return _invalid(
            f"Run {run} is {is_a}: it cannot be resumed this way.",
            "kindlm test --resume resumes live runs, kindlm rescore --resume rescored ones. Start"
            " others again.",
        )
    if (runner := runner_of(db, run)) is not None:
        return started_by(runner, f"Run {run}")
    return Ok(run)


def started_by(runner: str, what: str) -> Err:
    """Return the error that a run or a group cannot be resumed, since `runner` chose its tests."""
    return _invalid(
        f"{what} cannot be resumed: {runner} selected and started its tests.",
        f"Run its tests again as a new run: {runner} --kindlm. With --lf, those that never ran are"
        " left out.",
    )


def read_unfinished(db: sqlite3.Connection, run: str) -> Unfinished:
    """Return what is recorded of a run."""
    query = "SELECT planned, ended IS 'finished' FROM runs WHERE id = ?"
    planned, is_finished = db.execute(query, (run,)).fetchone()
    began = RunStarted(planned=0, project="", versions={})
    started: dict[int, SuiteStarted] = {}
    skipped: dict[int, SuiteSkipped] = {}
    for kind, data in db.execute(_BEGINNINGS, (run,)):
        match load_event(kind, json.loads(data), lambda _: ""):
            case RunStarted() as began:
                pass
            case SuiteStarted() as event:
                started[event.ordinal] = event
            case SuiteSkipped() as event:
                skipped[event.ordinal] = event
    asked: dict[tuple[str, str], set[str]] = {}
    for project, suite, provider in db.execute(_ASKED, (run,)):
        asked.setdefault((project, suite), set()).add(provider)
    return Unfinished(
        run=run,
        options=began.options or RunOptions(),
        group=began.group,
        planned=planned,
        started=started,
        skipped={ordinal: skipped[ordinal] for ordinal in skipped.keys() - started.keys()},
        earlier=read_earlier(db, run),
        asked=asked,
        is_finished=bool(is_finished),
    )


def read_earlier(db: sqlite3.Connection, run: str) -> Earlier:
    """Return which executions of a run are recorded, and what they cost."""
    rows = db.execute(_EXECUTIONS, (run,)).fetchall()
    paid = db.execute(_SPENT, (run,)).fetchall()
    return Earlier(
        finished=frozenset(str(number) for number, _, status, _ in rows if status is not None),
        attempts={str(number): attempt for number, attempt, status, _ in rows if status is None},
        reruns={str(number): again for number, _, status, again in rows if status is None},
        spent_usd={ordinal: usd for ordinal, usd, _ in paid},
        unknown_costs=sum(int(unknown) for *_, unknown in paid),
    )


def resumed(request: RunRequest, unfinished: Unfinished, *, force: bool) -> Result[RunRequest]:
    """Return the request that finishes a run; an error if the files hold other suites or tests.

    A changed configuration is an error, too, unless it is forced.
    """
    run, earlier, started = unfinished.run, unfinished.earlier, unfinished.started
    recorded: dict[int, SuiteStarted | SuiteSkipped] = {**started, **unfinished.skipped}
    ordinals = {suite.path: ordinal for ordinal, suite in recorded.items()}
    now = {suite.path: suite.name for suite in request.suites}
    now |= {suite.path: suite.name for suite in request.skipped}
    new = [path for path in now if path not in ordinals]
    broken = unfinished.started_paths & {suite.path for suite in request.skipped}
    # A run that was killed at its very start may not have recorded all suites.
    has_begun = earlier.finished or earlier.attempts
    differences = [f"{now[path]!r} is new" for path in sorted(new) if has_begun]
    gone = sorted(ordinals.keys() - now.keys())
    differences += [f"{recorded[ordinals[path]].suite!r} is gone" for path in gone]
    differences += [f"{now[path]!r} has an error now" for path in sorted(broken)]
    if differences:
        return _refused(run, "the suites are not the same", differences)

    # Suites that were not recorded come last: first those that loaded, then the others.
    ordinals |= {path: at for at, path in enumerate(new, max(recorded, default=-1) + 1)}
    places = Places(ordinals, tuple(started))
    suites = sorted(request.suites, key=lambda suite: ordinals[suite.path])
    changed: list[str] = []
    for planned in make_plan(suites, request.selection, places=places).suites:
        before = started.get(planned.ordinal)
        if before is None:
            continue  # Its programs or keys were missing before.
        tests = list(map(_place_of, planned_tests(planned, request.root)))
        tests_then = list(map(_place_of, before.tests))
        name = planned.suite.name
        if tests != tests_then:
            named, named_then = {test[:2] for test in tests}, {test[:2] for test in tests_then}
            differences = [f"{x!r} on {y!r} is new" for x, y in sorted(named - named_then)]
            differences += [f"{x!r} on {y!r} is gone" for x, y in sorted(named_then - named)]
            differences = differences or ["their order, selection, repeats or skips differ"]
            return _refused(run, f"the tests of suite {name!r} are not the same", differences)
        if before.config_hash != planned.suite.config_hash:
            changed.append(name)
    if changed and not force:
        names = ", ".join(map(repr, changed))
        return _invalid(
            f"Run {run} cannot be resumed: the configuration of {names} has changed since.",
            "Restore it, or start a new run. To add a missing price, or to mix both configurations,"
            " use --force-resume.",
        )
    request = replace(request, suites=suites, group=unfinished.group, places=places)
    return Ok(replace(request, changed=tuple(changed)))


def _place_of(test: PlannedTest) -> tuple[str, str, bool, bool, int]:
    """Return what gives the executions of a test their places in the plan."""
    return test.name, test.target, test.selected, test.skip, test.repeat


def _refused(run: str, what: str, differences: Sequence[str]) -> Err:
    return _invalid(
        f"Run {run} cannot be resumed: {what} ({listed(differences, 5)}).",
        "Restore the files, or start a new run: kindlm test",
    )


def _invalid(message: str, hint: str) -> Err:
    return Err(misuse(message, hint))


def lost_suite(served: Served, request: RunRequest, before: Unfinished) -> SkippedSuite | None:
    """Return a suite that had started and cannot continue: a program or a key is missing.

    Without it, the run would be sealed as incomplete, although parts of it may have been paid for.
    """
    for ordinal, skipped in sorted(served.skipped.items()):
        if ordinal in before.started:
            return skipped
    for planned in served.work.suites:
        left = {
            (each.case.name, each.target): (each.case, each.target)
            for each in Plan((planned,))
            if each.id not in before.earlier.finished and not each.case.skip
        }
        if planned.ordinal in before.started and left:
            suite, derived = planned.suite, request.derived is not None
            error = lost_access(suite, left.values(), before, request.environ, derived=derived)
            if error is not None:
                return SkippedSuite(suite.name, suite.path, 0, error)
    return None


def lost_access(
    suite: Suite,
    tests: Iterable[tuple[Case, str]],
    before: Unfinished,
    environ: Mapping[str, str],
    *,
    derived: bool = False,
) -> KindlmError | None:
    """Return why a provider cannot be called that tests need, each on a target; None if all can.

    Scripts, and the checks of a `derived` run, are expected to ask the providers that they have
    asked before.
    """
    key = suite.project, suite.name
    asked = suite.providers.keys() & before.asked.get(key, ())
    needed: set[str] = set()
    for case, target in tests:
        if derived or case.script is not None:
            needed |= asked
        if derived:
            continue
        models = [suite.models.get(target)]
        for each in case.expectations:
            if each.kind == "drift" and before.baselines.get(key) is None:
                continue  # It is skipped.
            if each.check.asks_judge:
                models.append(suite.judge(each.check.judge_model))
            elif each.check.embeds:
                from kindlm.providers.embedders import find_embedder  # few checks embed

                found = find_embedder(suite, target, environ=environ)
                # Without any embedder, the check is undecided.
                if isinstance(found, Err) and found.error.code is not ErrorCode.PROVIDER_NOT_FOUND:
                    return found.error
        needed |= {model.provider for model in models if model is not None}
    access = (check_settings(suite.providers[name], environ) for name in sorted(needed))
    return next((found.error for found in access if isinstance(found, Err)), None)
