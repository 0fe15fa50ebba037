"""Charts as inline SVG, without scripts.

The style sheet `charts` colours the classes of the shapes, for light and dark pages. Each point and
bar is a link with a name, for keyboards and screen readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from kindlm.dataclass import dataclass, replace
from kindlm.reports.figures import duration
from kindlm.reports.pages.html_document import render_fragment
from kindlm.wording import cut

_TREND_WIDTH, _TREND_HEIGHT = 560, 150
_LEFT, _RIGHT = 70, 12
_TOP, _BOTTOM = 24, 118
"""The plot is between them: the value of a point stands above it, dates below."""

_WATERFALL_WIDTH = 720
_ROW_HEIGHT = 18
_NAMES_WIDTH = 230
_LONGEST_NAME = 32
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)

_SHAPES = {
    "good": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "bad": "M0,-6l6,6l-6,6l-6,-6z",
    "unsure": "M0,-6l6,10h-12z",
    "soft": "M-3,-3h6v6h-6z",
}
"""A dot, a diamond, a triangle and a square around 0,0: they differ without colour, too."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run in a chart. `mood` is a key of `_SHAPES`, and `link` leads to the run.

    `at` is when the run started, UTC in ISO 8601.
    """

    mood: str
    name: str
    status: str
    at: str
    link: str


def trend(
    name: str,
    points: Sequence[Point],
    values: Sequence[float | None],
    as_text: Callable[[float], str],
    most: float | None = None,
) -> dict[str, Any] | None:
    """Return a line chart from the oldest to the newest value, None for fewer than two values.

    The axis goes from 0 to `most`, by default the largest value; `as_text` formats a value. Beside
    its name, a chart has its drawing, and the range and the latest of its values in words.
    """
    points = [point for point, value in zip(points, values, strict=True) if value is not None]
    known = [value for value in values if value is not None]
    high = most or max(known, default=0.0)
    if len(known) < 2 or not high:
        return None
    low, top = as_text(min(known)), as_text(max(known))
    in_words = f"{low if low == top else f'{low} to {top}'}, latest {as_text(known[-1])}"
    step = (_TREND_WIDTH - _LEFT - _RIGHT) / (len(points) - 1)
    marks = [
        {
            "point": point,
            "x": round(_LEFT + number * step, 1),
            "y": round(_BOTTOM - value / high * (_BOTTOM - _TOP), 1),
            "value": as_text(value),
        }
        for number, (point, value) in enumerate(zip(points, known, strict=True))
    ]
    levels = [(_BOTTOM - part * (_BOTTOM - _TOP), as_text(part * high)) for part in (0.0, 0.5, 1.0)]
    drawing = render_fragment(
        "trend_chart.html",
        {
            "title": f"{name} from {points[0].at[:10]} to {points[-1].at[:10]}: {in_words}",
            "width": _TREND_WIDTH,
            "height": _TREND_HEIGHT,
            "left": _LEFT,
            "top": _TOP,
            "bottom": _BOTTOM,
            "levels": levels,
            "right": _TREND_WIDTH - _RIGHT,
            "marks": marks,
            "half": round(min(step / 2, 40), 1),
            "shapes": _SHAPES,
        },
    )
    return {"name": name, "drawing": drawing, "in_words": in_words}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a waterfall. Its time axis begins with the start of the first bar.

    `took_ms` is None if the end is unknown; `wait_ms` is a pause after it. `place` is the id of the
    element on the page that it links to.
    """

    name: str
    kind: str
    start_ms: float
    took_ms: float | None
    place: str
    wait_ms: float = 0.0


def waterfall(bars: Sequence[Bar], title: str) -> Markup:
    """Return bars below one another on one time axis; the class of a bar is its `kind`."""
    first = bars[0].start_ms
    # A clock that was set back must not place a bar left of the axis.
    bars = [
        replace(bar, name=cut(bar.name, _LONGEST_NAME), start_ms=max(bar.start_ms - first, 0.0))
        for bar in bars
    ]
    total = max(bar.start_ms + (bar.took_ms or 0.0) + bar.wait_ms for bar in bars) or 1.0
    # A bar is at least two units wide, also at the end of the axis.
    scale = (_WATERFALL_WIDTH - _NAMES_WIDTH - 2) / total
    ticks = [
        (round(_NAMES_WIDTH + part * total * scale, 1), duration(part * total)) for part in _TICKS
    ]
    return render_fragment(
        "waterfall.html",
        {
            "title": title,
            "width": _WATERFALL_WIDTH,
            "row": _ROW_HEIGHT,
            "ticks": ticks,
            "bars": [
                (
                    bar,
                    round(_NAMES_WIDTH + bar.start_ms * scale, 1),
                    round(max((bar.took_ms or 0.0) * scale, 2.0), 1),
                    round(bar.wait_ms * scale, 1),
                )
                for bar in bars
            ],
        },
    )
