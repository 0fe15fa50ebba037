"""The check of all tool calls as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from evaluated import demand, evaluated
from hypothesis import given
from hypothesis import strategies as st

from kindlm.matching import Bounds, in_any_order, in_sequence
from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

MODES = ["strict", "in-order", "unordered", "subset", "superset"]


def talk(*calls: str | tuple[str, dict[str, Any]]) -> Transcript:
    """Return a conversation of two turns with these calls."""
    uses = tuple(
        ToolUse(
            ToolCall(f"{number}", *(call if isinstance(call, tuple) else (call, {}))), None, "x"
        )
        for number, call in enumerate(calls)
    )
    first, second = uses[: len(uses) // 2], uses[len(uses) // 2 :]
    return Transcript(turns=(Turn("a", (Step("", first),)), Turn("b", (Step("", second),))))


def params(mode: str, *calls: str | dict[str, Any]) -> dict[str, Any]:
    entries = [{"tool": call} if isinstance(call, str) else call for call in calls]
    return {"mode": mode, "calls": entries}


class TestModes:
    @pytest.mark.parametrize(
        ("made", "fitting"),
        [
            (["lookup", "refund"], {"strict", "in-order", "unordered", "subset", "superset"}),
            (["refund", "lookup"], {"unordered", "subset", "superset"}),
            (["lookup"], {"subset"}),
            ([], {"subset"}),
            (["lookup", "mail", "refund"], {"in-order", "superset"}),
            (["mail", "refund", "lookup"], {"superset"}),
            (["lookup", "lookup", "refund"], {"in-order", "subset", "superset"}),
            (["lookup", "lookup"], {"subset"}),
            (["mail"], set()),
            (["Lookup", "refund"], set()),
        ],
    )
    @pytest.mark.parametrize("mode", MODES)
    def test_each_mode_has_its_own_idea_of_agreement(
        self, evaluate: Evaluate, mode: str, made: list[str], fitting: set[str]
    ) -> None:
        result = evaluate("trajectory", params(mode, "lookup", "refund"), talk(*made))

        assert (result.outcome is Outcome.PASSED) == (mode in fitting)
        if result.outcome is Outcome.FAILED:
            assert result.failure_code == "TRAJECTORY_MISMATCH"
            assert mode in result.message
            assert result.actual["differences"]

    @pytest.mark.parametrize(("mode", "passes"), [(mode, mode != "strict") for mode in MODES[2:]])
    def test_the_first_that_fits_is_not_always_the_one_that_is_meant(
        self, evaluate: Evaluate, mode: str, passes: bool
    ) -> None:
        # The entry for any refund must leave the refund of A1 to the one that needs it.
        wanted = params(mode, {"tool": "refund"}, {"tool": "refund", "argsMatch": {"id": "A1"}})

        for order in (["A1", "B2"], ["B2", "A1"]):
            made = talk(*[("refund", {"id": name}) for name in order])
            assert (evaluate("trajectory", wanted, made).outcome is Outcome.PASSED) == passes

    @pytest.mark.parametrize(
        ("mode", "count", "fitting"),
        [
            ("strict", {"min": 1, "max": 2}, {1, 2}),
            ("strict", {"min": 2}, {2, 3, 4}),
            ("strict", {"max": 2}, {1, 2}),
            ("strict", {"min": 0, "max": 1}, {0, 1}),
            ("strict", {"max": 0}, {0}),
            ("strict", {}, {1, 2, 3, 4}),
            ("in-order", {"min": 2}, {2, 3, 4}),
            ("in-order", {"min": 1, "max": 2}, {1, 2}),
            ("unordered", {"min": 1, "max": 2}, {1, 2}),
            ("unordered", {"min": 0}, {0, 1, 2, 3, 4}),
            ("subset", {"max": 2}, {0, 1, 2}),
            ("subset", {"min": 1, "max": None}, {1, 2, 3, 4}),
            ("superset", {"min": 2}, {2, 3, 4}),
            ("superset", {"max": 2}, {1, 2}),
            ("superset", {"max": 0}, {0}),
        ],
    )
    def test_a_count_bounds_the_calls_of_an_entry(
        self, evaluate: Evaluate, mode: str, count: dict[str, Any], fitting: set[int]
    ) -> None:
        wanted = params(mode, {"tool": "lookup", "count": count}, "refund")

        passing = {
            number
            for number in range(5)
            if evaluate("trajectory", wanted, talk(*["lookup"] * number, "refund")).outcome
            is Outcome.PASSED
        }

        assert passing == fitting

    @pytest.mark.parametrize("mode", ["strict", "in-order", "unordered", "superset"])
    def test_a_huge_count_is_reported_without_listing_its_calls(
        self, evaluate: Evaluate, mode: str
    ) -> None:
        wanted = params(mode, {"tool": "lookup", "count": {"min": 10**400}})

        result = evaluate("trajectory", wanted, talk("lookup"))

        assert result.outcome is Outcome.FAILED
        assert f"was not called, {10**400 - 1} of {10**400} times" in result.message

    def test_no_calls_at_all_can_be_expected(self, evaluate: Evaluate) -> None:
        assert evaluate("trajectory", params("strict"), talk()).outcome is Outcome.PASSED
        assert evaluate("trajectory", params("strict"), talk("x")).outcome is Outcome.FAILED


class TestNearestMiss:
    def differences(self, result: CheckResult) -> list[tuple[str, int | None, int | None]]:
        found = result.actual["differences"]
        return [(item["kind"], item["entry"], item["call"]) for item in found]

    @pytest.mark.parametrize("mode", ["strict", "in-order", "unordered", "superset"])
    def test_a_call_with_other_arguments_is_reported_key_by_key(
        self, evaluate: Evaluate, mode: str
    ) -> None:
        wanted = params(mode, "lookup", {"tool": "refund", "argsMatch": {"id": "A1", "sum": 5}})

        made = talk("lookup", ("refund", {"id": "B2"}))
        result = evaluate("trajectory", wanted, made)

        assert self.differences(result) == [("arguments", 1, 1)]
        assert 'id: expected "A1", got "B2"' in result.message
        assert "sum: expected 5, it is missing" in result.message

    @pytest.mark.parametrize(
        ("wanted", "made", "fault"),
        [
            ({"argsMatch": {"id": "A1"}}, {"id": "A1"}, ""),
            ({"argsMatch": {"id": "A1"}}, {"id": "A1", "all": True}, "all: not expected, got true"),
            ({"argsMatch": {"o": [{"k": 1}]}}, {"o": [{"k": 1, "f": 2}]}, "o[0].f: not expected"),
            ({}, {"all": True}, "all: not expected, got true"),
            ({}, {}, ""),
        ],
    )
    @pytest.mark.parametrize("key", ["trajectory", "toolCalls"])
    def test_exact_arguments_allow_no_others_at_any_level(
        self, evaluate: Evaluate, key: str, wanted: Any, made: Any, fault: str
    ) -> None:
        call = {"tool": "lookup", "argsExact": True} | wanted
        expected = params("strict", call) if key == "trajectory" else call
        kind = "trajectory" if key == "trajectory" else "tool_called"

        result = evaluate(kind, expected, talk(("lookup", made)))

        assert result.outcome is (Outcome.FAILED if fault else Outcome.PASSED)
        assert fault in (result.message or "")

    @pytest.mark.parametrize(
        ("place", "fault"),
        [
            ({"turn": 2, "order": 1}, ""),
            ({"turn": 1}, "made in turn 2, expected in turn 1"),
            ({"order": 0}, "expected to be call 0"),
        ],
    )
    @pytest.mark.parametrize("mode", MODES)
    def test_a_call_has_its_turn_and_its_place(
        self, evaluate: Evaluate, mode: str, place: dict[str, int], fault: str
    ) -> None:
        wanted = params(mode, "lookup", {"tool": "refund"} | place)

        result = evaluate("trajectory", wanted, talk("lookup", "refund"))

        assert result.outcome is (Outcome.FAILED if fault else Outcome.PASSED)
        assert ("is not expected" if fault and mode == "subset" else fault) in result.message

    def test_the_closest_calls_are_compared(self, evaluate: Evaluate) -> None:
        wanted = params(
            "unordered",
            {"tool": "t", "argsMatch": {"a": 1, "b": 1}},
            {"tool": "t", "argsMatch": {"a": 2, "b": 2}},
        )

        result = evaluate("trajectory", wanted, talk(("t", {"a": 2, "b": 0}), ("t", {"a": 1})))

        assert self.differences(result) == [("arguments", 1, 0), ("arguments", 0, 1)]

    @pytest.mark.parametrize("mode", ["strict", "in-order"])
    @pytest.mark.parametrize(
        ("made", "call", "word"),
        [
            (["b", "c", "a"], 2, "too late"),
            (["c", "a", "b"], 0, "too early"),
        ],
    )
    def test_a_call_at_another_place_is_reported_once(
        self, evaluate: Evaluate, mode: str, made: list[str], call: int, word: str
    ) -> None:
        result = evaluate("trajectory", params(mode, "a", "b", "c"), talk(*made))

        assert [(kind, where) for kind, _, where in self.differences(result)] == [("order", call)]
        assert word in result.message

    @pytest.mark.parametrize(
        ("mode", "calls", "made", "expected"),
        [
            ("strict", ["a", "b"], ["a"], [("missing", 1, None)]),
            ("strict", ["a"], ["a", "x"], [("unexpected", None, 1)]),
            ("strict", ["a"], ["a", "a"], [("unexpected", None, 1)]),
            ("in-order", ["a", "b"], ["x", "a", "x"], [("missing", 1, None)]),
            ("unordered", ["a"], ["x"], [("unexpected", None, 0), ("missing", 0, None)]),
            ("subset", ["a"], ["a", "x", "a"], [("unexpected", None, 1)]),
            ("superset", ["a", "b"], ["x"], [("missing", 0, None), ("missing", 1, None)]),
            (
                "superset",
                [{"tool": "a", "count": {"max": 1}}],
                ["a", "a"],
                [("count", 0, None)],
            ),
            ("strict", [{"tool": "a", "count": {"min": 3}}], ["a"], [("missing", 0, None)]),
        ],
    )
    def test_what_is_missing_and_what_is_not_expected(
        self,
        evaluate: Evaluate,
        mode: str,
        calls: list[Any],
        made: list[str],
        expected: list[tuple[str, int | None, int | None]],
    ) -> None:
        result = evaluate("trajectory", params(mode, *calls), talk(*made))

        assert self.differences(result) == expected

    def test_malformed_arguments_fit_only_where_none_are_asked_for(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        made = said("", used("t", malformed="{id: \x1b"))

        fits = evaluate("trajectory", params("strict", "t"), made)
        asked = params("strict", {"tool": "t", "argsMatch": {}})
        result = evaluate("trajectory", asked, made)

        assert fits.outcome is Outcome.PASSED
        assert "not a JSON object" in result.message
        assert result.message.isprintable()

    @pytest.mark.parametrize("mode", ["strict", "unordered"])
    def test_a_long_conversation_makes_a_bounded_result(
        self, evaluate: Evaluate, mode: str
    ) -> None:
        calls = [{"tool": "t", "argsMatch": {"n": -n}, "count": {"min": 1}} for n in range(20)]
        made = talk(*[("t", {"n": n, "text": "x" * 10_000}) for n in range(60)])

        result = evaluate("trajectory", params(mode, *calls), made)

        assert result.outcome is Outcome.FAILED
        assert len(result.message) <= 1_000
        assert len(result.actual["calls"]) == 30
        assert len(result.actual["differences"]) <= 30
        assert len(repr(result.actual)) < 200_000


arguments = st.fixed_dictionaries({}, optional={"k": st.integers(0, 1), "m": st.integers(0, 1)})
# A `min` above its `max` can never hold, which loading a suite refuses.
counts = st.fixed_dictionaries(
    {}, optional={"min": st.integers(0, 2), "max": st.integers(0, 3)}
).filter(lambda count: count.get("min", 0) <= count.get("max", 3))
entries = st.lists(
    st.fixed_dictionaries(
        {"tool": st.sampled_from("ab")}, optional={"argsMatch": arguments, "count": counts}
    ),
    max_size=3,
)
made_calls = st.lists(st.tuples(st.sampled_from("ab"), arguments), max_size=4)


@given(st.sampled_from(MODES), entries, made_calls)
def test_the_verdict_is_that_of_trying_every_assignment(
    mode: str, calls: list[dict[str, Any]], made: list[tuple[str, dict[str, Any]]]
) -> None:
    expectation = demand("trajectory", "x", params(mode, *calls))

    result = evaluated(expectation, talk(*made))

    assert (result.outcome is Outcome.PASSED) == agrees(mode, calls, made)


def agrees(mode: str, calls: list[dict[str, Any]], made: list[tuple[str, dict[str, Any]]]) -> bool:
    """Tell by trying whether calls agree with the expected ones."""
    others = mode in ("in-order", "superset")
    bounds = [bounds_of(mode, entry.get("count")) for entry in calls]
    fits = [
        [
            tool == entry["tool"] and entry.get("argsMatch", {}).items() <= given_arguments.items()
            for tool, given_arguments in made
        ]
        for entry in calls
    ]
    if others and any(
        high is not None and sum(row) > high for row, (_, high) in zip(fits, bounds, strict=True)
    ):
        return False
    choices: list[int | None] = [*range(len(calls)), *([None] if others else [])]
    return any(
        is_assignment(mode, owners, fits, bounds) for owners in product(choices, repeat=len(made))
    )


def is_assignment(
    mode: str,
    owners: Sequence[int | None],
    fits: list[list[bool]],
    bounds: list[tuple[int, int | None]],
) -> bool:
    owned = [(owner, call) for call, owner in enumerate(owners) if owner is not None]
    if not all(fits[owner][call] for owner, call in owned):
        return False
    order = [owner for owner, _ in owned]
    if mode in ("strict", "in-order") and order != sorted(order):
        return False
    return all(
        low <= order.count(entry) and (high is None or order.count(entry) <= high)
        for entry, (low, high) in enumerate(bounds)
    )


def bounds_of(mode: str, count: dict[str, int] | None) -> tuple[int, int | None]:
    if count is None:
        usual: dict[str, tuple[int, int | None]] = {"subset": (0, None), "strict": (1, 1)}
        return usual.get(mode, (1, 1) if mode == "unordered" else (1, None))
    high = count.get("max")
    return count.get("min", 0 if mode == "subset" or high == 0 else 1), high


def test_a_thousand_calls_are_assigned_without_deep_recursion() -> None:
    # Each call fits two neighbouring entries, so that the last one moves all the others.
    size = 1_000
    fits = [[call in (entry, entry - 1) for call in range(size)] for entry in range(size)]

    owners = in_any_order(fits, [Bounds(1, 1)] * size, size)
    ordered = in_sequence(fits[:50], [Bounds(1, 1)] * 50, size, others_allowed=True)

    assert sorted(owner for owner in owners if owner is not None) == list(range(size))
    assert [owner for owner in ordered if owner is not None] == list(range(50))


def test_calls_that_are_alike_are_looked_at_once() -> None:
    looks = []

    class Row(list[bool]):
        def __getitem__(self, at: Any) -> Any:
            looks.append(at)
            return super().__getitem__(at)

    fits = [Row([True] * 2_000) for _ in range(3)]
    owners = in_any_order(fits, [Bounds(1, 3)] * 3, 2_000)

    assert sum(owner is not None for owner in owners) == 9
    assert len(looks) == 3 * 2_000
