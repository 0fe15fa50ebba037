"""What a request is known by: the question as it is written, whatever the environment holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kindlm.config.interpolation import bind_suite, render
from kindlm.engine.calls import fingerprint
from kindlm.engine.simulation import SimulatedTools
from kindlm.errors import Ok
from kindlm.ports import ModelRequest, ResponseSchema, ToolDefinition
from kindlm.suite import ModelParams, Prompt, Suite
from kindlm.transcript import Message, Role, ToolCall


@pytest.fixture
def suite_in(make):
    def bound(region: str, user: str, *follow_ups: str) -> Suite:
        prompt = Prompt(render(user, {}), system=render("Serve {{env.REGION}}", {}))
        case = make.case(prompt=prompt, follow_ups=tuple(render(each, {}) for each in follow_ups))
        found = bind_suite(make.suite(case), environ={"REGION": region}, ports={})
        assert isinstance(found, Ok)
        return found.value

    return bound


@pytest.fixture
def fingerprints(bench):
    """The fingerprints of the requests of each suite, and what was sent in all of them."""

    def run(*suites: Suite) -> tuple[list[list[str]], list[str]]:
        asyncio.run(bench.run(suites))
        requested = bench.events("provider.requested")
        subjects = sorted({event.subject for event in requested})
        found = [
            [event.data["fingerprint"] for event in requested if event.subject == subject]
            for subject in subjects
        ]
        return found, [m.text for request in bench.client.requests for m in request.messages]

    return run


def test_the_environment_does_not_change_what_a_request_is_known_by(fingerprints, suite_in):
    words = ("I live in {{env.REGION}}", "still {{env.REGION}}?")
    (north, south), sent = fingerprints(suite_in("north", *words), suite_in("south", *words))
    assert north == south
    assert len(set(north)) == 2
    assert {"I live in north", "I live in south", "still south?"} <= set(sent)


def test_another_question_is_known_by_something_else(fingerprints, suite_in):
    (first, second), _ = fingerprints(suite_in("north", "Hello"), suite_in("north", "Hello?"))
    assert first != second


CALL = ToolCall("c1", "refund", {"id": "A1"})
ASKED = Message(Role.ASSISTANT, "", tool_calls=(CALL,))
ANSWERED = Message(Role.TOOL, "done", tool_call_id="c1")
REQUEST = ModelRequest("model-1", (ASKED, ANSWERED), ModelParams(), 30.0)


def asking(call: ToolCall) -> ModelRequest:
    return replace(REQUEST, messages=(replace(ASKED, tool_calls=(call,)), ANSWERED))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, model="model-2"),
        asking(replace(CALL, id="c2")),
        asking(replace(CALL, name="lookup")),
        asking(replace(CALL, arguments={"id": "B2"})),
        asking(replace(CALL, arguments={}, malformed="A1")),
        replace(REQUEST, messages=(ASKED, replace(ANSWERED, text="failed"))),
        replace(REQUEST, messages=(ASKED, replace(ANSWERED, tool_call_id="c2"))),
        replace(REQUEST, messages=(replace(ASKED, prefill=True), ANSWERED)),
        replace(REQUEST, messages=(replace(ASKED, role=Role.USER), ANSWERED)),
        replace(REQUEST, params=ModelParams(temperature=0.3)),
        replace(REQUEST, params=ModelParams(max_tokens=1025)),
        replace(REQUEST, params=ModelParams(top_p=0.5)),
        replace(REQUEST, params=ModelParams(stop_sequences=("done",))),
        replace(REQUEST, params=ModelParams(seed=7)),
        replace(REQUEST, tools=(ToolDefinition("refund", None, {}),)),
        replace(REQUEST, response_schema=ResponseSchema("answer", {})),
    ],
)
def test_all_that_may_change_an_answer_counts(other: ModelRequest) -> None:
    assert fingerprint("p", REQUEST) == fingerprint("p", replace(REQUEST, timeout_s=60.0))
    assert fingerprint("q", REQUEST) != fingerprint("p", REQUEST) != fingerprint("p", other)


def test_a_long_id_and_name_of_a_call_count_as_far_as_they_are_recorded(bench, make):
    """An answer that is given again has only their beginning; the provider gets them whole."""
    call = make.call("refund" * 50, "call_" * 60)
    bench.queue(make.reply("", call), make.reply("Found"))
    asyncio.run(bench.run([make.suite(make.case(tools=(make.tool(default="none"),)))]))
    live = bench.client.requests[1]
    *before, asked, answered = live.messages
    assert asked.tool_calls[0].id == answered.tool_call_id == call.id

    responded, _ = bench.events("provider.responded")
    (kept,) = responded.data["tool_calls"]
    again = replace(call, id=kept["id"], name=kept["name"])
    assert len(again.id) == len(again.name) == 200
    tools = SimulatedTools((make.tool(default="none"),))
    assert asyncio.run(tools.answer(again)).text == asyncio.run(tools.answer(call)).text
    replayed = replace(asked, tool_calls=(again,)), replace(answered, tool_call_id=again.id)
    _, recorded = bench.events("provider.requested")
    request = replace(live, messages=(*before, *replayed))
    assert fingerprint("p", request) == recorded.data["fingerprint"]
    other = replace(live, messages=(*before, replace(asked, tool_calls=()), answered))
    assert fingerprint("p", other) != recorded.data["fingerprint"]
