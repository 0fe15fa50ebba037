"""Charts as inline SVG, without a script, in the colours of the page.

Shapes have classes that the style sheet `charts` colours, for light and dark. Each point and each
bar is a link with a name, so that a keyboard reaches it and a screen reader reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10

from markupsafe import Markup

from kindlm.dataclass import dataclass
from kindlm.reports.figures import duration
from kindlm.reports.pages.html_document import render_fragment

_TREND = 560
_HEIGHT = 150
_LEFT, _RIGHT = 70, 12
_TOP, _BOTTOM = 24, 118
"""Between them is the plot: values stand above it, dates below."""

_DATES = 4
_WIDTH = 720
_ROW = 18
_NAMES = 230
_TICKS = 5

_SHAPES = {
    "good": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "bad": "M0,-6l6,6l-6,6l-6,-6z",
    "unsure": "M0,-6l6,10h-12z",
    "soft": "M-3,-3h6v6h-6z",
}
"""A dot, a diamond, a triangle, a square around 0,0: distinct without their colours, too."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run in a chart; `mood` is good, bad, unsure or soft.

    `at` is when the run started, UTC in ISO 8601; `name` and `status` describe the run, and `link`
    leads to it.
    """

    mood: str
    name: str
    status: str
    at: str
    link: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of a figure over time, with its range in words."""

    name: str
    drawing: Markup
    said: str


def trend(
    name: str,
    points: Sequence[Point],
    values: Sequence[float | None],
    told: Callable[[float], str],
    most: float | None = None,
) -> Chart | None:
    """Return a line over values from the oldest to the newest, None for fewer than two values.

    The axis goes from 0 to `most`, or to the largest value; `told` formats a value.
    """
    points = [point for point, value in zip(points, values, strict=True) if value is not None]
    known = [value for value in values if value is not None]
    high = most or max(known, default=0.0)
    if len(known) < 2 or not high:
        return None
    low, top = told(min(known)), told(max(known))
    said = f"{low if low == top else f'{low} to {top}'}, latest {told(known[-1])}"
    step = (_TREND - _LEFT - _RIGHT) / (len(points) - 1)
    marks = [
        _Mark(
            point,
            round(_LEFT + number * step, 1),
            round(_BOTTOM - value / high * (_BOTTOM - _TOP), 1),
            told(value),
        )
        for number, (point, value) in enumerate(zip(points, known, strict=True))
    ]
    levels = [(_BOTTOM - part * (_BOTTOM - _TOP), told(part * high)) for part in (0.0, 0.5, 1.0)]
    drawing = render_fragment(
        "trend_chart.html",
        {
            "title": f"{name} from {points[0].at[:10]} to {points[-1].at[:10]}: {said}",
            "width": _TREND,
            "height": _HEIGHT,
            "left": _LEFT,
            "top": _TOP,
            "bottom": _BOTTOM,
            "levels": levels,
            "dates": list(_dates(marks)),
            "marks": marks,
            "half": round(min(step / 2, 40), 1),
            "shapes": _SHAPES,
        },
    )
    return Chart(name, drawing, said)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a point stands; its value is shown above it, from there to the middle of the chart."""

    point: Point
    x: float
    y: float
    value: str

    @property
    def anchor(self) -> str:
        return "start" if self.x < _TREND / 3 else "end" if self.x > _TREND * 2 / 3 else "middle"


def _dates(marks: Sequence[_Mark]) -> Iterator[tuple[float, str, str]]:
    """Yield dates below the plot; times of day follow the first where all runs are of one day."""
    first, last = marks[0].point.at[:10], len(marks) - 1
    same_day = first == marks[-1].point.at[:10]
    labels: dict[str, int] = {}
    for number in range(_DATES):
        place = round(number * last / (_DATES - 1))
        at = marks[place].point.at
        labels.setdefault(at[11:16] if same_day else at[:10], place)
    for label, place in labels.items():
        anchor = "start" if place == 0 else "end" if place == last else "middle"
        yield marks[place].x, anchor, f"{first} {label}" if same_day and not place else label


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a waterfall, in milliseconds from its start; `wait_ms` is a pause after it.

    `took_ms` is None where only the start is known. `place` is the id of what it stands for on the
    page.
    """

    name: str
    kind: str
    start_ms: float
    took_ms: float | None
    place: str
    wait_ms: float = 0.0


def waterfall(bars: Sequence[Bar], title: str) -> Markup:
    """Return bars below one another on one axis of time; `kind` is their class.

    Above them is a scale in milliseconds or what is easier to read.
    """
    total = (
        max((bar.start_ms + (bar.took_ms or 0.0) + bar.wait_ms for bar in bars), default=0.0) or 1.0
    )
    # The shortest bar is two units wide, at the very end, too.
    scale = (_WIDTH - _NAMES - 2) / total
    ticks = [
        # Steps may be parts of a millisecond.
        (round(_NAMES + ms * scale, 1), f"{ms:g} ms" if ms < 10 else duration(ms))
        for ms in _ticks(total)
    ]
    return render_fragment(
        "waterfall.html",
        {
            "title": title,
            "width": _WIDTH,
            "row": _ROW,
            "ticks": ticks,
            "bars": [
                (
                    bar,
                    round(_NAMES + bar.start_ms * scale, 1),
                    round(max((bar.took_ms or 0.0) * scale, 2.0), 1),
                    round(bar.wait_ms * scale, 1),
                )
                for bar in bars
            ],
        },
    )


def _ticks(total: float) -> list[float]:
    """Return times for a scale: at most five, a round number of milliseconds apart."""
    power = 10.0 ** floor(log10(total / _TICKS))
    step = next(n * power for n in (1, 2, 5, 10) if n * power * _TICKS >= total)
    return [n * step for n in range(_TICKS) if n * step <= total]
