"""Formats numbers for people: times, money, rates, gates, and statistics of repeats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from kindlm.history.statistics import wilson_interval
from kindlm.outcome import GateResult, Status
from kindlm.wording import count

if TYPE_CHECKING:
    from kindlm.history.diff.power import ComparisonPower
    from kindlm.history.queries import Paid
    from kindlm.history.trends import RepeatStatistics
    from kindlm.history.verdict import StatusCounts


def duration(ms: float) -> str:
    """Return a time given in milliseconds: `412 ms`, `1.2 s`, `3 min 05 s`, `2 h 03 min`."""
    if ms < 999.5:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def cost(paid: Paid) -> str:
    """Return the cost, split if judges ran: `$0.0044 (agents $0.0031, judges $0.0013)`."""
    if paid.total_usd is None or paid.judges_usd is None:
        return total(paid) or "none"
    agents = "" if paid.agents_usd is None else f"agents {money(paid.agents_usd)}, "
    unknown = " + unknown" if paid.unknown else ""
    return f"{money(paid.total_usd)} ({agents}judges {money(paid.judges_usd)}){unknown}"


def total(paid: Paid) -> str:
    """Return the total cost, with its unknown part: `$0.0044 + unknown`; "" without any cost."""
    known = [] if paid.total_usd is None else [money(paid.total_usd)]
    return " + ".join([*known, *(["unknown"] if paid.unknown else [])])


def local_time(at: str) -> str:
    """Return a recorded time in the local time zone: `2026-01-31 14:05`."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def money(usd: float) -> str:
    """Return an amount of US dollars, small ones with more digits: `$12.34`, `$0.0012`."""
    if usd == 0:
        return "$0"
    if usd < 0.00005:
        return "<$0.0001"
    return f"${usd:,.4f}" if round(usd, 4) < 0.1 else f"${usd:,.2f}"


def tokens(read: int | None, wrote: int | None) -> str:
    """Return how many tokens a model read and wrote: `240 in, 66 out`, `unknown in, 12 out`."""
    read_text, wrote_text = ("unknown" if n is None else f"{n:,}" for n in (read, wrote))
    return f"{read_text} in, {wrote_text} out"


def percent(rate: float) -> str:
    """Return a rate in percent; rounding never gives 0 or 100: `>99.9 %`."""
    shown = f"{rate * 100:.1f}"
    if rate < 1 and shown == "100.0":
        return ">99.9 %"
    if rate > 0 and shown == "0.0":
        return "<0.1 %"
    return f"{shown.removesuffix('.0')} %"


def interval_text(passed: int, n: int) -> str:
    """Return the 95 % interval of a rate: `2.9 % to 21.8 %`."""
    low, high = wilson_interval(passed, n) or (0.0, 1.0)
    return f"{percent(low)} to {percent(high)}"


def score(value: float) -> str:
    """Return a score in [0, 1] with two decimals."""
    return f"{value:.2f}"


def score_of_limit(value: float, least: float) -> str:
    """Return a score and its limit, exactly if a lower score would look the same."""
    form = repr if value < least and score(value) == score(least) else score
    return f"{form(value)}, needs {form(least)}"


def tally(counts: StatusCounts, pending: str = "not run") -> str:
    """Return counts by status, without those that are zero: `3 passed, 1 failed`.

    `pending` is the word for tests without a result.
    """
    parts = [
        f"{number:,} {word}"
        for word, number in (
            (Status.PASSED.value, counts.passed),
            (Status.FAILED.value, counts.failed),
            (Status.ERRORED.value, counts.errored),
            (Status.SKIPPED.value, counts.skipped),
            (pending, counts.pending),
        )
        if number
    ]
    return ", ".join(parts) or "none"


def comparison(gate: GateResult) -> str:
    """Return the value of a gate against its threshold: `0.71 < 0.80`."""
    met, missed = ("≥", "<") if gate.name.endswith("Min") else ("≤", ">")
    threshold = _value(gate, gate.threshold)
    if gate.actual is None:
        return f"no value, needs {met} {threshold}"
    actual = _value(gate, gate.actual)
    if gate.passed:
        return f"{actual} {met} {threshold}"
    if actual == threshold:
        is_usd, is_ms = gate.name.endswith("Usd"), gate.name.endswith("Ms")
        exact = "${:,}" if is_usd else "{:,} ms" if is_ms else "{:,}"
        actual, threshold = exact.format(gate.actual), exact.format(gate.threshold)
    return f"{actual} {missed} {threshold}"


def _value(gate: GateResult, number: float) -> str:
    if gate.name.endswith("FailuresMax"):
        return f"{number:g}"
    if gate.name.endswith("Usd"):
        return money(number)
    return f"{number:,.0f} ms" if gate.name.endswith("Ms") else score(number)


def repeat_texts(found: RepeatStatistics) -> Iterator[str]:
    """Yield how often a test passes, its chances in several tries, and its weighted scores.

    Scores are in points of 100: their mean with its interval, and their spread.
    """
    level = f"{found.confidence * 100:g} % interval"
    low, high = map(percent, found.interval)
    yield f"{percent(found.passed / found.n)} of {found.n} passed ({level} {low} to {high})"
    # For two tries, and for as many as were recorded.
    chances = (
        f"pass@{k} {percent(found.pass_at[k - 1])}, pass^{k} {percent(found.pass_hat[k - 1])}"
        for k in dict.fromkeys((2, found.n))
    )
    yield ", ".join(chances)
    if (scores := found.score) is None:
        return
    text = f"score mean {points(scores.mean)} of {scores.n}"
    if scores.interval is not None and scores.std_dev is not None:
        # Student's interval may extend beyond the range of a score.
        low, high = points(max(0.0, scores.interval[0])), points(min(1.0, scores.interval[1]))
        text += f" ({level} {low} to {high}), standard deviation {points(scores.std_dev)}"
    yield text


def points(score: float) -> str:
    """Return a score in [0, 1] as points of 100: `87.5`."""
    return f"{score * 100:.1f}".removesuffix(".0")


def points_between(interval: tuple[float, float]) -> str:
    """Return the interval of a change of a rate in percentage points: `-83 to -12 points`."""
    low, high = (min(1.0, max(-1.0, end)) * 100 for end in interval)
    return f"{low:+.0f} to {high:+.0f} points"


def p_value(p: float) -> str:
    """Return a p-value with two significant digits: `p = 0.016`, `p < 0.0001`."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def power_text(power: ComparisonPower) -> str:
    """Return what a comparison can confirm: `With 10 repeats in each run, kindlm confirms ...`."""
    repeats = f"{count(power.before, 'repeat')} in each run"
    if power.before != power.after:
        repeats = f"{count(power.before, 'repeat')} before and {power.after:,} after"
    found, purpose = "cannot tell a regression from bad luck", "tell them apart"
    if power.to_none:
        share = int(100 * power.thirty) or "fewer than 1"
        purpose = "find drops more often"
        found = f"confirms a drop from 100 % to 0 %, and one to 70 % in {share} of 100 comparisons"
    more = next((n for n in (10, 30) if n > min(power.before, power.after)), None)
    advice = f" Use {more} repeats to {purpose}." if more else ""
    return f"With {repeats}, kindlm {found}.{advice}"
