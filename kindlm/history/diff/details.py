"""Compares the calls, texts and checks of one test on both sides.

Personal data that an assertion found on one side is masked on both, since the check may be new.
Texts are masked before they are compared.

Texts come from models, so the work to compare them is bounded. If too many words lie between the
common beginning and the common end, all of them count as replaced.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass
from kindlm.history.diff.call_changes import Call, CallChange, CallEdit, diff_calls
from kindlm.history.diff.config import parts_of_test
from kindlm.history.diff.evidence_values import CheckKey, CheckPair, TestDiff
from kindlm.history.diff.samples import (
    Sample,
    Scored,
    read_checks,
    read_repeats,
    score_name,
    text_with,
)
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


NOT_COMPARED = "[not compared: erased or withheld]"
"""Shown for texts and arguments that one side lacks."""


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
        blocks = SequenceMatcher(None, inner_old, inner_new).get_matching_blocks()
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
    views = diff.before, diff.after
    usual = [side.usual if side else None for side in (test.before, test.after)]
    repeats = [
        read_repeats(view.db, each, attempts) if each else []
        for view, each in zip(views, usual, strict=True)
    ]
    checks = list(map(_count_checks, repeats))
    read: dict[str, list[AttemptView]] = {}
    for view, each, made in zip(views, usual, checks, strict=True):
        for wanted in (each, *(check.failed for check in made.values())):
            if wanted and wanted not in read and (execution := view.execution(wanted)):
                read[wanted] = view.attempts(execution)
    mask = mask_of(chain.from_iterable(read.values()))
    shown = {execution: attempts.of(ended) for execution, ended in read.items()}
    (old, old_texts), (new, new_texts) = (
        _calls_and_texts(view, shown[each], samples, mask) if each else ([], {})
        for view, each, samples in zip(views, usual, repeats, strict=True)
    )
    words: dict[_Place, WordDiff] = {}
    turns = sorted(place for place in old_texts if isinstance(place, int))
    places: list[_Place] = ["system", "user", *turns, "output"]
    for place in places:
        was, now = old_texts.get(place), new_texts.get(place)
        if was is not None and now is not None and was != now:
            is_there = was not in GONE and now not in GONE
            kept = WordDiff(((Edit.KEPT, NOT_COMPARED),))
            words[place] = diff_words(was, now) if is_there else kept
    return TestDetails(
        calls=diff_calls(old, new) if (old or new) and all(repeats) else (),
        sequences=_sequences(*repeats),
        words=words,
        checks=tuple(_compare_checks(test, checks[0], checks[1], shown, mask)),
        errors=(old_texts.get("error"), new_texts.get("error")),
        config=parts_of_test(test.config, test.key.name),
    )


def _calls_and_texts(
    view: RunView, attempt: AttemptView, samples: Sequence[Sample], mask: Mask
) -> tuple[list[Call], dict[_Place, str | None]]:
    """Return the masked calls and texts of the execution that represents a side."""
    execution = attempt.execution
    sample = next(each for each in samples if each.id == execution.id)
    texts: dict[_Place, str | None] = {
        turn: mask.text(text_with(view.db, digest)) for turn, digest in sample.earlier.items()
    }
    # The first message of each role.
    for message in reversed(view.first_messages(execution)):
        texts[message["role"]] = mask.text(message["text"])
    texts["output"] = mask.text(execution.output)
    if execution.error_code:
        texts["error"] = f"{execution.error_code}: {mask.text(execution.error or '')}"
    turns = dict(enumerate(ref.turn for ref in sample.calls))
    calls = [
        Call(call.tool, mask.value(call.arguments), turns.get(position, 1), position)
        for position, call in enumerate(attempt.tool_calls)
    ]
    return calls, texts


def _sequences(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[ToolSequence, ...]:
    """Return the sequences of tools, if the repeats of a side have more than one."""
    old, new = (
        Counter(tuple(call.tool for call in sample.calls) for sample in side)
        for side in (before, after)
    )
    if max(len(old), len(new)) < 2:
        return ()
    ordered = sorted(old | new, key=lambda tools: (-old[tools] - new[tools], tools))
    return tuple(ToolSequence(tools, old[tools], new[tools]) for tools in ordered[:_MOST_SEQUENCES])


def _count_checks(samples: Sequence[Sample]) -> dict[Scored, CheckSide]:
    """Return the checks of a test on one side, by kind and label."""
    found: dict[Scored, CheckSide] = {}
    for sample in samples:
        for check, code in read_checks(sample.checks).items():
            passed, of, _, failed = found.get(check[:2], CheckSide())
            failed = failed if code is None else failed or sample.id
            found[check[:2]] = CheckSide(passed + (code is None), of + 1, None, failed)
    for scored, side in found.items():
        if scores := [sample.scores[scored] for sample in samples if scored in sample.scores]:
            found[scored] = CheckSide(side.passed, side.of, fmean(scores), side.failed)
    return found


def _compare_checks(
    test: TestDiff,
    old: Mapping[Scored, CheckSide],
    new: Mapping[Scored, CheckSide],
    shown: Mapping[str, AttemptView],
    mask: Mask,
) -> Iterator[CheckChange]:
    """Yield all checks of a test, those of the newer run first."""
    evidence = test.evidence
    # Of several checks with a label, the surest change counts, which comes first.
    keys = {(key.kind, key.label): key for key in reversed(evidence.dropped_checks)}
    for kind, label in dict.fromkeys([*new, *old]):
        was, now = old.get((kind, label), CheckSide()), new.get((kind, label), CheckSide())
        read = (shown[side.failed] for side in (now, was) if side.failed)
        made = (each for attempt in read for each in attempt.assertions if each.is_wrong)
        wrong = next((each for each in made if (each.kind, each.label) == (kind, label)), None)
        key = keys.get((kind, label))
        yield CheckChange(
            kind,
            mask.text(label),
            was,
            now,
            failure_code=wrong.failure_code if wrong else None,
            message=(mask.text(wrong.message) if wrong else None) or None,
            score_dropped=score_name(kind, label) in evidence.dropped_scores,
            key=key,
            evidence=key and evidence.dropped_checks[key],
        )
