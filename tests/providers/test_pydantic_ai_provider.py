"""Models by way of Pydantic AI: its real classes, and servers that answer them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import openai
import pytest
from checked_server import LoopbackServer

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.ports import ResponseSchema, ToolDefinition
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Extras, FinishReason, Message, Role, Usage

if int(openai.__version__.partition(".")[0]) < 3:
    pytest.skip("Pydantic AI needs a later OpenAI SDK", allow_module_level=True)

KEY = "sk-planted-0123456789abcdef"
SCRIPT = {
    "models": ["gpt-4o", "o3", "claude-x", {"name": "thinker", "reasoning": True}],
    "keys": [KEY],
    "rules": [
        {"when": {"structured": "mood"}, "reply": {"json": {"mood": "good"}}},
        {
            "when": {"offered": ["mood"]},
            "reply": {"toolCalls": [{"name": "mood", "arguments": {}}]},
        },
        {
            "when": {"notCalled": ["lookup"], "offered": ["lookup"]},
            "reply": {
                "text": "Let me see.",
                "toolCalls": [{"name": "lookup", "arguments": {"id": "A1"}}],
            },
        },
        {"reply": {"text": "Done."}},
    ],
}
TOOLS = (ToolDefinition("lookup", "Finds", {"type": "object", "properties": {"id": {}}}),)
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"type": "string"}},
    "required": ["mood"],
    "additionalProperties": False,
}
SYSTEM, USER = Message(Role.SYSTEM, "Be kind."), Message(Role.USER, "Refund A1")


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(SCRIPT) as running:
        yield running


def make(base_url: str | None = None, **environ: str):
    key = "KEY" if "KEY" in environ else None
    made = make_client(ProviderSettings("pai", "pydantic-ai", key, base_url), environ=environ)
    assert isinstance(made, Ok)
    return made.value


def ask(client, *requests):
    async def run():
        try:
            return [await client.complete(request) for request in requests]
        finally:
            await client.aclose()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("model", "path", "structured"),
    [
        ("openai-chat:gpt-4o", "/v1", '{"mood":"good"}'),
        ("openai:gpt-4o", "/v1", '{"mood":"good"}'),  # OpenAI's Responses
        ("anthropic:claude-x", "", "{}"),  # not known to take a schema: a tool that it must call
    ],
)
def test_a_conversation_arrives_and_is_read(model, path, structured, server, make_request):
    client = make(server.url + path, KEY=KEY)
    # Anthropic's current API takes none.
    params = ModelParams(temperature=None, stop_sequences=("END",) if path == "" else ())
    given = {"model": model, "params": params}

    async def run():
        first = await client.complete(make_request(SYSTEM, USER, tools=TOOLS, **given))
        assert isinstance(first, Ok), first
        calls = first.value.tool_calls
        history = (
            SYSTEM,
            USER,
            Message(Role.ASSISTANT, first.value.text, tool_calls=calls),
            *(Message(Role.TOOL, "{}", tool_call_id=c.id, tool_name=c.name) for c in calls),
        )
        wanted = ResponseSchema("mood", SCHEMA)
        rest = (
            make_request(*history, tools=TOOLS, **given),
            make_request(USER, response_schema=wanted, **given),
            make_request(USER, model=f"{model.partition(':')[0]}:nobody", params=params),
        )
        results = [await client.complete(request) for request in rest]
        await client.aclose()
        return first.value, *results

    first, second, form, unknown = asyncio.run(run())
    assert first.text == "Let me see."
    assert [(call.name, call.arguments) for call in first.tool_calls] == [("lookup", {"id": "A1"})]
    assert first.finish_reason is FinishReason.TOOL_CALLS
    assert first.usage.total > 0
    assert first.raw is None
    assert first.model in ("gpt-4o", "claude-x")
    assert second.value.text == "Done."
    assert second.value.finish_reason is FinishReason.STOP
    assert form.value.text.replace(" ", "") == structured
    assert form.value.tool_calls == ()
    assert unknown.error.code is ErrorCode.PROVIDER_API_ERROR
    assert unknown.error.details["status"] == 404
    assert "nobody" in unknown.error.message


def test_what_a_model_does_not_take_is_named_or_sent_again_without_it(server, make_request):
    requests = [make_request(USER, model="openai-chat:thinker")] * 2
    requests.append(make_request(USER, model="openai:gpt-4o", params=ModelParams(seed=1)))
    first, second, third = ask(make(f"{server.url}/v1", KEY=KEY), *requests)
    assert first.error.details["resend"] is True
    assert second.value.warnings == (
        "`temperature` was not sent: openai-chat:thinker does not take it",
    )
    assert third.value.warnings == ("`seed` was not sent: openai:gpt-4o does not take it",)


@pytest.mark.parametrize(
    ("fault", "code", "details"),
    [
        (
            {"status": 429, "retryAfter": 2},
            ErrorCode.PROVIDER_RATE_LIMIT,
            {"retryable": True, "retry_after": 2.0},
        ),
        ({"status": 500}, ErrorCode.PROVIDER_API_ERROR, {"retryable": True}),
        ({"cut": "headers"}, ErrorCode.PROVIDER_NETWORK_ERROR, {"retryable": True}),
        ({"stallMs": 60_000}, ErrorCode.PROVIDER_TIMEOUT, {"retryable": True}),
    ],
)
def test_one_request_is_made_and_its_failure_has_a_code(fault, code, details, make_request):
    with LoopbackServer({**SCRIPT, "faults": [fault]}) as server:
        timeout_s = 0.5 if "stallMs" in fault else 20.0
        request = make_request(USER, model="openai-chat:gpt-4o", timeout_s=timeout_s)
        (result,) = ask(make(f"{server.url}/v1", KEY=KEY), request)
        assert isinstance(result, Err)
        assert result.error.code is code
        assert result.error.details.items() >= details.items()
        assert len(server.requests) <= 1


def test_what_a_model_thought_goes_back_with_the_results_of_its_calls(peer, http, make_request):
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}
    answer = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x"}
    answer |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
    first = http(200, answer | {"content": [thought, call], "stop_reason": "tool_use"})

    async def run():
        async with peer(first) as server:
            client = make(server.url, KEY=KEY)
            said = (await client.complete(make_request(USER, model="anthropic:claude-x"))).value
            back = (
                Message(Role.ASSISTANT, said.text, tool_calls=said.tool_calls, echo=said.echo),
                Message(Role.TOOL, "{}", tool_call_id="toolu_1", tool_name="lookup"),
            )
            await client.complete(make_request(USER, *back, model="anthropic:claude-x"))
            await client.aclose()
            return server.received[1].body["messages"][1]["content"]

    assert [block["type"] for block in asyncio.run(run())] == ["thinking", "tool_use"]


def test_one_conversation_gets_no_answer_of_another(make_request):
    """Models number their calls from 1 in each conversation."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    asked = []

    def answer(messages, _):
        asked.append(messages)
        who = messages[0].parts[0].content
        return ModelResponse([TextPart(f"I look, {who}"), ToolCallPart("lookup", {}, "call_1")])

    async def run():
        client = make()
        client._models["m"] = FunctionModel(answer)
        users = [Message(Role.USER, "A"), Message(Role.USER, "B")]
        first = [(await client.complete(make_request(user, model="m"))).value for user in users]
        for user, said in zip(users, first, strict=True):
            back = Message(Role.ASSISTANT, said.text, tool_calls=said.tool_calls, echo=said.echo)
            done = Message(Role.TOOL, "{}", tool_call_id="call_1", tool_name="lookup")
            await client.complete(make_request(user, back, done, model="m"))

    asyncio.run(run())
    assert [messages[1].parts[0].content for messages in asked[2:]] == ["I look, A", "I look, B"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [("error", "an error cut the answer off"), ("length", "asks again with room for reasoning")],
)
def test_an_answer_of_no_use_is_an_error_that_is_billed(reason, message, make_request):
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    cached = {"cache_read_tokens": 2, "cache_write_tokens": 4}
    usage = RequestUsage(input_tokens=10, output_tokens=5, **cached)
    answer = ModelResponse([TextPart("I refund")], finish_reason=reason, usage=usage)
    client = make()
    client._models["m"] = FunctionModel(lambda *_: answer)
    wanted = ResponseSchema("mood", SCHEMA)
    (result,) = ask(client, make_request(USER, model="m", response_schema=wanted))
    assert isinstance(result, Err)
    assert message in result.error.message
    assert result.error.details["usage"] == Usage(10, 5, Extras(2, 4))


