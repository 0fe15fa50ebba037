"""Charts as inline SVG: made here, without a script, in the colours of the page.

Shapes carry classes that the style sheet `charts` colours, so that they fit light and dark. What a
chart shows is also said in words, in its title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Point", "trend"]

_WIDTH = 720
_HEIGHT = 120
_MARGIN = 10


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a trend, 0 to 1 or None where there is none; `mood` is good, bad, unsure, soft.

    `name` says what it stands for, `link` leads to it.
    """

    value: float | None
    mood: str
    name: str
    link: str | None = None


def trend(points: Sequence[Point], title: str) -> Markup:
    """Return a line over rates from the oldest to the newest, a dot for each."""
    step = (_WIDTH - 2 * _MARGIN) / max(len(points) - 1, 1)
    places = [
        (
            _MARGIN + number * step,
            None if point.value is None else _MARGIN + (1 - point.value) * (_HEIGHT - 2 * _MARGIN),
        )
        for number, point in enumerate(points)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places if y is not None)
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_WIDTH, y, y)
        for y in (_MARGIN, _HEIGHT / 2, _HEIGHT - _MARGIN)
    )
    dots = Markup("").join(
        _dot(point, x, y) for point, (x, y) in zip(points, places, strict=True) if y is not None
    )
    return Markup(
        '<svg class="trend" role="group" viewBox="0 0 {} {}">'
        '<title>{}</title>{}<polyline class="line" points="{}"/>{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, grid, line, dots)


def _dot(point: Point, x: float, y: float) -> Markup:
    dot = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>')
    shape = dot.format(point.mood, x, y, point.name)
    if point.link is None:
        return shape
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(point.link, point.name, shape)
