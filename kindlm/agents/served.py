"""What adapters have in common whose agents are behind a URL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN, AgentFailed, Who
from kindlm.agents.drafts import Heard
from kindlm.agents.http_exchange import HttpConversation, HttpReply, HttpTarget
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
_NOT_UNDERSTOOD = frozenset({400, 415, 422})
# A value of these is not a secret, however long it is.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


class Served(Adapter):
    """Agents behind a URL: a subclass makes the bodies of requests and reads the answers."""

    needs_endpoint: ClassVar[bool] = True
    hint: ClassVar[str] = WHERE_THE_TEXT_IS
    """What to do about an answer that cannot be read."""
    refused_hint: ClassVar[str | None] = None
    """What to do about a request that the agent did not understand."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent:
        """Return the agent for one conversation; raise as `http_target`."""
        del environ  # all it needs stands in the target
        return self.agent(http_target(target))

    def agent(self, server: HttpTarget) -> Agent:
        """Return what talks to a server."""
        return ServedAgent(server, self)

    def body_for(self, request: AgentRequest, carried: Any) -> Any:
        """Return the body of a request; `carried` is that of the last answer (`Heard`)."""
        raise NotImplementedError

    def heard(self, answer: HttpReply, request: AgentRequest) -> Heard:
        """Return what an answer says; raise `FailedReply` or `UnreadableReply` if it is none."""
        raise NotImplementedError

    def accepts(self) -> str | None:
        """Return what is said to be accepted, None for the usual kinds of answers."""
        return None

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        """Return warnings of what the body of a request leaves out."""
        return request_warnings(request, says_system=self.sends_system_text())

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Refuse what is not a URL."""
        check_url(endpoint)

    def sends_system_text(self) -> bool:
        """Tell that such a server gets the user's messages alone."""
        return False


class ServedAgent(HttpConversation):
    """Implements `ports.Agent` for what is behind a URL."""

    def __init__(self, server: HttpTarget, options: Served) -> None:
        super().__init__(server, options.accepts())
        self._who = server.who
        self._options = options
        self._carried: Any = None

    async def answer_to(self, request: AgentRequest) -> HttpReply:
        """Send the message, and return what comes back; raise `AgentFailed` if nothing does."""
        return await self.post(self._options.body_for(request, self._carried), request)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message, and read the answer; see `ports.Agent`."""
        options = self._options
        try:
            got = await self.answer_to(request)
        except AgentFailed as failed:
            is_refused = failed.error.details.get("status") in _NOT_UNDERSTOOD
            hint = options.refused_hint if is_refused else None
            return Err(replace(failed.error, hint=hint or failed.error.hint))
        try:
            # Shorter answers are read in less time than a thread takes to start.
            is_long = len(got.text) > _LONG
            reading = asyncio.to_thread(options.heard, got, request) if is_long else None
            heard = options.heard(got, request) if reading is None else await reading
        except (FailedReply, UnreadableReply) as error:
            hint = options.hint
            return Err(self._who.unreadable(error, got.text, got.status, hint))
        self._carried = self._carried if heard.carried is None else heard.carried
        reply = heard.reply
        warnings = (*options.not_sent(request), *reply.warnings)
        return Ok(replace(reply, raw=got.text, latency_ms=got.latency_ms, warnings=warnings))


def http_target(target: AgentTarget) -> HttpTarget:
    """Return the server of an agent; no error holds a header's value.

    Raises:
        AgentFailed: its URL or one of its headers is invalid.
    """
    who = Who(target.id, _secrets(target))
    if not (is_url(target.endpoint) and target.endpoint.isprintable()):
        hint = "Write it like http://127.0.0.1:8000/chat"
        raise AgentFailed(who.misconfigured("its `endpoint` is not an http or https URL", hint))
    for name, value in target.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise AgentFailed(who.misconfigured(f"{name!r} is not a valid header name"))
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            message = f"its header {name!r} contains characters that are not allowed in headers"
            hint = "It may contain stray spaces, quotes or line ends"
            raise AgentFailed(who.misconfigured(message, hint))
    return HttpTarget(who, target.endpoint, target.headers)


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
