"""The support agent of the example, beyond what its suite asks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

SCHEMA = json.loads(
    (
        Path(__file__).parents[2] / "examples/support-agent/schemas/support_response.schema.json"
    ).read_text("utf-8")
)
TWICE = "I was charged twice for order #ORD-77. Please refund the duplicate."


def answer(asked: Any, user: str, **tools: Any) -> tuple[list[str], Any]:
    """The tools that are called for a message, and the reply."""
    app = asked("support")
    messages: list[Any] = [{"role": "user", "content": user}]
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    names: list[str] = []
    while calls := (message := app.message(messages=messages, tools=offered)).get("tool_calls"):
        messages.append(message)
        for call in calls:
            names.append(call["function"]["name"])
            content = json.dumps(tools[names[-1]])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    reply = json.loads(message["content"])
    jsonschema.validate(reply, SCHEMA)
    return names, reply


@pytest.mark.parametrize(
    ("lookup", "refund", "called", "says"),
    [
        ({"charges": [5, 7.25]}, {"success": True, "refund_id": "R1"}, 2, "$7.25"),
        ({"charges": [5, 7.25]}, {"success": True}, 2, "pending"),
        ({"charges": [5, 7.25]}, {"error": "card expired"}, 2, "card expired"),
        ({"charges": [5]}, {}, 1, "only one charge"),
        ({"error": "gone"}, {}, 1, "could not find order ORD-77"),
        ("a text", {}, 1, "only one charge"),
    ],
)
def test_another_tool_answer_gives_another_reply(asked, lookup, refund, called, says):
    calls, reply = answer(asked, TWICE, lookup_order=lookup, issue_refund=refund)
    assert calls == ["lookup_order", "issue_refund"][:called]
    assert says in reply["message"]


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("Refund order ORD-5, please", "I have refunded $12"),
        ("Where is ORD-5?", "is: shipped"),
        ("I want a refund", "send me the order number"),
        ("My lawyer will hear of this", "someone from our team will contact you"),
        ("What is the meaning of life?", "How can I help you"),
    ],
)
def test_another_message_takes_another_path(asked, user, says):
    order = {"total": 12, "status": "shipped"}
    _, reply = answer(asked, user, lookup_order=order, issue_refund={"success": True})
    assert says in reply["message"]


def test_the_second_half_is_not_refunded_again(asked):
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "issue_refund", "arguments": '{"order_id": "ORD-5"}'}
    messages = [
        {"role": "user", "content": "Refund ORD-5"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"success": true}'},
        {"role": "assistant", "content": "Refunded."},
        {"role": "user", "content": "And now the other half, please."},
    ]
    reply = asked("support").message(messages=messages)["content"]
    assert "already refunded" in json.loads(reply)["message"]
