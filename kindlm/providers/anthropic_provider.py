"""The `anthropic` provider: Anthropic Messages, which other platforms also speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelRequest, ToolDefinition
from kindlm.providers.client import (
    ApiFormat,
    ApiRequest,
    WireClient,
    from_form,
    prefill_of,
    tool_parameters,
    without_answered_prefills,
)
from kindlm.providers.provider_failures import Endpoint
from kindlm.strict_json import parse_json
from kindlm.transcript import Message, Role, ToolCall, not_sent
from kindlm.wires import WireAnswer, text_or_none
from kindlm.wires.anthropic import answer_of, usage_of

if TYPE_CHECKING:
    import anthropic

    from kindlm.providers.sdk_transport import Signing


def encode(request: ModelRequest, refused: frozenset[str] = frozenset()) -> ApiRequest:
    """Return the body of a message request, without parameters that the model rejects."""
    params = request.params
    sent = ApiRequest(request.model, refused, {"model": request.model})
    sent.add("max_tokens", sent.limit(request))
    system = [message.text for message in request.messages if message.role is Role.SYSTEM]
    sent.add("system", "\n\n".join(system) or None)
    sent.add("messages", list(_messages(request)))
    sent.add_temperature(params)
    sent.add("top_p", params.top_p)
    sent.add("stop_sequences", list(params.stop_sequences) or None)
    if params.seed is not None:
        sent.warnings.append(f"{not_sent('seed')}: Anthropic's API has none")
    tools = [_tool(tool) for tool in request.tools]
    wanted = request.response_schema
    if wanted is not None:
        # The form of the answer is a tool that the model must call.
        tools.append({"name": wanted.name, "input_schema": dict(wanted.schema)})
        sent.add_default("tool_choice", {"type": "tool", "name": wanted.name})
    sent.add("tools", tools or None)
    return sent


def decode(body: Mapping[str, Any], request: ModelRequest) -> WireAnswer:
    """Read a message; raise `UnreadableReply` for anything else."""
    answer = answer_of(body)
    if (asked_for := from_form(answer, request)) is not answer:
        return asked_for
    prefill = prefill_of(request)
    echo = None if prefill else _thoughtful(body["content"])
    return replace(answer, text=prefill + answer.text, echo=echo)


def _thoughtful(content: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the blocks of an answer with thoughts, to be sent back unchanged.

    Models use their thoughts in later answers, and many think unless told otherwise:
    https://platform.claude.com/docs/en/build-with-claude/preserved-thinking.
    """
    if not any(block.get("type") in ("thinking", "redacted_thinking") for block in content):
        return None
    return {"content": [block for block in content if not _is_blank(block)]}


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Return whether it is a text block that the API would reject in a request."""
    return block.get("type") == "text" and not (text_or_none(block.get("text")) or "").strip()


WIRE = ApiFormat("/v1/messages", encode, decode, usage_of)


def _messages(request: ModelRequest) -> Iterable[dict[str, Any]]:
    messages = [m for m in without_answered_prefills(request) if m.role is not Role.SYSTEM]
    for is_result, group in groupby(messages, lambda message: message.role is Role.TOOL):
        if is_result:
            # The API demands all results of an answer in one user message.
            yield {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": each.tool_call_id, "content": each.text}
                    for each in group
                ],
            }
        else:
            yield from (_message(message) for message in group)


def _message(message: Message) -> dict[str, Any]:
    if message.echo is not None:
        return {"role": "assistant", "content": message.echo["content"]}
    if not message.tool_calls:
        return {"role": message.role.value, "content": message.text}
    blocks: list[dict[str, Any]] = []
    if message.text.strip():  # the API rejects a blank text block
        blocks.append({"type": "text", "text": message.text})
    blocks.extend(_echo(call) for call in message.tool_calls)
    return {"role": "assistant", "content": blocks}


def _echo(call: ToolCall) -> dict[str, Any]:
    arguments: Any = call.arguments
    if call.malformed is not None:
        try:
            arguments = parse_json(call.malformed)
        except ValueError:
            arguments = call.malformed
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    named: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        named["description"] = tool.description
    named["input_schema"] = tool_parameters(tool)
    return named


_BASE_URL = "https://api.anthropic.com"
_CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
NO_KEY = "unused"
API_VERSION = "2023-06-01"
"""The last version that takes `temperature` and `top_p`, which suites set and judges need.

