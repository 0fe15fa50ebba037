"""Tool calls and tokens in spans of each convention."""

from __future__ import annotations

import json

import pytest
from otlp import otlp_request, otlp_span

from kindlm.telemetry.spans import read_json
from kindlm.telemetry.trace_reading import read_trace
from kindlm.transcript import Extras, Usage

ARGUMENTS = {"order_id": "A1"}
TEXT = json.dumps(ARGUMENTS)
RESULT = {"status": "sent"}
SENT = json.dumps(RESULT)
CALL = ("lookup", ARGUMENTS, RESULT)

TOOLS = {
    "genai": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": TEXT,
        "gen_ai.tool.call.result": SENT,
    },
    "genai as values": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": ARGUMENTS,
        "gen_ai.tool.call.result": RESULT,
    },
    "mcp": {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": TEXT,
        "gen_ai.tool.call.result": SENT,
    },
    "openinference": {
        "openinference.span.kind": "TOOL",
        "tool.name": "lookup",
        "input.value": TEXT,
        "output.value": SENT,
    },
    "openinference of smolagents": {
        "openinference.span.kind": "TOOL",
        "tool.name": "lookup",
        "input.value": json.dumps(
            {"args": [], "sanitize_inputs_outputs": True, "kwargs": ARGUMENTS}
        ),
        "output.value": SENT,
    },
    "openllmetry": {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "lookup",
        "traceloop.entity.input": json.dumps({"args": [], "kwargs": ARGUMENTS}),
        "traceloop.entity.output": SENT,
    },
    "openllmetry of langchain": {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "lookup",
        "traceloop.entity.input": json.dumps({"input_str": "…", "inputs": ARGUMENTS}),
        "traceloop.entity.output": json.dumps(
            {"output": {"lc": 1, "kwargs": {"content": SENT}}, "kwargs": {"color": "green"}}
        ),
    },
    "ai sdk": {
        "ai.operationId": "ai.toolCall",
        "ai.toolCall.name": "lookup",
        "ai.toolCall.args": TEXT,
        "ai.toolCall.result": SENT,
    },
    "pydantic-ai": {
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.id": "c1",
        "tool_arguments": TEXT,
        "tool_response": SENT,
    },
}

FUNCTION = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": TEXT}}
CHATS = {
    "genai": (
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": "m-2",
            "gen_ai.usage.input_tokens": 40,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.output.messages": json.dumps(
                [
                    {
                        "role": "assistant",
                        "parts": [
                            {"type": "tool_call", "id": "c1", "name": "lookup"}
                            | {"arguments": ARGUMENTS}
                        ],
                    }
                ]
            ),
        },
        {
            "gen_ai.input.messages": json.dumps(
                [
                    {
                        "role": "tool",
                        "parts": [{"type": "tool_call_response", "id": "c1", "response": SENT}],
                    }
                ]
            ),
        },
    ),
    "openllmetry": (
        {
            "llm.request.type": "chat",
            "gen_ai.response.model": "m-2",
            "gen_ai.usage.prompt_tokens": 40,
            "gen_ai.usage.completion_tokens": 7,
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.finish_reason": "tool_calls",
            "gen_ai.completion.0.tool_calls.0.id": "c1",
            "gen_ai.completion.0.tool_calls.0.name": "lookup",
            "gen_ai.completion.0.tool_calls.0.arguments": TEXT,
        },
        {
            "gen_ai.prompt.1.role": "tool",
            "gen_ai.prompt.1.tool_call_id": "c1",
            "gen_ai.prompt.1.content": SENT,
        },
    ),
    "openinference": (
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m-2",
            "llm.token_count.prompt": 40,
            "llm.token_count.completion": 7,
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "lookup",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": TEXT,
        },
        {
            "llm.input_messages.1.message.role": "tool",
            "llm.input_messages.1.message.tool_call_id": "c1",
            "llm.input_messages.1.message.content": SENT,
        },
    ),
    "ai sdk": (
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.response.model": "m-2",
            "ai.usage.promptTokens": 40,
            "ai.usage.completionTokens": 7,
            "ai.response.finishReason": "tool-calls",
            "ai.response.toolCalls": json.dumps(
                [{"toolCallId": "c1", "toolName": "lookup", "input": ARGUMENTS}]
            ),
        },
        {
            "ai.prompt.messages": json.dumps(
                [
                    {
                        "role": "tool",
                        "content": [
                            {"type": "tool-result", "toolCallId": "c1"}
                            | {"output": {"type": "json", "value": RESULT}}
                        ],
                    }
                ]
            ),
        },
    ),
}
"""A model call that asks for a tool, and what the next one has in addition to its end."""

ENDS = {
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "Sent."}]}]
    ),
}


def uses_of(reading):
    return [(use.call.name, use.call.arguments, use.response) for use in reading.tool_uses]


@pytest.mark.parametrize("attributes", TOOLS.values(), ids=TOOLS)
def test_a_tool_span_is_a_tool_call(spans_of, attributes):
    reading = read_trace(spans_of(otlp_span(1, attributes)))
    assert uses_of(reading) == [CALL]
    assert reading.missing is None


def test_what_a_cache_of_prompts_held_is_read(spans_of):
    cached = {"cache_read.input_tokens": 30, "cache_creation.input_tokens": 8}
    named = {f"gen_ai.usage.{name}": count for name, count in cached.items()}
    (call,) = read_trace(spans_of(otlp_span(1, CHATS["genai"][0] | named | ENDS))).model_calls
    assert call.usage == Usage(40, 7, Extras(cache_read=30, cache_written=8))


def test_the_tier_of_service_is_read(spans_of):
    tier = {"openai.response.service_tier": "flex"}
    (call,) = read_trace(spans_of(otlp_span(1, CHATS["genai"][0] | tier | ENDS))).model_calls
    assert call.usage == Usage(40, 7, Extras(tier="flex"))


