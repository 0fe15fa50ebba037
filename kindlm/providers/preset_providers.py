"""Presets: providers that speak OpenAI's format, each with its address, its key and its quirks.

Each class below is a preset, and no other code names it. Its name in lower case is its `type`, its
class variables describe the provider. Its fields are its options: those that `usual_base_url` names
are parts of the address, and the others are sent in the body of each request, under the name of
the field: `safe_prompt` is `safePrompt` in the file. Settings of the environment for OpenAI (key,
address, headers) have no effect on presets.

`client.py` learns from errors which parameters a model refuses. A preset defines the rest: renamed
parameters, fields that must be sent back, and parameters that no model of the provider accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from kindlm.dataclass import replace
from kindlm.errors import Err
from kindlm.plugins import Access, Maybe, Text
from kindlm.ports import Embedder, ModelRequest
from kindlm.providers.client import ApiRequest, WireClient
from kindlm.providers.openai_provider import (
    EMBEDDING_MODEL,
    WIRE,
    WITH_SCHEMA,
    OpenAi,
    client_of,
    decode,
    embedder_of,
    encode,
)
from kindlm.providers.provider_failures import bad_address_part
from kindlm.section import Extension, HostPart
from kindlm.wires import WireAnswer, objects


class _Preset(OpenAi):
    """A provider at its usual address, or behind a `baseUrl` that speaks as it does."""

    address_variable: ClassVar[str | None] = None
    usual_base_url: ClassVar[str | None]
    embedding_model: ClassVar[str | None] = None
    """What embeds texts there; None if it has no endpoint for that, or no model that all have."""
    refuses: ClassVar[frozenset[str]] = frozenset()
    """What no model there takes; see `ApiRequest.to_remember`."""
    renames: ClassVar[Mapping[str, str]] = {}
    """Parameters that have another name there."""
    returns: ClassVar[tuple[str, ...]] = ()
    """Fields of a message with tool calls that have to go back as they came."""
    returns_in_calls: ClassVar[tuple[str, ...]] = ()
    """Fields of a tool call that have to go back as they came."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.embeds = cls.embedding_model is not None
        cls.wants_echo = bool(cls.returns or cls.returns_in_calls)

    def connect(self, access: Access) -> WireClient | Err:
        """Return the client, an error if an option cannot be a part of the address."""
        placed = self._placed(access)
        if isinstance(placed, Err):
            return placed
        wire = replace(WIRE, encode=self._encode, decode=self._decode)
        return client_of(placed, wire)

    def embedder(self, access: Access) -> Embedder:
        """Return the embedder with the model that most users have there."""
        placed = self._placed(access)
        assert not isinstance(placed, Err), "what embeds has no options in its address"
        return embedder_of(placed, self.embedding_model or EMBEDDING_MODEL)

    def base_url(self) -> str:
        """Return the usual address with the options in it."""
        options = {name: getattr(self, name) for name in self.address_options()}
        return (self.usual_base_url or "").format(**options)

    def _placed(self, access: Access) -> Access | Err:
        """Return access to the preset's own address, as if the file named it.

        OpenAI's settings in the environment therefore do not apply there.
        """
        if access.base_url is not None:
            return access
        for name in self.address_options():
            if wrong := bad_address_part(access.name, name, getattr(self, name)):
                return wrong
        variable = access.key_variable or self.usual_key_variable
        return replace(access, base_url=self.base_url(), key_variable=variable)

    def _encode(self, request: ModelRequest, refused: frozenset[str]) -> ApiRequest:
        """Return the body of a chat completion; see `ApiFormat`."""
        sent = encode(request, refused | self.refuses)
        said = [message for message in request.messages if not message.prefill]
        for message, written in zip(said, sent.body["messages"], strict=True):
            if message.echo is not None:
                written.update(message.echo["message"])
                # By position: Gemini's calls may have no ids, or equal ones.
                for call, said_of_it in zip(
                    written.get("tool_calls", ()), message.echo["calls"], strict=False
                ):
                    call.update(said_of_it)
        body = {self.renames.get(name, name): value for name, value in sent.body.items()}
        options = self.model_dump(exclude={*self.address_options()}, exclude_none=True)
        return replace(sent, body=body | options)

    def _decode(self, body: Mapping[str, Any], request: ModelRequest) -> WireAnswer:
        """Read a chat completion; raise `UnreadableReply` if it is not one."""
        answer = decode(body, request)
        message = body["choices"][0]["message"]
        calls = objects(message.get("tool_calls"))
        echo = {
            "message": _fields(message, self.returns),
            "calls": [_fields(call, self.returns_in_calls) for call in calls],
        }
        return replace(answer, echo=echo if calls else None)


def _fields(part: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: part[name] for name in names if part.get(name) is not None}


class Azure(_Preset):
    """Azure OpenAI and Microsoft Foundry, by their v1 API; a model is the name of a deployment.

    https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle: the OpenAI client
    with the resource's key, and no `api-version`.
    """

    usual_base_url = "https://{resource}.openai.azure.com/openai/v1"
    usual_key_variable = "AZURE_OPENAI_API_KEY"

    resource: Extension[Maybe[HostPart]] = Field(default=None, examples=["acme-eu"])
    """The name of the resource, which begins its address."""


