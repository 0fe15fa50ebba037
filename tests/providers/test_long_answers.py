"""An answer that has more than 10 MB, packed or not, is an error that says so."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.plugins import Access
from kindlm.providers.ollama_provider import Ollama
from kindlm.providers.openai_provider import OpenAi

TOO_LONG = b" " * 12_000_000
LONG = b" " * 9_000_000


def packed(http, body: bytes) -> bytes:
    return http(200, gzip.compress(body, compresslevel=1), {"content-encoding": "gzip"})


def assert_too_long(result) -> None:
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_API_ERROR
    assert "more than 10 MB" in result.error.message
    assert not result.error.details["retryable"]


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
def test_an_answer_of_a_model_is_read_to_a_limit(api, talking, http, make_request, is_packed):
    answer = packed(http, TOO_LONG) if is_packed else http(200, TOO_LONG)

    async def run():
        async with talking(api, answer) as (client, _):
            return await client.complete(make_request())

    assert_too_long(asyncio.run(run()))


def test_the_limit_holds_where_the_sdk_reads(api, talking, http, make_request, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    async def run(answer):
        async with talking(api, answer) as (client, _):
            return await client.complete(make_request())

    assert_too_long(asyncio.run(run(http(200, TOO_LONG))))
    assert isinstance(asyncio.run(run(http(200, api.reply))), Ok)


def test_what_is_below_the_limit_is_read_packed_or_not(api, talking, http, make_request):
    body = json.dumps(api.reply).encode() + LONG

    async def run():
        async with talking(api, http(200, body), packed(http, body)) as (client, _):
            return [await client.complete(make_request()) for _ in range(2)]

    for result in asyncio.run(run()):
        assert isinstance(result, Ok)
        assert result.value.raw == body.decode()


@pytest.mark.parametrize(
    ("make", "is_packed"), [(Ollama().embedder, True), (OpenAi().embedder, False)]
)
def test_vectors_are_read_to_a_limit(peer, http, make, is_packed):
    answer = packed(http, TOO_LONG) if is_packed else http(200, TOO_LONG)

    async def run():
        async with peer(answer) as server:
            embedder = make(Access(server.url, None, {}, "p"))
            try:
                return await embedder.embed(["a"], 20)
            finally:
                await embedder.aclose()

    assert_too_long(asyncio.run(run()))
