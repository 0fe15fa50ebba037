"""Tool calls in places where kindlm reads none, beside those of crews, graphs, streams and A2A."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.agents.crewai_agent import read_crew
from kindlm.agents.drafts import Draft, assemble
from kindlm.agents.event_framing import frames_of
from kindlm.agents.event_streams import ModelDraft
from kindlm.agents.langgraph_replies import GraphDraft, RunDraft, Sent, read_value
from kindlm.agents.protocols.a2a import read_call_answer
from kindlm.agents.reply_reading import Reading, read_reply
from kindlm.agents.streaming_agent import EventsDraft
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED
from kindlm.wires import UnreadableReply

SENT = Sent("Hello")
ASKED = {"type": "human", "content": "Hello"}
PAY = {"id": "c1", "name": "pay", "args": {"to": "Ada"}}
PAID = {"type": "tool", "tool_call_id": "c1", "name": "pay", "content": "paid"}
PAYS = {"type": "ai", "content": "", "tool_calls": [PAY]}
DONE = {"type": "ai", "content": "Done."}
REFUND = {"id": "c2", "name": "refund", "args": {"id": 7}}
PAY_OF_OPENAI = {
    "id": "c1",
    "type": "function",
    "function": {"name": "pay", "arguments": '{"to": "Ada"}'},
}
DEFINITION = {
    "type": "function",
    "function": {
        "name": "refund",
        "description": "Refund an order.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}},
    },
}
SPOKEN = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": None, "tool_calls": [PAY_OF_OPENAI]},
    {"role": "tool", "tool_call_id": "c1", "name": "pay", "content": "paid"},
]
TASK = {
    "description": "Pay Ada.",
    "name": "pay_task",
    "expected_output": "A receipt.",
    "summary": "Pay Ada...",
    "raw": "Done.",
    "pydantic": None,
    "json_dict": None,
    "agent": "Accountant",
    "output_format": "raw",
    "messages": SPOKEN,
}
CREW = {
    "raw": "Done.",
    "pydantic": None,
    "json_dict": None,
    "tasks_output": [TASK],
    "token_usage": {
        "total_tokens": 30,
        "prompt_tokens": 20,
        "cached_prompt_tokens": 0,
        "completion_tokens": 10,
        "successful_requests": 2,
    },
}


def read(draft: Draft, text: str) -> AgentReply:
    return assemble(draft, frames_of(text, is_sse=True)[0]).reply


def names_of(reply: AgentReply) -> list[str]:
    return [use.call.name for use in reply.tool_uses]


def assert_all_is_read(reply: AgentReply) -> None:
    assert names_of(reply) == ["pay"]
    assert not any("did not read" in each for each in reply.warnings)


def assert_hidden(reply: AgentReply, place: str) -> None:
    assert names_of(reply)[-1] == UNNAMED
    assert (
        f"`{place}` of the answer may contain tool calls that kindlm did not read"
        in (reply.warnings[0])
    )


def events(*told: tuple[str, Any]) -> str:
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in told)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"json_dict": {"plan": [{"tool": "hammer", "args": {}}]}},
        {"pydantic": {"name": "Ada", "arguments": ["pro", "contra"]}},
        {"tasks_output": [{**TASK, "json_dict": {"tool": "hammer"}}]},
        {"tasks_output": [{**TASK, "tools_used": ["pay"]}]},
        {"agents": [{"role": "Accountant", "tools": [DEFINITION, {"name": "pay"}]}]},
        {"messages": SPOKEN},
    ],
)
def test_the_output_of_a_crew_hides_nothing(changed: dict[str, Any]) -> None:
    assert_all_is_read(read_crew(json.dumps(CREW | changed)))


def test_what_the_tool_of_a_task_found_is_no_call() -> None:
    found = [{"name": "kindlm", "args": ["--help"]}]
    task = {"tool": "pay", "inputs": {"to": "Ada"}, "output": {"commands": found}}
    assert_all_is_read(read_crew(json.dumps({"result": "Done.", "tasks": [task]})))


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"messages": [{"role": "assistant", "tool_calls": [REFUND]}]}, "messages[0].tool_calls"),
        ({"last_step": {"tool": "refund", "tool_input": "7"}}, "last_step"),
        ({"result": {"raw": "Done.", "tool_calls": [REFUND]}}, "result.tool_calls"),
        ({"tasks_output": [{**TASK, "tool_calls": [REFUND]}]}, "tasks_output[0].tool_calls"),
        ({"tasks_output": [{**TASK, "tools_used": ["refund"]}]}, "tasks_output[0].tools_used"),
        (
            {"tasks_output": [{"description": "d", "output": {"tool_calls": [REFUND]}}]},
            "tasks_output[0].output.tool_calls",
        ),
        (
            {
                "tasks": [{"tool": "pay"}],
                "tasks_output": [{"messages": [{"tool_calls": [REFUND]}]}],
            },
            "tasks_output[0].messages[0].tool_calls",
        ),
        (
            {"agent_executions": [{"agent_name": "A", "toolCalls": [REFUND]}]},
            "agent_executions[0].toolCalls",
        ),
    ],
)
def test_calls_that_a_crew_hides_are_noticed(changed: dict[str, Any], place: str) -> None:
    reply = read_crew(json.dumps(CREW | changed))
    assert_hidden(reply, place)
    assert "report them as `tasks` with a `tool`" in reply.warnings[0]


STATE = {"messages": [ASKED, PAYS, PAID, DONE]}


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        {"output": STATE},
        {"values": {**STATE, "next": []}, "thread_id": "t"},
        {**STATE, "remaining_steps": 22, "is_last_step": False},
        {**STATE, "tools": [DEFINITION]},
        {**STATE, "plan": ["Find Ada.", "Pay her."], "past_steps": [["Find Ada.", "Found."]]},
        {**STATE, "documents": [{"type": "Document", "page_content": "x", "metadata": {"a": 1}}]},
        {**STATE, "llm_input_messages": [ASKED, PAYS, PAID]},
        {**STATE, "steps": ["I paid."]},
        {**STATE, "agent_outcome": {"return_values": {"output": "Done."}, "type": "AgentFinish"}},
    ],
)
def test_a_state_hides_nothing(state: dict[str, Any]) -> None:
    assert_all_is_read(read_value(state, SENT))


def test_an_interrupt_asks_about_calls_that_are_read() -> None:
    asked = {
        "name": "pay",
        "args": {"to": "Ada"},
        "description": "Tool execution requires approval",
    }
    interrupt = {
        "value": {
            "action_requests": [asked],
            "review_configs": [{"action_name": "pay", "allowed_decisions": ["approve"]}],
        },
        "id": "i1",
    }
    state = {"messages": [ASKED, PAYS], "__interrupt__": [interrupt]}
    assert_all_is_read(read_value(state, SENT))
    updates = [
        ("updates", {"agent": {"messages": [PAYS]}}),
        ("updates", {"__interrupt__": [interrupt]}),
    ]
    assert_all_is_read(read(RunDraft(SENT), events(*updates)))
    other = {**interrupt, "value": {"action_requests": [REFUND]}}
    reply = read(RunDraft(SENT), events(*updates, ("updates", {"__interrupt__": [other]})))
    assert_hidden(reply, "__interrupt__.value.action_requests[0]")


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"agent_outcome": {"tool": "refund", "tool_input": {"id": 7}}}, "agent_outcome"),
        ({"research": {"messages": [{"tool_calls": [REFUND]}]}}, "research.messages[0].tool_calls"),
        ({"llm_input_messages": [{"type": "ai", "tool_calls": [REFUND]}]},
         "llm_input_messages[0].tool_calls"),
        ({"pending": [{**REFUND, "args": {"id": 8}}]}, "pending[0]"),
    ],
)  # fmt: skip
def test_calls_that_a_state_hides_are_noticed(changed: dict[str, Any], place: str) -> None:
    for state in (STATE | changed, {"output": STATE | changed}):
        reply = read_value(state, SENT)
        assert_hidden(reply, place)
        assert "report them as `steps`" in reply.warnings[0]


UPDATES = [
    ("updates", {"agent": {"messages": [PAYS]}}),
    ("updates", {"tools": {"messages": [PAID]}}),
    ("updates", {"agent": {"messages": [DONE]}}),
]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [("values", STATE)],
        [("updates", {"hook": {"llm_input_messages": [ASKED, PAYS, PAID]}})],
        [("updates", {"agent": {"agent_outcome": {"tool": "pay", "tool_input": {"to": "Ada"}}}})],
        [("updates", {"tools": [{"messages": [PAID]}, {"messages": []}]})],
        [("updates", {"summary": None})],
        [("updates", {"act": {"intermediate_steps": [[{"tool": "pay"}, "paid"]]}})],
    ],
)
def test_a_run_hides_nothing(more: list[Any]) -> None:
    assert_all_is_read(read(RunDraft(SENT), events(*UPDATES, *more)))


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ({"tool_calls": [REFUND]}, "act"),
        ({"steps": [{"tool": "refund"}]}, "act"),
        ({"intermediate_steps": [[{"tool": "refund", "tool_input": {}}, "ok"]]}, "act"),
        ({"agent_outcome": {"tool": "refund", "tool_input": "7"}}, "act.agent_outcome"),
        ([{"messages": []}, {"pending": REFUND}], "act.pending"),
    ],
)
def test_calls_that_a_node_hides_are_noticed(node: Any, place: str) -> None:
    told = [*UPDATES, ("updates", {"act": node}), ("values", STATE)]
    assert_hidden(read(RunDraft(SENT), events(*told)), place)
    frames = [{"messages": [ASKED, PAYS, PAID, DONE]}, {"act": node}]
    text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    assert_hidden(read(GraphDraft(SENT), text), place)


def test_calls_of_messages_in_a_list_of_updates_are_read() -> None:
    told = [("updates", {"tools": [{"messages": [PAYS]}, {"messages": [PAID, DONE]}]})]
    reply = read(RunDraft(SENT), events(*told))
    assert_all_is_read(reply)
    assert reply.text == "Done."


@pytest.mark.parametrize("key", ["steps", "intermediate_steps"])
def test_steps_in_the_last_state_of_a_stream_are_read(key: str) -> None:
    told = {
        "steps": [{"tool": "refund", "parameters": {"id": 7}}],
        "intermediate_steps": [[{"tool": "refund", "tool_input": {"id": 7}}, "ok"]],
    }
    states = [{**STATE, key: []}, {**STATE, key: told[key]}]
    text = events(*(("values", state) for state in states))
    for reply in (read(RunDraft(SENT), text), read(GraphDraft(SENT), text)):
        assert names_of(reply) == ["refund", "pay"]
        assert not reply.warnings


def test_steps_beside_a_state_and_in_it_are_read() -> None:
    steps = [{"tool": "look", "cost": 0.5}, {"tool": "refund", "cost": 0.25}]
    body = {"output": {**STATE, "steps": steps[1:]}, "steps": steps[:1]}
    reply = read_value(body, SENT)
    assert names_of(reply) == ["look", "refund", "pay"]
    assert reply.reported_cost_usd == 0.75


def test_steps_that_a_thread_had_before_are_those_of_an_earlier_answer() -> None:
    old, new = {"tool": "refund"}, {"tool": "look"}
    state = {"messages": [ASKED, DONE]}
    told = events(("values", {**state, "steps": [old]}), ("values", {**state, "steps": [old, new]}))
    assert names_of(read(RunDraft(Sent("Hello", has_history=True)), told)) == ["look"]
    assert names_of(read(RunDraft(SENT), told)) == ["refund", "look"]


def test_steps_that_are_an_object_are_a_call() -> None:
    reply = read_value({**STATE, "steps": {"tool": "refund"}}, SENT)
    assert names_of(reply) == ["refund", "pay"]


def test_an_event_that_looks_like_a_call_is_noticed_among_those_of_a_graph() -> None:
    frames = [STATE, {"type": "tool_start", "name": "refund", "input": {}}]
    text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    assert_hidden(read(GraphDraft(SENT), text), ".")


def test_calls_that_an_event_hides_beside_others_are_noticed() -> None:
    event = {"text": "Done.", "tool_calls": [PAY], "trail": {"tool_calls": [REFUND]}}
    told = read(ModelDraft(Reading(), ()), f"data: {json.dumps(event)}\n\n")
    assert names_of(told) == ["pay", UNNAMED]
    event = {"type": "tool_calls", "tool_calls": [PAY]}
    told = read(ModelDraft(Reading(), ()), f"data: {json.dumps(event)}\n\n")
    assert names_of(told) == ["pay"]


@pytest.mark.parametrize("draft", [GraphDraft, RunDraft])
def test_calls_in_a_list_of_events_are_noticed(draft: type[GraphDraft]) -> None:
    state = ("values", {"messages": [ASKED, PAYS, PAID, DONE]})
    steps = [{"type": "step", "tool": name, "parameters": {}} for name in ("look", "refund")]
    piece = {"type": "AIMessageChunk", "tool_call_chunks": [{"name": "pay", "args": ""}]}
    about = {"langgraph_node": "agent"}
    assert_hidden(read(draft(SENT), events(("updates", steps), state)), "updates[1]")
    assert_all_is_read(read(draft(SENT), events(("messages", [piece, about]), state)))
    assert_all_is_read(read(draft(SENT), events(("updates", [{"act": None}]), state)))


def test_definitions_of_tools_are_no_calls() -> None:
    flat = {"type": "function", "strict": True, **DEFINITION["function"]}  # type: ignore[dict-item]
    of_anthropic = {
        "name": "refund",
        "input_schema": {"type": "object", "properties": {}},
        "type": "custom_tool",
    }
    body = {"text": "Done.", "tool_calls": [PAY], "tools": [DEFINITION, flat, of_anthropic]}
    assert_all_is_read(read_reply(body, Reading()))
    called = {**DEFINITION, "function": {**DEFINITION["function"], "arguments": "{}"}}  # type: ignore[dict-item]
    assert names_of(read_reply({**body, "tools": [called]}, Reading())) == ["pay", UNNAMED]


RESULTS: list[dict[str, Any]] = [
    {"type": "tool_result", "tool_use_id": "c1", "content": "paid"},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "paid"}]},
    {"type": "tool-result", "toolCallId": "c1", "toolName": "pay", "output": "paid"},
    {"type": "function_call_output", "call_id": "c1", "output": "paid"},
]


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_among_parts_belongs_to_a_call_of_a_separate_list(result: dict[str, Any]) -> None:
    parts = [{"type": "text", "text": "Done."}, result]
    for body in (
        {"content": parts, "tool_calls": [PAY]},
        {"text": "Done.", "metadata": {"output": parts}, "steps": [PAY]},
        {"choices": [{"message": {"content": parts, "tool_calls": [PAY_OF_OPENAI]}}]},
    ):
        reply = read_reply(body, Reading())
        assert_all_is_read(reply)
        assert reply.tool_uses[0].response == result.get("output", result.get("content"))


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"tool_use_id": "c2"}, None),
        ({"tool_use_id": None}, "content[0]"),
    ],
)
def test_a_result_that_may_be_of_another_call_is_noticed(
    changed: dict[str, Any], place: str | None
) -> None:
    body = {"text": "Done.", "content": [RESULTS[0] | changed], "tool_calls": [PAY]}
    reply = read_reply(body, Reading())
    if place is None:
        assert [use.response for use in reply.tool_uses] == [None, "paid"]
        assert "tool call 1 has no name" in reply.warnings[0]
    else:
        assert_hidden(reply, place)


def test_buttons_of_a_user_interface_in_a2a_are_no_calls() -> None:
    button = {"action": {"functionCall": {"call": "openUrl", "args": {"url": "/"}}}}
    about = {"mimeType": "application/json+a2ui"}
    parts = [{"text": "Choose."}, {"data": {"components": [button]}, "metadata": about}]
    result = {"message": {"role": "ROLE_AGENT", "parts": parts}}
    reply = read_call_answer({"jsonrpc": "2.0", "result": result}).reply
    assert (reply.tool_uses, reply.warnings) == ((), ())


@pytest.mark.parametrize("is_beside", [True, False])
def test_calls_that_data_of_a2a_hide_are_noticed(is_beside: bool) -> None:
    data = {"trail": {"tool_calls": [REFUND]}, **({"tool_calls": [PAY]} if is_beside else {})}
    message = {"role": "ROLE_AGENT", "parts": [{"text": "Done."}, {"data": data}]}
    answer = {"jsonrpc": "2.0", "result": {"message": message}}
    reply = read_call_answer(answer).reply
    assert names_of(reply) == ["pay", UNNAMED][not is_beside :]
    assert_hidden(reply, "data.trail.tool_calls")


@pytest.mark.parametrize("part", [{"data": '{"name": "refund"}'}, {"text": "refund"}])
def test_a_part_of_a2a_that_calls_itself_a_call_is_noticed(part: dict[str, Any]) -> None:
    parts = [{"text": "Done."}, {**part, "metadata": {"adk_type": "function_call"}}]
    message = {"role": "ROLE_AGENT", "parts": parts}
    assert_hidden(
        read_call_answer({"jsonrpc": "2.0", "result": {"message": message}}).reply, "metadata"
    )


@pytest.mark.parametrize("named", [["refund"], {"name": "refund"}])
def test_the_tool_of_a_crew_that_is_no_text_may_be_any(named: Any) -> None:
    task = {"description": "Refund.", "tool": named, "output": "ok"}
    execution = {"agent_name": "a", "tool_used": named}
    for body in ({"tasks": [task]}, {"tasks": [TASK], "agent_executions": [execution]}):
        assert UNNAMED in names_of(read_crew(json.dumps({"result": "Done.", **body})))


def test_calls_that_a_message_of_a_task_hides_are_noticed() -> None:
    said = [{"role": "assistant", "content": "Done.", "trail": {"tool_calls": [REFUND]}}]
    body = {"result": "Done.", "tasks": [{**TASK, "messages": said}]}
    assert_hidden(read_crew(json.dumps(body)), "trail.tool_calls")


@pytest.mark.parametrize("key", ["agent_executions", "agentExecutions"])
def test_executions_of_a_crew_in_another_form_are_noticed(key: str) -> None:
    execution = {"tool_used": "refund", "inputs": {"id": 7}}
    body = {"result": "Done.", "tasks": [TASK], key: {"0": execution}}
    assert_hidden(read_crew(json.dumps(body)), key)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"type": "function", "function": '{"name": "refund", "arguments": "{}"}'}, "refund"),
        ({"function": "refund", "arguments": {}}, "refund"),
        ({"name": "Clerk", "action": "refund", "action_input": {}}, "refund"),
        ({"name": "refund", "action": "done"}, "refund"),
        ({"action": "tool='refund' tool_input={}"}, UNNAMED),
        ({"tool": '{"id": 7}'}, UNNAMED),
        ({"tool": "Refund (orders)"}, "Refund (orders)"),
    ],
)
def test_the_name_of_a_call_is_that_of_its_tool(entry: dict[str, Any], name: str) -> None:
    assert names_of(read_reply({"text": "x", "calls": [entry]}, Reading())) == [name]


@pytest.mark.parametrize("key", ["tool_calls", "steps"])
def test_a_list_of_calls_that_is_json_in_a_text_is_noticed(key: str) -> None:
    told = {"text": "Done.", "trail": {key: json.dumps([REFUND])}}
    assert_hidden(read_reply(told, Reading()), f"trail.{key}")
    assert not read_reply({"text": "Done.", "trail": {key: "I refunded it."}}, Reading()).tool_uses
    with pytest.raises(UnreadableReply):
        read_reply({"text": "x", "trace": json.dumps({"used": [REFUND]})}, USED)
    assert not read_reply({"text": "x", "trace": None}, USED).tool_uses


USED = Reading(tool_calls_path="trace.used")


@pytest.mark.parametrize(
    "steps",
    [[[{"tool": "refund"}]], '[{"tool": "refund"}]', ['{"tool": "refund"}']],
)
def test_steps_of_a_graph_in_lists_of_lists_or_in_texts_are_read(steps: Any) -> None:
    assert names_of(read_value({"output": "Done.", "steps": steps}, SENT)) == ["refund"]


def test_messages_that_are_json_in_texts_are_read() -> None:
    state = {"messages": [json.dumps(each) for each in STATE["messages"]]}
    assert_all_is_read(read_value(state, SENT))


def test_an_event_that_is_json_in_a_text_hides_no_call() -> None:
    event = json.dumps({"type": "tool_call", "name": "refund"})
    text = f"data: {json.dumps(event)}\n\ndata: {json.dumps(STATE)}\n\n"
    assert UNNAMED in names_of(read(GraphDraft(SENT), text))
    assert UNNAMED in names_of(read(EventsDraft(), text))


@pytest.mark.parametrize(
    "event",
    [
        ("custom", {"progress": REFUND}),
        ("updates|act:1", [{"messages": [{"tool_calls": [REFUND]}]}]),
        ("", REFUND),
    ],
)
def test_calls_in_other_events_of_a_run_are_noticed(event: tuple[str, Any]) -> None:
    told = read(RunDraft(SENT), events(*UPDATES, event, ("values", STATE)))
    assert names_of(told)[-1] == UNNAMED


@pytest.mark.parametrize(
    "event",
    [
        ("custom", {"progress": PAY}),
        ("messages/partial", [{"tool_call_chunks": [{"name": "refund", "args": "{"}]}]),
        ("metadata", {"run_id": "r"}),
        ("end", None),
    ],
)
def test_other_events_of_a_run_hide_nothing(event: tuple[str, Any]) -> None:
    assert_all_is_read(read(RunDraft(SENT), events(*UPDATES, event, ("values", STATE))))


def test_a_step_of_a_graph_under_another_key_is_noticed() -> None:
    frames = [{"type": "step", "tool_name": "refund", "parameters": {}}, STATE]
    text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    assert UNNAMED in names_of(read(GraphDraft(SENT), text))


@pytest.mark.parametrize("data", [{"toolName": ["refund"]}, {"inner": {"toolName": "refund"}}])
def test_a_narration_whose_tool_cannot_be_read_may_be_a_call(data: Any) -> None:
    frames = [{"type": "step_narration", "data": data}, {"type": "final_message", "text": "Done."}]
    text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    assert names_of(read(EventsDraft(), text)) == [UNNAMED]


def test_a_state_tells_again_what_was_seen_elsewhere() -> None:
    state = {"answer": "Done.", "log": [PAY, {"tool": "look", "tool_input": "Ada"}]}
    pay = read_value(STATE, SENT).tool_uses
    called = {"name": "look", "args": {"tool_input": "Ada"}}
    look = read_reply({"text": "x", "tool_calls": [called]}, Reading()).tool_uses
    assert not read_value(state, Sent("Hello", seen=(*pay, *look))).warnings
    assert_hidden(read_value(state, Sent("Hello", seen=pay)), "log[1]")


REFUNDED = {"tool": "refund", "input": {"id": 7}}


@pytest.mark.parametrize(
    ("data", "is_unread"),
    [
        ({"steps": [REFUNDED]}, True),
        ({"trace": [REFUNDED]}, True),
        ({"tool_calls": "refund"}, True),
        ({"calls": [], "steps": [REFUNDED]}, False),
        ({"calls": None, "steps": [REFUNDED]}, False),
        ({"steps": []}, False),
        ({}, False),
    ],
)
def test_a_path_at_which_there_is_nothing_hides_no_calls(
    data: dict[str, Any], is_unread: bool
) -> None:
    reading = Reading(response_path="text", tool_calls_path="data.calls")
    reply = read_reply({"text": "Done.", "data": data}, reading)
    assert [use.call.name for use in reply.tool_uses] == [UNNAMED] * is_unread
    assert (
        any("correct `toolCallsPath: data.calls`" in each for each in reply.warnings) is is_unread
    )


@pytest.mark.parametrize("holder", ["", "message", "data", "metadata", "meta", "trace"])
@pytest.mark.parametrize(
    ("key", "entries", "read"),
    [
        ("calls", [{"tool": "refund"}, {"at": 1}], ["refund"]),
        ("calls", [{"arguments": {"id": 7}}], []),
        ("invocations", {"at": 1}, []),
        ("toolResults", [{"tool": "refund"}, "paid"], ["refund"]),
        ("intermediate_steps", [{"tool": "refund"}, {"at": 1}], ["refund"]),
        ("actions", [{"tool": "refund"}, {"label": "Yes"}], ["refund"]),
    ],
)
def test_an_entry_without_a_name_in_a_list_that_may_hold_calls_may_be_one(
    holder: str, key: str, entries: Any, read: list[str]
) -> None:
    told = {key: entries}
    value = {"text": "Done.", "tool_calls": [PAY]} | ({holder: told} if holder else told)
    reply = read_reply(value, Reading())
    assert names_of(reply) == ["pay", *read, UNNAMED]
    assert "has no name" in reply.warnings[0]


def test_entries_without_names_are_no_answer() -> None:
    with pytest.raises(UnreadableReply, match="no answer text"):
        read_reply({"calls": [{"to": "Ada"}]}, Reading())


def test_steps_that_are_no_calls_may_hold_some() -> None:
    value = {"text": "Done.", "tool_calls": [PAY]}
    assert_all_is_read(read_reply(value | {"steps": ["looked", "paid"]}, Reading()))
    pairs = ["looked", [{"tool": "refund", "tool_input": "7"}, "refunded"]]
    reply = read_reply(value | {"steps": pairs}, Reading())
    assert_hidden(reply, "steps[1][0]")
    assert "report them as `tool_calls`, or set `toolCallsPath` in kindlm.yaml" in reply.warnings[0]


@pytest.mark.parametrize(
    ("told", "place"),
    [
        (
            {"actions": [{"functionCall": {"name": "refund", "args": {}}}]},
            "actions[0].functionCall",
        ),
        ({"actions": {"a": {"tool": "refund"}}}, "actions.a"),
        ({"data": {"actions": [[{"tool": "refund"}]]}}, "data.actions[0][0]"),
        ({"state": {"tool_results": [{"name": "refund", "output": 7}]}}, "state.tool_results"),
    ],
)
def test_a_call_in_a_list_of_other_things_is_hidden(told: dict[str, Any], place: str) -> None:
    assert_hidden(read_reply({"text": "Done.", "tool_calls": [PAY]} | told, Reading()), place)


@pytest.mark.parametrize("holder", ["data", "message", "result"])
def test_steps_elsewhere_may_be_calls(holder: str) -> None:
    step = {"id": 1, "name": "refund", "parameters": {"id": 7}, "response": "ok"}
    body = {"text": "Done.", holder: {"steps": [{"name": "plan"}, step]}}
    assert_hidden(read_reply(body, Reading()), f"{holder}.steps")
    assert_hidden(read_reply({**body, holder: {"steps": step}}, Reading()), f"{holder}.steps")
    recipe = {"steps": [{"name": "Mix", "text": "Mix all."}, {"parameters": {"id": 7}}]}
    assert read_reply({**body, holder: recipe}, Reading()).tool_uses == ()


def test_actions_of_a_user_are_no_calls() -> None:
    value = {"text": "Done.", "tool_calls": [PAY], "data": {"actions": [{"label": "Yes"}]}}
    assert_all_is_read(read_reply(value, Reading()))


@pytest.mark.parametrize(
    "told",
    [
        {"run_type": "tool", "name": "refund", "inputs": {"id": 7}},
        {"span_type": "TOOL", "name": "refund", "inputs": {"id": 7}},
        {"name": "execute_tool", "attributes": {"gen_ai.tool.name": "refund"}},
        {"functionName": "refund", "arguments": {"id": 7}},
        {"toolCallList": [{"name": "refund", "parameters": {"id": 7}}]},
        {"functions_called": ["refund"]},
    ],
)
def test_calls_as_tools_around_agents_tell_of_them_are_noticed(told: dict[str, Any]) -> None:
    assert names_of(read_reply({"text": "Done.", "trail": told}, Reading())) == [UNNAMED]
    for kind in ("chain", "llm", "TOOLS"):
        told = {"run_type": kind, "name": "shop", "inputs": {"question": "Hello"}}
        assert not read_reply({"text": "Done.", "trail": told}, Reading()).tool_uses


@pytest.mark.parametrize("key", ["tools_invoked", "invokedTools", "functions_called"])
def test_names_of_tools_that_were_used_are_calls(key: str) -> None:
    assert names_of(read_reply({"text": "Done.", key: ["refund"]}, Reading())) == ["refund"]
