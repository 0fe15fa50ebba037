"""What is understood of the answers of HTTP agents: texts, tool calls, usage, cost."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from kindlm.agents.reply_usage import read_cost
from kindlm.strict_json import parse_json
from kindlm.suite import AgentTarget
from kindlm.transcript import Extras, ToolCall, ToolUse, Usage
from kindlm.wires import token_count


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('"bare string"', "bare string"),
        ({"text": "b", "content": "c", "response": "d"}, "b"),
        ({"answer": "g", "result": "f", "output": "e"}, "e"),
        ({"reply": "r", "id": "7"}, "r"),
        ({"message": {"no": "text"}, "text": "b"}, "b"),
        ({"message": "", "tool_calls": []}, ""),
        (
            {"object": "response", "text": "not in the form of OpenAI's responses"},
            "not in the form of OpenAI's responses",
        ),
        ({"choices": [{"message": {"content": "oai"}}]}, "oai"),
        ({"choices": [{"message": {"content": None}}]}, ""),
        ({"message": {"role": "assistant", "content": "ollama"}, "done": True}, "ollama"),
        ({"role": "assistant", "content": [{"type": "text", "text": "parts"}]}, "parts"),
        ({"message": "ünï\ud83d"}, "ünï\ud83d"),
    ],
)
def test_the_text_is_found(reply, body, text):
    assert reply(body).text == text


UNKNOWN = [
    {"foo": {"bar": "Tuesday"}},
    {"data": {"answer": "42"}},
    {"answer": 42},
    {"tool_calls": [{"name": "refund"}], "utterance": "Tuesday"},
    [{"message": "ok", "tool_calls": [{"name": "refund"}]}],
    ["a", 1],
    {},
    None,
]


@pytest.mark.parametrize("body", UNKNOWN)
def test_an_answer_in_which_no_text_is_known_is_an_error(talk, http, failure, body):
    (result,), _ = talk(http(body))
    error = failure(result)
    assert "kindlm found no answer text in it" in error.message
    assert error.message.endswith(f": {json.dumps(body)}")
    assert "`responsePath" in error.hint


def test_the_only_text_of_an_unknown_answer_is_named(talk, http, failure):
    (result,), _ = talk(http({"utterance": "Tuesday", "id": "7", "turns": 1}))
    assert "`responsePath: utterance`" in failure(result).hint


@pytest.mark.parametrize("body", UNKNOWN[:4])
def test_a_path_takes_all_of_an_answer_as_it_is(reply, body):
    assert json.loads(reply(body, responsePath="$").text) == body


@pytest.mark.parametrize("kind", ["application/jsonl", ""])
def test_an_object_that_is_no_whole_json_is_an_error(talk, http, failure, kind):
    (result,), _ = talk(http('{"text": "ok", "tool_calls": [{"na', kind=kind))
    assert "not valid JSON" in failure(result).message


@pytest.mark.parametrize(
    ("path", "text"),
    [("data.items[1].text", "b"), ("data.items.0.text", "a"), ("data.items[0]", '{"text":"a"}')],
)
def test_a_path_wins_over_what_is_looked_for(reply, path, text):
    body = {"message": "m", "data": {"items": [{"text": "a"}, {"text": "b"}]}}
    assert reply(body, responsePath=path).text == text


@pytest.mark.parametrize("kind", ["text/plain; charset=latin-1", ""])
def test_plain_text_is_the_text(reply, kind):
    body = "Options:\n  1: red\n\n  2: blau\n"
    assert reply(body, kind=kind).text == body


@pytest.mark.parametrize(
    ("kind", "text", "warned"),
    [
        ("text/plain", "R\ufffdckgabe", [True]),
        ("text/plain; charset=latin-1", "R\u00fcckgabe", []),
    ],
)
def test_bytes_that_cannot_be_decoded_get_a_warning(reply, kind, text, warned):
    """A check that forbids the word would pass."""
    read = reply(b"R\xfcckgabe", kind=kind)
    assert read.text == text
    assert ["cannot be decoded" in told for told in read.warnings] == warned


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", ""])
def test_calls_and_texts_are_read_whatever_json_is_sent_as(reply, kind):
    told = reply({"text": "ok", "tool_calls": [{"name": "refund"}]}, kind=kind)
    assert (told.text, [use.call.name for use in told.tool_uses]) == ("ok", ["refund"])
    called = reply({"tool_calls": [{"name": "refund"}]}, kind=kind)
    assert [use.call.name for use in called.tool_uses] == ["refund"]
    assert reply({"d": {"t": "ok"}}, kind=kind, responsePath="d.t").text == "ok"
    assert reply([{"t": "ok"}], kind=kind, responsePath="0.t").text == "ok"
    assert reply("ok", kind="text/plain", responsePath="d.t").text == "ok"
    tasks = '[{"type": "task", "content": "Buy milk"}]'
    assert reply(tasks, kind="text/plain").text == tasks


def test_json_that_is_sent_as_text_and_holds_no_answer_is_the_answer(reply):
    for text in ('{"id":  1}', "[1,  2]", '"a"', "7"):
        told = reply(text, kind="text/plain")
        assert (told.text, told.warnings) == (text, ())


def test_tool_calls_are_read_in_every_shape(reply):
    calls = [
        {"name": "a", "arguments": {"x": 1}, "result": 0},
        {"id": "c7", "function": {"name": "b", "arguments": '{"y": 2}'}, "output": False},
        {"function": "c", "arguments": "[1"},
        {"tool": "d", "name": "Step 4", "params": {"k": "v"}, "output": ""},
        {"tool_name": "e", "error": "no connection"},
        {},
        {"name": "g", "arguments": None, "input": {"z": 1}, "result": None, "output": "x"},
    ]
    read = reply({"message": "m", "tool_calls": calls})
    assert read.tool_uses == (
        ToolUse(ToolCall("call_0", "a", {"x": 1}), 0, "agent"),
        ToolUse(ToolCall("c7", "b", {"y": 2}), False, "agent"),
        ToolUse(ToolCall("call_2", "c", {}, malformed="[1"), None, "agent"),
        ToolUse(ToolCall("call_3", "d", {"k": "v"}), "", "agent"),
        ToolUse(ToolCall("call_4", "e", {}), {"error": "no connection"}, "agent"),
        ToolUse(ToolCall("call_5", "unknown", {}), None, "agent"),
        ToolUse(ToolCall("call_6", "g", {"z": 1}), "x", "agent"),
    )
    assert read.warnings == (
        'the arguments of tool call 2, "c", are not a JSON object',
        "tool call 5 has no name; it is recorded as 'unknown'",
    )


CALL = {"name": "refund", "arguments": {"id": 1}}


@pytest.mark.parametrize(
    "body",
    [
        *(
            {key: [CALL]}
            for key in ("toolCalls", "function_calls", "tool_invocations", "toolInvocations")
        ),
        *({key: [CALL]} for key in ("tools_used", "actions", "invocations", "calls")),
        {"function_call": CALL},
        {"tool_call": CALL},
        {"toolCalls": [{"toolCallId": "c", "toolName": "refund", "input": {"id": 1}}]},
        {"actions": [{"action": "refund", "action_input": {"id": 1}}]},
        {"intermediate_steps": [[{"tool": "refund", "tool_input": {"id": 1}, "log": ""}, "done"]]},
        {"message": {"role": "assistant", "content": "ok", "tool_calls": [{"function": CALL}]}},
        {"metadata": {"tool_calls": [CALL]}},
        {"data": {"toolCalls": [CALL]}},
        {"content": [{"type": "text", "text": "ok"}, {"type": "tool_use", **CALL}]},
        {"output": [{"type": "function_call", "call_id": "c", **CALL, "arguments": '{"id": 1}'}]},
    ],
)
def test_calls_are_read_under_their_usual_names(reply, body):
    (use,) = reply({"text": "ok", **body}).tool_uses
    assert (use.call.name, use.call.arguments) == ("refund", {"id": 1})


@pytest.mark.parametrize(
    ("told", "response"),
    [({}, "gone"), ({"is_error": False}, "gone"), ({"is_error": True}, {"error": "gone"})],
)
def test_a_result_among_parts_may_be_of_a_tool_that_failed(reply, told, response):
    result = {"type": "tool_result", "tool_use_id": "c", "content": "gone", **told}
    parts = [{"type": "tool_use", "id": "c", "name": "look", "input": {}}, result]
    (use,) = reply({"text": "ok", "content": parts}).tool_uses
    assert use.response == response


def test_names_of_tools_that_were_used_are_calls(reply):
    told = reply({"text": "ok", "tools_used": ["look", "refund"]})
    assert [use.call.name for use in told.tool_uses] == ["look", "refund"]
    told = reply({"text": "ok", "tools_used": ["refund"], "tool_calls": [CALL]})
    assert [use.call.arguments for use in told.tool_uses] == [{"id": 1}]


@pytest.mark.parametrize("key", ["toolCalls", "tools_used", "function_call"])
@pytest.mark.parametrize("found", ["refund", {"refund": 1}])
def test_what_means_tool_calls_alone_has_to_be_readable(talk, http, failure, key, found):
    if isinstance(found, dict) and key == "function_call":
        found = [found]
    if isinstance(found, str) and key == "tools_used":
        found = [found, 1]
    (result,), _ = talk(http({"text": "ok", key: found}))
    assert f"`{key}`" in failure(result).message


@pytest.mark.parametrize("found", [["Buy"], [{"label": "Buy"}], {"buy": 1}])
def test_actions_without_names_are_no_calls(reply, found):
    told = reply({"text": "ok", "actions": found})
    assert (told.tool_uses, told.warnings) == ((), ())


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({"steps": [{"tool": "t", "parameters": {"q": 1}}]}, {}),
        ({"choices": [{"message": {"tool_calls": [{"function": {"name": "t"}}]}}]}, {}),
        ({"tool_calls": [], "trace": {"used": [{"name": "t"}]}}, {"toolCallsPath": "trace.used"}),
    ],
)
def test_tool_calls_are_found_where_they_are(reply, body, options):
    assert [use.call.name for use in reply(body, **options).tool_uses] == ["t"]


@pytest.mark.parametrize(
    ("body", "options", "place"),
    [
        ({"tool_calls": {"name": "t"}}, {}, "tool_calls"),
        ({"tool_calls": ["t"]}, {}, "tool_calls"),
        ({"tool_calls": [{"name": "t"}, "u"]}, {}, "tool_calls"),
        ({"steps": {"tool": "t"}}, {}, "steps"),
        ({"steps": [{"tool": "t"}, "then more"]}, {}, "steps"),
        ({"did": "t"}, {"toolCallsPath": "did"}, "did"),
        ({"data": {}}, {"toolCallsPath": "trace.used"}, "trace.used"),
    ],
)
def test_tool_calls_that_cannot_be_read_are_an_error(talk, http, failure, body, options, place):
    (result,), _ = talk(http({"message": "m", **body}), **options)
    error = failure(result)
    assert "tool calls" in error.message
    assert f"`{place}`" in error.message
    assert "responsePath" not in error.hint
    assert "kindlm.yaml where it is: `toolCallsPath: " in error.hint


@pytest.mark.parametrize(
    ("body", "options", "names"),
    [
        ({"tool_calls": None}, {}, []),
        ({"steps": 3, "tool_calls": [{"name": "t"}]}, {}, ["t"]),
        ({"steps": ["looked", "found"], "tool_calls": [{"name": "t"}]}, {}, ["t"]),
        ({"tool_calls": [{"name": "t"}], "used": []}, {"toolCallsPath": "used"}, []),
        ({"trace": {}}, {"toolCallsPath": "trace.used"}, []),
    ],
)
def test_an_agent_may_report_no_tool_calls(reply, body, options, names):
    read = reply({"message": "m", **body}, **options)
    assert [use.call.name for use in read.tool_uses] == names


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 99}}, Usage(3, 4)),
        ({"usage": {"input_tokens": 5, "output_tokens": 0}}, Usage(5, 0)),
        ({"usage": {"input_tokens": 0, "output_tokens": 0}}, Usage()),
        ({"usage": {"input_tokens": 10.0, "output_tokens": 0.5}}, Usage(10, None)),
        ({"usage": {"input": 0, "output": 0}, "metadata": {"tokens": {"input": 1}}}, Usage(1)),
        ({"usage": {"input": 5, "output": 6}}, Usage(5, 6)),
        ({"metadata": {"tokens": {"input": 5, "output": 6}}}, Usage(5, 6)),
        ({"tokens": 150}, Usage(None, 150)),
        ({"usage": {"prompt_tokens": "3", "completion_tokens": True}}, Usage(None, None)),
        ({"usage": {"prompt_tokens": 10**20, "completion_tokens": 2**53}}, Usage(None, None)),
        ({}, Usage(None, None)),
        (
            {"usage": {"input_tokens": 1, "output_tokens": 5, "cache_read_input_tokens": 9}},
            Usage(10, 5, Extras(cache_read=9)),
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 1},
                    "completion_tokens": 4,
                }
            },
            Usage(9, 4, Extras(cache_read=7, cache_written=1)),
        ),
        (
            {
                "usage": {
                    "input_tokens": 30,
                    "output_tokens": 4,
                    "input_token_details": {
                        "cache_read": 7,
                        "cache_creation": 1,
                        "ephemeral_5m_input_tokens": 5,
                        "ephemeral_1h_input_tokens": 2,
                    },
                }
            },
            Usage(30, 4, Extras(cache_read=7, cache_written=8, written_1h=2)),
        ),
        (  # Audio has other prices.
            {
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "completion_tokens_details": {"audio_tokens": 3},
                }
            },
            Usage(9, 4, Extras(unpriced=True)),
        ),
        (
            {
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 4,
                    "input_token_details": {"audio": 3},
                }
            },
            Usage(9, 4, Extras(unpriced=True)),
        ),
        (
            {
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 4,
                    "output_token_details": {"audio": 3},
                }
            },
            Usage(9, 4, Extras(unpriced=True)),
        ),
        ({"usage": {"input": 5}, "service_tier": "flex"}, Usage(5, None, Extras(tier="flex"))),
        ({"service_tier": "flex"}, Usage(None, None)),
    ],
)
def test_usage_is_read_under_either_spelling_and_never_made_up(reply, body, usage):
    assert reply({"message": "m", **body}).usage == usage


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ({"cost": 0}, 0.0),
        ({"metadata": {"cost": 0.5}}, 0.5),
        ({"steps": [{"tool": "a", "cost": 0.25}, {"tool": "b", "cost": 0.5}]}, 0.75),
        ({"steps": [{"tool": "a", "cost": 0.25}, {"tool": "b"}]}, None),
        ({"cost": -1}, None),
        ({"cost": 10**400}, None),
        ({"cost": "0.5"}, None),
        ({}, None),
    ],
)
def test_a_reported_cost_is_read(reply, body, cost):
    assert reply({"message": "m", **body}).reported_cost_usd == cost


def test_the_model_is_read(reply):
    assert reply({"message": "m", "metadata": {"model": "gpt-4o"}}).model == "gpt-4o"


@pytest.mark.parametrize(
    ("told", "numbers"),
    [
        ({"confidence": 0.9, "retries": 2}, {"confidence": 0.9, "retries": 2}),
        ({"metadata": {"confidence": 0.9}, "meta": {"depth": 1}}, {"confidence": 0.9, "depth": 1}),
        ({"metrics": {"a": 1}, "a": 2, "meta": {"metrics": {"a": 3, "b": 4}}}, {"a": 1, "b": 4}),
        ({"a": True, "b": "1", "c": None, "d": [1], "x" * 101: 1}, {}),
        ({f"n{number}": number for number in range(99)}, {f"n{n}": n for n in range(50)}),
    ],
)
def test_numbers_are_read_by_their_names(reply, told, numbers):
    assert reply({"message": "m"} | told).reported == numbers


@pytest.mark.parametrize("body", [{"response": None}, {"tool_calls": [{"name": "t"}], "more": 1}])
def test_an_answer_to_a_query_may_lack_a_text(reply, body):
    assert reply(body, request="query").text == ""


@pytest.mark.parametrize(
    ("entry", "response"),
    [
        ({"output": None, "error": "boom"}, {"error": "boom"}),
        ({"output": "half", "error": "boom"}, {"error": "boom", "result": "half"}),
        ({"output": "x", "success": True, "error": None}, "x"),
        (
            {"output": 0, "success": False},
            {"error": "the agent reported that the tool failed", "result": 0},
        ),
        ({"isError": True}, {"error": "the agent reported that the tool failed"}),
        ({"error": "boom", "is_error": True}, {"error": "boom"}),
        ({"output": "x", "is_error": False}, "x"),
    ],
)
def test_a_tool_that_failed_says_so(reply, entry, response):
    told = reply({"message": "ok", "tool_calls": [{"name": "a", **entry}]})
    assert told.tool_uses[0].response == response


@pytest.mark.parametrize("usage", [None, "many"])
def test_a_usage_without_counts_does_not_hide_tokens(reply, usage):
    told = reply({"message": "ok", "usage": usage, "tokens": {"input": 3, "output": 4}})
    assert told.usage == Usage(3, 4)


STEPS = {"steps": [{"tool": "a"}], "tool_calls": [{"name": "b"}]}


def test_steps_come_before_tool_calls(reply):
    assert [use.call.name for use in reply({"message": "ok", **STEPS}).tool_uses] == ["a", "b"]
    streamed = reply(f"data: {json.dumps(STEPS)}\n\n", kind="text/event-stream")
    assert [use.call.name for use in streamed.tool_uses] == ["a", "b"]
    assert [use.call.name for use in reply({"message": "ok", **STEPS, "steps": []}).tool_uses] == [
        "b"
    ]


def test_a_long_answer_is_read_beside_the_event_loop(make, ask, peer, http, success, monkeypatch):
    read_in = []

    def parse(text, pairs):
        read_in.append(threading.current_thread())
        return parse_json(text, pairs)

    monkeypatch.setattr("kindlm.agents.http_agent.parse_json", parse)

    async def run():
        async with (
            peer(http({"message": "x" * 100_000})) as server,
            make(AgentTarget("shop", "http", server.url)) as agent,
        ):
            success(await agent.send(ask()))

    asyncio.run(run())
    assert threading.main_thread() not in read_in
    assert read_in


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"steps": [{"tool": "g"}], "tool_calls": [{"name": "f", "arguments": {}}]}, "gf"),
        ({"choices": [{"message": {"function_call": {"name": "f", "arguments": "{}"}}}]}, "f"),
        ({"choices": [{"message": {"function_call": None}}]}, ""),
        ({"steps": [{"tool": "f", "args": {"x": 1}}], "tool_calls": [{"name": "f"}]}, "f"),
        (
            {
                "steps": [{"tool": "f", "args": {"x": 1, "y": 2}}, {"tool": "g"}],
                "tool_calls": [
                    {"name": "g"},
                    {"id": "c1", "function": {"name": "f", "arguments": '{"y": 2, "x": 1}'}},
                    {"name": "f", "arguments": {"x": 1, "y": 3}},
                    {"name": "g", "arguments": "{broken"},
                ],
            },
            "fgfg",
        ),
    ],
)
def test_calls_that_are_reported_in_several_places_are_all_read_and_each_once(reply, body, names):
    read = reply({"message": "m", **body})
    assert [use.call.name for use in read.tool_uses] == list(names)


def refund(*arguments, **more):
    return {"name": "refund", **more} | ({"arguments": arguments[0]} if arguments else {})


@pytest.mark.parametrize(
    ("steps", "calls", "uses"),
    [
        # The same id: what either leaves out is known from the other.
        ([refund(id="c1")], [refund({"x": 1}, id="c1", result=2)], [("c1", {"x": 1}, 2)]),
        ([refund({"x": 1}, id="c1", result=0)], [refund(id="c1")], [("c1", {"x": 1}, 0)]),
        (
            [refund(id="c2"), refund(id="c1")],
            [refund({"x": 1}, id="c1"), refund({"x": 2}, id="c2")],
            [("c2", {"x": 2}, None), ("c1", {"x": 1}, None)],
        ),
        # Some agents use ids again.
        (
            [refund({"x": 1}, id="c1")],
            [refund({"x": 2}, id="c1")],
            [("c1", {"x": 1}, None), ("c1", {"x": 2}, None)],
        ),
        # No id here or there.
        ([refund(result="ok")], [refund({"x": 1}, id="c1")], [("c1", {"x": 1}, "ok")]),
        ([refund("{x", result="ok")], [refund(id="c1")], [("c1", {}, "ok")]),
        ([refund({"x": [1]})], [refund({"x": [1.0]}, id="c1")], [("c1", {"x": [1]}, None)]),
        (
            [refund({"x": 1})],
            [refund({"x": True}, id="c1"), refund({"x": "1"}, id="c2")],
            [("call_0", {"x": 1}, None), ("c1", {"x": True}, None), ("c2", {"x": "1"}, None)],
        ),
        (
            [refund(), refund({"x": 1})],
            [refund({"x": 1}), refund({"x": 2}), refund({"x": 3})],
            [("call_0", {"x": 2}, None), ("call_1", {"x": 1}, None), ("call_2", {"x": 3}, None)],
        ),
        # Ids that differ.
        (
            [refund(id="call_1")],
            [refund({"x": 1}, id="c2")],
            [("call_1", {}, None), ("c2", {"x": 1}, None)],
        ),
        ([refund({"x": 1}, id="s1")], [refund({"x": 1}, id="c1")], [("s1", {"x": 1}, None)]),
    ],
)
def test_a_call_that_is_reported_twice_is_one_with_all_that_is_said_of_it(
    reply, steps, calls, uses
):
    read = reply({"message": "m", "steps": steps, "tool_calls": calls}).tool_uses
    assert [(use.call.id, use.call.arguments, use.response) for use in read] == uses


def test_the_cost_of_a_call_is_known_from_either_telling(reply):
    calls = {"steps": [refund(id="c1", cost=0.5)], "tool_calls": [refund({"x": 1}, id="c1")]}
    told = reply({"message": "m", **calls})
    assert (len(told.tool_uses), told.reported_cost_usd) == (1, 0.5)


@pytest.mark.parametrize("most", [10**9, 1e9])
def test_a_number_that_no_history_could_hand_on_is_unknown(most: float) -> None:
    """A run with such a number could be recorded, and not be merged, pushed or exported."""
    assert read_cost({"cost": most}) == 1e9
    assert read_cost({"cost": most * 1.01}) is None
    assert token_count(int(most)) == 10**9
    assert token_count(int(most) + 1) is None


@pytest.mark.parametrize("place", ["messages", "output.messages", "output"])
def test_messages_of_a_graph_name_the_adapter_that_reads_them(talk, http, failure, place):
    said = {"content": "Done.", "additional_kwargs": {}, "type": "ai", "tool_calls": []}
    body = {"output": said} if place == "output" else {"messages": [said]}
    (result,), _ = talk(http({"output": body} if "." in place else body))
    assert "`adapter: langgraph`" in failure(result).hint
