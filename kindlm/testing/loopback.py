"""The loopback server: answers requests from a script, with its faults, and logs them."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import json_or_text
from kindlm.testing.anthropic_wire import Messages
from kindlm.testing.http1 import HttpAnswer, HttpRequest, listening
from kindlm.testing.node import Node, ScriptError
from kindlm.testing.openai_wire import Chat, embeddings
from kindlm.testing.player import play
from kindlm.testing.responses_wire import Responses
from kindlm.testing.script import Fault, Reply, Script, Source, load_script, read_faults
from kindlm.testing.scripted_talk import DRIFT_QUESTION, JUDGE_QUESTIONS, Asks, Refusal

KeyState = Literal["missing", "accepted", "refused"]
_Wire = Chat | Messages

_SECRET_HEADERS = ("authorization", "x-api-key")


@dataclass(slots=True)
class LoggedRequest:
    """One request without its key, and its answer.

    Numbers are from 1, in the order of arrival `at`. The model is None if it is unreadable. A fault
    may cut the answer with the `status` off. `asks` is the purpose: agent, judge or drift; None for
    other routes and refused requests.
    """

    number: int
    at: datetime
    method: str
    path: str
    model: str | None
    key: KeyState
    headers: Mapping[str, str]
    raw_body: bytes
    status: int = 0
    asks: str | None = None
    rule: str | None = None
    fault: str | None = None

    @property
    def body(self) -> Any:
        """The body as JSON, or as text if it is not JSON."""
        return json_or_text(self.raw_body.decode("utf-8", "replace"))


EMBEDDINGS_PATH = "/v1/embeddings"


class _FaultPlan:
    """The active faults, with counts of the requests that match and that fail; for one thread."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._matched, self._fired = Counter[int](), Counter[int]()

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
        for number, fault in enumerate(self._faults):
            is_late = fault.kind == "latencyMs"
            matches = (
                (due is None or is_late)
                and (fault.path is None or path.endswith(fault.path))
                and (fault.model is None or fnmatchcase(model, fault.model))
                and (fault.contains is None or fault.contains.casefold() in text)
                and (fault.asks is None or fault.asks == asks)
            )
            if not matches or (fault.next is not None and self._fired[number] >= fault.next):
                continue
            self._matched[number] += 1
            if fault.every is None or self._matched[number] % fault.every == 0:
                self._fired[number] += 1
                delay_s += fault.value / 1000 if is_late else 0
                due = due if is_late else fault
        return delay_s, due


