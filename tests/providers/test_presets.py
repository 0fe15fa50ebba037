"""Presets: each goes to its own address with its own key, and says things as its API wants them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import aiohttp
import pytest
from suites import make_suite

from kindlm.cli.app import run
from kindlm.errors import Err, ErrorCode, Ok
from kindlm.packages import all_own, own
from kindlm.plugins import Access, Maybe, Provider
from kindlm.ports import ModelReply, ModelRequest, ResponseSchema
from kindlm.pricing import prices_of
from kindlm.providers.embedders import find_embedder
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Usage
from kindlm.wires import error_message

KEY = "a-key-of-the-preset-0123456789"
PRESETS = {name: kind for name, kind in all_own(Provider).items() if kind.usual_base_url}
GOOGLE = "https://europe-west4-aiplatform.googleapis.com/v1/projects/acme/locations/europe-west4"
CHATS = {
    "azure": "https://acme-eu.openai.azure.com/openai/v1/chat/completions",
    "bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1/chat/completions",
    "cohere": "https://api.cohere.ai/compatibility/v1/chat/completions",
    "deepseek": "https://api.deepseek.com/chat/completions",
    "fireworks": "https://api.fireworks.ai/inference/v1/chat/completions",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    "lmstudio": "http://127.0.0.1:1234/v1/chat/completions",
    "mistral": "https://api.mistral.ai/v1/chat/completions",
    "openrouter": "https://openrouter.ai/api/v1/chat/completions",
    "together": "https://api.together.ai/v1/chat/completions",
    "vertex": f"{GOOGLE}/endpoints/openapi/chat/completions",
    "vllm": "http://127.0.0.1:8000/v1/chat/completions",
    "xai": "https://api.x.ai/v1/chat/completions",
}
OPTIONS: dict[str, dict[str, str]] = {
    "azure": {"resource": "acme-eu"},
    "bedrock": {"region": "eu-central-1"},
    "vertex": {"project": "acme", "location": "europe-west4"},
}
OF_OPENAI = {
    "OPENAI_API_KEY": "sk-ambient",
    "OPENAI_ADMIN_KEY": "sk-admin-ambient",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/ambient",
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_CUSTOM_HEADERS": "X-Ambient: ambient",
}


@dataclass
class Network:
    """What is sent in place of a network, and what comes back: each answer once."""

    answers: list[dict[str, Any]]
    urls: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def post(self, url: Any, *, headers: Any, data: bytes, **_: Any) -> Answer:
        self.urls.append(str(url))
        self.headers.append({name.lower(): value for name, value in headers.items()})
        self.bodies.append(json.loads(data))
        return Answer(json.dumps(self.answers.pop(0)).encode())


class Answer:
    """An answer of aiohttp."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.content = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        yield self.body


def said(message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {"choices": [{"message": message, "finish_reason": reason}]}


DONE = said({"role": "assistant", "content": "Done."})


@pytest.fixture
def network(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = Network([DONE])
    monkeypatch.setattr(aiohttp.ClientSession, "post", lambda _, *a, **k: found.post(*a, **k))
    return found


def settings_of(name: str, **changes: Any) -> ProviderSettings:
    return ProviderSettings(name, name, options=PRESETS[name](**OPTIONS.get(name, {})), **changes)


def client_of(name: str, environ: dict[str, str]):
    variable = PRESETS[name].usual_key_variable
    keys = {} if variable is None else {variable: KEY}
    made = make_client(settings_of(name), environ={**environ, **keys})
    assert isinstance(made, Ok)
    return made.value


def ask(name: str, *requests: ModelRequest) -> list[ModelReply]:
    async def run():
        client = client_of(name, {})
        try:
            return [await client.complete(request) for request in requests]
        finally:
            await client.aclose()

    found = asyncio.run(run())
    assert all(isinstance(each, Ok) for each in found), found
    return [each.value for each in found]


@pytest.mark.parametrize("name", PRESETS)
def test_a_request_goes_to_its_own_address_with_its_own_key(
    name, network, make_request, monkeypatch
):
    for variable, value in OF_OPENAI.items():
        monkeypatch.setenv(variable, value)
    ask(name, make_request())
    assert network.urls == [CHATS[name]]
    (headers,) = network.headers
    expected = None if PRESETS[name].usual_key_variable is None else f"Bearer {KEY}"
    assert headers.get("authorization") == expected
    assert not {"openai-organization", "openai-project", "x-ambient"} & headers.keys()
    assert "ambient" not in str(headers)


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].usual_key_variable])
def test_the_key_of_openai_is_no_key_of_a_preset(name):
    made = make_client(settings_of(name), environ=OF_OPENAI)
    assert isinstance(made, Err)
    assert made.error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert PRESETS[name].usual_key_variable in made.error.hint


