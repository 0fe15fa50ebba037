"""The HTTP client of model APIs: makes one request, without retries.

A format is a set of pure functions (`ApiFormat`). Bodies of answers are untrusted: an unreadable
one is an error, never a crash.

Models differ in the parameters they accept, and no table of them stays correct. If a provider
rejects a parameter that kindlm added, later requests to the model omit it. If the answer to one of
kindlm's own questions is cut off, later questions to the model leave room for its reasoning.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Protocol

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import ModelReply, ModelRequest, ToolDefinition
from kindlm.providers.provider_failures import Endpoint, HttpAnswer, billed
from kindlm.providers.quota import quotas
from kindlm.strict_json import ascii_json, compact_json, json_or_text
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, ToolCall, Usage, not_sent
from kindlm.wires import (
    UnreadableReply,
    WireAnswer,
    error_message,
    object_or_empty,
    objects,
    parse_object,
    text_encoding,
    text_or_none,
)

NEEDS_ROOM = "max_tokens.to_think"
"""Noted among the rejected parameters of a model whose answer to kindlm's question was cut off."""

REASONING_TOKENS = 25_000
"""The room that OpenAI recommends: https://platform.openai.com/docs/guides/reasoning."""


@dataclass(slots=True)
class ApiRequest:
    """A request in a provider's format, without parameters that its model is known to reject.

    Attributes:
        defaults: names in `body` that kindlm added. If the model rejects one of them, the request
            may be sent again without it.
        fallbacks: for defaults with a simpler form, the name to note in `refused` if the model
            rejects this form.
        is_tight: whether the limit leaves no room for reasoning. If the answer is cut off, the
            request may be sent again with `NEEDS_ROOM`.
    """

    model: str
    refused: frozenset[str]
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    defaults: set[str] = field(default_factory=set)
    fallbacks: dict[str, str] = field(default_factory=dict)
    is_tight: bool = False

    def add(self, name: str, value: Any) -> None:
        """Add a setting of the user, even if the model may reject it; None adds nothing."""
        if value is not None:
            self.body[name] = value

    def add_default(self, name: str, value: Any) -> None:
        """Add a setting that the user did not ask for, unless the model rejects it."""
        if name in self.refused:
            self.warnings.append(f"{not_sent(name)}: {self.model} does not take it")
        else:
            self.body[name] = value
            self.defaults.add(name)

    def add_temperature(self, params: ModelParams) -> None:
        """Add the temperature, which is the user's if it is set in the model's `params`."""
        is_users = "temperature" in params.written or params.temperature is None
        (self.add if is_users else self.add_default)("temperature", params.temperature)

    def limit(self, request: ModelRequest, *, reasons: bool = False) -> int:
        """Return the most tokens of the answer, which include those of its reasoning.

        The limit of kindlm's own questions is meant for the answer alone, so there is room beside
        it if the model `reasons`, or if an earlier answer was cut off.
        """
        limit = request.params.max_tokens
        if request.response_schema is None:
            return limit
        self.is_tight = not (reasons or NEEDS_ROOM in self.refused)
        return limit if self.is_tight else limit + REASONING_TOKENS


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """The format of a model API, with the path of requests relative to the base URL.

    `encode` makes the request, without the names that its model is known to reject. `decode` reads
    a body, or raises `UnreadableReply`; `usage` reads the tokens even in an invalid body.
    """

    path: str
    encode: Callable[[ModelRequest, frozenset[str]], ApiRequest]
    decode: Callable[[Mapping[str, Any], ModelRequest], WireAnswer]
    usage: Callable[[Mapping[str, Any]], Usage]


def written_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as models write them: without spaces and escapes."""
    return compact_json(call.arguments) if call.malformed is None else call.malformed


def function_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool in OpenAI's form, which Ollama also uses."""
    described = {} if tool.description is None else {"description": tool.description}
    function = {"name": tool.name, **described, "parameters": tool_parameters(tool)}
    return {"type": "function", "function": function}


