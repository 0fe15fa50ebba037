"""A server that speaks a part of the Assistants API (v2), by the standard library alone.

It serves the assistant `asst_shoes` on the port SHOP_PORT or 8000, and knows what a test asks for:

    POST /v1/threads                                  begin a conversation
    POST /v1/threads/THREAD/messages                  say something
    POST /v1/threads/THREAD/runs                      let the assistant answer
    GET  /v1/threads/THREAD/runs/RUN                  see whether it has
    GET  /v1/threads/THREAD/runs/RUN/steps            see which tools it used
    GET  /v1/threads/THREAD/messages?run_id=RUN       read what it said
"""

import itertools
import json
import os
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import shoes

ASSISTANT = "asst_shoes"

Json = dict[str, Any]


@dataclass
class Thread:
    """A conversation; messages and steps are in the order of time."""

    messages: list[Json] = field(default_factory=list)
    runs: dict[str, Json] = field(default_factory=dict)
    steps: list[Json] = field(default_factory=list)
    found: set[str] = field(default_factory=set)


THREADS: dict[str, Thread] = {}
NUMBERS = itertools.count(1)


def respond(method: str, path: str, query: dict[str, list[str]], body: Json) -> Json:
    """Answer a request; raise LookupError for what does not exist."""
    match [method, *path.removeprefix("/v1/").split("/")]:
        case ["POST", "threads"]:
            thread = made("thread")
            THREADS[thread["id"]] = Thread()
            return thread
        case ["POST", "threads", thread_id, "messages"]:
            return said(THREADS[thread_id], body["role"], body["content"], None)
        case ["GET", "threads", thread_id, "messages"]:
            messages = THREADS[thread_id].messages
            wanted = query.get("run_id")
            return listed([m for m in messages if wanted in (None, [m["run_id"]])], query)
        case ["POST", "threads", thread_id, "runs"] if body["assistant_id"] == ASSISTANT:
            run = run_on(THREADS[thread_id])
            return {**run, "status": "queued"}
        case ["GET", "threads", thread_id, "runs", run_id]:
            return THREADS[thread_id].runs[run_id]
        case ["GET", "threads", thread_id, "runs", run_id, "steps"]:
            steps = THREADS[thread_id].steps
            return listed([step for step in steps if step["run_id"] == run_id], query)
    raise LookupError


def run_on(thread: Thread) -> Json:
    """Let the assistant answer: note the steps that it took, and the message that it wrote."""
    user = [m["content"][0]["text"]["value"] for m in thread.messages if m["role"] == "user"]
    text, calls = shoes.answer(user, thread.found)
    run = {**made("thread.run"), "assistant_id": ASSISTANT, "status": "completed"}
    run["tools"] = [{"type": "file_search"}, {"type": "code_interpreter"}]
    thread.runs[run["id"]] = run
    for call in calls:
        if call["type"] == "file_search":
            thread.found.update(each["file_name"] for each in call["file_search"]["results"])
        details = {"type": "tool_calls", "tool_calls": [{"id": f"call_{next(NUMBERS)}", **call}]}
        note_step(thread, run, details)
    message = said(thread, "assistant", text, run["id"])
    creation = {"message_id": message["id"]}
    note_step(thread, run, {"type": "message_creation", "message_creation": creation})
    return run


def note_step(thread: Thread, run: Json, details: Json) -> None:
    """Note a step of a run."""
    step = {"run_id": run["id"], "type": details["type"], "step_details": details}
    thread.steps.append({**made("thread.run.step"), **step, "status": "completed"})


def said(thread: Thread, role: str, text: str, run_id: str | None) -> Json:
    """Return a message that was put on a thread."""
    content = [{"type": "text", "text": {"value": text, "annotations": []}}]
    message = {**made("thread.message"), "role": role, "run_id": run_id, "content": content}
    thread.messages.append(message)
    return message


def made(kind: str) -> Json:
    """Return a new object of the API."""
    name = kind.rpartition(".")[2]
    return {"id": f"{name}_{next(NUMBERS)}", "object": kind, "created_at": int(time.time())}


def listed(data: list[Json], query: dict[str, list[str]]) -> Json:
    """Return a list as the API does: newest first, unless it is asked for in the order of time."""
    ordered = data if query.get("order") == ["asc"] else data[::-1]
    return {"object": "list", "data": ordered, "has_more": False}


class Handler(BaseHTTPRequestHandler):
    """Answers one request of the API."""

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self.answer({})

    def do_POST(self) -> None:
        """Answer a request with a body."""
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body: Json) -> None:
        """Answer, or say that there is no such thing."""
        url = urlsplit(self.path)
        try:
            status, value = 200, respond(self.command, url.path, parse_qs(url.query), body)
        except LookupError:
            status, value = 404, {"error": {"message": f"There is no {url.path} for {body}"}}
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("SHOP_PORT", "8000"))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
