"""Recordings in what Langfuse, LangSmith and Phoenix export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kindlm.errors import Err, Ok
from kindlm.generate.recordings import Recording, read_recordings

FILE = Path("export.json")
SYSTEM, QUESTION, ANSWER = "You serve a shop.", "Where is order B-42?", "It has shipped."
ARGUMENTS, RESULT = {"order_id": "B-42"}, {"status": "shipped"}
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "lookup_order", "parameters": SCHEMA}}
ASKED = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "lookup_order", "arguments": json.dumps(ARGUMENTS)},
        }
    ],
}
CALL = {"name": "lookup_order", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": json.dumps(RESULT)}
SAID = {"role": "assistant", "content": ANSWER}


def recorded(*values: Any) -> list[Recording]:
    """Return the recordings of a file: one value, or several in lines."""
    data = "\n".join(map(json.dumps, values)).encode()
    read = read_recordings(data, FILE)
    assert isinstance(read, Ok), read
    return read.value


def check(recording: Recording) -> None:
    """Expect the conversation of all these examples."""
    assert recording.missing is None
    transcript = recording.transcript
    assert (transcript.system, [turn.user for turn in transcript.turns]) == (SYSTEM, [QUESTION])
    calls = [(it.call.name, it.call.arguments, it.response) for it in transcript.tool_uses]
    assert calls == [("lookup_order", ARGUMENTS, RESULT)]
    assert transcript.text == ANSWER
    assert recording.model == "gpt-4o"
    assert [each.name for each in recording.tools] == ["lookup_order"]


# Langfuse


def observation(kind: str, number: int, given: Any, said: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "traceId": "t1",
        "type": kind,
        "name": "lookup_order" if kind == "TOOL" else "shop-agent",
        "startTime": f"2026-05-01T10:00:0{number}.000Z",
        "endTime": f"2026-05-01T10:00:0{number}.900Z",
        "parentObservationId": None if number == 0 else "o0",
        "input": given,
        "output": said,
        "level": "DEFAULT",
        "statusMessage": None,
        **more,
    }


LANGFUSE = [
    observation("AGENT", 0, {"question": QUESTION}, ANSWER),
    observation("GENERATION", 1, {"messages": ASKED, "tools": [TOOL]}, CALLING, model="gpt-4o"),
    observation("TOOL", 2, ARGUMENTS, RESULT),
    observation("GENERATION", 3, [*ASKED, CALLING, ANSWERED], SAID, model="gpt-4o"),
]


def test_langfuse_traces_are_read_from_the_api_and_from_downloads() -> None:
    trace = {"id": "t1", "name": "support", "timestamp": "2026-05-01T10:00:00Z", "input": QUESTION}
    for document in (
        {**trace, "observations": LANGFUSE, "scores": []},
        {"trace": trace, "observations": LANGFUSE},
        {"data": LANGFUSE, "meta": {"cursor": None}},
        LANGFUSE,
    ):
        (recording,) = recorded(document)
        check(recording)


def test_langfuse_keeps_arguments_and_results_of_any_name() -> None:
    given, said = {"input": "shoes"}, {"output": "found"}
    (recording,) = recorded([LANGFUSE[1], observation("TOOL", 2, given, said), LANGFUSE[3]])
    (use,) = recording.transcript.tool_uses
    assert (use.call.arguments, use.response) == (given, said)


def test_langfuse_rows_of_a_bucket_are_read_with_texts_of_json() -> None:
    rows = [
        {
            "id": each["id"],
            "trace_id": "t1",
            "type": each["type"],
            "name": each["name"],
            "start_time": each["startTime"].replace("T", " ").removesuffix("Z"),
            "end_time": each["endTime"].replace("T", " ").removesuffix("Z"),
            "parent_observation_id": each["parentObservationId"],
            "input": json.dumps(each["input"]),
            "output": json.dumps(each["output"]),
            "provided_model_name": each.get("model"),
            "level": "ERROR" if each["type"] == "AGENT" else "DEFAULT",
            "status_message": "timed out",
        }
        for each in LANGFUSE
    ]
    (recording,) = recorded(*rows)
    check(recording)
    assert recording.failed


def test_a_langfuse_trace_failed_if_an_observation_directly_below_it_did() -> None:
    trace = {"id": "t1", "name": "support", "timestamp": "2026-05-01T10:00:00Z"}
    for number, failed in ((0, True), (2, False)):
        rows = [
            {**each, "level": "ERROR"} if at == number else each for at, each in enumerate(LANGFUSE)
        ]
        for document in (
            {**trace, "observations": rows},
            {"trace": trace, "observations": rows},
            rows,
        ):
            (recording,) = recorded(document)
            check(recording)
            assert recording.failed is failed


def test_langfuse_observations_without_inputs_and_outputs_say_what_to_export() -> None:
    rows = [{key: each[key] for key in each.keys() - {"input", "output"}} for each in LANGFUSE]
    (recording,) = recorded({"data": rows})
    assert "Export it with its inputs and outputs" in str(recording.missing)


def test_langfuse_observations_of_langchain_are_read() -> None:
    """Its callback writes tools as messages, and calls as LangChain has them."""
    tools = {"role": "tool", "content": TOOL}
    calling = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    observations = [
        observation("CHAIN", 0, {"messages": [["user", QUESTION]]}, {"messages": []}),
        observation("GENERATION", 1, [*ASKED, tools], calling, model="gpt-4o"),
        observation("TOOL", 2, ARGUMENTS, {"type": "tool", **ANSWERED}),
        observation("GENERATION", 3, [*ASKED, calling, ANSWERED, tools], SAID, model="gpt-4o"),
    ]
    (recording,) = recorded(observations)
    check(recording)


def test_a_langfuse_trace_of_ids_alone_says_what_is_missing() -> None:
    told = {"id": "t1", "name": "support", "input": QUESTION, "output": ANSWER}
    whole = {**told, "id": "t1", "observations": LANGFUSE}
    listed, read = recorded({"data": [{**told, "id": "t0", "observations": ["o1"]}, whole]})
    assert (listed.name, listed.missing is None) == ("support", False)
    check(read)


# LangSmith


def run(kind: str, number: int, given: Any, said: Any, **more: Any) -> dict[str, Any]:
    order = "20260501T100000000000Zr0" + (f".20260501T10000{number}000000Zr{number}" * bool(number))
    return {
        "id": f"r{number}",
        "trace_id": "r0",
        "dotted_order": order,
        "run_type": kind,
        "name": {"tool": "lookup_order", "llm": "ChatOpenAI", "chain": "LangGraph"}[kind],
        "start_time": f"2026-05-01T10:00:0{number}+00:00",
        "end_time": f"2026-05-01T10:00:0{number}.9+00:00",
        "inputs": given,
        "outputs": said,
        "error": None,
        **more,
    }


def serialised(name: str, **kwargs: Any) -> dict[str, Any]:
    path = ["langchain_core", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


EXTRA = {
    "invocation_params": {"tools": [TOOL]},
    "metadata": {"ls_provider": "openai", "ls_model_name": "gpt-4o"},
}
GIVEN = [serialised("SystemMessage", content=SYSTEM), serialised("HumanMessage", content=QUESTION)]
ASKS = serialised("AIMessage", content="", tool_calls=[CALL])
GIVES = serialised("ToolMessage", content=json.dumps(RESULT), tool_call_id="c1")


def generated(message: Any) -> dict[str, Any]:
    return {"generations": [[{"text": "", "message": message}]], "llm_output": None}


RUNS = [
    run("chain", 0, {"messages": [["user", QUESTION]]}, {"output": ANSWER}),
    run("llm", 1, {"messages": [GIVEN]}, generated(ASKS), extra=EXTRA),
    run("tool", 2, {"input": str(ARGUMENTS)}, {"output": GIVES}),
    run(
        "llm",
        3,
        {"messages": [[*GIVEN, ASKS, GIVES]]},
        generated(serialised("AIMessage", content=ANSWER)),
        extra=EXTRA,
    ),
]


def test_langsmith_runs_of_langchain_are_read() -> None:
    root, *below = RUNS
    for document in ([{"runs": RUNS}], [{**root, "child_runs": below}], [RUNS[::-1]], RUNS):
        (recording,) = recorded(*document)
        check(recording)
        assert recording.provider == "openai"


@pytest.mark.parametrize("source", ["langsmith", "langfuse"])
def test_a_tool_that_gave_back_a_message_of_a_model_has_its_text_as_result(source: str) -> None:
    said = serialised("AIMessage", content=json.dumps(RESULT))
    if source == "langsmith":
        values = [*RUNS[:2], {**RUNS[2], "outputs": {"output": said}}, RUNS[3]]
    else:
        values = [*LANGFUSE[:2], {**LANGFUSE[2], "output": said}, LANGFUSE[3]]
    (recording,) = recorded(*values)
    check(recording)


def test_langsmith_runs_of_other_models_are_read() -> None:
    runs = [
        run("chain", 0, {"question": QUESTION}, None, error="TimeoutError('…')"),
        run("llm", 1, {"messages": ASKED}, {"choices": [{"message": CALLING}]}, extra=EXTRA),
        run("tool", 2, ARGUMENTS, {"output": RESULT}),
        run(
            "llm",
            3,
            {"messages": [*ASKED, CALLING, ANSWERED]},
            {"choices": [{"message": SAID}]},
            extra=EXTRA,
        ),
    ]
    (recording,) = recorded(*runs)
    check(recording)
    assert recording.failed


@pytest.fixture
def client() -> Any:
    """A client that keeps the runs that it is to send."""
    from langsmith import Client

    class Collected(Client):
        def __init__(self) -> None:
            super().__init__(api_url="http://127.0.0.1:1", api_key="none", auto_batch_tracing=False)
            self.sent: dict[str, dict[str, Any]] = {}

        def create_run(self, name: str, inputs: Any, run_type: Any, **more: Any) -> None:
            run = {"name": name, "inputs": inputs, "run_type": run_type, **more}
            self.sent[str(more["id"])] = run

        def update_run(self, run_id: Any, **more: Any) -> None:
            told = {key: value for key, value in more.items() if value is not None}
            self.sent[str(run_id)].update(told)

    return Collected()


def test_langsmith_runs_are_read_as_langchain_sends_them(client: Any) -> None:
    # They take a second to load, which is for the process that runs this test alone.
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith._internal._serde import dumps_json

    @tool
    def lookup_order(order_id: str) -> dict[str, str]:
        """Look up an order."""
        assert order_id == ARGUMENTS["order_id"]
        return RESULT

    asking = AIMessage("", tool_calls=[CALL])
    model = GenericFakeChatModel(messages=iter([asking, AIMessage(ANSWER)]))
    bound = model.bind(tools=[TOOL], model="gpt-4o")

    def agent(question: str) -> Any:
        asked = [("system", SYSTEM), ("user", question)]
        calling = bound.invoke(asked)
        return bound.invoke([*asked, calling, lookup_order.invoke(calling.tool_calls[0])])

    config: Any = {"callbacks": [LangChainTracer(client=client)]}
    RunnableLambda(agent).invoke(QUESTION, config=config)
    (recording,) = recorded([json.loads(dumps_json(run)) for run in client.sent.values()])
    check(recording)


# Phoenix


def phoenix(kind: str, number: int, attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"U3Bhbjo{number}",
        "name": "lookup_order" if kind == "TOOL" else "ChatCompletion",
        "context": {"trace_id": "a1" * 16, "span_id": f"b{number}" * 8},
        "span_kind": kind,
        "parent_id": None,
        "start_time": f"2026-05-01T10:00:0{number}+00:00",
        "end_time": f"2026-05-01T10:00:0{number}.9+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": attributes,
        "events": [],
    }


def spoken(which: str, *messages: dict[str, Any]) -> dict[str, Any]:
    """Return messages as attributes of OpenInference in a data frame: lists, with dots in keys."""
    return {
        f"llm.{which}_messages": [
            {
                "message.role": each["role"],
                "message.content": each["content"],
                "message.tool_call_id": each.get("tool_call_id"),
                "message.tool_calls": [
                    {
                        "tool_call.id": call["id"],
                        "tool_call.function.name": call["function"]["name"],
                        "tool_call.function.arguments": call["function"]["arguments"],
                    }
                    for call in each.get("tool_calls", ())
                ],
            }
            for each in messages
        ]
    }


MODEL = {"llm.model_name": "gpt-4o", "llm.tools": [{"tool.json_schema": json.dumps(TOOL)}]}
SPANS = [
    phoenix("LLM", 1, MODEL | spoken("input", *ASKED) | spoken("output", CALLING)),
    phoenix("TOOL", 2, {"input.value": json.dumps(ARGUMENTS), "output.value": json.dumps(RESULT)}),
    phoenix("LLM", 3, MODEL | spoken("input", *ASKED, CALLING, ANSWERED) | spoken("output", SAID)),
]


def flat(value: Any, path: str) -> dict[str, Any]:
    """Return a value as the REST API has attributes: with the numbers of lists in keys."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = dict(enumerate(value)).items()  # type: ignore[assignment]
    else:
        return {path: value}
    return {key: each for name, part in parts for key, each in flat(part, f"{path}.{name}").items()}


