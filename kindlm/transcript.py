"""The content of a conversation, as immutable values that checks read.

A `Transcript` is a system text and a sequence of `Turn`s. A turn is one message of the user and
everything the target did until it answered: one or more `Step`s (model calls, or one reply of an
agent), each of which may have tool calls with their results. A transcript grows turn by turn, and
`prefix` returns it as it was after an earlier turn.
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
from kindlm.stored_form import Authored, AuthoredJson, Form, Meaning, Name
from kindlm.strict_json import as_text, parse_json, unique_keys
from kindlm_store import REDACTED
from kindlm_store.new_event import scrub

UNNAMED = "unknown"
"""The name of a call that an agent reports without a name: the tool is unknown."""

UNREAD_LINES = "cmd_tc_unreadable"
"""The id of the call without a name that stands for printed lines that are nearly tool calls."""


CANARY_TOKEN = re.compile("kc-([0-9a-f]{16})(?![0-9a-f])")
"""A canary in a text: see `kindlm.checks.guardrails`."""

SYSTEM_NOT_SENT = "the system prompt was not sent"
"""How the warning of an agent begins that was sent messages without the system text."""


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class FinishReason(StrEnum):
    """Why a model stopped, in one vocabulary for all providers."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class CostSource(StrEnum):
    """Where a cost comes from; an unknown cost is never counted as 0."""

    REPORTED = "reported"
    COMPUTED = "computed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Extras:
    """What a provider charges at separate prices.

    Of the input tokens, `cache_read` were read from a prompt cache and `cache_written` were written
    to it, `written_1h` of these for an hour. `searches` counts the provider's own web searches, and
    `file_searches` those of files. `tier` is how the call was served; None for the standard way.
    `us_only` says that Anthropic served it in the US alone. `unpriced` says that it took something
    else that is charged, such as code that ran in a container.
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
    """Tokens of one call or of several; `None` where they were not reported.

    The input includes the cached tokens that the `extras` count.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    extras: Extras | None = None

    @property
    def total(self) -> int | None:
        """All tokens, read and written; unknown as soon as one number is."""
        return _add(self.input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Add two usages; what is unknown on one side makes the sum unknown."""
        return Usage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            extras_of((self, other)),
        )


def extras_of(usages: Iterable[Usage]) -> Extras | None:
    """Return the extras of several calls together."""
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
        # Several have no price together.
        tiers.pop() if len(tiers) == 1 else "several",
        any(extras.us_only for extras in known),
        any(extras.unpriced for extras in known),
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Money in US dollars, with its provenance."""

    usd: float | None = None
    source: CostSource = CostSource.UNKNOWN


@dataclass(frozen=True, slots=True)
class PaidBefore:
    """What was paid besides an answer, as for tries that failed, and the calls of unknown cost."""

    usd: float = 0.0
    unknown: int = 0

    def __add__(self, other: PaidBefore) -> PaidBefore:
        """Add two sums."""
        return PaidBefore(self.usd + other.usd, self.unknown + other.unknown)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asks for.

    `arguments` is the parsed JSON object. A model can write arguments that are not a JSON object:
    then `arguments` is empty and `malformed` holds the text as it was written. `written` is what
    is stored.
    """

    id: Name
    name: Name
    arguments: Annotated[dict[str, Any], Form.TEXT, Meaning("JSON, or the text if it is not JSON")]
    malformed: Annotated[str | None, Form.FLAG, Meaning("the arguments are not a JSON object")] = (
        None
    )

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
    def told(cls, call_id: str, name: str, arguments: Any) -> Self:
        """Return a call with arguments as a model or agent reports them: a JSON value or its text.

        None and "" are no arguments: some servers write that.

        Raises:
            TypeError, ValueError: they are neither text nor anything that JSON can hold.
        """
        if arguments is None or arguments == "":
            return cls(call_id, name, {})
        if isinstance(arguments, dict):
            return cls(call_id, name, arguments)
        text = as_text(arguments)
        try:
            # Which of two values the tool took is unknown.
            parsed = parse_json(text, unique_keys)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return cls(call_id, name, parsed)
        return cls(call_id, name, {}, malformed=text)


class ToolProblemKind(StrEnum):
    """What was wrong with a call of a simulated tool, or with the answer it got."""

    UNMATCHED = "unmatched"
    ARGUMENTS = "arguments"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """A tool call that no simulated result matches, or whose arguments violate `parameters`.

    The third kind is no mistake of the model: a simulated answer that breaks the tool's
    `resultSchema`.
    """

    kind: ToolProblemKind
    message: Authored


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call and the answer it got; `response` is any JSON value.

    `rule` says who answered: `responses[2]`, `defaultResponse`, `unknown tool`, `mcp` for an MCP
    server, or `agent` when the agent under test ran the tool itself. `problems` are shown, and fail
    a test that is strict.
    """

    call: Annotated[ToolCall, Form.FLAT]
    response: AuthoredJson
    rule: Annotated[str, Meaning("source of the result: `agent`, or as in `tool.simulated`")] = (
        "agent"
    )
    problems: tuple[ToolProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model, independent of any provider's wire format.

    `tool_calls` belong to assistant messages; `tool_call_id` and `tool_name` to tool messages,
    whose `text` is the answer as JSON text. `prefill` marks an assistant message that the model
    is to continue. `written` is the text as it stands in the suite, before values of the
    environment were put in, if that is another one. `echo` is what a provider said with its tool
    calls and wants back with them, such as what it thought; only its client reads it.
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
    """One answer of the target within a turn. Latency is in milliseconds, of the answer alone.

    `reported` are numbers that an agent reports with its answer, by name. `recorded` says that the
    answer is one of an earlier run, and was paid for then. `reports_tools` is whether tool calls
    would be here if there had been any: always for a model, for an agent if its answer shows it.
    `unseen` says why calls may be missing, though something observes the agent. `lacks_system` is
    whether the agent was not sent the system text.
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
    """What some steps took together; waits between retries are not counted."""

    usage: Usage = Usage()
    cost: Cost = Cost()
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and what the target did about it."""

    user: str
    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The answer: the text of the last step."""
        return self.steps[-1].text if self.steps else ""


@dataclass(frozen=True)
class Transcript:
    """A conversation with the target under test. What it adds up to is worked out once.

    `reports_tools` is set if the suite says that the target reports its tool calls, `prints_calls`
    if it does so in lines that it prints.
    """

    system: str | None = None
    turns: tuple[Turn, ...] = ()
    reports_tools: bool = False
    prints_calls: bool = False

    @cached_property
    def text(self) -> str:
        """The final text, which output checks look at."""
        return self.turns[-1].text if self.turns else ""

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps, oldest first."""
        if len(self.turns) == 1:
            return self.turns[0].steps
        return tuple([step for turn in self.turns for step in turn.steps])

    @cached_property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """All tool calls with their answers, in the order they were made."""
        return tuple([use for step in self.steps for use in step.tool_uses])

    @cached_property
    def shows_tools(self) -> bool:
        """Whether a tool call that is not here was not made.

        The suite says so, or one of the answers shows that the target reports its calls. Without
        any answer there is nothing to report.
        """
        if self.reports_tools or not self.steps:
            return True
        return any(step.reports_tools for step in self.steps)

    @cached_property
    def unseen(self) -> str | None:
        """Why tool calls may be missing, though something observes the agent; None if it is known.

        The suite may say that the agent reports its calls: then none is missing.
        """
        if self.reports_tools:
            return None
        for step in self.steps:
            if step.unseen:
                return step.unseen
        return None

    @cached_property
    def total(self) -> Total:
        """What all steps took together."""
        return total_of(self.steps)

    def prefix(self, turns: int) -> Transcript:
        """Return the transcript as it was after its first `turns` turns."""
        return replace(self, turns=self.turns[:turns])

    def from_record(self) -> Transcript:
        """Return the transcript as one whose answers are those of an earlier run."""
        turns = (
            replace(turn, steps=tuple(replace(step, recorded=True) for step in turn.steps))
            for turn in self.turns
        )
        return replace(self, turns=tuple(turns))

    def with_step(self, step: Step) -> Transcript:
        """Return the transcript with one more step in its last turn.

        Runs of other programs may lack the message that a step answers.
        """
        *earlier, last = self.turns or (Turn(""),)
        return replace(self, turns=(*earlier, Turn(last.user, (*last.steps, step))))

    def with_turn(self, user: str) -> Transcript:
        """Return the transcript with a new turn that `user` opens."""
        return replace(self, turns=(*self.turns, Turn(user)))


def text_lacks_a_secret(step: Step) -> bool:
    """Tell whether the text is one of the record, and a secret was taken out of it."""
    return step.recorded and REDACTED in step.text


def calls_lack_a_secret(step: Step) -> bool:
    """Tell whether the tool calls, or what they got, are of the record and lack a secret."""
    return step.recorded and any(
        REDACTED in (use.call.malformed or "")
        or REDACTED in json.dumps([use.call.arguments, use.response])
        for use in step.tool_uses
    )


def total_of(steps: Sequence[Step]) -> Total:
    """Return what some steps took together; unknown of none, and as soon as one is unknown."""
    usage, cost = sum_of(list(map(attrgetter("usage", "cost"), steps)))
    return Total(usage, cost, sum(map(attrgetter("latency_ms"), steps)))


def sum_of(calls: Sequence[tuple[Usage, Cost]]) -> tuple[Usage, Cost]:
    """Return tokens and costs together; unknown of none, and as soon as one is unknown.

    Costs come from the calls themselves, so the sum of the tokens leaves out their extras.
    """
    if not calls:
        return Usage(), Cost()
    figures = [(u.input_tokens, u.output_tokens, cost.usd, cost.source) for u, cost in calls]
    inputs, outputs, usd, sources = zip(*figures, strict=True)
    tokens = Usage(
        None if None in inputs else sum(inputs),
        None if None in outputs else sum(outputs),
    )
    if None in usd:
        return tokens, Cost()
    is_reported = set(sources) == {CostSource.REPORTED}
    return tokens, Cost(sum(usd), CostSource.REPORTED if is_reported else CostSource.COMPUTED)


def storable_json(value: Any) -> Any:
    """Return a JSON value without the characters that cannot be stored."""
    written = json.dumps(value, ensure_ascii=False)
    stored = scrub(written)
    return value if stored == written else json.loads(stored)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
