"""Compares the calls, texts and checks of one test on both sides.

Personal data that an assertion found on one side is masked on both, since the check may be new.
Texts are masked before they are compared.

Texts come from models, so the work to compare them is bounded. If too many words lie between the
common beginning and the common end, all of them count as replaced.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass
from kindlm.history.diff.call_changes import Call, CallChange, CallEdit, diff_calls
from kindlm.history.diff.config import parts_of_test
from kindlm.history.diff.evidence_values import CheckKey, CheckPair, TestDiff
from kindlm.history.diff.samples import USERS, Attempts, score_name, turns_of
from kindlm.history.masking import Mask, mask_of
from kindlm.history.rows import AttemptView
from kindlm.history.run_view import RunView
from kindlm.projections import GONE
from kindlm_store.redaction import common_length

if TYPE_CHECKING:
    from kindlm.history.diff.run_diff import RunDiff

_WORDS = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_MOST_CHARACTERS = 20_000
_MOST_WORDS = 5_000
"""The most words between the common beginning and end that are compared."""

_MOST_PAIRS = 100_000
"""With more pairs of equal words, frequent words are ignored in the comparison."""

_SHORTEST_ISLAND = 2
"""The fewest unchanged words between two changes; a single one makes them hard to read."""


class Edit(StrEnum):
    """How a piece of text changed."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"


Segment: TypeAlias = tuple[Edit, str]
"""A piece of text, and how it changed."""


class WordDiff(NamedTuple):
    """Two texts; `left_out` counts the characters of the longer one that were not compared."""

    segments: tuple[Segment, ...]
    left_out: int = 0


_NOT_COMPARED = WordDiff(((Edit.KEPT, "[not compared: erased or withheld]"),))


def diff_words(before: str, after: str) -> WordDiff:
    """Compare two texts; of very long ones, the first 20,000 characters."""
    old = _WORDS.findall(before[:_MOST_CHARACTERS])
    new = _WORDS.findall(after[:_MOST_CHARACTERS])
    start = common_length(old, new)
    end = common_length(old[start:][::-1], new[start:][::-1])
    # Blocks of equal words: position in both texts, and length. The words between were replaced.
    kept = [(0, 0, start)]
    inner_old, inner_new = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(inner_old), len(inner_new)) <= _MOST_WORDS:
        times = Counter(inner_new)
        too_many = sum(times[word] for word in inner_old) > _MOST_PAIRS
        matcher = SequenceMatcher(None, inner_old, inner_new, autojunk=too_many)
        blocks = matcher.get_matching_blocks()
        kept += [(start + x, start + y, n) for x, y, n in blocks if n >= _SHORTEST_ISLAND]
    kept.append((len(old) - end, len(new) - end, end))
    pieces: list[tuple[Edit, list[str]]] = []
    x = y = 0
    for was, now, length in kept:
        pieces += [(Edit.REMOVED, old[x:was]), (Edit.ADDED, new[y:now])]
        x, y = was + length, now + length
        pieces.append((Edit.KEPT, old[was:x]))
    segments = tuple((edit, "".join(words)) for edit, words in pieces if words)
    return WordDiff(segments, max(len(before), len(after), _MOST_CHARACTERS) - _MOST_CHARACTERS)


_MOST_SEQUENCES = 6

_Place: TypeAlias = str | int
"""The place of a text in a conversation: system, user, output, or the number of a turn, from 1."""


class ToolSequence(NamedTuple):
    """Tools in the order of their calls, and how many repeats of each side called them so."""

    tools: tuple[str, ...]
    before: int
    after: int


