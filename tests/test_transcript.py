"""What a conversation adds up to."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kindlm.transcript import (
    Cost,
    CostSource,
    Step,
    ToolCall,
    ToolUse,
    Transcript,
    Turn,
    Usage,
    total_of,
)

COSTS = st.sampled_from(
    [
        Cost(),
        Cost(0.0, CostSource.REPORTED),
        Cost(0.25, CostSource.REPORTED),
        Cost(0.5, CostSource.COMPUTED),
    ]
)
STEPS = st.builds(
    Step,
    text=st.sampled_from(["", "hello"]),
    tool_uses=st.lists(st.just(ToolUse(ToolCall("c", "look", {}), 1)), max_size=2).map(tuple),
    usage=st.builds(Usage, st.sampled_from([None, 1, 20]), st.sampled_from([None, 3])),
    cost=COSTS,
    latency_ms=st.sampled_from([0.5, 2.0]),
    reports_tools=st.booleans(),
)


@given(st.lists(st.lists(STEPS, max_size=3), max_size=3), st.integers(0, 3))
def test_it_adds_up_what_it_holds_also_when_it_grew_from_another(
    turns: list[list[Step]], kept: int
) -> None:
    transcript = Transcript("Be kind")
    for steps in turns:
        transcript = transcript.with_turn("Hi")
        for step in steps:
            assert transcript.total == total_of(transcript.steps)
            transcript = transcript.with_step(step)
    for seen in (transcript, transcript.prefix(kept)):
        steps = [step for turn in seen.turns for step in turn.steps]
        assert list(seen.steps) == steps
        assert list(seen.tool_uses) == [use for step in steps for use in step.tool_uses]
        assert seen.total.latency_ms == sum(step.latency_ms for step in steps)
        assert seen.shows_tools is (not steps or any(step.reports_tools for step in steps))
        tokens = [step.usage.input_tokens for step in steps]
        assert seen.total.usage.input_tokens == (
            None if None in tokens or not tokens else sum(tokens)
        )  # type: ignore[arg-type]
        usd = [step.cost.usd for step in steps]
        assert seen.total.cost.usd == (None if None in usd or not usd else sum(usd))  # type: ignore[arg-type]
        assert replace(seen) == seen


def test_a_sum_of_costs_says_where_it_is_from() -> None:
    reported, computed = Cost(0.25, CostSource.REPORTED), Cost(0.5, CostSource.COMPUTED)
    assert total_of([Step("", cost=reported), Step("", cost=reported)]).cost == replace(
        reported, usd=0.5
    )
    assert total_of([Step("", cost=reported), Step("", cost=computed)]).cost == replace(
        computed, usd=0.75
    )
    assert total_of([Step("", cost=reported), Step("")]).cost == Cost()
    assert total_of([]).cost == Cost()


def test_calls_are_missing_if_one_answer_says_so_unless_the_agent_reports_them_all() -> None:
    seen = Step("Hi.", reports_tools=False)
    observed = Step("Bye.", reports_tools=False, unseen="the trace came late")
    transcript = Transcript(turns=(Turn("hi", (seen, observed)),))
    assert transcript.unseen == "the trace came late"
    assert replace(transcript, reports_tools=True).unseen is None
    assert Transcript(turns=(Turn("hi", (seen,)),)).unseen is None


def test_a_call_is_stored_without_what_no_text_can_hold() -> None:
    odd, stored = "a\ud800b", "a\ufffdb"
    call = ToolCall(odd, odd, {"plain": ["x", 1.5], odd: {"deep": [odd]}}, odd)
    arguments = {"plain": ["x", 1.5], stored: {"deep": [stored]}}
    assert call.storable() == ToolCall(stored, stored, arguments, stored)
