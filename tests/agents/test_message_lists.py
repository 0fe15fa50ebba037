"""Lists of messages: each form of a tool call in them is read, or noticed."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.agents.langgraph_replies import Sent, read_parts, read_value
from kindlm.transcript import UNNAMED

ASKED = {"role": "user", "content": "Refund A1."}
DONE = {"role": "assistant", "content": "It is refunded."}
SAID = {"type": "message", "role": "assistant", "id": "__fake_id__",
        "content": [{"type": "output_text", "text": "It is refunded."}]}  # fmt: skip
ORDER = {"order_id": "A1"}
ANTHROPIC = [
    {"role": "assistant",
     "content": [{"type": "text", "text": "Now."},
                 {"type": "tool_use", "id": "t1", "name": "refund", "input": ORDER}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "id": "__fake_id__", "call_id": "c1", "name": "refund",
             "arguments": '{"order_id": "A1"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
            SAID,
        ],
        [
            {"type": "mcp_call", "id": "m1", "name": "refund", "arguments": '{"order_id": "A1"}',
             "output": "ok"},
            SAID,
        ],
        [*ANTHROPIC, DONE],
        [{"type": "tool_use", "tool": "refund", "args": ORDER, "result": "ok"}, DONE],
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [[ASKED], []])
def test_calls_among_messages_are_read_with_their_results(
    items: list[Any], before: list[Any]
) -> None:
    reply = read_value([*before, *items], Sent("Refund A1.", has_history=True))
    (use,) = reply.tool_uses
    assert (use.call.name, use.call.arguments, use.response) == ("refund", ORDER, "ok")
    assert (reply.text, reply.warnings) == ("It is refunded.", ())


@pytest.mark.parametrize("key", ["messages", "steps", "intermediate_steps"])
def test_calls_are_read_however_deeply_their_lists_are_nested(key: str) -> None:
    call = {"type": "ai", "content": "", "tool_calls": [{"name": "refund", "args": {}}]}
    nested: Any = [call if key == "messages" else {"tool": "refund", "args": {}}]
    for _ in range(5_000):
        nested = [nested]
    reply = read_value({"messages": [DONE], "answer": "It is refunded.", key: nested}, Sent("Hi"))
    assert [use.call.name for use in reply.tool_uses] == ["refund"]


def test_calls_in_a_list_of_lists_are_read() -> None:
    call = {"type": "ai", "content": "", "tool_calls": [{"name": "refund", "args": {}}]}
    for messages in ([ASKED, [call], DONE], [[ASKED, call, DONE]]):
        reply = read_value({"messages": messages}, Sent("Refund A1."))
        assert [use.call.name for use in reply.tool_uses] == ["refund"]


def test_messages_of_one_list_are_different_whatever_their_ids() -> None:
    calls = [{"name": "look", "args": {}, "id": "c1"}, {"name": "refund", "args": {}, "id": "c2"}]
    messages = [{"type": "ai", "id": "m", "content": "", "tool_calls": [call]} for call in calls]
    state = {"messages": [ASKED, *messages, {"type": "ai", "id": "m", "content": "Done."}]}
    sent = Sent("Refund A1.")
    for reply in (read_value(state, sent), read_parts([("values", state)] * 2, sent)):
        assert [use.call.name for use in reply.tool_uses] == ["look", "refund"]
        assert reply.text == "Done."


def test_a_tool_of_the_provider_is_named_by_the_type_of_its_item() -> None:
    search = {"type": "web_search_call", "id": "w1", "action": {"query": "A1"}}
    (use,) = read_value([ASKED, search, SAID], Sent("Refund A1.")).tool_uses
    assert use.call.name == "web_search"


def test_a_failed_result_of_anthropic_is_an_error() -> None:
    failed = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    messages = [ASKED, ANTHROPIC[0], {"role": "user", "content": [failed]}, DONE]
    (use,) = read_value(messages, Sent("Refund A1.")).tool_uses
    assert use.response == {"error": "no"}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "content": [{"toolUse": {"name": "refund", "input": ORDER}}]},
         "content[0].toolUse"),
        ({"role": "model", "parts": [{"functionCall": {"name": "refund", "args": ORDER}}]},
         "parts[0].functionCall"),
        ({"role": "assistant", "parts": [{"type": "tool-refund", "toolCallId": "c1"}]}, "parts[0]"),
        ({"type": "action", "action": "refund", "action_input": {}}, "."),
        ({"type": "constructor", "kwargs": {"tool_calls": [{"name": "refund"}]}},
         "kwargs.tool_calls"),
    ],
)  # fmt: skip
def test_calls_that_a_message_hides_are_noticed(message: dict[str, Any], place: str) -> None:
    reply = read_value([ASKED, message, DONE], Sent("Refund A1."))
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED]
    assert f"`{place}` of the answer may contain tool calls" in reply.warnings[0]


def test_what_earlier_messages_hide_is_no_call_of_this_answer() -> None:
    earlier = {"role": "assistant", "content": [{"toolUse": {"name": "refund"}}]}
    reply = read_value([ASKED, earlier, {**ASKED, "content": "Thanks"}, DONE], Sent("Thanks"))
    assert (reply.tool_uses, reply.warnings) == ((), ())
