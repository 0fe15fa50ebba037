"""A model client: one request on a wire format, under one deadline, without retries.

A format consists of two pure functions, apart from all networking. Bodies of answers are untrusted:
an unreadable one is an `UnreadableReply`, never a crash.

Models differ in the parameters they accept, and no table of them stays correct. If a provider
refuses a parameter that kindlm added, later requests to the model leave it out. OpenAI names the
refused parameter in `param`, others only in words. If the answer to a question of kindlm is cut
off, later questions to the model leave room for its thinking.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Protocol

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import ModelReply, ModelRequest, ToolDefinition
from kindlm.providers.provider_failures import Endpoint, HttpAnswer, billed
from kindlm.providers.quota import quotas
from kindlm.strict_json import json_or_text, parse_json, unique_keys
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, ToolCall, Usage
from kindlm.wires import UnreadableReply, WireAnswer, error_message, objects, text_or_none

TO_THINK = "max_tokens.to_think"
"""What is remembered of a model whose answer to a question of ours was cut off: it may think."""

TOKENS_TO_THINK = 25_000
"""As much as OpenAI advises to leave: https://platform.openai.com/docs/guides/reasoning."""


@dataclass(slots=True)
class ApiRequest:
    """A request in a provider's format, without parameters that its model is known to reject.

    Attributes:
        model: the model's name at its provider.
        refused: what the model is known to reject.
        body: the JSON body.
        warnings: settings of the user that this format lacks, or that were left out.
        ours: names in `body` that the user did not ask for: if a model rejects one of them, the
            request may be sent again without it.
        plainer: those of `ours` that have a plainer form, each with what is remembered in place of
            its name when this one is rejected.
        is_tight: whether it leaves a reasoning model no tokens for thoughts, and may be sent again
            with `TO_THINK` if the answer is cut off.
    """

    model: str
    refused: frozenset[str]
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    plainer: dict[str, str] = field(default_factory=dict)
    is_tight: bool = False

    def to_remember(self, refused: Iterable[str]) -> frozenset[str]:
        """Return what to remember of a model that rejected some of `ours`."""
        return frozenset(self.plainer.get(name, name) for name in refused)

    def add(self, name: str, value: Any) -> None:
        """Add a setting of the user, even if the model may reject it; None adds nothing."""
        if value is not None:
            self.body[name] = value

    def add_ours(self, name: str, value: Any) -> None:
        """Add a setting that the user did not ask for, unless the model rejects it."""
        if name in self.refused:
            self.warn_refused(name)
        else:
            self.body[name] = value
            self.ours.add(name)

    def add_temperature(self, params: ModelParams) -> None:
        """Add the temperature, which is the user's if it is set in the model's `params`."""
        is_users = "temperature" in params.written or params.temperature is None
        (self.add if is_users else self.add_ours)("temperature", params.temperature)

    def warn_refused(self, name: str) -> None:
        """Warn that a parameter was left out because the model does not take it."""
        self.warnings.append(f"`{name}` was not sent: {self.model} does not take it")


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """The format of a model API.

    Attributes:
        path: the path of requests, relative to the SDK's base URL.
        encode: makes the request, without the parameters that this model is known to reject.
        decode: reads a body that is a JSON object, or raises `UnreadableReply`.
        usage: reads the tokens that such a body reports, even if it is otherwise invalid.
    """

    path: str
    encode: Callable[[ModelRequest, frozenset[str]], ApiRequest]
    decode: Callable[[Mapping[str, Any], ModelRequest], WireAnswer]
    usage: Callable[[Mapping[str, Any]], Usage]


def written_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as models write them: no spaces, text unescaped."""
    if call.malformed is not None:
        return call.malformed
    return json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))


def function_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool in OpenAI's form, which Ollama also uses."""
    described = {} if tool.description is None else {"description": tool.description}
    function = {"name": tool.name, **described, "parameters": tool_parameters(tool)}
    return {"type": "function", "function": function}