def test_phoenix_spans_of_the_api_are_read() -> None:
    spans = [
        {
            **span,
            "attributes": {key[2:]: each for key, each in flat(span["attributes"], "_").items()},
        }
        for span in SPANS
    ]
    for document in ([{"data": spans, "next_cursor": None}], [SPANS], SPANS):
        (recording,) = recorded(*document)
        check(recording)


@pytest.mark.parametrize("orient", ["columns", "records"])
def test_phoenix_data_frames_are_read(orient: str) -> None:
    rows = [
        {
            **{key: span[key] for key in ("name", "span_kind", "parent_id", "status_code")},
            "start_time": 1_777_629_600_000 + 1000 * number,
            "end_time": 1_777_629_600_900 + 1000 * number,
            "context.trace_id": span["context"]["trace_id"],
            **{f"attributes.{key}": each for key, each in span["attributes"].items()},
        }
        for number, span in enumerate(SPANS)
    ]
    keys = {key for row in rows for key in row}
    columns = {
        key: {
            span["context"]["span_id"]: row.get(key) for span, row in zip(SPANS, rows, strict=True)
        }
        for key in keys
    }
    (recording,) = recorded(columns if orient == "columns" else rows)
    check(recording)


def test_a_file_of_none_of_them_is_refused() -> None:
    assert isinstance(read_recordings(b'[{"type": "GENERATION"}, {"run_type": 1}]', FILE), Err)
