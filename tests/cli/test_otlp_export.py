"""`kindlm export --format otlp`: a run as a trace, in a file or sent to a receiver."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from recorded_history import History, Make

from examples import examples
from kindlm.cli import otlp_sending
from kindlm.cli.otlp_spans import trace_of_run
from kindlm.errors import Ok
from kindlm.events.execution_events import (
    AgentReplied,
    AgentSent,
    AgentToolUse,
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.generate.recordings import read_recordings
from kindlm.history.recorded_attempts import RecordedAttempt, transcript_of
from kindlm.telemetry.spans import (
    CLIENT,
    Span,
    as_json,
    as_protobuf,
    batches,
    out_span,
    read_json,
    read_protobuf,
)
from kindlm.telemetry.trace_reading import read_trace
from kindlm.transcript import Message, Role, ToolCall, ToolUse
from kindlm_store import open_reader

RUN = "k3f9x2ab"
OTLP = ("export", RUN, "--format", "otlp")


@pytest.fixture
def recorded(history: History, make: Any) -> History:
    """A run with an execution that was retried, a tool call, a judge, and a call that failed."""
    run = history.run(RUN)
    run.suite(tests=[make.planned(), make.planned("refunds")])
    run.execution(number=1, retried=True)
    run.execution(number=1, attempt=2)
    run.execution(
        "refunds",
        number=2,
        system="PLANTED-system",
        user="PLANTED-user",
        output="PLANTED-output",
        tools=(("look_up", {"order": "PLANTED-argument"}, {"state": "PLANTED-result"}),),
        failures=(make.provider_failed(message="PLANTED-failure", cost_usd=0.5, input_tokens=7),),
        judge="PLANTED-judge",
        warnings=("PLANTED-warning",),
        assertions=(
            make.failed(
                "judge",
                label="PLANTED-label",
                message="PLANTED-message",
                expected="PLANTED-expected",
                actual="PLANTED-actual",
                reasoning="PLANTED-reasoning",
                score=0.25,
                threshold=0.7,
            ),
        ),
    )
    run.finish()
    return history


def spans_in(file: Path) -> list[Span]:
    return [span for line in file.read_bytes().splitlines() for span in read_json(line)]


def exported(kindlm: Any, file: Path, *options: str | Path) -> list[Span]:
    outcome = kindlm(*OTLP, "-o", file, *options)
    assert outcome.code == 0, outcome.err
    return spans_in(file)


def test_a_run_is_a_tree_with_the_names_of_the_conventions(
    kindlm: Any, recorded: History, here: Path
) -> None:
    spans = exported(kindlm, here / "run.jsonl", "--db", recorded.path)
    by_id = {span.id: span for span in spans}
    names = [
        (span.name, by_id[span.parent].name if span.parent else "", span.is_error) for span in spans
    ]
    greets, refunds = "invoke_agent gpt (greets)", "invoke_agent gpt (refunds)"
    assert names == [
        ("chat gpt", greets, False),
        (greets, f"kindlm run {RUN}", False),
        ("chat gpt", greets, False),
        (greets, f"kindlm run {RUN}", False),
        ("chat gpt", refunds, True),
        ("chat gpt", refunds, False),
        ("execute_tool look_up", refunds, False),
        ("chat gpt", refunds, False),
        ("chat judge", refunds, False),
        (refunds, f"kindlm run {RUN}", True),
        (f"kindlm run {RUN}", "", True),
    ]
    assert len({span.trace for span in spans}) == 1
    attributes = [span.attributes for span in spans]
    assert [each.get("kindlm.attempt") for each in attributes if "kindlm.test" in each] == [1, 2, 1]
    assert attributes[1]["kindlm.retried"] is True
    failed = next(span for span in spans if span.attributes.get("error.type"))
    assert failed.attributes["error.type"] == "PROVIDER_RATE_LIMIT"
    assert failed.attributes["http.response.status_code"] == 429
    assert failed.attributes["gen_ai.usage.input_tokens"] == 7
    assert failed.attributes["kindlm.cost_usd"] == 0.5
    tool = next(each for each in attributes if "gen_ai.tool.name" in each)
    assert tool == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c0",
        "kindlm.tool.result_from": "responses[0]",
    }
    chat = attributes[0]
    assert chat["gen_ai.response.finish_reasons"] == ["stop"]
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (10, 5)
    execution = next(span for span in spans if span.name == refunds)
    assert execution.attributes["error.type"] == "CONTAINS_FAILED"
    found = [event for name, event in execution.events if name == "gen_ai.evaluation.result"]
    assert found == [
        {
            "gen_ai.evaluation.name": "judge",
            "gen_ai.evaluation.score.value": 0.25,
            "gen_ai.evaluation.score.label": "failed",
            "kindlm.failure_code": "CONTAINS_FAILED",
            "kindlm.threshold": 0.7,
        }
    ]


def test_no_text_is_in_a_trace_without_contents(kindlm: Any, recorded: History, here: Path) -> None:
    exported(kindlm, here / "bare.jsonl", "--db", recorded.path)
    assert "PLANTED" not in (here / "bare.jsonl").read_text("utf-8")
    exported(kindlm, here / "full.jsonl", "--contents", "--db", recorded.path)
    full = (here / "full.jsonl").read_text("utf-8")
    for each in ("system", "user", "output", "argument", "result", "failure", "judge", "label"):
        assert f"PLANTED-{each}" in full


def test_secrets_and_personal_data_are_taken_out_of_contents(
    kindlm: Any, history: History, make: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = history.run(RUN)
    run.suite(tests=[make.planned()])
    found = {"source": "output", "start": 8, "end": 22, "excerpt": "jo************"}
    run.execution(
        user="I am joe@example.org, hunter-key-123456",
        output="Write to joe@example.or",
        assertions=(make.failed("pii", evidence=[found | {"start": 9, "end": 23}]),),
    )
    run.finish()
    monkeypatch.setenv("SHOP_API_KEY", "hunter-key-123456")
    exported(kindlm, here / "run.jsonl", "--contents", "--db", history.path)
    written = (here / "run.jsonl").read_text("utf-8")
    assert "hunter-key" not in written
    assert "joe@example.or" not in written
    assert "I am jo" in written


def below(spans: list[Span], root: Span) -> list[Span]:
    ids = {root.id}
    for _ in spans:
        ids |= {span.id for span in spans if span.parent in ids}
    return [span for span in spans if span.id in ids]


def assert_same_calls(file: Path, database: Path) -> None:
    """Compare what the ingest reads of each attempt with its recorded transcript."""
    spans = spans_in(file)
    attempts = [span for span in spans if "kindlm.test" in span.attributes]
    with closing(open_reader(database)) as db:
        for attempt in attempts:
            about = attempt.attributes
            execution = f"{about['kindlm.run.id']}-{about['kindlm.execution']}"
            talk = RecordedAttempt(db, execution, about["kindlm.attempt"]).talk()
            read = read_trace(below(spans, attempt)).tool_uses
            assert [(use.call, use.response) for use in read] == [
                (use.call, use.response) for use in transcript_of(talk).tool_uses
            ]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["look_up", "refund"]), st.dictionaries(TEXT, VALUES), VALUES),
    max_size=4,
).map(tuple)


@examples(40)
@given(st.lists(CALLS, min_size=1, max_size=4))
def test_a_trace_reads_back_as_the_same_tool_calls(talks: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kindlm.db")
        with closing(History(path)) as history:
            run = history.run(RUN)
            run.suite(tests=[Make.planned()])
            for repeat, tools in enumerate(talks, start=1):
                run.execution(repeat=repeat, tools=tools, earlier=("Which one?",), tool_turn=2)
            run.leave()
        file = Path(folder, "run.jsonl")
        with closing(open_reader(path)) as db:
            spans = list(trace_of_run(db, RUN, str))
        file.write_bytes(as_json(spans, {}))
        assert_same_calls(file, path)


SUITE = """
kindlm: 1
project: shop
suite: { name: support }
providers:
  fake:
    type: scripted
    replies:
      - text: Let me look.
        toolCalls: [{ name: look_up, arguments: { order: A1 } }, { name: look_up, arguments: {} }]
      - text: Delivered.
