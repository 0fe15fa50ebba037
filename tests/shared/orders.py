"""A suite whose every call can be told apart in the server's request log, and be held up there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from checked_server import LoopbackServer
from workspace import Workspace, until

SCRIPT = {
    "rules": [{"name": "answer", "when": {}, "reply": {"text": "delivered: {{user}}"}}],
    "judge": {"default": 0.9},
}

_FOREVER_MS = 600_000
_TIMES = frozenset(
    # What a session that was killed had asked was asked: its calls count beside those made again.
    ("calls", "startedAt", "finishedAt", "durationMs", "latencyMs", "latencyAvgMs", "headHash")
)


@contextmanager
def serve_orders() -> Iterator[LoopbackServer]:
    """Answer every question about an order, and judge every answer."""
    with LoopbackServer(SCRIPT) as server:
        yield server


def order(name: str, *, judged: bool = True, says: str = "delivered", **more: Any) -> Any:
    """Return a test that asks about the order of its name."""
    judge = [{"criteria": "Says where it is", "minScore": 0.8}] if judged else []
    return {
        "name": name,
        "prompt": "ask",
        "vars": {"order": name},
        "expect": {"output": {"contains": [says]}, **({"judge": judge} if judged else {})},
        **more,
    }


@dataclass(frozen=True)
class Silent:
    """A server of which there is nothing but a place where a test listens."""

    url: str


def write_orders(
    workspace: Workspace,
    server: LoopbackServer | Silent,
    tests: int | Sequence[Any] = 8,
    **changes: Any,
) -> None:
    """Write a suite of these tests, or of so many: k0, k1, …"""
    if isinstance(tests, int):
        tests = [order(f"k{number}") for number in range(tests)]
    prompts = {"ask": {"user": "Where is order <{{order}}>?"}}
    workspace.suite(server.url, tests=list(tests), prompts=prompts, **changes)


def hold(server: LoopbackServer, *names: str, asks: str = "agent") -> Callable[[], None]:
    """Let the next question about each of these orders wait for ever.

    Returns what waits until all of them were asked.
    """
    since = len(server.requests)
    server.use_faults(
        [
            {"latencyMs": _FOREVER_MS, "contains": f"<{name}>", "asks": asks, "next": 1}
            for name in names
        ]
    )
    return lambda: until(lambda: all(asked(server, since)[name, asks] for name in names))


def asked(server: LoopbackServer, since: int = 0) -> Counter[tuple[str, str]]:
    """Count what was asked of which order, by the test or by its judge, from a request on."""
    return Counter(
        (found[1], str(request.asks))
        for request in server.requests[since:]
        if (found := re.search(r"<(\w+)>", request.raw_body.decode()))
    )


def events_of(workspace: Workspace, run: str | None = None) -> list[tuple[Any, ...]]:
    """Return all that is recorded of a run, of the only one if none is named."""
    query = (
        "SELECT version, id, type, schema, at, subject, data, hash FROM event_log"
        " WHERE stream = 'run/' || coalesce(?, (SELECT max(id) FROM runs)) ORDER BY version"
    )
    return workspace.query(query, run)


def comparable(report: dict[str, Any]) -> Any:
    """Return a report without what differs between two runs of the same."""
    text = json.dumps(report).replace(report["run"]["id"], "RUN")
    return _without_times(json.loads(text))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in _TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value
