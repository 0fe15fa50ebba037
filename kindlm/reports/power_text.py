"""The sentence that says what a comparison can show, before anything is compared."""

from __future__ import annotations

from kindlm.history.evidence.power import ComparisonPower
from kindlm.wording import count


def power_text(power: ComparisonPower) -> str:
    """Return what a comparison can confirm: `With 10 repeats in each run, kindlm confirms ...`."""
    if power.found is not None:
        return f"With {_repeats(power)}, kindlm confirms {_drops(power, power.found)}."
    text = f"With {_repeats(power)}, kindlm cannot tell a regression from bad luck"
    more = power.enough
    if more is None or more.found is None:
        return f"{text}."
    return f"{text}; with {_repeats(more)}, it confirms {_drops(more, more.found)}."


def _repeats(power: ComparisonPower) -> str:
    if power.before == power.after:
        return f"{count(power.before, 'repeat')} in each run"
    return f"{count(power.before, 'repeat')} before and {power.after:,} after"


def _drops(power: ComparisonPower, found: float) -> str:
    often = f"a drop from 100 % to {100 * found:.0f} % in 4 of 5 comparisons"
    if found >= 0.7:
        return often
    return f"{often}, and to 70 % in {_share(power.thirty)}"


def _share(chance: float) -> str:
    return f"{int(100 * chance)} of 100" if chance >= 0.01 else "fewer than 1 of 100"
