"""A gateway in this process, and a desk that keeps what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from call_desk import Desk
from checked_server import LoopbackServer

from kindlm.agents.subprocess_agent import Program
from kindlm.gateway.observer import Gateway, Observed
from kindlm.ports import Seen
from kindlm.suite import AgentTarget

REAL_KEY = "sk-real-0123456789abcdef"

SHOP = {
    "models": ["gpt-4o", "claude-opus-4-8"],
    "keys": [REAL_KEY],
    "rules": [
        {
            "when": {"user": {"matches": "order"}, "notCalledThisTurn": "lookup_order"},
            "reply": {
                "text": "Let me look.",
                "toolCalls": [
                    {"name": "lookup_order", "arguments": {"order_id": "A-1"}},
                    {"name": "lookup_order", "arguments": {"order_id": "A-2"}},
                ],
            },
        },
        {"reply": {"text": "Both were delivered."}},
    ],
}


@dataclass
class Bench:
    """One conversation of an agent behind a gateway."""

    gateway: Gateway
    observed: Observed
    desk: Desk

    @property
    def openai(self) -> str:
        return self.observed.environ["OPENAI_BASE_URL"]

    @property
    def anthropic(self) -> str:
        return self.observed.environ["ANTHROPIC_BASE_URL"]

    def client(self, **options: Any) -> Any:
        """Return OpenAI's client, as an agent makes it."""
        import openai

        return openai.AsyncOpenAI(base_url=self.openai, api_key=self.gateway.key, **options)


@pytest.fixture
def warnings() -> list[str]:
    """Return what the gateway shows to the user."""
    return []


@asynccontextmanager
async def _open(
    url: str, warnings: list[str], adapter: str = "subprocess", key: str | None = REAL_KEY
) -> AsyncIterator[Bench]:
    environ = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    if key is not None:
        environ |= {"OPENAI_API_KEY": key, "ANTHROPIC_API_KEY": key}

    def warn(message: str, hint: str) -> None:
        warnings.append(message)

    async with Gateway("k3f9x2ab", environ, (), warn) as gateway:
        desk = Desk()
        options = {"subprocess": Program(command="python agent.py")}.get(adapter)
        target = AgentTarget("shop", adapter, "", options=options, gateway=True)
        observed = gateway.observe(target, desk)
        assert observed is not None
        await observed.begin(1)
        yield Bench(gateway, observed, desk)


@pytest.fixture
def behind(warnings: list[str]) -> Callable[..., AbstractAsyncContextManager[Bench]]:
    """Open a gateway in front of a server."""

    def behind(url: str, **options: Any) -> AbstractAsyncContextManager[Bench]:
        return _open(url, warnings, **options)

    return behind


@pytest.fixture
def shop(behind) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], tuple[Desk, Seen]]:
    """Run an agent behind a gateway with a shop's model; return the record and what was seen."""

    def shop(agent: Callable[[Bench], Coroutine[Any, Any, None]]) -> tuple[Desk, Seen]:
        async def run() -> tuple[Desk, Seen]:
            with LoopbackServer(SHOP) as server:
                async with behind(server.url) as bench:
                    await agent(bench)
                    return bench.desk, await bench.observed.seen()

        return asyncio.run(run())

    return shop
