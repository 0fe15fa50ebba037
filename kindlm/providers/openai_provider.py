"""The `openai` provider: OpenAI Chat Completions, and every endpoint that speaks its format.

Strict structured output demands that the root is an object, all objects are closed, all properties
are required, and only `anyOf` composes.
See https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kindlm.errors import Err
from kindlm.plugins import Access, Provider
from kindlm.ports import Embedder, ModelRequest, ResponseSchema
from kindlm.providers.client import (
    ApiFormat,
    ApiRequest,
    WireClient,
    function_tool,
    written_arguments,
)
from kindlm.providers.embedders import WireEmbedder
from kindlm.providers.provider_failures import Endpoint
from kindlm.transcript import Message, Role, ToolCall
from kindlm.wires import WireAnswer
from kindlm.wires.chat import answer_of, usage_of

if TYPE_CHECKING:
    import openai
    from openai._types import Headers

    from kindlm.providers.sdk_transport import SdkTransport


def allows_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is sent with `strict`: its root is closed and requires all members.

    In the schemas of kindlm's own questions, the same holds for all other objects.
    """
    is_closed = schema.get("type") == "object" and schema.get("additionalProperties") is False
    return is_closed and {*schema.get("required", ())} == schema.get("properties", {}).keys()


WITH_SCHEMA = "response_format.json_schema"
"""Noted among the rejected parameters of a model that takes no schema for its answers."""

_REASONING = re.compile(
    r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|[1-9]\d)(?!\d*(?:\.\d+)?-chat))(?![0-9a-z])"
)


def is_reasoning_model(model: str) -> bool:
    """Return whether a model takes `max_completion_tokens` and no temperature, such as o3."""
    return _REASONING.match(model.lower()) is not None


def encode(request: ModelRequest, refused: frozenset[str] = frozenset()) -> ApiRequest:
    """Return the body of a chat completion, without parameters that the model rejects."""
    params = request.params
    if is_reasoning_model(request.model):
        refused |= {"temperature"}
    messages = [_message(message) for message in request.messages if not message.prefill]
    sent = ApiRequest(request.model, refused, {"model": request.model, "messages": messages})
    if len(messages) < len(request.messages):
        sent.warnings.append(
            "prefill was not sent: only Anthropic and Ollama let a request begin the answer"
        )
    sent.add_temperature(params)
    limit = sent.limit(request, reasons=is_reasoning_model(request.model))
    # The limit has an old and a new name, and servers may know only one of them. If a name is
    # rejected, the other one replaces it.
    names = ["max_tokens", "max_completion_tokens"]
    if is_reasoning_model(sent.model):
        names.reverse()
    usable = [name for name in names if name not in sent.refused]
    if len(usable) == 1 and "max_tokens" in params.written:
        sent.add(usable[0], params.max_tokens)
    else:
        sent.add_default((usable or names)[0], limit)
    sent.add("top_p", params.top_p)
    sent.add("stop", list(params.stop_sequences) or None)
    sent.add("seed", params.seed)
    sent.add("tools", [function_tool(tool) for tool in request.tools] or None)
    if request.response_schema is not None:
        _add_response_format(sent, request.response_schema)
    return sent


def decode(body: Mapping[str, Any], _request: ModelRequest) -> WireAnswer:
    """Read a chat completion; raise `UnreadableReply` for anything else, or if it was cut off."""
    return answer_of(body)


WIRE = ApiFormat("/chat/completions", encode, decode, usage_of)


def _message(message: Message) -> dict[str, Any]:
    match message.role:
        case Role.TOOL:
            return {"role": "tool", "content": message.text, "tool_call_id": message.tool_call_id}
        case Role.ASSISTANT if message.tool_calls:
            return {
                "role": "assistant",
                "content": message.text or None,
                "tool_calls": [_echo(call) for call in message.tool_calls],
            }
        case _:
            return {"role": message.role.value, "content": message.text}


def _echo(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": written_arguments(call)}
    return {"id": call.id, "type": "function", "function": function}


def _add_response_format(sent: ApiRequest, wanted: ResponseSchema) -> None:
    # A server takes a schema, only `json_object`, or neither: each form is tried once.
    if WITH_SCHEMA in sent.refused:
        if "response_format" not in sent.refused:
            sent.warnings.append(
                f"`response_format` was sent without a schema: {sent.model} does not take one"
            )
        sent.add_default("response_format", {"type": "json_object"})
    else:
        schema = dict(wanted.schema)
        named: dict[str, Any] = {"name": wanted.name, "schema": schema}
        if allows_strict(schema):
            named["strict"] = True
        sent.add_default("response_format", {"type": "json_schema", "json_schema": named})
        sent.fallbacks["response_format"] = WITH_SCHEMA


_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "unused"
EMBEDDING_MODEL = "text-embedding-3-small"
_EMBEDDINGS = "/embeddings"


class OpenAi(Provider):
    """Calls OpenAI, or an endpoint that speaks its format, with a key or without."""

    usual_key_variable: ClassVar[str | None] = "OPENAI_API_KEY"
    address_variable: ClassVar[str | None] = "OPENAI_BASE_URL"
    embeds: ClassVar[bool] = True

    def connect(self, access: Access) -> WireClient | Err:
        return client_of(access, WIRE)

    def embedder(self, access: Access) -> Embedder:
        """Return an embedder with OpenAI's smaller model, which other servers also have."""
        return embedder_of(access, EMBEDDING_MODEL)


def client_of(access: Access, wire: ApiFormat) -> WireClient:
    """Return the client of an endpoint that speaks OpenAI's format."""
    endpoint = _endpoint(access)
    return WireClient(endpoint, wire, _connect(access, endpoint, wire.path))


def embedder_of(access: Access, model: str) -> WireEmbedder:
    """Return the embedder of an endpoint that speaks OpenAI's format."""
    endpoint = _endpoint(access)
    connect = partial(_connect, access, endpoint, _EMBEDDINGS)
    return WireEmbedder(endpoint, model, connect)


def _endpoint(access: Access) -> Endpoint:
    base_url = access.base_url or OpenAi.ambient_address(access.environ) or _BASE_URL
    return Endpoint(access.name, base_url, access.key_variable, access.key or "")


def _connect(access: Access, endpoint: Endpoint, path: str) -> SdkTransport:
    from kindlm.providers.request_form import form_cache
    from kindlm.providers.sdk_transport import Sdk, SdkTransport

    def load() -> Sdk:
        import openai

        make = partial(
            openai.AsyncOpenAI,
            api_key=endpoint.key or _NO_KEY,
            organization=access.organization,
            base_url=endpoint.base_url,
        )
        return Sdk(openai, make, _headers(access))

    return SdkTransport(path, load, form_cache("openai", access, endpoint.base_url, path))


def _headers(access: Access) -> Headers:
    """Return headers that override those of the environment, for a configured `baseUrl`."""
    import openai

    from kindlm.providers.sdk_transport import ambient_headers

    if access.base_url is None:
        return {}
    headers: dict[str, str | openai.Omit] = ambient_headers(openai, "OPENAI_CUSTOM_HEADERS")
    headers["OpenAI-Project"] = openai.Omit()
    headers["OpenAI-Organization"] = access.organization or openai.Omit()
    headers["Authorization"] = f"Bearer {access.key}" if access.key else openai.Omit()
    return headers
