"""The vectors of suites that are about programs as agents."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kindlm.agents.command_output import read_output
from kindlm.agents.json_values import ABSENT
from kindlm.transcript import ToolUse

Vector = dict[str, Any]

DEPARTURES: Final = {
    "command-013": "JSON is JSON: spaces in a report do not matter",
}


@pytest.mark.vectors("suite.jsonl", "command", departures=DEPARTURES)
def test_command(vector: Vector) -> None:
    expected = vector["expected"]
    output = read_output(vector["input"]["stdout"])
    assert output.text == expected["text"]
    assert [_called(use) for use in output.tool_uses] == expected["tool_calls"]
    value = None if output.output_json is ABSENT else output.output_json
    assert value == expected["output_json"]


def _called(use: ToolUse) -> dict[str, Any]:
    arguments = use.call.arguments if use.call.malformed is None else use.call.malformed
    return {"id": use.call.id, "name": use.call.name, "arguments": arguments}
