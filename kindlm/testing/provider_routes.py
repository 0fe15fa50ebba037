"""Answers requests from a script, with its faults, and logs them before it answers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import json_or_text
from kindlm.testing.anthropic_wire import MESSAGES
from kindlm.testing.http1 import HttpAnswer, HttpRequest
from kindlm.testing.node import ScriptError
from kindlm.testing.openai_wire import CHAT, embeddings
from kindlm.testing.player import play
from kindlm.testing.responses_wire import responses_wire
from kindlm.testing.script import CallOut
from kindlm.testing.scripted_talk import DRIFT_QUESTION, JUDGE_QUESTIONS, Refusal, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kindlm.testing.script import Encoding, Fault, FaultRule, ModelSpec, OddText, Script
    from kindlm.testing.scripted_talk import Asks, TalkRequest, WireFormat

KeyState = Literal["missing", "accepted", "refused"]

_SECRET_HEADERS = ("authorization", "x-api-key")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request, and its answer.

    Attributes:
        number: the order of arrival, from 1.
        at: the time of arrival.
        method: HTTP method.
        path: the route.
        model: the requested model, None if unreadable.
        asks: the purpose: agent, judge or drift; None for other routes and refused requests.
        key: whether the request had a key, and whether it was accepted.
        headers: all headers without keys.
        raw_body: the body as received.
        status: the status of the answer, even if a fault then cut the answer off.
        rule: name of the script's rule that replied, if any.
        fault: the fault of the answer, if any.
    """

    number: int
    at: datetime
    method: str
    path: str
    model: str | None
    asks: str | None
    key: KeyState
    headers: Mapping[str, str]
    raw_body: bytes
    status: int
    rule: str | None
    fault: str | None

    @property
    def body(self) -> Any:
        """The body as JSON, or as text if it is not JSON."""
        return json_or_text(self.raw_body.decode("utf-8", "replace"))


EMBEDDINGS_PATH = "/v1/embeddings"
_NOT_JSON = "We could not parse the JSON body of your request."


@dataclass(frozen=True, slots=True)
class _Call:
    """A request to a provider's route while it is being answered."""

    wire: WireFormat
    request: HttpRequest
    request_id: str
    body: dict[str, Any] | None
    key: str | None
    accepted: bool

    @property
    def model(self) -> str:
        model = (self.body or {}).get("model")
        return model if isinstance(model, str) else ""

    @property
    def key_state(self) -> KeyState:
        if self.key is None:
            return "missing"
        return "accepted" if self.accepted else "refused"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """An answer, with its fields in the request log."""

    answer: HttpAnswer
    asks: str | None = None
    rule: str | None = None
    fault: str | None = None


_ODD_TEXTS: dict[OddText, str] = {
    "control": "".join(map(chr, range(1, 32))) + "\x7f\x85 control characters",
    "surrogate": "lone surrogates \ud800 and \udfff",
    "nul": "a NUL \x00 inside",
    "ansi": "\x1b[2J\x1b[31mred\x1b[0m \x1b]0;title\x07 terminal escapes",
    "huge": "word " * 200_000,
}


@dataclass(slots=True)
class _Armed:
    """A fault, with its counts of matching requests and of failures."""

    rule: FaultRule
    matched: int = 0
    fired: int = 0

    def fires(self, path: str, model: str, text: str, asks: Asks) -> bool:
        """Count a request if it matches; return whether the fault is due."""
        rule = self.rule
        matches = (
            (rule.path is None or path.endswith(rule.path))
            and (rule.model is None or fnmatchcase(model, rule.model))
            and (rule.contains is None or rule.contains.casefold() in text)
            and (rule.asks is None or rule.asks == asks)
        )
        if not matches or (rule.next is not None and self.fired >= rule.next):
            return False
        self.matched += 1
        if rule.every is not None and self.matched % rule.every:
            return False
        self.fired += 1
        return True


class _FaultPlan:
    """The active faults; used by one thread."""

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


