"""A row of numbers as a line of bars, one character each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"
_ABSENT = " "


def draws_blocks(environ: Mapping[str, str]) -> bool:
    """Tell whether the terminal shows block characters: whether its locale is one of UTF-8.

    As in POSIX, the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set decides. Where none is,
    nothing is known against it.
    """
    set_names = (environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((value for value in set_names if value), None)
    return locale is None or "utf8" in locale.lower().replace("-", "")


def sparkline(
    values: Sequence[float | None], low: float, high: float, *, blocks: bool = True
) -> str:
    """Return bars from `low`, the lowest, to `high`; a space where there is no value."""
    levels = _BLOCKS if blocks else _ASCII
    top = len(levels) - 1

    def bar(value: float | None) -> str:
        if value is None:
            return _ABSENT
        part = (value - low) / (high - low) if high > low else 1.0
        return levels[round(min(max(part, 0.0), 1.0) * top)]

    return "".join(map(bar, values))
