"""Embeddings: who is asked, what is understood, and that nothing is downloaded or left open."""

from __future__ import annotations

import asyncio
import json
import math
from importlib.util import find_spec

import pytest
from checked_server import LoopbackServer
from suites import make_suite

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.providers.embedders import find_embedder
from kindlm.suite import ModelTarget, ProviderSettings, Suite

KEY = "sk-planted-0123456789abcdef"
OPENAI = ProviderSettings("openai", "openai", "OPENAI_API_KEY")
ANTHROPIC = ProviderSettings("anthropic", "anthropic", "ANTHROPIC_API_KEY")
OLLAMA = ProviderSettings("ollama", "ollama")
LOCAL = ProviderSettings("local", "openai", None, "http://127.0.0.1:1/v1")


def suite_of(*providers: ProviderSettings) -> Suite:
    """Return a suite with these providers, and a model of each under its name."""
    return make_suite(
        providers={provider.name: provider for provider in providers},
        models={p.name: ModelTarget(p.name, p.name, "m") for p in providers},
    )


def found(suite: Suite, target: str, **environ: str):
    result = find_embedder(suite, target, environ=environ)
    assert isinstance(result, Ok), result
    return result.value


def refused(suite: Suite, target: str, **environ: str):
    result = find_embedder(suite, target, environ=environ)
    assert isinstance(result, Err), result
    return result.error


def embed(settings, texts, *, timeout_s=20.0, **environ):
    embedder = found(suite_of(settings), settings.name, **environ)
    return asyncio.run(once(embedder, texts, timeout_s))


async def once(embedder, texts, timeout_s=20.0):
    """Embed and close, as a run does at its end."""
    try:
        return await embedder.embed(texts, timeout_s)
    finally:
        await embedder.aclose()


def cosine(left, right):
    return (
        math.sumprod(left, right)
        if hasattr(math, "sumprod")
        else sum(a * b for a, b in zip(left, right, strict=True))
    )


@pytest.mark.parametrize(
    ("providers", "target", "who", "model"),
    [
        ((ANTHROPIC, OPENAI, OLLAMA), "openai", "openai", "text-embedding-3-small"),
        ((ANTHROPIC, OPENAI, OLLAMA), "anthropic", "openai", "text-embedding-3-small"),
        ((ANTHROPIC, OLLAMA), "anthropic", "ollama", "nomic-embed-text"),
        ((OPENAI, LOCAL), "local", "local", "text-embedding-3-small"),
        ((ANTHROPIC, OLLAMA), "an-agent", "ollama", "nomic-embed-text"),
    ],
)
def test_the_target_s_own_provider_comes_first(providers, target, who, model):
    embedder = found(suite_of(*providers), target, OPENAI_API_KEY=KEY)
    assert (embedder.provider, embedder.model) == (who, model)


def test_a_provider_without_its_key_is_passed_over():
    assert found(suite_of(ANTHROPIC, OPENAI, OLLAMA), "anthropic").provider == "ollama"


def test_a_missing_key_is_reported_where_nothing_else_reports_it():
    error = refused(suite_of(ANTHROPIC, OPENAI), "anthropic")
    assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert "OPENAI_API_KEY" in error.message


def test_where_no_model_can_the_error_says_what_to_configure():
    error = refused(suite_of(ANTHROPIC), "anthropic", ANTHROPIC_API_KEY=KEY)
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "KINDLM_EMBEDDING_MODEL" in (error.hint or "")


def test_openai_s_endpoint_gives_vectors_in_order():
    with LoopbackServer({"keys": [KEY], "rules": [{"reply": {"text": "x"}}]}) as server:
        settings = ProviderSettings("mine", "openai", "MY_KEY", f"{server.url}/v1")
        texts = ["refund the order", "the order refund", "blue whales sing", ""]
        result = embed(settings, texts, MY_KEY=KEY)
    assert isinstance(result, Ok), result
    one, same, other, _ = result.value.vectors
    assert cosine(one, same) > 0.8 > cosine(one, other)
    assert result.value.usage.input_tokens
    assert result.value.latency_ms > 0


def test_openai_s_key_is_refused_and_never_shown(peer, http):
    async def run():
        body = {"error": {"message": f"Incorrect API key: {KEY}"}}
        async with peer(http(401, body)) as server:
            settings = ProviderSettings("openai", "openai", "MY_KEY", f"{server.url}/v1")
            embedder = found(suite_of(settings), "openai", MY_KEY=KEY)
            return await once(embedder, ["a"]), server

    result, server = asyncio.run(run())
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert KEY not in repr(result.error)
    assert server.received[0].path == "/v1/embeddings"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.received[0].body == {"model": "text-embedding-3-small", "input": ["a"]}


