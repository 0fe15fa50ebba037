"""Which spans belong to an answer, and when all of them are there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from call_desk import Desk
from otlp import otlp_request, otlp_span

from kindlm.events.execution_events import AgentTraced
from kindlm.ports import Seen
from kindlm.suite import AgentTarget
from kindlm.telemetry import otlp_observer
from kindlm.telemetry.otlp_observer import OtlpObserver, TracedConversation
from kindlm.telemetry.spans import read_json
from kindlm.transcript import Cost, CostSource, Usage

TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "lookup",
    "gen_ai.tool.call.arguments": "{}",
}
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.response.model": "m-1",
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.output_tokens": 2,
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"content": "Sent."}]}]',
}


@dataclass
class Bench:
    """A conversation and what arrives for it."""

    runner: asyncio.Runner
    observer: OtlpObserver = field(default_factory=lambda: OtlpObserver("run1", "http://x"))
    wait_ms: int = 20

    def open(self, subject: str = "1.1") -> TracedConversation:
        target = AgentTarget("shop", "http", "", telemetry="otlp", telemetry_wait_ms=self.wait_ms)
        found = self.observer.observe(target, Desk(subject))
        assert isinstance(found, TracedConversation)
        return found

    def begin(self, conversation: TracedConversation, call: int = 1) -> str:
        """Begin a message; return kindlm's span of it."""
        self.runner.run(conversation.begin(call))
        return sent_with(conversation)

    def seen(self, conversation: TracedConversation) -> Seen:
        return self.runner.run(conversation.seen())

    def arrive(self, trace: str, *spans: dict[str, Any], place: str = "") -> None:
        named = ({**span, "traceId": trace} for span in spans)
        self.observer.take(read_json(otlp_request(*named)), place)


def around(number: int, sent: str) -> dict[str, Any]:
    """Return a span that encloses an answer: it ends when that has long been there."""
    return otlp_span(number, parent=sent, times=(0, 2**62))


def sent_with(conversation: TracedConversation) -> str:
    """Return kindlm's span in the header of the message."""
    version, trace, span, flags = conversation.headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", conversation.trace, "01")
    return span


@pytest.fixture
def bench() -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        yield Bench(runner)


def test_it_waits_for_the_span_around_the_answer_and_for_missing_parents(bench):
    bench.wait_ms = 60_000
    conversation = bench.open()

    async def run() -> None:
        await conversation.begin(1)
        sent, trace = sent_with(conversation), conversation.trace
        waiting = asyncio.create_task(conversation.seen())
        for span in (
            otlp_span(3, TOOL, parent=2),
            around(1, sent),
            otlp_span(2, parent=1),
        ):
            await asyncio.sleep(0)
            assert not waiting.done()
            bench.arrive(trace, span)
        found = await waiting
        assert [use.call.name for use in found.tool_uses] == ["lookup"]
        assert found.missing is None

    bench.runner.run(run())
    (event,) = conversation.desk.recorded
    assert isinstance(event, AgentTraced)
    assert [(span.name, span.parent) for span in event.spans] == [
        ("span 1", None),
        ("span 2", f"{1:016x}"),
        ("lookup", f"{2:016x}"),
    ]


def test_the_span_of_a_model_call_is_recorded_with_its_tokens_and_times(bench):
    conversation = bench.open()
    sent = bench.begin(conversation)
    agent = CHAT | {"gen_ai.operation.name": "invoke_agent"}
    begun = {"startTimeUnixNano": "1000000", "endTimeUnixNano": "9000000"}
    spans = (otlp_span(2, agent, parent=1) | begun, around(1, sent) | begun)
    chat = otlp_span(3, CHAT, parent=2, times=(3_000_000, 6_000_000))
    bench.arrive(conversation.trace, *spans, chat)
    bench.seen(conversation)
    (event,) = conversation.desk.recorded
    called = event.spans[-1]
    assert (called.start_ms, called.duration_ms) == (2.0, 3.0)
    assert called.output == CHAT["gen_ai.output.messages"]
    tokens = [(span.kind, span.input_tokens, span.output_tokens) for span in event.spans]
    assert tokens == [("other", None, None), ("agent", None, None), ("chat", 10, 2)]


