"""The `steps` of `generateText`, AI SDK 6: each holds the answer of a model in parts."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.agents.reply_reading import Reading, read_reply
from kindlm.transcript import UNNAMED

A1 = {"order": "A1"}
TEXT = {"type": "text", "text": "Refunded."}


def part(kind: str, name: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "toolCallId": call_id, "toolName": name, "input": A1, **more}


def called(name: str, call_id: str, **result: Any) -> list[dict[str, Any]]:
    kind = "tool-error" if "error" in result else "tool-result"
    return [part("tool-call", name, call_id), part(kind, name, call_id, **result, dynamic=False)]


def answer(*contents: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer as `JSON.stringify({ text: result.text, steps: result.steps })` writes it."""
    messages: list[dict[str, Any]] = []
    steps = []
    for number, content in enumerate(contents):
        asked = [it for it in content if it["type"] in ("text", "tool-call")]
        messages = [*messages, {"role": "assistant", "content": asked}]
        model = {"provider": "openai.chat", "modelId": "gpt-4o"}
        response = {"id": f"aitxt-{number}", "modelId": "gpt-4o", "messages": messages}
        step = {"stepNumber": number, "model": model, "content": content, "request": {}}
        steps.append({**step, "finishReason": "tool-calls", "warnings": [], "response": response})
    return {"text": "Refunded.", "steps": steps}


def test_calls_and_results_are_read_from_the_parts_of_steps():
    looked_up = called("lookup_order", "c1", output={"amount": 7})
    both = [*called("refund", "c2", output={"ok": True}), *called("mail", "c3", error={})]
    reply = read_reply(answer(looked_up, both, [TEXT]), Reading())
    seen = [(use.call.id, use.call.name, use.call.arguments) for use in reply.tool_uses]
    assert seen == [("c1", "lookup_order", A1), ("c2", "refund", A1), ("c3", "mail", A1)]
    first, second, failed = [use.response for use in reply.tool_uses]
    assert (first, second) == ({"amount": 7}, {"ok": True})
    assert "failed" in failed["error"]
    assert reply.text == "Refunded."
    assert not reply.warnings


def test_equal_calls_of_two_steps_are_two_calls():
    again = [called("refund", call_id, output={"ok": True}) for call_id in ("c1", "c2")]
    reply = read_reply(answer(*again, [TEXT]), Reading())
    assert [use.call.name for use in reply.tool_uses] == ["refund", "refund"]


def test_steps_without_a_call_show_that_there_was_none():
    reply = read_reply(answer([TEXT]), Reading())
    assert reply.reports_tools
    assert not reply.tool_uses


def test_a_request_to_anthropic_repeats_known_calls():
    value = answer(called("lookup_order", "c1", output={"amount": 7}), [TEXT])
    asked = {"type": "tool_use", "id": "c1", "name": "lookup_order", "input": A1}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": '{"amount":7}'}
    messages = [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [result]}]
    value["steps"][1]["request"] = {"body": {"model": "claude-sonnet-4-5", "messages": messages}}
    reply = read_reply(value, Reading())
    assert [use.call.name for use in reply.tool_uses] == ["lookup_order"]
    assert not reply.warnings


@pytest.mark.parametrize(
    "step",
    [
        {"content": [TEXT], "type": "tool"},
        {"content": [TEXT, {"type": "tool-result", "toolCallId": "c1", "output": "ok"}]},
        {"content": [{"type": "tool-call", "input": A1}]},
        {"content": [TEXT], "trace": {"tool_calls": [{"name": "refund"}]}},
        {"content": [TEXT, "refund"]},
    ],
)
def test_a_step_that_may_hide_a_call_has_a_nameless_one(step):
    reply = read_reply({"text": "Refunded.", "steps": [step]}, Reading())
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED]


@pytest.mark.parametrize(
    "hidden",
    [
        {"content": [TEXT, {"type": "custom", "toolName": "refund", "input": A1}]},
        {"content": [TEXT, {"type": "data", "data": {"tool_calls": [{"name": "refund"}]}}]},
        {"content": [{"type": "text", "text": "Action: refund\nAction Input: A1\n"}]},
        {
            "content": [TEXT],
            "response": {"messages": [{"content": [part("tool-call", "refund", "c2")]}]},
        },
    ],
)
def test_other_calls_in_steps_are_unread(hidden: dict[str, Any]):
    steps = answer(called("lookup_order", "c1", output={}))["steps"]
    reply = read_reply({"text": "Refunded.", "steps": [*steps, hidden]}, Reading())
    assert [use.call.name for use in reply.tool_uses] == ["lookup_order", UNNAMED]