@pytest.mark.parametrize(("asks", "goes_on"), CHATS.values(), ids=CHATS)
def test_without_tool_spans_calls_are_read_from_messages(spans_of, asks, goes_on):
    said = ("completion.0", "output", "toolCalls", "finish")
    last = {key: value for key, value in asks.items() if not any(each in key for each in said)}
    reading = read_trace(spans_of(otlp_span(1, asks), otlp_span(2, last | ENDS | goes_on)))
    assert uses_of(reading) == [CALL]
    assert [call.model for call in reading.model_calls] == ["m-2", "m-2"]
    assert reading.model_calls[0].usage.input_tokens == 40
    assert reading.model_calls[0].usage.output_tokens == 7
    assert reading.missing is None


def test_messages_as_events_of_older_conventions_are_read(spans_of):
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [FUNCTION]}}
    result = {"role": "tool", "id": "c1", "content": SENT}
    reading = read_trace(
        spans_of(
            otlp_span(
                1,
                {"gen_ai.operation.name": "chat"},
                events=[("gen_ai.choice", {"gen_ai.event.content": json.dumps(choice)})],
            ),
            otlp_span(
                2,
                {"gen_ai.operation.name": "chat", **ENDS},
                events=[("gen_ai.tool.message", {"gen_ai.event.content": json.dumps(result)})],
            ),
        )
    )
    assert uses_of(reading) == [CALL]


def test_a_call_in_a_message_and_in_a_span_is_one_call(spans_of):
    asks, _ = CHATS["genai"]
    for own in ({"gen_ai.tool.call.id": "c1"}, {}):
        tool = TOOLS["genai"] | own
        other = TOOLS["genai"] | {"gen_ai.tool.name": "refund"}
        reading = read_trace(spans_of(otlp_span(1, asks), otlp_span(2, tool), otlp_span(3, other)))
        assert uses_of(reading) == [CALL, ("refund", ARGUMENTS, RESULT)]


def test_a_tool_of_langchain_with_one_argument_is_the_call_that_the_model_asked_for(spans_of):
    prefix = "llm.output_messages.0.message.tool_calls"
    asks = {"openinference.span.kind": "LLM"}
    for at, order in enumerate(("A1", "B2")):
        asks |= {
            f"{prefix}.{at}.tool_call.id": f"c{at}",
            f"{prefix}.{at}.tool_call.function.name": "lookup",
            f"{prefix}.{at}.tool_call.function.arguments": json.dumps({"order_id": order}),
        }
    tools = [
        {
            "openinference.span.kind": "TOOL",
            "tool.name": "lookup",
            "input.value": order,
            "output.value": json.dumps(
                {"type": "tool", "data": {"content": json.dumps(order), "tool_call_id": call}}
            ),
        }
        for order, call in (("B2", "c1"), ("A1", "c0"))
    ]
    reading = read_trace(
        spans_of(otlp_span(1, asks), otlp_span(2, tools[0]), otlp_span(3, tools[1]))
    )
    assert uses_of(reading) == [
        ("lookup", {"order_id": "A1"}, "A1"),
        ("lookup", {"order_id": "B2"}, "B2"),
    ]


@pytest.mark.parametrize(
    ("output", "error", "result"),
    [
        ({"lc": 1, "kwargs": {"tool_call_id": "c1"}}, "timed out", {"error": "timed out"}),
        ({"lc": 1, "kwargs": {"tool_call_id": "c1"}}, None, None),
        ({"tool_call_id": "c1", "content": SENT}, None, {"tool_call_id": "c1", "content": SENT}),
        ({"type": "tool", "data": {"tool_call_id": "c1"}}, None, None),
        ({"type": "human", "data": {}}, None, {"type": "human", "data": {}}),
    ],
)  # fmt: skip
def test_of_results_only_messages_that_langchain_serialised_are_unwrapped(
    spans_of, output, error, result
):
    tool = TOOLS["openinference"] | {"output.value": json.dumps(output)}
    reading = read_trace(spans_of(otlp_span(1, tool, error=error)))
    assert uses_of(reading) == [("lookup", ARGUMENTS, result)]


def test_a_handoff_of_openinference_is_the_call_of_the_model_without_arguments(spans_of):
    prefix = "llm.output_messages.0.message.tool_calls.0.tool_call"
    asks = {
        "openinference.span.kind": "LLM",
        f"{prefix}.id": "c1",
        f"{prefix}.function.name": "transfer_to_refunds",
    }
    handoff = {"openinference.span.kind": "TOOL", "input.value": "shop", "output.value": "refunds"}
    reading = read_trace(
        spans_of(otlp_span(1, asks), otlp_span(2, handoff) | {"name": "handoff to refunds"})
    )
    assert (uses_of(reading), reading.missing) == ([("transfer_to_refunds", {}, None)], None)
    # A tool may have such a name.
    named = spans_of(
        otlp_span(1, TOOLS["openinference"] | {"tool.name": "handoff to refunds"})
        | {"name": "handoff to refunds"}
    )
    assert uses_of(read_trace(named)) == [("handoff to refunds", ARGUMENTS, RESULT)]


def test_the_span_of_google_adk_for_several_calls_is_no_further_call(spans_of):
    merged = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"}
    spans = [CHATS["genai"][0], TOOLS["genai"], merged]
    reading = read_trace(spans_of(*(otlp_span(n, span) for n, span in enumerate(spans, start=1))))
    assert (uses_of(reading), reading.missing) == ([CALL], None)