def test_each_message_has_its_own_spans_and_late_ones_are_no_other_messages(bench):
    conversation = bench.open()
    first = bench.begin(conversation)
    assert "No span of the agent arrived within 20 ms" in (bench.seen(conversation).missing or "")
    second = bench.begin(conversation, 2)
    assert second != first
    bench.arrive(
        conversation.trace,
        around(1, first),
        otlp_span(2, TOOL, parent=1),
    )
    # What encloses the first answer does not enclose this one.
    assert bench.seen(conversation).tool_uses == ()
    begun = bench.begin(conversation, 3)
    bench.arrive(conversation.trace, around(3, begun), otlp_span(4, CHAT, parent=3))
    found = bench.seen(conversation)
    assert (found.missing, found.usage, found.model) == (None, Usage(10, 2), "m-1")
    assert (found.cost, found.missing) == (Cost(0.12, CostSource.COMPUTED), None)
    conversation.close()
    bench.arrive(conversation.trace, otlp_span(5, TOOL, parent=3))
    notes = [message for message, _ in bench.observer.notes()]
    assert notes == ["3 spans arrived after the end of their execution."]


@pytest.mark.parametrize(("name", "is_known"), [("lookup", True), ("refund", False)])
def test_a_message_may_go_on_with_the_calls_of_an_earlier_one(bench, name, is_known):
    conversation = bench.open()
    first = bench.begin(conversation)
    bench.arrive(conversation.trace, around(1, first), otlp_span(2, TOOL, parent=1))
    assert bench.seen(conversation).missing is None
    call = {"type": "tool_call", "id": "c1", "name": name, "arguments": {}}
    asked = json.dumps([{"role": "assistant", "parts": [call]}])
    second = bench.begin(conversation, 2)
    chat = otlp_span(4, CHAT | {"gen_ai.input.messages": asked}, parent=3)
    bench.arrive(conversation.trace, around(3, second), chat)
    missing = bench.seen(conversation).missing
    assert missing is None if is_known else 'call of "refund" that no span' in missing


def test_tool_calls_after_the_last_answer_have_a_warning(bench):
    conversation = bench.open()
    sent = bench.begin(conversation)
    bench.arrive(conversation.trace, around(1, sent), otlp_span(2, CHAT, parent=1))
    assert bench.seen(conversation).missing is None
    bench.arrive(conversation.trace, otlp_span(3, CHAT, parent=1), otlp_span(4, TOOL, parent=1))
    assert "1 tool call after its last answer" in conversation.close()
    failed = bench.open()
    sent = bench.begin(failed)
    bench.arrive(failed.trace, otlp_span(2, TOOL, parent=1))
    assert failed.close() is None


def test_where_spans_may_be_missing_tokens_and_costs_are_unknown(bench):
    conversation = bench.open()
    sent = bench.begin(conversation)
    bench.arrive(conversation.trace, around(1, sent), otlp_span(2, CHAT, parent=1))
    assert bench.seen(conversation).cost.usd == 0.12
    sent = bench.begin(conversation, 2)
    lost_parent = otlp_span(5, CHAT, parent=4)
    bench.arrive(conversation.trace, around(3, sent), lost_parent)
    found = bench.seen(conversation)
    assert "but 1 parent of theirs did not" in (found.missing or "")
    assert (found.usage, found.cost, found.model) == (Usage(), Cost(), "m-1")


def test_what_an_agent_did_in_a_try_that_failed_is_done(bench):
    conversation = bench.open()
    failed = bench.begin(conversation)
    bench.arrive(conversation.trace, around(1, failed), otlp_span(2, TOOL, parent=1))
    bench.arrive("e" * 32, otlp_span(9, TOOL))
    sent = bench.begin(conversation, 2)
    late = otlp_span(3, {**TOOL, "gen_ai.tool.name": "refund"}, parent=failed)
    bench.arrive(conversation.trace, late, around(4, sent), otlp_span(5, CHAT, parent=4))
    found = bench.seen(conversation)
    assert [use.call.name for use in found.tool_uses] == ["lookup", "refund"]
    assert "1 span of models or tools arrived in traces" in (found.missing or "")
    begun = bench.begin(conversation, 3)
    bench.arrive(conversation.trace, around(6, begun), otlp_span(7, TOOL, parent=failed))
    assert bench.seen(conversation).tool_uses == ()
    assert [told for told, _ in bench.observer.notes()][1:] == [
        "1 span arrived after the end of their execution."
    ]


