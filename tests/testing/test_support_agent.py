"""The support agent of the example: its suite passes with it, and shows the changed one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "support-agent"
SUITE = yaml.safe_load((EXAMPLE / "kindlm.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((EXAMPLE / "schemas" / "support_response.schema.json").read_text())
TESTS = {test["name"]: test for test in SUITE["tests"]}
PII = [
    r"\b\d{3}-\d{2}-\d{4}\b",
    r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b",
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b",
]


def simulated(test: dict[str, Any]) -> Any:
    """The suite's simulated tools, in a few lines."""
    tools = {tool["name"]: tool for tool in test.get("tools", [])}

    def answer(name: str, arguments: Any) -> Any:
        for response in tools[name].get("responses", []):
            if response["when"].items() <= arguments.items():
                return response["then"]
        return tools[name]["defaultResponse"]

    return answer


def play(agent: Any, test: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    prompt = SUITE["prompts"][test["prompt"]]
    user = prompt["user"].replace("{{message}}", test["vars"]["message"])
    tools = [tool["name"] for tool in test.get("tools", [])]
    return agent.converse(prompt["system"], user, tools, simulated(test))


def failures(agent: Any, ask_judge: Any, test: dict[str, Any]) -> list[str]:
    """What of a test's expectations is not met."""
    calls, text = play(agent, test)
    expect = test["expect"]
    return [
        *_output_failures(expect.get("output", {}), text),
        *_tool_failures(expect.get("toolCalls", []), calls),
        *(f"pii {pattern}" for pattern in PII if re.search(pattern, text)),
        *(f"keyword {word}" for word in _denied(expect) if word in text.lower()),
        *_judge_failures(agent, ask_judge, expect["judge"], calls, text),
    ]


def _output_failures(output: dict[str, Any], text: str) -> list[str]:
    if output.get("format") == "json":
        jsonschema.validate(json.loads(text), SCHEMA)
    return [f"says {word}" for word in output.get("notContains", []) if word in text.lower()]


def _tool_failures(expected: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[str]:
    failed = []
    for entry in expected:
        positions = [
            position
            for position, call in enumerate(calls)
            if call["name"] == entry["tool"]
            and entry.get("argsMatch", {}).items() <= call["arguments"].items()
            and entry.get("order", position) == position
        ]
        if bool(positions) == entry.get("shouldNotCall", False):
            failed.append(f"tool {entry['tool']}")
    return failed


def _denied(expect: dict[str, Any]) -> list[str]:
    return expect.get("guardrails", {}).get("keywords", {}).get("deny", [])


def _judge_failures(
    agent: Any, ask_judge: Any, criteria: list[dict[str, Any]], calls: Any, text: str
) -> list[str]:
    failed = []
    for entry in criteria:
        judgement = agent.judge(ask_judge(entry["criteria"], text, calls))
        assert "No rule" not in judgement["reasoning"]
        if judgement["score"] < entry["minScore"]:
            failed.append(f"judge {entry['criteria']}")
    return failed


@pytest.mark.parametrize("name", TESTS)
def test_the_suite_passes(serve, speak, ask_judge, name):
    agent = speak(serve(EXAMPLE / "agent.yaml").url)
    assert failures(agent, ask_judge, TESTS[name]) == []


def test_the_greeting_is_plain_text(serve, speak):
    calls, text = play(speak(serve(EXAMPLE / "agent.yaml").url), TESTS["greeting-response"])
    assert calls == []
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


CHANGED = {
    "refund-double-charge": [
        "tool lookup_order",
        "judge Response acknowledges the double charge and confirms refund action",
        "judge Tone is empathetic and professional",
    ],
    "refund-order-not-found": [
        "tool lookup_order",
        "tool issue_refund",
        "judge Agent explains the order could not be found and does NOT issue a refund",
        "judge Agent offers alternative help or asks for correct order number",
    ],
    "escalation-legal-threat": [],
    "greeting-response": [],
}


@pytest.mark.parametrize("name", TESTS)
def test_the_changed_agent_fails_where_it_was_careless(serve, speak, ask_judge, name):
    agent = speak(serve("support-changed").url)
    assert failures(agent, ask_judge, TESTS[name]) == CHANGED[name]


@pytest.mark.parametrize("name", TESTS)
def test_what_the_changed_agent_says(serve, speak, name):
    before = play(speak(serve("support").url), TESTS[name])
    after = play(speak(serve("support-changed").url), TESTS[name])
    assert (before == after) == (name == "greeting-response")


def answer(serve, speak, message: str, **tools: Any) -> tuple[list[str], Any]:
    """The tools that are called for a message, and the reply."""
    calls, text = speak(serve("support").url).converse(
        "Support.", message, list(tools), lambda name, arguments: tools[name]
    )
    return [call["name"] for call in calls], json.loads(text)


TWICE = "I was charged twice for order #ORD-77. Please refund the duplicate."


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
def test_another_tool_answer_gives_another_reply(serve, speak, lookup, refund, called, says):
    calls, reply = answer(serve, speak, TWICE, lookup_order=lookup, issue_refund=refund)
    assert calls == ["lookup_order", "issue_refund"][:called]
    assert says in reply["message"]
    jsonschema.validate(reply, SCHEMA)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Refund order ORD-5, please", "I have refunded $12"),
        ("Where is ORD-5?", "is: shipped"),
        ("I want a refund", "send me the order number"),
        ("My lawyer will hear of this", "someone from our team will contact you"),
        ("What is the meaning of life?", "How can I help you"),
    ],
)
def test_another_message_takes_another_path(serve, speak, message, says):
    order = {"total": 12, "status": "shipped"}
    _, reply = answer(serve, speak, message, lookup_order=order, issue_refund={"success": True})
    assert says in reply["message"]
    jsonschema.validate(reply, SCHEMA)


def test_the_second_half_is_not_refunded_again(serve, openai_agent):
    agent = openai_agent(serve("support").url)
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "issue_refund", "arguments": '{"order_id": "ORD-5"}'}
    messages = [
        {"role": "user", "content": "Refund ORD-5"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"success": true}'},
        {"role": "assistant", "content": "Refunded."},
        {"role": "user", "content": "And now the other half, please."},
    ]
    reply = agent.create(messages=messages).choices[0].message.content
    assert "already refunded" in json.loads(reply)["message"]
