"""Agents that stream messages as Vercel's AI SDK does."""

from __future__ import annotations

import json

import pytest

from kindlm.transcript import UNNAMED, ToolCall, Usage

STREAM = "text/event-stream"
CALL = {"toolCallId": "c1", "toolName": "refund"}


@pytest.fixture
def hear(talk, http):
    """Return what comes of a stream of these events."""

    def hear(*told):
        texts = [item if isinstance(item, str) else json.dumps(item) for item in told]
        body = "".join(f"data: {text}\n\n" for text in texts)
        (result,), _ = talk(http(body, kind=STREAM), adapter="streaming")
        return result

    return hear


def text(said, part="t"):
    return {"type": "text-delta", "id": part, "delta": said}


def test_an_answer_with_a_tool_call_is_read(hear, success):
    reply = success(
        hear(
            {"type": "start", "messageId": "m", "messageMetadata": {"model": "m-1"}},
            {"type": "start-step"},
            {"type": "reasoning-delta", "id": "r", "delta": "think"},
            {"type": "tool-input-start", **CALL},
            {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"id":'},
            {"type": "tool-input-available", **CALL, "input": {"id": 7}},
            {"type": "tool-output-available", "toolCallId": "c1", "output": {"text": "done"}},
            {"type": "finish-step"},
            {"type": "start-step"},
            {"type": "text-start", "id": "t"},
            text("Hel"),
            text("lo"),
            {"type": "text-end", "id": "t"},
            text("again", "u"),
            {"type": "data-weather", "data": "sunny"},
            {"type": "source-url", "sourceId": "s", "url": "u", "title": "no"},
            {"type": "finish-step"},
            {
                "type": "finish",
                "messageMetadata": {"totalUsage": {"inputTokens": 5, "outputTokens": 6}},
            },
            "[DONE]",
        )
    )
    assert reply.text == "Hello\n\nagain"
    (use,) = reply.tool_uses
    assert use.call == ToolCall("c1", "refund", {"id": 7})
    assert use.response == {"text": "done"}
    assert (reply.usage, reply.model) == (Usage(5, 6), "m-1")


def test_a_call_whose_arguments_came_in_pieces_alone_has_them(hear, success):
    pieces = ('{"id":', " 7}")
    (use,) = success(
        hear(
            {"type": "tool-input-start", **CALL},
            *(
                {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": p}
                for p in pieces
            ),
            text("ok"),
            {"type": "finish"},
        )
    ).tool_uses
    assert use.call == ToolCall("c1", "refund", {"id": 7})


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"type": "tool-output-error", "toolCallId": "c1", "errorText": "boom"}, "boom"),
        ({"type": "tool-input-error", **CALL, "input": {}, "errorText": "no id"}, "no id"),
        ({"type": "tool-output-denied", "toolCallId": "c1"}, "the call was not allowed"),
    ],
)
def test_a_tool_that_failed_is_a_call(hear, success, told, error):
    (use,) = success(
        hear(
            {"type": "tool-input-start", **CALL},
            told,
            text("ok"),
            {"type": "finish"},
        )
    ).tool_uses
    assert (use.call.name, use.response) == ("refund", {"error": error})


def test_a_result_of_a_call_that_was_not_reported_is_of_an_unknown_tool(hear, success):
    told = {"type": "tool-output-available", "toolCallId": "c9", "output": 1}
    (use,) = success(hear(told, text("ok"), {"type": "finish"})).tool_uses
    assert use.call.name == "unknown"


def test_an_event_about_a_tool_in_unknown_words_is_a_call_of_an_unknown_tool(hear, success):
    told = {"type": "tool-call", "toolName": "refund", "args": {}}
    (use,) = success(hear(text("ok"), told, {"type": "finish"})).tool_uses
    assert use.call.name == "unknown"


@pytest.mark.parametrize(
    "told",
    [
        (text("ok"), {"payload": {"type": "tool-input-available", **CALL}}, {"type": "finish"}),
        (text("ok"), {"type": "", **CALL}, {"type": "finish"}),
        (text("ok"), {"type": ["tool-input-available"], **CALL}, {"type": "finish"}),
        (
            {"type": "RUN_STARTED"},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "ok"},
            {"event": {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "refund"}},
            {"type": "RUN_FINISHED"},
        ),
    ],
)
def test_a_call_inside_an_event_without_a_type_is_one_of_an_unknown_tool(hear, success, told):
    reply = success(hear(*told))
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED]
    assert reply.text == "ok"


def test_data_of_the_agents_own_is_no_call(hear, success):
    told = {"type": "data-tool-progress", "data": 0.5}
    assert success(hear(text("ok"), told, {"type": "finish"})).tool_uses == ()


@pytest.mark.parametrize(
    "data",
    [
        {"id": "refunds", "toolCalls": [{"toolCallId": "c2", "toolName": "refund", "args": {}}]},
        {"steps": [{"content": [{"type": "tool-call", "toolName": "refund", "input": {}}]}]},
    ],
)
def test_a_call_of_an_agent_within_the_agent_is_one_of_an_unknown_tool(hear, success, data):
    reply = success(hear({"type": "data-tool-agent", "data": data}, text("ok"), {"type": "finish"}))
    (use,) = reply.tool_uses
    assert use.call.name == UNNAMED
    assert "data-tool-agent" in reply.warnings[0]


def test_data_that_repeats_a_call_is_no_other_call(hear, success):
    data = {"toolCallId": "c1", "toolName": "refund", "status": "running"}
    called = {"type": "tool-input-available", **CALL, "input": {"id": 7}}
    told = {"type": "data-progress", "data": data}
    reply = success(hear(called, told, text("ok"), {"type": "finish"}))
    assert [use.call.name for use in reply.tool_uses] == ["refund"]


def test_a_stream_that_ended_for_calls_it_did_not_show_may_have_made_any(hear, success):
    reply = success(hear(text("ok"), {"type": "finish", "finishReason": "tool-calls"}))
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED]


def test_another_stream_that_ends_with_finish_is_read_as_before(hear, success):
    assert success(hear({"type": "token", "text": "ok"}, {"type": "finish"})).text == "ok"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([{"type": "error", "errorText": "no model"}], "no model"),
        ([{"type": "abort", "reason": "user"}], "user"),
        ([{"type": "abort"}, "[DONE]"], "stopped"),
        ([], "the stream broke off"),
        (
            [{"type": "text-delta", "id": "t"}, {"type": "finish"}],
            "`delta` of event 3 is not a string",
        ),
        ([{"type": "tool-input-available", "toolName": "x"}, "[DONE]"], "`toolCallId` of event 3"),
    ],
)
def test_a_stream_without_a_whole_answer_is_an_error(hear, failure, told, reason):
    assert reason in failure(hear({"type": "start"}, text("ok"), *told)).message


def test_a_call_that_waits_for_approval_is_reported(hear, success):
    waits = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c1"}
    reply = success(hear({"type": "tool-input-available", **CALL, "input": {}}, waits, "[DONE]"))
    assert "waits for a person" in reply.warnings[0]