def test_a_span_comes_once_and_its_ids_are_no_way_into_another_conversation(bench):
    one, other = bench.open("1.1"), bench.open("2.1")
    bench.begin(one)
    bench.begin(other)
    spans = [around(1, sent_with(one)), otlp_span(2, TOOL, parent=1)]
    bench.arrive(one.trace, *spans)
    bench.arrive(one.trace, *spans)  # an exporter that got no answer
    # The span of one message in the trace of another conversation, and in a trace of its own.
    bench.arrive(other.trace, otlp_span(3, parent=sent_with(one)))
    found = bench.seen(one)
    assert (len(found.tool_uses), found.cost) == (1, None)  # the agent may report its own
    missing = bench.seen(other).missing or ""
    assert "but 1 parent of theirs did not" in missing
    bench.arrive(one.trace, *spans)  # also after the answer
    sent = bench.begin(one, 2)
    bench.arrive(one.trace, around(5, sent), otlp_span(6, CHAT, parent=5))
    assert bench.seen(one).missing is None


def test_calls_in_traces_of_others_leave_open_conversations_undecided(bench):
    conversation = bench.open()
    bench.arrive("f" * 32, otlp_span(9, TOOL))  # before: of no conversation that is open
    sent = bench.begin(conversation)
    bench.arrive("e" * 32, otlp_span(8))  # no call
    complete = (around(1, sent), otlp_span(2, TOOL, parent=1))
    bench.arrive(conversation.trace, *complete)
    assert bench.seen(conversation).missing is None
    sent = bench.begin(conversation, 2)
    bench.arrive("d" * 32, otlp_span(7, TOOL))
    bench.arrive(conversation.trace, around(3, sent), otlp_span(4, TOOL, parent=3))
    found = bench.seen(conversation)
    assert "1 span of models or tools arrived in traces" in (found.missing or "")
    assert found.missing is not None
    (note,) = [message for message, _ in bench.observer.notes()]
    assert note.startswith("3 spans arrived in traces that kindlm did not start.")


def test_requests_that_could_not_be_read_are_counted_with_the_last_reason():
    observer = OtlpObserver("run")
    for number in range(25):
        observer.refused(f"line {number} is odd", "")
    (note,) = [message for message, _ in observer.notes()]
    assert note.startswith("25 requests with spans could not be read, ")
    assert note.endswith(": line 24 is odd.")


@pytest.mark.parametrize("place", ["", "unknown"])
def test_a_request_that_could_not_be_read_leaves_conversations_undecided(bench, place):
    one, other = bench.open("1.1"), bench.open("2.1")

    def ask(conversation: TracedConversation, number: int) -> str | None:
        sent = sent_with(conversation)
        spans = (around(number, sent), otlp_span(number + 1, TOOL, parent=number))
        bench.arrive(conversation.trace, *spans)
        return bench.seen(conversation).missing

    bench.observer.refused("before any message", "")
    bench.begin(one)
    bench.begin(other)
    bench.observer.refused("more than 10 MB", place)
    for conversation, number in ((one, 1), (other, 11)):
        missing = ask(conversation, number) or ""
        assert "1 request with spans could not be read, so spans of tool calls may be" in missing
        assert "more than 10 MB" in missing
    bench.begin(one, 2)
    assert ask(one, 3) is None


def test_a_request_to_the_place_of_a_conversation_leaves_no_other_undecided(bench):
    one, other, ended = bench.open("1.1"), bench.open("2.1"), bench.open("3.1")
    sent = {each: bench.begin(each) for each in (one, other)}
    ended.close()
    for each in (one, ended):
        bench.observer.refused("the connection broke off", each.place)
    for number, each in enumerate((one, other), 1):
        bench.arrive(each.trace, around(number, sent[each]))
    assert "1 request with spans could not be read" in (bench.seen(one).missing or "")
    assert "could not be read" not in (bench.seen(other).missing or "")
    (note,) = [message for message, _ in bench.observer.notes()]
    assert note.startswith("2 requests with spans could not be read, ")


def test_two_spans_with_the_same_id_leave_a_conversation_undecided(bench):
    conversation = bench.open()
    sent = bench.begin(conversation)
    refund = {**TOOL, "gen_ai.tool.name": "refund"}
    one, other = otlp_span(2, TOOL, parent=1), otlp_span(2, refund, parent=1, times=(7, 9))
    bench.arrive(conversation.trace, around(1, sent), one, other)
    assert "Two spans of the trace have the same id" in (bench.seen(conversation).missing or "")


