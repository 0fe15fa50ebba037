"""AutoGen's AgentChat: agents and teams, and what their tasks return.

kindlm calls `run_stream`. An agent or team stores its conversation, so kindlm loads the state of
the conversation before each message. Conversations that share an agent use it in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, total
from kindlm.agents.http_request import last_user_text
from kindlm.agents.reply_parts import compact_json
from kindlm.dataclass import replace
from kindlm.plugins import AgentReply, AgentRequest, Framework, Usage

_PACKAGE = "autogen_agentchat"


@dataclass(slots=True)
class _Shared:
    """What conversations with the same object share: its first state, and the current turn."""

    state: Mapping[str, Any] | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


_SHARED: WeakKeyDictionary[Any, _Shared] = WeakKeyDictionary()


class AutoGen(Framework):
    """Talks to agents and teams, and reads their messages."""

    def __init__(self) -> None:
        self._state: Mapping[str, Any] | None = None
        self._model: str | None = None

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "TaskRunner")

    def turn(self, agent: Any) -> asyncio.Lock:
        """Return a context in which conversations use the agent in turn."""
        return _SHARED.setdefault(agent, _Shared()).turn

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        shared = _SHARED[agent]
        if shared.state is None:
            shared.state = await agent.save_state()
        self._model = _model(agent)
        await agent.load_state(shared.state if self._state is None else self._state)
        messages = [each async for each in agent.run_stream(task=last_user_text(request))]
        self._state = await agent.save_state()
        return messages

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        """Return the reply in the messages or the result of a task.

        A stream may have more messages than its result, and a function may leave some out.
        """
        held = result if isinstance(result, list) else [result]
        messages = [each for each in held if is_a(each, _PACKAGE, "BaseMessage")]
        whole = _whole(held[-1]) if held else None
        if messages and (whole is None or len(_kept(messages)) >= len(whole)):
            shows_all = None if whole is None else True
            return replace(_reply(messages), model=self._model, reports_tools=shows_all)
        return None if whole is None else _reply(whole)


def _whole(result: Any) -> Sequence[Any] | None:
    """Return the messages of the result of a task; None for anything else."""
    if is_a(result, _PACKAGE, "Response"):
        return [*(result.inner_messages or ()), result.chat_message]
    return list(result.messages) if is_a(result, _PACKAGE, "TaskResult") else None


def _model(agent: Any) -> str | None:
    """Return the model in the options of an agent's client; messages do not name it."""
    options = getattr(getattr(agent, "_model_client", None), "_create_args", None) or {}
    name = options.get("model")
    return name if isinstance(name, str) else None


def _reply(messages: Sequence[Any]) -> AgentReply:
    kept = _kept(messages)
    texts = [each.to_text() for each in kept if is_a(each, _PACKAGE, "BaseChatMessage")]
    counts = [each.models_usage for each in kept if each.models_usage is not None]
    return AgentReply(
        text=texts[-1] if texts else "",
        raw=compact_json(as_json(kept)),
        tool_uses=_calls(kept).uses,
        # A streamed answer reports 0 tokens, unless the client asks the model for the count.
        usage=total([Usage(it.prompt_tokens or None, it.completion_tokens) for it in counts]),
        reports_tools=True,
    )


def _kept(messages: Sequence[Any]) -> list[Any]:
    """Return messages without the pieces of streamed ones."""
    return [each for each in messages if each.type != "ModelClientStreamingChunkEvent"]


def _calls(messages: Sequence[Any]) -> ReportedCalls:
    calls = ReportedCalls()
    for message in messages:
        if message.type == "ToolCallRequestEvent":
            for call in message.content:
                calls.add(call.name, call.id, call.arguments)
        elif message.type == "ToolCallExecutionEvent":
            for result in message.content:
                calls.answer(result.call_id, result.name, result.content, failed=result.is_error)
        elif message.type == "ToolCallSummaryMessage":
            # A function may return it without the events before it.
            for call in message.tool_calls:
                if calls.by_id(call.id) is None:
                    calls.add(call.name, call.id, call.arguments)
    return calls