class CheckSide(NamedTuple):
    """How often a check passed on a side, of how many decided; and an execution that failed."""

    passed: int = 0
    of: int = 0
    score: float | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class CheckChange:
    """A check of a test, over all repeats of both sides.

    `message` and `failure_code` are from a repeat that did not pass it, of AFTER if possible. `key`
    and `evidence` are set if it passes less often than before.
    """

    kind: str
    label: str
    before: CheckSide
    after: CheckSide
    failure_code: str | None
    message: str | None
    score_dropped: bool = False
    key: CheckKey | None = None
    evidence: CheckPair | None = None

    @property
    def direction(self) -> int:
        """1 if the check passes more often than before, -1 if less often, else 0."""
        before, after = self.before.passed * self.after.of, self.after.passed * self.before.of
        return (after > before) - (after < before)


@dataclass(frozen=True, slots=True)
class TestDetails:
    """The changes inside a test, between the executions that represent it on each side.

    `sequences` are those of the tools that repeats call, the most common first, if a side has
    several. `config` names the parts of the test's definition that changed.
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
        """Whether any call changed."""
        return any(change.edit is not CallEdit.SAME for change in self.calls)


def read_details(diff: RunDiff, test: TestDiff) -> TestDetails:
    """Return the changes inside a test."""
    attempts = diff.counted_attempts
    usual = []
    for view, side in ((diff.before, test.before), (diff.after, test.after)):
        execution = view.execution(side.usual) if side and side.usual else None
        usual.append(view.attempts(execution) if execution else [])
    mask = mask_of(attempt for side in usual for attempt in side)
    old, old_texts = _calls_and_texts(diff.before, usual[0], attempts, mask)
    new, new_texts = _calls_and_texts(diff.after, usual[1], attempts, mask)
    words: dict[_Place, WordDiff] = {}
    turns = sorted(place for place in old_texts if isinstance(place, int))
    places: list[_Place] = ["system", "user", *turns, "output"]
    for place in places:
        was, now = old_texts.get(place), new_texts.get(place)
        if was is not None and now is not None and was != now:
            is_there = was not in GONE and now not in GONE
            words[place] = diff_words(was, now) if is_there else _NOT_COMPARED
    return TestDetails(
        calls=diff_calls(old, new) if all(usual) else (),
        sequences=_sequences(diff, test),
        words=words,
        checks=_checks(diff, test, usual),
        errors=(old_texts.get("error"), new_texts.get("error")),
        config=parts_of_test(test.config, test.key.name),
    )


def _calls_and_texts(
    view: RunView, usual: Sequence[AttemptView], attempts: Attempts, mask: Mask
) -> tuple[list[Call], dict[_Place, str | None]]:
    """Return the masked calls and texts of the execution that represents a side."""
    if not usual:
        return [], {}
    counted = attempts.of(usual)
    execution = counted.execution
    query = f"""
SELECT c.call, {USERS}, x.body
  FROM {attempts.executions} e
  JOIN provider_calls c ON c.execution = e.source AND c.attempt = e.source_attempt
  LEFT JOIN contents x ON x.ref = c.text_ref
 WHERE e.id = ? AND c.purpose = 'test'
 ORDER BY c.call
"""  # noqa: S608 (constants of this package)
    rows = view.db.execute(query, (execution.id,)).fetchall()
    turns = turns_of((row[0], row[1]) for row in rows)
    last = max(turns.values(), default=1)
    texts: dict[_Place, str | None] = {
        turns[number]: mask.text(text)
        for number, _, text in rows
        if text is not None and turns[number] < last
    }
    # The first message of each role.
    for message in reversed(view.first_messages(usual[-1].execution)):
        texts[message["role"]] = mask.text(message["text"])
    texts["output"] = mask.text(execution.output)
    if execution.error_code:
        texts["error"] = f"{execution.error_code}: {mask.text(execution.error or '')}"
    calls = [
        Call(call.tool, mask.value(call.arguments), turns.get(call.call, 1), position)
        for position, call in enumerate(counted.tool_calls)
    ]
    return calls, texts


_Wrong: TypeAlias = tuple[str | None, str | None]
"""The failure code and the message of a check that did not pass."""

_REPEATS = """
 WHERE e.suite = (SELECT suite FROM executions WHERE id = ?) AND e.test = ? AND e.target = ?
   AND e.last_status IN ('passed', 'failed', 'errored')