class App:
    """Answers requests from a script; any thread may replace the script and the faults."""

    def __init__(self, script: Script) -> None:
        self.requests: list[LoggedRequest] = []
        self.use_script(script)
        self._wires: dict[str, _Wire] = {
            "/v1/chat/completions": Chat(),
            "/v1/responses": Responses(),
            "/v1/messages": Messages(),
            EMBEDDINGS_PATH: Chat(),
        }

    def use_script(self, script: Script) -> None:
        """Play another script from now on, with its faults."""
        self._script = script
        self.use_faults(script.faults)

    def use_faults(self, faults: Sequence[Fault]) -> None:
        """Replace all faults."""
        self._faults = _FaultPlan(faults)

    def handle(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request."""
        wire = self._wires.get(request.path)
        if wire is None:
            if request.path in ("/", "/health"):
                return _json(200, {"status": "ok", "script": self._script.name})
            message = f"There is no {request.method} {request.path} here."
            return _json(404, {"error": {"message": message, "type": "invalid_request_error"}})
        exchange = _Exchange(self._script, wire, request, len(self.requests) + 1)
        answer = exchange.answer(self._faults)
        exchange.log.status = answer.status
        self.requests.append(exchange.log)
        return answer


class _Exchange:
    """A request to a provider's route while it is answered, with its entry for the log."""

    def __init__(self, script: Script, wire: _Wire, request: HttpRequest, number: int) -> None:
        self._script, self._wire, self._request = script, wire, request
        self._id = f"req_{number:024}"
        try:
            self._body = json.loads(request.body)
        except (ValueError, RecursionError):
            self._body = None
        model = self._body.get("model") if isinstance(self._body, dict) else None
        self._model = model if isinstance(model, str) else ""
        key = wire.key_of(request.headers)
        state: KeyState = "missing" if key is None else "accepted"
        if key is not None and script.keys and key not in script.keys:
            state = "refused"
        self._key = key
        self.log = LoggedRequest(
            number=number,
            at=datetime.now(UTC),
            method=request.method,
            path=request.path,
            model=self._model or None,
            key=state,
            headers={
                name: value
                for name, value in request.headers.items()
                if name not in _SECRET_HEADERS
            },
            raw_body=request.body,
        )

    def answer(self, faults: _FaultPlan) -> HttpAnswer:
        """Return the answer; the log gets its purpose, rule and fault."""
        body = self._request.body.decode("utf-8", "replace")
        delay_s, fault = faults.due(self._request.path, self._model, body)
        try:
            answer = self._replaced(fault) or self._served(fault)
        except Refusal as refusal:
            answer = self._error(refusal)
        except ScriptError as mistake:
            place, _, problem = str(mistake).partition(": ")
            answer = self._error(Refusal(400, problem, place.removeprefix("request.")))
        if not delay_s:
            return answer
        self.log.fault = self.log.fault or "latency"
        return replace(answer, delay_s=answer.delay_s + delay_s)

    def _served(self, fault: Fault | None) -> HttpAnswer:
        """Return the answer of the script, or of a fault in the format of the request."""
        wire, script, request = self._wire, self._script, self._request
        spec = next((spec for spec in script.models if spec.name == self._model), None)
        if self.log.key != "accepted":
            raise wire.auth_refusal(self._key)
        if request.method != "POST":
            raise Refusal(405, f"Not allowed to {request.method} on {request.path}")
        if not isinstance(self._body, dict):
            raise Refusal(400, "We could not parse the JSON body of your request.")
        if self._model and script.models and spec is None:
            raise wire.unknown_model(self._model)
        body = Node(self._body, "request")
        if request.path == EMBEDDINGS_PATH:
            return self._delivered(self._ok((embeddings(body),)), fault)
        conversation = wire.read(request, body, spec)
        self.log.asks = conversation.asks
        try:
            self.log.rule, reply = play(script, conversation)
        except ScriptError as mistake:
            raise Refusal(500, f"script: {mistake}") from None
        fault = fault or reply.fault
        answer = self._replaced(fault)
        if answer is None:
            is_empty = fault is not None and fault.kind == "empty" and fault.value
            parts = wire.write(conversation, Reply() if is_empty else reply)
            answer = self._delivered(self._ok(parts, stream=conversation.stream), fault)
        return replace(answer, delay_s=reply.delay_ms / 1000) if reply.delay_ms else answer

    def _replaced(self, fault: Fault | None) -> HttpAnswer | None:
        """Return the answer of a fault that does not depend on the conversation, else None."""
        if fault is None:
            return None
        match fault.kind, fault.value:
            case "status", status:
                wait_s = fault.retry_after_s
                wait = [("retry-after", f"{wait_s:g}")] if wait_s is not None else ()
                answer = self._error(self._wire.status_refusal(status), *wait)
            case "cut", "before" | "headers" as cut:
                answer = replace(self._ok((b"{}",)), cut=cut)
            case "malformed", True:
                answer = self._ok((b'{"id": "broken", "choices": [{"mess',))
            case _:
                return None
        self.log.fault = str(fault)
        return answer

    def _delivered(self, answer: HttpAnswer, fault: Fault | None) -> HttpAnswer:
        """Return the answer with a fault of its delivery."""
        if fault is None:
            return answer
        self.log.fault = str(fault)
        match fault.kind, fault.value:
            case "latencyMs", late_ms:
                return replace(answer, delay_s=late_ms / 1000)
            case "stallMs", stall_ms:
                return replace(answer, stall_s=stall_ms / 1000)
            case "cut", "body":
                return replace(answer, cut="body")
        return answer

    def _ok(self, parts: tuple[bytes, ...], *, stream: bool = False) -> HttpAnswer:
        headers = self._wire.headers(self._id)
        if stream:
            return HttpAnswer(200, b"", headers, "text/event-stream; charset=utf-8", parts)
        return HttpAnswer(200, parts[0], headers)

    def _error(self, refusal: Refusal, *extra: tuple[str, str]) -> HttpAnswer:
        error = _json(refusal.status, self._wire.error_body(refusal, self._id))
        return replace(error, headers=(*self._wire.headers(self._id), *extra))


def _json(status: int, value: Any) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value).encode("ascii"))


def _require_loopback(host: str) -> str:
    """Return the address; raises `ScriptError` if it is not a loopback address."""
    address = "127.0.0.1" if host == "localhost" else host
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback:
            return address
    raise ScriptError(f"{host}: only loopback addresses are served, such as 127.0.0.1")


class LoopbackServer:
    """The server in its own thread, for tests and for the demo.

    Example:
        with LoopbackServer("support") as server:
            client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")

    Args:
        script: a script, its file, the name of a built-in script, or its data.
        host: a loopback address.
        port: 0 for any free port.
    """

    def __init__(self, script: Source, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = _require_loopback(host)
        self._port = port
        self._app = App(load_script(script))
        self._started = Future[tuple[int, Callable[[], object]]]()
        self._thread = threading.Thread(target=self._run, name="kindlm-loopback", daemon=True)

    def __enter__(self) -> Self:
        """Start listening; raises `OSError` if the address cannot be used."""
        self._thread.start()
        self._port, self._stop = self._started.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    @property
    def requests(self) -> tuple[LoggedRequest, ...]:
        """All requests to provider routes so far, in order of arrival."""
        return tuple(self._app.requests)

    def use_faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace all faults, from the next request on."""
        self._app.use_faults(read_faults(Node([dict(fault) for fault in faults], "faults")))

    def use_script(self, script: Source) -> None:
        """Play another script, from the next request on."""
        self._app.use_script(load_script(script))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._started.set_exception(error)

    async def _serve(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with listening(self._app.handle, self._host, self._port) as port:
            self._started.set_result((port, lambda: loop.call_soon_threadsafe(over.set)))
            await over.wait()
