"""What a script can say: the values that rules, judges and faults are made of.

A script is an ordered list of rules. For each request the first rule whose conditions all hold
gives the reply, so the agent is deterministic and its replies follow from what it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import regex

    from kindlm.testing.conversation import Asks, Finish, Usage, WireName
    from kindlm.testing.http1 import Cut

EchoPlace = Literal["error", "header", "url", "text", "toolArgument"]
Encoding = Literal["plain", "base64", "percent"]
Tells = Literal["retryAfter", "quotas", "both", "nothing"]
OddText = Literal["control", "surrogate", "nul", "ansi", "huge"]

MAX_MATCHED_CHARACTERS = 100_000
MATCH_TIMEOUT_S = 0.5


class ScriptError(Exception):
    """A script that cannot be used; the message names the place and what is wrong."""


@dataclass(frozen=True, slots=True)
class TextTest:
    """A condition on a text. Texts are compared without regard to case.

    Attributes:
        any_of: At least one must occur; empty for no such condition.
        all_of: All must occur.
        none_of: None may occur.
        matches: Must be found; its named groups become placeholders.
    """

    any_of: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    matches: regex.Pattern[str] | None = None

    def captures(self, text: str) -> dict[str, str] | None:
        """The named groups if the condition holds, else None.

        Raises:
            ScriptError: when the pattern takes too long.
        """
        folded = text.casefold()
        if self.any_of and not any(part in folded for part in self.any_of):
            return None
        if not all(part in folded for part in self.all_of):
            return None
        if any(part in folded for part in self.none_of):
            return None
        return {} if self.matches is None else _search(self.matches, text)


def _search(pattern: regex.Pattern[str], text: str) -> dict[str, str] | None:
    try:
        found = pattern.search(text[:MAX_MATCHED_CHARACTERS], timeout=MATCH_TIMEOUT_S)
    except TimeoutError:
        raise ScriptError(f"the pattern {pattern.pattern!r} takes too long") from None
    if found is None:
        return None
    return {name: value for name, value in found.groupdict().items() if value is not None}


@dataclass(frozen=True, slots=True)
class ValueTest:
    """A condition on one value inside a tool result. Unset parts do not matter."""

    exists: bool | None = None
    equals: tuple[Any, ...] = ()
    contains: str | None = None
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of a rule; all must hold. `None` and empty mean "does not matter".

    `called` and `results` look at the whole conversation, `called_this_turn` only at what followed
    the last user message.
    """

    asks: Asks = "agent"
    wire: WireName | None = None
    models: tuple[str, ...] = ()
    system: TextTest | None = None
    user: TextTest | None = None
    said: TextTest | None = None
    user_turns: int | None = None
    called: tuple[str, ...] = ()
    not_called: tuple[str, ...] = ()
    called_this_turn: tuple[str, ...] = ()
    not_called_this_turn: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    not_offered: tuple[str, ...] = ()
    results: tuple[tuple[str, ValueTest], ...] = ()
    structured: str | None = None


@dataclass(frozen=True, slots=True)
class CallTemplate:
    """A tool call to make; the arguments may hold placeholders."""

    name: str
    arguments: Any
    raw_arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave. Exactly one of the kinds is set.

    Attributes:
        latency_ms: Answer late.
        status: Answer with this error status.
        retry_after_s: Send Retry-After with the status.
        retry_after_date: Write Retry-After as an HTTP date.
        cut: Close the connection before or inside the answer.
        malformed: Answer 200 with a body that is no JSON.
        empty: Answer without content and without tool calls.
        stall_ms: Send half of the body, wait, then send the rest.
        echo_key: Repeat the client's key here.
        encoding: How the key is written when repeated.
        odd_text: Answer with text that is hard to store or to show.
        tool_calls: Answer with this many parallel tool calls.
        per_minute: Answer at most this many requests a minute, then 429.
        burst: With `per_minute`: this many at once, and the rest evenly (a token bucket); None for
            a window of a minute, in which all may come at once.
        tells: What a limit says of itself: Retry-After with a 429, what is left with each answer.
    """

    latency_ms: float | None = None
    status: int | None = None
    retry_after_s: float | None = None
    retry_after_date: bool = False
    cut: Cut | None = None
    malformed: bool = False
    empty: bool = False
    stall_ms: float | None = None
    echo_key: EchoPlace | None = None
    encoding: Encoding = "plain"
    odd_text: OddText | None = None
    tool_calls: int | None = None
    per_minute: int | None = None
    burst: int | None = None
    tells: Tells = "retryAfter"

    @property
    def kind(self) -> str:
        """What it does, in a word for the request log."""
        if self.status is not None:
            return f"status {self.status}"
        kinds = {
            "latency": self.latency_ms is not None,
            f"cut {self.cut}": self.cut is not None,
            "malformed": self.malformed,
            "empty": self.empty,
            "stall": self.stall_ms is not None,
            f"echo key in {self.echo_key}": self.echo_key is not None,
            f"{self.odd_text} text": self.odd_text is not None,
            "tool calls": self.tool_calls is not None,
        }
        return next((kind for kind, is_set in kinds.items() if is_set), "rate limit")


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A fault and the requests it is for.

    Attributes:
        fault: What to do.
        next: Only the next n matching requests; None for no limit.
        every: Only every k-th matching request.
        path: Only paths that end so (`chat/completions`, `messages`, `embeddings`).
        model: Only this model; `*` stands for any characters.
        contains: Only requests whose JSON holds this text, without regard to case.
        asks: Only requests of this purpose.
    """

    fault: Fault
    next: int | None = None
    every: int | None = None
    path: str | None = None
    model: str | None = None
    contains: str | None = None
    asks: Asks | None = None


@dataclass(frozen=True, slots=True)
class ReplyTemplate:
    """The reply of a rule; texts, JSON and arguments may hold placeholders."""

    text: str | None = None
    json: dict[str, Any] | None = None
    calls: tuple[CallTemplate, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None
    reports_usage: bool = True
    fault: Fault | None = None
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """If the conditions hold, this is the reply."""

    name: str
    when: When
    reply: ReplyTemplate


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """One thing a judge looks for in a transcript; exactly one of the kinds is set.

    Attributes:
        note: What it is called in the reasoning.
        weight: Its share of the score.
        says: Condition on the final text.
        called: A tool that must have been called, with `arguments` if given.
        not_called: A tool that must not have been called.
        in_order: Tools that must have been called in this order.
        arguments: Arguments, by name, that some call of `called` must have.
    """

    note: str
    weight: float = 1.0
    says: TextTest | None = None
    called: str | None = None
    not_called: str | None = None
    in_order: tuple[str, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeRule:
    """How one criterion is scored: the weighted share of its checks that hold."""

    criteria: TextTest
    checks: tuple[JudgeCheck, ...]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that the server knows.

    Attributes:
        name: As requested.
        reported_as: As named in the response.
        reasoning: Whether it refuses sampling parameters, as reasoning models do.
    """

    name: str
    reported_as: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script.

    Attributes:
        name: Where it came from.
        models: The only models that exist; empty for any.
        keys: The only keys that are accepted; empty for any key that is not empty.
        rules: In order; the first that matches replies.
        judge_rules: In order; the first whose criteria match scores.
        judge_default: Score of a criterion that no rule knows.
        faults: Misbehaviour that is on from the start.
    """

    name: str
    models: tuple[ModelSpec, ...] = ()
    keys: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    judge_rules: tuple[JudgeRule, ...] = ()
    judge_default: float = 0.5
    faults: tuple[FaultRule, ...] = ()