Later versions reject them for all models, and do not differ otherwise in what kindlm uses.
"""


class Anthropic(Provider):
    """Calls Anthropic; a custom endpoint without a key gets a placeholder."""

    usual_key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    address_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"
    takes_seed: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True

    def connect(self, access: Access) -> WireClient:
        from kindlm.providers.request_form import form_cache
        from kindlm.providers.sdk_transport import Sdk, SdkTransport

        base_url = access.base_url or self.ambient_address(access.environ) or _BASE_URL
        endpoint = Endpoint(access.name, base_url, access.key_variable, access.key or "")

        def load() -> Sdk:
            import anthropic

            key = access.key or NO_KEY
            make = partial(anthropic.AsyncAnthropic, api_key=key, base_url=base_url)
            return Sdk(anthropic, make, _headers(access))

        cache = form_cache("anthropic", access, base_url, WIRE.path)
        transport = SdkTransport(WIRE.path, load, cache)
        return WireClient(endpoint, WIRE, transport)


def _headers(access: Access) -> dict[str, str | anthropic.Omit]:
    """Return kindlm's own headers for each request.

    The SDK sends the key only as `Authorization`. Gateways for this API version expect `X-Api-Key`.
    """
    import anthropic

    from kindlm.providers.sdk_transport import ambient_headers

    key = access.key or NO_KEY
    ambient = ambient_headers(anthropic, _CUSTOM_HEADERS)
    own: dict[str, str | anthropic.Omit] = {"anthropic-version": API_VERSION, "X-Api-Key": key}
    if access.base_url is None:
        of_user = {name.lower() for name in ambient}
        return {name: value for name, value in own.items() if name.lower() not in of_user}
    own["Authorization"] = f"Bearer {key}"
    return ambient | own


_FIRST_MAJOR = 1
"""Older SDKs lack a platform or a kind of credentials."""


def platform_client(
    endpoint: Endpoint,
    make: Callable[..., Any],
    wire: ApiFormat,
    *,
    headers: Mapping[str, str] | None = None,
    signing: Signing | None = None,
) -> WireClient | Err:
    """Return the client of a third-party platform for Anthropic's models.

    `make` makes the SDK's client, see `Sdk`. With `signing`, the SDK sends each request, and
    nothing is cached. A `baseUrl` gets only the key that `apiKeyEnv` names, or an AWS signature.
    """
    import anthropic

    from kindlm.providers.sdk_transport import Sdk, SdkTransport, ambient_headers

    if int(anthropic.__version__.partition(".")[0]) < _FIRST_MAJOR:
        message = f"{endpoint.title} needs version {_FIRST_MAJOR} or later of the package anthropic"
        hint = "Update it: pip install --upgrade anthropic"
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
    # The headers of the environment are for Anthropic itself, not for the platform.
    ambient = ambient_headers(anthropic, _CUSTOM_HEADERS)
    whole = {name.lower(): value for name, value in ambient.items()} | dict(headers or {})
    transport = SdkTransport(wire.path, lambda: Sdk(anthropic, make, whole, signing))
    return WireClient(endpoint, wire, transport)


def wire_of_version(version: str) -> ApiFormat:
    """Return Anthropic's format with the version in the body, as Bedrock and Vertex require.

    The SDK's own version takes no sampling parameters.
    """

    def encode_with_version(request: ModelRequest, refused: frozenset[str]) -> ApiRequest:
        sent = encode(request, refused)
        return replace(sent, body={"anthropic_version": version, **sent.body})

    return replace(WIRE, encode=encode_with_version)


def missing_package(access: Access, package: str, extra: str) -> Err:
    """Return the error of a missing package that a platform needs for its credentials."""
    message = f"The provider {access.name} needs the package {package}, which is not installed"
    hint = f"Install it: pip install 'kindlm[{extra}]'"
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
