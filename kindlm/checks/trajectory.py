"""The section `trajectory` of `expect`: the sequence of all tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from kindlm.checks.base import CheckSection, Key, Place, failed, passed
from kindlm.checks.call_matching import (
    CallCount,
    ExpectedCall,
    described,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.matching import Bounds, in_any_order, in_sequence
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import WHOLE, Count, Maybe, resolved
from kindlm.transcript import Transcript
from kindlm.wording import bounded, count, listed, shown

CODES = {
    "TRAJECTORY_MISMATCH": "The calls differ from the expected trajectory. See the nearest miss.",
}

_FEW_CALLS = 100
"""Up to this many calls are compared quickly."""
_MAX_LISTED = 6
_MAX_ACTUAL = 30


class _Rule(NamedTuple):
    """The rule of a mode. `usual` bounds the calls of an entry without a count."""

    usual: Bounds
    in_sequence: bool
    others_allowed: bool


_RULES = {
    "strict": _Rule(Bounds(1, 1), in_sequence=True, others_allowed=False),
    "in-order": _Rule(Bounds(1, None), in_sequence=True, others_allowed=True),
    "unordered": _Rule(Bounds(1, 1), in_sequence=False, others_allowed=False),
    "subset": _Rule(Bounds(0, None), in_sequence=False, others_allowed=False),
    "superset": _Rule(Bounds(1, None), in_sequence=False, others_allowed=True),
}


class TrajectoryCall(ExpectedCall):
    """A step of a trajectory."""

    order: Maybe[Count] = Field(default=None, examples=[0])
    """Position among all tool calls, from 0."""
    turn: Maybe[Annotated[int, Field(ge=1), WHOLE]] = Field(default=None, examples=[2])
    """The message of the user before the call, from 1."""
    count: Maybe[CallCount] = Field(default=None, examples=[{"min": 2, "max": 2}])
    """Number of calls that fit this entry. By default one (`strict`, `unordered`), at least one
    (`in-order`, `superset`), or any number (`subset`)."""

    def bounds(self, mode: str) -> Bounds:
        """Return how often the tool must be called; in a subset, not at all."""
        if self.count is None:
            return _RULES[mode].usual
        if mode == "subset" and self.count.min is None:
            return Bounds(0, self.count.max)
        return self.count.bounds


class Trajectory(CheckSection):
    """The sequence of tool calls as a whole."""

    key = Key("trajectory", "All tool calls of the conversation as a sequence.", order=60)
    demands = Demands.SAFETY
    about_tools = True
    labelled_by = "mode"

    mode: Literal["strict", "in-order", "unordered", "subset", "superset"] = Field(
        examples=["in-order"]
    )
    """`strict`: exactly these calls, in this order. `in-order`: these calls in this order, and any
    others. `unordered`: exactly these calls, in any order. `subset`: only these calls, any number
    of times. `superset`: these calls in any order, and any others."""
    calls: list[TrajectoryCall]
    """The expected calls."""

    def is_slow(self, transcript: Transcript) -> bool:
        return len(transcript.tool_uses) > _FEW_CALLS

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        needed = [call for call in self.calls if not (call.count and call.count.is_any_number)]
        if not needed and self.mode in ("in-order", "superset"):
            yield (), f"the mode {self.mode} requires no calls, and allows any"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether all tool calls agree with the list.

        Each call counts for one entry. An entry with a count stands for that many calls, in a row
        in the mode `strict`. If other calls are allowed, `max` bounds all calls that fit the entry.
        The check is then undecided if calls without a name, or with a similar one, could exceed it.
        """
        uses = transcript.tool_uses
        found = _Comparison(self, transcript)
        if not (wrong := found.differences()):
            for entry, fits, bounds in zip(self.calls, found.fits, found.bounds, strict=True):
                if found.others_allowed and bounds.high is not None:
                    room = bounds.high - sum(fits)
                    doubt = undecided_for_a_name(
                        entry.tool, uses, arguments=entry.arguments, allowed=room
                    )
                    if doubt is not None:
                        return doubt
            return passed()
        first = listed(wrong, _MAX_LISTED, lambda item: item.message)
        differing = [item._asdict() for item in wrong[:_MAX_ACTUAL]]
        made = [described(index, use) for index, use in enumerate(uses[:_MAX_ACTUAL])]
        wanted = bounded(resolved(self.calls))
        return failed(
            "TRAJECTORY_MISMATCH",
            f"The calls are not as expected ({self.mode}): {first}.",
            expected={"mode": self.mode, "calls": wanted},
            actual={"calls": made, "differences": differing},
        )


