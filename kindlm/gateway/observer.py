"""Assigns model calls to executions.

A program that serves one conversation gets its own address. Agents that serve all conversations
share the address of the run, and pass on a header, `x-kindlm-execution` or `traceparent`. Until an
agent has done so, it answers one message at a time, and its calls belong to that message.

Agents in this process need no address. Their clients may exist before the run, with the address and
key of a provider. So kindlm replaces `send` of the HTTP clients below the SDKs during the run, and
redirects requests to the gateway. A call belongs to the message that its task or thread answers.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Literal, Self

from kindlm.gateway.conversation import SeenConversation
from kindlm.gateway.server import KEY_HEADER, GatewayServer
from kindlm.gateway.upstreams import DEFAULT_BASES, upstreams
from kindlm.ports import CallDesk, Seen
from kindlm.programs import past_proxies
from kindlm.suite import AgentTarget, Command, ProviderSettings
from kindlm.trace_context import EXECUTION_HEADER, MESSAGE_HEADERS, trace_of, traceparent
from kindlm.wires.reading import WIRES
from kindlm.wording import count

_NOT_ASSIGNED = "A model call came through the gateway that cannot be assigned to an execution."
_PASS_ON = f"Let the agent pass the header `{EXECUTION_HEADER}` of its request on to its models."
_KEEP_CONTEXT = (
    "Let the agent start its threads with `asyncio.to_thread` or `contextvars.copy_context().run`,"
    " or test it with `adapter: python` in a process of its own."
)
"""What to do about a call from a thread of the test process without the context of an answer."""

_BLOCKS = (
    "The agent called a model in a way that blocks the event loop, so the call cannot go"
    " through the gateway. Await an asynchronous client, or write the agent as a function that is"
    " not `async`."
)

_Reached = Literal["alone", "shared", "here"]
"""Whether an agent has its own address, shares that of the run, or runs in this process."""

_HINTS: Mapping[_Reached, str] = {
    "alone": "Let its clients take address and key from the environment (OPENAI_BASE_URL,"
    " OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY).",
    "shared": "Let `serve` start its program, and its clients take address and key from the"
    " environment (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY).",
    "here": "kindlm sees the calls of agents in the test process if their clients use httpx, such"
    " as those of OpenAI and Anthropic.",
}
"""What to do if no model calls arrive."""


class Gateway(GatewayServer):
    """Implements `ports.Observer`; it listens during `async with`.

    `warn` shows the user a message and a hint. If it `replays`, no provider is called.
    """

    def __init__(
        self,
        run: str,
        environ: Mapping[str, str],
        providers: Iterable[ProviderSettings],
        warn: Callable[[str, str], None],
        *,
        replays: bool = False,
    ) -> None:
        self._run = run
        self._environ = environ
        self._providers = tuple(providers)
        self._warn = warn
        super().__init__(upstreams(environ, self._providers), replays=replays)
        self._open: dict[str, Observed] = {}
        self._answering: Observed | None = None
        self._one_at_a_time = asyncio.Lock()
        self._passes_on: set[str] = set()
        self._has_warned = False
        self._unassigned = 0
        self._remedy = _PASS_ON
        self._desk: CallDesk | None = None
        self._restore: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        MESSAGE_HEADERS.set({})
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        """Close all connections, and warn of unassigned calls."""
        if self._restore is not None:
            self._restore()
        await super().__aexit__(*exception)
        if self._unassigned:
            self._warn(
                f"{count(self._unassigned, 'model call')} could not be assigned to an"
                " execution. They are not recorded, but count towards limits.",
                self._remedy,
            )

    def forward_to(self, providers: Iterable[ProviderSettings]) -> None:
        """Forward to the providers of suites, whose URLs are known once `serve` has started."""
        self.providers = upstreams(self._environ, providers)

    def variables(self, subject: str | None = None) -> dict[str, str]:
        """Return the environment variables that send a program's model calls to the gateway."""
        address, key = self.address(subject), self.key
        found = {
            "KINDLM_GATEWAY": address,
            "OPENAI_BASE_URL": f"{address}/openai/v1",
            "OPENAI_API_BASE": f"{address}/openai/v1",
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": f"{address}/anthropic",
            "ANTHROPIC_API_KEY": key,
            # Tracing would send the conversation to OpenAI.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        if "ANTHROPIC_AUTH_TOKEN" in self._environ:
            found["ANTHROPIC_AUTH_TOKEN"] = key
        for provider in self._providers:
            if provider.api_key_env:
                found[provider.api_key_env] = key
        return found | past_proxies(self._environ)

    def observe(self, target: AgentTarget | Command, desk: CallDesk) -> Observed | None:
        """Return the observation of a conversation; None for an agent without `gateway: true`."""
        if isinstance(target, Command) or not target.gateway:
            return None
        reached: _Reached = "shared"
        if target.instance is not None:
            reached = "here"
            self._restore = self._restore or _redirect_clients(
                self.address(), self.key, self._route
            )
        elif target.starts_program:
            reached = "alone"
        trace = traceparent(self._run, desk.subject)
        observed = Observed(self, target.id, desk, reached, trace)
        self._desk, self._open[desk.subject] = desk, observed
        return observed

    async def take_turn(self, observed: Observed) -> None:
        """Wait until no other agent that shares the address is answering."""
        if observed.agent in self._passes_on or self._answering is observed:
            return
        with observed.desk.waiting():
            await self._one_at_a_time.acquire()
        if observed.agent in self._passes_on:
            self._one_at_a_time.release()
        else:
            self._answering = observed

    def end_turn(self, observed: Observed) -> None:
        """Let the next agent answer."""
        if self._answering is observed:
            if observed.passes_on:
                self._passes_on.add(observed.agent)
            self._answering = None
            self._one_at_a_time.release()

    def forget(self, observed: Observed) -> None:
        """End an observation."""
        self.end_turn(observed)
        self._open.pop(observed.desk.subject, None)

    def find_conversation(
        self, subject: str | None, headers: Mapping[str, str], is_call: bool
    ) -> SeenConversation | None:
        """Return the conversation of a request; see `GatewayServer`."""
        if subject is not None:
            return self._open.get(subject)
        named, trace = headers.get(EXECUTION_HEADER), trace_of(headers.get("traceparent", ""))
        traced = (each for each in self._open.values() if trace and each.trace == trace)
        found = self._open.get(named) if named else next(traced, None)
        asked = [each for each in self._open.values() if each.is_asked and each.reached != "alone"]
        if not is_call:
            return found or (asked[0] if len(asked) == 1 else None)
        if found is not None:
            found.passes_on = found.passes_on is not False
            return found
        # An agent without the header answers alone, so the call belongs to its message.
        if self._answering is not None and not named and asked == [self._answering]:
            self._answering.passes_on = False
            sharing = [each for each in self._open.values() if each.reached == "shared"]
            if len(sharing) > 1 and not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"The agent {self._answering.agent} answers one message at a"
                    " time, so that its model calls can be assigned.",
                    f"To run its tests at once, let it pass the header `{EXECUTION_HEADER}` of"
                    " its request on to its models.",
                )
            return self._answering
        self._unassigned += 1
        self._remedy = _KEEP_CONTEXT if KEY_HEADER in headers else _PASS_ON
        for each in self._open.values():
            if each.has_begun:
                each.lose(f"{_NOT_ASSIGNED} {self._remedy}")
        # The limits of the run also apply to unassigned calls.
        desk = None if self.replays else self._desk
        if desk is None:
            return None
        if desk.is_over():
            # The server refuses the call, which any answering agent may have made.
            for each in self._open.values():
                if each.is_asked:
                    each.desk.leave_unfinished()
        return SeenConversation("", desk.unassigned())

    def _route(self, subject: str | None, url: str, blocks: bool) -> str | None:
        """Return the URL to which an in-process request is redirected; None if it is not.

        `subject` is None if the message of the request is unknown. A request that `blocks` would
        wait in the event loop of the gateway forever.
        """
        observed = self._open.get(subject or "")
        if subject is not None and observed is None:
            return None  # an agent that does not use the gateway
        here = (each for each in self._open.values() if each.reached == "here")
        if subject is None and not self.replays and not any(each.has_begun for each in here):
            return None  # from a fixture, or from other code around the tests
        paths = [
            f"{provider}{url[len(base) :]}"
            for provider, upstream in self.providers.items()
            for base in (upstream.base_url, DEFAULT_BASES[provider])
            if url.startswith(f"{base}/")
        ]
        # A proxy may serve both providers at one address.
        found = min(paths, key=lambda path: path.partition("?")[0] not in WIRES, default=None)
        if found is not None and blocks:
            if self.replays:
                raise RuntimeError(_BLOCKS)  # no provider is called
            if observed is not None:
                observed.lose(_BLOCKS)
            return None
        return found and f"{self.address(subject)}/{found}"


