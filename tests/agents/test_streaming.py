"""Agents that answer with streams of events, over real sockets: good, odd, broken and hostile."""

from __future__ import annotations

import json
from functools import partial

import pytest

from kindlm.errors import ErrorCode
from kindlm.ports import AgentRequest
from kindlm.transcript import UNNAMED, Message, Role, ToolCall, ToolUse, Usage

TOKEN = "tok-planted-0123456789"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n"


@pytest.fixture
def talk(talk):
    """Send requests to an agent that streams; return results and server."""
    return partial(talk, adapter="tapescope")


@pytest.fixture
def hear(talk, http):
    """Return what comes of one stream: events are written as lines, texts as they are."""

    def hear(*lines, kind=NDJSON, **options):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (result,), _ = talk(http("\n".join(texts), kind=kind), **options)
        return result

    return hear


def event(kind, **data):
    return {"type": kind, "data": data}


class TestRequests:
    def test_a_message_goes_with_what_the_protocol_has_besides(self, talk, http):
        _, server = talk(http("hi"))
        assert server.received[0].body == {
            "message": "Hello",
            "prompt": "Hello",
            "route": "conversational",
            "userId": "test-user",
        }
        assert server.received[0].path == "/chat"

    def test_the_context_is_beside_it_and_what_was_said_before(self, talk, http):
        said = (Message(Role.USER, "one"), Message(Role.ASSISTANT, "ok"), Message(Role.USER, "two"))
        context = {"userId": "u7", "plan": {"tier": 1}}
        _, server = talk(http("hi"), requests=[AgentRequest("c", said, 20.0, context)])
        assert server.received[0].body == {
            "message": "two",
            "prompt": "two",
            "route": "conversational",
            "userId": "u7",
            "plan": {"tier": 1},
            "conversation_history": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "ok"},
            ],
        }

    def test_the_users_headers_are_sent(self, talk, http):
        _, server = talk(http("hi"), headers={"Authorization": f"Bearer {TOKEN}"})
        assert server.received[0].headers["authorization"] == f"Bearer {TOKEN}"
        assert "application/x-ndjson" in server.received[0].headers["accept"]

    @pytest.mark.parametrize("adapter", ["tapescope", "jsonl", "streaming"])
    def test_all_names_mean_the_same(self, hear, success, adapter):
        assert success(hear(event("token", token="hi"), adapter=adapter)).text == "hi"


class TestPages:
    @pytest.mark.parametrize("kind", [NDJSON, SSE])
    def test_a_page_is_no_answer_whatever_it_is_sent_as(self, hear, failure, kind):
        error = failure(hear("", "<!doctype HTML>", "<title>Log in</title>", kind=kind))
        assert "it sent an HTML page" in error.message


