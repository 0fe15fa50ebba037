"""Which recorded answer a request of an agent gets, and what is said where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kindlm.gateway.replay import RecordedModels
from kindlm.ports import RecordedModelCall

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
    return RecordedModels("k3f9x2ab-17.1", calls, [900.0], masks_times)


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
    assert "it was made 2 times then, and comes once more now" in missed


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
    failed = replace(_call(1, _asked("Hi"), None), failure="The provider answered 500: Boom")
    missed = _models(failed, failed).answer(CHAT, _asked("Hi"))
    assert isinstance(missed, str)
    assert missed == (
        "Run k3f9x2ab never answered this request from the agent to its model"
        " (call 1, openai/chat/completions): it failed then: The provider answered 500: Boom."
    )
    answer = _models(failed, _call(2, _asked("Hi"), "Hello")).answer(CHAT, _asked("Hi"))
    assert isinstance(answer, RecordedModelCall)


def test_a_request_that_differs_in_times_alone_names_the_option_that_gives_its_answer() -> None:
    recorded = _call(1, _asked("Hi", system="Today is 2026-11-23."), "first")
    now = _asked("Hi", system="Today is 2026-11-24.")
    models = _models(recorded)
    assert isinstance(models.answer(CHAT, now), str)
    assert models.missed is not None
    assert models.missed.hint is not None
    assert "--mask-times" in models.missed.hint
    assert isinstance(_models(recorded, masks_times=True).answer(CHAT, now), RecordedModelCall)
    other = _models(recorded)
    other.answer(CHAT, _asked("Hi", system="Today is Monday, really."))
    assert other.missed is not None
    assert "--mask-times" not in str(other.missed.hint)


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
    assert "it is not JSON" in unread
    nested: Any = {}
    for _ in range(2000):
        nested = {"messages": [nested]}
    deep = _models(call).answer(CHAT, nested)
    assert isinstance(deep, str)
    assert "nested too deeply" in deep
