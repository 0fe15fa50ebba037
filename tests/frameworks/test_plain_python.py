"""Functions without a framework: answers of models, messages, pydantic models, dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from framework_shop import Talk
from openai import OpenAI
from pydantic import BaseModel

ORDER = {"type": "object", "properties": {"order": {"type": "string"}}}
LOOKUP = {"name": "lookup_order", "description": "Look it up."}


def chat(text: str) -> Any:
    tools: Any = [{"type": "function", "function": {**LOOKUP, "parameters": ORDER}}]
    said: Any = [{"role": "user", "content": text}]
    return OpenAI().chat.completions.create(model="gpt-5-mini", messages=said, tools=tools)


def responses(text: str) -> Any:
    tools: Any = [{"type": "function", **LOOKUP, "parameters": ORDER, "strict": False}]
    return OpenAI().responses.create(model="gpt-5-mini", input=text, tools=tools)


def anthropic(text: str) -> Any:
    from anthropic import Anthropic

    tools: Any = [{**LOOKUP, "input_schema": ORDER}]
    said: Any = [{"role": "user", "content": text}]
    return Anthropic().messages.create(
        model="claude-haiku-4-5", messages=said, tools=tools, max_tokens=100
    )


@pytest.mark.parametrize("agent", [chat, responses, anthropic])
def test_the_answer_of_a_model_is_read(
    server: Any, monkeypatch: pytest.MonkeyPatch, agent: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    called, said = Talk(agent).say("Where is A1?", "Hello")
    (use,) = called.tool_uses
    assert (use.call.name, use.call.arguments) == ("lookup_order", {"order": "A1"})
    assert (called.usage.input_tokens or 0) > 0
    # A model's last message holds none of the calls that were made before it.
    assert (said.text, said.reports_tools) == ("How can I help?", None)


class Answer(BaseModel):
    text: str
    tool_calls: list[dict[str, Any]] = []


@dataclass
class Said:
    text: str


@pytest.mark.parametrize(
    ("answer", "reports"),
    [
        (Answer(text="hi"), True),
        (Said("hi"), None),
        ([{"role": "assistant", "content": "hi"}], None),
        ([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "hi"}], True),
    ],
)
def test_a_value_shows_its_calls_where_it_has_a_place_for_them(answer: Any, reports: Any) -> None:
    (reply,) = Talk(lambda text: answer).say("Hello")
    assert (reply.text, reply.reports_tools) == ("hi", reports)


def test_messages_are_read_from_the_one_that_was_sent() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}

    def agent(messages: list[dict[str, str]]) -> list[dict[str, Any]]:
        turn = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "found"},
            {"role": "assistant", "content": f"said {len(messages)}"},
        ]
        return [*messages, *turn]

    first, second = Talk(agent).say("Hello", "Hello")
    assert (first.text, second.text) == ("said 1", "said 3")
    assert [len(reply.tool_uses) for reply in (first, second)] == [1, 1]
    assert first.tool_uses[0].response == "found"