def from_form(answer: WireAnswer, request: ModelRequest) -> WireAnswer:
    """Return an answer whose text is in the tool that the model had to call, if it called it.

    Several calls are joined, so that none of them counts, as with several texts.
    """
    wanted = request.response_schema
    calls = answer.tool_calls
    of_form = [call for call in calls if wanted is not None and call.name == wanted.name]
    if not of_form:
        return answer
    others = tuple(call for call in calls if call not in of_form)
    ended = answer.finish_reason
    if ended is FinishReason.TOOL_CALLS and not others:
        ended = FinishReason.STOP
    text = "\n".join(map(written_arguments, of_form))
    return replace(answer, text=text, tool_calls=others, finish_reason=ended)


def prefill_of(request: ModelRequest) -> str:
    """Return the text that the answer begins with; the model does not repeat it."""
    last = request.messages[-1] if request.messages else None
    return last.text if last is not None and last.prefill else ""


def without_answered_prefills(request: ModelRequest) -> list[Message]:
    """Return the messages without earlier prefills, which are parts of the answers to them."""
    return [each for each in request.messages[:-1] if not each.prefill] + [*request.messages[-1:]]


def tool_parameters(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool's parameters as a schema of type object, which the APIs demand."""
    if not tool.parameters:
        return {"type": "object", "properties": {}}
    return {"type": "object", **tool.parameters}


WRITTEN_AS = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "random_seed": "seed",
    "stop": "stopSequences",
    "stop_sequences": "stopSequences",
    "max_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
}
"""The parameters of requests, and their names in a model's `params`."""

