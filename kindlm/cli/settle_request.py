"""From the open tests of a recorded run to the request that repeats them, or why it can not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import show
from kindlm.cli.request import TestOptions, make_request
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import SuiteStarted
from kindlm.history.diff.evidence_values import CheckKey, TestPair
from kindlm.history.diff.samples import Attempts
from kindlm.history.diff.values import QualifiedName
from kindlm.plan import Selection
from kindlm.providers.registry import check_settings
from kindlm.recording.loading import Loaded, load_paths
from kindlm.recording.project import Project
from kindlm.recording.request import RunRequest
from kindlm.recording.resumption import Unfinished
from kindlm.suite import Suite


@dataclass(frozen=True, slots=True)
class SettleOptions:
    """The options of the command, as typed. `tests` are parts of names of tests or suites.

    `both` is the folder with the suites as BEFORE ran them, if it is repeated, too. `of_before`: in
    that folder, this process adds one round of repeats to BEFORE.
    """

    before: str | None = None
    after: str | None = None
    tests: tuple[str, ...] = ()
    both: Path | None = None
    of_before: bool = False
    max_cost_usd: float | None = None
    max_runs: int | None = None
    concurrency: int | None = None
    dry_run: bool = False
    database: Path | None = None
    verbose: bool = False
    progress: bool = True

    @property
    def grows_both(self) -> bool:
        """Whether repeats are added to both sides."""
        return self.both is not None or self.of_before


@dataclass(frozen=True, slots=True)
class SettledPair:
    """Two runs, with all tests that both of them ran, and what the repeated one was asked for.

    Of what was run again, `attempts` are those that count: in them, and in what is added. `labels`
    are the checks that passed less often, as they may be shown.
    """

    before: str
    after: str
    attempts: Attempts
    tests: Mapping[QualifiedName, TestPair]
    threshold: float | None
    recorded: Unfinished
    labels: Mapping[tuple[QualifiedName, CheckKey], str]

    @property
    def repeated(self) -> str:
        """The run that repeats are added to."""
        return self.recorded.run


def request_repeats(
    pair: SettledPair,
    tests: Sequence[QualifiedName],
    project: Project,
    options: SettleOptions,
    console: Console,
) -> Result[RunRequest]:
    """Return the request for more repeats of some tests, by the suites as the run had them.

    An error if a suite is not what that ran any more, or if what it tests can not be called.
    """
    loaded = _loaded(pair, {(key.project, key.suite) for key in tests}, project.root, console)
    if isinstance(loaded, Err):
        return loaded
    then = pair.recorded.options
    request = make_request(
        loaded.value,
        project,
        TestOptions(
            paths=loaded.value.files,
            tests=options.tests,
            concurrency=options.concurrency or then.concurrency,
            timeout_ms=then.timeout_ms,
            compat=then.compat,
            max_cost_usd=_cost_of_a_side(options),
            max_rpm=then.max_rpm,
        ),
        console,
    )
    if isinstance(request, Err):
        return request
    only = frozenset((key.suite, key.name, key.target) for key in tests)
    chosen = replace(request.value, selection=Selection(only=only))
    unusable = _unusable(chosen, tests)
    return Ok(chosen) if unusable is None else Err(unusable)


def _cost_of_a_side(options: SettleOptions) -> float | None:
    """Return what the repeats of this side may cost: half, where another process does the other."""
    if options.max_cost_usd is None or options.both is None:
        return options.max_cost_usd
    return options.max_cost_usd / 2


def _loaded(
    pair: SettledPair, wanted: set[tuple[str, str]], root: Path, console: Console
) -> Result[Loaded]:
    """Load the suites that are wanted, and no others, if they are what the run ran."""
    recorded = [s for s in pair.recorded.started.values() if (s.project, s.suite) in wanted]
    for suite in recorded:
        if not (root / suite.path).exists():
            return Err(_changed(pair, suite, f"there is no {suite.path}"))
    paths = [root / suite.path for suite in recorded]
    compat = pair.recorded.options.compat == "evalview"
    loaded = load_paths(paths, root, compat=compat)
    if isinstance(loaded, Err):
        return loaded
    named = (_as_recorded(suite, recorded) for suite in loaded.value.suites)
    suites = {(suite.project, suite.name): suite for suite in named}
    for suite in recorded:
        if wrong := _difference(suite, suites.get((suite.project, suite.suite))):
            show([item for item in loaded.value.diagnostics if item.severity == "error"], console)
            return Err(_changed(pair, suite, wrong))
    kept = tuple(suite for key, suite in suites.items() if key in wanted)
    return Ok(replace(loaded.value, suites=kept, skipped=()))


def _as_recorded(suite: Suite, recorded: Sequence[SuiteStarted]) -> Suite:
    """Return the suite with its recorded project: another checkout may be named otherwise."""
    for then in recorded:
        if (then.suite, then.config_hash) == (suite.name, suite.config_hash):
            return replace(suite, project=then.project)
    return suite


def _difference(then: SuiteStarted, now: Suite | None) -> str | None:
    if now is None:
        return f"{then.path} does not hold it any more, or has an error"
    return None if now.config_hash == then.config_hash else f"{then.path} has changed"


def _unusable(request: RunRequest, tests: Sequence[QualifiedName]) -> KindlmError | None:
    """Return why a target can not be called: repeats that only err would count as failed ones."""
    for suite in request.suites:
        for target in sorted({key.target for key in tests if key.suite == suite.name}):
            model = suite.models.get(target)
            if model is None:
                continue
            settings = suite.providers[model.provider]
            if "{{" in (settings.base_url or ""):
                # The port of what is served is known only when it is.
                settings = replace(settings, base_url="http://127.0.0.1")
            usable = check_settings(settings, request.environ)
            if isinstance(usable, Err):
                return usable.error
    return None


def _changed(pair: SettledPair, suite: SuiteStarted, what: str) -> KindlmError:
    hint = "Put it back, or record AFTER anew with more repeats: kindlm test --runs N"
    if pair.repeated == pair.before:
        hint = "Name a checkout of what that run tested: git worktree add ../old COMMIT"
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Suite {suite.suite!r} is not what run {pair.repeated} ran: {what}."
        " Its repeats would not be repeats of that run.",
        hint,
    )
