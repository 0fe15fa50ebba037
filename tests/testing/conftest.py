"""What tests of the loopback server share: servers, and calls through the providers' own SDKs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from kindlm.testing import LoopbackServer

KEY = "example-key-0123456789"


@dataclass(frozen=True)
class Refused:
    """A request that was answered with an error status."""

    status: int
    body: Any
    headers: Any


class OpenAIAgent:
    """Speaks to the server through the OpenAI SDK."""

    wire = "openai"
    model = "gpt-4o"

    def __init__(self, url: str, key: str = KEY) -> None:
        self._options = {"base_url": f"{url}/v1", "api_key": key, "max_retries": 0}

    def create(self, **body: Any) -> Any:
        return asyncio.run(self._create(body))

    async def _create(self, body: dict[str, Any]) -> Any:
        async with AsyncOpenAI(**self._options) as client:
            return await client.chat.completions.create(**{"model": self.model, **body})

    def post(self, body: Any) -> Any:
        """The answer to any body, or how it was refused."""

        async def call() -> Any:
            async with AsyncOpenAI(**self._options) as client:
                try:
                    return await client.post("/chat/completions", body=body, cast_to=object)
                except openai.APIStatusError as error:
                    return Refused(error.status_code, error.response.json(), error.response.headers)

        return asyncio.run(call())

    def answer(self, text: str) -> str | None:
        """The reply to one user message."""
        reply = self.create(messages=[{"role": "user", "content": text}])
        return reply.choices[0].message.content

    def judge(self, question: str) -> Any:
        schema = {"name": "kindlm_judgement", "strict": True, "schema": JUDGEMENT_SCHEMA}
        reply = self.create(
            messages=[
                {"role": "system", "content": "Grade."},
                {"role": "user", "content": question},
            ],
            response_format={"type": "json_schema", "json_schema": schema},
        )
        return json.loads(reply.choices[0].message.content)

    def converse(
        self, system: str, user: str, tools: list[str], simulate: Callable[[str, Any], Any]
    ) -> tuple[list[dict[str, Any]], str]:
        """Plays a conversation with tools to its end: the calls made, and the final text."""
        offered = [{"type": "function", "function": {"name": name}} for name in tools]
        messages: list[Any] = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ]
        calls: list[dict[str, Any]] = []
        for _ in range(10):
            reply = self.create(messages=messages, **({"tools": offered} if offered else {}))
            message = reply.choices[0].message
            if not message.tool_calls:
                return calls, message.content
            messages.append(message.model_dump(exclude_none=True, exclude={"annotations"}))
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                response = simulate(call.function.name, arguments)
                calls.append(made(call.function.name, arguments, response))
                content = json.dumps(response)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        raise AssertionError("the conversation does not end")


class ResponsesAgent:
    """Speaks to the server through OpenAI's SDK and the Responses API, which remembers."""

    wire = "openai"
    model = "gpt-4o"

    def __init__(self, url: str, key: str = KEY) -> None:
        self._options = {"base_url": f"{url}/v1", "api_key": key, "max_retries": 0}

    def create(self, **body: Any) -> Any:
        if "messages" in body:
            body["input"] = body.pop("messages")
        return asyncio.run(self._create({"model": self.model, **body}))

    async def _create(self, body: dict[str, Any]) -> Any:
        async with AsyncOpenAI(**self._options) as client:
            return await client.responses.create(**body)

    def post(self, body: Any) -> Any:
        """The answer to any body, or how it was refused."""

        async def call() -> Any:
            async with AsyncOpenAI(**self._options) as client:
                try:
                    return await client.post("/responses", body=body, cast_to=object)
                except openai.APIStatusError as error:
                    return Refused(error.status_code, error.response.json(), error.response.headers)

        return asyncio.run(call())

    def answer(self, text: str) -> str | None:
        """The reply to one user message."""
        return self.create(input=text).output_text

    def judge(self, question: str) -> Any:
        form = {"type": "json_schema", "name": "kindlm_judgement", "schema": JUDGEMENT_SCHEMA}
        text = {"format": {**form, "strict": True}}
        reply = self.create(instructions="Grade.", input=question, text=text)
        return json.loads(reply.output_text)

    def converse(
        self, system: str, user: str, tools: list[str], simulate: Callable[[str, Any], Any]
    ) -> tuple[list[dict[str, Any]], str]:
        """Plays a conversation with tools to its end: the calls made, and the final text."""
        parameters = {"type": "object", "properties": {}}
        offered: Any = [
            {"type": "function", "name": name, "parameters": parameters, "strict": False}
            for name in tools
        ]
        asked: Any = {"input": user}
        calls: list[dict[str, Any]] = []
        for _ in range(10):
            reply = self.create(instructions=system, tools=offered, **asked)
            wanted = [item for item in reply.output if item.type == "function_call"]
            if not wanted:
                return calls, reply.output_text
            results = []
            for call in wanted:
                arguments = json.loads(call.arguments)
                response = simulate(call.name, arguments)
                calls.append(made(call.name, arguments, response))
                result = {"type": "function_call_output", "call_id": call.call_id}
                results.append({**result, "output": json.dumps(response)})
            asked = {"input": results, "previous_response_id": reply.id}
        raise AssertionError("the conversation does not end")