class TestEvents:
    @pytest.mark.parametrize("wrap", [lambda said: said, lambda said: {"data": said}])
    def test_a_frame_names_an_event_whose_content_is_in_it_or_under_data(self, hear, success, wrap):
        def frame(name, /, **said):
            return f"event: {name}\ndata: {json.dumps(wrap(said))}\n"

        frames = [
            frame("tool_call", name="x", args={"a": 1}, id="7"),
            frame("tool_result", id="7", result="done"),
            frame("token", token="a"),
            frame("custom", text="b"),
        ]
        reply = success(hear(*frames, kind=SSE))
        assert reply.text == "ab"
        assert reply.tool_uses == (ToolUse(ToolCall("7", "x", {"a": 1}), "done", "agent"),)

    @pytest.mark.parametrize("options", [{}, {"streaming": False}])
    @pytest.mark.parametrize("error", [True, {"message": "Internal error"}])
    def test_an_error_with_its_message_is_no_answer(self, hear, failure, error, options):
        said = {"error": error, "message": "Internal error"}
        error = failure(hear(said, **options))
        assert error.message == "Agent 'shop' reported an error: Internal error"

    def test_a_whole_conversation(self, hear, success):
        reply = success(
            hear(
                event("tool_call", name="x", args={"a": 1}),
                event("tool_result", result="ok"),
                event("usage", input_tokens=1000, output_tokens=500),
                event("token", token="He"),
                "plain words",
                event("message_complete", content="Final"),
                {"type": "weird", "text": " tail"},
            )
        )
        assert reply.text == "Final tail"
        assert reply.tool_uses == (ToolUse(ToolCall("call_0", "x", {"a": 1}), "ok", "agent"),)
        assert reply.usage == Usage(1000, 500)
        assert reply.reported_cost_usd is None

    def test_without_ids_to_those_with_their_names(self, hear, success):
        calls = [event("tool_call", name=name) for name in "aba"]
        results = [event("tool_result", name=name, result=n) for n, name in enumerate("baa")]
        reply = success(hear(*calls, *results))
        assert [use.response for use in reply.tool_uses] == [1, 0, 2]

    def test_a_result_without_its_call_is_a_call(self, hear, success):
        reply = success(hear(event("tool_result", result=1), event("token", token="x")))
        assert [use.call.name for use in reply.tool_uses] == [UNNAMED]
        assert reply.tool_uses[0].response == 1

    def test_a_narration_calls_the_tool_that_it_names_and_no_action(self, hear, success):
        told = event("step_narration", text="Looking", toolName="look")
        said = event("step_narration", text="Refunding", action="refund")
        reply = success(hear(told, said, event("token", token="x")))
        assert [use.call.name for use in reply.tool_uses] == ["look"]

    @pytest.mark.parametrize("kind", ["final_message", "message_complete", "metadata"])
    def test_calls_that_a_last_event_lists_count_once(self, hear, success, kind):
        pay, refund = {"name": "pay", "args": {"a": 1}}, {"name": "refund"}
        told = event("token", token="ok"), event("tool_call", **pay)
        for last in ({"tool_calls": [pay, refund]}, {"data": {"toolCalls": [pay, refund]}}):
            reply = success(hear(*told, {"type": kind, **last}))
            assert [use.call.name for use in reply.tool_uses] == ["pay", "refund"]
            assert reply.text == "ok"

    @pytest.mark.parametrize("kind", ["start", "status", "step_complete", "token", "usage"])
    def test_calls_that_any_other_event_lists_count(self, hear, success, kind):
        told = event("tool_call", name="pay"), event("token", token="ok")
        for listed in ({"tools_used": ["pay", "refund"]}, {"data": {"tools_used": ["refund"]}}):
            reply = success(hear(*told, {"type": kind, **listed}))
            assert [use.call.name for use in reply.tool_uses] == ["pay", "refund"]
        reply = success(hear(*told, {"type": kind, "tool_calls": 1}))
        assert [use.call.name for use in reply.tool_uses] == ["pay"]

    @pytest.mark.parametrize("kind", [[], ["token"], {"name": "token"}, 1, None])
    def test_an_event_whose_type_is_no_text_is_a_piece_of_the_text(self, hear, success, kind):
        assert success(hear({"type": kind, "text": "ok"})).text == "ok"

    @pytest.mark.parametrize("result", [0, "", None])
    def test_an_empty_answer_is_an_answer(self, hear, success, result):
        reply = success(hear(event("tool_call", name="a"), event("tool_result", result=result)))
        assert reply.tool_uses[0].response == result

    def test_a_tool_that_failed_says_so(self, hear, success):
        failed = [
            event("tool_result", success=False, error="E"),
            event("tool_result", success=False, result=7),
        ]
        reply = success(hear(*[event("tool_call", name="a")] * 2, *failed))
        assert [use.response for use in reply.tool_uses] == [
            {"error": "E"},
            {"error": "the agent reported that the tool failed", "result": 7},
        ]

    def test_the_tokens_of_several_models_have_no_model_that_prices_them(self, hear, success):
        told = [event("usage", input_tokens=9, output_tokens=1, model=name) for name in ("a", "b")]
        reply = success(hear(*told, event("token", token="x")))
        assert (reply.usage, reply.model) == (Usage(18, 2), None)

    def test_usage_and_cost_are_added_up_and_the_model_is_known(self, hear, success):
        reply = success(
            hear(
                event("usage", input_tokens=10, cost=0.25, model="m-1"),
                event("usage", input_tokens=5, output_tokens=2, cost=0.5),
                event("token", token="x"),
            )
        )
        assert (reply.usage, reply.reported_cost_usd, reply.model) == (Usage(15, 2), 0.75, "m-1")

    def test_a_cost_that_is_reported_a_part_is_not_that_of_all(self, hear, success):
        part, rest = event("usage", input_tokens=10, cost=0.01), event("usage", input_tokens=10**6)
        reply = success(hear(part, rest, event("usage")))
        assert (reply.usage.input_tokens, reply.reported_cost_usd) == (1_000_010, None)

    def test_more_than_can_be_counted_is_unknown(self, hear, success):
        huge = event("usage", input_tokens=2**53 - 1, cost=1e308)
        reply = success(hear(huge, huge, event("token", token="x")))
        assert (reply.usage.input_tokens, reply.reported_cost_usd) == (None, None)

    def test_what_says_nothing_is_no_answer(self, hear, success):
        reply = success(hear({"type": "start"}, event("status", text="busy"), {"type": "thinking"}))
        assert (reply.text, reply.tool_uses) == ("", ())

    @pytest.mark.parametrize(
        "error",
        [
            {"type": "error", "error": {"message": "Boom"}},
            event("error", message="Boom"),
        ],
    )
    def test_an_error_is_no_answer(self, hear, failure, error):
        found = failure(hear(event("token", token="so far"), error))
        assert found.code is ErrorCode.PROVIDER_API_ERROR
        assert found.message == "Agent 'shop' reported an error: Boom"
        assert not found.details["retryable"]

    @pytest.mark.parametrize(
        "end", [event("error", message="Boom"), event("token", token=5), '{"type": "token"']
    )
    def test_an_error_holds_what_was_spent_before(self, hear, failure, end):
        usages = [event("usage", input_tokens=7, output_tokens=n, cost=0.25) for n in (1, 2)]
        details = failure(hear(event("token", token="so far"), *usages, end)).details
        assert (details["tokens"], details["cost_usd"], details["model"]) == ([14, 3], 0.5, None)

    def test_lines_of_bare_text_are_no_part_of_a_models_stream(self, hear, success):
        chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("Hel", "lo")]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        assert success(hear(chunks[0], ": ping", chunks[1], end, "bye")).text == "Hello"

    def test_nothing_was_spent_where_nothing_was_reported(self, hear, failure):
        details = failure(hear(event("token", token="so far"), event("error", message="x"))).details
        assert "tokens" not in details


