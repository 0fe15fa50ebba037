"""The server's routes: from an HTTP request to its answer, and an entry in the request log.

The entry is there before the first byte of the answer is sent.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from kindlm.dataclass import dataclass, replace
from kindlm.testing import anthropic_wire, openai_wire
from kindlm.testing.faults import FaultPlan, faulty_reply, key_echo, without_limits
from kindlm.testing.http1 import HttpAnswer, HttpRequest
from kindlm.testing.node import ScriptError
from kindlm.testing.player import play
from kindlm.testing.responses_wire import ResponsesWire
from kindlm.testing.scripted_talk import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kindlm.testing.script import Fault, FaultRule, ModelSpec, Script
    from kindlm.testing.scripted_talk import TalkRequest, WireFormat

KeyState = Literal["missing", "accepted", "refused"]

_SECRET_HEADERS = ("authorization", "x-api-key")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request and how it was answered.

    Attributes:
        number: Order of arrival, from 1.
        at: When it arrived.
        method: HTTP method.
        path: Route.
        model: Model asked for, None if unreadable.
        asks: Its purpose: agent, judge or drift; None for other routes and refused requests.
        key: Whether a key came with it, and whether it was accepted.
        headers: All headers but those of keys.
        raw_body: The body as received.
        status: Status of the answer, also where a fault then cut it off.
        rule: Name of the script's rule that replied, None if none did.
        fault: The fault that was played, None for none.
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
        """The body as JSON, or as text if it is none."""
        try:
            return json.loads(self.raw_body)
        except (ValueError, RecursionError):
            return self.raw_body.decode("utf-8", "replace")


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
    """An answer with what the request log says of it."""

    answer: HttpAnswer
    asks: str | None = None
    rule: str | None = None
    fault: str | None = None


class App:
    """Answers requests from a script. Script and faults may be replaced by any thread."""

    def __init__(self, script: Script, extra_faults: Sequence[FaultRule] = ()) -> None:
        self.requests: list[LoggedRequest] = []
        self._extra_faults = tuple(extra_faults)
        self.use_script(script)
        self._wires: dict[str, WireFormat] = {
            "/v1/chat/completions": openai_wire,
            "/v1/responses": ResponsesWire(),
            "/v1/messages": anthropic_wire,
            EMBEDDINGS_PATH: openai_wire,
        }

    def use_script(self, script: Script) -> None:
        """Plays another script from now on, with its faults."""
        self._script = script
        self.use_faults((*script.faults, *self._extra_faults))

    def use_faults(self, rules: Sequence[FaultRule]) -> None:
        """Replaces all faults."""
        self._faults = FaultPlan(rules)

    def handle(self, request: HttpRequest) -> HttpAnswer:
        """The answer to a request."""
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
        held = body if isinstance(body, dict) else None
        call = _Call(wire, request, f"req_{number:024}", held, key, accepted)
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
        """The answer of the script, or of a fault that keeps to the request's format."""
        spec = next((spec for spec in self._script.models if spec.name == call.model), None)
        refusal = self._refusal(call, spec)
        if refusal is not None:
            return _Outcome(_error(call, refusal))
        assert call.body is not None
        if call.request.path == EMBEDDINGS_PATH:
            vectors = openai_wire.embeddings(call.body, call.model)
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
            reply = None if fault is None else faulty_reply(fault, conversation, call.key or "")
            heard = conversation if reply is None else without_limits(conversation)
            parts = call.wire.write(heard, reply or played.reply, call.model)
            answer = _delivered(_ok(call, parts, stream=conversation.stream), fault)
        if played.delay_s:
            answer = replace(answer, delay_s=played.delay_s)
        kind = None if fault is None else str(fault)
        return _Outcome(answer, conversation.asks, played.rule, kind)


def _fault_answer(call: _Call, fault: Fault) -> HttpAnswer | None:
    """The answer of a fault that does not care what was asked, else None."""
    match fault.kind, fault.value:
        case "status", status:
            wait_s = fault.retry_after_s
            wait = [("retry-after", f"{wait_s:g}")] if wait_s is not None else ()
            return _error(call, call.wire.status_refusal(status, call.model), *wait)
        case "echoKey", "error" | "header" | "url":
            message, headers = key_echo(fault, call.key or "")
            return _error(call, Refusal(400, "invalid_request_error", message), *headers)
        case "cut", "before" | "headers" as cut:
            return replace(_ok(call, (b"{}",), stream=False), cut=cut)
        case "malformed", True:
            return _ok(call, (b'{"id": "broken", "choices": [{"mess',), stream=False)
    return None


def _delivered(answer: HttpAnswer, fault: Fault | None) -> HttpAnswer:
    """The answer with a fault in how it is delivered."""
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