class Bedrock(_Preset):
    """Amazon Bedrock, by its OpenAI-compatible endpoint and with a Bedrock API key.

    https://docs.aws.amazon.com/bedrock/latest/userguide/endpoints.html recommends `bedrock-runtime`
    for new applications. `bedrock-mantle` has two paths, each for some of the models.
    """

    usual_base_url = "https://bedrock-runtime.{region}.amazonaws.com/openai/v1"
    usual_key_variable = "AWS_BEARER_TOKEN_BEDROCK"

    region: Extension[Maybe[HostPart]] = Field(default=None, examples=["eu-central-1"])
    """The AWS region."""


class Gemini(_Preset):
    """Google's Gemini API, by its OpenAI-compatible endpoint.

    https://ai.google.dev/gemini-api/docs/openai. A call without its signature is refused:
    https://ai.google.dev/gemini-api/docs/thought-signatures.
    """

    usual_base_url = "https://generativelanguage.googleapis.com/v1beta/openai"
    usual_key_variable = "GEMINI_API_KEY"
    embedding_model = "gemini-embedding-001"
    returns_in_calls = ("extra_content",)


class Vertex(_Preset):
    """Google Vertex AI, by its OpenAI-compatible endpoint and with an access token.

    https://cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/auth-and-credentials: a
    token is valid for an hour. The variable is the one of Google's Terraform provider.
    """

    usual_base_url = (
        "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}"
        "/endpoints/openapi"
    )
    usual_key_variable = "GOOGLE_OAUTH_ACCESS_TOKEN"
    returns_in_calls = ("extra_content",)

    project: Extension[Maybe[Text]] = Field(default=None, examples=["acme-prod"])
    """The id of the Google Cloud project."""
    location: Extension[Maybe[HostPart]] = Field(default=None, examples=["europe-west4"])
    """Where the models run: a region, or `global`."""

    def base_url(self) -> str:
        """Return the address; `global` is not part of the host's name."""
        return super().base_url().replace("//global-", "//")


class Mistral(_Preset):
    """Mistral. https://docs.mistral.ai/api/endpoint/chat: a seed is `random_seed`."""

    usual_base_url = "https://api.mistral.ai/v1"
    usual_key_variable = "MISTRAL_API_KEY"
    embedding_model = "mistral-embed"
    renames: ClassVar[Mapping[str, str]] = {"seed": "random_seed"}


class Cohere(_Preset):
    """Cohere, by its Compatibility API. https://docs.cohere.com/docs/compatibility-api."""

    usual_base_url = "https://api.cohere.ai/compatibility/v1"
    usual_key_variable = "COHERE_API_KEY"
    embedding_model = "embed-v4.0"


class Groq(_Preset):
    """Groq. https://console.groq.com/docs/openai."""

    usual_base_url = "https://api.groq.com/openai/v1"
    usual_key_variable = "GROQ_API_KEY"


class Xai(_Preset):
    """xAI. https://docs.x.ai/developers/rest-api-reference/inference/chat."""

    usual_base_url = "https://api.x.ai/v1"
    usual_key_variable = "XAI_API_KEY"


class DeepSeek(_Preset):
    """DeepSeek. https://api-docs.deepseek.com/api/create-chat-completion: no schema of answers.

    A request without what the model thought before its calls is refused:
    https://api-docs.deepseek.com/guides/thinking_mode.
    """

    usual_base_url = "https://api.deepseek.com"
    usual_key_variable = "DEEPSEEK_API_KEY"
    refuses = frozenset({WITH_SCHEMA})
    returns = ("reasoning_content",)


class OpenRouter(_Preset):
    """OpenRouter. https://openrouter.ai/docs/api/reference/overview.

    https://openrouter.ai/docs/use-cases/reasoning-tokens: what a model thought goes back with its
    calls. Some of the providers behind it refuse a request without.
    """

    usual_base_url = "https://openrouter.ai/api/v1"
    usual_key_variable = "OPENROUTER_API_KEY"
    embedding_model = "openai/text-embedding-3-small"
    returns = ("reasoning_details",)


class Together(_Preset):
    """Together AI. https://docs.together.ai/docs/inference/openai-compatibility."""

    usual_base_url = "https://api.together.ai/v1"
    usual_key_variable = "TOGETHER_API_KEY"


class Fireworks(_Preset):
    """Fireworks AI. https://docs.fireworks.ai/tools-sdks/openai-compatibility."""

    usual_base_url = "https://api.fireworks.ai/inference/v1"
    usual_key_variable = "FIREWORKS_API_KEY"
    embedding_model = "nomic-ai/nomic-embed-text-v1.5"


class LmStudio(_Preset):
    """LM Studio on this machine. https://lmstudio.ai/docs/developer/openai-compat."""

    usual_base_url = "http://127.0.0.1:1234/v1"
    usual_key_variable = None


class Vllm(_Preset):
    """vLLM on this machine. https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html."""

    usual_base_url = "http://127.0.0.1:8000/v1"
    usual_key_variable = None