_REFUSAL_STATUSES = frozenset({400, 422})
_REFUSAL = re.compile(
    r"unsupported|not support|unavailable|not available|deprecated|not allowed|not permitted"
    r"|unknown|unrecognized|unexpected|unrecognised|cannot both|not compatible|incompatible"
    r"|extra inputs|only the default|may not be|may only be",
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(r"too large|too high|supports at most", re.IGNORECASE)
"""The model takes the parameter, but not this value."""

_OF_FORMAT = re.compile(r"(?<!\w)(?:response_format|json_schema|json_object)(?!\w)")
"""An error that mentions the format rejects it, in any words: LM Studio and vLLM say what it must
be, others only name the unknown kind."""

_SCANNED_CHARACTERS = 4000


def refused_parameters(status: int, body: str, sent: Iterable[str]) -> frozenset[str]:
    """Return the `sent` names that an error rejects: in `param` at OpenAI, else in the message."""
    if status not in _REFUSAL_STATUSES:
        return frozenset()
    parsed = json_or_text(body)
    param = object_or_empty(object_or_empty(parsed).get("error")).get("param")
    message = (error_message(parsed) or "")[:_SCANNED_CHARACTERS]
    if _TOO_MUCH.search(message):
        return frozenset()
    if isinstance(param, str) and param:
        return frozenset(name for name in sent if re.split(r"[.\[]", param, maxsplit=1)[0] == name)
    words = message or body[:_SCANNED_CHARACTERS]
    is_refusal = _REFUSAL.search(words) is not None
    return frozenset(
        name
        for name in sent
        if (is_refusal and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", words))
        or (name == "response_format" and _OF_FORMAT.search(words))
    )


MAX_BODY_BYTES = 10_000_000
"""The limit of an answer, far above any real one."""


class NoAnswer(Exception):  # noqa: N818 - it names what happened
    """No complete HTTP answer arrived; the cause says why."""


class AnswerTooLong(Exception):  # noqa: N818 - it names what happened
    """An answer exceeds `MAX_BODY_BYTES`, compressed or decompressed."""


class NoCredentials(Exception):  # noqa: N818 - it names what happened
    """No valid credentials, so nothing was sent. The arguments are the reason and a hint."""


async def within_bounds(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; raise `AnswerTooLong` above `MAX_BODY_BYTES`."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLong
        yield piece


def decoded(content: bytes, encoding: str | None) -> str:
    """Return a body as text without a byte order mark."""
    return content.decode(text_encoding(encoding), "replace").removeprefix("\ufeff")


class Transport(Protocol):
    """Carries JSON to one path of a provider."""

    async def send(self, body: bytes) -> HttpAnswer:
        """Post a body and return the answer, whatever its status.

        Raises `NoAnswer`, `AnswerTooLong` and `NoCredentials`.
        """

    async def aclose(self) -> None:
        """Close all connections."""


async def post(
    endpoint: Endpoint, transport: Transport, body: bytes, timeout_s: float
) -> Result[HttpAnswer]:
    """Post a body within a time limit; return the answer, whatever its status, or an error."""
    try:
        async with asyncio.timeout(timeout_s):
            return Ok(await transport.send(body))
    except TimeoutError:
        return Err(endpoint.timed_out(timeout_s))
    except NoAnswer as error:
        return Err(endpoint.unreachable(error))
    except AnswerTooLong:
        return Err(endpoint.sent_too_much(MAX_BODY_BYTES))
    except NoCredentials as error:
        return Err(endpoint.without_credentials(*error.args))


class WireClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, endpoint: Endpoint, wire: ApiFormat, transport: Transport) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._transport = transport
        self._refused = defaultdict[str, frozenset[str]](frozenset)

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make one request; see `ports.ModelClient`.

        If the model rejects a default, the error says `resend`, and later requests omit it.
        """
        sent = self._wire.encode(request, self._refused[request.model])
        body, started = ascii_json(sent.body), time.perf_counter()
        result = await post(self._endpoint, self._transport, body, request.timeout_s)
        latency_ms = (time.perf_counter() - started) * 1000
        if isinstance(result, Err):
            return result
        answer = result.value
        if answer.status == 200:
            reply = self._reply(request, sent, answer, latency_ms)
            is_cut = isinstance(reply, Ok) and reply.value.finish_reason is FinishReason.MAX_TOKENS
            if is_cut and sent.is_tight:
                self._refused[request.model] |= {NEEDS_ROOM}
                reply = Err(self._endpoint.cut_off(answer.text))
            return reply if isinstance(reply, Ok) else Err(self._billed(reply.error, answer))
        rejected = refused_parameters(answer.status, answer.text, sent.body)
        defaults = rejected & sent.defaults
        if not defaults:
            if answer.status in _REFUSAL_STATUSES:  # the request may have asked for too many tokens
                self._refused[request.model] -= {NEEDS_ROOM}
            return Err(self._failure(answer, rejected))
        self._refused[request.model] |= {sent.fallbacks.get(name, name) for name in defaults}
        return Err(self._endpoint.refused_defaults(answer, defaults))

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _reply(
        self, request: ModelRequest, sent: ApiRequest, answer: HttpAnswer, latency_ms: float
    ) -> Result[ModelReply]:
        body: Mapping[str, Any] = {}
        try:
            body = parse_object(answer.text)
            read = self._wire.decode(body, request)
        except UnreadableReply as error:
            # OpenRouter sends errors with status 200.
            errors = objects([part.get("error") for part in (body, *objects(body.get("choices")))])
            for code in (each.get("code") for each in errors):
                if isinstance(code, int) and code >= 400:
                    return Err(self._failure(replace(answer, status=code), frozenset()))
            return Err(self._endpoint.unreadable(answer, str(error)))
        calls = read.own_calls
        if read.finish_reason is FinishReason.TOOL_CALLS and not calls:
            reason = "its finish reason is a tool call, but it contains none"
            return Err(self._endpoint.unreadable(answer, reason))
        return Ok(
            ModelReply(
                text=read.text,
                raw=answer.text,
                latency_ms=latency_ms,
                tool_calls=calls,
                usage=read.usage,
                finish_reason=read.finish_reason,
                model=read.model,
                warnings=tuple(sent.warnings),
                echo=read.echo,
                quotas=quotas(answer.headers, datetime.now(UTC)),
            )
        )

    def _billed(self, error: KindlmError, answer: HttpAnswer) -> KindlmError:
        """Return an error with the reported tokens of its answer, which providers bill."""
        body = json_or_text(answer.text)
        if not isinstance(body, dict):
            return error
        return billed(error, self._wire.usage(body), text_or_none(body.get("model")))

    def _failure(self, answer: HttpAnswer, rejected: frozenset[str]) -> KindlmError:
        written = sorted(WRITTEN_AS[name] for name in rejected if name in WRITTEN_AS)
        if written:
            return self._endpoint.refused_parameter(answer, written[0])
        return self._endpoint.refused(answer)