def test_what_the_sdk_said_of_one_preset_is_not_sent_to_another(network, make_request, monkeypatch):
    network.answers = [DONE] * 3
    ask("groq", make_request())
    import openai

    # What it said is kept: the second run needs no SDK. For another preset it is asked again.
    with monkeypatch.context() as patch:
        patch.delattr(openai, "AsyncOpenAI")
        ask("groq", make_request())
    ask("deepseek", make_request())
    first, second, other = network.headers
    assert first == second
    assert (first["host"], other["host"]) == ("api.groq.com", "api.deepseek.com")


@pytest.mark.parametrize(
    ("preset", "option", "value"),
    [
        ("azure", "resource", "https://acme.openai.azure.com"),
        ("azure", "resource", "evil.example/"),
        ("azure", "resource", "a@b"),
        ("vertex", "project", ".."),
        ("anthropic-vertex", "project", "a/../b"),
    ],
)
def test_an_option_cannot_lead_to_another_address(preset, option, value):
    kind = own(Provider, preset)
    rest = {"location": "global"} if option == "project" else {}
    settings = ProviderSettings(
        "p", preset, options=kind.model_construct(**rest, **{option: value})
    )
    made = make_client(settings, environ={kind.usual_key_variable or "": KEY})
    assert isinstance(made, Err)
    assert made.error.code is ErrorCode.CONFIG_VALIDATION_ERROR
    assert made.error.message == f"The {option} of the provider p cannot be a part of an address"
    assert not made.error.details.get("retryable")


def test_texts_are_embedded_by_the_model_of_the_preset(network):
    network.answers = [{"data": [{"index": 0, "embedding": [0.5, 1.0]}]}]

    def found(*names: str) -> Any:
        suite = make_suite(providers={name: settings_of(name) for name in names})
        keys = {"GROQ_API_KEY": KEY, "MISTRAL_API_KEY": KEY}
        return find_embedder(suite, "an-agent", environ=keys)

    async def run():
        embedder = found("groq", "mistral").value
        embedding = await embedder.embed(["Hello"], 20.0)
        await embedder.aclose()
        return embedding

    assert isinstance(asyncio.run(run()), Ok)
    assert network.urls == ["https://api.mistral.ai/v1/embeddings"]
    assert network.bodies == [{"model": "mistral-embed", "input": ["Hello"]}]
    assert found("groq").error.code is ErrorCode.PROVIDER_NOT_FOUND


def test_vertex_is_at_another_host_for_the_global_location():
    kind = own(Provider, "vertex")
    assert kind is not None
    assert kind(project="acme", location="global").base_url() == (
        "https://aiplatform.googleapis.com/v1/projects/acme/locations/global/endpoints/openapi"
    )


