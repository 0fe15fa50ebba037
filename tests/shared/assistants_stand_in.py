"""A stand-in for OpenAI's Assistants API (v2): threads, messages, runs and their steps.

Each run is played from a script: which states are seen before it ends, which functions it asks
for, and how it ends. Objects look as on https://platform.openai.com/docs/api-reference/runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kindlm.testing.http1 import HttpAnswer, HttpRequest

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedRun:
    """How a run goes.

    Attributes:
        text: What the assistant says in the end; None for no message.
        before: States that are seen first, one each time that somebody looks.
        asks: Rounds of calls of functions, each `{"id", "name", "arguments"}`.
        steps: Its steps, newest first.
        status: How it ends.
        fields: What the run says besides, such as `usage`, `last_error`, `tools`.
    """

    text: str | None = "ok"
    before: Sequence[str] = ("queued", "in_progress")
    asks: Sequence[Sequence[Json]] = ()
    steps: Sequence[Json] = ()
    status: str = "completed"
    fields: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssistantsRequest:
    """A request as it came; header names are lower case, a body that is not JSON is None."""

    line: str
    headers: Mapping[str, str]
    body: Any


class AssistantsApp:
    """Answers as the API does; each thread has messages and runs of its own.

    Args:
        runs: The scripts of runs, in the order the runs are made; the last one stays.
        answers: What is answered instead, by request line such as `POST /threads`.
    """

    def __init__(self, *runs: ScriptedRun, answers: Mapping[str, HttpAnswer] | None = None) -> None:
        self._scripts = runs or (ScriptedRun(),)
        self._threads: dict[str, list[dict[str, Any]]] = {}
        self._runs: dict[str, _Run] = {}
        self.answers = dict(answers or {})
        self.requests: list[AssistantsRequest] = []

    def handle(self, request: HttpRequest) -> HttpAnswer:
        """The answer to a request."""
        try:
            body = json.loads(request.body) if request.body else None
        except ValueError:
            body = None
        line = f"{request.method} {request.path.removeprefix('/v1')}"
        self.requests.append(AssistantsRequest(line, request.headers, body))
        if line in self.answers:
            return self.answers[line]
        if request.headers.get("openai-beta") != "assistants=v2":
            return _refused(400, "You must provide the 'OpenAI-Beta' header: assistants=v2")
        method, _, rest = line.partition(" ")
        found = self._answer(method, rest.strip("/").split("/"), body or {})
        return _refused(404, f"No such thing: {rest}") if found is None else _answered(found)

    def _answer(self, method: str, parts: Sequence[str], body: Json) -> Json | None:
        match method, *parts:
            case "POST", "threads":
                thread = f"thread_{len(self._threads) + 1}"
                self._threads[thread] = []
                return {"id": thread, "object": "thread", "created_at": 1}
            case "POST", "threads", str(thread), "messages" if thread in self._threads:
                return self._say(thread, body.get("role"), body.get("content"), None)
            case "GET", "threads", str(thread), "messages" if thread in self._threads:
                return _listed(list(reversed(self._threads[thread])))
            case "POST", "threads", str(thread), "runs" if thread in self._threads:
                return self._begin(thread, body)
            case method, "threads", str(), "runs", str(run), *rest if run in self._runs:
                return self._of_run(method, self._runs[run], rest, body)
        return None

    def _begin(self, thread: str, body: Json) -> Json:
        number = len(self._runs)
        script = self._scripts[min(number, len(self._scripts) - 1)]
        run = _Run(f"run_{number + 1}", thread, body.get("assistant_id"), script)
        self._runs[run.id] = run
        return run.seen()

    def _of_run(self, method: str, run: _Run, rest: Sequence[str], body: Json) -> Json | None:
        match method, *rest:
            case ("GET",):
                return self._finished(run)
            case "GET", "steps":
                return _listed(run.steps())
            case "POST", "submit_tool_outputs":
                run.take(body.get("tool_outputs"))
                return self._finished(run)
            case "POST", "cancel":
                run.cancelled = True
                return run.seen()
        return None

    def _finished(self, run: _Run) -> Json:
        seen = run.seen()
        if seen["status"] == "completed" and not run.said and run.script.text is not None:
            run.said = True
            self._say(run.thread, "assistant", run.script.text, run.id)
        return seen

    def _say(self, thread: str, role: Any, text: Any, run: str | None) -> Json:
        said = self._threads[thread]
        message = {
            "id": f"msg_{len(said) + 1}",
            "object": "thread.message",
            "created_at": len(said) + 1,
            "thread_id": thread,
            "run_id": run,
            "role": role,
            "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
        }
        said.append(message)
        return message


@dataclass
class _Run:
    """A run, and how far it is."""

    id: str
    thread: str
    assistant: Any
    script: ScriptedRun
    looks: int = 0
    outputs: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 0
    said: bool = False
    cancelled: bool = False

    def seen(self) -> dict[str, Any]:
        """The run as it is now; it goes on with each look."""
        seen: dict[str, Any] = {
            "id": self.id,
            "object": "thread.run",
            "created_at": 1,
            "thread_id": self.thread,
            "assistant_id": self.assistant,
            "model": "gpt-4o",
            "tools": [],
            "usage": None,
            "last_error": None,
            "status": self._status(),
        }
        if seen["status"] == "requires_action":
            calls = [_function(call) for call in self.script.asks[self.rounds]]
            action = {"tool_calls": calls}
            seen["required_action"] = {"type": "submit_tool_outputs", "submit_tool_outputs": action}
        self.looks += 1
        return seen | dict(self.script.fields)

    def take(self, outputs: Any) -> None:
        """Take the answers of a round."""
        self.outputs += outputs
        self.rounds += 1

    def steps(self) -> list[Json]:
        """The steps of the script, and those of the functions, in the order of time."""
        given = {output["tool_call_id"]: output["output"] for output in self.outputs}
        calls = [_function(call) for asked in self.script.asks[: self.rounds] for call in asked]
        for call in calls:
            call["function"]["output"] = given.get(call["id"])
        made = [_step(number, [call]) for number, call in enumerate(calls, start=100)]
        return [*reversed(self.script.steps), *made]

    def _status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.looks < len(self.script.before):
            return self.script.before[self.looks]
        return "requires_action" if self.rounds < len(self.script.asks) else self.script.status


def _function(call: Json) -> dict[str, Any]:
    said = {"name": call["name"], "arguments": call.get("arguments", "{}")}
    return {"id": call["id"], "type": "function", "function": said}


def _step(created: int, calls: Sequence[Json]) -> Json:
    return {
        "id": f"step_{created}",
        "object": "thread.run.step",
        "type": "tool_calls",
        "created_at": created,
        "step_details": {"type": "tool_calls", "tool_calls": list(calls)},
    }


def _listed(data: Sequence[Json]) -> Json:
    return {"object": "list", "data": list(data), "has_more": False}


def _answered(value: Json) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(value).encode())


def _refused(status: int, message: str) -> HttpAnswer:
    return HttpAnswer(status, json.dumps({"error": {"message": message}}).encode())
