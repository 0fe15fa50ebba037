"""A comparison in words, for all formats of `kindlm diff`: its verdict, notes and figures.

`LOOKS` has the order of the tests: regressions first, unchanged tests last.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from statistics import fmean
from typing import NamedTuple

from kindlm.history.diff.compared_tests import Figure, compare_figures, compare_models
from kindlm.history.diff.evidence_values import (
    Change,
    FailOn,
    Kind,
    Side,
    Strength,
    TestDiff,
    Verdict,
)
from kindlm.history.diff.run_diff import RunDiff
from kindlm.history.diff.samples import Attempts
from kindlm.history.run_view import RunView
from kindlm.reports.commands import next_command, show_command, show_run
from kindlm.reports.facts import Headline
from kindlm.reports.figures import duration, money, p_value, percent, points_between, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import one_line
from kindlm.wording import count, first_of


class Look(NamedTuple):
    """How tests of a kind are shown; the details of `listed` ones are left out."""

    title: str
    sign: str
    style: str
    listed: bool = False


class NextStep(NamedTuple):
    """The next command to type, and why."""

    command: str
    why: str


_PLACES = 6
_ENOUGH_TESTS = 5
"""The number of tests from which an interval is shown; with fewer it is too wide to help."""

_GOOD = {Verdict.IMPROVED: True, Verdict.UNCHANGED: True, Verdict.SUSPECTED: None}
"""Whether a verdict is good; those that are left out are bad."""


def headline_of(diff: RunDiff) -> Headline:
    """Return the verdict of the comparison."""
    word, good = diff.verdict.upper(), _GOOD.get(diff.verdict, False)
    if diff.verdict is Verdict.NOTHING_COMPARED:
        return Headline(word, ("no test ran in both runs",), good)
    if diff.verdict is Verdict.UNCHANGED and any(
        test.behaviour.erased
        for kind in (Kind.ERASED, Kind.OTHER_CHECKS)
        for test in diff.kinds.get(kind, ())
    ):
        # Erased behaviour cannot be compared.
        word, good = "SAME RESULTS", None
    if diff.verdict is Verdict.UNCHANGED and Kind.IMPROVED in diff.kinds:
        word = "NOT WORSE"  # without a confirmed improvement
    if good and (diff.kinds.get(Kind.NEW_FAILING) or diff.lacked_results):
        # Nothing got worse, but a new test fails or tests may not have been compared.
        good = None
    return Headline(word, tuple(_reasons(diff)), good)


def next_step(diff: RunDiff) -> NextStep:
    """Return the most helpful next command."""
    share = NextStep(f"{diff_command(diff)} --format html -o diff.html", "to share it")
    return needed_step(diff) or share


def diff_command(diff: RunDiff) -> str:
    """Return the command that makes the comparison."""
    return shlex.join(("kindlm", "diff", one_line(diff.before.id), one_line(diff.after.id)))


def needed_step(diff: RunDiff) -> NextStep | None:
    """Return the most helpful next command; None if nothing is left but to share the comparison."""
    set_baseline = f"kindlm baseline set {shlex.quote(one_line(diff.after.id))}"
    if diff.unloaded:
        return NextStep(show_run(diff.after), "a suite could not be loaded")
    if diff.verdict is Verdict.INCOMPLETE:
        return NextStep(completing_command(diff.after), "then compare again")
    if not diff.compared:
        return NextStep("kindlm runs", "choose two runs of the same tests and targets")
    kinds = diff.kinds
    if worse := kinds.get(Kind.REGRESSED):
        return NextStep(_show(diff, worse[0]), "what it does now, with all evidence")
    if kinds.get(Kind.REMOVED):
        return NextStep(set_baseline, "if they were removed on purpose")
    # `settle` takes runs, not groups of shards.
    if kinds.get(Kind.SUSPECTED) and diff.before.group is None and diff.after.group is None:
        settle = f"kindlm settle {diff.before.id} {diff.after.id}"
        return NextStep(settle, "repeat them until it is decided")
    for kind in (Kind.NEW_FAILING, Kind.OTHER_BEHAVIOUR, Kind.OTHER_CHECKS):
        if other := kinds.get(kind):
            return NextStep(_show(diff, other[0]), "what it does now, with all evidence")
    if diff.verdict is Verdict.IMPROVED and diff.after.passed:
        return NextStep(set_baseline, "compare with this run from now on")
    return None


def notes_of(diff: RunDiff) -> Iterator[str]:
    """Yield notes that a reader needs to interpret the comparison."""
    if diff.options.note is not None:
        yield diff.options.note
    for view in dict.fromkeys((diff.before, diff.after)):
        if view.group is not None and not view.group.complete:
            yield f"Group {one_line(view.id)} is {view.status}: {view.info.reason}."
        elif view.info.ended != "finished":
            missing = f"{view.missing:,} of {count(view.info.planned, 'execution')}"
            yield f"Run {view.id} is {view.status}: {missing} did not finish, and are not compared."
    if diff.before.id == diff.after.id:
        yield "Both sides are the same run."
    if diff.attempts is not None:
        is_first = diff.attempts is Attempts.FIRST
        why = "" if is_first else ": a rescored or replayed run has no others"
        yield f"Of retried executions, the {diff.attempts} attempts are compared{why}."
    for suite in diff.unloaded:
        yield f"Suite {one_line(suite)} could not be loaded in {diff.after.id}: none of it ran."
    for suite in diff.left_out:
        yield f"Suite {one_line(suite)} was not part of {diff.after.id}."
    gone, come = (
        {test.key[:3]: test.key.target for test in diff.tests if test.evidence.change is change}
        for change in (Change.REMOVED, Change.ADDED)
    )
    if moved := {(one_line(gone[name]), one_line(come[name])) for name in gone if name in come}:
        targets = first_of([f"{one} → {other}" for one, other in sorted(moved)], _PLACES)
        yield (
            f"Tests on another target are other tests: {targets}. To compare a new model with the"
            " old one, keep its `id` in `models` and change its `model`."
        )
    for who, changes in (("", compare_models(diff.tests)), ("The judge ", diff.judges)):
        for change in changes:
            old, new = (", ".join(one_line(model, 60) for model in side) for side in change[1:])
            yield f"{who}{one_line(change.target)} answered as another model: {old} → {new}."


def status_text(test: TestDiff) -> str:
    """Return how a test changed: `regressed, confirmed`."""
    change, strength = test.evidence.change, test.evidence.strength
    return f"{change}, {strength}" if strength else str(change)


def outcome_text(test: TestDiff) -> str:
    """Return the result of a test, with repeats added later: `passed 3/3 → failed 0/3`."""
    before, after = side_text(test.before), side_text(test.after)
    if test.after is None and test.kind is Kind.NOT_RUN:
        after = "not run"  # the run has no suite that could define it
    shown = before if before == after else f"{before} → {after}"
    old, new = (f"{added.passed}/{added.n} added" for added in (test.added_before, test.added))
    if test.added_before.n:
        shown += f", then {old} before" + (f" and {new} after" if test.added.n else "")
    elif test.added.n:
        shown += f", then {new}"
    return shown


def needs_text(test: TestDiff) -> str | None:
    """Return how many repeats would settle a change, or that only its checks differ."""
    if test.evidence.strength is Strength.EXPECTATIONS:
        return "the conversations are the same: what changed is how they were checked"
    needed = test.evidence.repeats_to_settle
    if needed is None or test.evidence.strength is Strength.ONE_SAMPLE:
        # The verdict says how single repeats are judged.
        return None
    return f"{needed:,} repeats on each side would settle a difference as large as this"


def _figure_text(figure: Figure) -> str:
    """Return a number of both runs: `412 ms → 733 ms (+78 %, 95 % interval +60 % to +96 %)`."""
    form = FORMS[figure.name]
    before, after = form(figure.before), form(figure.after)
    if before == after or math.isclose(figure.before, figure.after):  # sums have rounding errors
        return after
    shown = f"{before} → {after}"
    change = _relative(figure, figure.after - figure.before)
    if change is None:
        return shown
    if figure.interval is None or figure.tests < _ENOUGH_TESTS:
        return f"{shown} ({change})"
    low, high = figure.interval
    if low <= 0 <= high:
        return f"{shown} ({change}, within the noise)"
    interval = f"{_relative(figure, low)} to {_relative(figure, high)}"
    return f"{shown} ({change}, 95 % interval {interval})"


def _relative(figure: Figure, change: float) -> str | None:
    """Return a change with its sign, in percent except for scores; None if it was zero before."""
    if figure.name == "score":
        return f"{change * 100:+.1f}"
    if figure.name in ("judge", "drift"):
        return _signed(change, 2)
    return f"{_signed(change / figure.before * 100, 0)} %" if figure.before else None


def _signed(change: float, decimals: int) -> str:
    """Return a change with its sign, with one digit if these decimals show none: `-0.004`."""
    change = round(change, 12)  # without the noise of sums
    shown = f"{change:+,.{decimals}f}"
    is_hidden = change and not float(shown.replace(",", ""))
    return f"{Decimal(f'{change:.1g}'):+f}" if is_hidden else shown


def rate_text(diff: RunDiff) -> str | None:
    """Return how the mean pass rate of all tests changed; None if no test ran in both runs.

    Added repeats count, but not in the interval and p: their tests were selected by their results.
    """
    rates = [both for test in diff.tests if (both := test.pass_rates)]
    if not rates:
        return None
    before, after = (percent(fmean(side)) for side in zip(*rates, strict=True))
    shown = before if before == after else f"{before} → {after}"
    paired = diff.evidence.paired
    if (
        paired is None
        or not paired.change
        or paired.interval is None
        or paired.tests < _ENOUGH_TESTS
    ):
        return shown
    p = p_value(min(paired.p_worse, paired.p_better))
    has_added = any(test.pair.added or test.pair.added_before for test in diff.tests)
    of_some = f" in {paired.tests} of {len(rates)} tests" if paired.tests < len(rates) else ""
    without = " without added repeats" if has_added else ""
    interval = f"95 % interval of the change{of_some}{without}: {points_between(paired.interval)}"
    return f"{shown}, {interval}; {p}"


def figure_rows(diff: RunDiff) -> list[tuple[str, str]]:
    """Return the averages of both runs, as name and text."""
    rate = rate_text(diff)
    rows = [(figure.name, _figure_text(figure)) for figure in compare_figures(diff.tests)]
    return [("pass rate", rate), *rows] if rate else rows


def scope_text(diff: RunDiff) -> str:
    """Return how much was compared: `3 tests compared, 2 not run`."""
    numbers = Counter(test.evidence.change for test in diff.tests)
    parts = [f"{count(diff.compared, 'test')} compared"]
    parts += [
        f"{numbers[change]:,} {change}"
        for change in (Change.ADDED, Change.REMOVED, Change.NOT_RUN)
        if numbers[change]
    ]
    return ", ".join(parts)


LOOKS: dict[Kind, Look] = {
    Kind.REGRESSED: Look("Regressed", "✗", "red"),
    Kind.REMOVED: Look("Removed", "✗", "red", listed=True),
    Kind.SUSPECTED: Look("Suspected", "?", "yellow"),
    Kind.NEW_FAILING: Look("Added, not passing", "!", "yellow"),
    Kind.OTHER_BEHAVIOUR: Look("Different behaviour, neither better nor worse", "~", "yellow"),
    Kind.OTHER_CHECKS: Look("Same result, different checks", "~", "yellow"),
    Kind.ERASED: Look(
        "Same result; behaviour cannot be compared, texts were erased or withheld",
        "?",
        "yellow",
        listed=True,
    ),
    Kind.IMPROVED: Look("Improved", "↑", "green"),
    Kind.ADDED: Look("Added", "+", "green", listed=True),
    Kind.OTHER_WORDS: Look("Same behaviour, different words", "=", "dim", listed=True),
    Kind.NOT_RUN: Look("Not run", "-", "dim", listed=True),
    Kind.UNCHANGED: Look("Unchanged", "=", "dim", listed=True),
}
"""How each kind of test is shown, in order."""


class Section(NamedTuple):
    """The tests of one kind: those shown with details, then those only listed."""

    kind: Kind
    look: Look
    tests: Sequence[TestDiff]
    detailed: Sequence[TestDiff]
    listed: Sequence[TestDiff]

    @property
    def more(self) -> int:
        """The number of tests that are left out."""
        return len(self.tests) - len(self.detailed) - len(self.listed)


def sections_of(diff: RunDiff, most_detailed: int, most_listed: int) -> Iterator[Section]:
    """Yield the tests by kind: `most_detailed` overall with details, `most_listed` of each kind."""
    for kind, tests in diff.kinds.items():
        full = 0 if LOOKS[kind].listed else min(most_detailed, len(tests))
        most_detailed -= full
        yield Section(kind, LOOKS[kind], tests, tests[:full], tests[full : full + most_listed])


FORMS: dict[str, Callable[[float], str]] = {
    "judge": score,
    "score": points_of_100,
    "drift": score,
    "latency": duration,
    "tokens": lambda tokens: f"{tokens:,.0f}",
    "cost": money,
}
"""How each figure of a run or a test is formatted."""


def _reasons(diff: RunDiff) -> Iterator[str]:
    yield from _news(diff, (Kind.REGRESSED, Kind.REMOVED))
    if diff.evidence.run_regressed and (paired := diff.evidence.paired):
        whole = "suite" if len(diff.options.suites or ()) == 1 else "run"
        tests = count(paired.tests, "test")
        mean = f"{points_of_100(-paired.change)} points on average over {tests}"
        yield f"the {whole} as a whole passes less often, by {mean}"
    if diff.unloaded:
        yield f"{count(len(diff.unloaded), 'suite')} could not be loaded"
    if diff.lacks_results:
        yield lacking_text(diff.after)
    yield from _news(diff, (Kind.SUSPECTED, *_NEWS, Kind.IMPROVED))
    if same := sum(len(diff.kinds.get(kind, ())) for kind in (Kind.UNCHANGED, Kind.OTHER_WORDS)):
        yield f"{same:,} as before"


def _news(diff: RunDiff, kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield the numbers of tests of these kinds, with what happened to them."""
    groups = dict[str, list[TestDiff]]()
    for kind in kinds:
        for test in diff.kinds.get(kind, ()):
            groups.setdefault(_NEWS.get(kind) or _what_happened(test), []).append(test)
    for what, tests in groups.items():
        errored = sum(
            test.fell_by_errors for test in tests if test.evidence.change is Change.REGRESSED
        )
        some = "" if errored == len(tests) else f"{errored:,} of them "
        aside = f" ({some}by errors alone)" if errored else ""
        yield f"{count(len(tests), 'test')} {what}{aside}"


