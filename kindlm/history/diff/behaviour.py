"""How a test behaves over its repeats, and whether it behaves otherwise than before.

A behaviour is which tools are called and which checks do not pass. Repeats of one test may behave
in several ways, so that what most of them do stands for the test. It counts as changed only where
most repeats of one side do what no repeat of the other one did: agents that do now this, now that
have not changed by doing the other thing more often.

Which checks are made at all is compared beside that: whoever takes one away changes the test, not
what the agent does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from kindlm.history.diff.samples import CallRef, Sample, read_checks

__all__ = ["Arguments", "BehaviourChange", "compare_behaviour", "usual"]

Arguments: TypeAlias = Callable[[bytes], Any]
"""Returns the arguments of a call, a JSON value, by the digest of their text."""

_ABSENT = object()

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BehaviourChange:
    """In what way a test behaves otherwise than before.

    Neither `output` nor `checks` are counted as behaviour, nor `turns`: those before the last one
    whose answers are other ones. `checks`: which ones it makes, where `failures` are which of them
    do not pass. `erased`: texts that would have to be compared for
    behaviour are not there any more.
    """

    tools: bool = False
    arguments: bool = False
    failures: bool = False
    checks: bool = False
    output: bool = False
    erased: bool = False
    turns: tuple[int, ...] = ()

    @property
    def any(self) -> bool:
        """Whether the test does something else, other words and other checks aside."""
        return self.tools or self.arguments or self.failures


def usual(samples: Sequence[Sample]) -> tuple[Sample | None, int]:
    """Return the execution that stands for a test, and how many of its repeats behave as it does.

    It is the first of those that do what most do: of those that call the same tools and fail the
    same checks, it is one with the most common arguments, and of these with the most common text.
    """
    if len(samples) < 2:
        return (samples[0], 1) if samples else (None, 0)
    alike = _most_common(samples, lambda sample: (_tools(sample), sample.failures))
    same_calls = _most_common(alike, lambda sample: sample.calls)
    chosen = _most_common(same_calls, lambda sample: sample.output)[0]
    return chosen, len(alike)


def compare_behaviour(
    before: Sequence[Sample],
    after: Sequence[Sample],
    arguments: Arguments,
    *,
    same_config: bool = False,
) -> BehaviourChange:
    """Tell what a test that ran on both sides does otherwise.

    `same_config`: the configuration of its suite, with the code of scenarios, is the same on both.
    """
    tools = _replaced([_tools(sample) for sample in before], [_tools(sample) for sample in after])
    return BehaviourChange(
        tools=tools,
        arguments=not tools and _other_arguments(before, after, arguments),
        failures=_replaced_in_sets(
            [sample.failures for sample in before], [sample.failures for sample in after]
        ),
        checks=_other_checks(before, after, same_config),
        output=_others([sample.output for sample in before], [sample.output for sample in after]),
        turns=tuple(_other_turns(before, after)),
        erased=any(sample.erased for sample in (*before, *after)),
    )


def _most_common(samples: Sequence[Sample], key: Callable[[Sample], Hashable]) -> list[Sample]:
    wanted = Counter(map(key, samples)).most_common(1)[0][0]
    return [sample for sample in samples if key(sample) == wanted]


def _tools(sample: Sample) -> tuple[tuple[int, str], ...]:
    """Return which tools were called, in order, each in its turn of the conversation."""
    return tuple((call.turn, call.tool) for call in sample.calls)


def _replaced(before: Sequence[T], after: Sequence[T]) -> bool:
    """Tell whether most of one side is what the other side never was."""
    if len(before) == len(after) == 1:
        return before[0] != after[0]
    old, new = Counter(before), Counter(after)
    (usual_old, times_old), (usual_new, times_new) = old.most_common(1)[0], new.most_common(1)[0]
    return (2 * times_old > old.total() and usual_old not in new) or (
        2 * times_new > new.total() and usual_new not in old
    )


def _replaced_in_sets(before: Sequence[frozenset[T]], after: Sequence[frozenset[T]]) -> bool:
    """Tell whether something is in most of the sets of one side and in none of the other one."""
    if set(before) == set(after):
        return False
    old, new = (Counter(chain.from_iterable(side)) for side in (before, after))
    return any(
        (2 * old[each] > len(before) and not new[each])
        or (2 * new[each] > len(after) and not old[each])
        for each in old.keys() | new.keys()
    )


def _other_checks(before: Sequence[Sample], after: Sequence[Sample], same_config: bool) -> bool:
    """Tell whether one side makes checks that the other side does not.

    The label of a check in a scenario may hold what is another word every time, such as a number
    that was drawn. So checks are compared by how many there are of a kind, too; and only by that
    where a single execution was checked by the same test, and nobody can tell which labels are so.
    """
    if {sample.checks for sample in before} == {sample.checks for sample in after}:
        return False
    old, new = ([_labels(sample.checks) for sample in side] for side in (before, after))
    if _replaced_in_sets([_numbered(each) for each in old], [_numbered(each) for each in new]):
        return True
    told_apart = not same_config or min(len(before), len(after)) > 1
    return told_apart and _replaced_in_sets(old, new)


def _labels(checks: str) -> frozenset[tuple[str, str]]:
    return frozenset((check.kind, check.label) for check in read_checks(checks))


def _numbered(checks: frozenset[tuple[str, str]]) -> frozenset[tuple[str, int]]:
    """Return the checks without their labels: the first of a kind, the second and so on."""
    kinds = Counter(kind for kind, _ in checks)
    return frozenset((kind, number) for kind, total in kinds.items() for number in range(total))


def _others(before: Sequence[bytes | None], after: Sequence[bytes | None]) -> bool:
    """Tell whether no text of one side is one of the other."""
    old, new = (set(side) - {None} for side in (before, after))
    return bool(old) and bool(new) and old.isdisjoint(new)


def _other_turns(before: Sequence[Sample], after: Sequence[Sample]) -> Iterator[int]:
    """Yield the turns before the last one that were answered otherwise."""
    most = max(len(sample.earlier) for sample in (*before, *after))
    for turn in range(1, most + 1):
        sides = (
            [sample.earlier[turn - 1] for sample in side if len(sample.earlier) >= turn]
            for side in (before, after)
        )
        if _others(*sides):
            yield turn


def _other_arguments(
    before: Sequence[Sample], after: Sequence[Sample], arguments: Arguments
) -> bool:
    """Compare call by call and key by key, where both sides usually call the same tools.

    A key that takes another value in each repeat, such as a reason in words, has none that most
    repeats share, and is no change.
    """
    if not any(sample.calls for sample in (*before, *after)):
        return False
    tools = Counter(map(_tools, [*before, *after])).most_common(1)[0][0]
    sides = [
        [sample.calls for sample in side if _tools(sample) == tools] for side in (before, after)
    ]
    if not all(sides):
        return False
    return any(
        _call_replaced(_made(sides[0], position), _made(sides[1], position), arguments)
        for position in range(len(tools))
    )


def _made(side: Sequence[tuple[CallRef, ...]], position: int) -> list[bytes | None]:
    return [calls[position].digest for calls in side]


def _call_replaced(
    before: list[bytes | None], after: list[bytes | None], arguments: Arguments
) -> bool:
    if set(before) == set(after) or None in before or None in after:
        return False
    old, new = ([arguments(digest) for digest in side if digest] for side in (before, after))
    keys = {key for value in (*old, *new) if isinstance(value, dict) for key in value}
    if not all(isinstance(value, dict) for value in (*old, *new)):
        return _replaced([_canonical(value) for value in old], [_canonical(value) for value in new])
    return any(_replaced(_values(old, key), _values(new, key)) for key in keys)


def _values(side: list[dict[str, Any]], key: str) -> list[str | None]:
    return [_canonical(value.get(key, _ABSENT)) for value in side]


def _canonical(value: Any) -> str | None:
    """Return what two JSON values share if they are the same: 1 is 1.0, keys have no order."""
    return None if value is _ABSENT else json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value
