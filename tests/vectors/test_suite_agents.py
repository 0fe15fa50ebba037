"""The vectors of suites that are about programs as agents."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from vector_cases import Departure, unknown

from kindlm.agents.command import printed_reply
from kindlm.strict_json import compact_json
from kindlm.transcript import UNREAD_LINES, ToolUse

Vector = dict[str, Any]


def spaced_reports(case: Vector) -> list[str]:
    """Return the lines that are reports of calls and have spaces that JSON does not mind."""
    lines = case["input"]["stdout"].splitlines()
    return [
        line for line in lines if _is_report(line) and not line.lstrip().startswith('{"kindlm"')
    ]


def _is_report(line: str) -> bool:
    try:
        read = json.loads(line)
    except ValueError:
        return False
    return isinstance(read, dict) and "kindlm" in read


DEPARTURES: Final = (
    Departure(
        "JSON is JSON: spaces in a report do not matter",
        lambda case: bool(spaced_reports(case)),
        lambda case: {
            "text": "\n".join(
                line
                for line in case["expected"]["text"].splitlines()
                if line not in spaced_reports(case)
            ),
            "tool_calls": ...
            if len(spaced_reports(case)) > 1 or case["expected"]["tool_calls"]
            else [
                {"id": "cmd_tc_0", "name": read["name"], "arguments": read.get("arguments", {})}
                for read in map(json.loads, spaced_reports(case))
            ],
        },
    ),
)


@pytest.mark.vectors("suite.jsonl", "command", departures=DEPARTURES, beside=("exit_code",))
def test_command(vector: Vector) -> None:
    expected = vector["expected"]
    if vector["input"].get("exit_code", 0):
        unknown("a program that fails")
    reply = printed_reply(vector["input"]["stdout"])
    value = expected["output_json"]
    assert reply.text == (expected["text"] if value is None else compact_json(value))
    called = [use for use in reply.tool_uses if use.call.id != UNREAD_LINES]
    assert [_called(use) for use in called] == expected["tool_calls"]


def _called(use: ToolUse) -> dict[str, Any]:
    arguments = use.call.arguments if use.call.malformed is None else use.call.malformed
    return {"id": use.call.id, "name": use.call.name, "arguments": arguments}