models: [{ id: gpt, provider: fake, model: m }]
agents:
  - id: desk
    adapter: subprocess
    command: [{{python}}, -c, {{code}}]
prompts: { ask: { system: Be kind., user: Where is A1? } }
tests:
  - { name: asks, prompt: ask, models: [desk], expect: { toolCalls: [{ tool: look_up }] } }
  - name: looks up
    prompt: ask
    models: [gpt]
    tools:
      - name: look_up
        description: Looks an order up.
        parameters: { type: object }
        responses: [{ when: { order: A1 }, then: { state: delivered, at: [1.5, null] } }]
        defaultResponse: not found
    expect: { toolCalls: [{ tool: look_up }] }
"""
AGENT = """
import json
calls = [{"name": "look_up", "arguments": {"n": n}, "result": {"n": n}} for n in range(3)]
print(json.dumps({"text": "Done.", "tool_calls": calls}))
"""


def test_a_real_run_reads_back_as_the_same_tool_calls(kindlm: Any, here: Path) -> None:
    suite = SUITE.replace("{{python}}", json.dumps(sys.executable))
    (here / "kindlm.yaml").write_text(suite.replace("{{code}}", json.dumps(AGENT)), "utf-8")
    assert kindlm("test", "-q").code == 0
    outcome = kindlm("export", "--format", "otlp", "--contents", "-o", "run.jsonl")
    assert outcome.code == 0, outcome.err
    assert_same_calls(here / "run.jsonl", here / ".kindlm" / "kindlm.db")
    tools = [span for span in spans_in(here / "run.jsonl") if "gen_ai.tool.name" in span.attributes]
    assert len(tools) == 5
    chats = [span for span in spans_in(here / "run.jsonl") if span.name == "chat m"]
    asked = json.loads(chats[1].attributes["gen_ai.input.messages"])
    assert [message["role"] for message in asked] == ["user", "assistant", "tool", "tool"]
    for chat in chats:
        (answer,) = json.loads(chat.attributes["gen_ai.output.messages"])
        assert chat.attributes["gen_ai.response.finish_reasons"] == [answer["finish_reason"]]
    assert answer["finish_reason"] == "stop"
    assert json.loads(chats[0].attributes["gen_ai.output.messages"])[0]["finish_reason"] != "stop"
    assert asked[2]["parts"] == [
        {
            "type": "tool_call_response",
            "id": asked[1]["parts"][1]["id"],
            "response": {"state": "delivered", "at": [1.5, None]},
        }
    ]
    recordings = read_recordings((here / "run.jsonl").read_bytes(), Path("run.jsonl"))
    assert isinstance(recordings, Ok)
    read = {each.name: each for each in recordings.value}
    assert {name: len(each.transcript.tool_uses) for name, each in read.items()} == {
        "asks": 3,
        "looks up": 2,
    }
    assert [each.missing for each in read.values()] == [None, None]
    assert [tool.name for tool in read["looks up"].tools] == ["look_up"]


@dataclass
class Collector:
    """A receiver; it gives the n-th request the n-th answer, and the last one to all others."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def collector() -> Iterator[Collector]:
    it = Collector(answers=[(200, {"content-type": "application/x-protobuf"}, b"")])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            it.requests.append((self.path, headers, gzip.decompress(body)))
            status, more, answer = it.answers[min(len(it.requests), len(it.answers)) - 1]
            self.send_response(status)
            for name, value in {"content-length": str(len(answer)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)
            if "content-length" in more:
                self.rfile.read()  # until the client goes

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        it.url = f"http://127.0.0.1:{server.server_port}"
        yield it
        server.shutdown()
        thread.join()


def test_what_is_sent_is_what_is_written_each_time(
    kindlm: Any, recorded: History, here: Path, collector: Collector, monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20abc%3D,x-project=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-project=b")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "wandb.project=shop")
    written = exported(kindlm, here / "run.jsonl", "--contents", "--db", recorded.path)
    again = exported(kindlm, here / "again.jsonl", "--contents", "--db", recorded.path)
    assert (here / "run.jsonl").read_bytes() == (here / "again.jsonl").read_bytes()
    assert written == again
    for path in ("/api/otel", "/api/otel/v1/traces"):
        outcome = kindlm(*OTLP, "--contents", "--to", collector.url + path, "--db", recorded.path)
        assert outcome.code == 0, outcome.err
        assert f"11 spans sent to {collector.url}/api/otel/v1/traces." in outcome.err
    assert [path for path, _, _ in collector.requests] == ["/api/otel/v1/traces"] * 2
    _, headers, body = collector.requests[0]
    assert (headers["authorization"], headers["x-project"]) == ("Basic abc=", "b")
    assert headers["content-type"] == "application/x-protobuf"
    request = ExportTraceServiceRequest.FromString(body)
    resource = {each.key: each.value for each in request.resource_spans[0].resource.attributes}
    assert resource["service.name"].string_value == "kindlm"
    assert resource["wandb.project"].string_value == "shop"
    assert read_protobuf(body) == written


def test_json_is_sent_without_the_package_for_protobuf(
    kindlm: Any, recorded: History, here: Path, collector: Collector, monkeypatch: Any
) -> None:
    monkeypatch.setattr(otlp_sending, "reads_protobuf", lambda: False)
    kindlm(*OTLP, "--to", collector.url, "--db", recorded.path)
    _, headers, body = collector.requests[0]
    assert headers["content-type"] == "application/json"
    assert read_json(body) == exported(kindlm, here / "run.jsonl", "--db", recorded.path)


def test_a_busy_receiver_is_asked_again(
    kindlm: Any, recorded: History, collector: Collector
) -> None:
    collector.answers[:0] = [(503, {"retry-after": "0"}, b""), (429, {"retry-after": "0"}, b"")]
    assert kindlm(*OTLP, "--to", collector.url, "--db", recorded.path).code == 0
    assert len(collector.requests) == 3


def test_a_receiver_that_is_away_is_asked_again(
    kindlm: Any, recorded: History, collector: Collector, monkeypatch: Any
) -> None:
    monkeypatch.setattr(otlp_sending, "_FIRST_WAIT_S", 0.0)
    really_send, errors = httpx.AsyncClient.send, [httpx.ConnectError("away"), TimeoutError()]

    async def send(*given: Any, **more: Any) -> httpx.Response:
        if errors:
            raise errors.pop()
        return await really_send(*given, **more)

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    assert kindlm(*OTLP, "--to", collector.url, "--db", recorded.path).code == 0
    assert len(collector.requests) == 1


PARTIAL = ExportTraceServiceResponse()
PARTIAL.partial_success.rejected_spans = 2
PARTIAL.partial_success.error_message = "two are too old"
JSON = {"content-type": "application/json"}
REFUSALS = {
    "rejected": (
        (200, {"content-type": "application/x-protobuf"}, PARTIAL.SerializeToString()),
        "rejected 2 spans: two are too old",
    ),
    "rejected, in JSON": (
        (200, JSON, b'{"partialSuccess": {"rejectedSpans": "3"}}'),
        "rejected 3 spans: it gives no reason",
    ),
    "a wrong key": ((401, {}, b"bad key \x1b[31m sk-planted-1234\n"), "OTEL_EXPORTER_OTLP_HEADERS"),
    "another form": ((415, {}, b"protobuf only"), "answered 415: protobuf only"),
    "busy for good": ((503, {"retry-after": "0"}, b"x" * 100_000), "answered 503"),
    "a web site": ((200, {"content-type": "text/html"}, b"<html>"), "answered with a web page"),
    "a redirect": ((307, {"location": "http://127.0.0.1:9/sk-planted-1234"}, b""), "redirects"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_not_taken_is_an_error_without_our_headers(
    kindlm: Any, recorded: History, collector: Collector, monkeypatch: Any, name: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=sk-planted-1234")
    answer, told = REFUSALS[name]
    collector.answers = [answer]
    outcome = kindlm(*OTLP, "--to", collector.url, "--verbose", "--db", recorded.path)
    assert outcome.code == 1
    assert told in outcome.err
    assert "sk-planted" not in outcome.err
    assert "\x1b" not in outcome.err
    assert len(outcome.err) < 3000
    assert len(collector.requests) == (5 if "busy" in name else 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--contents",), "--contents needs --format otlp"),
        (("--to", "http://127.0.0.1:9"), "--to needs --format otlp"),
        (("--format", "otlp", "--to", "http://127.0.0.1:9", "-o", "f"), "Only one of --to and -o"),
        (("--format", "otlp", "--to", "localhost:4318"), "--to needs an address"),
        (("--format", "otlp", "--to", "http://joe:sk-planted@127.0.0.1:9"), "connection refused"),
    ],
)
def test_options_that_do_not_fit(
    kindlm: Any, recorded: History, monkeypatch: Any, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(otlp_sending, "_FIRST_WAIT_S", 0.0)
    outcome = kindlm("export", RUN, *options, "--db", recorded.path)
    assert outcome.code == 1
    assert told in outcome.err
    assert "sk-planted" not in outcome.err


def test_short_values_of_headers_and_passwords_are_not_shown(
    kindlm: Any, recorded: History, collector: Collector, monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-project=,x-key=k-77")
    collector.answers = [(400, {}, b"no k-77 for pw%1")]
    url = collector.url.replace("//", "//joe:pw%251@")
    outcome = kindlm(*OTLP, "--to", url, "--db", recorded.path)
    assert "answered 400: no [redacted] for [redacted]" in outcome.err


def test_a_header_that_cannot_be_sent_is_not_shown(
    kindlm: Any, recorded: History, monkeypatch: Any
) -> None:
    for value in ("sk-planted-1234", "x=sk-planted%0A1234", "x=sk-plänted", "a b=sk-planted"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
        outcome = kindlm(*OTLP, "--to", "http://127.0.0.1:9", "--db", recorded.path)
        assert "OTEL_EXPORTER_OTLP_HEADERS is not a list of headers" in outcome.err
        assert "sk-pl" not in outcome.err


def test_numbers_that_otlp_does_not_have_are_texts() -> None:
    attributes = {"gen_ai.request.seed": 2**63, "gen_ai.request.top_k": 2**63 - 1}
    span = out_span(("a" * 32, "b" * 16, None), "chat m", CLIENT, (1, 2), attributes)
    read = read_protobuf(as_protobuf([span], {}))
    assert read == read_json(as_json([span], {}))
    assert read[0].attributes == attributes | {"gen_ai.request.seed": str(2**63)}


def test_large_runs_go_in_parts_of_bounded_size() -> None:
    small, large = {"name": "a"}, {"name": "a" * 1_500_000}
    assert [len(part) for part in batches([small] * 1100)] == [500, 500, 100]
    assert [len(part) for part in batches([large, large, small, large])] == [1, 2, 1]
    assert list(batches([])) == []


def test_a_rescored_execution_links_to_its_conversation(
    kindlm: Any, recorded: History, make: Any, here: Path
) -> None:
    run = recorded.run("r3sc0red", source_run=RUN, mode="rescored")
    run.suite(tests=[make.planned()])
    run.execution(source=f"{RUN}-1.2", output=None, status=None)
    run.leave()
    kindlm("export", "r3sc0red", "--format", "otlp", "-o", "r.jsonl", "--db", recorded.path)
    request = json.loads((here / "r.jsonl").read_bytes())
    execution = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    source = exported(kindlm, here / "run.jsonl", "--db", recorded.path)[3]
    assert execution["links"] == [{"traceId": source.trace, "spanId": source.id}]


def test_model_calls_behind_the_gateway_stand_below_the_call_to_the_agent(
    kindlm: Any, history: History, make: Any, here: Path
) -> None:
    run = history.run(RUN)
    run.suite(tests=[make.planned()])
    call = ToolCall("c1", "look_up", {"order": "A1"})
    sent = AgentSent(agent="desk", adapter="http", call=1, after=0)
    asked = {"purpose": "agent", "provider": "openai", "model": "gpt-4o", "fingerprint": "f"}
    items = ({"role": "user", "content": "Where?"},
             {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
              "function": {"name": "look_up", "arguments": '{"order": "A1"}'}}]},
             {"role": "tool", "tool_call_id": "c1", "content": "late"})  # fmt: skip
    written = list(map(json.dumps, items))
    path, usage = "openai/chat/completions", {"input_tokens": 7, "output_tokens": 2}
    said = {"latency_ms": 1.0, "model": "gpt-4o", "cost_usd": 0.5} | usage
    events = [
        ExecutionStarted(suite=0, test="greets", target="desk", repeat=1, attempt=1,
                         messages=[Message(Role.USER, "Where?")]),
        sent,
        ProviderRequested(call=2, path=path, body="{}", items=written[:1], after=0,
                          messages=[Message(Role.USER, "Where?")], **asked),
        ProviderResponded(call=2, text="", tool_calls=[call], **said),
        ProviderRequested(call=3, path=path, body="{}", items=written[1:], base=2, after=2,
                          messages=[Message(Role.TOOL, "late", tool_call_id="c1")], **asked),
        ProviderResponded(call=3, text="It is late.", **said),
        AgentReplied(call=1, text="Late.", reports_tools=True,
                     tool_calls=[AgentToolUse(index=0, use=ToolUse(call, "late"))], **said),
    ]  # fmt: skip
    for event in events:
        run._add(event, "1.1")
    run.leave()
    spans = exported(kindlm, here / "run.jsonl", "--contents", "--db", history.path)
    agent = next(span for span in spans if span.name == "invoke_agent desk")
    assert [span.name for span in spans if span.parent == agent.id] == [
        "chat gpt-4o", "chat gpt-4o", "execute_tool look_up",
    ]  # fmt: skip
    assert "gen_ai.usage.input_tokens" not in agent.attributes
    assert spans[1].attributes["gen_ai.usage.input_tokens"] == 7
    asked_again = json.loads(spans[1].attributes["gen_ai.input.messages"])
    assert [part["type"] for each in asked_again for part in each["parts"]] == [
        "text", "tool_call", "tool_call_response",
    ]  # fmt: skip
    assert spans[-2].attributes["kindlm.status"] == "unfinished"
    assert_same_calls(here / "run.jsonl", history.path)


def test_an_imported_run_without_messages_of_a_user(kindlm: Any, here: Path) -> None:
    entry = {"passRate": 1.0, "outputText": "Hello.", "failureCodes": [], "runCount": 1}
    baseline = {
        "version": "1",
        "suiteName": "support",
        "createdAt": "2026-01-15T10:00:00.000Z",
        "results": {"greets::gpt": entry | {"latencyAvgMs": 1, "costUsd": 0.1}},
    }
    (here / "baseline.json").write_text(json.dumps(baseline), "utf-8")
    assert kindlm("import", "baseline.json").code == 0
    assert kindlm("export", "--format", "otlp", "--contents", "-o", "run.jsonl").code == 0
    call, execution, root = spans_in(here / "run.jsonl")
    assert (call.name, execution.name) == ("invoke_agent gpt", "invoke_agent gpt (greets)")
    assert call.attributes["kindlm.latency_ms"] == 1
    assert root.end_ns >= execution.end_ns


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "export-traces.md"


def test_addresses_and_headers_in_the_docs_are_understood() -> None:
    rows = re.findall(
        r"^\| \[\w+\].*\| `(http\S+)` \| `(\S+)`", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 5
    for url, headers in rows:
        found = otlp_sending.receiver(url, {"OTEL_EXPORTER_OTLP_HEADERS": headers})
        assert found.url == f"{url}/v1/traces"
        assert found.headers
