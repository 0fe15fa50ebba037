"""What is sent without an SDK is, byte for byte, what the SDK would have sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import importlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.ports import ModelClient
from kindlm.providers import request_form, sdk_transport
from kindlm.providers.provider_registry import make_client
from kindlm.providers.request_form import form_of
from kindlm.providers.sdk_transport import Sdk, SdkTransport
from kindlm.suite import ProviderSettings

HTTP = importlib.import_module(openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0])
KEY = "sk-planted-0123456789abcdef"
# Nobody listens there: what reaches the test's server nevertheless was sent around it.
PROXY = "http://127.0.0.1:9"


@dataclass
class Wiretap:
    """A server that keeps each request as it came in; the n-th gets the n-th answer."""

    answers: list[bytes]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                assert length is not None
                self.requests.append(head + await reader.readexactly(int(length[1])))
                writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def tapped(*answers: bytes, port: int = 0) -> AsyncIterator[Wiretap]:
    it = Wiretap(list(answers))
    server = await asyncio.start_server(it.serve, "127.0.0.1", port)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
        await server.wait_closed()


def client_of(api: Any, settings: ProviderSettings) -> ModelClient:
    made = make_client(settings, environ={api.variable: KEY})
    assert isinstance(made, Ok)
    return made.value


async def exchange(
    tap: Wiretap, client: ModelClient, make_request: Any, questions: list[str]
) -> tuple[list[bytes], list[str]]:
    """Ask one after the other; return what arrived, and what was answered."""
    tap.requests.clear()
    texts = []
    try:
        for question in questions:
            result = await client.complete(make_request(model=question))
            assert isinstance(result, Ok), result
            texts.append(result.value.raw)
    finally:
        await client.aclose()
    return list(tap.requests), texts


AMBIENT = [
    {},
    {
        "OPENAI_CUSTOM_HEADERS": "X-Team: red\nUser-Agent: mine/1",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Team: red\nUser-Agent: mine/1",
        "OPENAI_ORG_ID": "org-1",
        "OPENAI_PROJECT_ID": "proj_1",
        "ANTHROPIC_AUTH_TOKEN": "token-of-a-gateway",
    },
]


@pytest.mark.parametrize("configured", [True, False], ids=["baseUrl", "environment"])
@pytest.mark.parametrize("ambient", AMBIENT, ids=["bare", "rich"])
def test_what_is_sent_is_byte_for_byte_what_the_sdk_sends(
    api, http, make_request, monkeypatch, configured, ambient
):
    for name, value in ambient.items():
        monkeypatch.setenv(name, value)
    questions = ["gpt-4o", "gpt-4o-mini", "a longer name of a model", "gpt-4o"]

    async def run():
        async with tapped(http(200, api.reply)) as tap:
            base_url = tap.url + api.base_path
            monkeypatch.setenv(f"{api.type.upper()}_BASE_URL", base_url)
            settings = ProviderSettings(
                api.type,
                api.type,
                api.variable,
                base_url if configured else None,
                "org-written" if ambient else None,
            )
            environ = {api.variable: KEY, f"{api.type.upper()}_BASE_URL": base_url}

            async def asked() -> list[bytes]:
                made = make_client(settings, environ=environ)
                assert isinstance(made, Ok)
                return (await exchange(tap, made.value, make_request, questions))[0]

            direct, remembered = await asked(), await asked()
            # A proxy that is not for this host: the SDK sends, and sends here.
            monkeypatch.setenv("HTTP_PROXY", PROXY)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            return direct, remembered, await asked()

    direct, remembered, through_sdk = asyncio.run(run())
    assert len(direct) == len(questions)
    assert direct == through_sdk
    assert remembered == through_sdk


def test_cookies_go_back(api, http, make_request):
    async def run():
        async with tapped(
            http(200, api.reply, {"set-cookie": "seat=a1.b2-c3_d4/e5==; Path=/"})
        ) as tap:
            settings = ProviderSettings(api.type, api.type, api.variable, tap.url + api.base_path)
            requests, _ = await exchange(tap, client_of(api, settings), make_request, ["m"] * 2)
            return [re.findall(rb"(?i)cookie: (.*)\r", request) for request in requests]

    assert asyncio.run(run()) == [[], [b"seat=a1.b2-c3_d4/e5=="]]


def test_a_proxy_is_used(api, http, make_request, monkeypatch):
    async def run():
        async with tapped(http(200, api.reply)) as tap:
            monkeypatch.setenv("HTTP_PROXY", tap.url)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            settings = ProviderSettings(
                api.type, api.type, api.variable, "http://api.invalid" + api.base_path
            )
            requests, _ = await exchange(tap, client_of(api, settings), make_request, ["m"] * 2)
            return requests

    start = f"POST http://api.invalid{api.path} HTTP/1.1\r\n".encode()
    assert [request.startswith(start) for request in asyncio.run(run())] == [True, True]


def test_no_proxy_gets_the_requests_for_a_server_on_this_machine(
    api, http, make_request, monkeypatch
):
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, PROXY)

    async def run():
        async with tapped(http(200, api.reply)) as tap:
            settings = ProviderSettings(api.type, api.type, api.variable, tap.url + api.base_path)
            return await exchange(tap, client_of(api, settings), make_request, ["m"] * 2)

    requests, _ = asyncio.run(run())
    assert len(requests) == 2


@pytest.mark.parametrize("encoding", ["plain", "gzip", "latin-1", "hex", "idna", "bom"])
def test_a_body_is_decoded_as_its_headers_say(api, make_request, encoding):
    text = json.dumps(api.reply | {"note": "Zürich"}, ensure_ascii=False)
    named = {
        "plain": (text.encode(), b"content-type: application/json"),
        "gzip": (gzip.compress(text.encode()), b"content-encoding: gzip"),
        "latin-1": (text.encode("latin-1"), b"content-type: application/json; charset=latin-1"),
        "hex": (text.encode(), b"content-type: application/json; charset=hex"),
        "idna": (text.encode(), b"content-type: application/json; charset=idna"),
        "bom": (text.encode("utf-8-sig"), b"content-type: application/json"),
    }
    body, header = named[encoding]
    answer = b"HTTP/1.1 200 OK\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (header, len(body), body)

    async def run():
        async with tapped(answer) as tap:
            settings = ProviderSettings(api.type, api.type, api.variable, tap.url + api.base_path)
            return await exchange(tap, client_of(api, settings), make_request, ["m"] * 2)

    assert asyncio.run(run())[1] == [text, text]


def test_a_body_that_is_not_in_its_encoding_is_a_network_error(api, http, make_request):
    async def run():
        async with tapped(http(200, "not gzip", {"content-encoding": "gzip"})) as tap:
            settings = ProviderSettings(api.type, api.type, api.variable, tap.url + api.base_path)
            client = client_of(api, settings)
            try:
                return await client.complete(make_request())
            finally:
                await client.aclose()

    result = asyncio.run(run())
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_NETWORK_ERROR


@dataclass
class Watched:
    """The OpenAI SDK, counting what is posted through it; `sign` is for a header of each."""

    sdk: openai.AsyncOpenAI
    posted: list[str]
    sign: itertools.count[int] | None = None

    async def post(self, path: str, *, options: Any, **sent: Any) -> Any:
        self.posted.append(path)
        if self.sign is not None:
            headers = {**options["headers"], "X-Signature": str(next(self.sign))}
            options = {**options, "headers": headers}
        return await self.sdk.post(path, options=options, **sent)

    async def close(self) -> None:
        await self.sdk.close()


def watched_transport(
    base_url: str, posted: list[str], sign: itertools.count[int] | None = None
) -> SdkTransport:
    def make(**settings: Any) -> Watched:
        sdk = openai.AsyncOpenAI(api_key=KEY, base_url=base_url, **settings)
        return Watched(sdk, posted, sign)

    return SdkTransport("/a", lambda: Sdk(openai, make, {}))


def test_the_sdk_is_asked_twice_and_not_again(http):
    posted: list[str] = []

    async def run():
        async with tapped(http(200, {})) as tap:
            transport = watched_transport(tap.url, posted)
            try:
                await asyncio.gather(*(transport.send(b"{}") for _ in range(5)))
                await transport.send(b"{}")
            finally:
                await transport.aclose()
            return len(tap.requests)

    assert asyncio.run(run()) == 6
    assert posted == ["/a", "/a"]


def test_requests_that_differ_from_one_another_stay_with_the_sdk(http):
    async def run():
        async with tapped(http(200, {})) as tap:
            transport = watched_transport(tap.url, [], itertools.count())
            try:
                for _ in range(3):
                    await transport.send(b"{}")
            finally:
                await transport.aclose()
            return [re.findall(rb"(?i)x-signature: (\d+)", request) for request in tap.requests]

    assert asyncio.run(run()) == [[b"2"], [b"3"], [b"4"]]


@pytest.fixture
def loads(monkeypatch) -> list[str]:
    """The SDKs that clients of a test load, in order."""
    loaded: list[str] = []

    class Counted(sdk_transport.Sdk):
        def __init__(self, module: Any, *rest: Any) -> None:
            loaded.append(module.__name__)
            super().__init__(module, *rest)

    monkeypatch.setattr(sdk_transport, "Sdk", Counted)
    return loaded


def call(
    api: Any, http: Any, make_request: Any, times: int, *, key: str = KEY, port: int = 0
) -> list[bytes]:
    """The requests of so many clients, one after the other, as of so many runs."""

    async def run():
        async with tapped(http(200, api.reply), port=port) as tap:
            requests = []
            for _ in range(times):
                base_url = tap.url + api.base_path
                settings = ProviderSettings(api.type, api.type, api.variable, base_url)
                made = make_client(settings, environ={api.variable: key})
                assert isinstance(made, Ok)
                requests += (await exchange(tap, made.value, make_request, ["m"]))[0]
            return requests

    return asyncio.run(run())


def host_of(request: bytes) -> bytes:
    found = re.search(rb"(?i)\r\nhost: (\S+)", request)
    assert found is not None
    return found[1]


def port_of(request: bytes) -> int:
    return int(host_of(request).rpartition(b":")[2])


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_an_sdk_said_is_kept_without_the_key(api, http, make_request, loads, cache):
    first, second = call(api, http, make_request, 2)
    assert loads == [api.type]
    assert first == second
    assert KEY.encode() in first
    (file,) = [path for path in cache.rglob("*") if path.is_file()]
    assert KEY not in file.read_text()


def test_an_update_of_a_package_lets_the_sdk_be_asked_again(
    api, http, make_request, loads, cache, monkeypatch, tmp_path
):
    call(api, http, make_request, 1)
    (tmp_path / "another-9.9.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    call(api, http, make_request, 1)
    assert loads == [api.type] * 2


@pytest.mark.parametrize("key", ["127.0.0.1", "application/json"])
def test_a_key_that_is_a_part_of_another_header_does_not_change_that_header(
    api, http, make_request, loads, cache, key
):
    first = call(api, http, make_request, 1, key=key)
    second = call(api, http, make_request, 1, port=port_of(first[0]))
    assert second[0].replace(KEY.encode(), key.encode()) == first[0]


def test_what_an_sdk_said_holds_for_any_port(api, http, make_request, loads, cache):
    async def run():
        async with tapped(http(200, api.reply)) as here, tapped(http(200, api.reply)) as there:
            for tap in (here, there):
                settings = ProviderSettings(
                    api.type, api.type, api.variable, tap.url + api.base_path
                )
                [sent], _ = await exchange(tap, client_of(api, settings), make_request, ["m"])
                assert host_of(sent).decode() == tap.url.removeprefix("http://")

    asyncio.run(run())
    assert loads == [api.type]


def test_no_more_is_kept_than_of_so_many_endpoints(
    api, http, make_request, loads, cache, monkeypatch, tmp_path
):
    monkeypatch.setattr(request_form, "_MAX_ENDPOINTS", 2)
    monkeypatch.syspath_prepend(str(tmp_path))
    for version in range(4):
        (tmp_path / f"another-{version}.dist-info").mkdir()
        call(api, http, make_request, 1)
    call(api, http, make_request, 1)
    assert loads == [api.type] * 4
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize(
    "kept",
    [
        *("not JSON", '{"library": "os", "headers": []}', "[1]"),
        '{"library": "httpx", "headers": [["Accept", 1]]}',
    ],
)
def test_a_damaged_cache_lets_the_sdk_be_asked_again(api, http, make_request, loads, cache, kept):
    async def run():
        async with tapped(http(200, api.reply)) as tap:
            settings = ProviderSettings(api.type, api.type, api.variable, tap.url + api.base_path)
            sent = []
            for _ in range(2):
                sent += (await exchange(tap, client_of(api, settings), make_request, ["m"]))[0]
                for file in [path for path in cache.rglob("*") if path.is_file()]:
                    file.write_text(kept)
            return sent

    first, second = asyncio.run(run())
    assert first == second
    assert loads == [api.type] * 2


@pytest.mark.parametrize("reason", ["a setting for the SDK", "a short key", "no folder"])
def test_what_may_differ_next_time_is_not_kept(
    api, http, make_request, loads, cache, monkeypatch, reason
):
    key = KEY
    if reason == "a setting for the SDK":
        monkeypatch.setenv(f"{api.type.upper()}_LOG", "warning")
    elif reason == "a short key":
        key = "sk-1234"
    else:
        cache.write_text("a file stands here")
    call(api, http, make_request, 1, key=key)
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("request_sent", "has_form"),
    [
        (HTTP.Request("POST", "https://a.test/v1", content=b"{}"), True),
        (HTTP.Request("GET", "https://a.test/v1", content=b"{}"), False),
        (HTTP.Request("POST", "https://ann:secret@a.test/v1", content=b"{}"), False),
        (
            HTTP.Request(
                "POST", "https://a_b.test/v1", content=b"{}", extensions={"sni_hostname": "a-b"}
            ),
            False,
        ),
    ],
    ids=["usual", "method", "credentials", "host name"],
)
def test_requests_that_need_more_than_a_form_have_none(request_sent, has_form):
    assert (form_of([request_sent]) is not None) == has_form
