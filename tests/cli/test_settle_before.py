"""What repeats of BEFORE have cost so far, and that an unknown cost is no free one."""

from __future__ import annotations

import asyncio
import io
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_history import History

from kindlm.cli.commands.settle import SettleOptions
from kindlm.cli.commands.settle_rounds import RepeatsOfBefore
from kindlm.engine.stop import Stop
from kindlm.history.diff.evidence_values import CheckPair
from kindlm.history.queries import Paid
from kindlm.history.settling import Suspect
from kindlm.history.statistics.pass_rates import Settlement
from kindlm.history.statistics.tables import Counts
from kindlm.plan import QualifiedName
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.settled_tests import Settled, write_settled

BEFORE = "before01"


def repeats_of_before(
    history: History, cost_usd: float | None, judge: str | None = None, **options: Any
) -> Any:
    """BEFORE, and a run since that added a repeat to it at a cost."""
    made = SettleOptions(both=Path("nowhere"), **options)
    pair: Any = SimpleNamespace(options=made, before=BEFORE, after="after001")
    with closing(history.reader()) as db:
        repeats = RepeatsOfBefore(db, pair, "shop")
    run = history.run("settled1", mode="settled", source_run=BEFORE)
    run.suite()
    run.execution(cost_usd=cost_usd, judge=judge)
    run.finish()
    return repeats


@pytest.mark.parametrize("cost_usd", [None, 0.25])
def test_the_cost_of_repeats_is_known_or_not(history: History, cost_usd: float | None) -> None:
    repeats = repeats_of_before(history, cost_usd)
    with closing(history.reader()) as db:
        assert repeats.made(db) == (1, cost_usd)


def test_a_cost_with_an_unknown_part_is_unknown() -> None:
    costs = [paid.whole_usd for paid in (Paid(), Paid(0.5, 0.25), Paid(0.5, None, 1))]
    assert costs == [0, 0.75, None]


def test_judges_of_repeats_cost_too(history: History) -> None:
    repeats = repeats_of_before(history, 0.25, judge="0.9")
    with closing(history.reader()) as db:
        assert repeats.made(db) == (1, pytest.approx(0.252))


@pytest.mark.parametrize(
    ("cost_usd", "says"),
    [
        (None, "cost of BEFORE's repeats is unknown"),
        (0.5, "used up"),
        (0.5 - 1e-13, "used up"),  # sums are off by rounding
    ],
)
def test_nothing_is_repeated_past_a_limit_that_cannot_be_kept(
    history: History, cost_usd: float | None, says: str
) -> None:
    repeats = repeats_of_before(history, cost_usd, max_cost_usd=1.0)
    with closing(history.reader()) as db:
        why = asyncio.run(repeats.add(db, history.path, 5, Stop()))
    assert says in why


@pytest.mark.parametrize(("cost_usd", "shown"), [(None, "cost unknown"), (0.25, "$0.25")])
def test_an_unknown_cost_is_said_to_be_unknown(cost_usd: float | None, shown: str) -> None:
    out = io.StringIO()
    settled = Settled(BEFORE, "after001", (), "settled1", 3, cost_usd)
    write_settled(settled, out, ReportOptions(width=100))
    assert out.getvalue().splitlines()[0].endswith(f"3 repeats added by run settled1, {shown}")


@pytest.mark.parametrize(("after", "says"), [(5, True), (0, False)])
def test_a_regression_of_scores_alone_is_called_one(after: int, says: bool) -> None:
    out = io.StringIO()
    rate = CheckPair(Counts(5, 5), Counts(after, 5))
    suspect = Suspect(QualifiedName("shop", "s", "a", "gpt"), rate, Settlement.CONFIRMED)
    write_settled(Settled(BEFORE, "after001", (suspect,)), out, ReportOptions(width=100))
    assert ("Its scores fell." in out.getvalue()) is says


def test_settling_for_nothing_is_refused(kindlm: Any, history: History) -> None:
    done = kindlm("settle", "--max-cost", "0", "--db", history.path)
    assert done.code != 0
    assert "0 allows no call at all" in done.err
