"""What is said of a request that was never recorded: how it differs from one that was."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from kindlm.events.execution_events import ProviderRequested
from kindlm.history.replayed_answers import as_asked, form_of, is_as_recorded
from kindlm.ports import ToolDefinition
from kindlm.transcript import Message, Role, ToolCall
from kindlm.wording import differences

HELLO = Message(Role.USER, "Hello")
CALL = Message(Role.ASSISTANT, "", tool_calls=(ToolCall("c1", "find", {"id": 1}),))
BYE = Message(Role.ASSISTANT, "Bye")
PREFILL = Message(Role.ASSISTANT, "{", prefill=True)


def tool_of(name: str, description: str = "") -> ToolDefinition:
    return ToolDefinition(name, description, {"x": 1})


def recorded(*messages: Message) -> ProviderRequested:
    return ProviderRequested(
        purpose="test",
        provider="p",
        model="m",
        call=1,
        fingerprint="",
        parameters={"temperature": 0.0, "max_tokens": 9},
        messages=messages,
    )


def told(
    then: ProviderRequested,
    *messages: Message,
    provider: str = "p",
    tools: tuple[ToolDefinition, ...] = (),
    tools_then: list[dict[str, Any]] | None = None,
) -> list[str]:
    """Return how a request with these messages differs from one that was recorded."""
    parameters, recorded_tools = {"temperature": 0.0, "max_tokens": 9}, tools_then or []
    now = form_of(provider, "m", parameters, map(asdict, tools), messages)
    messages_then = as_asked(then.messages, messages)
    return list(
        differences(
            form_of(then.provider, then.model, then.parameters, recorded_tools, messages_then), now
        )
    )


@pytest.mark.parametrize(
    ("now", "then", "difference"),
    [
        ((), (HELLO,), 'messages[0]: {"role": "user", "content": "Hello"} → nothing'),
        ((HELLO, BYE), (HELLO,), 'messages[1]: nothing → {"role": "assistant", "content": "Bye"}'),
        (
            (PREFILL,),
            (),
            'messages[0]: nothing → {"role": "assistant", "content": "{", "prefill": true}',
        ),
        (
            (CALL,),
            (Message(Role.ASSISTANT, "", tool_calls=(ToolCall("c1", "find", {"id": 2}),)),),
            "messages[0].tool_calls[0][2].id: 2 → 1",
        ),
        (
            (Message(Role.TOOL, "1", tool_call_id="c2", tool_name="find"),),
            (Message(Role.TOOL, "1", tool_call_id="c1"),),
            'messages[0].tool_call_id: "c1" → "c2"',
        ),
    ],
)
def test_the_message_that_differs_is_named(
    now: tuple[Message, ...], then: tuple[Message, ...], difference: str
) -> None:
    assert told(recorded(*then), *now) == [difference]


def test_another_role_and_another_provider_are_named() -> None:
    said = Message(Role.ASSISTANT, "{")
    assert told(recorded(PREFILL), said, provider="q") == [
        'provider: "p" → "q"',
        "messages[0].prefill: true → nothing",
    ]


def deferred(name: str) -> str:
    """Return what stands in a suite for a value of the environment."""
    return f"\ufdd0{{{{{name}}}}}"


@pytest.mark.parametrize(
    ("then", "is_same"),
    [
        ("At 1 in 2 for 3!", True),
        ("At  in  for !", True),
        ("At 1 for 3!", False),
        ("At 1 in 2 for 3", False),
        ("In 1 in 2 for 3!", False),
        ("At 1 in for!", False),
    ],
)
def test_values_of_the_environment_may_have_been_any(then: str, is_same: bool) -> None:
    written = f"At {deferred('env.A')} in {deferred('env.B')} for {deferred('env.C')}!"
    message = Message(Role.USER, "At x in y for z!", written=written)
    assert is_as_recorded(message, then) is is_same


def test_values_of_the_environment_do_not_differ() -> None:
    message = Message(Role.USER, "At 1!", written=f"At {deferred('env.A')}!")
    assert told(recorded(Message(Role.USER, "At 2!")), message) == []


def test_a_tool_that_takes_any_arguments_is_as_recorded() -> None:
    tool = ToolDefinition("find", None, {"type": "object", "properties": {}})
    then = [{"name": "find", "description": None, "parameters": None}]
    assert told(recorded(), tools=(tool,), tools_then=then) == []


def test_tools_differ_if_a_secret_was_removed_from_the_names_in_them() -> None:
    then = [{"name": "find", "description": "", "[redacted]": {"x": 1}}]
    assert told(recorded(), tools=(tool_of("find"),), tools_then=then) == [
        'tools.find.[redacted]: {"x": 1} → nothing',
        'tools.find.parameters.type: "object" → nothing',
        "tools.find.parameters.properties: {} → nothing",
        "tools.find.parameters.x: nothing → 1",
    ]


def test_tools_that_differ_are_named() -> None:
    names = ("same", "other")
    now = tuple(tool_of(name, "Finds it." if name == "other" else "") for name in names)
    then = [{"name": name, "description": "", "parameters": {"x": 1}} for name in ("gone", *names)]
    assert told(recorded(), tools=(tool_of("new"), *now), tools_then=then) == [
        'tools.gone: {"name": "gone", "description": "", "parameters": {"x": 1}} → nothing',
        'tools.other.description: "" → "Finds it."',
        'tools.new: nothing → {"name": "new", "description": "", "parameters": {"x": 1}}',
    ]
