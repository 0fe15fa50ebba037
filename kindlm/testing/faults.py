"""Which faults are due for a request, and what they do to its answer."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import quote

from kindlm.dataclass import replace
from kindlm.testing.script import CallOut, Fault, FaultRule
from kindlm.testing.scripted_talk import DRIFT_QUESTION, JUDGE_QUESTIONS, Reply, TalkRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kindlm.testing.script import Encoding, OddText
    from kindlm.testing.scripted_talk import Asks

ODD_TEXTS: dict[OddText, str] = {
    "control": "".join(map(chr, range(1, 32))) + "\x7f\x85 control characters",
    "surrogate": "lone surrogates \ud800 and \udfff",
    "nul": "a NUL \x00 inside",
    "ansi": "\x1b[2J\x1b[31mred\x1b[0m \x1b]0;title\x07 terminal escapes",
    "huge": "word " * 200_000,
}


@dataclass(slots=True)
class _Armed:
    """A fault with what it has done so far."""

    rule: FaultRule
    matched: int = 0
    fired: int = 0

    def fires(self, path: str, model: str, text: str, asks: Asks) -> bool:
        """Count a request that the fault is for; return whether the fault is due."""
        rule = self.rule
        is_for = (
            (rule.path is None or path.endswith(rule.path))
            and (rule.model is None or fnmatchcase(model, rule.model))
            and (rule.contains is None or rule.contains.casefold() in text)
            and (rule.asks is None or rule.asks == asks)
        )
        if not is_for or (rule.next is not None and self.fired >= rule.next):
            return False
        self.matched += 1
        if rule.every is not None and self.matched % rule.every:
            return False
        self.fired += 1
        return True


class FaultPlan:
    """The faults that are switched on, with their counts. Used by one thread."""

    def __init__(self, rules: Sequence[FaultRule]) -> None:
        self._armed = [_Armed(rule) for rule in rules]

    def due(self, path: str, model: str, body: str) -> tuple[float, Fault | None]:
        """Return the seconds of all latencies for a request, and the first other fault."""
        asks: Asks = "agent"
        if any(f'"{question}"' in body for question in JUDGE_QUESTIONS):
            asks = "judge"
        elif f'"{DRIFT_QUESTION}"' in body:
            asks = "drift"
        text = body.casefold()
        delay_s = 0.0
        due: Fault | None = None
        for armed in self._armed:
            fault = armed.rule.fault
            is_late = fault.kind == "latencyMs"
            if (due is None or is_late) and armed.fires(path, model, text, asks):
                delay_s += fault.value / 1000 if is_late else 0
                due = due if is_late else fault
        return delay_s, due


def encode_key(key: str, encoding: Encoding) -> str:
    """Return a key as a careless server might repeat it."""
    if encoding == "base64":
        return base64.b64encode(key.encode()).decode("ascii")
    return "".join(f"%{byte:02X}" for byte in key.encode()) if encoding == "percent" else key


def faulty_reply(fault: Fault, conversation: TalkRequest, key: str) -> Reply | None:
    """Return the reply that a fault puts in place of the script's, if it is of that kind."""
    tool = conversation.offered[0] if conversation.offered else "lookup_order"
    shown = encode_key(key, fault.encoding)
    match fault.kind, fault.value:
        case "empty", True:
            return Reply()
        case "text", odd:
            return Reply(text=ODD_TEXTS[odd])
        case "toolCalls", many:
            return Reply(calls=tuple(CallOut(tool, {"number": n}) for n in range(many)))
        case "echoKey", "text":
            return Reply(text=f"My key is {shown}, since you ask.")
        case "echoKey", "toolArgument":
            return Reply(calls=(CallOut(tool, {"order_id": shown}),))
    return None


def without_limits(conversation: TalkRequest) -> TalkRequest:
    """Return the conversation without length and stop texts, which a fault does not heed."""
    return replace(conversation, max_tokens=None, stop=(), prefill="")


def key_echo(fault: Fault, key: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return an error message and headers, of which one repeats the key."""
    shown = encode_key(key, fault.encoding)
    if fault.value == "url":
        url = f"http://127.0.0.1/help?key={quote(shown, safe='%')}"
        return f"See {url} for this request.", (("link", f"<{url}>; rel=help"),)
    headers = (("x-debug-authorization", shown),) if fault.value == "header" else ()
    return f"The request with the key {shown} could not be served.", headers
