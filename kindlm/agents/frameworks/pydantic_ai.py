"""Pydantic AI: agents, and what their runs return.

kindlm calls `run`. `message_history` carries the conversation over. A function may return the
result of a run, a streamed result, messages, or yield the events of `run_stream_events`.

A tool may run another agent, whose messages are not in the result. If the tool passes the usage on,
the result counts more requests than it has answers: then it does not show all tool calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, one_model
from kindlm.agents.http_request import last_user_text, system_text
from kindlm.agents.reply_parts import compact_json
from kindlm.plugins import AgentReply, AgentRequest, Framework, Usage
from kindlm.strict_json import as_text
from kindlm.wires import extras_from

_PACKAGE = "pydantic_ai"
_HIDDEN = "kindlm does not see the tool calls of agents that run inside tools"
_WAITS = "the agent waits for an approval or a result of a tool call: the answer is incomplete"
_CALLS = ("tool-call", "builtin-tool-call", "native-tool-call")
_RETURNS = ("tool-return", "builtin-tool-return", "native-tool-return")


class PydanticAI(Framework):
    """Talks to agents, and reads results and messages of their runs."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._history: Sequence[Any] | None = None

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "AbstractAgent")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        system = system_text(request)
        more = {"instructions": system} if system else {}
        result = await agent.run(last_user_text(request), message_history=self._history, **more)
        self._history = result.all_messages()
        return result

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        if (
            isinstance(result, list)
            and result
            and is_a(result[-1], _PACKAGE, "AgentRunResultEvent")
        ):
            result = result[-1].result
        if is_a(result, _PACKAGE, "StreamedRunResult"):
            output = await result.get_output()
            return _reply(result.new_messages(), output, result)
        if is_a(result, _PACKAGE, "AgentRunResult"):
            return _reply(result.new_messages(), result.output, result)
        messages = result if isinstance(result, list) else [result]
        if all(is_a(each, _PACKAGE, "ModelRequest", "ModelResponse") for each in messages):
            return _reply(messages, None, None)
        return None


def _reply(messages: Sequence[Any], output: Any, result: Any) -> AgentReply:
    """Return the reply in messages, and in the `output` and the `result` of a run."""
    calls, usages = ReportedCalls(), list[Usage]()
    answer, models = "", list[str]()
    for message in messages:
        if message.kind == "response":
            usages.append(_usage(message.usage))
            models += filter(None, [message.model_name])
            answer = "".join(part.content for part in message.parts if part.part_kind == "text")
        _add_calls(calls, message.parts, getattr(result, "_output_tool_name", None))
    usage, requests = sum(usages, Usage(0, 0)), len(usages)
    if result is not None:
        # It is a method in older versions.
        counted = result.usage() if inspect.ismethod(result.usage) else result.usage
        usage, requests = _usage(counted), counted.requests
    hidden = requests > len(usages)
    waits = is_a(output, _PACKAGE, "DeferredToolRequests")
    if output is not None:
        answer = as_text(as_json(output))
    return AgentReply(
        text=answer,
        raw=compact_json(as_json(messages)),
        tool_uses=calls.uses,
        usage=usage if usage.total else Usage(),  # 0 of both if the model reports none
        model=one_model(models),
        reports_tools=None if result is None else not hidden,
        warnings=tuple(warning for warning, holds in ((_HIDDEN, hidden), (_WAITS, waits)) if holds),
    )


def _usage(counted: Any) -> Usage:
    written_1h = getattr(counted, "cache_write_1h_tokens", None)  # older versions have none
    extras = extras_from(counted.cache_read_tokens, counted.cache_write_tokens, written_1h)
    return Usage(counted.input_tokens, counted.output_tokens, extras)


def _add_calls(calls: ReportedCalls, parts: Iterable[Any], output_tool: str | None) -> None:
    """Add the calls and the tool results of a message.

    The output of a run may be a call to `output_tool`, which is not a tool.
    """
    for part in parts:
        if output_tool is not None and getattr(part, "tool_name", None) == output_tool:
            continue
        if part.part_kind in _CALLS:
            calls.add(part.tool_name, part.tool_call_id, as_json(part.args))
        elif part.part_kind in (*_RETURNS, "retry-prompt"):
            failed = part.part_kind == "retry-prompt"
            calls.answer(part.tool_call_id, part.tool_name, as_json(part.content), failed=failed)
