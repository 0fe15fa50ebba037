"""The conversation with a model and simulated tools, from the first message to the last answer.

The rules are those of the design's "conversation with simulated tools": tool calls are answered in
order, parallel calls in one round, until the model answers without one; then the user's next
message is sent. `max_turns` bounds the model calls of the whole conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kindlm.engine.calls import Answered, Caller, Context
from kindlm.engine.recording import (
    json_as_recorded,
    json_text,
    problem_data,
    tool_call_data,
)
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.events import ToolCalled, ToolSimulated
from kindlm.ports import (
    AnsweredCall,
    Clock,
    HeldConversation,
    ModelReply,
    ModelRequest,
    Purpose,
    Recorder,
    SimulatedAnswer,
    ToolDefinition,
    ToolSimulator,
)
from kindlm.suite import Case, ModelTarget
from kindlm.transcript import FinishReason, Message, Role, Step, ToolCall, ToolUse, Transcript
from kindlm_store.payload import scrub

__all__ = [
    "Conversation",
    "ModelConversation",
    "PastConversation",
    "ToolRecorder",
    "first_messages",
    "follow_ups",
    "system_text",
]


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


class PastConversation:
    """A conversation that was held in an earlier run: there is nothing to say any more."""

    def __init__(self, held: HeldConversation) -> None:
        self.state = Conversation(held.transcript, held.error, held.warnings)

    async def hold(self) -> None:
        """Do nothing."""


def system_text(case: Case) -> str | None:
    """Return the system text as a transcript holds it, None without one."""
    return scrub(case.prompt.system) if case.prompt.system else None


def first_messages(case: Case) -> tuple[Message, ...]:
    """Return the messages a conversation begins with."""
    if case.script is not None:
        return ()
    prompt, written = case.prompt, case.written.prompt if case.written else case.prompt
    messages = [Message(Role.USER, prompt.user, written=written.user)]
    if prompt.system:
        messages.insert(0, Message(Role.SYSTEM, prompt.system, written=written.system))
    if prompt.prefill:
        prefill = Message(Role.ASSISTANT, prompt.prefill, prefill=True, written=written.prefill)
        messages.append(prefill)
    return tuple(messages)


def follow_ups(case: Case) -> Iterator[Message]:
    """Yield the further messages of the user."""
    written = case.written.follow_ups if case.written else case.follow_ups
    for text, as_written in zip(case.follow_ups, written, strict=True):
        yield Message(Role.USER, text, written=as_written)


class ToolRecorder:
    """Answers the tool calls of one execution and records each.

    Calls of models are numbered from 0 as they come; whoever calls `answer_one` numbers them.
    """

    def __init__(self, simulator: ToolSimulator, recorder: Recorder, clock: Clock) -> None:
        self._simulator = simulator
        self._recorder = recorder
        self._clock = clock
        self._count = 0

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as whoever calls them is told of them."""
        return self._simulator.definitions

    async def answer(self, answered: Answered) -> list[AnsweredCall]:
        """Answer the calls of one reply, in order; takes as long as the slowest of them."""
        calls = answered.reply.tool_calls
        answers = [
            await self.answer_one(call, answered.call, index)
            for index, call in enumerate(calls, self._count)
        ]
        self._count += len(calls)
        await self.wait(max((delay_s for _, delay_s in answers), default=0.0))
        return [used for used, _ in answers]

    async def wait(self, delay_s: float) -> None:
        """Wait as long as a simulated tool takes."""
        if delay_s:
            await self._clock.sleep(delay_s)

    async def answer_one(
        self, call: ToolCall, number: int, index: int
    ) -> tuple[AnsweredCall, float]:
        """Return the answer to a tool call, and how many seconds it is to take.

        `number` is that of the call of the model or agent that asked for it, `index` the position
        among the tool calls of the execution.
        """
        data = tool_call_data(call)
        self._recorder.record(
            ToolCalled(
                index=index,
                call=number,
                name=data.name,
                call_id=data.id,
                arguments=data.arguments,
            )
        )
        answer = await self._simulator.answer(call)
        answer = replace(answer, response=json_as_recorded(answer.response))
        self._recorder.record(
            ToolSimulated(
                index=index,
                call_id=data.id,
                rule=answer.rule,
                response=json_text(answer.response),
                problems=[problem_data(problem) for problem in answer.problems],
            )
        )
        return _used(call, answer), answer.delay_s


