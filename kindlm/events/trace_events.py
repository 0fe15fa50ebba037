"""The event of what an agent under test says of itself in OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kindlm.events.codec import Payload
from kindlm.stored_form import Authored, Key, Meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSpan:
    """One span of an agent's trace. Texts are cut after 20,000 characters."""

    id: Annotated[str, Meaning("16 hexadecimal digits")]
    parent: Annotated[str | None, Meaning("the span that it is below, among these")] = None
    kind: Annotated[str, Meaning("chat, tool, agent or other")]
    name: Annotated[Authored, Meaning("of a tool or model, else as the agent calls the span")]
    start_ms: Annotated[float, Meaning("after the start of the first span")]
    duration_ms: float
    failed: bool = False
    message: Annotated[Authored | None, Meaning("its status, in words")] = None
    input: Annotated[Authored | None, Meaning("arguments of a tool")] = None
    output: Annotated[Authored | None, Meaning("result of a tool, messages of a model")] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTraced(Payload):
    """Spans of an agent under test arrived, about the message of call `call`.

    They are in the order of the tree: each before those below it. The tool calls and tokens that
    kindlm read from them are in `agent.replied`.
    """

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "agent.traced"
    call: int
    spans: Sequence[TracedSpan]
    more: Annotated[int, Meaning("how many spans are not recorded")] = 0
