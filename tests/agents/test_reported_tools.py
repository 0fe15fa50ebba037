"""What an answer shows: whether it would report tool calls, and why its agent failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.agents.command import printed_reply
from kindlm.agents.crewai_agent import read_crew
from kindlm.agents.drafts import Frame, assemble
from kindlm.agents.event_framing import frames_of
from kindlm.agents.event_streams import ModelDraft
from kindlm.agents.langgraph_replies import Sent, read_value
from kindlm.agents.reply_parts import UnreadableReply, error_text
from kindlm.agents.reply_reading import Reading, read_reply
from kindlm.agents.streaming_agent import EventsDraft
from kindlm.agents.tool_entries import has_place_for_calls
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED


def read(text: str) -> AgentReply:
    frames = frames_of(text, is_sse=True)[0]
    return assemble(ModelDraft(Reading(), frames), frames).reply


@pytest.mark.parametrize(
    ("value", "path", "shown"),
    [
        ("Done.", None, False),
        ({"response": "Done."}, None, False),
        ({"response": "Done.", "steps": ["thought", "wrote"]}, None, False),
        ({"response": "Done.", "steps": 2}, None, False),
        ({"response": "Done.", "tool_calls": []}, None, True),
        ({"response": "Done.", "tool_calls": None}, None, False),
        ({"response": "Done.", "tool_calls": [{"name": "lookup"}]}, None, True),
        ({"response": "Done.", "steps": []}, None, True),
        ({"response": "Done.", "data": {}}, "data.calls", True),
        ({"response": "Done.", "tools_used": []}, None, True),
        ({"response": "Done.", "tools_used": 0}, None, False),
        ({"response": "Done.", "tools_used": None}, None, False),
        ({"response": "Done.", "tools_used": 2}, None, False),
        ({"response": "Done.", "tools_used": "refund, lookup"}, None, False),
        ({"response": "Done.", "intermediate_steps": []}, None, True),
        ({"response": "Done.", "intermediate_steps": None}, None, False),
    ],
)
def test_json_shows_it_by_a_place_for_calls(value, path, shown):
    told = read_reply(value, Reading(tool_calls_path=path))
    calls = [use for use in told.tool_uses if use.call.name != UNNAMED]
    assert bool(told.reports_tools or calls) is shown


TEXT = {"type": "text", "text": "Done."}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"content": [TEXT]}, False),
        ({"content": [TEXT, {"type": "tool_use", "name": "lookup", "input": {}}]}, True),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "Do"}]}]},
         False),
        ({"output": [{"type": "reasoning"}, {"type": "function_call", "name": "lookup"}]}, True),
        ({"choices": [{"message": {"content": "Done."}}]}, False),
        ({"choices": [{"message": {"content": "Done.", "tool_calls": None}}]}, False),
        ({"choices": [{"message": {"content": "Done.", "tool_calls": []}}]}, True),
        ({"choices": [{"message": {"tool_calls": [{"function": {"name": "lookup"}}]}}]}, True),
        ({"message": {"role": "assistant", "content": "Done."}}, False),
        ({"message": {"role": "assistant", "content": "Done.", "tool_calls": None}}, False),
        ({"message": {"role": "assistant", "content": "Done.", "tool_calls": []}}, True),
    ],
)  # fmt: skip
def test_the_last_message_of_a_model_shows_no_calls_of_those_before_it(message, shown):
    told = read_reply(message, Reading())
    assert bool(told.reports_tools or told.tool_uses) is shown


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "tool_use", "name": "refund"}, "refund"),
        ({"type": "mcp_tool_use", "name": "refund"}, "refund"),
        ({"type": "tool-call", "toolName": "refund"}, "refund"),
        ({"type": "web_search_call"}, "web_search"),
        ({"type": "tool_search_call"}, "tool_search"),
        ({"type": "function_call"}, UNNAMED),
        ({"type": "tool-refund"}, UNNAMED),
        ({"type": "tool_result"}, UNNAMED),
        ({"type": "function_call_output"}, None),
        ({"type": "mcp_list_tools"}, None),
    ],
)
def test_a_part_about_a_tool_is_a_call(part, name):
    told = read_reply({"content": [{"type": "text", "text": "Done."}, part]}, Reading())
    assert told.text == "Done."
    assert [use.call.name for use in told.tool_uses] == ([] if name is None else [name])


def test_a_part_with_another_id_is_another_call_than_a_listed_one():
    part = {"type": "tool-call", "toolCallId": "c1", "toolName": "pay"}
    listed = {"toolCallId": "c2", "toolName": "pay", "input": {"to": "x"}}
    told = read_reply({"message": "ok", "content": [part], "toolCalls": [listed]}, Reading())
    assert sorted(use.call.id for use in told.tool_uses) == ["c1", "c2"]


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use"])
def test_a_stream_holds_calls_of_tools_that_the_provider_runs(kind):
    block = {"type": kind, "id": "c1", "name": "refund"}
    event = {"type": "content_block_start", "index": 0, "content_block": block}
    told = read(f"data: {json.dumps(event)}\n\n")
    assert [use.call.name for use in told.tool_uses] == ["refund"]


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        (["Do", "ne."], False),
        ([{"text": "Do"}, {"text": "ne."}], False),
        ([{"text": "Done.", "tool_calls": []}], True),
        ([{"choices": [{"delta": {"content": "Done."}}]}], False),
        ([{"choices": [{"delta": {"content": "Done.", "tool_calls": None}}]}], False),
        ([{"choices": [{"delta": {"content": "Done.", "tool_calls": []}}]}], True),
        ([{"choices": [{"delta": {"tool_calls": [{"function": {"name": "lookup"}}]}}]}], True),
        (
            [
                {"type": "message_start", "message": {"role": "assistant", "content": []}},
                {"type": "content_block_delta", "index": 0, "delta": {"text": "Done."}},
                {"type": "message_stop"},
            ],
            False,
        ),
    ],
)
def test_a_stream_shows_it_by_a_list_of_calls_or_a_call(events, shown):
    frames = (event if isinstance(event, str) else json.dumps(event) for event in events)
    text = "".join(f"data: {frame}\n\n" for frame in frames) + "data: [DONE]\n\n"
    told = read(text)
    assert bool(told.reports_tools or told.tool_uses) is shown


def ended_for(reason: str) -> list[AgentReply]:
    """Return answers that say in different places why they ended."""
    said = {"content": "Done."}
    whole = [
        {"text": "Done.", "finish_reason": reason},
        {"choices": [{"message": said, "finishReason": reason}]},
        {"content": [TEXT], "stop_reason": reason},
        {"message": {**said, "stopReason": reason}},
    ]
    streams = [
        [{"choices": [{"delta": said}]}, {"choices": [{"delta": {}, "finish_reason": reason}]}],
        [{"text": "Done."}, {"type": "message_delta", "delta": {"stop_reason": reason}}],
    ]
    texts = ["".join(f"data: {json.dumps(each)}\n\n" for each in events) for events in streams]
    return [*(read_reply(each, Reading()) for each in whole), *map(read, texts)]


@pytest.mark.parametrize("reason", ["tool_calls", "TOOL_USE", "tool-calls", "function_call"])
def test_an_answer_that_ended_for_calls_and_shows_none_may_have_made_any(reason):
    replies = ended_for(reason)
    assert [[use.call.name for use in told.tool_uses] for told in replies] == [[UNNAMED]] * 6
    empty = {"choices": [{"message": {"content": ""}, "finish_reason": reason}]}
    with pytest.raises(UnreadableReply, match="finish reason is a tool call, but it contains none"):
        read_reply(empty, Reading())


@pytest.mark.parametrize(
    "reason",
    [
        *("length", "max_tokens", "MAX_OUTPUT_TOKENS", "content-filter", "incomplete", "error"),
        *("abort", "model_context_window_exceeded", "pause_turn", "refusal", "SAFETY"),
    ],
)
def test_an_answer_that_was_cut_off_says_so(reason):
    told = reason.lower().replace("-", "_")
    warning = f"The answer was cut off: the agent reported `{told}`."
    assert [told.warnings for told in ended_for(reason)] == [(warning,)] * 6
    assert [told.warnings for told in ended_for("stop")] == [()] * 6


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["Done."], False),
        ([{"text": "Done."}], False),
        ([{"type": "reply", "text": "Done."}], False),
        ([{"type": "token", "token": "Done."}], True),
        ([{"type": "final_message", "text": "Done."}], True),
    ],
)
def test_events_show_it_by_their_types(pieces, shown):
    frames = (Frame("message", "Done.", piece) for piece in pieces)
    assert bool(assemble(EventsDraft(), frames).reply.reports_tools) is shown


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"result": "Done."}, False),
        ({"result": "Done.", "tasks_output": [{"raw": "Done."}]}, False),
        ({"result": "Done.", "tasks_output": [{"raw": "Done.", "messages": []}]}, True),
        ({"result": "Done.", "tasks_output": [{"raw": "Done.", "messages": None}]}, False),
        ({"result": "Done.", "tasks": [{"tool": None, "output": "Done."}]}, True),
        ({"result": "Done.", "agent_executions": [{"tool_used": "lookup"}]}, True),
    ],
)
def test_a_crew_shows_it_by_tools_or_messages_of_its_tasks(answer, shown):
    # That a task was done, which counts as the call of `crew_task`, says nothing of its tools.
    assert read_crew(json.dumps(answer)).reports_tools is shown


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"output": "Done."}, False),
        ({"output": "Done.", "steps": ["planned"]}, False),
        ({"output": "Done.", "intermediate_steps": []}, True),
        ({"output": "Done.", "messages": None}, False),
        ({"output": "Done.", "messages": "Done."}, False),
        ({"messages": [{"type": "ai", "content": "Done."}]}, True),
    ],
)
def test_a_graph_shows_it_by_messages_or_steps(state, shown):
    heard = read_value(state, Sent("Refund A1."))
    assert bool(heard.reports_tools) is shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("Done.", False),
        ('{"kindlm": "tool_calls"}', False),
        ('{"kindlm": "output_json", "value": null}', True),
        ('Done.\n{"kindlm": "tool_call", "name": "lookup"}', True),
    ],
)
def test_a_command_shows_it_by_a_report(printed, shown):
    assert printed_reply(printed, 1.0).reports_tools is shown


def test_calls_in_the_words_of_react_do_not_show_that_calls_are_reported() -> None:
    message = {"role": "assistant", "content": "Action: refund\nAction Input: {}"}
    answer = {"raw": "Done.", "tasks_output": [{"raw": "Done.", "messages": [message]}]}
    assert read_crew(json.dumps(answer)).reports_tools is False


CALL = {"type": "function", "function": {"name": "lookup", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("reply", "has_place"),
    [
        ({"tool_calls": []}, True),
        ({"toolCalls": [CALL]}, True),
        ({"message": {"tool_calls": []}}, True),
        ({"trace": {"toolUses": []}}, True),
        ({"choices": [{"message": {"tool_calls": [CALL]}}]}, True),
        ({"choices": [{"delta": {"tool_calls": []}}]}, True),
        ({"tools_used": []}, True),
        ({"tools_used": ["lookup"]}, True),
        ({"intermediate_steps": []}, True),
        ({"steps": []}, True),
        ({"steps": [{"tool": "lookup", "input": {"id": 1}}]}, True),
        ({"text": "Hi"}, False),
        ({"tool_calls": None}, False),
        ({"tools_used": None}, False),
        ({"intermediate_steps": None}, False),
        ({"steps": None}, False),
        ({"steps": ["I looked it up"]}, False),
        ({"choices": [{"message": {"content": "Hi"}}]}, False),
        ({"other": {"tool_calls": []}}, False),
        ([{"tool_calls": []}], False),
        ("tool_calls", False),
    ],
)
def test_a_usual_list_shows_it_even_if_it_is_empty(reply: Any, has_place: bool) -> None:
    assert has_place_for_calls(reply, None) is has_place


@pytest.mark.parametrize("reply", [{"text": "Hi"}, [], None])
def test_so_does_the_path_that_the_user_wrote(reply: Any) -> None:
    assert has_place_for_calls(reply, "data.calls")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["down"], "down"),
        ([{"error": "down"}], "down"),
        ([{"error": {"message": "down", "code": 1}}], "down"),
        ([{"error": "ValueError", "message": "down"}], "ValueError: down"),
        ([{"message": "down"}], "down"),
        ([{"error": {"code": 1}}], '{"code":1}'),
        ([{"error": True, "message": "down"}], "down"),
        ([{"error": True, "detail": "down"}], "down"),
        ([{"type": "error"}, {"message": "down"}], "down"),
        ([None, "the whole line"], "the whole line"),
        ([{"error": 7}, ""], "no explanation"),
    ],
)
def test_the_first_part_that_says_anything_is_heard(parts: list[Any], said: str) -> None:
    assert error_text(*parts) == said