SCHEMA = ResponseSchema("mood", {"type": "object", "properties": {"mood": {"type": "string"}}})
PARAMS = ModelParams(seed=7, written=frozenset({"seed"}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # As OpenAI has it: the model is the name of a deployment there.
        ("azure", {"model": "gpt-4o", "max_tokens": 1024, "seed": 7}),
        ("bedrock", {"model": "gpt-4o", "max_tokens": 1024, "seed": 7}),
        ("mistral", {"random_seed": 7}),
        ("deepseek", {"response_format": {"type": "json_object"}}),
    ],
)
def test_parameters_have_the_names_that_the_api_knows(name, expected, network, make_request):
    (reply,) = ask(name, make_request(params=PARAMS, response_schema=SCHEMA))
    (body,) = network.bodies
    assert body | expected == body
    assert ("seed" in body) == (name != "mistral")
    assert (body["response_format"]["type"] == "json_schema") == (name != "deepseek")
    assert len(reply.warnings) == (name == "deepseek")


class Quokka(PRESETS["mistral"]):  # type: ignore[misc, name-defined]
    usual_base_url = "https://{region}.quokka.test/v1"

    region: Maybe[str] = None
    safe_prompt: Maybe[bool] = None
    limits: Maybe[dict[str, int]] = None


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {}),
        ({"safePrompt": False, "limits": {"x": 1}}, {"safe_prompt": False, "limits": {"x": 1}}),
    ],
)
def test_options_that_are_not_in_the_address_are_sent(options, sent, network, make_request):
    preset = Quokka(region="eu", **options)

    async def run():
        client = preset.connect(Access(None, KEY, {}))
        await client.complete(make_request())
        await client.aclose()

    asyncio.run(run())
    assert network.urls == ["https://eu.quokka.test/v1/chat/completions"]
    (body,) = network.bodies
    assert body | sent == body
    assert not {"region", "safe_prompt", "limits"} & (body.keys() - sent.keys())


def test_a_judge_that_thinks_is_asked_again_with_room_for_it(network, make_request):
    cut = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}
    network.answers = [cut, DONE, cut]
    judged, asked = make_request(response_schema=SCHEMA), make_request()

    async def run():
        client = client_of("gemini", {})
        results = [await client.complete(request) for request in (judged, judged, asked)]
        await client.aclose()
        return results

    first, second, users = asyncio.run(run())
    assert isinstance(first, Err)
    assert first.error.details["resend"] is True
    assert isinstance(second, Ok)
    assert isinstance(users, Ok)  # what users let a model write is theirs to say
    assert [body["max_tokens"] for body in network.bodies] == [1024, 1024 + 25_000, 1024]


LATE = {"code": 502, "message": "The provider broke off"}
PARTIAL = {"message": {"content": "Partial"}, "finish_reason": "error", "error": LATE}


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (
            {"error": {"code": 429, "message": "Slow down"}},
            ErrorCode.PROVIDER_RATE_LIMIT,
            "openrouter rate limit hit",
        ),
        (
            {"choices": [PARTIAL]},
            ErrorCode.PROVIDER_API_ERROR,
            "openrouter returned 502: The provider broke off",
        ),
    ],
)
def test_an_error_that_comes_as_a_success_is_one_of_its_status(
    answer, code, message, network, make_request
):
    network.answers = [answer]

    async def run():
        client = client_of("openrouter", {})
        result = await client.complete(make_request())
        await client.aclose()
        return result

    result = asyncio.run(run())
    assert isinstance(result, Err)
    assert (result.error.code, result.error.message) == (code, message)
    assert result.error.details["retryable"] is True


def test_an_error_in_a_list_is_quoted():
    told = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
    assert error_message([{"error": {"code": 400, "message": told}}]) == told


