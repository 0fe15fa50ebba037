"""A model client: a wire format on a transport, under one deadline, without retries."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import ModelReply, ModelRequest
from kindlm.providers import failures
from kindlm.providers.failures import Endpoint
from kindlm.providers.quota import quotas
from kindlm.providers.refusals import WRITTEN_AS, refused_parameters
from kindlm.providers.wire import UnreadableReply, Wire, WireRequest
from kindlm.strict_json import parse_json, unique_keys
from kindlm.transcript import FinishReason

__all__ = [
    "MAX_BODY_BYTES",
    "AnswerTooLong",
    "HttpAnswer",
    "NoAnswer",
    "Transport",
    "WireClient",
]

MAX_BODY_BYTES = 10_000_000
"""An answer is read to here, as those of agents are: none of a model is longer."""

_OK = 200


class NoAnswer(Exception):  # noqa: N818 - it names what happened
    """No whole HTTP answer came; the cause says why."""


class AnswerTooLong(Exception):  # noqa: N818 - it names what happened
    """An answer has more than `MAX_BODY_BYTES`, packed or unpacked."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer, read to its end. Header names are found in any case."""

    status: int
    headers: Mapping[str, str]
    text: str


class Transport(Protocol):
    """Carries JSON to one provider."""

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        """Post a body and return the answer whatever its status.

        Raise `NoAnswer` without one, and `AnswerTooLong` for one that is not read to its end.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class WireClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, endpoint: Endpoint, wire: Wire, transport: Transport) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._transport = transport
        self._refused: dict[str, frozenset[str]] = {}

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make one request; see `ports.ModelClient`.

        When the model refuses a parameter that the user did not ask for, the error says `resend`,
        and later requests to the model go without it.
        """
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._complete(request)
        except TimeoutError:
            return Err(failures.of_timeout(self._endpoint, request.timeout_s))
        except NoAnswer as error:
            return Err(failures.of_network(self._endpoint, error))
        except AnswerTooLong:
            return Err(failures.of_excess(self._endpoint, MAX_BODY_BYTES))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _complete(self, request: ModelRequest) -> Result[ModelReply]:
        refused = self._refused.get(request.model, frozenset())
        sent = self._wire.encode(request, refused)
        # Plain ASCII, so that lone surrogates, which models do write, survive the way back.
        body = json.dumps(sent.body, separators=(",", ":")).encode("ascii")
        started = time.perf_counter()
        answer = await self._transport.send(self._wire.path, body)
        latency_ms = (time.perf_counter() - started) * 1000
        if answer.status == _OK:
            return self._reply(request, sent, answer, latency_ms)
        culprits = refused_parameters(answer.status, answer.text, sent.body)
        ours = culprits & sent.ours
        if not ours:
            return Err(self._failure(answer, culprits))
        # Another request may have been refused something else in the meantime.
        known = self._refused.get(request.model, frozenset())
        self._refused[request.model] = known | sent.to_remember(ours)
        return Err(
            failures.of_refused_default(self._endpoint, answer.status, answer.text, sorted(ours))
        )

    def _reply(
        self, request: ModelRequest, sent: WireRequest, answer: HttpAnswer, latency_ms: float
    ) -> Result[ModelReply]:
        try:
            body = parse_json(answer.text, unique_keys)
        except ValueError as error:
            return self._unreadable(answer, f"no JSON: {error}")
        if not isinstance(body, dict):
            return self._unreadable(answer, "no JSON object")
        try:
            said = self._wire.decode(body, request)
        except UnreadableReply as error:
            return self._unreadable(answer, str(error))
        if said.finish_reason is FinishReason.TOOL_CALLS and not said.tool_calls:
            return self._unreadable(answer, "it ends to call tools and holds no tool call")
        return Ok(
            ModelReply(
                text=said.text,
                raw=answer.text,
                latency_ms=latency_ms,
                tool_calls=said.tool_calls,
                usage=said.usage,
                finish_reason=said.finish_reason,
                model=said.model,
                warnings=sent.warnings,
                quotas=quotas(answer.headers, datetime.now(UTC)),
            )
        )

    def _unreadable(self, answer: HttpAnswer, reason: str) -> Err:
        return Err(failures.of_reply(self._endpoint, answer.status, answer.text, reason))

    def _failure(self, answer: HttpAnswer, culprits: frozenset[str]) -> KindlmError:
        written = sorted(WRITTEN_AS[name] for name in culprits if name in WRITTEN_AS)
        if written:
            return failures.of_refusal(self._endpoint, answer.status, answer.text, written[0])
        return failures.of_status(self._endpoint, answer.status, answer.headers, answer.text)
