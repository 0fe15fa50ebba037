"""What tests of providers share: requests, and a peer that answers them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from raw_peer import Peer, http_answer, open_peer

from kindlm.errors import Ok
from kindlm.ports import ModelClient, ModelRequest
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Message, Role

KEY = "sk-planted-0123456789abcdef"

OPENAI_REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"content": "Hi there!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
ANTHROPIC_REPLY: dict[str, Any] = {
    "id": "msg_1",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hi there!"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def _make_request(
    *messages: Message, model: str = "gpt-4o", timeout_s: float = 20.0, **changes: Any
) -> ModelRequest:
    """Return a request; one word of the user if no messages are given."""
    return ModelRequest(
        model=model,
        messages=messages or (Message(Role.USER, "Hello"),),
        params=changes.pop("params", ModelParams()),
        timeout_s=timeout_s,
        **changes,
    )


@dataclass(frozen=True)
class Api:
    """One of the two wire formats, with what a test of both needs to know."""

    type: str
    variable: str
    base_path: str
    path: str
    reply: dict[str, Any]

    def client(self, base_url: str, key: str = KEY) -> ModelClient:
        settings = ProviderSettings(self.type, self.type, self.variable, base_url + self.base_path)
        made = make_client(settings, environ={self.variable: key})
        assert isinstance(made, Ok)
        return made.value


APIS = (
    Api("openai", "OPENAI_API_KEY", "/v1", "/v1/chat/completions", OPENAI_REPLY),
    Api("anthropic", "ANTHROPIC_API_KEY", "", "/v1/messages", ANTHROPIC_REPLY),
)


@pytest.fixture(params=APIS, ids=[api.type for api in APIS])
def api(request: pytest.FixtureRequest) -> Api:
    chosen = request.param
    assert isinstance(chosen, Api)
    return chosen


@contextlib.asynccontextmanager
async def _talking(api: Api, *answers: bytes | None) -> AsyncIterator[tuple[ModelClient, Peer]]:
    """Open a client of an API whose server gives these answers."""
    async with open_peer(*answers) as server:
        client = api.client(server.url)
        try:
            yield client, server
        finally:
            await client.aclose()


@pytest.fixture
def make_request() -> Callable[..., ModelRequest]:
    return _make_request


@pytest.fixture
def http() -> Callable[..., bytes]:
    return http_answer


@pytest.fixture
def peer() -> Callable[..., AbstractAsyncContextManager[Peer]]:
    return open_peer


@pytest.fixture
def talking() -> Callable[..., AbstractAsyncContextManager[tuple[ModelClient, Peer]]]:
    return _talking
