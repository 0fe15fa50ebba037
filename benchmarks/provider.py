"""A provider that costs next to nothing, so that benchmarks measure kindlm and not the server.

`kindlm.testing.server` plays scripts, reads whole conversations and keeps the requests, which takes
a good part of kindlm's own time for a call. This one finds the end of a request and sends a chat
completion, with different text and id each time.

    python -m benchmarks.provider [--latency-ms 50]

It prints its port, ends on SIGTERM, and then prints its calls, connections and CPU seconds as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)

_REPLY = json.dumps(
    {
        "id": "chatcmpl-@@",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "gpt-4o-2024-08-06",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Your order was shipped on Tuesday under number @@ and arrives"
                    " within three working days. Is there anything else that I can do for you?",
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 58, "completion_tokens": 31, "total_tokens": 89},
        "system_fingerprint": "fp_44709d6fcb",
    }
)


_STREAM = b'"stream": true'
_EVENTS = b"".join(
    b"data: %s\n\n" % event
    for event in (
        b'{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"On its way."}}]}',
        b'{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        b'{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":58,"completion_tokens":3}}',
        b"[DONE]",
    )
)
_STREAMED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"%x\r\n%s\r\n0\r\n\r\n" % (len(_EVENTS), _EVENTS)
)


@dataclass(slots=True)
class ProviderUse:
    """The number of answered calls and accepted connections, and the CPU seconds."""

    calls: int = 0
    connections: int = 0
    cpu_s: float = 0.0


@dataclass(slots=True)
class Provider:
    """A running provider; `use` is set when it has ended."""

    url: str
    use: ProviderUse


@contextmanager
def provider(latency_ms: float = 0) -> Iterator[Provider]:
    """Run a provider in a separate process."""
    command = [sys.executable, "-m", "benchmarks.provider", "--latency-ms", str(latency_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running = Provider(f"http://127.0.0.1:{int(process.stdout.readline())}", ProviderUse())
        try:
            yield running
        finally:
            process.terminate()
            running.use = ProviderUse(**json.loads(process.stdout.readline()))


class _Connection(asyncio.Protocol):
    """One connection; requests follow one another, as with HTTP/1.1."""

    def __init__(self, use: ProviderUse, latency_s: float) -> None:
        self._use = use
        self._latency_s = latency_s
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._use.connections += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._received, 0, head + 2)
        end = head + 4 + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return
        is_stream = _STREAM in self._received[:end]
        self._received = self._received[end:]
        self._use.calls += 1
        reply = _STREAMED if is_stream else _reply(self._use.calls)
        if self._latency_s:
            asyncio.get_running_loop().call_later(self._latency_s, self._send, reply)
        else:
            self._send(reply)

    def _send(self, reply: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(reply)


def _reply(number: int) -> bytes:
    body = _REPLY.replace("@@", f"{number:08}").encode()
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        f"x-request-id: req_{number:08}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _serve(latency_s: float) -> ProviderUse:
    loop, use, stop = asyncio.get_running_loop(), ProviderUse(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    factory = partial(_Connection, use, latency_s)
    server = await loop.create_server(factory, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    started_s = time.process_time()
    await stop.wait()
    use.cpu_s = time.process_time() - started_s
    server.close()
    return use


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=0)
    use = asyncio.run(_serve(parser.parse_args().latency_ms / 1000))
    print(json.dumps(asdict(use)), flush=True)


if __name__ == "__main__":
    main()
