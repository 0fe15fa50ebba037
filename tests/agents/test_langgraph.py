"""Agents of LangGraph over real sockets, in all three modes: good, slow, wrong and broken."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from kindlm.agents.event_framing import frames_of
from kindlm.errors import ErrorCode
from kindlm.transcript import UNNAMED, Extras, Message, Role, ToolCall, ToolUse, Usage
from kindlm.wires import UnreadableReply

TOKEN = "tok-planted-0123456789"
SSE = "text/event-stream"
FIRST = Message(Role.USER, "one")
ANSWER = Message(Role.ASSISTANT, "ok")
SECOND = Message(Role.USER, "two")
SENT = {"type": "human", "content": "Hello"}
THREAD = {"thread_id": "T1"}


@pytest.fixture
def talk(talk):
    """Send requests to a graph; return results and server."""
    return partial(talk, adapter="langgraph", path="/invoke")


@pytest.fixture
def stream(reply):
    """Return what is understood of frames in the mode `streaming`."""

    def stream(*values):
        return reply("".join(f"data: {_text(value)}\n\n" for value in values), kind=SSE)

    return stream


@pytest.fixture
def run(talk, http):
    """Return what comes of the runs of a thread: each has a list of (event, data)."""

    def run(*runs, requests=None, **options):
        answers = [http(THREAD), *(http(_events(*events), kind=SSE) for events in runs)]
        options = {"mode": "cloud", "path": ""} | options
        return talk(*answers, requests=requests, **options)

    return run


def _text(value):
    return value if isinstance(value, str) else json.dumps(value)


def _events(*events):
    return "".join(f"event: {name}\ndata: {_text(data)}\n\n" for name, data in events)


def ai(content="", *calls, **more):
    return {"type": "ai", "content": content, "tool_calls": list(calls), **more}


def call(call_id, name, **args):
    return {"id": call_id, "name": name, "args": args}


def result(call_id, content, **more):
    return {"type": "tool", "tool_call_id": call_id, "content": content, **more}


def used(*tokens):
    return {"usage_metadata": dict(zip(("input_tokens", "output_tokens"), tokens, strict=True))}


class TestRequests:
    @pytest.mark.parametrize("options", [{}, {"streaming": True}, {"mode": "standard"}])
    def test_a_message_goes_with_its_context_and_what_was_said(self, talk, http, ask, options):
        requests = [replace(ask(FIRST), context={"user": 7}), ask(FIRST, ANSWER, SECOND)]
        _, server = talk(http({"output": "ok"}), requests=requests, **options)
        assert [request.body for request in server.received] == [
            {"messages": [{"role": "user", "content": "one"}], "user": 7},
            {
                "messages": [{"role": "user", "content": "two"}],
                "conversation_history": [
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "ok"},
                ],
            },
        ]
        assert server.received[0].path == "/invoke"

    def test_a_body_of_the_users_own_replaces_that_of_the_adapter(self, talk, http, ask, success):
        body = {"input": {"messages": [{"type": "human", "content": "{{message}}"}]}}
        state = {"messages": [SENT, ai("", call("c1", "refund")), result("c1", "ok"), ai("Done.")]}
        request = replace(ask(), context={"user": 7})
        (got,), server = talk(http({"output": state}), body=body, requests=[request])
        sent = {"input": {"messages": [{"type": "human", "content": "Hello"}]}}
        assert server.received[0].body == sent
        assert [use.call.name for use in success(got).tool_uses] == ["refund"]
        assert "context" in success(got).warnings[0]

    @pytest.mark.parametrize("status", [404, 422])
    def test_a_server_that_takes_no_such_request_may_be_of_another_mode(
        self, talk, http, failure, status
    ):
        (got,), _ = talk(http({"detail": "Not Found"}, status=status))
        assert "its `mode`" in failure(got).hint

    def test_streams_are_asked_for_where_they_are_meant(self, talk, http):
        accepted = [
            talk(http({"output": "ok"}), streaming=streams)[1].received[0].headers["accept"]
            for streams in (True, False)
        ]
        assert [accept.startswith(SSE) for accept in accepted] == [True, False]

    def test_headers_are_sent_in_every_request(self, run):
        headers = {"X-Api-Key": TOKEN}
        _, server = run([("values", {"messages": [SENT, ai("ok")]})], headers=headers)
        assert [request.headers["x-api-key"] for request in server.received] == [TOKEN, TOKEN]

    @pytest.mark.parametrize(
        ("path", "options", "is_cloud"),
        [
            ("/threads", {}, True),
            ("/api/threads", {"streaming": True}, True),
            ("/threads", {"mode": "standard"}, False),
            ("/chat", {"mode": "cloud"}, True),
            ("/chat", {}, False),
        ],
    )
    def test_the_mode_decides_or_else_the_address(self, talk, http, path, options, is_cloud):
        _, server = talk(http(THREAD), path=path, **options)
        paths = [request.path for request in server.received]
        assert (paths[-1].endswith("/threads/T1/runs/stream")) is is_cloud


class TestStates:
    def test_calls_are_read_from_messages_with_their_own_results(self, reply):
        body = {
            "messages": [
                SENT,
                ai("", call("c1", "search", q="x"), call("c2", "look"), **used(50, 10)),
                result("c2", 0),
                result("c1", "found"),
                ai("Done", **used(100, 20)),
            ],
            "thread_id": "t",
        }
        told = reply(body)
        assert told.text == "Done"
        assert told.tool_uses == (
            ToolUse(ToolCall("c1", "search", {"q": "x"}), "found", "agent"),
            ToolUse(ToolCall("c2", "look", {}), 0, "agent"),
        )
        assert told.usage == Usage(150, 30)
        assert told.reported_cost_usd is None

    def test_a_message_of_langserve_is_read(self, reply):
        for text in ("Done.", ""):
            message = ai(text, call("c1", "refund"), additional_kwargs={})
            answer = reply({"output": message, "metadata": {"run_id": "r1"}})
            assert (answer.text, [use.call.name for use in answer.tool_uses]) == (text, ["refund"])
            assert answer.warnings == ()

    def test_messages_of_openai_are_read(self, reply):
        nested = {"id": "c1", "function": {"name": "search", "arguments": '{"q": 1}'}}
        body = {
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": None, "tool_calls": [nested]},
                {"role": "tool", "tool_call_id": "c1", "content": ""},
                {"role": "assistant", "content": [{"type": "text", "text": "Hi"}, "!"]},
            ]
        }
        told = reply(body)
        assert (told.text, told.tool_uses[0].call.arguments) == ("Hi!", {"q": 1})
        assert told.tool_uses[0].response == ""

    def test_calls_are_found_where_a_provider_puts_them(self, reply):
        block = {"type": "tool_use", "id": "c1", "name": "a", "input": {"q": 1}}
        older = {"tool_calls": [{"id": "c2", "function": {"name": "b", "arguments": "{}"}}]}
        broken = {"name": "c", "args": "{", "id": None}
        body = {
            "messages": [
                SENT,
                {"type": "ai", "content": [{"type": "text", "text": "Let me see"}, block]},
                {"type": "ai", "content": "", "additional_kwargs": older},
                {"type": "ai", "content": "ok", "tool_calls": [], "invalid_tool_calls": [broken]},
            ]
        }
        told = reply(body)
        calls = [use.call for use in told.tool_uses]
        assert [one.name for one in calls] == ["a", "b", "c"]
        assert calls[2].malformed == "{"
        assert "not a JSON object" in told.warnings[0]

    def test_without_ids_results_go_by_names_and_in_order(self, reply):
        calls = [{"name": name, "args": {}} for name in "aba"]
        results = [
            {"type": "tool", "name": name, "content": n} for n, name in enumerate(["b", "a", "a"])
        ]
        told = reply({"messages": [SENT, ai("", *calls), *results, ai("ok")]})
        assert [use.response for use in told.tool_uses] == [1, 0, 2]
        assert len({use.call.id for use in told.tool_uses}) == 3

    def test_a_tool_that_failed_says_so_and_a_result_of_no_call_is_a_call(self, reply):
        failed = result("c1", "no stock", status="error")
        body = {"messages": [SENT, ai("", call("c1", "a")), failed, result("c9", 1), ai("ok")]}
        told = reply(body)
        assert told.tool_uses[0].response == {"error": "no stock"}
        assert [(use.call.name, use.response) for use in told.tool_uses[1:]] == [(UNNAMED, 1)]

    @pytest.mark.parametrize(
        ("content", "response"),
        [
            ([{"type": "text", "text": "la"}, {"type": "text", "text": "te"}], "late"),
            ([], []),
            (["late"], ["late"]),
            ({"status": "late"}, {"status": "late"}),
        ],
    )
    def test_the_parts_of_a_result_are_one_text(self, reply, content, response):
        told = reply({"messages": [SENT, ai("", call("c1", "a")), result("c1", content)]})
        assert [use.response for use in told.tool_uses] == [response]

    def test_content_that_is_an_object_is_json(self, reply):
        assert reply({"messages": [SENT, ai({"total": 1})]}).text == '{"total":1}'

    def test_only_what_is_new_is_the_answer(self, talk, http, ask, success):
        first = [{"type": "human", "content": "one"}, ai("", call("c1", "a"), **used(5, 1))]
        first += [result("c1", 1), ai("ok", **used(6, 1))]
        second = [
            *first,
            {"type": "human", "content": "two"},
            ai("", call("c1", "b"), **used(7, 1)),
        ]
        second += [result("c1", 2), ai("done", **used(8, 1))]
        requests = [ask(FIRST), ask(FIRST, ANSWER, SECOND)]
        answers = [http({"messages": messages}) for messages in (first, second)]
        results, _ = talk(*answers, requests=requests)
        told = [success(got) for got in results]
        assert [[use.call.name for use in one.tool_uses] for one in told] == [["a"], ["b"]]
        assert [one.usage for one in told] == [Usage(11, 2), Usage(15, 2)]

    def test_a_message_in_other_words_is_still_known(self, talk, http, ask, success):
        messages = [{"type": "human", "content": f"Q: {text}"} for text in ("one", "two")]
        body = {"messages": [messages[0], ai("", call("c1", "a")), ai("ok"), messages[1], ai("so")]}
        (got,), _ = talk(http(body), requests=[ask(FIRST, ANSWER, SECOND)])
        assert (success(got).text, success(got).tool_uses) == ("so", ())

    def test_messages_that_a_graph_writes_for_the_user_hide_nothing(self, talk, http, ask, success):
        human = partial(dict, type="human")
        inner = human(content="Reflect.")
        first = [ai("", call("c1", "a")), inner, ai("ok")]
        second = [human(content="two"), ai("", call("c2", "b")), inner, ai("so")]
        for body, earlier, name in [
            ([human(content="one"), *first], [FIRST], "a"),
            ([human(content="Q: one"), *first], [FIRST], "a"),
            ([human(content="one"), *first, *second], [FIRST, ANSWER, SECOND], "b"),
        ]:
            (got,), _ = talk(http({"messages": body}), requests=[ask(*earlier)])
            assert [use.call.name for use in success(got).tool_uses] == [name]

    def test_reported_steps_come_before_what_messages_say_beside_them(self, reply):
        steps = [
            {
                "id": "a",
                "name": "n",
                "tool": "search",
                "parameters": {"q": 1},
                "output": 0,
                "cost": 0.5,
            },
            {"tool": "pay", "success": False, "output": None, "error": "denied", "cost": 0.25},
        ]
        told = reply(
            {
                "messages": [SENT, ai("ok", call("c1", "other"), call("c2", "search", q=1))],
                "steps": steps,
            }
        )
        assert told.tool_uses == (
            ToolUse(ToolCall("a", "search", {"q": 1}), 0, "agent"),
            ToolUse(ToolCall("call_1", "pay", {}), {"error": "denied"}, "agent"),
            ToolUse(ToolCall("c1", "other", {}), None, "agent"),
        )
        assert told.reported_cost_usd == 0.75

    def test_a_step_without_arguments_is_the_call_of_a_message(self, reply):
        messages = [SENT, ai("", call("c1", "search", q=1)), result("c1", "found"), ai("ok")]
        told = reply({"messages": messages, "steps": [{"tool": "search"}]})
        assert told.tool_uses == (ToolUse(ToolCall("c1", "search", {"q": 1}), "found", "agent"),)

    def test_actions_beside_steps_are_read_too(self, reply):
        pairs = [[{"tool": "a", "tool_input": {}}, "seen"], [{"tool": "b"}, "seen"]]
        told = reply({"output": "ok", "steps": [{"tool": "a"}], "intermediate_steps": pairs})
        assert [use.call.name for use in told.tool_uses] == ["a", "b"]

    def test_calls_of_every_form_of_a_message_are_read_and_each_once(self, reply):
        message = ai("ok", call("c1", "a", x=1)) | {
            "additional_kwargs": {
                "tool_calls": [
                    {"id": "c1", "function": {"name": "a", "arguments": '{"x": 1}'}},
                    {"id": "c2", "function": {"name": "b", "arguments": "{broken"}},
                ],
                "function_call": {"name": "c", "arguments": "{}"},
            },
            "invalid_tool_calls": [{"id": "c2", "name": "b", "args": "{broken"}],
        }
        message["content"] = [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]
        told = reply({"messages": [SENT, message, ai("ok")]})
        assert [use.call.name for use in told.tool_uses] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("body", "things"),
        [
            ({"messages": [{}] * 21}, "messages"),
            ({"steps": [{}] * 11}, "tool calls"),
        ],
    )
    def test_more_than_any_answer_holds_is_refused(
        self, talk, http, failure, body, things, monkeypatch
    ):
        monkeypatch.setattr("kindlm.agents.chat_messages.MAX_MESSAGES", 20)
        monkeypatch.setattr("kindlm.agents.reply_reading.MAX_CALLS", 10)
        (result,), _ = talk(http({"output": "ok"} | body))
        assert f"0 {things}" in failure(result).message

    @pytest.mark.parametrize(
        ("action", "arguments"),
        [
            ({"tool": "look", "tool_input": {"q": 1}, "log": "..."}, {"q": 1}),
            ({"tool": "look", "tool_input": '{"q": 1}'}, {"q": 1}),
            ({"tool": "look", "tool_input": "Paris"}, {"tool_input": "Paris"}),
            ("look", {}),
        ],
    )
    def test_actions_with_observations_are_read(self, reply, action, arguments):
        told = reply({"output": "ok", "intermediate_steps": [[action, "seen"]]})
        assert told.tool_uses == (ToolUse(ToolCall("call_0", "look", arguments), "seen", "agent"),)

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ({"messages": [SENT, ai("a")], "output": "b"}, "a"),
            ({"messages": [SENT, ai("")], "output": "b"}, "b"),
            ({"messages": [SENT, ai("")]}, ""),
            ({"messages": [SENT], "answer": "b"}, "b"),
            ({"output": "", "result": "b"}, "b"),
            ({"output": "", "result": None}, ""),
            ({"output": 0}, "0"),
            ({"output": {"total": 1}}, '{"total":1}'),
            ({"output": None, "running_summary": "b"}, "b"),
            ({"output": {"messages": [SENT, ai("inner")]}}, "inner"),
            ([SENT, ai("a")], "a"),
            ({"messages": [SENT, ai("", call("c", "t")), result("c", "direct")]}, "direct"),
        ],
    )
    def test_the_text_is_found(self, reply, body, text):
        assert reply(body).text == text

    def test_calls_of_an_agent_that_a_supervisor_leaves_out_may_be_missing(
        self, reply, run, success
    ):
        handed = {"response_metadata": {"__handoff_destination": "desk"}}
        back = {"response_metadata": {"__is_handoff_back": True}}
        first = ai("", call("c1", "transfer_to_desk"), name="boss", id="1")
        over = result("c1", "Over.", name="transfer_to_desk", id="2", **handed)
        refund = ai("", call("c2", "refund"), name="desk", id="3")
        last = [
            ai("Refunded.", name="desk", id="5"),
            ai("Back.", call("c3", "transfer_back"), name="desk", id="6", **back),
            result("c3", "Over.", name="transfer_back", id="7", **back),
            ai("Done.", name="boss", id="8", **used(5, 1)),
        ]
        told = reply({"messages": [SENT, first, over, *last]})
        assert UNNAMED in [use.call.name for use in told.tool_uses]
        assert "the agent desk" in told.warnings[0]
        assert told.usage == Usage()
        told = reply({"messages": [SENT, first, over, refund, result("c2", "ok", id="4"), *last]})
        assert [use.call.name for use in told.tool_uses][1:] == ["refund", "transfer_back"]
        assert (told.warnings, told.usage) == ((), Usage(5, 1))
        events = [
            ("updates", {"boss": {"messages": [first, over]}}),
            ("updates|desk:1", {"agent": {"messages": [refund]}}),
            ("values", {"messages": [SENT, first, over, *last]}),
        ]
        (got,), _ = run(events)
        assert success(got).warnings == ()

    def test_what_the_graph_says_of_itself_counts(self, reply):
        about = {"usage": {"input_tokens": 7, "output_tokens": 3}, "cost": 0.5, "model": "m-1"}
        told = reply({"messages": [SENT, ai("ok", **used(1, 1))], **about})
        assert (told.usage, told.reported_cost_usd, told.model) == (Usage(7, 3), 0.5, "m-1")

    def test_the_model_is_known_unless_there_are_several(self, reply):
        messages = [ai(name, response_metadata={"model_name": name}) for name in ("m-1", "m-2")]
        one = reply({"messages": [SENT, messages[0], messages[0]]})
        several = reply({"messages": [SENT, *messages]})
        assert (one.model, one.warnings) == ("m-1", ())
        assert reply({"messages": [SENT, ai("ok", model="m-1")]}).model == "m-1"
        assert several.model is None

    def test_the_model_of_a_message_is_known_however_it_is_repeated(self, stream):
        first = {"messages": [SENT, ai("o", id="a", model="m-1")]}
        assert stream(first, {"messages": [SENT, ai("ok", id="a")]}).model == "m-1"

    def test_usage_is_read_as_providers_write_it(self, reply):
        metadata = {"token_usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        assert reply({"messages": [ai("ok", response_metadata=metadata)]}).usage == Usage(5, 2)

    def test_what_caches_did_for_several_answers_is_added_up(self, reply):
        details = {"cache_read": 1, "cache_creation": 0}
        details |= {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 3}
        usage = {"input_tokens": 5, "output_tokens": 2, "input_token_details": details}
        told = reply({"messages": [SENT, ai("a", usage_metadata=usage), ai("b", **used(5, 2))]})
        assert told.usage == Usage(10, 4, Extras(cache_read=1, cache_written=7, written_1h=3))

    @pytest.mark.parametrize(
        ("tokens", "usage"),
        [((None, 2), Usage(None, 4)), ((7, 600_000_000), Usage(14, None)), ((None, None), Usage())],
    )
    def test_what_no_answer_reports_and_more_than_can_be_is_unknown(self, reply, tokens, usage):
        told = reply({"messages": [SENT, ai("a", **used(*tokens)), ai("b", **used(*tokens))]})
        assert told.usage == usage


class TestStreams:
    def test_steps_and_pieces_one_in_a_line(self, reply):
        lines = [
            {"type": "metadata", "thread_id": "tt"},
            {"type": "step", "tool": "search", "parameters": {"q": 1}, "content": "obs"},
            {"type": "step", "content": "no tool key"},
            {"type": "message", "content": "Hello "},
            {"type": "message", "content": "world "},
        ]
        told = reply("\n".join(f"data: {json.dumps(line)}" for line in lines), kind=SSE)
        assert told.text == "Hello world"
        assert told.tool_uses == (ToolUse(ToolCall("call_0", "search", {"q": 1}), "obs", "agent"),)

    def test_a_step_without_a_tool_costs_what_it_says(self, stream):
        told = stream(
            {"type": "step", "tool": "look", "parameters": {}, "cost": 0.25},
            {"type": "step", "content": "I think.", "cost": 0.5},
            {"type": "message", "content": "Done."},
        )
        assert told.reported_cost_usd == 0.75
        assert [use.call.name for use in told.tool_uses] == ["look"]

    def test_calls_and_usage_inside_messages(self, stream):
        told = stream(
            {"type": "message", "content": "", "tool_calls": [call("c1", "a")], **used(5, 1)},
            result("c1", False),
            {"type": "message", "content": "ok", **used(6, 1)},
            {"type": "message", "content": "ok", **used(6, 1)},
            {"type": "metadata", "cost": 0.5},
            "[DONE]",
            {"type": "message", "content": "never"},
        )
        assert (told.text, told.usage, told.reported_cost_usd) == ("okok", Usage(17, 3), 0.5)
        assert told.tool_uses[0].response is False

    @pytest.mark.parametrize("role", ["system", "user", "tool"])
    def test_pieces_of_others_are_not_the_text(self, stream, role):
        answer = stream(
            {"type": "message", "role": role, "content": "Refund A1."},
            {"type": "message", "role": "assistant", "content": "Done."},
        )
        assert answer.text == "Done."

    def test_states_and_updates_of_a_graph(self, stream):
        update = {"agent": {"messages": [ai("", call("c1", "a"))]}, "other": None}
        told = stream(
            {"messages": [SENT]},
            update,
            {"tools": {"messages": [result("c1", 1)]}},
            {"messages": [SENT, ai("", call("c1", "a")), result("c1", 1), ai("done")]},
        )
        assert (told.text, len(told.tool_uses), told.tool_uses[0].response) == ("done", 1, 1)

    def test_a_state_may_have_the_keys_of_streams_of_others(self, stream):
        told = stream({"candidates": [{"id": 7}]}, {"messages": [SENT, ai("done")], "done": False})
        assert told.text == "done"

    def test_a_state_in_an_event_of_its_own_does_not_say_that_more_is_to_come(self):
        _, end = frames_of('event: values\ndata: {"done": false}\n\n', is_sse=True)
        end.check(has_end=True)

    def test_an_event_with_messages_and_done_true_ends_a_stream(self):
        events = [{"token": "d", "done": False}, {"messages": [SENT, ai("done")], "done": True}]
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
        _, end = frames_of(text, is_sse=True)
        end.check(has_end=False)

    def test_such_a_state_does_not_end_a_stream(self):
        _, end = frames_of('data: {"candidates": [{"id": 7}]}\n\n', is_sse=True)
        with pytest.raises(UnreadableReply, match="the stream broke off"):
            end.check(has_end=False)

    def test_bare_text_is_text(self, stream):
        assert stream("Hel", '"lo"', "42").text == "Hello42"

    def test_a_list_is_no_text(self, stream):
        # LangGraph streams messages as lists, whose tool calls a text would hide.
        messages = json.dumps([ai("Refunded.", call("c1", "refund"))])
        assert stream(messages, "Hello").text == "Hello"

    @pytest.mark.parametrize(
        "frame",
        [
            'data: {"type": "error", "message": "Boom"}',
            'data: {"type": "error", "error": "Boom"}',
            "event: error\ndata: Boom",
            'data: {"__error__": {"error": "ValueError", "message": "Boom"}}',
        ],
    )
    def test_an_error_is_no_answer(self, talk, http, failure, frame):
        frames = f'data: {{"type": "message", "content": "so far"}}\n\n{frame}\n\n'
        (got,), _ = talk(http(frames, kind=SSE), streaming=True)
        error = failure(got)
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert "reported an error" in error.message
        assert "Boom" in error.message

    @pytest.mark.parametrize("said", [[], [ai("so far")]])
    @pytest.mark.parametrize(
        "end",
        # The last one says that more is to come.
        ['{"type": "error", "message": "Boom"}', '{"type": "err', '{"type": "x", "done": false}'],
    )
    def test_an_error_holds_what_was_spent_before(self, talk, http, failure, said, end):
        frames = [*said, {"type": "metadata", "usage": {"input_tokens": 7}, "cost": 0.25}]
        text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
        (got,), _ = talk(http(f"{text}data: {end}\n\n", kind=SSE), streaming=True)
        details = failure(got).details
        assert (details["tokens"], details["cost_usd"]) == ([7, None], 0.25)


A_RUN = [
    ("metadata", {"run_id": "r1"}),
    ("updates", {"agent": {"messages": [ai("", call("c1", "search", q="x"), **used(50, 10))]}}),
    ("updates", {"tools": {"messages": [result("c1", "result text")]}}),
    (
        "values",
        {
            "messages": [
                SENT,
                ai("", call("c1", "search", q="x")),
                result("c1", "result text"),
                ai("Final answer", **used(100, 20)),
            ]
        },
    ),
    ("end", "null"),
]


class TestPieces:
    """What the user's own server sends as `astream` and `astream_events` yield it."""

    CALLED = ai("", call("c1", "refund", order="A1"), id="run-1")
    MESSAGES = (CALLED, result("c1", "ok", id="t1"), ai("Done.", id="run-2"))
    INNER = ("desk:7fed28d6",)
    NODE = {"langgraph_node": "model"}  # noqa: RUF012

    @pytest.mark.parametrize(
        "wrapped",
        [
            lambda it: [it, TestPieces.NODE],
            lambda it: ["messages", [it, TestPieces.NODE]],
            lambda it: [TestPieces.INNER, [it, TestPieces.NODE]],
            lambda it: [TestPieces.INNER, "messages", [it, TestPieces.NODE]],
            lambda it: {"type": "messages", "ns": [], "data": [it, TestPieces.NODE]},
            lambda it: ["updates", {"model": {"messages": [it]}}],
            lambda it: [[], {"model": {"messages": [it]}}],
            lambda it: [[], "updates", {"model": {"messages": [it]}}],
            lambda it: {"type": "updates", "ns": [], "data": {"model": {"messages": [it]}}},
            lambda it: {
                "event": "on_tool_end" if it["type"] == "tool" else "on_chat_model_end",
                "run_id": "r1",
                "data": {"output": it},
            },
        ],
    )
    def test_pieces_of_all_modes_are_read(self, stream, wrapped):
        reply = stream(*map(wrapped, self.MESSAGES))
        assert reply.text == "Done."
        (use,) = reply.tool_uses
        assert (use.call.name, use.call.arguments, use.response) == (
            "refund",
            {"order": "A1"},
            "ok",
        )
        assert reply.warnings == ()

    def test_without_a_state_messages_may_be_missing(self, stream):
        for piece in (
            [ai("Done."), self.NODE],
            ["updates", {"model": {"messages": [ai("Done.")]}}],
        ):
            assert stream(piece).reports_tools is None

    def test_calls_of_a_subgraph_count(self, stream):
        inner = [[*self.INNER], {"model": {"messages": [self.CALLED]}}]
        reply = stream(inner, [[], {"desk": {"messages": [ai("Done.")]}}])
        assert (reply.text, [use.call.name for use in reply.tool_uses]) == ("Done.", ["refund"])

    def test_the_last_state_shows_all_calls(self, stream):
        state = {"messages": [{"type": "human", "content": "Hello"}, ai("Done.")]}
        for whole in (
            {"type": "values", "ns": [], "data": state},
            {"event": "on_chain_end", "run_id": "r1", "parent_ids": [], "data": {"output": state}},
        ):
            reply = stream(whole)
            assert (reply.text, reply.tool_uses, reply.reports_tools) == ("Done.", (), True)

    def test_a_tool_that_fails_without_a_message_is_a_call(self, stream):
        about = {"name": "refund", "run_id": "r1", "data": {"error": "KeyError('A1')"}}
        reply = stream({"event": "on_tool_error", **about}, self.MESSAGES[-1])
        (use,) = reply.tool_uses
        assert (use.call.name, use.response) == ("refund", {"error": "KeyError('A1')"})

    def test_the_start_of_a_tool_shows_a_call_that_nothing_else_does(self, stream):
        start = {"event": "on_tool_start", "run_id": "r1", "data": {"input": {"order": "A1"}}}
        ended = {"event": "on_tool_end", "run_id": "r2", "name": "look_up", "data": {"output": 1}}
        reply = stream({**start, "name": "refund"}, ended, self.MESSAGES[-1])
        assert [use.call.name for use in reply.tool_uses] == ["look_up", UNNAMED]
        reply = stream(self.CALLED, {**start, "name": "refund"}, *self.MESSAGES[1:])
        assert ([use.call.name for use in reply.tool_uses], reply.warnings) == (["refund"], ())

    def test_chunks_without_ids_are_of_several_calls(self, stream):
        pieces = ({"name": name, "args": "{}", "index": 0} for name in ("look_up", "refund"))
        chunks = ({"type": "AIMessageChunk", "tool_call_chunks": [it]} for it in pieces)
        names = [use.call.name for use in stream(*chunks).tool_uses]
        assert names == ["look_up", "refund"]

    @pytest.mark.parametrize("is_event", [False, True])
    def test_chunks_are_put_together(self, stream, is_event):
        def chunk(content, *pieces):
            more = {"tool_call_chunks": [{"index": 1, **piece} for piece in pieces]}
            return {"type": "AIMessageChunk", "content": content, "id": "run-1", **more}

        chunks = (
            chunk([{"type": "text", "text": "One ", "index": 0}]),
            chunk([{"type": "text", "text": "moment.", "index": 0}]),
            chunk([{"type": "tool_use", "id": "c1"}], {"name": "refund", "args": "", "id": "c1"}),
            chunk([{"type": "input_json_delta", "index": 1}], {"args": '{"order": "A1"}'}),
        )
        event = {"event": "on_chat_model_stream", "run_id": "r1"}
        reply = stream(*({**event, "data": {"chunk": it}} if is_event else it for it in chunks))
        (use,) = reply.tool_uses
        assert (use.call.name, use.call.arguments) == ("refund", {"order": "A1"})
        assert (reply.text, reply.warnings) == ("One moment.", ())

    @pytest.mark.parametrize(
        "value",
        [
            [ai("Done."), {"role": "assistant", "tool_calls": [call("c1", "refund")]}],
            [[call("c1", "refund")], {"model": {}}],
            ["messages", [call("c1", "refund")]],
            {"event": "bought", "run_id": "r1", "data": {"tool_calls": [call("c1", "refund")]}},
        ],
    )
    def test_calls_in_other_lists_and_events_are_not_lost(self, stream, value):
        assert stream(value, ai("Done.")).tool_uses


