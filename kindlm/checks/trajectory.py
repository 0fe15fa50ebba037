"""The section `trajectory` of `expect`: the sequence of all tool calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from kindlm.checks.base import CheckSection, Key, Place, Reads, failed, passed
from kindlm.checks.call_matching import (
    CallCount,
    ExpectedCall,
    undecided_for_a_name,
    written,
    written_arguments,
)
from kindlm.matching import Bounds, in_any_order, in_sequence
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import Count, Maybe
from kindlm.transcript import Transcript
from kindlm.wording import bounded, count, listed, shown

CODES = {
    "TRAJECTORY_MISMATCH": "The calls differ from the expected trajectory. See the nearest miss.",
}

_FEW_CALLS = 100
"""Up to this many calls are compared quickly."""
_MAX_LISTED = 6
_MAX_ACTUAL = 30
_UNCOMPARABLE = 1_000
"""The distance of malformed arguments, further away than any others."""


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
    turn: Maybe[Annotated[Count, Field(ge=1)]] = Field(default=None, examples=[2])
    """The message of the user before the call, from 1."""
    count: Maybe[CallCount] = None
    """Number of calls that fit this entry. By default one (`strict`, `unordered`), at least one
    (`in-order`, `superset`), or any number (`subset`)."""

    def tools(self) -> Iterator[tuple[Place, str]]:
        yield ("tool",), self.tool

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
    kind = "trajectory"
    demands = Demands.SAFETY
    about_tools = True
    reads = Reads.CALLS

    mode: Literal["strict", "in-order", "unordered", "subset", "superset"] = Field(
        examples=["in-order"]
    )
    """`strict`: exactly these calls, in this order. `in-order`: these calls in this order, and any
    others. `unordered`: exactly these calls, in any order. `subset`: only these calls, any number
    of times. `superset`: these calls in any order, and any others."""
    calls: list[TrajectoryCall]
    """The expected calls."""

    @property
    def label(self) -> str:
        return self.mode

    @property
    def expects_nothing(self) -> bool:
        """Whether other calls are allowed, and no call is needed."""
        needed = [call for call in self.calls if not (call.count and call.count.is_any_number)]
        return not needed and self.mode in ("in-order", "superset")

    def is_slow(self, transcript: Transcript) -> bool:
        return len(transcript.tool_uses) > _FEW_CALLS

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        if self.expects_nothing:
            yield (), f"the mode {self.mode} requires no calls, and allows any"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether all tool calls agree with the list.

        Each call counts for one entry. An entry with a count stands for that many calls, in a row
        in the mode `strict`. If other calls are allowed, `max` bounds all calls that fit the entry.
        The check is then undecided if calls without a name, or with a similar one, could exceed it.
        """
        uses = transcript.tool_uses
        found = _Comparison(self.mode, self.calls, transcript)
        if not (wrong := found.differences()):
            doubts = (
                undecided_for_a_name(
                    entry.tool, uses, arguments=entry.arguments, allowed=bounds.high - sum(fits)
                )
                for entry, fits, bounds in zip(self.calls, found.fits, found.bounds, strict=True)
                if found.others_allowed and bounds.high is not None
            )
            return next(filter(None, doubts), None) or passed()
        first = listed(wrong, _MAX_LISTED, lambda item: item.message)
        calls = [
            {
                "index": index,
                "tool": bounded(use.call.name),
                "arguments": bounded(written_arguments(use)),
            }
            for index, use in enumerate(uses[:_MAX_ACTUAL])
        ]
        differing = [
            {"kind": item.kind, "entry": item.entry, "call": item.call}
            for item in wrong[:_MAX_ACTUAL]
        ]
        wanted = bounded([written(call) for call in self.calls])
        return failed(
            "TRAJECTORY_MISMATCH",
            f"The calls are not as expected ({self.mode}): {first}.",
            expected={"mode": self.mode, "calls": wanted},
            actual={"calls": calls, "differences": differing},
        )


class _Difference(NamedTuple):
    """A difference that concerns an entry, a call, or both."""

    kind: str
    message: str
    entry: int | None = None
    call: int | None = None