class ModelConversation:
    """One conversation with a model; `state` is what came of it so far."""

    def __init__(
        self,
        case: Case,
        target: ModelTarget,
        caller: Caller,
        tools: ToolRecorder,
        timeout_s: float,
    ) -> None:
        self._case = case
        self._target = target
        self._tools = tools.definitions
        self._caller = caller
        self._recorder = tools
        self._timeout_s = timeout_s
        self._messages = first_messages(case)
        self._new: tuple[Message, ...] = ()
        self._after = 0
        self._calls_left = case.max_turns
        self._transcript = Transcript(system_text(case))
        self._warnings: dict[str, None] = {}
        self._error: KindlmError | None = None

    @property
    def state(self) -> Conversation:
        """What came of the conversation so far."""
        return Conversation(self._transcript, self._error, tuple(self._warnings))

    async def hold(self) -> None:
        """Hold the conversation to its end; its first messages are recorded already."""
        self._transcript = self._transcript.with_turn(scrub(self._case.prompt.user))
        await self._until_answered()
        for message in follow_ups(self._case):
            if self._error is None and not self._calls_left:
                self._error = _too_many_turns(self._case, "The user had more to say")
            if self._error is not None:
                return
            self._say(message)
            self._transcript = self._transcript.with_turn(scrub(message.text))
            await self._until_answered()

    async def _until_answered(self) -> None:
        """Call the model, and answer its tool calls, until it answers without one."""
        while self._calls_left:
            self._calls_left -= 1
            request = ModelRequest(
                self._target.model,
                self._messages,
                self._target.params,
                self._timeout_s,
                self._tools,
            )
            result = await self._caller.call(
                self._target, request, Context(Purpose.TEST, self._after, self._new)
            )
            if isinstance(result, Err):
                self._error = result.error
                return
            if await self._take(result.value):
                return
        self._error = _too_many_turns(self._case, "The model still called tools")

    async def _take(self, answered: Answered) -> bool:
        """Take an answer; return whether it ends the turn."""
        reply = answered.reply
        self._warnings.update(dict.fromkeys((*reply.warnings, *_finish_warnings(reply))))
        if not reply.text.strip() and not reply.tool_calls:
            self._error = _empty_response(reply)
            return True
        used = await self._recorder.answer(answered)
        self._transcript = self._transcript.with_step(_step(answered, used))
        self._after = answered.call
        self._messages = (*_without_prefill(self._messages), _assistant_message(reply))
        self._new = ()
        self._say(*(_tool_message(one) for one in used))
        return not used

    def _say(self, *messages: Message) -> None:
        self._messages = (*self._messages, *messages)
        self._new = (*self._new, *messages)


def _used(call: ToolCall, answer: SimulatedAnswer) -> AnsweredCall:
    response = answer.response
    if answer.text is not None:
        text = answer.text
    else:
        # A text goes to the model as it is; anything else as JSON.
        text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return AnsweredCall(ToolUse(call, response, answer.rule, answer.problems), text)


def _step(answered: Answered, used: Sequence[AnsweredCall]) -> Step:
    reply = answered.reply
    return Step(
        text=reply.text,
        tool_uses=tuple(one.use for one in used),
        usage=reply.usage,
        cost=answered.cost,
        latency_ms=reply.latency_ms,
        finish_reason=reply.finish_reason,
        model=reply.model,
        recorded=reply.recorded is not None,
    )


def _assistant_message(reply: ModelReply) -> Message:
    return Message(Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls)


def _tool_message(used: AnsweredCall) -> Message:
    call = used.use.call
    return Message(Role.TOOL, used.text, tool_call_id=call.id, tool_name=call.name)


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


def _too_many_turns(case: Case, what: str) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_MAX_TURNS,
        f"{what} when maxTurns ({case.max_turns}) was used up.",
        "Check the simulated answers for a loop, or raise maxTurns of this test.",
    )