def prefill_of(request: ModelRequest) -> str:
    """Return the text that an answer begins with; the model does not repeat it."""
    last = request.messages[-1] if request.messages else None
    return last.text if last is not None and last.prefill else ""


def spoken(request: ModelRequest) -> list[Message]:
    """Return the messages without an answered prefill: the answer begins with it."""
    return [each for each in request.messages[:-1] if not each.prefill] + [*request.messages[-1:]]


def tool_parameters(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool's parameters as a schema of type object, which both APIs demand."""
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
"""Parameters on the wire, and as the user writes them in a model's `params`."""

_REFUSAL_STATUSES = frozenset({400, 422})
_REFUSAL = re.compile(
    r"unsupported|not support|unavailable|not available|deprecated|not allowed|not permitted"
    r"|unknown|unrecognized|unexpected|unrecognised|cannot both|not compatible|incompatible"
    r"|extra inputs|only the default",
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(r"too large|too high|supports at most", re.IGNORECASE)
"""What is taken, but not so much of it."""

_FORMAT = "response_format"
_OF_FORMAT = re.compile(r"(?<!\w)(?:response_format|json_schema|json_object)(?!\w)")
"""Who speaks of it in an error does not take it as it was sent, whatever the words: LM Studio and
vLLM say what it must be, others only name the kind that they do not know."""

_SCANNED_CHARACTERS = 4000


def refused_parameters(status: int, body: str, sent: Iterable[str]) -> frozenset[str]:
    """Return those of the `sent` names that the error says the model rejects."""
    if status not in _REFUSAL_STATUSES:
        return frozenset()
    parsed = json_or_text(body)
    error = parsed.get("error") if isinstance(parsed, dict) else None
    param = error.get("param") if isinstance(error, dict) else None
    said = error_message(parsed)
    if said is not None and _TOO_MUCH.search(said[:_SCANNED_CHARACTERS]):
        return frozenset()
    if isinstance(param, str) and param:
        return frozenset(name for name in sent if re.split(r"[.\[]", param, maxsplit=1)[0] == name)
    words = (said or body)[:_SCANNED_CHARACTERS]
    is_refusal = _REFUSAL.search(words) is not None
    return frozenset(
        name
        for name in sent
        if (is_refusal and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", words))
        or (name == _FORMAT and _OF_FORMAT.search(words))
    )


MAX_BODY_BYTES = 10_000_000
"""An answer is read to here, as those of agents are: none of a model is longer."""

_OK = 200


def _status_within(body: Mapping[str, Any]) -> int | None:
    """Return the status of an error inside a 200: OpenRouter's, of itself or of an answer."""
    errors = objects([part.get("error") for part in (body, *objects(body.get("choices")))])
    codes = [error.get("code") for error in errors]
    return next((each for each in codes if isinstance(each, int) and each >= _CLIENT_ERROR), None)


_CLIENT_ERROR = 400


class NoAnswer(Exception):  # noqa: N818 - it names what happened
    """No complete HTTP answer came; the cause says why."""


class AnswerTooLong(Exception):  # noqa: N818 - it names what happened
    """An answer has more than `MAX_BODY_BYTES`, packed or unpacked."""


class NoCredentials(Exception):  # noqa: N818 - it names what happened
    """Nothing was sent, since there are no valid credentials. Its arguments: why, and a hint."""


async def within_bounds(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; raise `AnswerTooLong` above `MAX_BODY_BYTES`."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLong
        yield piece


class Transport(Protocol):
    """Carries JSON to one provider."""

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        """Post a body and return the answer, whatever its status.

        Raise `NoAnswer` without one, `AnswerTooLong` for one that is not read to its end, and
        `NoCredentials`.
        """

    async def aclose(self) -> None:
        """Close all connections."""


async def exchanged(
    endpoint: Endpoint, transport: Transport, path: str, body: bytes, timeout_s: float
) -> Result[HttpAnswer]:
    """Post a body; return the answer, whatever its status, or an error if there is none."""
    try:
        async with asyncio.timeout(timeout_s):
            return Ok(await transport.send(path, body))
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
        self._refused: dict[str, frozenset[str]] = {}

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make one request; see `ports.ModelClient`.

        When the model rejects a parameter that the user did not ask for, the error says `resend`,
        and later requests to the model omit it.
        """
        refused = self._refused.get(request.model, frozenset())
        sent = self._wire.encode(request, refused)
        # Plain ASCII, so that lone surrogates, which models do write, survive the way back.
        body = json.dumps(sent.body, separators=(",", ":")).encode("ascii")
        started = time.perf_counter()
        found = await exchanged(
            self._endpoint, self._transport, self._wire.path, body, request.timeout_s
        )
        latency_ms = (time.perf_counter() - started) * 1000
        if isinstance(found, Err):
            return found
        answer = found.value
        if answer.status == _OK:
            result = self._reply(request, sent, answer, latency_ms)
            is_cut = (
                isinstance(result, Ok) and result.value.finish_reason is FinishReason.MAX_TOKENS
            )
            if is_cut and sent.is_tight:
                self._learn(request, frozenset({TO_THINK}))
                result = Err(self._endpoint.cut_off(answer.text))
            return result if isinstance(result, Ok) else Err(self._billed(result.error, answer))
        culprits = refused_parameters(answer.status, answer.text, sent.body)
        ours = culprits & sent.ours
        if not ours:
            if answer.status in _REFUSAL_STATUSES:  # the request may have asked for too many tokens
                known = self._refused.get(request.model, frozenset())
                self._refused[request.model] = known - {TO_THINK}
            return Err(self._failure(answer, culprits))
        self._learn(request, sent.to_remember(ours))
        return Err(self._endpoint.refused_defaults(answer, ours))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    def _learn(self, request: ModelRequest, what: frozenset[str]) -> None:
        # Another request may have had a different parameter rejected meanwhile.
        self._refused[request.model] = self._refused.get(request.model, frozenset()) | what

    def _reply(
        self, request: ModelRequest, sent: ApiRequest, answer: HttpAnswer, latency_ms: float
    ) -> Result[ModelReply]:
        try:
            body = parse_json(answer.text, unique_keys)
        except ValueError as error:
            return self._unreadable(answer, f"not valid JSON: {error}")
        if not isinstance(body, dict):
            return self._unreadable(answer, "not a JSON object")
        try:
            said = self._wire.decode(body, request)
        except UnreadableReply as error:
            if (status := _status_within(body)) is None:
                return self._unreadable(answer, str(error))
            return Err(self._failure(replace(answer, status=status), frozenset()))
        calls = said.own_calls
        if said.finish_reason is FinishReason.TOOL_CALLS and not calls:
            return self._unreadable(
                answer, "its finish reason is a tool call, but it contains none"
            )
        return Ok(
            ModelReply(
                text=said.text,
                raw=answer.text,
                latency_ms=latency_ms,
                tool_calls=calls,
                usage=said.usage,
                finish_reason=said.finish_reason,
                model=said.model,
                warnings=tuple(sent.warnings),
                echo=said.echo,
                quotas=quotas(answer.headers, datetime.now(UTC)),
            )
        )

    def _unreadable(self, answer: HttpAnswer, reason: str) -> Err:
        return Err(self._endpoint.unreadable(answer, reason))

    def _billed(self, error: KindlmError, answer: HttpAnswer) -> KindlmError:
        """Return an error with the tokens that the answer reports, which providers bill."""
        body = json_or_text(answer.text)
        if not isinstance(body, dict):
            return error
        return billed(error, self._wire.usage(body), text_or_none(body.get("model")))

    def _failure(self, answer: HttpAnswer, culprits: frozenset[str]) -> KindlmError:
        written = sorted(WRITTEN_AS[name] for name in culprits if name in WRITTEN_AS)
        if written:
            return self._endpoint.refused_parameter(answer, written[0])
        return self._endpoint.refused(answer)