def test_a_streamed_answer_of_logfire_belongs_to_its_request(spans_of):
    def request(text):
        parts = [{"type": "text", "content": text}]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts}]),
        }

    def streamed(number, text):
        asks = CHATS["genai"][0] | request(text) | {"logfire.span_type": "log"}
        return otlp_span(number, asks, times=(number * 100, number * 100))

    asked, other = request("Where is A1?"), request("Where is B2?")
    both = read_trace(spans_of(otlp_span(1, asked), streamed(2, "Where is A1?")))
    assert (uses_of(both), both.missing) == ([("lookup", ARGUMENTS, None)], None)
    (call,) = both.model_calls
    assert (call.usage.input_tokens, call.model) == (40, "m-2")
    # A request whose answer did not arrive may have asked for any tool.
    for spans in (
        [otlp_span(1, other), streamed(2, "Where is A1?")],
        [otlp_span(1, asked), otlp_span(2, asked), streamed(3, "Where is A1?")],
    ):
        assert "the model's answer" in (read_trace(spans_of(*spans)).missing or "")


def test_an_answer_of_the_responses_api_is_read_from_logfires_spans_of_openais_agents(spans_of):
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "lookup"}
    call["arguments"] = TEXT
    message = {"type": "message", "role": "assistant"}
    message["content"] = [{"type": "output_text", "text": "Sent."}]
    user = {"role": "user", "content": "Where is A1?"}
    output = {"type": "function_call_output", "call_id": "c1", "output": SENT}
    spans = [
        otlp_span(
            number,
            {
                "gen_ai.operation.name": "chat",
                "raw_input": json.dumps(raw_input),
                "response": json.dumps({"instructions": "Be kind.", "output": [said]}),
            },
        )
        for number, (raw_input, said) in enumerate(
            [([user], call), ([user, call, output], message)], start=1
        )
    ]
    reading = read_trace(spans_of(*spans, scope="logfire.openai_agents"))
    assert (uses_of(reading), reading.missing) == ([CALL], None)
    # In other spans, these attributes may be anything.
    assert "the model's answer" in (read_trace(spans_of(*spans, scope="shop")).missing or "")


def test_two_instrumentations_tell_a_call_once(spans_of):
    chat = CHATS["genai"][0]
    outer = {**CHATS["openinference"][0], "llm.token_count.prompt": 40}
    tool = TOOLS["genai"]
    client = TOOLS["mcp"]
    spans = [
        *spans_of(
            otlp_span(1, outer, parent=9, times=(100, 200)),
            otlp_span(3, tool, parent=9, times=(300, 400)),
            otlp_span(9, times=(0, 1000)),
            scope="framework",
        ),
        *spans_of(
            # one below the other, and one that does not know of the other
            otlp_span(2, chat, parent=1, times=(110, 190)),
            otlp_span(4, client, parent=9, times=(310, 390)),
            scope="sdk",
        ),
    ]
    reading = read_trace(spans)
    assert uses_of(reading) == [CALL]
    (call,) = reading.model_calls
    assert (call.usage.input_tokens, call.model) == (40, "m-2")


def test_spans_that_do_not_know_each_other_tell_a_call_once(spans_of):
    chat = CHATS["genai"][0]
    spans = [
        *spans_of(
            otlp_span(9, times=(0, 1000)),
            otlp_span(8, parent=9, times=(90, 600)),
            otlp_span(1, CHATS["openinference"][0], parent=8, times=(100, 200)),
            scope="framework",
        ),
        *spans_of(otlp_span(2, chat, parent=9, times=(110, 190)), scope="sdk"),
    ]
    assert len(read_trace(spans).model_calls) == 1
    # Not so if they say anything else, or at another time.
    other_call = chat["gen_ai.output.messages"].replace("c1", "c2")
    for other in ({"gen_ai.usage.input_tokens": 41}, {"gen_ai.output.messages": other_call}):
        changed = spans_of(otlp_span(2, chat | other, parent=9, times=(110, 190)), scope="sdk")
        assert len(read_trace([*spans[:-1], *changed]).model_calls) == 2
    later = spans_of(otlp_span(2, chat, parent=9, times=(150, 290)), scope="sdk")
    assert len(read_trace([*spans[:-1], *later]).model_calls) == 2


def test_a_span_around_several_calls_of_a_model_counts_for_none(spans_of):
    chat = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5, **ENDS}
    outer = chat | {"gen_ai.usage.input_tokens": 10}
    spans = [
        *spans_of(otlp_span(1, outer, times=(0, 1000)), scope="framework"),
        *spans_of(otlp_span(2, chat, parent=1), otlp_span(3, chat, parent=1), scope="sdk"),
    ]
    assert [call.usage.input_tokens for call in read_trace(spans).model_calls] == [5, 5]


def test_a_tool_that_failed_has_its_error_as_result(spans_of):
    tool = {**TOOLS["genai"]}
    del tool["gen_ai.tool.call.result"]
    reading = read_trace(spans_of(otlp_span(1, tool, error="no such order")))
    assert uses_of(reading) == [("lookup", ARGUMENTS, {"error": "no such order"})]


def test_an_id_in_capitals_is_the_same(spans_of):
    (span,) = spans_of(otlp_span(1, parent="00000000000000AA") | {"spanId": "00000000000000AB"})
    assert (span.id, span.parent) == ("00000000000000ab", "00000000000000aa")


def test_calls_come_in_the_order_of_the_tree(spans_of):
    def tool(number, name, **places):
        return otlp_span(number, TOOLS["genai"] | {"gen_ai.tool.name": name}, **places)

    reading = read_trace(
        spans_of(
            tool(4, "third", parent=2, times=(150, 160)),
            otlp_span(2, times=(120, 400)),
            tool(3, "second", parent=1, times=(200, 210)),
            tool(5, "first", parent=1, times=(110, 115)),
            otlp_span(1, times=(100, 300)),
        )
    )
    assert [use.call.name for use in reading.tool_uses] == ["first", "second", "third"]


