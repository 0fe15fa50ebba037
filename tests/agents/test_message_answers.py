"""JSON answers that are, or have, the messages of the conversation, as frameworks write them."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.agents.message_answers import read_answer
from kindlm.agents.reply_parts import NoTextKnown, UnreadableReply
from kindlm.agents.reply_reading import FailedReply, Reading
from kindlm.strict_json import read_json
from kindlm.transcript import UNNAMED, Usage

SENT = "Refund order A1"
LOOK, REFUND = {"order": "A1"}, {"order": "A1", "amount": 10}


def of_adk(role: str, *parts: Any, **more: Any) -> Any:
    """Return an event of `adk api_server`."""
    return {"content": {"parts": list(parts), "role": role}, "author": "shop", "id": "e", **more}


def counted(sent: int, written: int, **more: int) -> Any:
    counts = {"promptTokenCount": sent, "candidatesTokenCount": written, **more}
    return {"modelVersion": "gpt-5-mini", "usageMetadata": counts}


ADK = [
    of_adk("model", {"functionCall": {"id": "c1", "args": LOOK, "name": "lookup_order"}},
           **counted(438, 7)),
    of_adk("user", {"functionResponse": {"id": "c1", "name": "lookup_order",
                                         "response": {"total": 10}}}),
    {"author": "shop", "actions": {"stateDelta": {"seen": True}}},
    of_adk("model", {"functionCall": {"id": "c2", "args": REFUND, "name": "refund"}},
           **counted(512, 9)),
    of_adk("user", {"functionResponse": {"id": "c2", "name": "refund",
                                         "response": {"refunded": 10}}}),
    of_adk("model", {"text": "Hm.", "thought": True}, {"text": "Refunded A1."},
           **counted(578, 3, thoughtsTokenCount=4)),
]  # fmt: skip


def of_strands(role: str, part: Any, counts: tuple[int, int] | None = None) -> Any:
    usage = (
        {} if counts is None else dict(zip(("inputTokens", "outputTokens"), counts, strict=True))
    )
    return {"role": role, "content": [part], "metadata": {"usage": usage}}


def strands_result(call_id: str, text: str) -> Any:
    content = [{"text": text}]
    return {"toolResult": {"toolUseId": call_id, "status": "success", "content": content}}


STRANDS = [
    of_strands("user", {"text": SENT}),
    of_strands("assistant", {"toolUse": {"toolUseId": "c1", "name": "lookup_order",
                                         "input": LOOK}}, (165, 7)),
    of_strands("user", strands_result("c1", '{"total": 10}')),
    of_strands("assistant", {"toolUse": {"toolUseId": "c2", "name": "refund",
                                         "input": REFUND}}, (239, 9)),
    of_strands("user", strands_result("c2", '{"refunded": 10}')),
    of_strands("assistant", {"text": "Refunded A1."}, (306, 3)),
]  # fmt: skip
OPENAI_AGENTS = [
    {"content": SENT, "role": "user"},
    {"arguments": '{"order": "A1"}', "call_id": "c1", "name": "lookup_order",
     "type": "function_call", "id": "fc_1", "status": "completed"},
    {"call_id": "c1", "output": '{"total": 10}', "type": "function_call_output"},
    {"arguments": '{"order": "A1", "amount": 10}', "call_id": "c2", "name": "refund",
     "type": "function_call", "id": "fc_2", "status": "completed"},
    {"call_id": "c2", "output": '{"refunded": 10}', "type": "function_call_output"},
    {"id": "msg_1", "content": [{"annotations": [], "text": "Refunded A1.", "type": "output_text"}],
     "role": "assistant", "status": "completed", "type": "message"},
]  # fmt: skip


def of_agno(role: str, content: str | None = None, **more: Any) -> Any:
    said = {} if content is None else {"content": content}
    return {"role": role, **said, "from_history": False, **more}


AGNO = {
    "run_id": "r",
    "content": "Refunded A1.",
    "model": "gpt-5-mini",
    "status": "COMPLETED",
    "messages": [
        of_agno("user", SENT),
        of_agno("assistant", metrics={"input_tokens": 120, "output_tokens": 7}, tool_calls=[
            {"id": "c1", "type": "function",
             "function": {"name": "lookup_order", "arguments": '{"order": "A1"}'}}]),
        of_agno("tool", '{"total": 10}', tool_call_id="c1", tool_name="lookup_order",
                tool_args=LOOK, tool_call_error=False),
        of_agno("assistant", metrics={"input_tokens": 195, "output_tokens": 10}, tool_calls=[
            {"id": "c2", "type": "function",
             "function": {"name": "refund", "arguments": '{"order": "A1", "amount": 10}'}}]),
        of_agno("tool", '{"refunded": 10}', tool_call_id="c2", tool_name="refund",
                tool_args=REFUND, tool_call_error=False),
        of_agno("assistant", "Refunded A1.", metrics={"input_tokens": 266, "output_tokens": 3}),
    ],
    "tools": [
        {"tool_call_id": "c1", "tool_name": "lookup_order", "tool_args": LOOK,
         "result": '{"total": 10}'},
        {"tool_call_id": "c2", "tool_name": "refund", "tool_args": REFUND,
         "result": '{"refunded": 10}'},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (ADK, Usage(1528, 23)),
        (STRANDS, Usage(710, 19)),
        ({"message": "Refunded A1.\n", "messages": STRANDS}, Usage(710, 19)),
        (OPENAI_AGENTS, Usage()),
        ({"response": "Refunded A1.", "messages": OPENAI_AGENTS}, Usage()),
        (AGNO, Usage(581, 20)),
    ],
)
def test_calls_of_messages_are_read(value: Any, usage: Usage) -> None:
    reply = read_answer(value, SENT, Reading())

    looked, refunded = reply.tool_uses
    assert (looked.call.name, looked.call.arguments) == ("lookup_order", LOOK)
    assert read_json(looked.response) == {"total": 10}
    assert (refunded.call.name, refunded.call.arguments) == ("refund", REFUND)
    assert read_json(refunded.response) == {"refunded": 10}
    assert (reply.text.strip(), reply.usage, reply.warnings) == ("Refunded A1.", usage, ())


def test_calls_of_earlier_messages_are_not_of_this_answer() -> None:
    now = [{"role": "user", "content": "And A2?"}, {"role": "assistant", "content": "A2 too."}]
    for value in ([*OPENAI_AGENTS, *now], {"messages": [*OPENAI_AGENTS, *now]}):
        reply = read_answer(value, "And A2?", Reading())
        assert (reply.text, reply.tool_uses, reply.warnings) == ("A2 too.", (), ())


def test_a_failed_tool_of_bedrock_is_a_failure() -> None:
    failed = {"toolUseId": "c1", "status": "error", "content": [{"text": "no such order"}]}
    value = [*STRANDS[:2], of_strands("user", {"toolResult": failed}), STRANDS[-1]]
    (use,) = read_answer(value, SENT, Reading()).tool_uses
    assert use.response == {"error": "no such order"}


def test_messages_without_calls_do_not_show_that_there_were_none() -> None:
    talk = [OPENAI_AGENTS[0], OPENAI_AGENTS[-1]]
    assert read_answer(talk, SENT, Reading()).reports_tools is None
    assert read_answer(talk, SENT, Reading(), shows_calls=True).reports_tools
    answer = {"text": "Refunded A1.", "messages": talk}
    assert read_answer(answer, SENT, Reading(), shows_calls=True).reports_tools is None
    assert read_answer({**answer, "tool_calls": []}, SENT, Reading()).reports_tools


def test_an_agent_that_adk_calls_as_a_tool_may_have_called_others() -> None:
    call = {"functionCall": {"id": "c1", "args": {"request": SENT}, "name": "refunds"}}
    reply = read_answer([of_adk("model", call), ADK[-1]], SENT, Reading())
    assert [use.call.name for use in reply.tool_uses] == ["refunds", UNNAMED]
    assert "the agent refunds" in reply.warnings[0]


def test_a_part_of_gemini_without_an_id_is_an_unread_call() -> None:
    call = {"functionCall": {"args": REFUND, "name": "refund"}}
    reply = read_answer([of_adk("model", call), ADK[-1]], SENT, Reading())
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED]


@pytest.mark.parametrize("key", ["text", "final_output"])
def test_messages_of_something_else_are_no_answer(key: str) -> None:
    notes = [{"type": "info", "text": "Hello"}]
    path = None if key == "text" else key
    reply = read_answer({key: "Done.", "messages": notes}, SENT, Reading(response_path=path))
    assert reply.text == "Done."
    with pytest.raises(NoTextKnown):
        read_answer([{"type": "info", "note": "Hello"}], SENT, Reading())


def test_a_path_names_the_text_beside_messages() -> None:
    value = {"final_output": {"done": True}, "messages": OPENAI_AGENTS}
    reply = read_answer(value, SENT, Reading(response_path="final_output"))
    assert (reply.text, len(reply.tool_uses)) == ('{"done":true}', 2)


def test_what_is_beside_messages_is_read_as_without_them() -> None:
    more = {"success": False, "confidence": 0.4, "messages": OPENAI_AGENTS}
    reply = read_answer({"reply": "It is done.", **more}, SENT, Reading())
    assert (reply.text, reply.reported) == ("It is done.", {"confidence": 0.4})
    assert reply.warnings == ("the agent reported `success: false`",)
    assert [use.call.name for use in reply.tool_uses] == ["lookup_order", "refund"]


def test_a_failure_beside_messages_is_an_error() -> None:
    failed = {"error": "model overloaded", "messages": OPENAI_AGENTS[:3]}
    with pytest.raises(FailedReply, match="model overloaded"):
        read_answer(failed, SENT, Reading())
    with pytest.raises(UnreadableReply, match=r"nothing at `data\.answer`"):
        read_answer({"messages": OPENAI_AGENTS}, SENT, Reading(response_path="data.answer"))


def test_a_call_in_a_thought_counts() -> None:
    call = {"functionCall": {"id": "c1", "args": REFUND, "name": "refund"}, "thought": True}
    (use,) = read_answer([of_adk("model", call), ADK[-1]], SENT, Reading()).tool_uses
    assert use.call.name == "refund"


def test_a_run_of_adk_that_ends_with_an_error_failed() -> None:
    error = {"author": "shop", "errorCode": "429", "errorMessage": "quota", "id": "e"}
    with pytest.raises(FailedReply, match="429: quota"):
        read_answer([*ADK[:2], error], SENT, Reading())
    assert read_answer([*ADK[:2], error, ADK[-1]], SENT, Reading()).text == "Refunded A1."


def test_a_message_with_a_call_is_the_agents_whatever_its_role() -> None:
    call = {"id": "c9", "type": "function", "function": {"name": "mail", "arguments": "{}"}}
    asked = [{"role": role, "tool_calls": [call]} for role in ("user", "system")]
    for message in (*asked, call):
        reply = read_answer([*OPENAI_AGENTS[:2], message, OPENAI_AGENTS[-1]], SENT, Reading())
        assert [use.call.name for use in reply.tool_uses] == ["lookup_order", "mail"]
