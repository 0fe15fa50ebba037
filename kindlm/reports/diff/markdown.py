"""The comparison of two runs as a comment on a pull request: short, folded, and of bounded size.

Text of models and agents is always shown as code, so it cannot become markup, an image, a link
or a mention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO

from kindlm.history.diff.run_diff import RunDiff
from kindlm.history.run_view import RunView
from kindlm.reports.diff import parts, phrases
from kindlm.reports.diff.terminal import details_text
from kindlm.reports.facts import run_text
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import block, cell, code, html_code

_MOST_BYTES = 55_000
"""The limit of GitHub is 65,536 characters, and that of others is lower."""

_ROWS = 50
_DETAILED = 40
_CONFIG = 30

SIGNS = {True: "✅", False: "❌", None: "⚠️"}
"""The signs of a verdict that is good, bad, or neither."""


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the comparison; it has no options."""
    del options
    exit_code, step = phrases.fail_on_text(diff), phrases.next_step(diff)
    end = f"\n{exit_code}\n" if exit_code else ""
    end += f"\nNext: {code(step.command)} ({step.why})\n"
    left_out = f"\n… and more: {code(phrases.diff_command(diff))}\n"
    out.writelines(comment_of(_parts(diff), left_out, end))


def comment_of(pieces: Iterable[str], left_out: str, end: str) -> Iterator[str]:
    """Yield as many pieces as fit into a comment, then `left_out` if some did not, then `end`."""
    room = _MOST_BYTES - len((left_out + end).encode())
    for piece in pieces:
        room -= len(piece.encode())
        if room < 0:
            yield left_out
            break
        yield piece
    yield end


def _parts(diff: RunDiff) -> Iterator[str]:
    """Yield the comment in pieces, the most important first; it may be cut after any of them."""
    yield "".join(_head(diff))
    yield "".join(changes_table(diff, _ROWS))
    if rows := phrases.figure_rows(diff):
        figures = "".join(f"| {name} | {text} |\n" for name, text in rows)
        yield f"\n| average over tests | before → after |\n|---|---|\n{figures}"
    for config in diff.configs:
        changes, rest = parts.config_texts(config, _CONFIG)
        lines = [f"{path}: {text}" for path, text in changes]
        if rest:
            lines.append(rest)
        yield _folded(f"Configuration of {html_code(config.suite)}", "\n".join(lines))
    tests = [test for test in parts.changed_tests(diff) if not phrases.LOOKS[test.kind].listed]
    for test in tests[:_DETAILED]:
        name = f"{html_code(test.key.name)} · {html_code(test.key.target)}"
        shown = details_text(test, diff.details(test))
        yield _folded(f"{name}: {phrases.outcome_text(test)}", shown)
    if len(tests) > _DETAILED:
        yield f"\n… and what changed in {len(tests) - _DETAILED:,} more tests.\n"


def _folded(summary: str, text: str) -> str:
    shown = block(text) if text else ""
    return f"\n<details><summary>{summary}</summary>\n\n{shown}\n</details>\n"


def _head(diff: RunDiff) -> Iterator[str]:
    headline = phrases.headline_of(diff)
    yield f"### {SIGNS[headline.good]} kindlm: {headline.word}\n\n"
    yield f"{'; '.join(headline.reasons)}.\n\n"
    yield f"{_run(diff.before)} → {_run(diff.after)} · {phrases.scope_text(diff)}\n"
    for note in phrases.notes_of(diff):
        yield f"\n> {code(note)}\n"


def _run(view: RunView) -> str:
    return f"{code(view.id)} ({code(run_text(view))})"


def changes_table(diff: RunDiff, most: int) -> Iterator[str]:
    """Yield a table of at most `most` changed tests, the worst first."""
    tests = parts.changed_tests(diff)
    if tests:
        yield "\n| | test | result | change |\n|---|---|---|---|\n"
    for test in tests[:most]:
        name = f"{cell(test.key.name)} · {cell(test.key.target)}"
        result, change = phrases.outcome_text(test), parts.what_changed(test)
        yield f"| {phrases.LOOKS[test.kind].sign} | {name} | {result} | {change} |\n"
    if len(tests) > most:
        yield f"| | … and {len(tests) - most:,} more | | |\n"
