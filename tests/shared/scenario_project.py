"""A project with scenarios and an agent over HTTP that says what a test wants it to say."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kindlm.cli.app import run


@dataclass(frozen=True)
class Ended:
    """An answer of a model that came to no regular end."""

    text: str | None
    reason: str
    refusal: str | None = None


Judge = Callable[[dict[str, Any]], dict[str, Any] | str | int | Ended]
"""Makes the answer to a question by its data; a text as it is, a number is a failure."""

Answer = Callable[[dict[str, Any]], dict[str, Any] | int]
"""Makes the JSON answer to a request, or the HTTP status of a failure."""


def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"message": f"You said: {request['message']}"}


@dataclass
class LoopbackAgent:
    """An agent on this machine; `requests` are the bodies that it got."""

    url: str = ""
    answer: Answer = echo
    judge: Judge = lambda _: 500
    requests: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def said(self) -> list[str]:
        return [request["message"] for request in self.requests]

    def say(self, *texts: str | int) -> None:
        """Say these from now on, then the last one for ever; a number is an HTTP status."""
        left = list(texts)

        def answer(_: dict[str, Any]) -> dict[str, Any] | int:
            found = left.pop(0) if len(left) > 1 else left[0]
            return found if isinstance(found, int) else {"message": found}

        self.answer = answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Callers that are cancelled hang up."""


def judged(agent: LoopbackAgent, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Answer a question as a judging model behind the API of OpenAI does."""
    data = json.loads(request["messages"][-1]["content"].splitlines()[1])
    agent.questions.append({**data, "system": request["messages"][0]["content"]})
    answer = agent.judge(data)
    if isinstance(answer, int):
        return answer, {"error": {"message": "overloaded"}}
    ended = answer if isinstance(answer, Ended) else Ended(_text(answer), "stop")
    message = {"role": "assistant", "content": ended.text, "refusal": ended.refusal}
    return 200, {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "judge-1",
        "choices": [{"index": 0, "message": message, "finish_reason": ended.reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def _text(answer: dict[str, Any] | str) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


@contextmanager
def serving_agent() -> Iterator[LoopbackAgent]:
    talk = LoopbackAgent()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/chat/completions"):
                status, found = judged(talk, body)
            else:
                talk.requests.append(body)
                answer = talk.answer(body)
                status, found = (answer, {}) if isinstance(answer, int) else (200, answer)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    talk.url = f"http://127.0.0.1:{server.server_port}/chat"
    yield talk
    talk.release.set()
    server.shutdown()
    server.server_close()


@dataclass
class Project:
    """A folder with scenarios, and what `kindlm` recorded of them."""

    root: Path
    agent: LoopbackAgent

    def write(self, name: str, text: str) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def configure(self, more: str) -> None:
        """Add to the configuration."""
        with (self.root / "kindlm.toml").open("a", encoding="utf-8") as file:
            file.write(more)

    def test(self, *options: str, tests: str | None = None) -> int:
        """Run `kindlm test tests`, after writing `tests/test_it.py` if that is given."""
        if tests is not None:
            self.write("tests/test_it.py", "from kindlm import *" + tests)
        return run(["test", "tests", "--quiet", *options])

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.root / ".kindlm" / "kindlm.db")) as db:
            return db.execute(sql, values).fetchall()

    def checks(self) -> list[tuple[Any, ...]]:
        """Kind, label, outcome and line of all checks of the last run, in their order.

        Of what was run again, they are those of the last attempt.
        """
        return self.rows(
            "SELECT a.kind, a.label, a.outcome, a.line FROM assertions a JOIN executions e"
            " ON e.id = a.execution AND e.attempt = a.attempt"
            " WHERE e.run = (SELECT id FROM runs ORDER BY started_at DESC)"
            " ORDER BY e.number, a.position"
        )

    def tests(self) -> dict[str, str]:
        """How each test of the last run came out, by its whole name."""
        found = self.rows(
            "SELECT test, status FROM executions"
            " WHERE run = (SELECT id FROM runs ORDER BY started_at DESC)"
        )
        return dict(found)

    def statuses(self) -> dict[str, str]:
        """How each test of the last run came out, by its name without its file."""
        found = self.rows(
            "SELECT test, status FROM executions"
            " WHERE run = (SELECT id FROM runs ORDER BY started_at DESC)"
        )
        return {name.partition("::")[2]: status for name, status in found}


def new_project(root: Path, agent: LoopbackAgent) -> Project:
    """Return a project whose configuration names the agent, and a judge that it plays, too."""
    project = Project(root, agent)
    base = agent.url.removesuffix("/chat")
    project.write(
        "kindlm.toml",
        f"""\
project = "shop"

[agent]
type = "http"
url = "{agent.url}"

[llm]
provider = "loopback"
model = "judge-1"
base_url = "{base}/v1"
""",
    )
    return project
