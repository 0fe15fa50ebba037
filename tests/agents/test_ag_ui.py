"""Agents that stream events of AG-UI, in other ways than the usual one."""

from __future__ import annotations

import json

import pytest

from kindlm.agents.event_streams import read_stream
from kindlm.agents.reply_parts import UnreadableReply
from kindlm.agents.reply_reading import Reading
from kindlm.transcript import Usage

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
ANSWER = (
    {"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "Refun"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "ded."},
    {"type": "TEXT_MESSAGE_END", "messageId": "m2"},
)


@pytest.fixture
def hear():
    """Return what comes of a run with these events and this outcome."""

    def hear(*events, **outcome):
        run = [STARTED, *events, {"type": "RUN_FINISHED", **outcome}]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in run)
        return read_stream(text, Reading(), has_end=True)

    return hear


def test_chunks_go_on_with_what_the_last_one_named(hear):
    told = hear(
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "b"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "x", "delta": "{"},
        {"type": "TOOL_CALL_CHUNK", "delta": "}"},
    ).reply

    assert (told.text, [use.call.name for use in told.tool_uses]) == ("ab", ["x"])


def test_a_snapshot_tells_what_no_event_did_since_the_users_message(hear):
    call = {"id": "c1", "function": {"name": "refund", "arguments": '{"id": 7}'}}
    old = {"id": "c0", "function": {"name": "old", "arguments": "{}"}}
    told = hear(
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [
                {"role": "assistant", "toolCalls": [old]},
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "", "toolCalls": [call]},
                {"role": "tool", "toolCallId": "c1", "content": "done"},
                {"role": "assistant", "content": "Refunded."},
            ],
        }
    ).reply

    (use,) = told.tool_uses
    assert (told.text, use.call.name, use.response) == ("Refunded.", "refund", "done")


def test_what_others_say_is_no_answer(hear):
    told = hear(
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "b", "subagentRunId": "s"},
        {"type": "TEXT_MESSAGE_START", "messageId": "u", "role": "user"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "u", "delta": "Hello"},
        *ANSWER,
    ).reply

    assert told.text == "Refunded."


def test_events_without_a_call_say_that_there_was_none(hear):
    told = hear({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"}).reply

    assert (told.tool_uses, told.reports_tools, told.warnings) == ((), True, ())


def test_a_run_that_waits_has_a_warning(hear):
    (warning,) = hear(outcome={"type": "interrupt", "interrupts": [{"id": "i"}]}).reply.warnings

    assert "waits for a person" in warning


def test_an_unknown_event_of_a_tool_may_be_a_call(hear):
    assert hear({"type": "TOOL_CALL_STARTED_LATER"}).reply.tool_uses[0].call.name == "unknown"


def test_calls_of_nested_agents_in_other_events_and_the_result_are_noticed(hear):
    call = {"name": "refund", "args": {"id": 7}}
    event = {"type": "CUSTOM", "name": "progress", "value": {"steps": [call]}}
    for told in (hear(event), hear(result={"calls": [call]})):
        assert [use.call.name for use in told.reply.tool_uses] == ["unknown"]
        assert "`TOOL_CALL_START`" in told.reply.warnings[0]
    known = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "refund"}
    assert not hear({**known, "delta": '{"id": 7}'}, event).reply.warnings


@pytest.mark.parametrize(
    "event",
    [
        {"type": "RUN_STARTED", "input": {"messages": [{"toolCalls": [{"id": "c0"}]}]}},
        {"type": "RAW", "event": {"tool_call_chunks": [{"name": "refund", "args": "{"}]}},
        {"type": "STATE_SNAPSHOT", "snapshot": {"tool": "refund"}},
        {
            "type": "CUSTOM",
            "name": "PredictState",
            "value": [{"state_key": "recipe", "tool": "write", "tool_argument": "recipe"}],
        },
        {
            "type": "ACTIVITY_SNAPSHOT",
            "activityType": "a2ui-surface",
            "content": {"action": {"functionCall": {"call": "openUrl", "args": {"url": "/"}}}},
        },
    ],
)
def test_other_events_hide_nothing(hear, event):
    assert not hear(event).reply.tool_uses


@pytest.mark.parametrize("other", [None, "40", [{"inputTokens": 40, "outputTokens": 5}]])
def test_tokens_of_a_model_that_cannot_be_read_are_unknown(hear, other):
    known = {"model": "a", "inputTokens": 60, "outputTokens": 20}
    assert hear(usage=[known, known]).reply.usage == Usage(120, 40)
    assert hear(usage=[known, other]).reply.usage == Usage()


def test_calls_that_a_message_hides_are_noticed(hear):
    trail = {"toolCalls": [{"name": "refund", "args": {"id": 7}}]}
    said = {"role": "assistant", "content": "Done.", "trail": trail}
    told = hear({"type": "MESSAGES_SNAPSHOT", "messages": [said]}).reply
    assert [use.call.name for use in told.tool_uses] == ["unknown"]


def test_messages_that_are_no_list_of_objects_are_no_answer(hear):
    with pytest.raises(UnreadableReply, match="not a list of objects"):
        hear({"type": "MESSAGES_SNAPSHOT", "messages": {"0": {"role": "assistant"}}})