UNKNOWN = {
    "no calls": ([{}], "no model or tool spans"),
    "no messages": (
        [{"llm.request.type": "chat", "gen_ai.response.finish_reasons": ["tool_calls"]}],
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE",
    ),
    "no end": ([{"gen_ai.operation.name": "chat"}], "OTEL_INSTRUMENTATION_GENAI_CAPTURE"),
    "no arguments": (
        [{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}],
        'the arguments of "lookup"',
    ),
    "arguments of langchain, without the model that wrote them": (
        [TOOLS["openinference"] | {"input.value": "{'order_id': 'A1'}"}],
        'the arguments of "lookup"',
    ),
    "hidden": (
        [{"openinference.span.kind": "TOOL", "tool.name": "x", "input.value": "__REDACTED__"}],
        'the arguments of "x"',
    ),
    "a tool that a model asked for, and maybe others": (
        [
            {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["tool_calls"]},
            TOOLS["genai"],
        ],
        "the model's answer",
    ),
    "no messages, but an end": (
        [{"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["stop"]}],
        "the model's answer",
    ),
    "pydantic-ai without content": (
        [{"gen_ai.operation.name": "chat", "model_request_parameters": "{}"}],
        "see-your-agent/#its-traces",
    ),
    "a message without text": (
        [{"gen_ai.operation.name": "chat", "llm.output_messages.0.message.role": "assistant"}],
        "the model's answer",
    ),
    "messages that are cut off": (
        [
            {
                "ai.operationId": "ai.streamText.doStream",
                "ai.response.text": "I look.",
                "ai.response.toolCalls": '[{"toolCallId": "c1", "toolNa',
            },
        ],
        "the model's answer",
    ),
    "a text in a message that ended for tools": (
        [
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.output.messages": json.dumps(
                    [{"parts": [{"content": "I look."}], "finish_reason": "tool_call"}]
                ),
            },
        ],
        "the model's answer",
    ),
    "an end for tools that a text does not name": (
        [
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.response.finish_reasons": ["tool_calls"],
                "gen_ai.completion.0.content": "I look.",
            },
        ],
        "the model's answer",
    ),
}


