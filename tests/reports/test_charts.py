"""Charts that pages hold."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from kindlm.reports.pages.charts import Bar, waterfall


def test_a_waterfall_has_a_scale() -> None:
    drawn = ET.fromstring(waterfall([Bar("call 1", "test", 0.0, 8_000.0, "call-1")], "Times"))
    ticks = [text.text for text in drawn.iter("text") if text.get("class") == "tick"]
    assert ticks == ["0 ms", "2.0 s", "4.0 s", "6.0 s", "8.0 s"]
    lines = [float(line.get("x1", "")) for line in drawn.iter("line")]
    steps = {round(after - before, 0) for before, after in pairwise(lines)}
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
