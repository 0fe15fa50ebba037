"""Programs as agents under test: the output of a program is its answer.

A program gets its variables as arguments, but no message and no input. Lines of its output may be
reports; the others are the text: see "agents and commands" in docs/reference/configuration.md.

An invalid report (without a name, of another kind, with another key, not JSON, cut off, or within
another line) is text, with a warning. It may be a forbidden tool call, so the answer also gets a
call without a known name. An `output_json` without its value is an error.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kindlm.agents.reply_parts import ABSENT, AGENT_RULE, UnreadableReply, compact_json, not_decoded
from kindlm.agents.sandbox import (
    MAX_OUTPUT_BYTES,
    LocalSandbox,
    ProgramWho,
    Sandbox,
    SandboxError,
    StartedProgram,
    TooMuchOutput,
    how_it_ended,
)
from kindlm.agents.tool_entries import call_warnings
from kindlm.errors import DOCS, Err, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.strict_json import parse_json, unique_keys
from kindlm.suite import Command
from kindlm.transcript import UNNAMED, UNREAD_LINES, ToolCall, ToolUse

_LINE_END = re.compile(r"\r\n|\n")
_MARKER = re.compile(r"""\{\s*["']kindlm\b|\bkindlm\\*["']\s*:""", re.IGNORECASE)
"""A report, valid or not: escaped, after other words, or written like a Python dict."""

_BEGINNING = '{"kindl'
"""The last line may be a part of this: a report that was cut off within its key."""

_KEY = "kindlm"
_KEYS = {"tool_call": ("name", "arguments", "response", "id"), "output_json": ("value", "data")}
_MAX_WARNINGS = 5

_REPORTS_HINT = f"What a program may print: {DOCS}/reference/configuration/#agents-and-commands"

PRINT_UTF_8 = "Print UTF-8; for Python, set PYTHONUTF8=1 in the environment"


def printed_reply(raw: str, latency_ms: float = 0.0) -> AgentReply:
    """Return the reply in an output; raises `UnreadableReply` if `output_json` lacks its value."""
    lines, uses, problems, value = list[str](), list[ToolUse](), list[str](), ABSENT
    numbered = 0
    for number, line in enumerate(_LINE_END.split(raw.removeprefix("\ufeff")), start=1):
        if not _MARKER.search(line):
            lines.append(line)
            continue
        try:
            report = parse_json(line, unique_keys)
        except ValueError:
            report = None
        if (problem := _problem(report)) is not None:
            lines.append(line)
            problems.append(f"line {number} of the output was taken as text: {problem}")
        elif report[_KEY] == "output_json":
            value = report["value"] if "value" in report else report["data"]
        else:
            call_id = report.get("id")
            if not call_id:
                call_id, numbered = f"cmd_tc_{numbered}", numbered + 1
            call = ToolCall.parse(call_id, report["name"], report.get("arguments"))
            uses.append(ToolUse(call, report.get("response"), AGENT_RULE))
    begun = "".join(line.split())
    if len(begun) > 1 and _BEGINNING.startswith(begun):
        problems.append(f"line {number} of the output was taken as text: {_problem(None)}")
    text = "\n".join(lines).strip("\r\n")
    reports_tools = bool(uses) or value is not ABSENT
    if problems:
        uses.append(ToolUse(ToolCall(UNREAD_LINES, UNNAMED, {}), None, AGENT_RULE))
    warnings = [*problems[:_MAX_WARNINGS], *call_warnings(uses)]
    warnings = [*not_decoded(raw, PRINT_UTF_8), *warnings]
    if value is not ABSENT and text:
        warnings.append("other output beside output_json is not part of the answer")
    text = text if value is ABSENT else compact_json(value)
    return AgentReply(
        text, raw, latency_ms, tuple(uses), warnings=tuple(warnings), reports_tools=reports_tools
    )


def _problem(report: Any) -> str | None:
    """Return why the JSON value of a line is not a report; None if it is one."""
    if not isinstance(report, dict) or _KEY not in report:
        return f"a report must be one complete JSON object on one line, with the key `{_KEY}`"
    kind = report[_KEY]
    keys = _KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        return f"`kindlm` must be {' or '.join(map(repr, _KEYS))}"
    if kind == "output_json" and len(report.keys() & keys) != 1:
        raise UnreadableReply("output_json needs a `value`, which may be named `data`")
    name, call_id = report.get("name"), report.get("id", "")
    texts = kind == "output_json" or (isinstance(name, str) and isinstance(call_id, str) and name)
    if not texts or report.keys() - {_KEY, *keys}:
        return f"{kind} has the keys {', '.join(keys)}; `name` and `id` are texts"
    return None


class CommandAgent(Agent):
    """Starts the program anew for each message."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self._who = ProgramWho("command", words=command.words)
        self._sandbox = LocalSandbox(Path(command.directory), environ)

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        who = self._who
        return await run_once(self._sandbox, who, who.words, b"", request.timeout_s)


async def run_once(
    sandbox: Sandbox, who: ProgramWho, words: Sequence[str], given: bytes, timeout_s: float
) -> Result[AgentReply]:
    """Run a program to its end, and return its output as the answer of an agent.

    `words` are the words of `who` with all placeholders filled in. kindlm never retries a program,
    which may have effects.
    """
    begun, output = time.perf_counter(), bytearray()
    program: StartedProgram | None = None

    def printed() -> str:
        return output.decode("utf-8", "replace")

    try:
        async with AsyncExitStack() as stack, asyncio.timeout(timeout_s):
            starting = sandbox.start(words, given, MAX_OUTPUT_BYTES)
            program = await stack.enter_async_context(starting)
            while line := await program.read_line():
                if len(output) + len(line) > MAX_OUTPUT_BYTES:
                    raise TooMuchOutput  # noqa: TRY301 - as the sandbox does
                output += line
            latency_ms = (time.perf_counter() - begun) * 1000
            code = await program.exit_code()
    except (TimeoutError, TooMuchOutput, SandboxError, OSError, ValueError) as raised:
        log = "" if program is None else program.log
        return Err(who.broke_off(raised, log, timeout_s, printed=printed()))
    if code != 0:
        what = "closed its output and went on" if code is None else how_it_ended(code)
        return Err(who.program_failure(what, program.log, printed=printed()))
    try:
        return Ok(printed_reply(printed(), latency_ms))
    except UnreadableReply as unreadable:
        return Err(who.unreadable(unreadable, printed(), hint=_REPORTS_HINT))
