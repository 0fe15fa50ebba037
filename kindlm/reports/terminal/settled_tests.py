"""Writes the verdict on each suspected test of two runs for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TextIO

from kindlm.history.diff.evidence_values import MOST_ADDED, CheckKey, CheckPair
from kindlm.history.settling import Suspect
from kindlm.history.statistics.pass_rates import BLOCK, Settlement
from kindlm.history.statistics.tables import Counts, pooled
from kindlm.plan import QualifiedName
from kindlm.reports.figures import money
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_STANDINGS: dict[Settlement | None, tuple[str, str, str]] = {
    Settlement.CONFIRMED: ("✗", "red", "regression confirmed"),
    Settlement.CLEARED: ("✓", "green", "cleared"),
    Settlement.BEFORE_TOO_SMALL: ("?", "yellow", "not decided, too few repeats before"),
}
_OPEN = ("?", "yellow", "not decided")


class Settled(NamedTuple):
    """The result of `kindlm settle` for two runs.

    `run` recorded the added repeats; it is None if none were needed. `repeats_before` of them were
    added to BEFORE. `cost_usd` is None if unknown. `ended` says why settling stopped early.
    `labels` are those of checks, masked. `options` continue the command.
    """

    before: str
    after: str
    suspects: Sequence[Suspect]
    run: str | None = None
    repeats: int = 0
    cost_usd: float | None = None
    ended: str | None = None
    repeats_before: int = 0
    labels: Mapping[tuple[QualifiedName, CheckKey], str] = MappingProxyType({})
    options: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether a regression is confirmed."""
        return any(found.standing is Settlement.CONFIRMED for found in self.suspects)


def write_settled(settled: Settled, out: TextIO, options: ReportOptions) -> None:
    """Write the verdict on each suspected test."""
    page = Page(out, options)
    added = "no repeats added"
    if settled.run is not None:
        cost = "cost unknown" if settled.cost_usd is None else money(settled.cost_usd)
        to = f", {settled.repeats_before:,} to BEFORE" if settled.repeats_before else ""
        added = f"{count(settled.repeats, 'repeat')} added by run {settled.run}{to}, {cost}"
    page.line(
        ("Before ", "dim"),
        (settled.before, "bold cyan"),
        ("  After ", "dim"),
        (settled.after, "bold cyan"),
        f"  {added}",
    )
    if settled.ended:
        page.line(("! ", "yellow"), f"Ended early: {one_line(settled.ended)}", hang=2)
    page.blank()
    for found in settled.suspects:
        _write_test(found, _verdict(found), settled, page)
        if explained := _explained(found):
            page.line((explained, "dim"), indent=4)
    page.blank()
    verdicts = (_verdict(found).removeprefix("regression ") for found in settled.suspects)
    numbers = Counter(verdict.partition(",")[0] for verdict in verdicts)
    parts = ", ".join(f"{number:,} {verdict}" for verdict, number in numbers.items())
    suspected = count(len(settled.suspects), "suspected test")
    page.line((f"{suspected}: {parts}.", "bold red" if settled.confirmed else "bold"))
    command, why = _next_step(settled)
    page.unbroken(("Next  ", "dim"), page.typed(command), (f"   {why}", "dim"))


def write_planned(settled: Settled, most: int, out: TextIO, options: ReportOptions) -> None:
    """Write which tests would be repeated, `most` repeats altogether."""
    page = Page(out, options)
    for found in settled.suspects:
        plan = f"up to {found.room} more repeats" if found.room else _verdict(found)
        _write_test(found, plan, settled, page)
    page.line(f"At most {count(most, 'repeat')}, {BLOCK} of each test at a time.")
    page.line(("Nothing was run.", "dim"))


def counts_text(found: CheckPair) -> str:
    """Return the passed repeats of a test or a check: `5/5 before, 3/5 after + 4/10 added`."""
    before, after = _of(found.before), _of(found.after)
    old, new = (
        f" + {_of(pooled(added))} added" if added else ""
        for added in (found.added_before, found.added)
    )
    return f"{before} before{old}, {after} after{new}"


def _write_test(found: Suspect, verdict: str, settled: Settled, page: Page) -> None:
    """Write a test, and its checks that passed less often and have a label that may be shown."""
    sign, style, _ = _STANDINGS.get(found.standing, _OPEN)
    name, target = one_line(found.key.name), one_line(found.key.target)
    counts = counts_text(found.rate)
    page.line(
        (sign, style), " ", (name, "bold"), f" · {target}  {counts}  ", (verdict, style), hang=2
    )

    for check, pair in found.checks.items():
        if label := settled.labels.get((found.key, check)):
            page.line(f"check {label}  {counts_text(pair)}", indent=4, hang=2)


def _verdict(found: Suspect) -> str:
    return _STANDINGS.get(found.standing, _OPEN)[2]


def _explained(found: Suspect) -> str | None:
    """Return what the counts do not show: why a test is decided or not, what would decide it."""
    needed = found.repeats_to_settle
    repeats = f"{needed:,} repeats" if needed else "more repeats"
    match found.standing:
        case Settlement.CONFIRMED if not (found.rate.fell or found.checks):
            return "Its scores fell."
        case Settlement.CLEARED:
            unlikely = "A drop of 30 points is unlikely: 1 in 10 of those is cleared at most."
            return f"{unlikely} A smaller one is not ruled out."
        case Settlement.EXHAUSTED:
            added = f"{MOST_ADDED} repeats were added, and there are no more"
            return f"{added}: record {repeats} of both runs to find a drop this small."
        case None:
            fell = "Only its scores fell; settling decides pass rates."
            return f"{fell} Record both runs again with {repeats}: kindlm test --repeat N"
    return None


def _next_step(settled: Settled) -> tuple[str, str]:
    pair = f"{settled.before} {settled.after}"
    standings = {found.standing for found in settled.suspects}
    is_open = Settlement.UNDECIDED in standings
    if Settlement.BEFORE_TOO_SMALL in standings and not is_open and not settled.confirmed:
        return f"kindlm settle {pair} --both FOLDER", "with BEFORE's suites and agent"
    if is_open and not settled.confirmed:
        return f"kindlm settle {pair}{settled.options}", "continue; added repeats count"
    return f"kindlm diff {pair}", "the comparison, with the added repeats"


def _of(counts: Counts) -> str:
    return f"{counts.passed}/{counts.n}"
