"""What adapters have in common whose agents are behind a URL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field

from kindlm.agents import agent_failures
from kindlm.agents.agent_failures import SHORTEST_HIDDEN, Who, bad_option
from kindlm.agents.http_exchange import HttpExchange, HttpReply, HttpTarget
from kindlm.agents.http_request import request_warnings
from kindlm.agents.reply_parts import WHERE_THE_TEXT_IS, UnreadableReply
from kindlm.agents.reply_reading import FailedReply
from kindlm.dataclass import replace
from kindlm.errors import Err, Ok, Result
from kindlm.plugins import Adapter
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.section import Maybe, Text
from kindlm.suite import AgentTarget
from kindlm.values import check_url, is_url

Streams = Annotated[
    Maybe[bool],
    Field(
        examples=[True],
        description="The agent answers with a stream. By default false for `langgraph`, true for "
        "`tapescope` and `streaming`.",
    ),
]
AssistantId = Annotated[
    Maybe[Text],
    Field(
        examples=["agent"],
        description="Id of the assistant. By default `agent` for `langgraph` in the mode `cloud`, "
        "and OPENAI_ASSISTANT_ID for `openai-assistants`.",
    ),
]

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LONG = 50_000
# A value of these is not a secret, however long it is.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


class Served(Adapter):
    """An adapter whose agents are behind a URL: a subclass says what talks to a server."""

    needs_endpoint: ClassVar[bool] = True

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent | Err:
        """Return the agent for one conversation, or what is wrong with its URL or headers."""
        del environ  # all it needs stands in the target
        server = http_target(target)
        return server if isinstance(server, Err) else self.agent(server.value)

    def agent(self, server: HttpTarget) -> Agent:
        """Return what talks to a server."""
        raise NotImplementedError

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Refuse what is not a URL."""
        check_url(endpoint)

    def sends_system_text(self) -> bool:
        """Tell that such a server gets the user's messages alone."""
        return False


class ServedAgent:
    """What agents behind a URL have in common; with `send` one implements `ports.Agent`."""

    hint = WHERE_THE_TEXT_IS
    """What to do about an answer that cannot be read."""

    def __init__(self, server: HttpTarget, accept: str | None = None) -> None:
        self._who = server.who
        self._exchange = HttpExchange(server, accept)

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    def warnings(self, request: AgentRequest) -> tuple[str, ...]:
        """Return what of a request is not sent."""
        return request_warnings(request, says_system=False)

    async def reply(
        self,
        request: AgentRequest,
        answer: Result[HttpReply],
        read: Callable[[HttpReply], AgentReply],
    ) -> Result[AgentReply]:
        """Return what an answer says, or the error of one that is none."""
        if isinstance(answer, Err):
            return answer
        got = answer.value
        try:
            # Shorter answers are read in less time than a thread takes to start.
            is_long = len(got.text) > _LONG
            reply = await asyncio.to_thread(read, got) if is_long else read(got)
        except (FailedReply, UnreadableReply) as error:
            return Err(agent_failures.of_reply(self._who, error, got.text, got.status, self.hint))
        warnings = (*self.warnings(request), *reply.warnings)
        return Ok(replace(reply, raw=got.text, latency_ms=got.latency_ms, warnings=warnings))


def http_target(target: AgentTarget) -> Result[HttpTarget]:
    """Check the endpoint and the headers of an agent; no error holds a header's value."""
    who = Who(target.id, _secrets(target))
    if not (is_url(target.endpoint) and target.endpoint.isprintable()):
        hint = "Write it like http://127.0.0.1:8000/chat"
        return Err(bad_option(who, "its `endpoint` is not an http or https URL", hint))
    for name, value in target.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return Err(bad_option(who, f"{name!r} is not a valid header name"))
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            message = f"its header {name!r} contains characters that are not allowed in headers"
            hint = "It may contain stray spaces, quotes or line ends"
            return Err(bad_option(who, message, hint))
    return Ok(HttpTarget(who, target.endpoint, target.headers))


def _secrets(target: AgentTarget) -> frozenset[str]:
    """Return what may be a credential: values of headers, with and without their scheme."""
    found = set()
    for name, value in target.headers.items():
        if name.lower() not in _HARMLESS_HEADERS:
            found |= {value, value.rpartition(" ")[2]}
    try:
        password = urlsplit(target.endpoint).password
    except ValueError:
        password = None
    if password:
        found |= {password, unquote(password)}
    return frozenset(secret for secret in found if len(secret) >= SHORTEST_HIDDEN)