@pytest.mark.parametrize(("spans", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_spans_do_not_say_is_missing_with_the_way_out(spans_of, spans, why):
    made = [otlp_span(number, each) for number, each in enumerate(spans, 1)]
    assert why in (read_trace(spans_of(*made)).missing or "")


@pytest.mark.parametrize(
    "dropped",
    [
        {"droppedAttributesCount": 1},
        {"droppedEventsCount": 1},
        {"events": [{"name": "e", "droppedAttributesCount": 1}]},
    ],
)
def test_calls_may_be_missing_if_a_span_had_too_much_to_keep(spans_of, dropped):
    chat = otlp_span(1, {"gen_ai.operation.name": "chat", "ai.response.text": "Hi"})
    assert read_trace(spans_of(chat)).missing is None
    assert "OTEL_SPAN_EVENT_COUNT_LIMIT" in (read_trace(spans_of(chat | dropped)).missing or "")


@pytest.mark.parametrize(
    "part",
    [
        {"toolUse": {"toolUseId": "c1", "name": "lookup", "input": ARGUMENTS}},
        {"function_call": {"id": "c1", "name": "lookup", "args": ARGUMENTS}},
        {"functionCall": {"name": "lookup", "args": ARGUMENTS}},
    ],
)
def test_calls_in_forms_of_providers_are_read(spans_of, part):
    choice = ("gen_ai.choice", {"message": json.dumps([{"text": "I look."}, part])})
    reading = read_trace(spans_of(otlp_span(1, {"gen_ai.operation.name": "chat"}, events=[choice])))
    assert uses_of(reading) == [("lookup", ARGUMENTS, None)]


@pytest.mark.parametrize(
    ("status", "content", "response"),
    [
        ("success", [{"text": SENT}], RESULT),
        ("success", [{"json": RESULT}], RESULT),
        ("success", [{"text": "a"}, {"text": "b"}], [{"text": "a"}, {"text": "b"}]),
        ("error", [{"text": "Lost."}], {"error": "Lost."}),
    ],
)
def test_results_in_the_form_of_bedrock_are_read(spans_of, status, content, response):
    call = {"toolUse": {"toolUseId": "c1", "name": "lookup", "input": ARGUMENTS}}
    result = {"toolResult": {"toolUseId": "c1", "status": status, "content": content}}
    choice = ("gen_ai.choice", {"message": json.dumps([call])})
    asked = ("gen_ai.tool.message", {"content": json.dumps([result])})
    chat = {"gen_ai.operation.name": "chat"}
    tool = {key: value for key, value in TOOLS["genai"].items() if "result" not in key}
    reading = read_trace(
        spans_of(
            otlp_span(1, chat, events=[choice]),
            otlp_span(2, tool | {"gen_ai.tool.call.id": "c1"}),
            otlp_span(3, chat | ENDS, events=[asked]),
        )
    )
    assert uses_of(reading) == [("lookup", ARGUMENTS, response)]


@pytest.mark.parametrize(
    "key", ["gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"]
)
@pytest.mark.parametrize(
    ("system", "provider"),
    [("openai", "openai"), ("strands-agents", None), ("gcp.gen_ai", "gemini"), ("x_ai", "xai")],
)
def test_a_provider_has_the_name_that_prices_have_and_a_framework_is_none(
    spans_of, key, system, provider
):
    chat = {"gen_ai.operation.name": "chat", key: system, **ENDS}
    (call,) = read_trace(spans_of(otlp_span(1, chat))).model_calls
    assert call.provider == provider


@pytest.mark.parametrize("name", ["ai.response.text", "ai.response.object"])
def test_an_answer_in_json_is_a_text(spans_of, name):
    chat = {"ai.operationId": "ai.generateObject.doGenerate", name: '{"is_sent": true}'}
    reading = read_trace(spans_of(otlp_span(1, chat)))
    assert (reading.tool_uses, reading.missing) == ((), None)


@pytest.mark.parametrize("ids", [("", ""), ("x", "y")], ids=["no ids", "other ids"])
def test_of_two_spans_of_a_model_each_may_tell_of_another_call(spans_of, ids):
    def chat(call_id, *names):
        parts = [
            {"type": "tool_call", "id": call_id and f"{call_id}{at}", "name": name}
            | {"arguments": ARGUMENTS}
            for at, name in enumerate(names)
        ]
        said = json.dumps([{"role": "assistant", "parts": parts}])
        return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said}

    reading = read_trace(
        [
            *spans_of(otlp_span(1, chat(ids[0], "lookup", "lookup", "refund")), scope="framework"),
            *spans_of(otlp_span(2, chat(ids[1], "lookup", "delete"), parent=1), scope="sdk"),
        ]
    )
    assert len(reading.model_calls) == 1
    names = [use.call.name for use in reading.tool_uses]
    assert sorted(names) == ["delete", "lookup", "lookup", "refund"]


def asks(*calls, **more):
    """Return the attributes of a model call that asks for tool calls: (id, name, arguments)."""
    parts = [
        {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said} | more


def asked_with(*parts, **more):
    """Return the attributes of the last model call after some parts of messages."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Refund A1"}]}]
    for part in parts:
        roles = {"tool_call": "assistant", "tool_call_response": "tool", "text": "user"}
        asked.append({"role": roles[part["type"]], "parts": [part]})
    return {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(asked)} | more


def asked_call(call_id, order="A1"):
    arguments = {"order_id": order}
    return {"type": "tool_call", "id": call_id, "name": "lookup", "arguments": arguments}


def sent_result(call_id, result=SENT):
    return {"type": "tool_call_response", "id": call_id, "response": result}


def test_a_result_with_another_id_is_of_the_only_call_before_it(spans_of):
    """OpenLLMetry gives calls of the Responses API the id of their item, results the call's id."""
    spans = [asks(("fc_1", "lookup", ARGUMENTS)), asks(("fc_2", "refund", {}))]
    first = [asked_call("fc_1"), sent_result("call_1")]
    second = [asked_call("fc_2") | {"name": "refund", "arguments": {}}, sent_result("call_2", "3")]
    spans[1] = asked_with(*first) | spans[1]
    spans.append(asked_with(*first, *second, **ENDS))
    reading = read_trace(spans_of(*(otlp_span(at, each) for at, each in enumerate(spans, 1))))
    assert uses_of(reading) == [CALL, ("refund", {}, 3)]
    assert reading.missing is None


@pytest.mark.parametrize(
    "after",
    [
        # Which of the two is it?
        [
            asked_call("fc_1"),
            asked_call("fc_2", "B2"),
            sent_result("call_2"),
            sent_result("call_1"),
        ],
        [asked_call("fc_1"), asked_call("fc_2", "B2"), sent_result("call_1")],
        # A call in between may be left out.
        [asked_call("fc_1"), sent_result("call_1"), sent_result("call_3")],
        [asked_call("fc_1"), {"type": "text", "content": "Wait"}, sent_result("call_1")],
    ],
)
def test_a_result_with_another_id_is_of_no_call_if_it_may_be_of_several(spans_of, after):
    calls = [("fc_1", "lookup", ARGUMENTS), ("fc_2", "lookup", {"order_id": "B2"})]
    last = asked_with(*after, **ENDS)
    reading = read_trace(spans_of(otlp_span(1, asks(*calls)), otlp_span(2, last)))
    assert [use.response for use in reading.tool_uses] == [None, None]


def test_a_result_is_of_the_call_with_its_id_wherever_it_stands(spans_of):
    calls = [("c1", "lookup", ARGUMENTS), ("c2", "refund", {})]
    last = asked_with(asked_call("c2"), sent_result("c1"), **ENDS)
    reading = read_trace(spans_of(otlp_span(1, asks(*calls)), otlp_span(2, last)))
    assert uses_of(reading) == [CALL, ("refund", {}, None)]


def test_a_result_with_another_id_is_of_no_call_if_calls_share_their_id(spans_of):
    """Some models number their calls anew in each answer."""
    one = asked_with(asked_call("0"), sent_result("x")) | asks(("0", "refund", {}))
    last = asked_with(asked_call("0"), sent_result("x"), asked_call("0"), **ENDS)
    spans = [asks(("0", "lookup", ARGUMENTS)), one, last]
    reading = read_trace(spans_of(*(otlp_span(at, each) for at, each in enumerate(spans, 1))))
    assert [use.response for use in reading.tool_uses] == [None, None]


@pytest.mark.parametrize(
    "kind", ["server_tool_call", "server_tool_use", "mcp_tool_use", "custom_tool_call"]
)
def test_a_call_that_the_provider_ran_is_a_call(spans_of, kind):
    given = "server_tool_call" if kind == "server_tool_call" else "input"
    call = {"type": kind, "id": "c1", "name": "lookup", given: ARGUMENTS}
    told = {"type": "server_tool_call_response", "id": "c1", "server_tool_call_response": RESULT}
    said = {"role": "assistant", "parts": [call, {"type": "text", "content": "Sent."}]}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([said])}
    later = {**ANSWERS, "gen_ai.input.messages": json.dumps([{**said, "parts": [call, told]}])}
    reading = read_trace(
        spans_of(otlp_span(1, chat, times=(0, 1)), otlp_span(2, later, times=(2, 3)))
    )
    assert uses_of(reading) == [CALL]
    assert reading.missing is None


ANSWERS = {"gen_ai.operation.name": "chat", "ai.response.text": "Sent."}
ASKED_AGAIN = ("gen_ai.user.message", {"content": "Thanks."})


def called(call_id, name):
    call = {"type": "tool_call", "id": call_id, "name": name, "arguments": {}}
    result = {"type": "tool_call_response", "id": call_id, "response": "ok"}
    return {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [result]}


USER = {"role": "user", "parts": [{"type": "text", "content": "Refund A1."}]}
LOOKUP, NAMELESS = ("c1", "lookup", {}), ("", "lookup", {})
TOLD = {
    "a call of another model": (LOOKUP, [USER, *called("c9", "refund")], "refund"),
    "one more call of the same name": (
        LOOKUP,
        [USER, *called("c1", "lookup"), *called("c9", "lookup")],
        "lookup",
    ),
    "a result in a message of the user, as with Anthropic": (
        LOOKUP,
        [USER, called("c9", "refund")[0], called("c9", "refund")[1] | {"role": "user"}],
        "refund",
    ),
    "a call that the spans report": (LOOKUP, [USER, *called("c1", "lookup")], None),
    "a call with an id of the framework": (LOOKUP, [USER, *called("x1", "lookup")], None),
    "a call without an id": (NAMELESS, [USER, *called("", "lookup")], None),
    "a call before the user's message": (LOOKUP, [*called("c9", "refund"), USER], None),
}


@pytest.mark.parametrize(("asked", "messages", "tool"), TOLD.values(), ids=TOLD)
def test_a_call_that_only_a_request_contains_is_missing(spans_of, asked, messages, tool):
    later = ANSWERS | {"gen_ai.input.messages": json.dumps(messages)}
    spans = spans_of(otlp_span(1, asks(asked), times=(0, 1)), otlp_span(2, later, times=(2, 3)))
    missing = read_trace(spans).missing
    assert missing is None if tool is None else f'call of "{tool}" that no span' in missing


@pytest.mark.parametrize(("before", "is_missing"), [([], True), ([ASKED_AGAIN], False)])
def test_a_call_that_only_events_of_a_request_contain_is_missing(spans_of, before, is_missing):
    call = {"id": "c9", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
    events = [
        ("gen_ai.user.message", {"content": "Refund A1."}),
        ("gen_ai.assistant.message", {"content": "", "tool_calls": json.dumps([call])}),
        ("gen_ai.tool.message", {"id": "c9", "content": "ok"}),
        *before,
        ("gen_ai.choice", {"message": json.dumps({"role": "assistant", "content": "Sent."})}),
    ]
    (span,) = spans_of(otlp_span(1, {"gen_ai.operation.name": "chat"}, events=events))
    assert (read_trace([span]).missing is not None) == is_missing


@pytest.mark.parametrize(("between", "calls"), [({}, 1), ({"traceloop.span.kind": "agent"}, 2)])
def test_a_model_below_another_agent_is_called_once_more(spans_of, between, calls):
    spans = spans_of(
        otlp_span(1, ANSWERS, times=(0, 1000)),
        otlp_span(2, between, parent=1),
        otlp_span(3, ANSWERS, parent=2),
    )
    assert len(read_trace(spans).model_calls) == calls


def test_a_span_without_messages_is_of_the_same_model_call_as_one_with_them(spans_of):
    tokens = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
    spans = [
        *spans_of(otlp_span(1, asks(("c1", "lookup", ARGUMENTS)), times=(0, 9)), scope="framework"),
        *spans_of(otlp_span(2, tokens, times=(1, 8)), scope="sdk"),
    ]
    reading = read_trace(spans)
    assert [call.usage.input_tokens for call in reading.model_calls] == [5]
    assert uses_of(reading) == [("lookup", ARGUMENTS, None)]


@pytest.mark.parametrize(
    ("second", "uses"),
    [
        (("c1", "lookup", ARGUMENTS), [("lookup", ARGUMENTS, None)]),
        # Some instrumentations leave arguments out.
        (("c1", "lookup", None), [("lookup", ARGUMENTS, None)]),
        (("c1", "pay", ARGUMENTS), [("lookup", ARGUMENTS, None), ("pay", ARGUMENTS, None)]),
        (
            ("c1", "lookup", {"order_id": "B2"}),
            [("lookup", ARGUMENTS, None), ("lookup", {"order_id": "B2"}, None)],
        ),
    ],
)
def test_a_call_that_two_answers_of_models_repeat_is_one_if_they_are_equal(spans_of, second, uses):
    """Some models number their calls anew in each answer."""
    chats = [asks(call) for call in (("c1", "lookup", ARGUMENTS), second)]
    reading = read_trace(spans_of(*(otlp_span(at, each) for at, each in enumerate(chats, 1))))
    assert uses_of(reading) == uses


def test_a_call_whose_arguments_one_answer_left_out_is_one(spans_of):
    chats = [asks(("c1", "lookup", arguments)) for arguments in (None, ARGUMENTS)]
    reading = read_trace(spans_of(*(otlp_span(at, each) for at, each in enumerate(chats, 1))))
    assert [use.call.name for use in reading.tool_uses] == ["lookup"]
    assert 'the arguments of "lookup"' in (reading.missing or "")


@pytest.mark.parametrize("call_id", ["c1", ""])
@pytest.mark.parametrize("keeps", [True, False])
def test_calls_of_one_id_get_each_its_own_result(spans_of, keeps, call_id):
    """Some agents tell a model only the newest results again. Some leave every id empty."""

    def told(*results):
        parts = [{"type": "tool_call_response", "id": call_id, "result": each} for each in results]
        said = [{"role": "tool", "parts": parts}]
        return {"gen_ai.input.messages": json.dumps(said)}

    calls = [(call_id, "lookup", {"order_id": order}) for order in ("A1", "B2", "C3", "D4")]
    chats = [
        asks(*calls[:2]),
        asks(calls[2]) | told("sent", "lost"),
        asks(calls[3]) | told(*("sent", "lost")[: 2 * keeps], "back"),
    ]
    reading = read_trace(spans_of(*(otlp_span(at, each) for at, each in enumerate(chats, 1))))
    results = [use.response for use in reading.tool_uses]
    assert results == ["sent", "lost", "back", None]


def test_two_spans_may_write_the_arguments_of_a_call_in_other_ways(spans_of):
    chats = [asks(("c1", "lookup", written)) for written in (ARGUMENTS, "{'order_id': 'A1'}")]
    spans = [
        *spans_of(otlp_span(1, chats[1], times=(0, 1000)), scope="framework"),
        *spans_of(otlp_span(2, chats[0], parent=1), scope="sdk"),
    ]
    assert uses_of(read_trace(spans)) == [("lookup", ARGUMENTS, None)]


def test_a_span_of_a_tool_is_the_call_with_its_arguments(spans_of):
    calls = [("c1", "lookup", {"order_id": "A1"}), ("c2", "lookup", {"order_id": "B2"})]
    tools = [
        TOOLS["genai as values"]
        | {"gen_ai.tool.call.arguments": {"order_id": order}, "gen_ai.tool.call.result": order}
        for order in ("B2", "A1")
    ]
    spans = [otlp_span(at, each) for at, each in enumerate([asks(*calls), *tools], 1)]
    reading = read_trace(spans_of(*spans))
    assert uses_of(reading) == [
        ("lookup", {"order_id": "A1"}, "A1"),
        ("lookup", {"order_id": "B2"}, "B2"),
    ]


def test_calls_are_missing_if_one_of_two_spans_says_that_the_model_made_some(spans_of):
    ended = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["tool_calls"]}
    spans = [
        *spans_of(otlp_span(1, ANSWERS, times=(0, 1000)), scope="framework"),
        *spans_of(otlp_span(2, ended, parent=1), scope="sdk"),
    ]
    assert "the model's answer" in (read_trace(spans).missing or "")


def test_whatever_stands_in_attributes_is_read_without_harm(spans_of, monkeypatch):
    parts = [{"type": ["x"], "role": {}, "id": [1], "name": {}, "function": 3, "arguments": 1}]
    odd = [
        json.dumps(parts),
        None,
        True,
        -1,
        1.5,
        "",
        "{",
        "\ud800",
        "[[[",
        [],
        {},
        [1],
        {"a": [{"b": {}}]},
        "{}",
    ]
    names = {name for group in (*TOOLS.values(), *(c for pair in CHATS.values() for c in pair))
             for name in group}  # fmt: skip
    kinds = [TOOLS["genai"], {"gen_ai.operation.name": "chat"}, {"ai.operationId": "ai.toolCall"}]
    spans = [
        otlp_span(number, {**dict.fromkeys(names, value), **kind})
        for number, (value, kind) in enumerate(
            ((value, kind) for value in odd for kind in kinds), 1
        )
    ]
    reading = read_trace(spans_of(*spans))
    assert len(reading.tool_uses) >= 2 * len(odd)
    circle = spans_of(otlp_span(1, kinds[1], parent=2), otlp_span(2, kinds[1], parent=1))
    read_trace(circle)
    monkeypatch.setattr("kindlm.telemetry.trace_reading.MAX_CALLS", 10)
    many = [otlp_span(number, TOOLS["genai"]) for number in range(1, 13)]
    assert "more than" in (read_trace(spans_of(*many)).missing or "")


def test_depth_and_ids_are_checked():
    deep = '{"resourceSpans":' + "[" * 100_000
    for body in (
        deep.encode(),
        b'{"resourceSpans": 5}',
        b"[]",
        b"\xff",
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "x"}]}]}]}).encode(),
        otlp_request(otlp_span(1, times=(0, 10**400))),
    ):
        with pytest.raises(ValueError, match=r"."):
            read_json(body)


