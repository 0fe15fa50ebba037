"""The content of a conversation, as immutable values that checks read.

A `Transcript` is a system text and a sequence of `Turn`s. A turn is a message of the user and the
`Step`s that answer it: model calls, or the reply of an agent, with their tool calls and results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Self

from kindlm.dataclass import dataclass, replace
from kindlm.stored_form import Authored, AuthoredJson, Form, Name
from kindlm.strict_json import as_text, parse_json, unique_keys
from kindlm_store import REDACTED
from kindlm_store.new_event import scrub

UNNAMED = "unknown"
"""The name of a tool call that an agent reports without a name."""

UNREAD_LINES = "cmd_tc_unreadable"
"""The id of an unnamed call that stands for printed lines that look like malformed tool calls."""

CANARY_TOKEN = re.compile("kc-([0-9a-f]{16})(?![0-9a-f])")
"""A canary in text: see `kindlm.checks.guardrails`."""

SYSTEM_NOT_SENT = "the system prompt was not sent"
"""The beginning of the warning that an agent did not get the system text."""


def not_sent(parameter: str) -> str:
    """Return the beginning of the warning that a model does not take a parameter."""
    return f"`{parameter}` was not sent"


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class FinishReason(StrEnum):
    """Why a model stopped, in the same words for all providers."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class CostSource(StrEnum):
    """The source of a cost; an unknown cost never counts as 0."""

    REPORTED = "reported"
    COMPUTED = "computed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Extras:
    """What a provider charges at separate prices.

    Attributes:
        cache_read: Input tokens that were read from a prompt cache.
        cache_written: Input tokens that were written to it.
        written_1h: Those of them that stay there for an hour.
        searches: Web searches by the provider.
        file_searches: File searches by the provider.
        tier: The service tier, None for the standard one.
        us_only: Whether Anthropic served the call only in the US.
        unpriced: Whether something else is charged, such as code in a container.
    """

    cache_read: int = 0
    cache_written: int = 0
    written_1h: int = 0
    searches: int = 0
    file_searches: int = 0
    tier: str | None = None
    us_only: bool = False
    unpriced: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several calls, None if not reported; the input includes cached tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    extras: Extras | None = None

    @property
    def total(self) -> int | None:
        """All tokens, None if either number is unknown."""
        return _add(self.input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Add two usages; a number that one of them lacks is unknown."""
        return Usage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            extras_of((self, other)),
        )


def extras_of(usages: Iterable[Usage]) -> Extras | None:
    """Return the sum of the extras of several calls."""
    counted = [usage for usage in usages if usage != Usage()]
    known = [usage.extras for usage in counted if usage.extras is not None]
    if not known:
        return None
    tiers = {usage.extras.tier if usage.extras else None for usage in counted}
    return Extras(
        sum(extras.cache_read for extras in known),
        sum(extras.cache_written for extras in known),
        sum(extras.written_1h for extras in known),
        sum(extras.searches for extras in known),
        sum(extras.file_searches for extras in known),
        # Calls in several tiers have no common price.
        tiers.pop() if len(tiers) == 1 else "several",
        any(extras.us_only for extras in known),
        any(extras.unpriced for extras in known),
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount in US dollars, None if unknown, and its source."""

    usd: float | None = None
    source: CostSource = CostSource.UNKNOWN


@dataclass(frozen=True, slots=True)
class PaidBefore:
    """The cost of failed tries before an answer, and how many of them have an unknown cost."""

    usd: float = 0.0
    unknown: int = 0

    def __add__(self, other: PaidBefore) -> PaidBefore:
        """Add both numbers."""
        return PaidBefore(self.usd + other.usd, self.unknown + other.unknown)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by a model or an agent.

    `arguments` is the parsed JSON object. If the model wrote something else, `arguments` is empty
    and `malformed` is its text. `written` is the stored form.
    """

    id: Name
    name: Name
    arguments: Annotated[dict[str, Any], Form.TEXT, "JSON, or the text if it is not JSON"]
    malformed: Annotated[str | None, Form.FLAG, "the arguments are not a JSON object"] = None

    @property
    def written(self) -> str:
        """The arguments as text."""
        if self.malformed is not None:
            return self.malformed
        return json.dumps(self.arguments, ensure_ascii=False)

    def storable(self) -> ToolCall:
        """Return the call without the characters that cannot be stored."""
        return replace(
            self,
            id=scrub(self.id),
            name=scrub(self.name),
            arguments=storable_json(self.arguments),
            malformed=None if self.malformed is None else scrub(self.malformed),
        )

    @classmethod
    def parse(cls, call_id: str, name: str, arguments: Any) -> Self:
        """Return a call with arguments as a model or agent reports them: a JSON value or its text.

        None and "" stand for no arguments, as with some servers.

        Raises:
            TypeError, ValueError: The arguments are not valid as JSON.
        """
        if arguments is None or arguments == "":
            return cls(call_id, name, {})
        if isinstance(arguments, dict):
            return cls(call_id, name, arguments)
        text = as_text(arguments)
        try:
            # Of two equal keys, it is unknown which one the tool read.
            parsed = parse_json(text, unique_keys)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return cls(call_id, name, parsed)
        return cls(call_id, name, {}, malformed=text)


class ToolProblemKind(StrEnum):
    """What was wrong with a call to a simulated tool, or with its result."""

    UNMATCHED = "unmatched"
    ARGUMENTS = "arguments"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """A call to a simulated tool that no result matches, or that violates a JSON Schema.

    Its arguments violate `parameters`, or its simulated result violates `resultSchema`, which is no
    mistake of the model.
    """

    kind: ToolProblemKind
    message: Authored


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call and its result; `response` is any JSON value.

    `rule` is the source of the result: as in `ToolSimulated`, or `agent` if the agent ran the tool.
    `problems` fail a strict test.
    """

    call: Annotated[ToolCall, Form.FLAT]
    response: AuthoredJson
    rule: Annotated[str, "source of the result: `agent`, or as in `tool.simulated`"] = "agent"
    problems: tuple[ToolProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model, independent of any provider's wire format.

    Assistant messages may have `tool_calls`. Tool messages have `tool_call_id` and `tool_name`;
    their `text` is the result as JSON.

    Attributes:
        prefill: Whether it is an assistant message that the model is to continue.
        written: The text in the suite before variables were resolved, if it differs.
        echo: Data that goes back to the provider with the message, such as the model's thoughts.
    """

    role: Role
    text: Authored
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: Annotated[str | None, Form.UNSTORED] = None
    prefill: bool = False
    written: Annotated[str | None, Form.UNSTORED] = None
    echo: Annotated[Mapping[str, Any] | None, Form.UNSTORED] = None


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the target within a turn; the latency is that of this answer.

    Attributes:
        recorded: Whether the answer is from an earlier run, and was paid for then.
        reported: Numbers that an agent reports with its answer, by name.
        reports_tools: Whether tool calls would be here if there had been any. That is so for a
            model, and for an agent whose answer shows it.
        unseen: Why calls may be missing although the agent is observed.
        lacks_system: Whether the agent did not get the system text.
    """

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    cost: Cost = Cost()
    latency_ms: float = 0.0
    finish_reason: FinishReason | None = None
    model: str | None = None
    recorded: bool = False
    reported: Mapping[str, float] = field(default_factory=dict)
    reports_tools: bool = True
    unseen: str | None = None
    lacks_system: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """The sums of some steps, without waits between retries."""

    usage: Usage = Usage()
    cost: Cost = Cost()
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and the steps that answer it."""

    user: str
    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The answer, which is the text of the last step."""
        return self.steps[-1].text if self.steps else ""


@dataclass(frozen=True)
class Transcript:
    """A conversation with the target under test.

    `reports_tools` is set if the suite says that the target reports its tool calls.
    """

    system: str | None = None
    turns: tuple[Turn, ...] = ()
    reports_tools: bool = False

    @cached_property
    def text(self) -> str:
        """The final answer, which output checks read."""
        return self.turns[-1].text if self.turns else ""

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps, oldest first."""
        if len(self.turns) == 1:
            return self.turns[0].steps
        return tuple([step for turn in self.turns for step in turn.steps])

    @cached_property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """All tool calls with their results, in order."""
        return tuple([use for step in self.steps for use in step.tool_uses])

    @cached_property
    def shows_tools(self) -> bool:
        """Whether a call that is missing here was not made.

        It is so if the suite or one of the answers shows that the target reports its calls, and
        without any answer.
        """
        if self.reports_tools or not self.steps:
            return True
        return any(step.reports_tools for step in self.steps)

    @cached_property
    def unseen(self) -> str | None:
        """Why tool calls may be missing although the agent is observed, or None.

        If the suite says that the agent reports its calls, none is missing.
        """
        if self.reports_tools:
            return None
        for step in self.steps:
            if step.unseen:
                return step.unseen
        return None

    @cached_property
    def total(self) -> Total:
        """The sums of all steps."""
        return total_of(self.steps)

    def prefix(self, turns: int) -> Transcript:
        """Return the transcript with only its first `turns` turns."""
        return replace(self, turns=self.turns[:turns])

    def from_record(self) -> Transcript:
        """Return the transcript with its answers marked as recorded in an earlier run."""
        turns = (
            replace(turn, steps=tuple(replace(step, recorded=True) for step in turn.steps))
            for turn in self.turns
        )
        return replace(self, turns=tuple(turns))

    def with_step(self, step: Step) -> Transcript:
        """Return the transcript with one more step in its last turn.

        Imported runs may lack the message that it answers.
        """
        *earlier, last = self.turns or (Turn(""),)
        return replace(self, turns=(*earlier, Turn(last.user, (*last.steps, step))))

    def with_turn(self, user: str) -> Transcript:
        """Return the transcript with a new turn that `user` opens."""
        return replace(self, turns=(*self.turns, Turn(user)))


def lacks_a_secret(step: Step) -> bool:
    """Return whether the text, tool calls or results were recorded with a secret removed."""
    return step.recorded and (
        REDACTED in step.text
        or any(
            REDACTED in json.dumps([use.call.malformed, use.call.arguments, use.response])
            for use in step.tool_uses
        )
    )


def total_of(steps: Sequence[Step]) -> Total:
    """Return the sums of some steps; a sum is unknown without steps, or if one of them is."""
    usage, cost = sum_of(list(map(attrgetter("usage", "cost"), steps)))
    return Total(usage, cost, sum(map(attrgetter("latency_ms"), steps)))


def sum_of(calls: Sequence[tuple[Usage, Cost]]) -> tuple[Usage, Cost]:
    """Return the sums of tokens and costs; a sum is unknown without calls, or if one of them is.

    The extras of tokens are left out: they only serve to compute the cost of a call.
    """
    if not calls:
        return Usage(), Cost()
    usages, costs = zip(*calls, strict=True)
    inputs = list(map(attrgetter("input_tokens"), usages))
    outputs = list(map(attrgetter("output_tokens"), usages))
    usd, sources = zip(*map(attrgetter("usd", "source"), costs), strict=True)
    tokens = Usage(
        None if None in inputs else sum(inputs), None if None in outputs else sum(outputs)
    )
    if None in usd:
        return tokens, Cost()
    is_reported = set(sources) == {CostSource.REPORTED}
    return tokens, Cost(sum(usd), CostSource.REPORTED if is_reported else CostSource.COMPUTED)


def storable_json(value: Any) -> Any:
    """Return a JSON value without characters that cannot be stored."""
    written = json.dumps(value, ensure_ascii=False)
    stored = scrub(written)
    return value if stored == written else json.loads(stored)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
