"""Programs as agents under test: what a program prints is its answer.

It gets its variables as arguments, no message and no input: it answers once, with its whole run.

A line that is a JSON object with the key `kindlm`, in any case, is a report, all other lines are
the text:

- `{"kindlm": "tool_call", "name", "arguments", "id"?, "response"?}`: it called a tool
- `{"kindlm": "output_json", "value"}`: its answer is this value; the last one counts. `data` is
  another name of `value`

A line with the key `kindlm` that is no such thing (no name, another kind or key, no JSON, cut off,
within another line) is text, and there is a warning of it. It may be the tool call that a test
forbids: the answer has a call without a known name then. An `output_json` without its value is an
error, since the answer is unknown.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kindlm.agents import agent_failures
from kindlm.agents.process_group import Output, TooMuchOutput, how_it_ended, started
from kindlm.agents.reply_parts import ABSENT, AGENT_RULE, UnreadableReply, compact_json
from kindlm.agents.sandbox import MAX_OUTPUT_BYTES, TOO_MUCH, program_name, runnable
from kindlm.agents.tool_entries import call_warnings
from kindlm.errors import DOCS, Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json, unique_keys
from kindlm.suite import Command
from kindlm.transcript import UNNAMED, UNREAD_LINES, ToolCall, ToolUse

_LINE_END = re.compile(r"\r\n|\n")
_MARKER = re.compile(r"""\{\s*["']kindlm\b|\bkindlm\\*["']\s*:""", re.IGNORECASE)
"""A report, or what was meant as one: escaped, after other words, as Python writes objects."""

_KEY = "kindlm"
_BEGINNING = '{"kindlm"'
_KEYS = {
    "tool_call": ("name", "arguments", "response", "id"),
    "output_json": ("value", "data"),
}
_MAX_WARNINGS = 5

REPORTS_HINT = f"What a program may print: {DOCS}/reference/configuration/#agents-and-commands"


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The text that was printed, the tools that were called, and the JSON answer if there is one.

    `output_json` is `ABSENT` without a report of one: null is an answer. `warnings` name lines
    that are nearly reports, `has_unreadable` that one of them may be a tool call.
    """

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    output_json: Any = ABSENT
    warnings: tuple[str, ...] = ()
    has_unreadable: bool = False

    @property
    def speaks_protocol(self) -> bool:
        """Whether it reported something in the way in which it reports tool calls, too."""
        return bool(self.tool_uses) or self.output_json is not ABSENT

    @property
    def answer(self) -> str:
        """What checks look at: the JSON answer as text if there is one, else the text."""
        return self.text if self.output_json is ABSENT else compact_json(self.output_json)


def read_output(stdout: str) -> CommandOutput:
    """Read all that a command printed; raise `UnreadableReply` for an answer without its value."""
    lines, uses, value = list[str](), list[ToolUse](), ABSENT
    warnings = list[str]()
    numbered = 0
    printed = _LINE_END.split(stdout.removeprefix("\ufeff"))
    for number, line in enumerate(printed, start=1):
        report = _report(line, is_last=number == len(printed))
        wrong = None if report is None else _what_is_wrong(report)
        if report is None or wrong is not None:
            lines.append(line)
            if wrong is not None:
                warnings.append(f"line {number} of the output was taken as text: {wrong}")
        elif report[_KEY] == "output_json":
            value = report["value"] if "value" in report else report["data"]
        else:
            call_id = report.get("id")
            if not call_id:
                call_id, numbered = f"cmd_tc_{numbered}", numbered + 1
            call = ToolCall.told(call_id, report["name"], report.get("arguments"))
            uses.append(ToolUse(call, report.get("response"), AGENT_RULE))
    text = "\n".join(lines).strip("\r\n")
    return CommandOutput(text, tuple(uses), value, _shortened(warnings), bool(warnings))


def printed_reply(raw: str, latency_ms: float) -> AgentReply:
    """Return all that a program printed as the answer of an agent; raise as `read_output`."""
    output = read_output(raw)
    uses = output.tool_uses
    if output.has_unreadable:
        uses = (*uses, ToolUse(ToolCall(UNREAD_LINES, UNNAMED, {}), None, AGENT_RULE))
    warnings = (*output.warnings, *call_warnings(uses))
    if output.output_json is not ABSENT and output.text:
        warnings = (*warnings, "other output beside output_json is not part of the answer")
    return AgentReply(
        text=output.answer,
        raw=raw,
        latency_ms=latency_ms,
        tool_uses=uses,
        warnings=warnings,
        reports_tools=output.speaks_protocol,
    )


def _report(line: str, *, is_last: bool) -> dict[str, Any] | None:
    """Return the object that a line is if it is meant as a report; `{}` if it is no whole one."""
    if not _MARKER.search(line):
        # What was printed may have been cut off at its very beginning.
        begun = "".join(line.split()).casefold()
        is_cut = is_last and len(begun) > 1 and _BEGINNING.startswith(begun)
        return {} if is_cut else None
    try:
        value = parse_json(line, unique_keys)
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    written = next((key for key in value if key.casefold() == _KEY), None)
    return {} if written is None else {_KEY: value.pop(written), **value}


def _what_is_wrong(report: Mapping[str, Any]) -> str | None:
    """Return what was expected of a report and is not there."""
    if not report:
        return "a report must be one complete JSON object on one line"
    kind = report[_KEY]
    keys = _KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        return f"`kindlm` must be {' or '.join(map(repr, _KEYS))}"
    if kind == "output_json" and len(report.keys() & keys) != 1:
        raise UnreadableReply("output_json needs a `value`, which may be named `data`")
    unknown = next((key for key in report if key != _KEY and key not in keys), None)
    if unknown is not None:
        shown = unknown if unknown.isprintable() and len(unknown) <= 40 else "..."
        return f"{kind} has no key {shown!r}, but {', '.join(keys)}"
    if kind == "output_json":
        return None
    if not (isinstance(report.get("name"), str) and report["name"]):
        return "tool_call needs a `name`, a text that is not empty"
    if not isinstance(report.get("id", ""), str):
        return "the `id` of a tool_call must be a text"
    return None


def _shortened(warnings: list[str]) -> tuple[str, ...]:
    """Return the first warnings, and how many there are more."""
    more = len(warnings) - _MAX_WARNINGS
    if more <= 0:
        return tuple(warnings)
    return (*warnings[:_MAX_WARNINGS], f"and {more} more malformed reports")


_KEPT_STDERR_BYTES = 16_384
_WHO = agent_failures.Who("command")


class CommandAgent:
    """Implements `ports.Agent`: each message starts the program anew."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = environ

    async def __aenter__(self) -> Self:
        """Open nothing: the program runs only while it answers."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Run the program to its end; see `ports.Agent`.

        Nothing is retried: what a program did once, it may not be meant to do twice.
        """
        stdout = Output(MAX_OUTPUT_BYTES, keeps_tail=False)
        stderr = Output(_KEPT_STDERR_BYTES, keeps_tail=True)
        try:
            async with asyncio.timeout(request.timeout_s):
                code, latency_ms = await self._run(stdout, stderr)
        except TimeoutError:
            return Err(self._too_slow(request.timeout_s, stdout, stderr))
        except TooMuchOutput:
            return Err(self._error(TOO_MUCH, stdout, stderr))
        except (OSError, ValueError) as error:
            return Err(self._not_started(error))
        if code != 0:
            return Err(self._error(how_it_ended(code), stdout, stderr))
        try:
            return Ok(printed_reply(_text(stdout), latency_ms))
        except UnreadableReply as error:
            return Err(agent_failures.of_reply(_WHO, error, _text(stdout), hint=REPORTS_HINT))

    async def _run(self, stdout: Output, stderr: Output) -> tuple[int, float]:
        """Return the exit code, and how long the program itself ran in milliseconds."""
        begun = time.perf_counter()
        async with started(
            runnable(self._command.words),
            directory=self._command.directory,
            environ={**self._environ, **self._command.env},
            stdout=stdout,
            stderr=stderr,
        ) as program:
            code = await program.exit_code()
            latency_ms = (time.perf_counter() - begun) * 1000
            await program.drained()
        return code, latency_ms

    def _not_started(self, error: OSError | ValueError) -> KindlmError:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return agent_failures.failed(
            _WHO,
            ErrorCode.PROVIDER_API_ERROR,
            f"The command {self._name()} could not be started: {reason}",
            f"Check `command`; it runs in {self._command.directory}, without a shell",
        )

    def _too_slow(self, timeout_s: float, stdout: Output, stderr: Output) -> KindlmError:
        return agent_failures.failed(
            _WHO,
            ErrorCode.PROVIDER_TIMEOUT,
            f"The command {self._name()} did not end within {timeout_s * 1000:.0f} ms",
            "Raise defaults.timeoutMs, or check what the program waits for",
            body=_printed(stdout, stderr),
        )

    def _error(self, what: str, stdout: Output, stderr: Output) -> KindlmError:
        last_words = _WHO.last_words(_text(stderr))
        message = f"The command {self._name()} {what}"
        return agent_failures.failed(
            _WHO,
            ErrorCode.PROVIDER_API_ERROR,
            f"{message}: {last_words}" if last_words else message,
            "Run it by hand in the folder of the configuration",
            body=_printed(stdout, stderr),
        )

    def _name(self) -> str:
        return _WHO.quote(program_name(self._command.words))


def _printed(stdout: Output, stderr: Output) -> str:
    return "\n".join(filter(None, (_text(stdout), _text(stderr))))


def _text(output: Output) -> str:
    return output.data.decode("utf-8", "replace")
