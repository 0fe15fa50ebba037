"""What a command says on its output.

A line that is a JSON object with the key `kindlm` is a report, all other lines are the text:

- `{"kindlm": "tool_call", "name", "arguments", "id"?, "response"?}`: it called a tool
- `{"kindlm": "output_json", "value"}`: its answer is this value; the last one counts

A report that is no such thing (no name, no value, another kind) is text, so that it can be seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kindlm.agents.json_values import ABSENT, compact_json, parse_json
from kindlm.agents.tool_entries import AGENT_RULE, tool_call
from kindlm.transcript import ToolUse

__all__ = ["CommandOutput", "read_output"]

_LINE_END = re.compile(r"\r\n|\n")


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The text that was printed, the tools that were called, and the JSON answer if there is one.

    `output_json` is `ABSENT` without a report of one: null is an answer.
    """

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    output_json: Any = ABSENT

    @property
    def answer(self) -> str:
        """What checks look at: the JSON answer as text if there is one, else the text."""
        return self.text if self.output_json is ABSENT else compact_json(self.output_json)


def read_output(stdout: str) -> CommandOutput:
    """Read all that a command printed."""
    lines, uses, value = list[str](), list[ToolUse](), ABSENT
    numbered = 0
    for line in _LINE_END.split(stdout):
        report = _report(line)
        match report:
            case {"kindlm": "tool_call", "name": str(name)} if name:
                call_id = report.get("id")
                if not isinstance(call_id, str) or not call_id:
                    call_id, numbered = f"cmd_tc_{numbered}", numbered + 1
                call = tool_call(call_id, name, report.get("arguments"))
                uses.append(ToolUse(call, report.get("response"), AGENT_RULE))
            case {"kindlm": "output_json", "value": _}:
                value = report["value"]
            case _:
                lines.append(line)
    return CommandOutput("\n".join(lines).strip("\r\n"), tuple(uses), value)


def _report(line: str) -> dict[str, Any]:
    """Return the object that a line is if it may be a report."""
    if '"kindlm"' not in line:
        return {}
    try:
        value = parse_json(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
