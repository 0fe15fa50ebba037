"""Which faults are due for a request, and what they do to its answer."""

from __future__ import annotations

import base64
import math
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import quote

from kindlm.testing.script import CallOut, Fault, FaultRule
from kindlm.testing.scripted_talk import Reply, TalkRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kindlm.testing.script import Encoding, OddText, Tells
    from kindlm.testing.scripted_talk import Asks


WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a limit, and in how many seconds it is whole again."""

    left: int
    limit: int
    reset_s: float


PLENTY = Allowance(left=9999, limit=10_000, reset_s=0.006)
"""What is reported without limits."""


class SlidingWindow:
    """At most so many requests within any minute; all of them may come at once."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._taken: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Whether one more request is allowed, which counts then."""
        self._forget(now)
        if len(self._taken) >= self._most:
            return False
        self._taken.append(now)
        return True

    def wait_s(self, now: float) -> float:
        """In how many seconds one more request will be allowed."""
        self._forget(now)
        if len(self._taken) < self._most:
            return 0.0
        return WINDOW_S - (now - self._taken[0]) if self._taken else WINDOW_S

    def allowance(self, now: float) -> Allowance:
        """What is left."""
        self._forget(now)
        reset_s = WINDOW_S - (now - self._taken[-1]) if self._taken else 0.0
        return Allowance(self._most - len(self._taken), self._most, reset_s)

    def _forget(self, now: float) -> None:
        while self._taken and now - self._taken[0] >= WINDOW_S:
            self._taken.popleft()


class TokenBucket:
    """At most `burst` requests at once; so many a minute come back, evenly."""

    def __init__(self, per_minute: int, burst: int) -> None:
        self._rate = per_minute / WINDOW_S
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = -math.inf

    def take(self, now: float) -> bool:
        """Whether one more request is allowed, which counts then."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait_s(self, now: float) -> float:
        """In how many seconds one more request will be allowed."""
        self._fill(now)
        return self._seconds(1 - self._tokens)

    def allowance(self, now: float) -> Allowance:
        """What is left."""
        self._fill(now)
        return Allowance(int(self._tokens), self._burst, self._seconds(self._burst - self._tokens))

    def _seconds(self, tokens: float) -> float:
        if tokens <= 0:
            return 0.0
        return tokens / self._rate if self._rate else WINDOW_S

    def _fill(self, now: float) -> None:
        if self._rate:
            gained = (now - self._filled_at) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now


Limit = SlidingWindow | TokenBucket
"""Counts requests; times are seconds of one clock, and never go back."""


HUGE_CHARACTERS = 1_000_000
ODD_TEXTS: dict[OddText, str] = {
    "control": "".join(map(chr, range(1, 32))) + "\x7f\x85 control characters",
    "surrogate": "lone surrogates \ud800 and \udfff",
    "nul": "a NUL \x00 inside",
    "ansi": "\x1b[2J\x1b[31mred\x1b[0m \x1b]0;title\x07 terminal escapes",
    "huge": "word " * (HUGE_CHARACTERS // 5),
}


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """What of a request decides whether a fault is for it.

    Attributes:
        path: The route.
        model: The model asked for, empty if there is none.
        text: The request's body as text, folded for comparison.
        asks: Its purpose, by the names of the structured outputs in it.
    """

    path: str
    model: str
    text: str
    asks: Asks


@dataclass(slots=True)
class _Armed:
    """A fault with what it has done so far."""

    rule: FaultRule
    matched: int = 0
    fired: int = 0
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done to one request: a delay, at most one fault, and what a limit tells."""

    delay_s: float = 0.0
    fault: Fault | None = None
    allowance: Allowance = PLENTY