@pytest.mark.parametrize("kind", [{}, {"gen_ai.operation.name": "call"}])
@pytest.mark.parametrize("attributes", [TOOLS["genai"], CHATS["openinference"][0]])
def test_a_call_in_a_span_of_no_known_kind_is_missing_unless_another_has_it(
    spans_of, attributes, kind
):
    kinds = ("gen_ai.operation.name", "openinference.span.kind")
    unknown = {key: value for key, value in attributes.items() if key not in kinds} | kind
    end = {"gen_ai.operation.name": "chat"} | ENDS
    reading = read_trace(spans_of(otlp_span(1, unknown), otlp_span(2, end)))
    assert 'The span "span 1" has a call to "lookup"' in reading.missing
    known = otlp_span(3, TOOLS["genai"])
    assert read_trace(spans_of(otlp_span(1, unknown), otlp_span(2, end), known)).missing is None


@pytest.mark.parametrize(
    ("name", "kind", "other"),
    [
        ("langsmith.span.kind", "tool", "chain"),
        ("lmnr.span.type", "TOOL", "DEFAULT"),
        ("mlflow.spanType", '"TOOL"', '"AGENT"'),
    ],
)
def test_a_tool_in_the_form_of_an_observability_product_is_missing_unless_called(
    spans_of, name, kind, other
):
    end = otlp_span(2, {"gen_ai.operation.name": "chat"} | ENDS)
    reading = read_trace(spans_of(otlp_span(1, {name: kind}), end))
    assert 'The span "span 1" has a call to "span 1"' in reading.missing
    assert read_trace(spans_of(otlp_span(1, {name: other}), end)).missing is None
    called = {**otlp_span(1, {name: kind}), "name": "lookup"}
    known = otlp_span(3, TOOLS["genai"])
    assert read_trace(spans_of(called, end, known)).missing is None