class _Difference(NamedTuple):
    """A difference that concerns an entry, a call, or both."""

    kind: str
    message: str
    entry: int | None = None
    call: int | None = None


class _Comparison:
    """The expected calls matched with the actual calls; `owners` has the entry of each call."""

    def __init__(self, wanted: Trajectory, transcript: Transcript) -> None:
        rule = _RULES[wanted.mode]
        self.entries = wanted.calls
        self.uses = uses = transcript.tool_uses
        turns = enumerate(transcript.turns, 1)
        self.turns = [n for n, turn in turns for step in turn.steps for _ in step.tool_uses]
        self.others_allowed = rule.others_allowed
        self.bounds = places = [entry.bounds(wanted.mode) for entry in self.entries]
        self.fits = [
            [entry.fits(use) and not any(self._elsewhere(entry, n)) for n, use in enumerate(uses)]
            for entry in self.entries
        ]
        if rule.in_sequence:
            self.owners = in_sequence(
                self.fits, places, len(uses), others_allowed=rule.others_allowed
            )
        else:
            if rule.others_allowed:
                places = [Bounds(item.low, item.low) for item in places]
            self.owners = in_any_order(self.fits, places, len(uses))

    def differences(self) -> list[_Difference]:
        """Return the differences of calls in their order, then missing calls and wrong counts.

        A missing and an extra call of one tool are one difference.
        """
        found: list[_Difference] = []
        spare = [call for call, owner in enumerate(self.owners) if owner is None]
        for entry, (item, often) in enumerate(zip(self.entries, self.bounds, strict=True)):
            missing = often.low - self.owners.count(entry)
            same = [call for call in spare if self.uses[call].call.name == item.tool]
            same.sort(key=lambda call: len(self._faults(item, call)))
            for call in same[: max(missing, 0)]:
                missing -= 1
                spare.remove(call)
                is_late = any(owner is not None and owner > entry for owner in self.owners[:call])
                kind, wrong = "order", f"comes too {'late' if is_late else 'early'}"
                if faults := self._faults(item, call):
                    kind, wrong = "arguments", f"is not as expected: {'; '.join(faults)}"
                found.append(_Difference(kind, f"{self._call(call)} {wrong}", entry, call))
            if missing > 0:
                which = f" with {shown(item.arguments)}" if item.arguments is not None else ""
                times = f", {missing} of {often.low} times" if often.low > 1 else ""
                message = f"{shown(item.tool)}{which} was not called{times}"
                found.append(_Difference("missing", message, entry))
            most, made = often.high, sum(self.fits[entry])
            if self.others_allowed and most is not None and made > most:
                message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got {made}"
                found.append(_Difference("count", message, entry))
        if not self.others_allowed:
            for call in spare:
                message = f"{self._call(call)} is not expected"
                found.append(_Difference("unexpected", message, None, call))
        return sorted(found, key=lambda each: len(self.uses) if each.call is None else each.call)

    def _faults(self, item: TrajectoryCall, call: int) -> list[str]:
        """Return the differences of a call from an entry for its tool."""
        return [*item.argument_faults(self.uses[call]), *self._elsewhere(item, call)]

    def _elsewhere(self, item: TrajectoryCall, call: int) -> Iterator[str]:
        """Yield the differences of a call's position from that of an entry."""
        if item.turn not in (None, self.turns[call]):
            yield f"made in turn {self.turns[call]}, expected in turn {item.turn}"
        if item.order not in (None, call):
            yield f"expected as call {item.order}"

    def _call(self, call: int) -> str:
        name, arguments = self.uses[call].call.name, written_arguments(self.uses[call])
        return f"call {call}, {shown(name)} with {shown(arguments)},"
