"""The section `trajectory` of `expect`: the sequence of all tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from kindlm.checks.base import CheckSection, Key, Place, failed, passed
from kindlm.checks.call_matching import (
    ANY_NUMBER,
    CallCount,
    ExpectedCall,
    described,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.matching import Assignment, Bounds, in_any_order, in_sequence
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import WHOLE, Count, Maybe, resolved
from kindlm.transcript import ToolUse, Transcript
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


_Faults: TypeAlias = Sequence[Mapping[int, list[str]]]
"""Of each entry: the differences of each call to its tool, by its position among all calls."""


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

    def faults(self, use: ToolUse, call: int, turn: int) -> list[str]:
        """Return the differences of a call to the tool, of its arguments and its position."""
        found = self.argument_faults(use)
        if self.turn not in (None, turn):
            found.append(f"made in turn {turn}, expected in turn {self.turn}")
        if self.order not in (None, call):
            found.append(f"expected to be call {self.order}")
        return found


class _Difference(NamedTuple):
    """A difference that concerns an entry, a call, or both."""

    kind: str
    message: str
    entry: int | None = None
    call: int | None = None


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
        bounds = (entry.bounds(self.mode) for entry in self.calls)
        if self.mode in ("in-order", "superset") and all(each == ANY_NUMBER for each in bounds):
            yield (), f"the mode {self.mode} requires no calls, and allows any"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether all tool calls agree with the list.

        Each call counts for one entry. An entry with a count stands for that many calls, in a row
        in the mode `strict`. If other calls are allowed, `max` bounds all calls that fit the entry.
        The check is then undecided if calls without a name, or with a similar one, could exceed it.
        """
        uses, rule = transcript.tool_uses, _RULES[self.mode]
        numbered = enumerate(transcript.turns, 1)
        turns = [n for n, turn in numbered for step in turn.steps for _ in step.tool_uses]
        faults: _Faults = [
            {
                call: entry.faults(use, call, turns[call])
                for call, use in enumerate(uses)
                if use.call.name == entry.tool
            }
            for entry in self.calls
        ]
        fits = [[found.get(call) == [] for call in range(len(uses))] for found in faults]
        bounds = [entry.bounds(self.mode) for entry in self.calls]
        if rule.in_sequence:
            owners = in_sequence(fits, bounds, len(uses), others_allowed=rule.others_allowed)
        else:
            needed = [Bounds(it.low, it.low) for it in bounds] if rule.others_allowed else bounds
            owners = in_any_order(fits, needed, len(uses))
        wrong = sorted(
            self._differences(uses, faults, bounds, owners),
            key=lambda each: len(uses) if each.call is None else each.call,
        )
        if not wrong:
            for entry, row, often in zip(self.calls, fits, bounds, strict=True):
                if rule.others_allowed and often.high is not None:
                    room = often.high - sum(row)
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

    def _differences(
        self, uses: Sequence[ToolUse], faults: _Faults, bounds: Sequence[Bounds], owners: Assignment
    ) -> Iterator[_Difference]:
        """Yield the differences; a missing and an extra call of one tool are one difference."""

        def made(call: int) -> str:
            name, arguments = uses[call].call.name, written_arguments(uses[call])
            return f"call {call}, {shown(name)} with {shown(arguments)},"

        others_allowed = _RULES[self.mode].others_allowed
        spare = [call for call, owner in enumerate(owners) if owner is None]
        for entry, (item, often, found) in enumerate(zip(self.calls, bounds, faults, strict=True)):
            missing = max(often.low - owners.count(entry), 0)
            same = [call for call in spare if call in found]
            for call in sorted(same, key=lambda call: len(found[call]))[:missing]:
                spare.remove(call)
                is_late = any(owner is not None and owner > entry for owner in owners[:call])
                kind, wrong = "order", f"comes too {'late' if is_late else 'early'}"
                if found[call]:
                    kind, wrong = "arguments", f"is not as expected: {'; '.join(found[call])}"
                yield _Difference(kind, f"{made(call)} {wrong}", entry, call)
            if missing > len(same):
                which = f" with {shown(item.arguments)}" if item.arguments is not None else ""
                times = f", {missing - len(same)} of {often.low} times" if often.low > 1 else ""
                message = f"{shown(item.tool)}{which} was not called{times}"
                yield _Difference("missing", message, entry)
            fitting, most = list(found.values()).count([]), often.high
            if others_allowed and most is not None and fitting > most:
                message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got"
                yield _Difference("count", f"{message} {fitting}", entry)
        if not others_allowed:
            for call in spare:
                yield _Difference("unexpected", f"{made(call)} is not expected", None, call)
