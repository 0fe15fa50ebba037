"""What tests of agents share: a way to talk to one, and a peer for them to talk to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from raw_peer import Peer, http_answer, open_peer

from kindlm.agents.registry import make_agent
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


def _ask(*messages: Message | str, timeout_s: float = 20.0) -> AgentRequest:
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
