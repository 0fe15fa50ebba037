"""What changed inside one test: its calls, its words and its checks, before and after.

Personal data that an assertion found is shown here as every report shows it: redacted. What was
found on one side is redacted on both: a check may be new, and the other side holds the same text.
Texts are masked before they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.calls import Call, CallChange, CallEdit, diff_calls
from kindlm.history.diff.checks import CheckChange, compare_checks
from kindlm.history.diff.config import SuiteConfig, parts_of_test
from kindlm.history.diff.samples import USERS, turns_of
from kindlm.history.diff.values import TestDiff
from kindlm.history.diff.words import WordDiff, diff_words
from kindlm.history.masking import Mask, mask_of
from kindlm.history.rows import AttemptView
from kindlm.history.run_view import RunView, read_attempts

__all__ = ["TestDetails", "read_details"]

_MOST_SEQUENCES = 6

_Place: TypeAlias = str | int
"""Where a text of a conversation stands: system, user, output; the number of a turn, from 1."""


class ToolSequence(NamedTuple):
    """Tools in the order they were called, and how many repeats called them so."""

    tools: tuple[str, ...]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class TestDetails:
    """What changed inside a test: the executions that stand for it, side by side.

    `sequences` are the ways in which its repeats call tools, the most common first, if those of a
    side do it in several. `words` are the texts that changed, in their order: the first messages
    (`system`, `user`), the answers to turns before the last one, by their number, and `output`.
    `errors` are those before and after. `config` names the parts of its definition that changed.
    """

    __test__ = False  # not a pytest class

    calls: tuple[CallChange, ...]
    sequences: tuple[ToolSequence, ...]
    words: Mapping[_Place, WordDiff]
    checks: tuple[CheckChange, ...]
    errors: tuple[str | None, str | None]
    config: tuple[str, ...]

    @property
    def calls_changed(self) -> bool:
        """Whether other calls are made, or in another way."""
        return any(change.edit is not CallEdit.SAME for change in self.calls)


def read_details(
    before: RunView,
    after: RunView,
    attempts: Attempts,
    test: TestDiff,
    config: SuiteConfig | None,
) -> TestDetails:
    """Return what changed inside a test that a side ran."""
    stands = [
        read_attempts(view, execution)
        if side and side.usual and (execution := view.execution(side.usual))
        else []
        for view, side in ((before, test.before), (after, test.after))
    ]
    shown = [attempt for side in stands for attempt in side]
    mask = mask_of(shown)
    old, old_texts = _told(before, stands[0], attempts, mask)
    new, new_texts = _told(after, stands[1], attempts, mask)
    words: dict[_Place, WordDiff] = {}
    turns = sorted(place for place in old_texts if isinstance(place, int))
    places: list[_Place] = ["system", "user", *turns, "output"]
    for place in places:
        # A text that is not there any more cannot be compared.
        was, now = old_texts.get(place), new_texts.get(place)
        if was is not None and now is not None and was != now:
            words[place] = diff_words(was, now)
    return TestDetails(
        calls=diff_calls(old, new) if all(stands) else (),
        sequences=_sequences(before, attempts, test),
        words=words,
        checks=compare_checks(before, after, attempts, test, shown),
        errors=(old_texts.get("error"), new_texts.get("error")),
        config=parts_of_test(config, test.key.name),
    )


def _told(
    view: RunView, stands: Sequence[AttemptView], attempts: Attempts, mask: Mask
) -> tuple[list[Call], dict[_Place, str | None]]:
    """Return the calls and the texts of the execution that stands for a side, as they are shown."""
    if not stands:
        return [], {}
    counted = attempts.of(stands)
    execution = counted.execution
    rows = view.db.execute(_answers(attempts), (execution.id,)).fetchall()
    turns = turns_of((row[0], row[1]) for row in rows)
    last = max(turns.values(), default=1)
    texts: dict[_Place, str | None] = {
        turns[number]: mask.text(text)
        for number, _, text in rows
        if text is not None and turns[number] < last
    }
    # The first message of each role.
    for message in reversed(view.first_messages(stands[-1].execution)):
        texts[message["role"]] = mask.text(message["text"])
    texts["output"] = mask.text(execution.output)
    if execution.error_code:
        texts["error"] = f"{execution.error_code}: {mask.text(execution.error or '')}"
    calls = [
        Call(call.tool, mask.value(call.arguments), turns.get(call.call, 1), position)
        for position, call in enumerate(counted.tool_calls)
    ]
    return calls, texts


def _answers(attempts: Attempts) -> str:
    return f"""
SELECT c.call, {USERS}, x.body
  FROM executions e
  JOIN provider_calls c ON c.execution = e.source AND c.attempt = {attempts.said}
  LEFT JOIN contents x ON x.ref = c.text_ref
 WHERE e.id = ? AND c.purpose = 'test'
 ORDER BY c.call
"""  # noqa: S608 (constants of this package)


def _sequences(view: RunView, attempts: Attempts, test: TestDiff) -> tuple[ToolSequence, ...]:
    """Return the ways to call tools, if the repeats of a side know more than one."""
    old, new = (
        Counter(
            tuple(row[1] for row in calls if row[1] is not None)
            for _, calls in groupby(
                view.db.execute(_tools(attempts), (side.usual, test.key.name, test.key.target)),
                key=itemgetter(0),
            )
        )
        if side and side.usual
        else Counter[tuple[str, ...]]()
        for side in (test.before, test.after)
    )
    if max(len(old), len(new)) < 2:
        return ()
    ordered = sorted(old | new, key=lambda tools: (-old[tools] - new[tools], tools))
    return tuple(ToolSequence(tools, old[tools], new[tools]) for tools in ordered[:_MOST_SEQUENCES])


def _tools(attempts: Attempts) -> str:
    return f"""
SELECT e.id, t.tool
  FROM executions e
  LEFT JOIN tool_calls t ON t.execution = e.source AND t.attempt = {attempts.said}
 WHERE e.suite = (SELECT suite FROM executions WHERE id = ?) AND e.test = ? AND e.target = ?
   AND e.status IN ('passed', 'failed', 'errored')
 ORDER BY e.repeat, e.id, t.position
"""  # noqa: S608 (constants of this package)
