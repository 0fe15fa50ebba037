"""Models, and what their answers cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from kindlm.errors import Result
from kindlm.suite import ModelParams, ProviderSettings, Suite
from kindlm.transcript import Cost, FinishReason, Message, ToolCall, Usage

__all__ = [
    "ClientFactory",
    "Embedder",
    "EmbedderFactory",
    "Embedding",
    "ModelClient",
    "ModelReply",
    "ModelRequest",
    "Pricing",
    "Provenance",
    "Purpose",
    "Quota",
    "ResponseSchema",
    "ToolDefinition",
]


class Purpose(StrEnum):
    """Why a model is called; judge calls are counted apart from those of the tested model."""

    TEST = "test"
    JUDGE = "judge"
    SIMULATE = "simulate"
    DRIFT = "drift"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseSchema:
    """A demand for structured output: the reply is JSON that fits `schema`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. `timeout_s` covers the whole call, body included."""

    model: str
    messages: tuple[Message, ...]
    params: ModelParams
    timeout_s: float
    tools: tuple[ToolDefinition, ...] = ()
    response_schema: ResponseSchema | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """What a provider said is left of one of its limits.

    `left` of `limit` requests (or tokens, whatever is limited) may still come before the limit is
    whole again in `reset_s` seconds. None is what it did not say.
    """

    kind: Literal["requests", "tokens"]
    left: int
    limit: int | None = None
    reset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an answer was recorded that is given again, and what it cost then.

    `call` names the call: execution, attempt and number, such as `k3f9x2ab-17.1/3`.
    """

    call: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered.

    With a `response_schema` in the request, `text` is the JSON text whatever the provider's way of
    giving it. `raw` is the body as received. `warnings` tell the user of a parameter that had to
    be dropped. `quotas` is what the provider said of its limits. Times are in milliseconds.
    """

    text: str
    raw: str
    latency_ms: float
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    reported_cost_usd: float | None = None
    finish_reason: FinishReason | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()
    quotas: tuple[Quota, ...] = ()
    recorded: Provenance | None = None


class ModelClient(Protocol):
    """A connection to one provider, shared by all executions of a run."""

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make exactly one request, without retries.

        Errors have the 2xx codes. Their `details` hold `status` (HTTP), `retry_after` (seconds,
        if the provider gave one), `retryable` (bool), `quotas` (of the provider's limits) and
        `body` (text, as received). `resend`
        (True, or absent) says that the provider refused what the user did not ask for, and that
        the client will leave it out: the same request may be made again at once.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


ClientFactory = Callable[[ProviderSettings], Result[ModelClient]]
"""Makes the client of a provider, or says why it can't: an unknown type, a missing key."""


class Pricing(Protocol):
    """Knows what tokens cost."""

    def cost(
        self,
        provider: str | None,
        model: str | None,
        usage: Usage,
        reported_usd: float | None = None,
        *,
        requested: str | None = None,
    ) -> Cost:
        """Return the cost of a call, unknown if the model has no price or usage is missing.

        `model` is the one that answered; where it has no price, that of the name it was `requested`
        by counts. What the provider reports counts before listed prices, but not before those of
        the user. Of an agent nobody knows the provider, and maybe not the model; what it was
        `requested` by is its own name then, which only prices of the user can have.
        """
        ...


@dataclass(frozen=True, slots=True)
class Embedding:
    """Vectors of some texts, in their order, and what it took to make them."""

    vectors: tuple[tuple[float, ...], ...]
    latency_ms: float
    usage: Usage = Usage()


class Embedder(Protocol):
    """A model that turns texts into vectors. `provider` and `model` name it in results."""

    @property
    def provider(self) -> str:
        """Who serves the model; `local` for one that runs here."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        """Return the vectors of some texts; errors as those of `ModelClient.complete`."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


EmbedderFactory = Callable[[Suite, str], Result[Embedder]]
"""Finds the embedder for a suite and one of its targets, or says why there is none."""
