"""What requests of each wire format say, with bodies as their providers document them."""

from typing import Any

import pytest

from kindlm.transcript import Message, Role, ToolCall
from kindlm.wires import Wire
from kindlm.wires.reading import read_request

CALL = ToolCall("c1", "refund", {"order": 7})
FUNCTION = {"name": "refund", "arguments": '{"order": 7}'}
ITEM = {"type": "function_call", "id": "f1", "call_id": "c1"} | FUNCTION
SYSTEM = Message(Role.SYSTEM, "Be brief.")
HELLO = Message(Role.USER, "Refund 7")
REQUESTS: dict[Wire, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "refund"}}],
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Refund 7"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": '{"done": true}'},
        ],
    },
    "responses": {
        "model": "m",
        "stream": True,
        "previous_response_id": "resp_0",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "refund"}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Refund 7"}]},
            {"type": "reasoning", "id": "rs_1"},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "refund",
                "arguments": '{"order": 7}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": '{"done": true}'},
        ],
    },
    "anthropic": {
        "model": "m",
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "refund", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "Refund 7"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "refund", "input": {"order": 7}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": '{"done": true}'}],
                    }
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("wire", REQUESTS)
def test_a_request_has_messages_results_and_tools(wire: Wire) -> None:
    request = read_request(wire, REQUESTS[wire])

    assert request.messages == (
        SYSTEM,
        HELLO,
        Message(Role.ASSISTANT, "", (CALL,)),
        Message(Role.TOOL, '{"done": true}', (), "c1"),
    )
    assert request.tool_results == {"c1": {"done": True}}
    assert request.offers_tools
    assert request.continues == REQUESTS[wire].get("previous_response_id")


def test_a_request_in_the_older_form_offers_functions() -> None:
    assert read_request("chat", {"functions": [{"name": "refund"}]}).offers_tools


def test_a_request_of_openai_responses_may_be_a_text() -> None:
    assert read_request("responses", {"model": "m", "input": "Refund 7"}).messages == (HELLO,)


def test_calls_in_a_request_belong_to_the_message_of_the_assistant_before_them() -> None:
    items = [{"role": "assistant", "content": "Wait."}, ITEM, {"role": "user", "content": "Hi"}]
    assert read_request("responses", {"input": items}).messages == (
        Message(Role.ASSISTANT, "Wait.", (ToolCall("c1", "refund", {"order": 7}),)),
        Message(Role.USER, "Hi"),
    )


def test_a_call_in_a_request_may_have_no_type() -> None:
    item = {"call_id": "c1"} | FUNCTION

    request = read_request("responses", {"input": [item]})

    assert request.messages == (Message(Role.ASSISTANT, "", (CALL,)),)


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_a_part_of_a_request_without_a_text_is_its_type(wire: Wire) -> None:
    parts = [{"type": "text", "text": "Look: "}, {"type": "image", "source": {}}]
    request = read_request(wire, {"messages": [{"role": "user", "content": parts}]})
    assert [message.text for message in request.messages] == ["Look: [image]"]


@pytest.mark.parametrize(
    ("wire", "key", "odd"),
    [
        ("chat", "messages", {"role": "assistant", "tool_calls": [{"id": "c1"}]}),
        ("responses", "input", {"type": "function_call", "call_id": "c1"}),
        ("anthropic", "messages", {"role": "user", "content": [{"type": "tool_use"}]}),
    ],
)
def test_a_request_with_a_call_that_cannot_be_read_has_no_messages(
    wire: Wire, key: str, odd: dict[str, Any]
) -> None:
    """Results of other calls in it do not count, so that checks of tools stay undecided."""
    said = {"role": "user", "content": "Hi"}
    assert len(read_request(wire, {key: [said]}).messages) == 1
    assert read_request(wire, {key: [said, odd]}).messages == ()


@pytest.mark.parametrize("depth", [1, 100_000])
def test_a_request_that_is_nested_too_deeply_has_no_messages(depth: int) -> None:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    calls = [{"id": "c1", "function": {"name": "x", "arguments": nested}}]

    request = read_request("chat", {"model": "m", "messages": [{"tool_calls": calls}]})

    assert len(request.messages) == int(depth == 1)


def test_a_failed_tool_of_anthropic_has_an_error() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "gone", "is_error": True}

    request = read_request("anthropic", {"messages": [{"role": "user", "content": [result]}]})

    assert request.tool_results == {"c1": {"error": "gone"}}
