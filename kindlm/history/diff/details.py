"""What changed inside one test: its calls, its words and its checks, before and after.

Personal data that an assertion found is shown here as every report shows it: redacted. What was
found on one side is redacted on both: a check may be new, and the other side holds the same text.
Texts are masked before they are compared.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.calls import Call, CallChange, diff_calls
from kindlm.history.diff.checks import CheckChange, compare_checks
from kindlm.history.diff.config import SuiteConfig, parts_of_test
from kindlm.history.diff.samples import USERS, turns_of
from kindlm.history.diff.values import TestDiff
from kindlm.history.diff.words import WordDiff, diff_words
from kindlm.history.masking import Mask
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView, mask_of_attempts, read_attempts

__all__ = ["TestDetails", "read_details"]

_MOST_SEQUENCES = 6


def _tools(attempts: Attempts) -> str:
    return f"""
SELECT e.id, t.tool
  FROM executions e
  LEFT JOIN tool_calls t ON t.execution = e.source AND t.attempt = {attempts.said}
 WHERE e.suite = (SELECT suite FROM executions WHERE id = ?) AND e.test = ? AND e.target = ?
   AND e.status IN ('passed', 'failed', 'errored')
 ORDER BY e.repeat, e.id, t.position
"""  # noqa: S608 (constants of this package)


def _calls(attempts: Attempts) -> str:
    return f"""
SELECT c.call, {USERS}, x.body
  FROM executions e
  JOIN provider_calls c ON c.execution = e.source AND c.attempt = {attempts.said}
  LEFT JOIN contents x ON x.ref = c.text_ref
 WHERE e.id = ? AND c.purpose = 'test'
 ORDER BY c.call
"""  # noqa: S608 (constants of this package)


class Answer(NamedTuple):
    """How the answer to an earlier turn of a conversation changed, from 1."""

    turn: int
    words: WordDiff


class Sequence(NamedTuple):
    """Tools in the order they were called, and how many repeats called them so."""

    tools: tuple[str, ...]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class TestDetails:
    """What changed inside a test: the executions that stand for it, side by side.

    `sequences` are the ways in which its repeats call tools, the most common first, if those of a
    side do it in several. Texts are None where they are the same; `system` and `user` are the first
    messages. `config` names the parts of its definition that changed, `answers` are those before
    the last turn of a conversation.
    """

    __test__ = False  # not a pytest class

    calls: tuple[CallChange, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    output: WordDiff | None = None
    checks: tuple[CheckChange, ...] = ()
    error_before: str | None = None
    error_after: str | None = None
    system: WordDiff | None = None
    user: WordDiff | None = None
    config: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Told:
    """The execution that stands for a side, as the mask of both sides lets it be shown.

    `messages` are those it began with, by their role; `answers` those before the last turn.
    """

    calls: tuple[Call, ...] = ()
    output: str | None = None
    error: str | None = None
    messages: Mapping[str, str | None] = field(default_factory=dict)
    answers: Mapping[int, str | None] = field(default_factory=dict)


def read_details(
    db: sqlite3.Connection,
    before: RunView,
    after: RunView,
    attempts: Attempts,
    test: TestDiff,
    config: SuiteConfig | None,
) -> TestDetails:
    """Return what changed inside a test that a side ran."""
    sides = [
        view.execution(side.usual) if side and side.usual else None
        for view, side in ((before, test.before), (after, test.after))
    ]
    mask = Mask({})
    for view, execution in zip((before, after), sides, strict=True):
        if execution is not None:
            mask = mask.joined(mask_of_attempts(read_attempts(view, execution)))
    old = _told(before, sides[0], attempts, mask)
    new = _told(after, sides[1], attempts, mask)
    both = None not in sides
    answers = (
        (turn, _words(text, new.answers.get(turn))) for turn, text in sorted(old.answers.items())
    )
    return TestDetails(
        calls=diff_calls(old.calls, new.calls) if both else (),
        sequences=_sequences(db, attempts, test),
        output=_words(old.output, new.output),
        checks=compare_checks(db, before, after, attempts, test, mask),
        error_before=old.error,
        error_after=new.error,
        system=_words(old.messages.get("system"), new.messages.get("system")),
        user=_words(old.messages.get("user"), new.messages.get("user")),
        config=parts_of_test(config, test.key.name),
        answers=tuple(Answer(turn, words) for turn, words in answers if words is not None),
    )


def _told(view: RunView, found: ExecutionView | None, attempts: Attempts, mask: Mask) -> _Told:
    if found is None:
        return _Told()
    counted = attempts.of(view, found)
    rows = view.db.execute(_calls(attempts), (found.id,)).fetchall()
    turns = turns_of((row[0], row[1]) for row in rows)
    answers = {turns[row[0]]: row[2] for row in rows if row[2] is not None}
    last = max(turns.values(), default=1)
    return _Told(
        tuple(
            Call(call.tool, mask.value(call.arguments), turns.get(call.call, 1))
            for call in view.tool_calls(counted)
        ),
        mask.text(counted.output),
        f"{counted.error_code}: {mask.text(counted.error or '')}" if counted.error_code else None,
        # The first message of each role.
        {m["role"]: mask.text(m["text"]) for m in reversed(view.first_messages(found))},
        {turn: mask.text(text) for turn, text in answers.items() if turn < last},
    )


def _words(before: str | None, after: str | None) -> WordDiff | None:
    """Compare two texts; None if they are the same, or one of them is not there any more."""
    if before is None or after is None or before == after:
        return None
    return diff_words(before, after)


def _sequences(db: sqlite3.Connection, attempts: Attempts, test: TestDiff) -> tuple[Sequence, ...]:
    """Return the ways to call tools, if the repeats of a side know more than one."""
    old, new = (
        _counted(db, attempts, test, side.usual) if side and side.usual else Counter()
        for side in (test.before, test.after)
    )
    if max(len(old), len(new)) < 2:
        return ()
    ordered = sorted(old | new, key=lambda tools: (-old[tools] - new[tools], tools))
    return tuple(Sequence(tools, old[tools], new[tools]) for tools in ordered[:_MOST_SEQUENCES])


def _counted(
    db: sqlite3.Connection, attempts: Attempts, test: TestDiff, usual: str
) -> Counter[tuple[str, ...]]:
    rows = db.execute(_tools(attempts), (usual, test.key.name, test.key.target)).fetchall()
    return Counter(
        tuple(row[1] for row in calls if row[1] is not None)
        for _, calls in groupby(rows, key=lambda row: row[0])
    )