@pytest.fixture
def ask(peer, http):
    """Embed two texts by Ollama, whose server gives this answer."""

    def ask(answer, *, timeout_s=20.0):
        async def run():
            async with peer(answer) as server:
                settings = ProviderSettings("ollama", "ollama", base_url=server.url)
                embedder = found(suite_of(settings), "ollama")
                return await once(embedder, ["a", "b"], timeout_s), server

        return asyncio.run(run())

    return ask


def test_ollama_gives_vectors(ask, http):
    body = {"model": "n", "embeddings": [[1, 0.5], [0.0, -1]], "prompt_eval_count": 9}
    result, server = ask(http(200, body))
    assert isinstance(result, Ok)
    assert result.value.vectors == ((1.0, 0.5), (0.0, -1.0))
    assert result.value.usage.input_tokens == 9
    assert server.received[0].path == "/api/embed"
    assert server.received[0].body == {"model": "nomic-embed-text", "input": ["a", "b"]}


def test_an_embedding_model_that_is_not_there_can_be_fetched(ask, http):
    result, _ = ask(http(404, {"error": 'model "nomic-embed-text" not found'}))
    assert isinstance(result, Err)
    assert result.error.hint == "Fetch the model: ollama pull nomic-embed-text"


@pytest.mark.parametrize(
    "embeddings",
    [
        None,
        [[1.0]],
        [[1.0], [1.0, 2.0]],
        [[], []],
        [[1.0], [{}]],
        [[1.0], [10**400]],
    ],
)
def test_what_is_no_pair_of_vectors_is_an_error(ask, http, embeddings):
    result, _ = ask(http(200, {"embeddings": embeddings}))
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_API_ERROR


@pytest.mark.parametrize("body", ["not JSON", "[]", '{"embeddings": [[NaN], [1]]}'])
def test_what_is_no_answer_is_an_error(ask, http, body):
    result, _ = ask(http(200, body))
    assert isinstance(result, Err)


def test_a_slow_answer_is_a_timeout(ask):
    result, _ = ask(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", timeout_s=0.2)
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_TIMEOUT


def test_a_cut_connection_is_a_network_error(ask):
    result, _ = ask(None)
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert result.error.details["retryable"] is True


def test_openai_s_order_is_by_index(peer, http):
    async def run():
        data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
        async with peer(http(200, {"data": data})) as server:
            settings = ProviderSettings("openai", "openai", None, f"{server.url}/v1")
            return await once(found(suite_of(settings), "openai"), ["a", "b"])

    result = asyncio.run(run())
    assert isinstance(result, Ok)
    assert result.value.vectors == ((1.0, 0.0), (0.0, 1.0))


def test_a_name_that_is_no_folder_is_never_downloaded(tmp_path):
    error = refused(
        suite_of(ANTHROPIC), "anthropic", KINDLM_EMBEDDING_MODEL="minishlab/potion-base-8M"
    )
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "minishlab/potion-base-8M" in error.message


@pytest.mark.skipif(find_spec("model2vec") is not None, reason="the extra is installed")
def test_a_local_model_without_the_extra_says_what_to_install(tmp_path):
    error = refused(suite_of(ANTHROPIC), "anthropic", KINDLM_EMBEDDING_MODEL=str(tmp_path))
    assert "kindlm[embeddings]" in (error.hint or "")


@pytest.fixture
def model_folder(tmp_path):
    """A model of four words."""
    model2vec = pytest.importorskip("model2vec")
    numpy = pytest.importorskip("numpy")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "refund", "order", "whale", "sings"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = numpy.array([[0, 0], [1, 0], [1, 0.1], [0, 1], [0.1, 1]], dtype="float32")
    folder = tmp_path / "tiny"
    model2vec.StaticModel(vectors, tokenizer, config={"normalize": True}).save_pretrained(folder)
    return folder


def test_a_local_model_gives_vectors_and_its_name(model_folder):
    embedder = found(suite_of(ANTHROPIC), "anthropic", KINDLM_EMBEDDING_MODEL=str(model_folder))
    assert (embedder.provider, embedder.model) == ("local", "tiny")
    result = asyncio.run(embedder.embed(["refund order", "order", "whale sings"], 60))
    assert isinstance(result, Ok)
    one, near, far = result.value.vectors
    assert cosine(one, near) > 0.9 > cosine(one, far)
    json.dumps(result.value.vectors)


def test_a_folder_without_a_model_is_reported(model_folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    error = refused(suite_of(ANTHROPIC), "anthropic", KINDLM_EMBEDDING_MODEL=str(empty))
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