class Observed(SeenConversation):
    """One conversation with an agent; implements `ports.Observation`.

    `passes_on` is whether its calls have the header, None before the first call. `has_begun` is
    whether the agent was sent a message.
    """

    def __init__(
        self, gateway: Gateway, agent: str, desk: CallDesk, reached: _Reached, parent: str
    ) -> None:
        super().__init__(agent, desk, _HINTS[reached])
        self.reached = reached
        self.passes_on: bool | None = None
        self.has_begun = False
        self._gateway = gateway
        self.environ = gateway.variables(desk.subject) if reached == "alone" else {}
        self.headers = {EXECUTION_HEADER: desk.subject, "traceparent": parent}
        self.trace = trace_of(parent)

    async def begin(self, call: int) -> None:
        """Begin to observe, once no other agent that shares the address is answering."""
        if self.reached == "shared":
            await self._gateway.take_turn(self)
        self.has_begun = True
        await super().begin(call)

    async def seen(self) -> Seen:
        """Return the record since the last time; see `ports.Observation`."""
        seen = await super().seen()
        self._gateway.end_turn(self)
        return seen

    def close(self) -> str | None:
        """End the observation: no more calls are assigned to it."""
        self._gateway.forget(self)
        return super().close()


def _redirect_clients(
    gateway: str, key: str, route: Callable[[str | None, str, bool], str | None]
) -> Callable[[], None]:
    """Replace `send` of HTTP clients, and return a function that restores it.

    Runs in the gateway's thread. `gateway` is its address, and `route` is `Gateway._route`.
    """
    stack, own_thread = ExitStack(), threading.get_ident()

    def replaced(send: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        def redirected(this: Any, request: Any, *more: Any, **options: Any) -> Any:
            headers = MESSAGE_HEADERS.get()
            subject = None if headers is None else headers.get(EXECUTION_HEADER)
            # Requests with a subject or without headers are not from kindlm, nor from the test.
            if headers is None or subject is not None:
                blocks = not is_async and threading.get_ident() == own_thread
                url = route(subject, str(request.url), blocks)
                if url is not None:
                    request.url = type(request.url)(url)
                    request.headers["host"] = request.url.netloc.decode("ascii")
                    request.headers[KEY_HEADER] = key
            return send(this, request, *more, **options)

        return redirected

    def without_proxy(choose: Callable[..., Any]) -> Callable[..., Any]:
        # A proxy of the environment would get the agent's key without TLS.
        def chosen(this: Any, url: Any) -> Any:
            is_here = str(url).startswith(f"{gateway}/")
            return this._transport if is_here else choose(this, url)  # noqa: SLF001

        return chosen

    for name in ("httpx", "httpx2"):
        with suppress(ImportError):
            module: Any = importlib.import_module(name)
            for client, is_async in ((module.Client, False), (module.AsyncClient, True)):
                stack.callback(setattr, client, "send", client.send)
                client.send = replaced(client.send, is_async)
                choose = client._transport_for_url  # noqa: SLF001 - nothing public chooses it
                stack.callback(setattr, client, "_transport_for_url", choose)
                client._transport_for_url = without_proxy(choose)  # noqa: SLF001
    return stack.close
