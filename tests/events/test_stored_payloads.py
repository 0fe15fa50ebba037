"""What is stored of an event: keys and forms that histories hold, and that stay."""

from __future__ import annotations

import pytest

from kindlm.events import EVENTS, load_event
from kindlm.events.codec import EventError, Payload, new_event
from kindlm.events.execution_events import (
    AgentReplied,
    AgentToolUse,
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
    ToolSimulated,
)
from kindlm.events.run import PlannedTest, SuiteStarted
from kindlm.outcome import CheckResult, Evidence, Gate, Outcome, ScoreLimits, Status
from kindlm.transcript import (
    CostSource,
    FinishReason,
    Message,
    Role,
    ToolCall,
    ToolProblem,
    ToolProblemKind,
    ToolUse,
)
from kindlm_store import Text

STORED: list[tuple[Payload, dict[str, object]]] = [
    (
        SuiteStarted(
            suite="support",
            ordinal=0,
            project="shop",
            front_end="kindlm",
            path="kindlm.yaml",
            config_hash="0123456789ab",
            config="{}",
            gates=(Gate("passRateMin", 1, written=True),),
            tests=(PlannedTest(name="refund", target="gpt", score_limits=ScoreLimits(0.8)),),
        ),
        {
            "suite": "support",
            "ordinal": 0,
            "project": "shop",
            "front_end": "kindlm",
            "path": "kindlm.yaml",
            "config_hash": "0123456789ab",
            "config": Text("{}"),
            "gates": [{"name": "passRateMin", "threshold": 1.0, "written": True}],
            "tests": [
                {
                    "name": "refund",
                    "target": "gpt",
                    "selected": True,
                    "repeat": 1,
                    "pass_rate": 1.0,
                    "score_limits": {"min_mean": 0.8},
                }
            ],
        },
    ),
    (
        ExecutionStarted(
            suite=0,
            test="refund",
            target="gpt",
            repeat=1,
            attempt=1,
            messages=(Message(Role.USER, "Hi {{env.WHO}}", written="Hi"),),
            tools=({"name": "look_up"},),
        ),
        {
            "suite": 0,
            "test": "refund",
            "target": "gpt",
            "repeat": 1,
            "attempt": 1,
            "messages": [{"role": "user", "text": Text("Hi {{env.WHO}}")}],
            "tools": Text('[{"name": "look_up"}]'),
        },
    ),
    (
        ProviderRequested(
            purpose="test",
            provider="openai",
            model="gpt-4o",
            call=1,
            fingerprint="f",
            parameters={"seed": 1, "temperature": 0.5},
            after=0,
        ),
        {
            "purpose": "test",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "call": 1,
            "attempt": 1,
            "fingerprint": "f",
            "parameters": {"seed": 1, "temperature": 0.5},
            "after": 0,
        },
    ),
    (
        ProviderResponded(
            call=1,
            text="",
            latency_ms=12,
            cost_usd=0.0,
            cost_source=CostSource.COMPUTED,
            input_tokens=3,
            tool_calls=(
                ToolCall("c1", "look_up", {"id": "é"}),
                ToolCall("c2", "n" * 300, {}, malformed="{"),
            ),
            finish_reason=FinishReason.TOOL_CALLS,
        ),
        {
            "call": 1,
            "text": Text(""),
            "latency_ms": 12.0,
            "cost_usd": 0.0,
            "cost_source": "computed",
            "gen_ai.usage.input_tokens": 3,
            "tool_calls": [
                {"id": "c1", "name": "look_up", "arguments": Text('{"id": "é"}')},
                {
                    "id": "c2",
                    "name": "n" * 199 + "…",
                    "arguments": Text("{"),
                    "malformed": True,
                },
            ],
            "gen_ai.response.finish_reason": "tool_calls",
        },
    ),
    (
        ToolSimulated(
            index=0,
            call_id="c1",
            rule="responses[0]",
            response=None,
            problems=(ToolProblem(ToolProblemKind.ARGUMENTS, "no id"),),
        ),
        {
            "index": 0,
            "gen_ai.tool.call.id": "c1",
            "rule": "responses[0]",
            "response": Text("null"),
            "problems": [{"kind": "arguments", "message": Text("no id")}],
        },
    ),
    (
        AgentReplied(
            call=1,
            text="Done.",
            latency_ms=1.0,
            tool_calls=(
                AgentToolUse(
                    index=2, use=ToolUse(ToolCall("c1", "look_up", {}), 1, "agent"), simulated=True
                ),
            ),
            reported={"tokens": 3},
            reports_tools=False,
        ),
        {
            "call": 1,
            "text": Text("Done."),
            "latency_ms": 1.0,
            "cost_source": "unknown",
            "tool_calls": [
                {
                    "index": 2,
                    "id": "c1",
                    "name": "look_up",
                    "arguments": Text("{}"),
                    "response": Text("1"),
                    "rule": "agent",
                    "simulated": True,
                }
            ],
            "reported": Text('{"tokens": 3}'),
            "reports_tools": False,
        },
    ),
    (
        AssertionEvaluated(
            index=0,
            result=CheckResult(
                "contains",
                'contains "x"',
                Outcome.FAILED,
                score=0,
                expected="x",
                actual=False,
                failure_code="CONTAINS_FAILED",
                message="It is not there.",
                evidence=(Evidence("output", 0, 2),),
                reasoning="",
            ),
            line=4,
        ),
        {
            "index": 0,
            "gen_ai.evaluation.name": "contains",
            "label": 'contains "x"',
            "gen_ai.evaluation.score.label": "failed",
            "gen_ai.evaluation.score.value": 0.0,
            "failure_code": "CONTAINS_FAILED",
            "message": Text("It is not there."),
            "expected": Text('"x"'),
            "actual": Text("false"),
            "evidence": [{"source": "output", "start": 0, "end": 2}],
            "duration_ms": 0.0,
            "line": 4,
        },
    ),
    (
        ExecutionFinished(status=Status.PASSED, output="", latency_ms=0.0),
        {
            "status": "passed",
            "output": Text(""),
            "answers": 0,
            "latency_ms": 0.0,
            "cost_source": "unknown",
        },
    ),
]