TOKENS = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("told", "output"),
    [
        ({**TOKENS, "total_tokens": 15}, 5),
        # xAI counts what a model thought in the total alone.
        ({**TOKENS, "total_tokens": 322}, 312),
        (TOKENS, 5),
        ({"total_tokens": 15}, None),
    ],
)
def test_what_a_model_thought_is_output(told, output, network, make_request):
    network.answers = [{**DONE, "usage": told}]
    (reply,) = ask("xai", make_request())
    assert reply.usage.output_tokens == output


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("azure", "gpt-4o"),
        ("bedrock", "openai.gpt-oss-120b-1:0"),
        ("gemini", "gemini-2.5-flash"),
        ("vertex", "google/gemini-2.5-pro"),
        ("xai", "grok-4"),
        ("fireworks", "accounts/fireworks/models/gpt-oss-120b"),
    ],
)
def test_listed_prices_are_those_of_the_preset_under_any_name(name, model):
    settings = replace(settings_of(name), name="ours")
    prices = prices_of(make_suite(providers={"ours": settings}))
    cost = prices.cost("ours", model, Usage(1_000_000, 0))
    assert cost == prices.cost(name, model, Usage(1_000_000, 0))
    assert cost.usd


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("anthropic-bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("anthropic-vertex", "claude-sonnet-4-5@20250929"),
        ("pydantic-ai", "google:gemini-2.5-flash"),
    ],
)
def test_listed_prices_are_those_of_the_usual_address_under_any_name(kind, model):
    ours, elsewhere = ProviderSettings("ours", kind), ProviderSettings("elsewhere", kind, None, "x")
    prices = prices_of(make_suite(providers={"ours": ours, "elsewhere": elsewhere}))
    cost = prices.cost("ours", model, Usage(1_000_000, 0), requested=model)
    assert cost == prices.cost(kind, model, Usage(1_000_000, 0), requested=model)
    assert cost.usd
    assert prices.cost("elsewhere", model, Usage(1_000_000, 0)).usd is None


def test_a_scripted_model_costs_nothing_under_any_name():
    prices = prices_of(make_suite(providers={"ours": ProviderSettings("ours", "scripted")}))
    assert prices.cost("ours", "fixed-1", Usage(0, 0)).usd == 0
    assert prices.cost("ours", "gpt-4o", Usage()).usd == 0


SIGNATURE = {"extra_content": {"google": {"thought_signature": "CrICAdHtim8"}}}
CALL = {"id": "call-1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
WITHOUT_ID = {name: CALL[name] for name in ("type", "function")}
SUITE = """
model: {name}/m
tests:
  - name: looks-it-up
    input: Where is it?
    tools: [{{ name: lookup, defaultResponse: shipped }}]
    expect: {{ toolCalls: [lookup] }}
"""


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("gemini", {"tool_calls": [CALL | SIGNATURE]}, {"tool_calls": [CALL | SIGNATURE]}),
        (
            "gemini",
            {"tool_calls": [WITHOUT_ID | SIGNATURE, WITHOUT_ID]},
            {"tool_calls": [CALL | {"id": "call_0"} | SIGNATURE, CALL | {"id": "call_1"}]},
        ),
        (
            "deepseek",
            {"tool_calls": [CALL], "reasoning_content": "I look."},
            {"tool_calls": [CALL], "reasoning_content": "I look."},
        ),
        (
            "openrouter",
            {"tool_calls": [CALL], "reasoning": "I look.", "reasoning_details": [{"data": "x"}]},
            {"tool_calls": [CALL], "reasoning_details": [{"data": "x"}]},
        ),
        ("groq", {"tool_calls": [CALL], "reasoning": "I look."}, {"tool_calls": [CALL]}),
    ],
)
def test_what_a_model_thought_before_its_calls_goes_back_to_it(
    name, message, expected, network, tmp_path, monkeypatch
):
    called = {"role": "assistant", "content": None}
    network.answers = [said({**called, **message}), DONE]
    variable = PRESETS[name].usual_key_variable
    assert variable is not None
    monkeypatch.setenv(variable, KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kindlm.yaml").write_text(SUITE.format(name=name), "utf-8")
    assert run(["test", "--quiet"]) == 0
    assert network.bodies[1]["messages"][1] == called | expected