class App:
    """Answers requests from a script; any thread may replace the script and the faults."""

    def __init__(self, script: Script, extra_faults: Sequence[FaultRule] = ()) -> None:
        self.requests: list[LoggedRequest] = []
        self._extra_faults = tuple(extra_faults)
        self.use_script(script)
        self._wires: dict[str, WireFormat] = {
            "/v1/chat/completions": CHAT,
            "/v1/responses": responses_wire(),
            "/v1/messages": MESSAGES,
            EMBEDDINGS_PATH: CHAT,
        }

    def use_script(self, script: Script) -> None:
        """Play another script from now on, with its faults."""
        self._script = script
        self.use_faults((*script.faults, *self._extra_faults))

    def use_faults(self, rules: Sequence[FaultRule]) -> None:
        """Replace all faults."""
        self._faults = _FaultPlan(rules)

    def handle(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request."""
        wire = self._wires.get(request.path)
        if wire is None:
            if request.path in ("/", "/health"):
                return _json(200, {"status": "ok", "script": self._script.name})
            message = f"There is no {request.method} {request.path} here."
            return _json(404, {"error": {"message": message, "type": "invalid_request_error"}})
        number, arrived_at = len(self.requests) + 1, datetime.now(UTC)
        try:
            body = json.loads(request.body)
        except (ValueError, RecursionError):
            body = None
        key = wire.key_of(request.headers)
        accepted = key is not None and (not self._script.keys or key in self._script.keys)
        call = _Call(
            wire,
            request,
            f"req_{number:024}",
            body if isinstance(body, dict) else None,
            key,
            accepted,
        )
        outcome = self._answer(call)
        self.requests.append(
            LoggedRequest(
                number=number,
                at=arrived_at,
                method=request.method,
                path=request.path,
                model=call.model or None,
                asks=outcome.asks,
                key=call.key_state,
                headers={
                    name: value
                    for name, value in request.headers.items()
                    if name not in _SECRET_HEADERS
                },
                raw_body=request.body,
                status=outcome.answer.status,
                rule=outcome.rule,
                fault=outcome.fault,
            )
        )
        return outcome.answer

    def _answer(self, call: _Call) -> _Outcome:
        body = call.request.body.decode("utf-8", "replace")
        delay_s, fault = self._faults.due(call.request.path, call.model, body)
        answer = None if fault is None else _fault_answer(call, fault)
        if fault is not None and answer is not None:
            outcome = _Outcome(answer, fault=str(fault))
        else:
            outcome = self._served(call, fault)
        if delay_s:
            late = replace(outcome.answer, delay_s=outcome.answer.delay_s + delay_s)
            return replace(outcome, answer=late, fault=outcome.fault or "latency")
        return outcome

    def _served(self, call: _Call, fault: Fault | None) -> _Outcome:
        """Return the answer of the script, or of a fault in the format of the request."""
        spec = next((spec for spec in self._script.models if spec.name == call.model), None)
        refusal = self._refusal(call, spec)
        if refusal is not None:
            return _Outcome(_error(call, refusal))
        assert call.body is not None
        if call.request.path == EMBEDDINGS_PATH:
            vectors = embeddings(call.body)
            if isinstance(vectors, Refusal):
                return _Outcome(_error(call, vectors))
            return _Outcome(_delivered(_ok(call, (vectors,), stream=False), fault))
        read = call.wire.read(call.request.headers, call.body, call.request.body, spec)
        if isinstance(read, Refusal):
            return _Outcome(_error(call, read))
        return self._played(call, read, fault)

    def _refusal(self, call: _Call, spec: ModelSpec | None) -> Refusal | None:
        if not call.accepted:
            return call.wire.auth_refusal(call.key)
        if call.request.method != "POST":
            message = f"Not allowed to {call.request.method} on {call.request.path}"
            return Refusal(405, "invalid_request_error", message)
        if call.body is None:
            return Refusal(400, "invalid_request_error", _NOT_JSON)
        if call.model and self._script.models and spec is None:
            return call.wire.unknown_model(call.model)
        return None

    def _played(self, call: _Call, conversation: TalkRequest, fault: Fault | None) -> _Outcome:
        try:
            played = play(self._script, conversation)
        except ScriptError as error:
            return _Outcome(_script_mistake(call, str(error)), conversation.asks)
        if played.mistake is not None:
            return _Outcome(_script_mistake(call, played.mistake), conversation.asks, played.rule)
        fault = fault or played.fault
        answer = None if fault is None else _fault_answer(call, fault)
        if answer is None:
            request, reply = conversation, played.reply
            faulty = None if fault is None else _faulty_reply(fault, conversation, call.key or "")
            if faulty is not None:  # without limits and stop texts
                request, reply = replace(request, max_tokens=None, stop=(), prefill=""), faulty
            parts = call.wire.write(request, reply)
            answer = _delivered(_ok(call, parts, stream=conversation.stream), fault)
        if played.delay_s:
            answer = replace(answer, delay_s=played.delay_s)
        kind = None if fault is None else str(fault)
        return _Outcome(answer, conversation.asks, played.rule, kind)


def _fault_answer(call: _Call, fault: Fault) -> HttpAnswer | None:
    """Return the answer of a fault that does not depend on the conversation, else None."""
    match fault.kind, fault.value:
        case "status", status:
            wait_s = fault.retry_after_s
            wait = [("retry-after", f"{wait_s:g}")] if wait_s is not None else ()
            return _error(call, call.wire.status_refusal(status, call.model), *wait)
        case "echoKey", "error" | "header" | "url":
            message, headers = _key_echo(fault, call.key or "")
            return _error(call, Refusal(400, "invalid_request_error", message), *headers)
        case "cut", "before" | "headers" as cut:
            return replace(_ok(call, (b"{}",), stream=False), cut=cut)
        case "malformed", True:
            return _ok(call, (b'{"id": "broken", "choices": [{"mess',), stream=False)
    return None


def _encoded_key(key: str, encoding: Encoding) -> str:
    """Return a key in an encoding in which a server might repeat it."""
    if encoding == "base64":
        return base64.b64encode(key.encode()).decode("ascii")
    return "".join(f"%{byte:02X}" for byte in key.encode()) if encoding == "percent" else key


def _faulty_reply(fault: Fault, conversation: TalkRequest, key: str) -> Reply | None:
    """Return the reply of a fault that replaces the reply of the script, else None."""
    tool = conversation.offered[0] if conversation.offered else "lookup_order"
    shown = _encoded_key(key, fault.encoding)
    match fault.kind, fault.value:
        case "empty", True:
            return Reply()
        case "text", odd:
            return Reply(text=_ODD_TEXTS[odd])
        case "toolCalls", many:
            return Reply(calls=tuple(CallOut(tool, {"number": n}) for n in range(many)))
        case "echoKey", "text":
            return Reply(text=f"My key is {shown}, since you ask.")
        case "echoKey", "toolArgument":
            return Reply(calls=(CallOut(tool, {"order_id": shown}),))
    return None


def _key_echo(fault: Fault, key: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return an error message and headers that repeat the key."""
    shown = _encoded_key(key, fault.encoding)
    if fault.value == "url":
        url = f"http://127.0.0.1/help?key={quote(shown, safe='%')}"
        return f"See {url} for this request.", (("link", f"<{url}>; rel=help"),)
    headers = (("x-debug-authorization", shown),) if fault.value == "header" else ()
    return f"The request with the key {shown} could not be served.", headers


def _delivered(answer: HttpAnswer, fault: Fault | None) -> HttpAnswer:
    """Return the answer with a fault of its delivery."""
    match (fault.kind, fault.value) if fault is not None else None:
        case "latencyMs", late_ms:
            return replace(answer, delay_s=late_ms / 1000)
        case "stallMs", stall_ms:
            return replace(answer, stall_s=stall_ms / 1000)
        case "cut", "body":
            return replace(answer, cut="body")
    return answer


def _ok(call: _Call, parts: tuple[bytes, ...], *, stream: bool) -> HttpAnswer:
    headers = call.wire.headers(call.request_id)
    if stream:
        return HttpAnswer(200, b"", headers, "text/event-stream; charset=utf-8", parts)
    return HttpAnswer(200, parts[0], headers)


def _error(call: _Call, refusal: Refusal, *extra: tuple[str, str]) -> HttpAnswer:
    body = json.dumps(call.wire.error_body(refusal, call.request_id)).encode("ascii")
    return HttpAnswer(refusal.status, body, (*call.wire.headers(call.request_id), *extra))


def _script_mistake(call: _Call, mistake: str) -> HttpAnswer:
    refusal = replace(call.wire.status_refusal(500, call.model), message=f"script: {mistake}")
    return _error(call, refusal)


def _json(status: int, value: Any) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value).encode("ascii"))
