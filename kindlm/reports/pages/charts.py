"""Charts as inline SVG: made here, without a script, in the colours of the page.

Shapes carry classes that the style sheet `charts` colours, so that they fit light and dark. What a
chart shows is also said in words, in its title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from kindlm.reports.figures import duration

_WIDTH = 720
_HEIGHT = 120
_MARGIN = 10
_ROW = 18
_NAMES = 190
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
    """A value of a trend, 0 to 1 or None where there is none; `mood` is good, bad, unsure, soft.

    `name` says what it stands for, `link` leads to it.
    """

    value: float | None
    mood: str
    name: str
    link: str | None = None


def trend(points: Sequence[Point], title: str, width: int = _WIDTH) -> Markup:
    """Return a line over rates from the oldest to the newest, a mark for each, shaped by its mood.

    `width` is that of the drawing, in units that are pixels where it is as wide.
    """
    step = (width - 2 * _MARGIN) / max(len(points) - 1, 1)
    places = [
        (
            _MARGIN + number * step,
            None if point.value is None else _MARGIN + (1 - point.value) * (_HEIGHT - 2 * _MARGIN),
        )
        for number, point in enumerate(points)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places if y is not None)
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(width, y, y)
        for y in (_MARGIN, _HEIGHT / 2, _HEIGHT - _MARGIN)
    )
    marks = Markup("").join(
        _mark(point, x, y) for point, (x, y) in zip(points, places, strict=True) if y is not None
    )
    return Markup(
        '<svg class="trend" role="group" viewBox="0 0 {} {}">'
        '<title>{}</title>{}<polyline class="line" points="{}"/>{}</svg>'
    ).format(width, _HEIGHT, title, grid, line, marks)


def _mark(point: Point, x: float, y: float) -> Markup:
    # Where it stands is apart from its shape, so that a style sheet can enlarge that.
    mark = Markup(
        '<g transform="translate({:.1f} {:.1f})">'
        '<path class="mark {}" d="{}"><title>{}</title></path></g>'
    )
    shape = mark.format(x, y, point.mood, _SHAPES[point.mood], point.name)
    if point.link is None:
        return shape
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(point.link, point.name, shape)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a waterfall, in milliseconds from its start; `wait_ms` is a pause after it."""

    name: str
    kind: str
    start_ms: float
    took_ms: float
    wait_ms: float = 0.0


def waterfall(bars: Sequence[Bar], title: str) -> Markup:
    """Return bars below one another on one axis of time; `kind` is their class.

    Above them is a scale in milliseconds or what is easier to read.
    """
    total = max((bar.start_ms + bar.took_ms + bar.wait_ms for bar in bars), default=0.0) or 1.0
    height = _ROW * (1 + len(bars))
    # The shortest bar is two units wide, at the very end, too.
    scale = (_WIDTH - _NAMES - 2) / total
    ticks = Markup("").join(_tick(ms, scale, height) for ms in _ticks(total))
    rows = Markup("").join(_bar(bar, number * _ROW, scale) for number, bar in enumerate(bars, 1))
    return Markup(
        '<svg class="waterfall" role="img" viewBox="0 0 {} {}"><title>{}</title>{}{}</svg>'
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
    x, width = _NAMES + bar.start_ms * scale, max(bar.took_ms * scale, 2.0)
    wait = Markup("")
    if bar.wait_ms:
        wait = Markup(
            '<rect class="wait" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="3"/>'
        ).format(x + width, y + _ROW / 2 - 1.5, bar.wait_ms * scale)
    return Markup(
        '<g><title>{}: {}, after {}</title><text x="0" y="{:.1f}">{}: {}</text>'
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="2"/>{}</g>'
    ).format(
        bar.name,
        duration(bar.took_ms),
        duration(bar.start_ms),
        y + _ROW - 5,
        bar.name,
        duration(bar.took_ms),
        bar.kind,
        x,
        y + 3,
        width,
        _ROW - 6,
        wait,
    )
