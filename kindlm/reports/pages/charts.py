"""Charts as inline SVG: made here, without a script, in the colours of the page.

Shapes carry classes that the style sheet `charts` colours, so that they fit light and dark. Each
point and each bar is a link with a name: a keyboard reaches it, and a screen reader reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from kindlm.reports.figures import duration

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
    """A value of a run, None if it has none; `mood` is good, bad, unsure or soft.

    `at` is when the run started, UTC in ISO 8601; `name` and `status` describe the run, and `link`
    leads to it.
    """

    value: float | None
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
    told: Callable[[float], str],
    most: float | None = None,
) -> Chart | None:
    """Return a line over values from the oldest to the newest, None for fewer than two values.

    The axis goes from 0 to `most`, or to the largest value; `told` formats a value.
    """
    points = [point for point in points if point.value is not None]
    known = [point.value for point in points if point.value is not None]
    high = most or max(known, default=0.0)
    if len(known) < 2 or not high:
        return None
    low, top = told(min(known)), told(max(known))
    said = f"{low if low == top else f'{low} to {top}'}, latest {told(known[-1])}"
    step = (_TREND - _LEFT - _RIGHT) / (len(points) - 1)
    places = [
        (_LEFT + number * step, _BOTTOM - value / high * (_BOTTOM - _TOP))
        for number, value in enumerate(known)
    ]
    half = min(step / 2, 40)
    marks = Markup("").join(
        _mark(point, x, y, half, told(value))
        for point, value, (x, y) in zip(points, known, places, strict=True)
    )
    drawing = Markup(
        '<svg class="trend" role="group" viewBox="0 0 {} {}"><title>{}</title>{}{}'
        '<polyline class="line" points="{}"/>{}</svg>'
    ).format(
        _TREND,
        _HEIGHT,
        f"{name} from {points[0].at[:10]} to {points[-1].at[:10]}: {said}",
        Markup("").join(_level(part, told(part * high)) for part in (0.0, 0.5, 1.0)),
        _dates(points, places),
        " ".join(f"{x:.1f},{y:.1f}" for x, y in places),
        marks,
    )
    return Chart(name, drawing, said)


def _level(part: float, label: str) -> Markup:
    y = _BOTTOM - part * (_BOTTOM - _TOP)
    return Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="tick" x="0" y="{:.1f}">{}</text>'
    ).format(_LEFT - 6, _TREND, y, y, y + 4, label)


def _dates(points: Sequence[Point], places: Sequence[tuple[float, float]]) -> Markup:
    """Return dates below the plot; times of day follow the first where all runs are of one day."""
    same_day = points[0].at[:10] == points[-1].at[:10]
    last = len(points) - 1
    labels: dict[str, int] = {}
    for number in range(_DATES):
        place = round(number * last / (_DATES - 1))
        at = points[place].at
        labels.setdefault(at[11:16] if same_day else at[:10], place)
    return Markup("").join(
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            places[place][0],
            _HEIGHT - 8,
            "start" if place == 0 else "end" if place == last else "middle",
            f"{points[0].at[:10]} {label}" if same_day and not place else label,
        )
        for label, place in labels.items()
    )


def _mark(point: Point, x: float, y: float, half: float, value: str) -> Markup:
    """Return a point: its whole column can be pointed at, and its value is shown above."""
    anchor = "start" if x < _TREND / 3 else "end" if x > _TREND * 2 / 3 else "middle"
    when = f"{point.at[:10]} {point.at[11:16]}"
    # Where it stands is apart from its shape, so that a style sheet can enlarge that.
    return Markup(
        '<a href="{}" aria-label="{}"><g transform="translate({:.1f} 0)">'
        '<rect class="reach" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>'
        '<line class="guide" y1="{}" y2="{}"/><g transform="translate(0 {:.1f})">'
        '<path class="mark {}" d="{}"/></g>'
        '</g></a><text class="value" x="{:.1f}" y="{}" text-anchor="{}">{}</text>'
    ).format(
        point.link,
        f"{point.name}, {when}: {point.status}, {value}",
        x,
        -half,
        _TOP - 8,
        2 * half,
        _BOTTOM - _TOP + 16,
        _TOP,
        _BOTTOM,
        y,
        point.mood,
        _SHAPES[point.mood],
        x,
        _TOP - 10,
        anchor,
        f"{value} · {point.status} · {when} · {point.name}",
    )


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
    height = _ROW * (1 + len(bars))
    # The shortest bar is two units wide, at the very end, too.
    scale = (_WIDTH - _NAMES - 2) / total
    ticks = Markup("").join(_tick(ms, scale, height) for ms in _ticks(total))
    rows = Markup("").join(_bar(bar, number * _ROW, scale) for number, bar in enumerate(bars, 1))
    return Markup(
        '<svg class="waterfall" role="group" viewBox="0 0 {} {}"><title>{}</title>{}{}</svg>'
    ).format(_WIDTH, height, title, ticks, rows)


def _ticks(total: float) -> list[float]:
    """Return times for a scale: at most five, a round number of milliseconds apart."""
    power = 10.0 ** floor(log10(total / _TICKS))
    step = next(n * power for n in (1, 2, 5, 10) if n * power * _TICKS >= total)
    return [n * step for n in range(_TICKS) if n * step <= total]


def _tick(ms: float, scale: float, height: int) -> Markup:
    x = _NAMES + ms * scale
    # What would not fit beside its line at the right stands before it.
    anchor, gap = ("end", -3) if x > _WIDTH - 60 else ("start", 3)
    return Markup(
        '<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="0" y2="{}"/>'
        '<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>'
    ).format(x, x, height, x + gap, _ROW - 6, anchor, _time(ms))


def _time(ms: float) -> str:
    # Steps may be parts of a millisecond.
    return f"{ms:g} ms" if ms < 10 else duration(ms)


def _bar(bar: Bar, y: float, scale: float) -> Markup:
    x, width = _NAMES + bar.start_ms * scale, max((bar.took_ms or 0.0) * scale, 2.0)
    wait = Markup("")
    if bar.wait_ms:
        wait = Markup(
            '<rect class="wait" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="3"/>'
        ).format(x + width, y + _ROW / 2 - 1.5, bar.wait_ms * scale)
    lasted = bar.name if bar.took_ms is None else f"{bar.name}: {duration(bar.took_ms)}"
    return Markup(
        '<a href="#{}"><title>{}</title>'
        '<rect class="reach" x="0" y="{:.1f}" width="{}" height="{}"/>'
        '<text x="0" y="{:.1f}">{}</text>'
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="2"/>{}</a>'
    ).format(
        bar.place,
        f"{lasted}, started after {duration(bar.start_ms)}",
        y,
        _WIDTH,
        _ROW,
        y + _ROW - 5,
        lasted,
        bar.kind,
        x,
        y + 3,
        width,
        _ROW - 6,
        wait,
    )
