"""Two runs to compare, written by the line: what each test did, repeat by repeat."""

from __future__ import annotations

from typing import Any

from recorded_history import History, Make, RunWriter

from kindlm.history.diff.run_diff import DiffOptions, RunDiff, compare_runs


def passes(pattern: str) -> list[dict[str, Any]]:
    """Return the repeats of a test: `+` passed, `-` failed a check, `!` ended with an error."""
    kinds: dict[str, dict[str, Any]] = {
        "+": {"assertions": (Make.passed(),)},
        "-": {"assertions": (Make.failed(),)},
        "!": {"error": ("ENGINE_MAX_TURNS", 401, "10 model calls", None)},
    }
    return [kinds[sign] for sign in pattern]


def record_run(
    history: History,
    run: str,
    tests: dict[str, list[dict[str, Any]] | str],
    *,
    unselected: tuple[str, ...] = (),
    suite: str = "support",
    target: str = "gpt",
    finish: bool = True,
    **started: Any,
) -> RunWriter:
    """Record a run of one suite; each test has its repeats, or a pattern of `passes`."""
    writer = history.run(run, **started)
    planned = [
        Make.planned(name, target, repeat=max(1, len(repeats)), selected=name not in unselected)
        for name, repeats in tests.items()
    ]
    writer.suite(suite, tests=planned)
    for name, repeats in tests.items():
        fields = passes(repeats) if isinstance(repeats, str) else repeats
        for number, execution in enumerate(fields, start=1):
            writer.execution(name, target=target, repeat=number, **execution)
    if finish:
        writer.finish()
    return writer


def compared(history: History, **options: Any) -> RunDiff:
    """Compare the runs `before` and `after`."""
    return compare_runs(history.reader(), "before", "after", DiffOptions(**options))
