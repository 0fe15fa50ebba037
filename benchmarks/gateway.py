"""The cost of the gateway: CPU time of a call, including its recording, and its duration.

The gateway, the provider and the client are separate processes. Each call continues the previous
one, like the calls of agents.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.figures import Figure, Sizes
from benchmarks.provider import provider

_TEXT = "The customer asks where the order is, and when it arrives. "
_SIZES = {"a small call": 500, "a call of 20 kB": 20_000, "a history of 114 kB": 114_000}


def gateway(sizes: Sizes) -> Iterator[Figure]:
    """Yield the cost of calls one after another, directly and through the gateway."""
    calls = sizes.few
    with provider() as server, _running(server.url) as running:
        for name, size in _SIZES.items():
            cpu, direct, through = [], [], []
            for _ in range(sizes.runs):
                direct += _durations(f"{server.url}/v1", "", size, calls)
                began = running.cpu_s()
                through += _durations(running.address, running.key, size, calls)
                cpu.append((running.cpu_s() - began) / calls * 1000)
            yield Figure(f"CPU of {name}", cpu, "ms", "at most 1 ms" if size <= 20_000 else "")
            yield Figure(f"time of {name}, directly", _medians(direct, calls), "ms")
            yield Figure(f"time of {name}, through the gateway", _medians(through, calls), "ms")
        direct, through = [], []
        for _ in range(sizes.runs):
            direct += _durations(f"{server.url}/v1", "", 500, calls, stream=True)
            through += _durations(running.address, running.key, 500, calls, stream=True)
        yield Figure("first byte of a stream, directly", _medians(direct, calls), "ms")
        yield Figure("first byte of a stream, through the gateway", _medians(through, calls), "ms")


def _medians(times: Sequence[float], calls: int) -> list[float]:
    """Return the median of each run."""
    runs = [times[start : start + calls] for start in range(0, len(times), calls)]
    return [statistics.median(run) for run in runs]


def _durations(
    base: str, key: str, size: int, calls: int, *, stream: bool = False
) -> Iterator[float]:
    """Yield the milliseconds of each call, of a stream those until the first byte of its body."""
    parts = urlsplit(base)
    connection = HTTPConnection(parts.netloc)
    messages = [_message("user", _TEXT) for _ in range(size // len(_TEXT))]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    for number in range(calls):
        messages.append(_message("user" if number % 2 else "assistant", f"{number} {_TEXT}"))
        if size < 5_000:
            del messages[:-8]
        body = {"model": "gpt-4o", "messages": messages, "stream": stream}
        data = json.dumps(body).encode()
        began = time.perf_counter()
        connection.request("POST", f"{parts.path}/chat/completions", data, headers)
        answer = connection.getresponse()
        if stream:
            answer.read(1)
        else:
            answer.read()
        yield (time.perf_counter() - began) * 1000
        answer.read()
    connection.close()


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


class _Running:
    """A gateway in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        self.address, self.key = started["address"], started["key"]

    def cpu_s(self) -> float:
        """Return its CPU seconds so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("cpu\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def _running(url: str) -> Iterator[_Running]:
    command = [sys.executable, "-m", "benchmarks.gateway", url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield _Running(process)
        finally:
            process.terminate()


class _Desk:
    """Records into a history, without counting costs; implements `ports.CallDesk`."""

    subject = "1.1"

    def __init__(self, record: Any) -> None:
        self.record = record
        self._calls = 0

    def next_call(self) -> int:
        self._calls += 1
        return self._calls

    def price(self, provider: str, model: str, usage: Any) -> Any:  # noqa: ARG002
        from kindlm.transcript import Cost

        return Cost(0.001)

    def spend(self, model: str, cost: Any) -> None: ...

    def is_over(self) -> bool:
        return False

    def waiting(self) -> Any:
        return nullcontext()

    def paced(self, provider: str) -> Any:  # noqa: ARG002
        return nullcontext()


async def _serve(url: str) -> None:
    from kindlm import garbage
    from kindlm.agents.subprocess_agent import Program
    from kindlm.gateway.observer import Gateway
    from kindlm.recording.history_file import open_log
    from kindlm.recording.recorder import RunRecorder
    from kindlm.suite import AgentTarget

    environ = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-benchmark"}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open_log(Path(folder) / "kindlm.db", set()))
        desk = _Desk(RunRecorder(log, "run/benchmark").about("1.1").record)
        async with Gateway("benchmark", environ, (), lambda *_: None) as running:
            options = Program(command="shop")
            target = AgentTarget("shop", "subprocess", "", options=options, gateway=True)
            observed = running.observe(target, desk)
            assert observed is not None
            address = observed.environ["OPENAI_BASE_URL"]
            garbage.expect_little()  # as in a run
            print(json.dumps({"address": address, "key": running.key}), flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(time.process_time(), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
