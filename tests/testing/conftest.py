"""What tests of the loopback server share: requests in this process, and the providers' SDKs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from kindlm.testing import LoopbackServer
from kindlm.testing.http1 import HttpAnswer, HttpRequest
from kindlm.testing.loopback import App
from kindlm.testing.node import Node
from kindlm.testing.script import load_script, read_faults

KEY = "example-key-0123456789"
HI = {"role": "user", "content": "Hi"}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HEADERS = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
ECHO = {"rules": [{"reply": {"text": "You said: {{user}}"}}]}


class Asked:
    """An app that is asked in this process, without a socket."""

    def __init__(self, script: Any, faults: Any = ()) -> None:
        self.app = App(load_script(script))
        if faults:
            self.app.use_faults(read_faults(Node(list(faults), "faults")))

    def post(self, path: str, **body: Any) -> HttpAnswer:
        """The answer to a request; what is None in a body is left out."""
        whole = {"model": "m", "max_tokens": 99} if path == MESSAGES else {"model": "m"}
        whole |= {"input": [HI]} if path == RESPONSES else {"messages": [HI]}
        whole = {key: value for key, value in (whole | body).items() if value is not None}
        return self.app.handle(HttpRequest("POST", path, HEADERS, json.dumps(whole).encode()))

    def refused(self, path: str, **body: Any) -> dict[str, Any]:
        """The error of a request that is refused with 400."""
        answer = self.post(path, **body)
        assert answer.status == 400, answer
        error: dict[str, Any] = json.loads(answer.body)["error"]
        return error

    def message(self, user: str = "Hi", **body: Any) -> Any:
        """The message that replies to a user, as Chat Completions has it."""
        messages = [{"role": "user", "content": user}]
        answer = self.post(CHAT, **{"messages": messages, **body})
        assert answer.status == 200, answer
        return json.loads(answer.body)["choices"][0]["message"]


@pytest.fixture
def serve() -> Iterator[Callable[..., LoopbackServer]]:
    """Starts servers, and stops them after the test."""
    started: list[LoopbackServer] = []

    def start(script: Any, **options: Any) -> LoopbackServer:
        started.append(LoopbackServer(script, **options))
        return started[-1].__enter__()

    yield start
    for server in started:
        server.__exit__(None, None, None)


def made(name: str, arguments: Any, response: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "response": response}


async def openai_talk(url: str, system: str, user: str, simulate: Any) -> tuple[list[Any], str]:
    """Plays a conversation with tools to its end: the calls made, and the final text."""
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
    ]
    tools: Any = [{"type": "function", "function": {"name": name}} for name in simulate]
    calls: list[Any] = []
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            reply = await client.chat.completions.create(
                model="gpt-4o", messages=messages, tools=tools
            )
            message = reply.choices[0].message
            if not message.tool_calls:
                return calls, message.content or ""
            messages.append(message.model_dump(exclude_none=True, exclude={"annotations"}))
            for call in message.tool_calls:
                result = simulate[call.function.name]
                arguments = json.loads(call.function.arguments)
                calls.append(made(call.function.name, arguments, result))
                content = json.dumps(result)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def responses_talk(url: str, system: str, user: str, simulate: Any) -> tuple[list[Any], str]:
    tools: Any = [
        {"type": "function", "name": name, "parameters": {}, "strict": False} for name in simulate
    ]
    asked: Any = {"input": user}
    calls: list[Any] = []
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            reply = await client.responses.create(
                model="gpt-4o", instructions=system, tools=tools, **asked
            )
            wanted = [item for item in reply.output if item.type == "function_call"]
            if not wanted:
                return calls, reply.output_text
            results = []
            for call in wanted:
                result = simulate[call.name]
                calls.append(made(call.name, json.loads(call.arguments), result))
                output = {"type": "function_call_output", "call_id": call.call_id}
                results.append({**output, "output": json.dumps(result)})
            asked = {"input": results, "previous_response_id": reply.id}


async def anthropic_talk(url: str, system: str, user: str, simulate: Any) -> tuple[list[Any], str]:
    # It takes seconds to load, which not every process of the tests has to spend.
    from anthropic import AsyncAnthropic

    tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in simulate]
    messages: list[Any] = [{"role": "user", "content": user}]
    calls: list[Any] = []
    async with AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        while True:
            reply: Any = await client.messages.create(
                model="claude-x", max_tokens=99, system=system, messages=messages, tools=tools
            )
            uses = [block for block in reply.content if block.type == "tool_use"]
            if not uses:
                return calls, reply.content[0].text
            messages.append({"role": "assistant", "content": reply.content})
            results = []
            for use in uses:
                calls.append(made(use.name, use.input, simulate[use.name]))
                content = json.dumps(simulate[use.name])
                results.append({"type": "tool_result", "tool_use_id": use.id, "content": content})
            messages.append({"role": "user", "content": results})


@pytest.fixture(params=[openai_talk, responses_talk, anthropic_talk])
def converse(request: pytest.FixtureRequest) -> Callable[..., tuple[list[Any], str]]:
    """Each SDK and format: what a script does, it does through all of them."""
    return lambda *arguments: asyncio.run(request.param(*arguments))


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
def ask_judge() -> Callable[..., str]:
    return judge_question


@pytest.fixture
def asked() -> type[Asked]:
    return Asked


@pytest.fixture
def echo() -> Asked:
    """An app that repeats what the user said."""
    return Asked(ECHO)


@pytest.fixture
def key() -> str:
    return KEY
