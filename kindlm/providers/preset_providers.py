"""Presets: providers that speak OpenAI's format, each with its address, its key and its quirks.

Each class below is a preset, and kindlm finds it by its name: in lower case, this is the `type`.
Its fields are its options. Fields that `usual_base_url` names are parts of the address. The others
are sent in the body of each request under the name of the field, as `safe_prompt` for `safePrompt`
in the file. OpenAI's own environment variables have no effect.

`client.py` learns from errors which parameters a model rejects. A preset defines the rest: renamed
parameters, fields that must be sent back, and parameters that no model of the provider takes.
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
from kindlm.section import HostPart
from kindlm.wires import WireAnswer, objects


class _Preset(OpenAi):
    """A provider at its usual address, or at a `baseUrl`."""

    address_variable: ClassVar[str | None] = None
    usual_base_url: ClassVar[str | None]
    embedding_model: ClassVar[str | None] = None
    """None if the provider has no endpoint for embeddings, or no model that all users have."""
    refuses: ClassVar[frozenset[str]] = frozenset()
    """What no model of the provider takes; see `ApiRequest.refused`."""
    renames: ClassVar[Mapping[str, str]] = {}
    """The provider's names of OpenAI's parameters."""
    returns: ClassVar[tuple[str, ...]] = ()
    """Fields of a message with tool calls that must be sent back unchanged."""
    returns_in_calls: ClassVar[tuple[str, ...]] = ()
    """Fields of a tool call that must be sent back unchanged."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.embeds = cls.embedding_model is not None
        cls.wants_echo = bool(cls.returns or cls.returns_in_calls)

    def connect(self, access: Access) -> WireClient | Err:
        """Return the client, or an error if an option cannot be a part of the address."""
        addressed = self._addressed(access)
        if isinstance(addressed, Err):
            return addressed
        wire = replace(WIRE, encode=self._encode, decode=self._decode)
        return client_of(addressed, wire)

    def embedder(self, access: Access) -> Embedder:
        addressed = self._addressed(access)
        assert not isinstance(addressed, Err), "presets with embeddings have no address options"
        return embedder_of(addressed, self.embedding_model or EMBEDDING_MODEL)

    def base_url(self) -> str:
        options = {name: getattr(self, name) for name in self.address_options()}
        return (self.usual_base_url or "").format(**options)

    def _addressed(self, access: Access) -> Access | Err:
        """Return access with the preset's address, as if the file named it.

        So OpenAI's settings in the environment do not apply.
        """
        if access.base_url is not None:
            return access
        for name in self.address_options():
            if wrong := bad_address_part(access.name, name, getattr(self, name)):
                return wrong
        variable = access.key_variable or self.usual_key_variable
        return replace(access, base_url=self.base_url(), key_variable=variable)

    def _encode(self, request: ModelRequest, refused: frozenset[str]) -> ApiRequest:
        sent = encode(request, refused | self.refuses)
        messages = [message for message in request.messages if not message.prefill]
        for message, written in zip(messages, sent.body["messages"], strict=True):
            if message.echo is not None:
                written.update(message.echo["message"])
                # By position: Gemini's calls may have no ids, or equal ids.
                calls = zip(written.get("tool_calls", ()), message.echo["calls"], strict=False)
                for call, returned in calls:
                    call.update(returned)
        body = {self.renames.get(name, name): value for name, value in sent.body.items()}
        options = self.model_dump(exclude={*self.address_options()}, exclude_none=True)
        return replace(sent, body=body | options)

    def _decode(self, body: Mapping[str, Any], request: ModelRequest) -> WireAnswer:
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

    https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle: OpenAI's client takes
    the resource's key, and no `api-version`.
    """

    usual_base_url = "https://{resource}.openai.azure.com/openai/v1"
    usual_key_variable = "AZURE_OPENAI_API_KEY"

    resource: Maybe[HostPart] = Field(default=None, examples=["acme-eu"])
    """The name of the resource, which begins its address."""


class Bedrock(_Preset):
    """Amazon Bedrock, by its OpenAI-compatible endpoint and with a Bedrock API key.

    https://docs.aws.amazon.com/bedrock/latest/userguide/endpoints.html recommends `bedrock-runtime`
    for new applications. `bedrock-mantle` has two paths, each for some of the models.
    """

    usual_base_url = "https://bedrock-runtime.{region}.amazonaws.com/openai/v1"
    usual_key_variable = "AWS_BEARER_TOKEN_BEDROCK"

    region: Maybe[HostPart] = Field(default=None, examples=["eu-central-1"])
    """The AWS region."""


class Gemini(_Preset):
    """Google's Gemini API, by its OpenAI-compatible endpoint.

    https://ai.google.dev/gemini-api/docs/openai. Gemini rejects calls without their signature:
    https://ai.google.dev/gemini-api/docs/thought-signatures.
    """

    usual_base_url = "https://generativelanguage.googleapis.com/v1beta/openai"
    usual_key_variable = "GEMINI_API_KEY"
    embedding_model = "gemini-embedding-001"
    returns_in_calls = ("extra_content",)


class Vertex(_Preset):
    """Google Vertex AI, by its OpenAI-compatible endpoint and with an access token.

    https://cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/auth-and-credentials: a
    token is valid for an hour. Google's Terraform provider reads the same variable.
    """

    usual_base_url = (
        "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}"
        "/endpoints/openapi"
    )
    usual_key_variable = "GOOGLE_OAUTH_ACCESS_TOKEN"
    returns_in_calls = ("extra_content",)

    project: Maybe[Text] = Field(default=None, examples=["acme-prod"])
    """The id of the Google Cloud project."""
    location: Maybe[HostPart] = Field(default=None, examples=["europe-west4"])
    """Where the models run: a region, or `global`."""

    def base_url(self) -> str:
        """Return the address; `global` is not part of the host name."""
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
    """DeepSeek. https://api-docs.deepseek.com/api/create-chat-completion: it takes no schemas.

    DeepSeek rejects calls without the reasoning before them:
    https://api-docs.deepseek.com/guides/thinking_mode.
    """

    usual_base_url = "https://api.deepseek.com"
    usual_key_variable = "DEEPSEEK_API_KEY"
    refuses = frozenset({WITH_SCHEMA})
    returns = ("reasoning_content",)


class OpenRouter(_Preset):
    """OpenRouter. https://openrouter.ai/docs/api/reference/overview.

    https://openrouter.ai/docs/use-cases/reasoning-tokens: reasoning is sent back with the calls.
    Some of the providers behind OpenRouter reject calls without it.
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