def observed(kind, given, output, **more):
    """Return the attributes of an observation in Langfuse's SDK."""
    own = {"type": kind, "input": json.dumps(given), "output": output, **more}
    return {f"langfuse.observation.{key}": value for key, value in own.items()}


LANGFUSE_CALL = {
    "role": "assistant",
    "tool_calls": [FUNCTION | {"id": "call_5f71"}],
    "content": None,
}
LANGFUSE_MORE = {
    "model.name": "gpt-4o-mini",
    "usage_details": json.dumps(
        {"completion_tokens": 7, "prompt_tokens": 127, "prompt_tokens_details": {"cached": 9}}
    ),
}
LANGFUSE_ASKS = observed("generation", {"messages": []}, json.dumps(LANGFUSE_CALL), **LANGFUSE_MORE)
LANGFUSE_TOOL = observed("tool", {"args": [], "kwargs": ARGUMENTS}, SENT)
LANGFUSE_ENDS = observed("generation", {}, json.dumps({"role": "assistant", "content": "Done."}))


def lookup_span(number, attributes, **more):
    return otlp_span(number, attributes, **more) | {"name": "lookup"}


def test_observations_of_langfuse_are_model_and_tool_calls(spans_of):
    reading = read_trace(
        spans_of(
            otlp_span(1, LANGFUSE_ASKS), lookup_span(2, LANGFUSE_TOOL), otlp_span(3, LANGFUSE_ENDS)
        )
    )
    assert (uses_of(reading), reading.missing) == ([CALL], None)
    first, _ = reading.model_calls
    assert (first.model, first.usage) == ("gpt-4o-mini", Usage(127, 7))


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input": 10, "output": 3, "total": 13}, (10, 3)),
        ({"input": 10, "input_cache_read": 90, "output": 3, "output_reasoning": 2}, (100, 5)),
        ({"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 3}, (100, 3)),
        ({"total": 13}, (None, None)),
        ([1], (None, None)),
    ],
)
def test_tokens_of_langfuse_are_the_sum_of_their_parts(spans_of, usage, tokens):
    ends = LANGFUSE_ENDS | {"langfuse.observation.usage_details": json.dumps(usage)}
    (call,) = read_trace(spans_of(otlp_span(1, ends))).model_calls
    assert (call.usage.input_tokens, call.usage.output_tokens) == tokens