class _Comparison:
    """The expected calls matched with the actual calls; `owners` has the entry of each call."""

    def __init__(
        self, mode: str, entries: Sequence[TrajectoryCall], transcript: Transcript
    ) -> None:
        rule = _RULES[mode]
        self.entries = entries
        self.uses = uses = transcript.tool_uses
        turns = enumerate(transcript.turns, 1)
        self.turns = [n for n, turn in turns for step in turn.steps for _ in step.tool_uses]
        self.others_allowed = rule.others_allowed
        self.bounds = [entry.bounds(mode) for entry in entries]
        self.fits = [
            [entry.fits(use) and not any(self._elsewhere(entry, n)) for n, use in enumerate(uses)]
            for entry in entries
        ]
        if rule.in_sequence:
            self.owners = in_sequence(
                self.fits, self.bounds, len(uses), others_allowed=rule.others_allowed
            )
        else:
            places = self.bounds
            if rule.others_allowed:
                places = [Bounds(item.low, item.low) for item in places]
            self.owners = in_any_order(self.fits, places, len(uses))

    def differences(self) -> list[_Difference]:
        """Return the differences of calls in their order, then missing calls and wrong counts.

        A missing and an extra call of one tool are one difference, the closest ones first.
        """
        lacking = {
            entry: often.low - self.owners.count(entry) for entry, often in enumerate(self.bounds)
        }
        # A `Counter`, since `min` may be any number.
        missing = Counter({entry: calls for entry, calls in lacking.items() if calls > 0})
        spare = [call for call, owner in enumerate(self.owners) if owner is None]
        found: list[_Difference] = []
        near = sorted(
            (self._fault(entry, call)[0], entry, call)
            for entry in missing
            for call in spare
            if self.uses[call].call.name == self.entries[entry].tool
        )
        for distance, entry, call in near:
            if missing[entry] and call in spare:
                missing[entry] -= 1
                spare.remove(call)
                wrong = f"comes {self._direction(entry, call)}"
                if distance:
                    wrong = f"is not as expected: {self._fault(entry, call)[1]}"
                kind, message = "arguments" if distance else "order", f"{self._call(call)} {wrong}"
                found.append(_Difference(kind, message, entry, call))
        if not self.others_allowed:
            found.extend(map(self._unexpected, spare))
        found.sort(key=lambda difference: difference.call or 0)
        return [*found, *self._wrong_counts(+missing)]

    def _direction(self, entry: int, call: int) -> str:
        placed = [(other, owner) for other, owner in enumerate(self.owners) if owner is not None]
        for other, owner in placed:
            if owner > entry and other < call:
                return f"too late, expected before call {other}"
        for other, owner in reversed(placed):
            if owner < entry and other > call:
                return f"too early, expected after call {other}"
        return "at another place than expected"

    def _unexpected(self, call: int) -> _Difference:
        name = self.uses[call].call.name
        of_tool = [entry for entry, item in enumerate(self.entries) if item.tool == name]
        if not of_tool:
            message = f"{self._call(call)} is not expected"
            return _Difference("unexpected", message, None, call)
        distance, entry = min((self._fault(entry, call)[0], entry) for entry in of_tool)
        why = f"not expected: {self._fault(entry, call)[1]}" if distance else "one too many"
        return _Difference("unexpected", f"{self._call(call)} is {why}", entry, call)

    def _wrong_counts(self, missing: Mapping[int, int]) -> Iterator[_Difference]:
        """Yield entries that lack calls, and those with too many if other calls are allowed."""
        for entry, lacking in missing.items():
            item, low = self.entries[entry], self.bounds[entry].low
            which = f" with {shown(item.arguments)}" if item.arguments is not None else ""
            often = f", {lacking} of {low} times" if low > 1 else ""
            yield _Difference("missing", f"{shown(item.tool)}{which} was not called{often}", entry)
        for entry, item in enumerate(self.entries if self.others_allowed else ()):
            most, made = self.bounds[entry].high, sum(self.fits[entry])
            if most is not None and made > most:
                message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got {made}"
                yield _Difference("count", message, entry)

    def _fault(self, entry: int, call: int) -> tuple[int, str]:
        """Return the distance of a call from an entry, and the differences."""
        item, use = self.entries[entry], self.uses[call]
        places, why = item.argument_faults(use)
        if places and use.call.malformed is not None:
            places = _UNCOMPARABLE
        elsewhere = list(self._elsewhere(item, call))
        return places + len(elsewhere), "; ".join(filter(None, (why, *elsewhere)))

    def _elsewhere(self, item: TrajectoryCall, call: int) -> Iterator[str]:
        """Yield the differences of a call's position from that of an entry."""
        if item.turn not in (None, self.turns[call]):
            yield f"made in turn {self.turns[call]}, expected in turn {item.turn}"
        if item.order not in (None, call):
            yield f"expected as call {item.order}"

    def _call(self, call: int) -> str:
        use = self.uses[call]
        return f"call {call}, {shown(use.call.name)} with {shown(written_arguments(use))},"
