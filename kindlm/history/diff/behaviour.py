"""How a test behaves over its repeats, and whether it behaves differently than before.

A behaviour is which tools are called and which checks do not pass. What most repeats do stands for
the test. It counts as changed only where most repeats of one side do what no repeat of the other
one did: an agent that does now this, now that has not changed by doing the other thing more often.

Which checks are made at all is compared beside that: it changes the test, not the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from kindlm.history.diff.evidence_values import BehaviourChange
from kindlm.history.diff.samples import Sample, read_checks
from kindlm.matching import canonical

T = TypeVar("T", bound=Hashable)


def usual(samples: Sequence[Sample]) -> tuple[Sample | None, int]:
    """Return the execution that stands for a test, and how many of its repeats behave as it does.

    It is the first of those that do what most do: of those that call the same tools and fail the
    same checks, it is one with the most common arguments, and of these with the most common text.
    """
    if len(samples) < 2:
        return (samples[0], 1) if samples else (None, 0)
    alike = _most_common(samples, lambda sample: (_tools(sample), sample.failures))
    same_calls = _most_common(alike, lambda sample: sample.calls)
    return _most_common(same_calls, lambda sample: sample.output)[0], len(alike)


def compare_behaviour(
    before: Sequence[Sample],
    after: Sequence[Sample],
    arguments: Callable[[bytes], Any],
    *,
    same_config: bool = False,
) -> BehaviourChange:
    """Return what a test does differently: nothing, unless it ran on both sides.

    `arguments` returns those of a call, a JSON value, by their digest. `same_config`: the
    configuration of the suite, with the code of scenarios, is the same on both sides.
    """
    if not (before and after):
        return BehaviourChange()
    sides = before, after
    everything = (*before, *after)
    tools = other_arguments = False
    if len({sample.calls for sample in everything}) > 1:
        tools = _replaced(*([{_tools(sample)} for sample in side] for side in sides))
        other_arguments = not tools and _other_arguments(before, after, arguments)
    turns = range(max(len(sample.earlier) for sample in everything))
    return BehaviourChange(
        tools=tools,
        arguments=other_arguments,
        failures=_replaced(*([sample.failures for sample in side] for side in sides)),
        checks=_other_checks(before, after, same_config),
        output=_others(*({sample.output for sample in side} for side in sides)),
        turns=tuple(
            turn + 1
            for turn in turns
            if _others(
                *({s.earlier[turn] for s in side if turn < len(s.earlier)} for side in sides)
            )
        ),
        erased=any(sample.erased for sample in everything),
    )


def _most_common(samples: Sequence[Sample], key: Callable[[Sample], Hashable]) -> list[Sample]:
    wanted = Counter(map(key, samples)).most_common(1)[0][0]
    return [sample for sample in samples if key(sample) == wanted]


def _tools(sample: Sample) -> tuple[tuple[int, str], ...]:
    """Return which tools were called, in order, each in its turn of the conversation."""
    return tuple((call.turn, call.tool) for call in sample.calls)


def _replaced(before: Sequence[AbstractSet[T]], after: Sequence[AbstractSet[T]]) -> bool:
    """Return whether something is in most of the sets of one side and in none of the other one."""
    if before == after:
        return False
    return _lost(before, after) or _lost(after, before)


def _lost(side: Sequence[AbstractSet[T]], other: Sequence[AbstractSet[T]]) -> bool:
    """Return whether something is in most of the sets of a side and in none of the other one."""
    gone = frozenset[T]().union(*side).difference(*other)
    return any(2 * sum(each in found for found in side) > len(side) for each in gone)


def _others(before: AbstractSet[bytes | None], after: AbstractSet[bytes | None]) -> bool:
    """Return whether no text of one side is one of the other."""
    old, new = before - {None}, after - {None}
    return bool(old) and bool(new) and old.isdisjoint(new)


def _other_checks(before: Sequence[Sample], after: Sequence[Sample], same_config: bool) -> bool:
    """Return whether one side makes checks that the other side does not.

    The label of a check in a scenario may differ every time, as by a number that was drawn. So
    checks are also compared by how many there are of a kind; and only by that where a single
    execution was checked by the same test, so that it is unknown which labels repeat.
    """
    if {sample.checks for sample in before} == {sample.checks for sample in after}:
        return False
    old, new = (
        [
            frozenset((check.kind, check.label) for check in read_checks(sample.checks))
            for sample in side
        ]
        for side in (before, after)
    )
    if set(old) == set(new):
        return False
    # The first of a kind, the second and so on.
    numbered = (
        [
            {(kind, n) for kind, of in Counter(kind for kind, _ in made).items() for n in range(of)}
            for made in side
        ]
        for side in (old, new)
    )
    told_apart = not same_config or min(len(before), len(after)) > 1
    return _replaced(*numbered) or (told_apart and _replaced(old, new))


def _other_arguments(
    before: Sequence[Sample], after: Sequence[Sample], arguments: Callable[[bytes], Any]
) -> bool:
    """Compare call by call and key by key, where both sides usually call the same tools.

    A key that takes another value in each repeat, such as a reason in words, is no change.
    """
    tools = Counter(map(_tools, [*before, *after])).most_common(1)[0][0]
    old, new = (
        [sample.calls for sample in side if _tools(sample) == tools] for side in (before, after)
    )
    return any(
        _call_replaced([call.digest for call in was], [call.digest for call in now], arguments)
        for was, now in zip(zip(*old, strict=True), zip(*new, strict=True), strict=False)
    )


def _call_replaced(
    before: list[bytes | None], after: list[bytes | None], arguments: Callable[[bytes], Any]
) -> bool:
    if set(before) == set(after) or None in before or None in after:
        return False
    old, new = ([arguments(digest) for digest in side if digest] for side in (before, after))
    keys = {key for value in (*old, *new) if isinstance(value, dict) for key in value}
    if not all(isinstance(value, dict) for value in (*old, *new)):
        return _replaced(*([{canonical(value)} for value in side] for side in (old, new)))
    return _replaced(
        *(
            [
                {(key, canonical(value[key]) if key in value else None) for key in keys}
                for value in side
            ]
            for side in (old, new)
        )
    )
