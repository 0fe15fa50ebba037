"""The conversation with a model and simulated tools, from the first message to the answer.

The rules are those of the design's "conversation with simulated tools": tool calls are answered in
order, parallel calls in one round, until the model answers without one or `max_turns` is reached.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.engine.calls import Answered, Caller, Context
from kindlm.engine.recording import json_text, tool_call_data
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.events import ToolCalled, ToolSimulated
from kindlm.ports import ModelReply, ModelRequest, Purpose, Recorder, ToolSimulator
from kindlm.suite import Case, ModelTarget
from kindlm.transcript import FinishReason, Message, Role, Step, ToolCall, ToolUse, Transcript

__all__ = ["Conversation", "converse", "first_messages"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What came of a conversation: the transcript so far, and the error that ended it, if one did.

    `warnings` are for the user: an answer cut off, a parameter that was dropped.
    """

    transcript: Transcript
    error: KindlmError | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_checkable(self) -> bool:
        """Whether there is something to check: an answer, or all turns used up by tool calls."""
        return self.error is None or self.error.code is ErrorCode.ENGINE_MAX_TURNS


def first_messages(case: Case) -> tuple[Message, ...]:
    """Return the messages a conversation begins with."""
    prompt = case.prompt
    messages = [Message(Role.USER, prompt.user)]
    if prompt.system:
        messages.insert(0, Message(Role.SYSTEM, prompt.system))
    if prompt.prefill:
        messages.append(Message(Role.ASSISTANT, prompt.prefill, prefill=True))
    return tuple(messages)


async def converse(
    case: Case,
    target: ModelTarget,
    simulator: ToolSimulator,
    caller: Caller,
    tools: ToolRecorder,
    *,
    timeout_s: float,
) -> Conversation:
    """Hold a conversation; its first messages are in `execution.started` already."""
    messages = first_messages(case)
    transcript = Transcript(case.prompt.system).with_turn(case.prompt.user)
    warnings: dict[str, None] = {}
    after = 0
    new: tuple[Message, ...] = ()
    for _ in range(case.max_turns):
        request = ModelRequest(
            target.model, messages, target.params, timeout_s, simulator.definitions
        )
        result = await caller.call(target, request, Context(Purpose.TEST, after, new))
        if isinstance(result, Err):
            return Conversation(transcript, result.error, tuple(warnings))
        answered = result.value
        reply = answered.reply
        warnings.update(dict.fromkeys((*reply.warnings, *_finish_warnings(reply))))
        if not reply.text and not reply.tool_calls:
            return Conversation(transcript, _empty_response(reply), tuple(warnings))
        uses = tools.answer(answered, simulator)
        transcript = transcript.with_step(_step(answered, uses))
        if not uses:
            return Conversation(transcript, None, tuple(warnings))
        new = _tool_messages(uses)
        messages = (*_without_prefill(messages), _assistant_message(reply), *new)
        after = answered.call
    return Conversation(transcript, _too_many_turns(case), tuple(warnings))


class ToolRecorder:
    """Answers the tool calls of one execution and records each, numbered from 0."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._count = 0

    def answer(self, answered: Answered, simulator: ToolSimulator) -> tuple[ToolUse, ...]:
        """Answer the calls of one reply, in order."""
        return tuple(
            self._answer_one(call, answered.call, simulator) for call in answered.reply.tool_calls
        )

    def _answer_one(self, call: ToolCall, number: int, simulator: ToolSimulator) -> ToolUse:
        index = self._count
        self._count += 1
        data = tool_call_data(call)
        called = ToolCalled(
            index=index, call=number, name=data.name, call_id=call.id, arguments=data.arguments
        )
        self._recorder.record(called)
        answer = simulator.answer(call)
        simulated = ToolSimulated(
            index=index, call_id=call.id, rule=answer.rule, response=json_text(answer.response)
        )
        self._recorder.record(simulated)
        return ToolUse(call, answer.response, answer.rule)


def _step(answered: Answered, uses: tuple[ToolUse, ...]) -> Step:
    reply = answered.reply
    return Step(
        text=reply.text,
        tool_uses=uses,
        usage=reply.usage,
        cost=answered.cost,
        latency_ms=reply.latency_ms,
        finish_reason=reply.finish_reason,
        model=reply.model,
    )


def _assistant_message(reply: ModelReply) -> Message:
    return Message(Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls)


def _tool_messages(uses: Sequence[ToolUse]) -> tuple[Message, ...]:
    return tuple(
        Message(
            Role.TOOL,
            # A text goes to the model as it is; anything else as JSON.
            use.response
            if isinstance(use.response, str)
            else json.dumps(use.response, ensure_ascii=False),
            tool_call_id=use.call.id,
            tool_name=use.call.name,
        )
        for use in uses
    )


def _without_prefill(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    # The reply begins with the prefill, so that the assistant's message replaces it.
    return messages[:-1] if messages[-1].prefill else messages


def _finish_warnings(reply: ModelReply) -> tuple[str, ...]:
    match reply.finish_reason:
        case FinishReason.MAX_TOKENS:
            return ("The answer was cut off at maxTokens.",)
        case FinishReason.CONTENT_FILTER:
            return ("The provider's content filter ended the answer.",)
        case _:
            return ()


def _empty_response(reply: ModelReply) -> KindlmError:
    reason = f" (finish reason: {reply.finish_reason})" if reply.finish_reason else ""
    return KindlmError(
        ErrorCode.ENGINE_EMPTY_RESPONSE,
        f"The model answered with neither text nor a tool call{reason}.",
        "Raise maxTokens, or look at the recorded body: kindlm show RUN EXECUTION --verbose",
    )


def _too_many_turns(case: Case) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_MAX_TURNS,
        f"The model still called tools after {case.max_turns} turns.",
        "Check the simulated answers for a loop, or raise maxTurns of this test.",
    )