_NEWS = {
    Kind.NEW_FAILING: "added, not passing",
    Kind.OTHER_BEHAVIOUR: "behaved differently, neither better nor worse",
    Kind.OTHER_CHECKS: "checked something else with the same result",
    Kind.ERASED: "with the same result, whose texts were erased or withheld",
}


def _what_happened(test: TestDiff) -> str:
    if test.kind is Kind.SUSPECTED:
        return "may have got worse"
    if test.kind is not Kind.REGRESSED:
        return status_text(test)
    if test.evidence.strength is Strength.EXPECTATIONS:
        return "got worse when the same answers were checked again"
    if test.evidence.strength is Strength.ONE_SAMPLE:
        failed = "that failed before newly failed other checks"
        return failed if test.fell_by_checks else "newly failed"
    return f"got worse, {test.evidence.strength}"


def lacking_text(view: RunView) -> str:
    """Return why a run or a group has no results for some executions, and for how many."""
    if view.group is not None and view.info.reason:
        return view.info.reason
    missing = f"{view.missing:,} of {count(view.info.planned, 'execution')} missing"
    ended = f"{one_line(view.id)} {'is' if view.status == 'running' else 'was'} {view.status}"
    return f"run {ended}, {missing}" if view.missing else f"run {ended}"


def completing_command(view: RunView) -> str:
    """Return the command that completes a run or a group, or that shows it if none can."""
    needs_look = view.status in ("running", "failed")
    return show_run(view) if needs_look else next_command(view, ReportOptions())


def _show(diff: RunDiff, test: TestDiff) -> str:
    execution = test.after.usual if test.after else None
    return show_run(diff.after) if execution is None else show_command(execution)


def side_text(side: Side | None) -> str:
    """Return the result of a test on a side: `passed 3/3`."""
    if side is None:
        return "not defined"
    return f"{side.status} {side.counts.passed}/{side.counts.n}" if side.counts.n else "not run"


def fail_on_text(diff: RunDiff) -> str | None:
    """Return the exit code if `--fail-on` makes it differ from the verdict, else None."""
    fail_on = diff.options.fail_on
    by_verdict = diff.verdict not in _GOOD
    if fail_on is FailOn.DEFAULT or diff.fails == by_verdict:
        return None
    return f"--fail-on {fail_on}: the exit code is {int(diff.fails)}."
