"""Calls per second that the loopback server answers, over raw sockets.

The server is a separate process, and the client only moves bytes, so that the server has a core to
itself on a machine with two.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, Sizes

_CONNECTIONS = 8

TOOLS = ("lookup_order", "issue_refund", "escalate_to_human")
SYSTEM = "You are a customer support agent for ACME Corp. Always look up the order first."
USER = "Customer message: I was charged twice for order #ORD-1234. Please refund the duplicate."


def openai_request() -> bytes:
    parameters = {"type": "object", "properties": {}}
    body = {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}],
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": parameters}}
            for name in TOOLS
        ],
        "temperature": 0.2,
        "max_tokens": 1024,
    }
    return _request("/v1/chat/completions", "authorization: Bearer benchmark", body)


def anthropic_request() -> bytes:
    body = {
        "model": "claude-sonnet-5-5",
        "system": SYSTEM,
        "messages": [{"role": "user", "content": USER}],
        "tools": [{"name": name, "input_schema": {"type": "object"}} for name in TOOLS],
        "max_tokens": 1024,
    }
    key = "x-api-key: benchmark\r\nanthropic-version: 2026-10-21"
    return _request("/v1/messages", key, body)


def _request(path: str, key: str, body: object) -> bytes:
    payload = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


def calls_per_second(port: int, request: bytes, calls: int, connections: int) -> float:
    """Return the rate of calls, one at a time on each of the connections."""
    selector = selectors.DefaultSelector()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    expected = _whole_answer(clients[0], request)
    begun = finished = 0
    started = time.perf_counter()
    for client in clients:
        selector.register(client, selectors.EVENT_READ, client)
        client.sendall(request)
        begun += 1
    received = dict.fromkeys(clients, 0)
    while finished < calls:
        for key, _ in selector.select():
            client = key.data
            received[client] += len(client.recv(1 << 16))
            if received[client] < expected:
                continue
            received[client] = 0
            finished += 1
            if begun < calls:
                client.sendall(request)
                begun += 1
    seconds = time.perf_counter() - started
    for client in clients:
        client.close()
    return calls / seconds


def _whole_answer(client: socket.socket, request: bytes) -> int:
    """Return the length of a response, which is the same for all: only its id differs."""
    client.sendall(request)
    answer = client.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200 OK"), answer
    assert b"lookup_order" in answer
    return len(answer)


def server(sizes: Sizes) -> Iterator[Figure]:
    """Yield the rates for both wire formats of the server."""
    calls = sizes.tests * 5
    command = [sys.executable, "-m", "kindlm.testing.server", "--script", "support", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        for name, request in (("OpenAI", openai_request()), ("Anthropic", anthropic_request())):
            calls_per_second(port, request, max(calls // 10, _CONNECTIONS), _CONNECTIONS)
            rates = [
                calls_per_second(port, request, calls, _CONNECTIONS) for _ in range(sizes.runs)
            ]
            yield Figure(f"{name} wire format, {_CONNECTIONS} connections", rates, "calls/s")
        process.terminate()