"""


def _of_repeats(view: RunView, test: TestDiff, query: str) -> Iterator[list[tuple[Any, ...]]]:
    for side in (test.before, test.after):
        repeats = side and side.usual, test.key.name, test.key.target
        yield [tuple(row) for row in view.db.execute(query, repeats)]


def _sequences(diff: RunDiff, test: TestDiff) -> tuple[ToolSequence, ...]:
    """Return the sequences of tools, if the repeats of a side have more than one."""
    if all(side is None or side.counts.n < 2 for side in (test.before, test.after)):
        return ()
    query = f"""
SELECT (SELECT json_group_array(tool)
          FROM (SELECT tool FROM tool_calls t
                 WHERE t.execution = e.source AND t.attempt = e.source_attempt
                 ORDER BY t.position)) AS tools,
       count(*)
  FROM {diff.counted_attempts.executions} e
{_REPEATS} GROUP BY tools
"""  # noqa: S608 (constants of this package)
    old, new = (
        Counter({tuple(json.loads(tools)): times for tools, times in rows})
        for rows in _of_repeats(diff.before, test, query)
    )
    if max(len(old), len(new)) < 2:
        return ()
    ordered = sorted(old | new, key=lambda tools: (-old[tools] - new[tools], tools))
    return tuple(ToolSequence(tools, old[tools], new[tools]) for tools in ordered[:_MOST_SEQUENCES])


def _checks(
    diff: RunDiff, test: TestDiff, usual: Sequence[Sequence[AttemptView]]
) -> tuple[CheckChange, ...]:
    """Return all checks of a test, those of the newer run first."""
    attempts = diff.counted_attempts
    query = f"""
SELECT a.kind, a.label, sum(a.outcome = 'passed'), sum(a.outcome <> 'skipped'), avg(a.score),
       e.run || '-' || min(CASE WHEN a.outcome IN ('failed', 'inconclusive') THEN e.number END)
  FROM {attempts.executions} e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
{_REPEATS} AND NOT a.advisory
 GROUP BY a.kind, a.label, e.run
 ORDER BY min(a.position), a.kind, a.label
"""  # noqa: S608 (constants of this package)
    old, new = (
        {(kind, label): CheckSide(*counted) for kind, label, *counted in rows}
        for rows in _of_repeats(diff.before, test, query)
    )

    mask, evidence = mask_of(attempt for side in usual for attempt in side), test.evidence
    wrong = cache(partial(_wrong_checks, attempts, usual))
    # Of several checks with a label, the surest change counts, which comes first.
    keys = {(key.kind, key.label): key for key in reversed(evidence.dropped_checks)}
    changes = []
    for kind, label in dict.fromkeys([*new, *old]):
        was, now = (side.get((kind, label), CheckSide()) for side in (old, new))
        sides = (diff.after, now.failed), (diff.before, was.failed)
        seen = (wrong(view, execution) for view, execution in sides if execution is not None)
        found = (each[kind, label] for each in seen if (kind, label) in each)
        failure_code, message = next(found, (None, None))
        key = keys.get((kind, label))
        has_dropped = score_name(kind, label) in evidence.dropped_scores
        facts = failure_code, message, has_dropped, key, key and evidence.dropped_checks[key]
        changes.append(CheckChange(kind, mask.text(label), was, now, *facts))
    return tuple(changes)


def _wrong_checks(
    attempts: Attempts, usual: Sequence[Sequence[AttemptView]], view: RunView, identity: str
) -> dict[tuple[str, str], _Wrong]:
    """Return the checks that an execution did not pass, with masked messages."""
    shown = [attempt for side in usual for attempt in side]
    execution = view.execution(identity)
    read = view.attempts(execution) if execution else []
    mask = mask_of([*shown, *read])
    return {
        (check.kind, check.label): (check.failure_code, mask.text(check.message) or None)
        for check in (reversed(attempts.of(read).assertions) if read else ())
        if check.is_wrong
    }
