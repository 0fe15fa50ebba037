"""The `tools` of a test: what the model is told of them, and how their calls are answered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kindlm.section import EXTENSION, Count, Maybe, Section, Text


class ToolReplyConfig(Section):
    """One answer of a simulated tool: `then`, or a `fault`."""

    then: Any = Field(default=None, examples=[{"status": "delivered"}])
    """The answer; null is one too. May hold `{{args.NAME}}` and `{{state.NAME}}`."""
    fault: Maybe[Literal["timeout", "error", "malformed"]] = Field(
        default=None, examples=["timeout"], json_schema_extra=EXTENSION
    )
    """Fails instead of answering: an error that says so, or a text that is no JSON."""
    set_state: dict[str, Any] = Field(
        default={}, examples=[{"refunded": "{{args.order_id}}"}], json_schema_extra=EXTENSION
    )
    """Values to remember for the rest of the conversation; all tools of the test share them."""
    delay_ms: Count = Field(default=0, examples=[200], json_schema_extra=EXTENSION)
    """Milliseconds that the answer takes; parallel calls wait side by side. They count for
    `executionTimeoutMs`, not as latency."""


class ToolAnswerConfig(ToolReplyConfig):
    """An answer, and the calls that get it."""

    when: Maybe[dict[str, Any]] = Field(default=None, examples=[{"order_id": "A1"}])
    """Arguments that the call must have; more are allowed. Without it, every call matches."""
    when_state: Maybe[dict[str, Any]] = Field(
        default=None, examples=[{"refunded": {"$absent": True}}], json_schema_extra=EXTENSION
    )
    """What must have been remembered; `{ $absent: true }` stands for what must not be there."""
    sequence: list[ToolReplyConfig] = Field(
        default=[],
        examples=[[{"then": {"status": "pending"}}, {"then": {"status": "done"}}]],
        json_schema_extra=EXTENSION,
    )
    """The first call gets the first answer, the next call the next; the last answer stays."""


class CassetteConfig(Section):
    """Answers that were recorded in an earlier run, in the test of the same name."""

    run: Text = Field(examples=["latest"])
    """Id or label of a run that executed tests of this suite, or `latest`: the newest of them that
    has finished. Of several runs with one label, the newest counts."""
    match: Literal["arguments"] = Field(default="arguments", examples=["arguments"])
    """A call gets the answer that equal arguments got then, of several of these one after another;
    the last one stays."""


class ToolConfig(Section):
    """A simulated tool. `responses` answer first, then the cassette, then `defaultResponse`."""

    name: Text = Field(examples=["lookup_order"])
    """The tool's name, as the model sees it."""
    description: Maybe[str] = Field(default=None, examples=["Finds an order by its number."])
    """What the model is told of it."""
    parameters: Maybe[dict[str, Any]] = Field(
        default=None,
        examples=[{"type": "object", "properties": {"order_id": {"type": "string"}}}],
    )
    """JSON Schema of the arguments. Calls that break it are shown, and fail under strictTools."""
    responses: list[ToolAnswerConfig] = Field(
        default=[], examples=[[{"when": {"order_id": "A1"}, "then": {"status": "delivered"}}]]
    )
    """The first that matches answers."""
    default_response: Any = Field(default=None, examples=[{"error": "Order not found"}])
    """The answer when nothing matches; null is an answer too."""
    result_schema: Maybe[Text] = Field(
        default=None, examples=["schemas/order.json"], json_schema_extra=EXTENSION
    )
    """JSON Schema file that all answers must fit, relative to this file."""
    cassette: Maybe[CassetteConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """Answers that were recorded in an earlier run, in the test of the same name."""