class FaultPlan:
    """The faults that are switched on, with their counts. Used by one thread."""

    def __init__(self, rules: Sequence[FaultRule], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.replace(rules)

    def replace(self, rules: Sequence[FaultRule]) -> None:
        """Switches all faults off, and these on."""
        self._armed = [_Armed(rule, limit=_limit(rule.fault)) for rule in rules]

    def fired(self) -> list[int]:
        """How often each fault has fired."""
        return [armed.fired for armed in self._armed]

    def due(self, target: FaultTarget) -> Due:
        """What is due for a request: all its latencies, and the first other fault."""
        delay_s = 0.0
        fault: Fault | None = None
        allowance = PLENTY
        for armed in self._armed:
            if fault is not None and armed.rule.fault.latency_ms is None:
                continue
            if not _is_for(armed.rule, target):
                continue
            found = self._fire(armed)
            if found is not None and found.latency_ms is not None:
                delay_s += found.latency_ms / 1000
            elif found is not None:
                fault = found
            if armed.limit is not None and armed.rule.fault.tells in ("quotas", "both"):
                allowance = armed.limit.allowance(self._monotonic())
        return Due(delay_s, fault, allowance)

    def _fire(self, armed: _Armed) -> Fault | None:
        rule = armed.rule
        if rule.next is not None and armed.fired >= rule.next:
            return None
        armed.matched += 1
        if rule.every is not None and armed.matched % rule.every:
            return None
        fault: Fault | None = rule.fault
        if armed.limit is not None:
            fault = self._over_limit(armed.limit, rule.fault.tells)
        if fault is not None:
            armed.fired += 1
        return fault

    def _over_limit(self, limit: Limit, tells: Tells) -> Fault | None:
        """A 429 if the limit is reached, with the time until it is not."""
        now = self._monotonic()
        if limit.take(now):
            return None
        wait_s = math.ceil(limit.wait_s(now)) if tells in ("retryAfter", "both") else None
        return Fault(status=429, retry_after_s=wait_s)


def _limit(fault: Fault) -> Limit | None:
    if fault.per_minute is None:
        return None
    if fault.burst is None:
        return SlidingWindow(fault.per_minute)
    return TokenBucket(fault.per_minute, fault.burst)


def _is_for(rule: FaultRule, target: FaultTarget) -> bool:
    return (
        (rule.path is None or target.path.endswith(rule.path))
        and (rule.model is None or fnmatchcase(target.model, rule.model))
        and (rule.contains is None or rule.contains.casefold() in target.text)
        and (rule.asks is None or rule.asks == target.asks)
    )


def retry_after(fault: Fault, now: datetime | None = None) -> tuple[tuple[str, str], ...]:
    """The Retry-After header of a fault, in seconds or as a date."""
    if fault.retry_after_s is None:
        return ()
    if fault.retry_after_date:
        at = (now or datetime.now(UTC)) + timedelta(seconds=math.ceil(fault.retry_after_s))
        return (("retry-after", format_datetime(at, usegmt=True)),)
    return (("retry-after", f"{fault.retry_after_s:g}"),)


def encode_key(key: str, encoding: Encoding) -> str:
    """A key as a careless server might repeat it."""
    if encoding == "base64":
        return base64.b64encode(key.encode()).decode("ascii")
    return "".join(f"%{byte:02X}" for byte in key.encode()) if encoding == "percent" else key


def faulty_reply(fault: Fault, conversation: TalkRequest, key: str) -> Reply | None:
    """The reply that a fault puts in place of the script's, if it is of that kind."""
    if fault.empty:
        return Reply()
    if fault.odd_text is not None:
        return Reply(text=ODD_TEXTS[fault.odd_text])
    tool = conversation.offered[0] if conversation.offered else "lookup_order"
    if fault.tool_calls is not None:
        return Reply(calls=tuple(CallOut(tool, {"number": n}) for n in range(fault.tool_calls)))
    shown = encode_key(key, fault.encoding)
    if fault.echo_key == "text":
        return Reply(text=f"My key is {shown}, since you ask.")
    if fault.echo_key == "toolArgument":
        return Reply(calls=(CallOut(tool, {"order_id": shown}),))
    return None


def without_limits(conversation: TalkRequest) -> TalkRequest:
    """The conversation without length and stop texts, which a fault does not heed."""
    return replace(conversation, max_tokens=None, stop=(), prefill="")


def key_echo(fault: Fault, key: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """An error message and headers, of which one repeats the key."""
    shown = encode_key(key, fault.encoding)
    if fault.echo_key == "url":
        url = f"http://127.0.0.1/help?key={quote(shown, safe='%')}"
        return f"See {url} for this request.", (("link", f"<{url}>; rel=help"),)
    headers = (("x-debug-authorization", shown),) if fault.echo_key == "header" else ()
    return f"The request with the key {shown} could not be served.", headers