class TestFrames:
    def test_frames_with_types_inside(self, hear, success):
        lines = ["event: message", 'data: {"type":"token",', 'data: "data":{"token":"Hel"}}', ""]
        end = ['data: {"type":"token","data":{"token":"lo"}}', "", "data: [DONE]", "", "data: no"]
        assert success(hear(*lines, *end, kind=SSE)).text == "Hello"

    def test_the_name_of_a_frame_is_its_type(self, hear, success):
        frames = ["event: tool_call", 'data: {"name": "a"}', "", "event: token", "data: hi"]
        reply = success(hear(*frames, kind=SSE, adapter="streaming"))
        assert (reply.text, reply.tool_uses[0].call.name) == ("hi", "a")

    def test_a_frame_with_an_empty_name_has_the_default_name(self, hear, success):
        frames = ["event:", "data: Hel", "", "event:", "data: lo"]
        assert success(hear(*frames, kind=SSE)).text == "Hello"

    def test_frames_are_known_without_their_media_type(self, hear, success):
        assert success(hear('data: {"type":"token","token":"hi"}', kind="text/plain")).text == "hi"


class TestWholeAnswers:
    def test_without_streaming_the_answer_is_one_value(self, hear, success):
        body = {"response": "hi", "steps": [{"tool": "a", "output": 0}], "tokens": 7, "cost": 0.5}
        reply = success(hear(body, kind="application/json", streaming=False))
        assert (reply.text, reply.tool_uses[0].response) == ("hi", 0)
        assert (reply.usage.output_tokens, reply.reported_cost_usd) == (7, 0.5)


class TestFailures:
    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('{"type": "token", "data"', "line 2 is not JSON"),
            ('{"a":' * 100_000, "line 2 is not JSON: it is nested too deeply"),
            ('{"type": "usage", "data": {"input_tokens": NaN}}', "NaN is not a JSON number"),
            ('{"type": "token", "data": {"token": 5}}', "`token` of event 2 is not a string"),
            (
                '{"type": "final_message", "data": {"text": ["a"]}}',
                "`text` of event 2 is not a string",
            ),
        ],
    )
    def test_what_is_broken_is_no_answer(self, hear, failure, line, said):
        error = failure(hear(event("token", token="so far"), line))
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert said in error.message

    def test_wrong_types_elsewhere_are_not_taken(self, hear, success):
        reply = success(
            hear(
                event("tool_call", name=5, args="not JSON", id=7),
                event("usage", input_tokens="many", output_tokens=-1, cost="free"),
                {"type": 5, "data": "x"},
                {"type": "token", "data": None, "token": "y"},
                {"type": "final_message"},
            )
        )
        assert reply.text == "xy"
        assert reply.tool_uses[0].call == ToolCall("call_0", "unknown", {}, malformed="not JSON")
        assert reply.usage == Usage()

    def test_many_results_are_found_quickly(self, hear, success):
        calls = [event("tool_call", name="a") for _ in range(3_000)]
        results = [event("tool_result", name="a", result=n) for n in range(3_000)]
        reply = success(hear(*calls, *results))
        assert [use.response for use in reply.tool_uses] == list(range(3_000))

    @pytest.mark.parametrize("streaming", [True, False])
    def test_an_absurd_number_of_calls_is_ignored(self, hear, failure, streaming, monkeypatch):
        monkeypatch.setattr("kindlm.agents.drafts.MAX_CALLS", 10)
        monkeypatch.setattr("kindlm.agents.reply_reading.MAX_CALLS", 10)
        calls = [{"name": "a"}] * 11
        said = [event("tool_call", **call) for call in calls]
        result = hear(*(said if streaming else [{"steps": calls}]), streaming=streaming)
        assert "more than 10 tool calls" in failure(result).message

    def test_what_is_secret_is_in_no_error(self, talk, http, failure):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for answer in (
            http({"type": "error", "error": f"bad {TOKEN}"}, kind=NDJSON),
            http('{"x": ' + TOKEN, kind=NDJSON),
            http({"error": f"bad {TOKEN}"}, status=401),
        ):
            (result,), _ = talk(answer, headers=headers)
            assert TOKEN not in repr(failure(result))
