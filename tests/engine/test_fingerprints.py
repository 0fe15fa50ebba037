"""What a request is known by: the question as it is written, whatever the environment holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kindlm.config.interpolation import bind_suite, render
from kindlm.engine.calls import fingerprint
from kindlm.engine.simulation import SimulatedTools
from kindlm.errors import Ok
from kindlm.suite import Prompt, Suite


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