class TestThreads:
    def test_a_run_in_a_thread(self, run, success):
        (got,), server = run(A_RUN)
        told = success(got)
        assert told.text == "Final answer"
        assert told.tool_uses == (
            ToolUse(ToolCall("c1", "search", {"q": "x"}), "result text", "agent"),
        )
        assert told.usage == Usage(150, 30)
        assert [(request.path, request.body) for request in server.received] == [
            ("/threads", {"metadata": {"conversation_id": "conv-1"}}),
            (
                "/threads/T1/runs/stream",
                {
                    "assistant_id": "agent",
                    "input": {"messages": [{"role": "user", "content": "Hello"}]},
                    "stream_mode": ["values", "updates"],
                    "stream_subgraphs": True,
                    "on_disconnect": "cancel",
                },
            ),
        ]

    def test_a_run_that_fails_holds_what_was_spent_before(self, run, failure):
        (got,), _ = run([*A_RUN[:3], ("error", {"error": "ValueError", "message": "Boom"})])
        assert failure(got).details["tokens"] == [50, 10]

    def test_a_message_that_is_reported_twice_counts_once(self, run, success):
        answer = ai("ok", id="m1", **used(10, 1))
        node = ("updates", {"n": {"messages": answer}})
        (got,), _ = run([node, ("values", {"messages": [SENT, answer]})])
        assert success(got).usage == Usage(10, 1)

    def test_a_message_that_gets_its_id_after_the_update_counts_once(self, run, success):
        back = ai("", call("c1", "transfer_back"), **used(10, 1))
        node = ("updates", {"refunds": {"messages": [back, result("c1", "done")]}})
        one = [back | {"id": "m1"}, result("c1", "done", id="m2")]
        two = [back | {"id": "m3"}, result("c1", "done", id="m4")]
        once = [node, ("values", {"messages": [SENT, *one]})]
        twice = [*once, node, ("values", {"messages": [SENT, *one, *two]})]
        for events, count in ((once, 1), (twice, 2)):
            (got,), _ = run(events)
            assert [use.call.name for use in success(got).tool_uses] == ["transfer_back"] * count
            assert success(got).usage == Usage(10 * count, count)

    def test_calls_within_a_subgraph_count_and_its_texts_do_not(self, run, success):
        first = ai("", call("c1", "search", q="x"), id="m1", **used(10, 1))
        inner = ai("Refunding.", call("c2", "refund", id=1), id="m2", **used(20, 2))
        found = result("c2", "done", id="m3")
        last = ai("Done.", id="m4", **used(30, 3))
        events = [
            ("updates", {"supervisor": {"messages": [first]}}),
            ("values|refunds:1", {"messages": [{"type": "human", "content": "Refund 1"}]}),
            ("updates|refunds:1", {"agent": {"messages": [inner]}}),
            ("updates|refunds:1|tools:2", {"tools": {"messages": found}}),
            (
                "updates|refunds:1",
                {"agent": {"messages": [ai("Refunded.", id="m5", **used(4, 4))]}},
            ),
            ("updates", {"refunds": {"messages": [last]}}),
            ("values", {"messages": [SENT, first, inner, found, last]}),
        ]
        (got,), _ = run(events)
        told = success(got)
        assert told.text == "Done."
        assert [use.call.name for use in told.tool_uses] == ["search", "refund"]
        assert told.tool_uses[1].response == "done"
        assert told.usage == Usage(64, 10)

    def test_messages_of_a_subgraph_do_not_show_that_the_graph_reports_its_calls(
        self, run, success
    ):
        inner = ("updates|agent:1", {"model": {"messages": [ai("Hm.", id="m1")]}})
        (got,), _ = run([inner, ("updates", {"n": {"answer": "ok"}})])
        assert (success(got).text, success(got).reports_tools) == ("ok", None)

    def test_messages_that_a_graph_removes_were_said(self, run, success):
        first = ai("", call("c1", "a"), id="m1")
        events = [
            ("updates", {"n": {"messages": [first]}}),
            ("updates", {"n": {"messages": [{"type": "remove", "content": "", "id": "m1"}]}}),
            ("values", {"messages": [SENT, ai("ok", id="m2")]}),
        ]
        (got,), _ = run(events)
        assert (success(got).text, len(success(got).tool_uses)) == ("ok", 1)

    def test_turns_share_a_thread(self, run, ask, success):
        turns = [{"type": "human", "content": text} for text in ("one", "two")]
        first = [
            turns[0],
            ai("", call("c1", "a"), id="1"),
            result("c1", 1, id="2"),
            ai("ok", id="3"),
        ]
        second = [*first, turns[1], ai("", call("c2", "b"), id="4"), ai("so", id="5")]
        requests = [ask(FIRST), ask(FIRST, ANSWER, SECOND)]
        events = [[("values", {"messages": messages})] for messages in (first, second)]
        results, server = run(*events, requests=requests)
        names = [[use.call.name for use in success(got).tool_uses] for got in results]
        assert names == [["a"], ["b"]]
        assert [request.path for request in server.received] == [
            "/threads",
            *["/threads/T1/runs/stream"] * 2,
        ]
        assert server.received[2].body["input"] == {
            "messages": [{"role": "user", "content": "two"}]
        }

    def test_after_a_failure_a_new_thread_is_reported_what_was_said(
        self, talk, http, ask, success, failure
    ):
        ok = http(_events(("values", {"messages": [ai("ok")]})), kind=SSE)
        boom = http(_events(("error", {"error": "ValueError", "message": "Boom"})), kind=SSE)
        answers = [http(THREAD), ok, boom, http({"thread_id": "T2"}), ok]
        again = ask(FIRST, ANSWER, SECOND)
        results, server = talk(*answers, requests=[ask(FIRST), again, again], mode="cloud", path="")
        assert "ValueError: Boom" in failure(results[1]).message
        assert success(results[2]).text == "ok"
        assert server.received[4].path == "/threads/T2/runs/stream"
        assert server.received[4].body["input"] == {
            "messages": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "ok"},
                {"role": "user", "content": "two"},
            ]
        }

    def test_a_graph_that_takes_no_messages_keeps_its_thread(self, talk, http, ask):
        ok = http(_events(("updates", {"n": {"answer": "ok"}})), kind=SSE)
        again = ask(FIRST, ANSWER, SECOND)
        answers = [http(THREAD), ok, http({}, status=500), ok]
        requests = [ask(FIRST), again, again]
        _, server = talk(*answers, requests=requests, mode="cloud", inputKey="q", path="")
        paths = [request.path for request in server.received]
        assert paths == ["/threads", *["/threads/T1/runs/stream"] * 3]

    def test_context_names_the_assistant_and_is_input_besides(self, run, ask):
        request = replace(ask(FIRST), context={"assistant_id": "b", "user": 7})
        options = {"assistantId": "a", "graphConfig": {"recursion_limit": 5}}
        _, server = run([("values", {"messages": [ai("ok")]})], requests=[request], **options)
        body = server.received[1].body
        assert body["assistant_id"] == "b"
        assert body["input"] == {"messages": [{"role": "user", "content": "one"}], "user": 7}
        assert body["config"] == {"recursion_limit": 5}

    def test_a_graph_without_messages(self, run, success):
        events = [
            ("values", {"question": "Hello", "text": "Hello"}),
            ("updates", {"n": {"answer": ""}}),
            ("updates", {"n": {"running_summary": "S", "output": "never"}}),
        ]
        (got,), server = run(events, inputKey="question", assistantId="a")
        assert success(got).text == "S"
        assert server.received[1].body["input"] == {"question": "Hello"}
        assert server.received[1].body["assistant_id"] == "a"

    def test_a_graph_that_waits_for_input_is_reported(self, run, success):
        waits = {"__interrupt__": [{"value": "sure?"}]}
        events = [("updates", {"n": {"messages": [ai("", call("c1", "a"))]}}), ("updates", waits)]
        (got,), _ = run(events)
        assert "interrupted" in success(got).warnings[0]

    def test_the_id_of_a_thread_leads_nowhere_else(self, talk, http):
        answer = http({"thread_id": "../../admin?x="})
        _, server = talk(answer, mode="cloud", path="/base/threads")
        assert server.received[1].path == "/base/threads/..%2F..%2Fadmin%3Fx%3D/runs/stream"

    @pytest.mark.parametrize("body", [{}, "{", {"thread_id": ""}])
    def test_a_server_without_threads_is_reported(self, talk, http, failure, body):
        (got,), server = talk(http(body), mode="cloud")
        assert "thread_id" in failure(got).message
        assert "mode" in failure(got).hint
        assert len(server.received) == 1


