"""A call in an answer is read or noticed, however the rest of the answer is damaged.

Each answer has a call of `refund`. Damaged, it is an error, or a ban of the tool cannot pass: the
call has its name or none, or nothing shows that the agent reports its calls.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from damage import HOW, damage, places
from hypothesis import given
from hypothesis import strategies as st

from kindlm.agents.crewai_agent import read_crew
from kindlm.agents.drafts import assemble
from kindlm.agents.event_framing import frames_of
from kindlm.agents.event_streams import read_stream
from kindlm.agents.langgraph_replies import GraphDraft, Sent, read_value
from kindlm.agents.protocols.a2a import read_call_answer
from kindlm.agents.reply_reading import FailedReply, Reading, read_reply
from kindlm.agents.streaming_agent import EventsDraft
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED
from kindlm.wires import UnreadableReply

SENT = Sent("Hello")
ASKED = {"type": "human", "content": "Hello"}
ORDER = {"id": 7}
CALL = {"id": "c1", "name": "refund", "args": ORDER}
OPENAI_CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "refund", "arguments": '{"id": 7}'},
}
FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{}"}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "Done."}]}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "refund", "input": ORDER}
STATE = {
    "messages": [
        ASKED,
        {"type": "ai", "id": "m1", "content": "", "tool_calls": [CALL]},
        {"type": "tool", "tool_call_id": "c1", "name": "refund", "content": "ok"},
        {"type": "ai", "id": "m2", "content": "Done."},
    ]
}
DATA = {"data": CALL, "metadata": {"adk_type": "function_call"}}
AGENT = {"messageId": "m", "role": "ROLE_AGENT", "parts": [DATA, {"text": "Done."}]}


def sse(events: list[Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def read_events(events: list[Any]) -> AgentReply:
    draft = EventsDraft()
    text = sse(events)
    return read_stream(text, Reading(), has_end=True, is_sse=True, otherwise=draft).reply


def read_graph(events: list[Any]) -> AgentReply:
    return assemble(GraphDraft(SENT), frames_of(sse(events), is_sse=True)[0]).reply


def choice(delta: Any, reason: str | None = None) -> Any:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def block(kind: str, **more: Any) -> Any:
    return {"type": f"content_block_{kind}", "index": 0, **more}


ANSWERS: dict[str, tuple[Callable[[Any], AgentReply], Any]] = {
    "JSON": (lambda it: read_reply(it, Reading()), {"text": "Done.", "tool_calls": [CALL]}),
    "steps": (
        lambda it: read_reply(it, Reading()),
        {"output": "Done.", "steps": [{"tool": "refund", "parameters": ORDER, "output": "ok"}]},
    ),
    "chat": (
        lambda it: read_reply(it, Reading()),
        {"choices": [{"message": {"content": "Done.", "tool_calls": [OPENAI_CALL]}}]},
    ),
    "responses": (
        lambda it: read_reply(it, Reading()),
        {"object": "response", "output": [FUNCTION_CALL, {"type": "message", "content": []}]},
    ),
    "anthropic": (
        lambda it: read_reply(it, Reading()),
        {"type": "message", "content": [{"type": "text", "text": "Done."}, TOOL_USE]},
    ),
    "chat stream": (
        read_events,
        [choice({"content": "Done."}), choice({"tool_calls": [OPENAI_CALL]}), choice({}, "stop")],
    ),
    "anthropic stream": (
        read_events,
        [
            {"type": "message_start", "message": {"role": "assistant", "content": []}},
            block("start", content_block=TOOL_USE | {"input": {}}),
            block("delta", delta={"type": "input_json_delta", "partial_json": '{"id": 7}'}),
            block("stop"),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ],
    ),
    "AI SDK": (
        read_events,
        [
            {"type": "start"},
            {"type": "text-delta", "id": "t", "delta": "Done."},
            {"type": "tool-input-available", "toolCallId": "c1", "toolName": "refund", "input": {}},
            {"type": "tool-output-available", "toolCallId": "c1", "output": "ok"},
            {"type": "finish"},
        ],
    ),
    "AG-UI": (
        read_events,
        [
            {"type": "RUN_STARTED"},
            {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "refund"},
            {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{}"},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Done."},
            {"type": "RUN_FINISHED"},
        ],
    ),
    "AG-UI messages": (
        read_events,
        [
            {"type": "RUN_STARTED"},
            {
                "type": "MESSAGES_SNAPSHOT",
                "messages": [
                    {"id": "2", "role": "assistant", "toolCalls": [OPENAI_CALL]},
                    {"id": "3", "role": "tool", "toolCallId": "c1", "content": "ok"},
                    {"id": "4", "role": "assistant", "content": "Done."},
                ],
            },
            {"type": "RUN_FINISHED"},
        ],
    ),
    "responses stream": (
        read_events,
        [
            {"type": "response.output_item.done", "item": FUNCTION_CALL},
            {
                "type": "response.completed",
                "response": {"object": "response", "output": [FUNCTION_CALL, MESSAGE]},
            },
        ],
    ),
    "events": (
        read_events,
        [
            {"type": "tool_call", "data": CALL},
            {"type": "tool_result", "data": {"id": "c1", "result": "ok"}},
            {"type": "final_message", "data": {"text": "Done."}},
            {"type": "done"},
        ],
    ),
    "graph": (lambda it: read_value(it, SENT), STATE),
    "states": (read_graph, [{"messages": [ASKED]}, STATE]),
    "steps of a graph": (
        lambda it: read_value(it, SENT),
        {"output": "Done.", "steps": [{"tool": "refund", "parameters": ORDER, "output": "ok"}]},
    ),
    "updates": (read_graph, [{"agent": {"messages": [each]}} for each in STATE["messages"][1:]]),
    "crew": (
        lambda it: read_crew(json.dumps(it)),
        {"raw": "Done.", "tasks": [{"id": "1", "tool": "refund", "inputs": {}, "output": "ok"}]},
    ),
    "executions of a crew": (
        lambda it: read_crew(json.dumps(it)),
        {"raw": "Done.", "agent_executions": [{"tool_used": "refund", "inputs": ORDER}]},
    ),
    "A2A": (
        lambda it: read_call_answer(it).reply,
        {"jsonrpc": "2.0", "result": {"message": AGENT}},
    ),
}


@pytest.mark.parametrize("form", ANSWERS)
@given(data=st.data())
def test_a_ban_does_not_pass_because_an_answer_is_damaged(form: str, data: st.DataObject) -> None:
    read, whole = ANSWERS[form]
    answer = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(0, 2))):
        before = copy.deepcopy(answer)
        damage(
            answer,
            data.draw(st.sampled_from(list(places(answer)))),
            data.draw(st.sampled_from(HOW)),
        )
        if "refund" not in json.dumps(answer):
            answer = before
    try:
        reply = read(answer)
    except (FailedReply, UnreadableReply):
        return
    names = {use.call.name for use in reply.tool_uses}
    assert names & {"refund", UNNAMED} or not reply.reports_tools
