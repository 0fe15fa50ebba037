"""The `pydantic-ai` provider: all models of Pydantic AI, such as `google:gemini-2.5-pro`.

https://ai.pydantic.dev/models/overview/ lists them. Pydantic AI makes one request for each call,
without retries. It does not keep the bodies of answers, so none is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.garbage import put_off
from kindlm.packages import CRASHES
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelReply, ModelRequest
from kindlm.providers.client import (
    NEEDS_ROOM,
    ApiRequest,
    from_form,
    refused_parameters,
    tool_parameters,
)
from kindlm.providers.provider_failures import Endpoint, HttpAnswer, billed
from kindlm.transcript import FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import WireAnswer, extras_from

if TYPE_CHECKING:
    from pydantic_ai import messages as parts
    from pydantic_ai.models import Model, ModelRequestParameters

_INSTALL = "Install it: pip install 'kindlm[models]'"
_NO_KEY = "unused"
_ONE_TRY = {"AWS_MAX_ATTEMPTS": "1"}
"""boto3 reads the number of tries only from the environment."""
_OF_ONE_PROVIDER = re.compile(r"(OPENAI|ANTHROPIC)_(?!API_VERSION)|([A-Z]+)_CUSTOM_HEADERS")
"""Variables that SDKs read for every provider they call. `OPENAI_API_VERSION` is Azure's."""

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.MAX_TOKENS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "tool_call": FinishReason.TOOL_CALLS,
}


class PydanticAi(Provider):
    """Calls models through Pydantic AI, with the keys in its own variables or in `apiKeyEnv`."""

    wants_echo = True

    def connect(self, access: Access) -> PydanticAiClient | Err:
        if importlib.util.find_spec("pydantic_ai") is None:
            message = f"The provider {access.name} needs the package pydantic-ai-slim"
            return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, _INSTALL))
        import pydantic_ai.direct  # noqa: F401 - takes a second, so before the first call

        return PydanticAiClient(access)


class PydanticAiClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._endpoint = Endpoint(
            access.name, access.base_url or "", access.key_variable, access.key or ""
        )
        self._models: dict[str, Model[Any]] = {}
        self._making = asyncio.Lock()
        self._refused = defaultdict[str, set[str]](set)

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        model = await self._model(request.model)
        if isinstance(model, Err):
            return model
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._ask(model.value, request)
        except TimeoutError:
            return Err(self._endpoint.timed_out(request.timeout_s))
        except CRASHES as error:  # each provider's SDK has its own errors
            return Err(self._failure(error, request))

    async def aclose(self) -> None:
        for model in self._models.values():
            await model.__aexit__(None, None, None)

    async def _model(self, name: str) -> Result[Model[Any]]:
        async with self._making:
            if name not in self._models:
                try:
                    await asyncio.to_thread(_import_sdk, name)
                    with put_off(), _environment(self._access, name):
                        model = _made(name, self._access)
                    if _is_of_sdk(model):
                        model.client.max_retries = 0
                    await model.__aenter__()  # keeps its connections until `aclose`
                except CRASHES as error:
                    return Err(self._unmade(name, error))
                self._models[name] = model
            return Ok(self._models[name])

    def _unmade(self, name: str, error: BaseException) -> KindlmError:
        """Return the error of a model that cannot be made; the library's own words say why."""
        reason = self._endpoint.without_key(str(error)).partition(" To try Pydantic AI")[0]
        is_absent = isinstance(error, ImportError) or reason.startswith("Unknown")
        code = ErrorCode.PROVIDER_NOT_FOUND if is_absent else ErrorCode.PROVIDER_AUTH_ERROR
        hint = "Write it like google:gemini-2.5-pro, install its package, and set its key"
        return KindlmError(code, f"Pydantic AI cannot call {name}: {reason}", hint)

    async def _ask(self, model: Model[Any], request: ModelRequest) -> Result[ModelReply]:
        from pydantic_ai.direct import model_request

        sent = self._settings(model, request)
        if request.messages[-1].prefill:
            sent.warnings.append("prefill was not sent: Pydantic AI has none")
        started = time.perf_counter()
        response = await model_request(
            model,
            list(_messages(request.messages)),
            model_settings=sent.body,
            model_request_parameters=_parameters(model, request),
            instrument=False,
        )
        latency_ms = (time.perf_counter() - started) * 1000
        text = "".join(part.content for part in response.parts if part.part_kind == "text")
        called = [part for part in response.parts if part.part_kind == "tool-call"]
        # Some SDKs, such as Groq's, take what the provider sent as it is.
        named = [
            part for part in called if _is_name(part.tool_call_id) and _is_name(part.tool_name)
        ]
        all_calls = tuple(
            ToolCall.parse(part.tool_call_id, part.tool_name, part.args or {}) for part in named
        )
        read = from_form(WireAnswer(text, all_calls), request)
        calls, ended = read.tool_calls, _FINISH_REASONS.get(response.finish_reason or "")
        if calls and ended in (None, FinishReason.STOP):
            ended = FinishReason.TOOL_CALLS
        elif ended is FinishReason.TOOL_CALLS and not calls:
            ended = FinishReason.STOP
        used, failure = response.usage, None
        written_1h = getattr(used, "cache_write_1h_tokens", None)  # not in older versions
        extras = extras_from(used.cache_read_tokens, used.cache_write_tokens, written_1h)
        usage = Usage()
        if used.total_tokens:
            usage = Usage(used.input_tokens, used.output_tokens, extras)
        if response.finish_reason == "error":
            failure = self._endpoint.crashed("an error cut the answer off")
        elif len(named) < len(called):
            failure = self._endpoint.crashed("a tool call in the answer has no id or no name")
        elif ended is FinishReason.MAX_TOKENS and sent.is_tight:
            self._refused[request.model].add(NEEDS_ROOM)
            failure = self._endpoint.cut_off(read.text)
        if failure is not None:
            return Err(billed(failure, usage, response.model_name))
        return Ok(
            ModelReply(
                read.text,
                raw=None,
                latency_ms=latency_ms,
                tool_calls=calls,
                usage=usage,
                finish_reason=ended,
                model=response.model_name,
                warnings=tuple(sent.warnings),
                # Reasoning models need their reasoning back with the results of their calls.
                echo={"response": response} if calls else None,
            )
        )

    def _settings(self, model: Model[Any], request: ModelRequest) -> ApiRequest:
        """Return the settings that the model accepts, and warnings about the others."""
        refused = frozenset({*model.unsupported_settings, *self._refused[request.model]})
        sent, params = ApiRequest(request.model, refused, {}), request.params
        if "max_retries" not in refused and not _is_of_sdk(model):
            sent.body["max_retries"] = 0
        settings = {
            "max_tokens": sent.limit(request),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": params.seed,
            "stop_sequences": list(params.stop_sequences) or None,
        }
        for name, value in settings.items():
            if value is not None:
                sent.add_default(name, value)
        return sent

    def _failure(self, error: BaseException, request: ModelRequest) -> KindlmError:
        from pydantic_ai import exceptions

        if isinstance(error, exceptions.ModelHTTPError):
            if error.status_code == 400:  # the request may have asked for too many tokens
                self._refused[request.model].discard(NEEDS_ROOM)
            headers = dict(error.headers or {})
            if error.retry_after is not None:  # Google has it in the body
                headers["retry-after-ms"] = str(error.retry_after * 1000)
            answer = HttpAnswer(error.status_code, headers, _body(error))
            temperature = {"temperature"} - {*request.params.written}
            if refused_parameters(answer.status, answer.text, temperature):
                self._refused[request.model] |= temperature
                return self._endpoint.refused_defaults(answer, temperature)
            return self._endpoint.refused(answer)
        if isinstance(error, exceptions.ModelTimeoutError):
            return self._endpoint.timed_out(request.timeout_s)
        if isinstance(error, exceptions.ModelConnectionError):
            return self._endpoint.unreachable(error)
        return self._endpoint.crashed(f"{type(error).__name__}: {error}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


@contextlib.contextmanager
def _environment(access: Access, model: str) -> Iterator[None]:
    """Put variables of `.env` files into the process environment, where Pydantic AI reads them.

    Variables of other providers are hidden; with a custom address, all of them are.
    """
    before = dict(os.environ)
    provider = "" if access.base_url is not None else model.upper()
    for name in {**before, **access.environ}:
        owner = _OF_ONE_PROVIDER.match(name)
        if owner is not None and not provider.startswith(owner[1] or owner[2]):
            os.environ.pop(name, None)
        elif name in access.environ:
            os.environ[name] = access.environ[name]
    os.environ.update(_ONE_TRY)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _import_sdk(name: str) -> None:
    """Import the packages of a model, in a thread while other calls go on."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    with put_off(), contextlib.suppress(*CRASHES):
        # With this function in place of a provider, no key is needed.
        infer_model(name, infer_provider_class)


def _made(name: str, access: Access) -> Model[Any]:
    """Return the model of a name. A custom address gets only the key of `apiKeyEnv`."""
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    if access.key is None and access.base_url is None:
        return infer_model(name)
    given = {"api_key": access.key or _NO_KEY}
    if access.base_url is not None:
        given["base_url"] = access.base_url

    def provider(name: str) -> Any:
        kind = infer_provider_class(name)
        parameters = inspect.signature(kind).parameters
        for key, written in (("api_key", "apiKeyEnv"), ("base_url", "baseUrl")):
            if key in given and key not in parameters:
                raise UserError(f"its provider {name} takes no {written}")
        return kind(**given)

    return infer_model(name, provider)


def _is_of_sdk(model: Any) -> bool:
    """Return whether the client of a model has the number of retries, as OpenAI's SDK does.

    Setting it for each request would copy the client, and the copy would read the environment.
    """
    return hasattr(getattr(model, "client", None), "max_retries")


def _messages(messages: Iterable[Message]) -> Iterator[parts.ModelMessage]:
    """Yield the messages of a conversation; messages between two answers form one request."""
    from pydantic_ai import messages as parts

    asked: list[parts.ModelRequestPart] = []
    for message in messages:
        match message.role:
            case Role.SYSTEM:
                asked.append(parts.SystemPromptPart(message.text))
            case Role.USER:
                asked.append(parts.UserPromptPart(message.text))
            case Role.TOOL:
                name = message.tool_name or ""
                asked.append(parts.ToolReturnPart(name, message.text, message.tool_call_id or ""))
            case Role.ASSISTANT if not message.prefill:
                if asked:
                    yield parts.ModelRequest(asked)
                    asked = []
                yield _answer(message)
    if asked:
        yield parts.ModelRequest(asked)


def _answer(message: Message) -> parts.ModelResponse:
    """Return an answer, in the model's own form if it is known."""
    from pydantic_ai import messages as parts

    if message.echo is not None:
        response: parts.ModelResponse = message.echo["response"]
        return response
    calls = [
        parts.ToolCallPart(
            call.name, call.arguments if call.malformed is None else call.malformed, call.id
        )
        for call in message.tool_calls
    ]
    return parts.ModelResponse([*([parts.TextPart(message.text)] if message.text else []), *calls])


def _parameters(model: Model[Any], request: ModelRequest) -> ModelRequestParameters:
    """Return the tools of a request, and the form of its answer.

    The form is a schema if the model takes one and the request has no tools. Otherwise, it is a
    tool that the model must call.
    """
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool_parameters(tool),
        )
        for tool in request.tools
    ]
    wanted = request.response_schema
    if wanted is None:
        return ModelRequestParameters(function_tools=tools)
    schema = dict(wanted.schema)
    takes_schema = model.profile.get("supports_json_schema_output") and not tools
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if takes_schema else "tool",
        allow_text_output=bool(takes_schema),
        output_object=OutputObjectDefinition(name=wanted.name, json_schema=schema),
        output_tools=[
            ToolDefinition(name=wanted.name, parameters_json_schema=schema, kind="output")
        ],
    )


def _body(error: Any) -> str:
    """Return the body of an error as text, with its message in the usual place."""
    body = error.body
    if isinstance(body, dict) and "error" not in body:  # OpenAI's SDK, or boto3
        inner = body.get("Error", body)
        body = {"error": {**inner, "message": inner.get("message", inner.get("Message"))}}
    return body if isinstance(body, str) else json.dumps(body or {"error": str(error)}, default=str)