def test_a_span_with_dropped_attributes_leaves_a_conversation_undecided(bench):
    """The kind of the span may be among them, so that it does not look like a call."""
    conversation = bench.open()
    sent = bench.begin(conversation)
    cut = otlp_span(3, parent=1) | {"droppedAttributesCount": 2}
    bench.arrive(conversation.trace, around(1, sent), otlp_span(2, CHAT, parent=1), cut)
    found = bench.seen(conversation)
    assert 'The span "span 3" had more attributes' in (found.missing or "")
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=10000" in (found.missing or "")
    assert (found.usage, found.cost) == (Usage(), Cost())


AGENT = {"gen_ai.operation.name": "invoke_agent"}
NOT_AROUND = {
    "a tool": [otlp_span(1, TOOL)],
    "a model": [otlp_span(1, CHAT)],
    "a request": [otlp_span(1) | {"kind": 3}],
    "the first of several agents": [otlp_span(1, AGENT, times=(0, 2**62))],
    "a chain": [otlp_span(1, {"openinference.span.kind": "CHAIN"}, times=(0, 2**62))],
    "beside a model": [otlp_span(1, CHAT), otlp_span(2, times=(101, 2**62))],
    "long before the answer": [otlp_span(1)],
}


@pytest.mark.parametrize("spans", NOT_AROUND.values(), ids=NOT_AROUND)
def test_only_a_plain_span_around_all_encloses_an_answer(bench, spans):
    conversation = bench.open()
    sent = bench.begin(conversation)
    bench.arrive(conversation.trace, *(span | {"parentSpanId": sent} for span in spans))
    assert "none within 20 ms that encloses" in (bench.seen(conversation).missing or "")


def test_the_longer_a_span_ended_before_the_answer_the_longer_others_may_follow(bench):
    bench.wait_ms = 60_000
    conversation = bench.open()

    async def run() -> None:
        await conversation.begin(1)
        sent, now = sent_with(conversation), time.time_ns()
        first = otlp_span(1, parent=sent, times=(now - 200_000_000, now - 100_000_000))
        bench.arrive(conversation.trace, first)
        waiting = asyncio.create_task(conversation.seen())
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.arrive(conversation.trace, around(2, sent), otlp_span(3, TOOL, parent=2))
        found = await waiting
        assert (len(found.tool_uses), found.missing) == (1, None)

    bench.runner.run(run())


def test_what_comes_to_the_address_of_a_program_is_of_its_conversation(bench):
    bench.wait_ms = 60_000
    conversation = bench.open()
    root = conversation.environ["TRACEPARENT"].split("-")[2]
    place = conversation.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rpartition("/")[2]

    async def run() -> None:
        await conversation.begin(1)
        bench.arrive("c" * 32, otlp_span(1, TOOL), place=place)
        bench.arrive(conversation.trace, around(2, root), place=place)
        waiting = asyncio.create_task(conversation.seen())
        await asyncio.sleep(0)
        # Another exporter sends the spans of the other traces.
        assert not waiting.done()
        bench.arrive("d" * 32, otlp_span(3, TOOL), place=place)
        found = await waiting
        assert (len(found.tool_uses), found.missing) == (2, None)

    bench.runner.run(run())


def test_traces_are_bounded(bench, monkeypatch):
    monkeypatch.setattr(otlp_observer, "MAX_SPANS", 3)
    conversation = bench.open()
    sent = bench.begin(conversation)
    many = [otlp_span(number, parent=1) for number in range(2, 6)]
    bench.arrive(conversation.trace, otlp_span(1, parent=sent), *many)
    assert "more than 3 spans" in (bench.seen(conversation).missing or "")
    monkeypatch.setattr(otlp_observer, "MAX_TRACE_BYTES", 2_000)
    bounded = bench.open("2.1")
    sent = bench.begin(bounded)
    bench.arrive(bounded.trace, otlp_span(1, {"a": "x" * 2_000}, parent=sent))
    assert "2,000 bytes" in (bench.seen(bounded).missing or "")


def test_a_long_chain_and_a_circle_of_parents_end(bench):
    conversation = bench.open()
    sent = bench.begin(conversation)
    chain = [otlp_span(number + 1, parent=number) for number in range(1, 2_000)]
    circle = [otlp_span(9_000, parent=9_001), otlp_span(9_001, TOOL, parent=9_000)]
    bench.arrive(conversation.trace, *chain, *circle, otlp_span(1, TOOL | CHAT, parent=sent))
    assert bench.seen(conversation).missing is not None