class TestFailures:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("{", "not valid JSON"),
            ("5", "not a JSON object"),
            ({}, "no message of the agent"),
            ({"messages": [SENT]}, "no message of the agent"),
            ({"error": "Boom"}, "reported an error: Boom"),
            ({"output": "", "error": {"message": "Boom"}}, "reported an error: Boom"),
            ({"__error__": {"error": "KeyError", "message": "x"}, "output": "y"}, "KeyError: x"),
        ],
    )
    def test_what_is_no_answer_is_an_error(self, talk, http, failure, body, said):
        (got,), _ = talk(http(body))
        error = failure(got)
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert said in error.message
        assert not error.details["retryable"]

    @pytest.mark.parametrize(("begun", "retryable"), [(True, False), (False, True)])
    @pytest.mark.parametrize("answers", [1, 2])
    def test_an_agent_that_does_not_answer_in_time(
        self, talk, http, ask, failure, answers, begun, retryable
    ):
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" if begun else b""
        slow = [http(THREAD), head][2 - answers :]
        (got,), _ = talk(*slow, mode="cloud", requests=[ask(timeout_s=0.2)])
        error = failure(got)
        assert error.code is ErrorCode.PROVIDER_TIMEOUT
        assert "200 ms" in error.message
        assert error.details["retryable"] is retryable


def test_calls_beside_the_answer_are_read(talk, http, success):
    (result,), _ = talk(
        http(
            {"messages": [{"type": "ai", "content": "ok"}], "toolCalls": [{"toolName": "refund"}]}
        ),
        adapter="langgraph",
    )
    assert [use.call.name for use in success(result).tool_uses] == ["refund"]


@pytest.mark.parametrize("place", ["response_metadata", None])
def test_a_last_message_that_was_cut_off_says_so(talk, http, success, place):
    cut = {"stop_reason": "max_tokens"}
    cut = ai("Refunds take", **({place: cut} if place else cut))
    (ended,), _ = talk(http({"messages": [SENT, cut]}))
    (went_on,), _ = talk(http({"messages": [SENT, cut, ai("Refunds take a week.")]}))
    assert success(ended).warnings == ("The answer was cut off: the agent reported `max_tokens`.",)
    assert success(went_on).warnings == ()
