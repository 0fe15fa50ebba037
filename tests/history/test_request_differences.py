"""What is said of a request that was never recorded: how it differs from one that was."""

from __future__ import annotations

from kindlm.events.execution_events import ProviderRequested
from kindlm.history.replayed_answers import differences
from kindlm.ports import Asked, ModelRequest, Purpose, ToolDefinition
from kindlm.suite import ModelParams


def tool_of(name: str, description: str = "") -> ToolDefinition:
    return ToolDefinition(name, description, {})


def test_tools_that_differ_are_named_in_the_order_of_the_suite() -> None:
    names = [f"tool_{number}" for number in range(20)]
    now = tuple(tool_of(name, "Finds it.") for name in names)
    request = ModelRequest("m", (), ModelParams(0.0, 9), 1.0, (tool_of("new"), *now))
    then = [{"name": name, "description": "", "parameters": {}} for name in ("gone", *names)]
    recorded = ProviderRequested(
        purpose="test",
        provider="p",
        model="m",
        call=1,
        fingerprint="",
        parameters={"temperature": 0.0, "max_tokens": 9},
    )
    said = list(differences(Asked(Purpose.TEST, "p", "", request), recorded, then))
    assert said == [
        'the tool "new" is new',
        *(f'the tool "{name}" has a different description' for name in names),
        'the tool "gone" is gone',
    ]