@pytest.mark.parametrize(("call_id", "name"), [(None, "lookup"), ("", "lookup"), ("c", None)])
def test_a_call_without_an_id_or_a_name_is_an_error_of_the_answer(call_id, name, make_request):
    """As Groq's SDK makes them, which does not validate answers."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    class Answers(FunctionModel):
        async def request(self, *_):
            parts = [ToolCallPart("lookup", {}, "call_1"), ToolCallPart(name, {}, call_id)]
            return ModelResponse(parts, usage=RequestUsage(input_tokens=10, output_tokens=5))

    client = make()
    client._models["m"] = Answers(lambda *_: None)
    (result,) = ask(client, make_request(USER, model="m"))
    assert isinstance(result, Err), result
    assert result.error.code is ErrorCode.PROVIDER_API_ERROR
    assert "a tool call in the answer has no id or no name" in result.error.message
    assert result.error.details["usage"] == Usage(10, 5)


class _Finder:
    """Keeps in which threads modules of Pydantic AI are imported."""

    def __init__(self) -> None:
        self.threads = {}

    def find_spec(self, name, *_):
        if name.startswith("pydantic_ai"):
            self.threads[name] = threading.current_thread()


def test_other_calls_go_on_while_an_sdk_is_imported(make_request, monkeypatch):
    for name in ("pydantic_ai.models.ollama", "pydantic_ai.providers.ollama"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    finder = _Finder()
    client = make("http://127.0.0.1:9/v1")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    ask(client, make_request(USER, model="ollama:m"))
    assert {"pydantic_ai.models.ollama", "pydantic_ai.providers.ollama"} <= finder.threads.keys()
    assert threading.main_thread() not in finder.threads.values()


def test_gemini_is_spoken_to_in_its_own_format(peer, http, make_request):
    pytest.importorskip("google.genai")
    call = {"functionCall": {"name": "lookup", "args": {"id": "A1"}}, "thoughtSignature": "c2ln"}
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10},
        "modelVersion": "gemini-2.5-flash-001",
    }
    busy = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota"}
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    answers = http(200, answer), http(429, {"error": {**busy, "details": [info]}})
    given = {"model": "google:gemini-2.5-flash", "tools": TOOLS}

    async def run():
        async with peer(*answers) as server:
            client = make(server.url, KEY=KEY)
            said = (await client.complete(make_request(SYSTEM, USER, **given))).value
            back = (
                Message(Role.ASSISTANT, said.text, tool_calls=said.tool_calls, echo=said.echo),
                Message(Role.TOOL, "ok", tool_call_id=said.tool_calls[0].id, tool_name="lookup"),
            )
            failed = await client.complete(make_request(SYSTEM, USER, *back, **given))
            await client.aclose()
            return said, failed, server.received

    said, failed, (first, second) = asyncio.run(run())
    assert first.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert first.headers["x-goog-api-key"] == KEY
    assert said.tool_calls[0].arguments == {"id": "A1"}
    assert said.finish_reason is FinishReason.TOOL_CALLS
    assert said.usage == Usage(7, 3)
    assert said.model == "gemini-2.5-flash-001"
    _, model, user = second.body["contents"]
    assert model["parts"][0]["thoughtSignature"] == "c2ln"
    assert user["parts"][0]["functionResponse"]["name"] == "lookup"
    assert failed.error.code is ErrorCode.PROVIDER_RATE_LIMIT
    assert failed.error.details["retry_after"] == 34


def test_boto3_sends_a_request_to_bedrock_once(peer, http, make_request, monkeypatch, tmp_path):
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)

    async def run():
        async with peer(http(503, {"message": "Busy"}, {"connection": "close"})) as server:
            client = make(
                AWS_ENDPOINT_URL_BEDROCK_RUNTIME=server.url,
                AWS_ACCESS_KEY_ID="AKIAPLANTED123456",
                AWS_SECRET_ACCESS_KEY=KEY,
                AWS_DEFAULT_REGION="eu-west-1",
            )
            result = await client.complete(make_request(USER, model="bedrock:amazon.nova-pro-v1:0"))
            await client.aclose()
            return result.error, server.received

    error, received = asyncio.run(run())
    assert error.message == "pai returned 503: Busy"
    assert error.details["retryable"] is True
    assert [each.path for each in received] == ["/model/amazon.nova-pro-v1%3A0/converse"]


def test_keys_come_from_env_files_and_go_to_no_address_of_the_user(
    peer, http, make_request, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def sent(configured: bool):
        async with peer(http(401, {"error": {"message": f"Bad key {KEY}"}})) as server:
            environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
            client = make(server.url if configured else None, **environ)
            await client.complete(make_request(USER, model="openai-chat:gpt-4o"))
            await client.aclose()
            return server.received[0].headers["authorization"]

    assert asyncio.run(sent(configured=False)) == f"Bearer {KEY}"
    assert asyncio.run(sent(configured=True)) == "Bearer unused"
    assert "OPENAI_API_KEY" not in os.environ


OF_OTHERS = {
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer ambient\nx-ambient: ambient",
    "ANTHROPIC_CUSTOM_HEADERS": "x-api-key: ambient\nx-ambient: ambient",
}


@pytest.mark.parametrize(
    ("model", "is_configured", "is_own"),
    [
        ("openai-chat:gpt-4o", False, True),
        ("openai-chat:gpt-4o", True, False),
        ("anthropic:claude-x", True, False),
        ("moonshotai:kimi-latest", True, False),
        ("moonshotai:kimi-latest", False, False),
    ],
)
def test_variables_of_one_provider_go_to_no_other(
    model, is_configured, is_own, peer, http, make_request, monkeypatch
):
    for variable, value in OF_OTHERS.items():
        monkeypatch.setenv(variable, value)

    async def sent():
        async with peer(http(500, {})) as server:
            url = {} if is_configured else dict.fromkeys(ADDRESSES, server.url)
            client = make(server.url if is_configured else None, KEY=KEY, **url, **OF_OTHERS)
            await client.complete(make_request(USER, model=model))
            await client.aclose()
            return str(server.received[0].headers)

    assert ("ambient" in asyncio.run(sent())) == is_own
    assert os.environ.items() >= OF_OTHERS.items()


ADDRESSES = "OPENAI_BASE_URL", "MOONSHOTAI_BASE_URL"


@pytest.mark.parametrize("configured", [True, False])
def test_hints_name_the_settings_that_there_are(configured, peer, http, make_request):
    async def run():
        async with peer(http(401, {}, {"connection": "close"})) as server:
            client = make(server.url if configured else None, OPENAI_BASE_URL=server.url)
            refused = await client.complete(make_request(USER, model="openai-chat:gpt-4o"))
        gone = await client.complete(make_request(USER, model="openai-chat:gpt-4o"))
        await client.aclose()
        return refused.error, gone.error

    refused, gone = asyncio.run(run())
    assert "providers.pai.apiKeyEnv" in refused.hint
    assert ("providers.pai.baseUrl" in gone.hint) == configured
    assert (" at http" in gone.message) == configured
    assert "://:" not in gone.message


def test_what_is_missing_is_named(make_request, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "mistralai", None)
    monkeypatch.setitem(sys.modules, "mistralai.client", None)
    names = ("mistral:mistral-large-latest", "opnai:gpt-4o", "openai:gpt-4o")
    package, name, key = (
        each.error for each in ask(make(), *[make_request(USER, model=name) for name in names])
    )
    assert package.code is ErrorCode.PROVIDER_NOT_FOUND
    assert 'pip install "pydantic-ai-slim[mistral]"' in package.message
    assert name.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "opnai:gpt-4o" in name.message
    assert key.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert "`OPENAI_API_KEY`" in key.message
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    made = make_client(ProviderSettings("pai", "pydantic-ai"), environ={})
    assert isinstance(made, Err)
    assert made.error.hint == "Install it: pip install 'kindlm[models]'"
