"""Which recorded answer a request of an agent gets: requests are the same question, or no other."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.gateway.replay import RecordedModels, fingerprint, normal_form
from kindlm.ports import RecordedModelCall
from kindlm.wording import differences

CHAT = "openai/chat/completions"
RESPONSES = "openai/responses"


def _call(
    number: int, body: dict[str, Any], answer: str | None, path: str = CHAT
) -> RecordedModelCall:
    key = "messages" if path == CHAT else "input"
    rest = {name: value for name, value in body.items() if name != key}
    return RecordedModelCall(
        id=f"k3f9x2ab-17.1/{number}",
        path=path,
        body=json.dumps(rest),
        items=tuple(map(json.dumps, body[key])),
        content_type="application/json",
        answer=answer,
        cost_usd=0.01,
        latency_ms=250.0,
    )


def _asked(*texts: str, system: str = "Be kind.") -> dict[str, Any]:
    users = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *users]}


def _models(*calls: RecordedModelCall, masks_times: bool = False) -> RecordedModels:
    return RecordedModels("k3f9x2ab-17.1", calls, masks_times)


def test_the_nth_equal_question_gets_the_nth_answer_and_then_none() -> None:
    models = _models(
        _call(1, _asked("Hi"), "first"),
        _call(2, _asked("Bye"), "bye"),
        _call(4, _asked("Hi"), "second"),
    )
    bodies = [models.answer(CHAT, _asked(text)) for text in ("Hi", "Hi", "Bye")]
    assert [body.answer if isinstance(body, RecordedModelCall) else body for body in bodies] == [
        "first",
        "second",
        "bye",
    ]
    assert isinstance(bodies[1], RecordedModelCall)
    assert (bodies[1].id, bodies[1].cost_usd) == ("k3f9x2ab-17.1/4", 0.01)
    assert models.missed is None
    missed = models.answer(CHAT, _asked("Hi"))
    assert isinstance(missed, str)
    assert "it was recorded 2 times, and the agent sends it once more" in missed


def test_a_miss_names_what_differs_from_the_request_at_the_same_point() -> None:
    models = _models(
        _call(1, _asked("Hi"), "first"), _call(2, _asked("Hi", "Where is it?"), "second")
    )
    missed = models.answer(CHAT, _asked("Hi", "Where is it?", system="Be brief."))
    assert isinstance(missed, str)
    assert missed == (
        "Run k3f9x2ab never recorded this request from the agent to its model"
        ' (call 1, openai/chat/completions): messages[0].content: "Be kind." → "Be brief.".'
    )
    assert models.missed is not None
    assert models.missed.message == missed
    # The first miss explains the ones after it.
    models.answer(RESPONSES, {"input": "Hi"})
    assert models.missed.message == missed


def test_a_request_elsewhere_or_one_whose_answer_is_gone_is_a_miss() -> None:
    models = _models(_call(1, _asked("Hi"), None))
    elsewhere, gone = models.answer("openai/files", {}), models.answer(CHAT, _asked("Hi"))
    assert isinstance(elsewhere, str)
    assert "(call 1, openai/files): no request was recorded there" in elsewhere
    assert isinstance(gone, str)
    assert "the answer of k3f9x2ab-17.1/1 is no longer stored" in gone


def test_a_request_that_failed_then_is_a_miss_unless_it_was_answered_later() -> None:
    failed = replace(_call(1, _asked("Hi"), None), failure="The provider answered 500: Boom.")
    missed = _models(failed, failed).answer(CHAT, _asked("Hi"))
    assert isinstance(missed, str)
    assert missed == (
        "Run k3f9x2ab never answered this request from the agent to its model"
        " (call 1, openai/chat/completions): it failed in the recording:"
        " The provider answered 500: Boom."
    )
    answer = _models(failed, _call(2, _asked("Hi"), "Hello")).answer(CHAT, _asked("Hi"))
    assert isinstance(answer, RecordedModelCall)


def test_a_request_without_an_answer_names_the_option_that_masks_times() -> None:
    recorded = _call(1, _asked("Hi", system="Today is 2026-11-23."), "first")
    now = _asked("Hi", system="Today is 2026-11-24.")
    models = _models(recorded)
    assert isinstance(models.answer(CHAT, now), str)
    assert models.missed is not None
    assert models.missed.hint is not None
    assert "--mask-times" in models.missed.hint
    assert isinstance(_models(recorded, masks_times=True).answer(CHAT, now), RecordedModelCall)
    masking = _models(recorded, masks_times=True)
    masking.answer(CHAT, _asked("Hi", system="Now."))
    assert masking.missed is not None
    assert "--mask-times" not in str(masking.missed.hint)


def test_answers_to_two_equal_questions_may_change_places() -> None:
    """Of two that ask the same at once, either may get either answer: what follows is found."""
    asked = {"model": "m", "input": [{"role": "user", "content": "Hi"}]}

    def answer(ident: str) -> str:
        call = {"type": "function_call", "call_id": f"call_{ident}", "name": "f", "arguments": "{}"}
        return json.dumps(
            {"id": ident, "object": "response", "status": "completed", "output": [call]}
        )

    def after(ident: str, call: str, result: str) -> dict[str, Any]:
        output = {"type": "function_call_output", "call_id": f"call_{call}", "output": result}
        return {"model": "m", "previous_response_id": ident, "input": [output]}

    models = _models(
        _call(1, asked, answer("a"), RESPONSES),
        _call(2, asked, answer("b"), RESPONSES),
        _call(3, after("a", "a", "one"), "after one", RESPONSES),
        _call(4, after("b", "b", "two"), "after two", RESPONSES),
    )
    answers = [models.answer(RESPONSES, asked) for _ in range(2)]
    answers += [models.answer(RESPONSES, after("b", "b", "one"))]
    answers += [models.answer(RESPONSES, after("a", "a", "two"))]
    bodies = [each.answer for each in answers if isinstance(each, RecordedModelCall)]
    assert bodies[2:] == ["after one", "after two"]


def test_a_request_that_cannot_be_compared_gets_no_answer() -> None:
    call = replace(_call(1, _asked("Hi"), "first"), body=None, items=())
    unread = _models(call).answer(CHAT, None)
    assert isinstance(unread, str)
    assert "(call 1, openai/chat/completions): it is not JSON" in unread
    nested: Any = {}
    for _ in range(2000):
        nested = {"messages": [nested]}
    deep = _models(call).answer(CHAT, nested)
    assert isinstance(deep, str)
    assert "nested too deeply" in deep


@pytest.mark.parametrize(
    "odd",
    [
        {"input": [{"role": "user", "content": "Hi"}], "previous_response_id": []},
        {"input": [{"type": [], "text": "Hi"}]},
    ],
)
def test_a_request_with_values_of_other_types_is_compared(odd: dict[str, Any]) -> None:
    models = _models(_call(1, odd, "refused", RESPONSES))
    found = models.answer(RESPONSES, odd)
    assert isinstance(found, RecordedModelCall)
    assert found.answer == "refused"


# Names that are left out elsewhere: as names of a user's own fields they count.
_NAMES = st.sampled_from(["status", "user", "metadata", "id", "annotations", "call_id", "order"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "4711", "late", "#0"]),
    lambda child: st.lists(child, max_size=2) | st.dictionaries(_NAMES, child, max_size=3),
    max_leaves=4,
)
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=3)
_TEXTS = st.sampled_from(["Where is my order?", "", "late", "[]", '{"status": "late"}'])
_CALL = st.tuples(st.sampled_from(["find", "cancel"]), _OBJECTS, _TEXTS)
_TALK = st.fixed_dictionaries(
    {
        "system": _TEXTS,
        "rounds": st.lists(st.tuples(_TEXTS, st.lists(_CALL, max_size=3)), max_size=2),
        "tools": st.dictionaries(
            st.sampled_from(["find", "cancel", "list"]), st.tuples(_TEXTS, _OBJECTS), max_size=3
        ),
    }
)


def _written(talk: dict[str, Any], wire: str, seed: int) -> dict[str, Any]:
    """Return a request that holds a talk, with ids, metadata and orders of its own."""
    chance = random.Random(seed)
    tools = [
        {
            "chat": {
                "type": "function",
                "function": {"name": name, "description": text, "parameters": schema},
            },
            "responses": {
                "type": "function",
                "name": name,
                "description": text,
                "parameters": schema,
                "strict": None,
            },
            "anthropic": {"name": name, "description": text, "input_schema": schema},
        }[wire]
        for name, (text, schema) in talk["tools"].items()
    ]
    chance.shuffle(tools)
    body: dict[str, Any] = {"model": "m", "tools": tools, "stop": None, "metadata": {"n": seed}}
    entries: list[Any] = []
    for text, calls in talk["rounds"]:
        entries.append({"role": "user", "content": _content(text, wire, chance)})
        called = [(f"call_{chance.random()}", *call) for call in calls]
        results = [_result(ident, result, wire) for ident, _, _, result in called]
        chance.shuffle(results)
        if wire == "responses":
            entries += [
                {
                    "type": "function_call",
                    "id": f"fc_{chance.random()}",
                    "call_id": ident,
                    "name": name,
                    "arguments": json.dumps(arguments, indent=chance.choice([None, 2])),
                    "status": chance.choice(["completed", None]),
                }
                for ident, name, arguments, _ in called
            ]
            entries += results
        elif wire == "chat":
            asked = [
                {
                    "type": "function",
                    "id": ident,
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for ident, name, arguments, _ in called
            ]
            entries += [{"role": "assistant", "content": None, "tool_calls": asked}, *results]
        else:
            asked = [
                {"type": "tool_use", "id": ident, "name": name, "input": arguments}
                for ident, name, arguments, _ in called
            ]
            thought = {"type": "thinking", "thinking": "Hm.", "signature": str(chance.random())}
            entries += [{"role": "assistant", "content": [thought, *asked]}]
            entries += [{"role": "user", "content": results}]
    if wire == "anthropic":
        return body | {"system": _content(talk["system"], wire, chance), "messages": entries}
    entries.insert(0, {"role": "system", "content": _content(talk["system"], wire, chance)})
    if wire == "responses":
        return body | {"input": entries, "store": chance.choice([True, False]), "user": str(seed)}
    return body | {"messages": entries, "stream_options": {"include_usage": True}}


def _content(text: str, wire: str, chance: random.Random) -> Any:
    kind = "input_text" if wire == "responses" else "text"
    return chance.choice([text, [{"type": kind, "text": text}]])


def _result(ident: str, text: str, wire: str) -> dict[str, Any]:
    if wire == "chat":
        return {"role": "tool", "tool_call_id": ident, "content": text}
    if wire == "responses":
        return {"type": "function_call_output", "call_id": ident, "output": text}
    cached = {"cache_control": {"type": "ephemeral"}}
    return {"type": "tool_result", "tool_use_id": ident, "content": text, **cached}


_WIRES = st.sampled_from(["chat", "responses", "anthropic"])
_SEEDS = st.integers(0, 10**6)


def _print(body: Any) -> str:
    return fingerprint("openai/chat/completions", normal_form(body, {}))


@given(talk=_TALK, other=_TALK, wire=_WIRES, seed=_SEEDS, again=_SEEDS)
def test_two_requests_are_the_same_question_exactly_if_they_say_the_same(
    talk: dict[str, Any], other: dict[str, Any], wire: str, seed: int, again: int
) -> None:
    written = _written(talk, wire, seed)
    assert _print(written) == _print(_written(talk, wire, again))
    is_same = json.dumps(talk, sort_keys=True) == json.dumps(other, sort_keys=True)
    rewritten = _written(other, wire, again)
    assert (_print(written) == _print(rewritten)) is is_same
    found = differences(normal_form(written, {}), normal_form(rewritten, {}))
    assert (next(found, None) is None) is is_same


@given(talk=_TALK, wire=_WIRES, seed=_SEEDS, data=st.data())
def test_whatever_changes_in_a_call_is_another_question_and_is_named(
    talk: dict[str, Any], wire: str, seed: int, data: st.DataObject
) -> None:
    changed = json.loads(json.dumps(talk))
    places = [
        ("rounds", n, 1, m, part)
        for n, (_, calls) in enumerate(talk["rounds"])
        for m in range(len(calls))
        for part in (1, 2)
    ]
    places += [("tools", name, 1) for name in talk["tools"]]
    places += [("system",)]
    *way, last = data.draw(st.sampled_from(places))
    at = changed
    for step in way:
        at = at[step]
    at[last] = {**at[last], "status": "changed"} if isinstance(at[last], dict) else at[last] + "!"
    then = normal_form(_written(talk, wire, seed), {})
    now = normal_form(_written(changed, wire, seed), {})
    found = list(differences(then, now))
    assert len(found) == 1
    assert "!" in found[0] or "changed" in found[0]


def test_a_difference_names_the_path_and_both_texts_around_it() -> None:
    def asked(text: str, tool: str) -> dict[str, Any]:
        return {
            "messages": [{"role": "system", "content": f"{'x' * 500} {text} {'y' * 500}"}],
            "tools": [{"type": "function", "function": {"name": "find", "description": tool}}],
        }

    then = normal_form(asked("Be kind.", "Finds"), {})
    now = normal_form(asked("Be brief.", "Finds it"), {})
    prompt, tool = differences(then, now)
    assert prompt.startswith('messages[0].content: "…x')
    assert "Be kind. y" in prompt
    assert "→" in prompt
    assert "Be brief. y" in prompt
    assert len(prompt) < 300
    assert tool == 'tools.find.function.description: "Finds" → "Finds it"'


def test_what_is_new_or_gone_is_named() -> None:
    then = normal_form({"messages": [{"role": "user", "content": "Hi"}], "seed": 1}, {})
    now = normal_form({"messages": [], "temperature": 0.5}, {})
    assert list(differences(then, now)) == [
        'messages[0]: {"role": "user", "content": "Hi"} → nothing',
        "seed: 1 → nothing",
        "temperature: nothing → 0.5",
    ]


def test_a_response_that_is_continued_is_known_by_the_question_it_answered() -> None:
    given_ids = {
        "resp_1": "question.0",
        "resp_2": "question.0",
        "call_a": "question.1",
        "call_b": "question.2",
    }
    outputs = [
        {"type": "function_call_output", "call_id": ident, "output": ident[-1]}
        for ident in ("call_b", "call_a")
    ]
    now = {"previous_response_id": "resp_1", "input": outputs}
    then = {"previous_response_id": "resp_2", "input": outputs[::-1]}
    other = {"previous_response_id": "resp_3", "input": outputs}
    assert normal_form(now, given_ids) == normal_form(then, given_ids)
    assert normal_form(now, given_ids) != normal_form(other, given_ids)
    # The result of one call alone is not that of the other.
    alone = [
        {"type": "function_call_output", "call_id": ident, "output": "done"}
        for ident in ("call_a", "call_b")
    ]
    first, second = (normal_form({"input": [each]}, given_ids) for each in alone)
    assert first != second


def test_parts_without_a_type_and_arguments_that_are_no_object_stay_as_they_are() -> None:
    rows = {"role": "tool", "tool_call_id": "1", "content": [{"id": 7, "status": "late"}]}
    call = {"id": "1", "function": {"name": "find", "arguments": '"late"'}}
    form = normal_form({"messages": [{"role": "assistant", "tool_calls": [call]}, rows]}, {})
    asked, answered = form["messages"]
    assert asked["tool_calls"][0]["function"]["arguments"] == '"late"'
    assert answered["content"] == [{"id": 7, "status": "late"}]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("It is 2026-11-23T09:34:20Z.", "It is 2027-01-02T10:00:00+01:00."),
        ("Today is Monday, November 23, 2026.", "Today is Tuesday, December 1, 2026."),
        ("On Mon 23 Nov 2026 at 9:34 pm", "On Tue 1 Dec 2026 at 11:05 am"),
        (
            "thread 1b4e28ba-2fa1-11d2-883f-0016d3cca427",
            "thread 6fa459ea-ee8a-3ca4-894e-db77e160355e",
        ),
    ],
)
def test_times_and_uuids_are_masked_only_when_that_is_asked_for(then: str, now: str) -> None:
    def form(text: str, **options: bool) -> Any:
        arguments = json.dumps({"at": text})
        call = {"id": "1", "function": {"name": "find", "arguments": arguments}}
        messages = [{"role": "user", "content": text}, {"role": "assistant", "tool_calls": [call]}]
        return normal_form({"messages": messages}, {}, **options)

    assert form(then) != form(now)
    assert form(then, masks_times=True) == form(now, masks_times=True)
    assert form(then, masks_times=True) != form(f"{now} Order 4711.", masks_times=True)
