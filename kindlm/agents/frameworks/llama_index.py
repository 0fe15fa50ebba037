"""LlamaIndex: agents and agent workflows, the outputs of their runs, and their events.

kindlm calls `run`. The memory that the first run made carries the conversation over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, one_model, total
from kindlm.agents.http_request import all_messages, last_user_text
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_usage import read_model, read_usage
from kindlm.agents.tool_entries import together
from kindlm.plugins import AgentReply, AgentRequest, Framework, ToolUse, Usage

_PACKAGE = "llama_index"


class LlamaIndex(Framework):
    """Talks to agents, and reads outputs and events."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._memory: Any = None

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "BaseWorkflowAgent", "AgentWorkflow")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        system = [it for it in all_messages(request) if it["role"] == "system"]
        first = {"chat_history": system} if system else {}
        handler = agent.run(
            user_msg=last_user_text(request),
            **(first if self._memory is None else {"memory": self._memory}),
        )
        try:
            events = [event async for event in handler.stream_events()]
            output = await handler
        except asyncio.CancelledError:
            await handler.cancel_run()  # the run has its own tasks
            raise
        self._memory = await handler.ctx.store.get("memory")
        return [*events, output]

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        events = result if isinstance(result, list) else [result]
        outputs = [event for event in events if is_a(event, _PACKAGE, "AgentOutput")]
        if not outputs:
            return None
        answer = outputs[-1]
        uses = _calls(events)
        # Without the earlier outputs of a run with tool calls, tokens are missing.
        asked = list({id(output.raw): as_json(output.raw) for output in outputs}.values())
        is_whole = len(asked) > 1 or not uses
        structured = answer.structured_response
        return AgentReply(
            text=answer.response.content or "" if structured is None else compact_json(structured),
            raw=compact_json([as_json(output) for output in outputs]),
            tool_uses=tuple(uses),
            usage=total([read_usage(answer) for answer in asked]) if is_whole else Usage(),
            model=one_model(map(read_model, asked)),
            reports_tools=True,
        )


def _calls(events: Sequence[Any]) -> list[ToolUse]:
    """Return the calls: those that started, then others that had a result or were requested.

    The last output repeats the calls of all. With some models, the id of a call is the name of its
    tool.
    """
    started = [event for event in events if is_a(event, _PACKAGE, "ToolCall")]
    ended = [event for event in events if is_a(event, _PACKAGE, "ToolCallResult")]
    outputs = (event.tool_calls for event in events if is_a(event, _PACKAGE, "AgentOutput"))
    lists = ([*map(_use, calls)] for calls in (started, ended, *outputs))
    return together(*lists)


def _use(call: Any) -> ToolUse:
    calls = ReportedCalls()
    reported = calls.add(call.tool_name, call.tool_id, as_json(call.tool_kwargs))
    if (output := getattr(call, "tool_output", None)) is not None:
        reported.answer(output.content, failed=output.is_error)
    return reported.use()