@pytest.mark.parametrize(("event", "stored"), STORED, ids=lambda value: getattr(value, "type", ""))
def test_an_event_is_stored_under_these_keys(event: Payload, stored: dict[str, object]) -> None:
    data = new_event(event).data
    assert data == stored
    kinds = {key: type(value) for key, value in data.items() if isinstance(value, float | int)}
    assert kinds == {key: type(stored[key]) for key in kinds}


WHOLE = {"suite": 0, "test": "t", "target": "m", "repeat": 1, "attempt": 1, "messages": []}


@pytest.mark.parametrize(
    ("changes", "path", "problem"),
    [
        ({"attempt": "1"}, ("attempt",), "Input should be a valid integer"),
        ({"attempt": True}, ("attempt",), "Input should be a valid integer"),
        ({"other": 1}, ("other",), "Extra inputs are not permitted"),
        ({"messages": {}}, ("messages",), "Input should be a valid list"),
        ({"messages": [{"role": "user"}]}, ("messages", "text"), "Field required"),
        (
            {"messages": [{"role": "user", "text": "Hi"}]},
            ("messages", "text"),
            "Input should be a reference to a text",
        ),
        (
            {"messages": [{"role": "robot", "text": {"$ref": "r"}}]},
            ("messages", "role"),
            "Input should be 'system' or 'user' or 'assistant' or 'tool'",
        ),
    ],
)
def test_an_event_of_another_form_is_refused_with_the_place_of_it(
    changes: dict[str, object], path: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(EventError, match=problem) as refused:
        load_event("execution.started", WHOLE | changes, str)
    assert refused.value.path == path


def test_every_type_of_event_is_known_by_its_name() -> None:
    assert all(name == event.type for name, event in EVENTS.items())
    assert len(EVENTS) == 30
