"""Charts that pages hold."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from kindlm.reports.pages.charts import Bar, waterfall


@pytest.mark.parametrize(
    ("total_ms", "scale"),
    [
        (0, ["0 ms", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms"]),
        (4, ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (7.4, ["0 ms", "2 ms", "4 ms", "6 ms"]),
        (999, ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms"]),
        (8_200, ["0 ms", "2.0 s", "4.0 s", "6.0 s", "8.0 s"]),
        (290_000, ["0 ms", "1 min 40 s", "3 min 20 s"]),
    ],
)
def test_a_waterfall_has_a_scale_of_round_times(total_ms: float, scale: list[str]) -> None:
    drawn = ET.fromstring(waterfall([Bar("call 1", "test", 0.0, total_ms, "call-1")], "Times"))
    ticks = [text for text in drawn.iter("text") if text.get("class") == "tick"]
    assert [tick.text for tick in ticks] == scale
    lines = [float(line.get("x1", "")) for line in drawn.iter("line")]
    steps = {round(after - before, 0) for before, after in pairwise(lines)}
    assert len(lines) == len(scale)
    assert max(steps) - min(steps) <= 1
    width = float((drawn.get("viewBox") or "").split()[2])
    assert all(line <= width for line in lines)


def test_the_bars_lie_below_the_scale_and_on_it() -> None:
    bars = [
        Bar("call 1", "test", 0.0, 500.0, "call-1"),
        Bar("tool", "tool", 500.0, None, "call-1"),
        Bar("call 2", "judge", 500.0, 500.0, "call-2"),
    ]
    drawn = str(waterfall(bars, "Times"))
    (start, step, half) = re.findall(
        r'<rect class="(?:test|tool|judge)" x="([\d.]+)" y="([\d.]+)"', drawn
    )
    zero, *_ = re.findall(r'<line class="grid" x1="([\d.]+)"', drawn)
    assert float(start[0]) == float(zero)
    assert (float(start[1]), float(step[1]), float(half[1])) == (21.0, 39.0, 57.0)
    assert ">tool</text>" in drawn