class AnthropicAgent:
    """Speaks to the server through the Anthropic SDK."""

    wire = "anthropic"
    model = "claude-sonnet-5-5"

    def __init__(self, url: str, key: str = KEY) -> None:
        self._options = {"base_url": url, "api_key": key, "max_retries": 0}

    def create(self, **body: Any) -> Any:
        return asyncio.run(self._create(body))

    async def _create(self, body: dict[str, Any]) -> Any:
        async with AsyncAnthropic(**self._options) as client:
            return await client.messages.create(**{"model": self.model, "max_tokens": 1024, **body})

    def post(self, body: Any, *, version: str | None = None) -> Any:
        """The answer to any body, or how it was refused."""
        options: Any = {"headers": {"anthropic-version": version}} if version else {}

        async def call() -> Any:
            async with AsyncAnthropic(**self._options) as client:
                try:
                    return await client.post(
                        "/v1/messages", body=body, cast_to=object, options=options
                    )
                except anthropic.APIStatusError as error:
                    return Refused(error.status_code, error.response.json(), error.response.headers)

        return asyncio.run(call())

    def answer(self, text: str) -> str | None:
        """The reply to one user message."""
        reply = self.create(messages=[{"role": "user", "content": text}])
        return reply.content[0].text if reply.content else None

    def judge(self, question: str) -> Any:
        tool = {"name": "kindlm_judgement", "input_schema": JUDGEMENT_SCHEMA}
        reply = self.create(
            system="Grade.",
            messages=[{"role": "user", "content": question}],
            tools=[tool],
            tool_choice={"type": "tool", "name": "kindlm_judgement"},
            extra_headers={"anthropic-version": "2023-06-01"},
            extra_body={"temperature": 0},
        )
        return reply.content[0].input

    def converse(
        self, system: str, user: str, tools: list[str], simulate: Callable[[str, Any], Any]
    ) -> tuple[list[dict[str, Any]], str]:
        """Plays a conversation with tools to its end: the calls made, and the final text."""
        schema = {"type": "object", "properties": {}}
        offered: Any = [{"name": name, "input_schema": schema} for name in tools]
        messages: list[Any] = [{"role": "user", "content": user}]
        calls: list[dict[str, Any]] = []
        for _ in range(10):
            reply = self.create(system=system, messages=messages, tools=offered)
            uses = [block for block in reply.content if block.type == "tool_use"]
            if not uses:
                return calls, reply.content[0].text
            messages.append({"role": "assistant", "content": reply.content})
            results = []
            for use in uses:
                response = simulate(use.name, use.input)
                calls.append(made(use.name, use.input, response))
                content = json.dumps(response)
                results.append({"type": "tool_result", "tool_use_id": use.id, "content": content})
            messages.append({"role": "user", "content": results})
        raise AssertionError("the conversation does not end")


Agent = OpenAIAgent | ResponsesAgent | AnthropicAgent

JUDGEMENT_SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}, "reasoning": {"type": "string"}},
    "required": ["score", "reasoning"],
    "additionalProperties": False,
}


def made(name: str, arguments: Any, response: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "response": response}


def judge_question(criteria: str, text: str, calls: list[dict[str, Any]] | None = None) -> str:
    """A question as kindlm asks it."""
    messages = [
        {"role": "user", "text": "the question"},
        {"role": "assistant", "text": text, "toolCalls": calls or []},
    ]
    transcript = {"messages": messages, "finalText": text}
    data = {"criteria": criteria, "rubric": "", "transcript": transcript}
    return f"<<<KINDLM-DATA-0badcafe\n{json.dumps(data)}\nKINDLM-DATA-0badcafe>>>"


@pytest.fixture
def serve() -> Iterator[Callable[..., LoopbackServer]]:
    """Starts servers, and stops them after the test."""
    with contextlib.ExitStack() as stack:

        def start(script: Any, **options: Any) -> LoopbackServer:
            return stack.enter_context(LoopbackServer(script, **options))

        yield start


@pytest.fixture(
    params=[OpenAIAgent, ResponsesAgent, AnthropicAgent], ids=["openai", "responses", "anthropic"]
)
def speak(request: pytest.FixtureRequest) -> type[Agent]:
    """Each SDK and format: what a script does, it does through all of them."""
    return request.param


ECHO = {"rules": [{"reply": {"text": "You said: {{user}}"}}]}


@pytest.fixture
def echo(serve: Callable[..., LoopbackServer]) -> LoopbackServer:
    """A server that repeats what the user said."""
    return serve(ECHO)


@pytest.fixture
def openai_echo(echo: LoopbackServer) -> OpenAIAgent:
    return OpenAIAgent(echo.url)


@pytest.fixture
def anthropic_echo(echo: LoopbackServer) -> AnthropicAgent:
    return AnthropicAgent(echo.url)


@pytest.fixture
def ask_judge() -> Callable[..., str]:
    return judge_question


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def openai_agent() -> type[OpenAIAgent]:
    return OpenAIAgent


@pytest.fixture
def responses_agent() -> type[ResponsesAgent]:
    return ResponsesAgent


@pytest.fixture
def anthropic_agent() -> type[AnthropicAgent]:
    return AnthropicAgent