@pytest.mark.parametrize(
    "output", ["I refund it.", '{"text": "I refund it."}', '{"content": "It."}', "3", None]
)
def test_a_part_of_an_answer_in_langfuse_does_not_rule_out_calls(spans_of, output):
    """Functions of users give any part of an answer, such as its first text."""
    part = observed("generation", {"args": [], "kwargs": {}}, output)
    reading = read_trace(spans_of(otlp_span(1, part)))
    assert "does not contain the model's answer" in reading.missing


@pytest.mark.parametrize(("ended", "is_whole"), [('"stop"', True), ('"tool_calls"', False)])
def test_a_streamed_text_in_langfuse_is_whole_unless_it_ended_for_tools(spans_of, ended, is_whole):
    streamed = observed("generation", {}, "Done.", **{"metadata.finish_reason": ended})
    reading = read_trace(spans_of(otlp_span(1, streamed)))
    assert (reading.missing is None) is is_whole


def test_nested_observations_of_langfuse_are_one_call_each(spans_of):
    outer = observed("generation", {"args": [[]], "kwargs": {}}, "Let me look.")
    spans = spans_of(
        otlp_span(1, observed("agent", {}, "Done."), times=(0, 900)),
        otlp_span(2, outer, parent=1, times=(100, 200)),
        otlp_span(3, LANGFUSE_ASKS, parent=2, times=(110, 190)),
        lookup_span(4, LANGFUSE_TOOL, parent=1, times=(300, 400)),
        lookup_span(5, LANGFUSE_TOOL, parent=4, times=(310, 390)),
        otlp_span(6, LANGFUSE_ENDS, parent=1, times=(500, 600)),
    )
    reading = read_trace(spans)
    assert (uses_of(reading), reading.missing) == ([CALL], None)
    assert len(reading.model_calls) == 2


@pytest.mark.parametrize("asked", [True, False])
def test_arguments_without_names_are_those_of_the_model_if_it_asked(spans_of, asked):
    tool = observed("tool", {"args": ["A1"], "kwargs": {"fast": True}}, SENT)
    calls = [("c2", "lookup", {"order_id": "B2"}), ("c1", "lookup", ARGUMENTS | {"fast": True})]
    spans = [otlp_span(1, asks(*calls) if asked else LANGFUSE_ENDS), lookup_span(2, tool)]
    reading = read_trace(spans_of(*spans))
    use = reading.tool_uses[-1]
    assert (use.response, reading.missing) == (RESULT, None)
    assert (use.call.arguments, use.call.malformed) == (
        (ARGUMENTS | {"fast": True}, None) if asked else ({}, '["A1",true]')
    )


def test_a_tool_of_langfuse_without_input_lacks_its_arguments(spans_of):
    reading = read_trace(spans_of(lookup_span(1, {"langfuse.observation.type": "tool"})))
    assert 'the arguments of "lookup"' in reading.missing


@pytest.mark.parametrize("name", [["lookup"], {"value": "lookup"}])
def test_a_name_that_is_no_text_is_unknown(spans_of, name):
    call = {"type": "tool_call", "id": "c1", "name": name, "arguments": ARGUMENTS}
    said = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}])}
    reading = read_trace(spans_of(otlp_span(1, {"gen_ai.operation.name": "chat", **said})))
    assert [use.call.name for use in reading.tool_uses] == ["unknown"]
