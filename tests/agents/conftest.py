"""What tests of agents share: a way to talk to one, and a peer for them to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from options import options_of
from raw_peer import Peer, http_answer, open_peer

from kindlm import programs
from kindlm.agents import make_agent, sandbox
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.suite import AgentTarget, Command
from kindlm.transcript import Message, Role


def _http(
    body: Any,
    *,
    status: int = 200,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    return http_answer(status, body, headers, kind=kind)


def _ask(*messages: Message | str, timeout_s: float = 60.0) -> AgentRequest:
    """Return a request; plain texts are the user's."""
    said = tuple(
        message if isinstance(message, Message) else Message(Role.USER, message)
        for message in messages or ("Hello",)
    )
    return AgentRequest("conv-1", said, timeout_s)


def _make(target: AgentTarget | Command, root: Path | None = None, **environ: str) -> Agent:
    made = make_agent(target, environ=environ, root=root or Path())
    assert isinstance(made, Ok), made
    return made.value


def _success(result: Result[AgentReply]) -> AgentReply:
    assert isinstance(result, Ok), result
    return result.value


def _failure(result: Result[Any]) -> KindlmError:
    assert isinstance(result, Err), result
    return result.error


@pytest.fixture
def peer() -> Callable[..., AbstractAsyncContextManager[Peer]]:
    return open_peer


@pytest.fixture
def http() -> Callable[..., bytes]:
    return _http


@pytest.fixture
def ask() -> Callable[..., AgentRequest]:
    return _ask


@pytest.fixture
def make() -> Callable[..., Agent]:
    return _make


@pytest.fixture
def success() -> Callable[..., AgentReply]:
    return _success


@pytest.fixture
def failure() -> Callable[..., KindlmError]:
    return _failure


@pytest.fixture
def talk() -> Callable[..., tuple[list[Result[AgentReply]], Peer]]:
    """Send requests to an agent whose server gives these answers; return results and server."""

    def talk(
        *answers: bytes,
        requests: Sequence[AgentRequest] | None = None,
        headers: Mapping[str, str] | None = None,
        adapter: str = "http",
        path: str = "/chat",
        **options: Any,
    ) -> tuple[list[Result[AgentReply]], Peer]:
        async def run() -> tuple[list[Result[AgentReply]], Peer]:
            async with open_peer(*answers) as server:
                target = AgentTarget(
                    "shop", adapter, server.url + path, headers or {}, options_of(adapter, options)
                )
                async with _make(target) as agent:
                    results = [await agent.send(request) for request in requests or [_ask()]]
                return results, server

        return asyncio.run(run())

    return talk


@pytest.fixture
def reply(talk: Callable[..., tuple[list[Result[AgentReply]], Peer]]) -> Callable[..., AgentReply]:
    """Return what is understood of one answer to `Hello`."""

    def reply(body: Any, *, kind: str = "application/json", **options: Any) -> AgentReply:
        (result,), _ = talk(_http(body, kind=kind), **options)
        return _success(result)

    return reply


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill programs soon after the polite signal: for those that do not heed it anyway."""
    monkeypatch.setattr(programs, "_GRACE_S", 0.1)


@pytest.fixture
def impatient_to_leave(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    """Wait hardly at all for a program to end by itself: for those that do not."""
    monkeypatch.setattr(sandbox, "_LEAVE_S", 0.1)
