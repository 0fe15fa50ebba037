"""Programs started for a run: real processes, started, found ready, ended with all they started."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from processes import assert_ended, started_pids

from kindlm.engine.services import start_services
from kindlm.errors import Err, Ok
from kindlm.suite import Service

READY = "import os, time; print('listening on', os.environ['PORT'], flush=True); time.sleep(600)"
HTTP = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()
"""
NOT_HTTP = """
import os, socket
server = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))
while True:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(b'220 ready\\r\\n')
    connection.close()
"""


def service(tmp_path: Path, source: str, **fields: object) -> Service:
    values = {"ready_line": "listening", "timeout_ms": 60_000, **fields}
    return Service("agent", ("python", "-c", source), str(tmp_path), **values)


def start(services, body=None, ended=None):
    ended = [] if ended is None else ended

    async def run():
        async with start_services(services, lambda _: os.environ, ended.append) as result:
            if body is not None and isinstance(result, Ok):
                return await body(result.value)
            return result

    return asyncio.run(run())


def test_a_service_gets_a_port_and_is_ready_when_it_prints_its_line(tmp_path):
    async def body(ports):
        return ports

    ports = start([service(tmp_path, READY)], body)
    assert 1024 < ports["agent"] < 65536


def test_a_service_is_ready_when_its_url_answers(tmp_path):
    url = "http://127.0.0.1:{{serve.agent.port}}/health"

    async def body(ports):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["agent"])
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return answer

    answer = start([service(tmp_path, HTTP, ready_line=None, ready_url=url)], body)
    assert b"200" in answer


def test_the_line_of_a_service_that_is_ready_may_hold_its_port(tmp_path):
    line = "listening on {{serve.agent.port}}"
    result = start([service(tmp_path, READY, ready_line=line, timeout_ms=20_000)])
    assert isinstance(result, Ok), result


def test_everything_a_service_started_is_ended_with_it(tmp_path):
    source = (
        "import subprocess, sys, os, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "print('listening', flush=True)\n"
        "time.sleep(600)\n"
    )

    async def body(ports):
        return started_pids(tmp_path)

    pids = start([service(tmp_path, source)], body)
    assert len(pids) == 2
    assert_ended(pids)


def test_a_service_that_ignores_the_polite_signal_is_ended_too(tmp_path, monkeypatch):
    monkeypatch.setattr("kindlm.programs._GRACE_S", 0.1)
    source = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('pids', 'w').write(str(os.getpid()))\n"
        "print('listening', flush=True)\n"
        "time.sleep(600)\n"
    )

    async def body(ports):
        return started_pids(tmp_path)

    assert_ended(start([service(tmp_path, source)], body))


def test_a_service_that_cannot_bind_is_started_again_on_another_port(tmp_path):
    # Its port is taken by a process outside its group, as by another program of the machine.
    source = (
        "import os, pathlib, socket, subprocess, sys, time\n"
        "tries = pathlib.Path('tries')\n"
        "seen = tries.read_text().split() if tries.exists() else []\n"
        "tries.write_text(' '.join([*seen, os.environ['PORT']]))\n"
        "if len(seen) < 2:\n"
        "    taken = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
        "    child = subprocess.Popen(\n"
        "        [sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "        pass_fds=[taken.fileno()], start_new_session=True,\n"
        "        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,\n"
        "    )\n"
        "    open('pids', 'a').write(f'{child.pid} ')\n"
        "    sys.exit('address in use')\n"
        "print('listening', flush=True)\n"
        "time.sleep(600)\n"
    )

    async def body(ports):
        return ports["agent"], (tmp_path / "tries").read_text().split()

    try:
        port, tries = start([service(tmp_path, source)], body)
    finally:
        for pid in started_pids(tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert len(tries) == 3
    assert tries[-1] == str(port)


def test_a_service_that_ends_for_another_reason_is_started_once(tmp_path):
    source = "import sys; open('tries', 'a').write('x'); sys.exit('no such table: orders')"
    result = start([service(tmp_path, source)])
    assert isinstance(result, Err)
    assert "ended before it was ready (exit code 1)" in result.error.message
    assert (tmp_path / "tries").read_text() == "x"


def test_a_service_that_never_starts_says_its_last_words(tmp_path):
    result = start([service(tmp_path, "import sys; sys.exit('no such script: agent.yaml')")])
    assert isinstance(result, Err)
    assert "ended before it was ready (exit code 1)" in result.error.message
    assert result.error.hint == "Its output: no such script: agent.yaml"


def test_the_cause_is_told_also_if_more_was_printed_after_it(tmp_path):
    printed = ["Error: Cannot find module 'x'", "    at load", "  code: 'E',", "}", "", "Node v20"]
    result = start([service(tmp_path, f"import sys; sys.exit({chr(10).join(printed)!r})")])
    assert isinstance(result, Err)
    assert (
        result.error.hint == "Its output: Error: Cannot find module 'x' | code: 'E', | } | Node v20"
    )


def test_a_service_that_is_never_ready_is_given_up(tmp_path):
    slow = service(tmp_path, "import time; time.sleep(600)", timeout_ms=300)
    result = start([slow])
    assert isinstance(result, Err)
    assert "was not ready after 300 ms" in result.error.message


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (HTTP.replace("200", "404"), "answers 404"),
        (NOT_HTTP, "gives no answer over HTTP"),
        ("import time; time.sleep(600)", "gives no answer over HTTP"),
    ],
)
def test_a_service_that_is_never_ready_says_what_its_url_does(tmp_path, source, why):
    url = "http://127.0.0.1:{{serve.agent.port}}/health?key=secret"
    result = start([service(tmp_path, source, ready_line=None, ready_url=url, timeout_ms=3000)])
    assert isinstance(result, Err)
    assert re.search(rf"after 3000 ms: http://127.0.0.1:\d+/health {why}\.", result.error.message)


class Proxy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "http://elsewhere.invalid/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_a_url_elsewhere_is_asked_through_the_proxy(tmp_path, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        url = "http://elsewhere.invalid/health"
        result = start([service(tmp_path, READY, ready_line=None, ready_url=url, timeout_ms=5000)])
        proxy.shutdown()
    assert isinstance(result, Ok), result


def test_a_service_is_not_asked_through_a_proxy(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    url = "http://127.0.0.1:{{serve.agent.port}}/health"
    result = start([service(tmp_path, HTTP, ready_line=None, ready_url=url, timeout_ms=20_000)])
    assert isinstance(result, Ok), result


def test_a_program_that_does_not_exist_is_an_error(tmp_path):
    missing = Service("agent", ("no-such-program-here",), str(tmp_path), ready_line="x")
    result = start([missing])
    assert isinstance(result, Err)
    assert "no-such-program-here" in result.error.message


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_talkative_service_never_blocks(tmp_path, size):
    source = (
        "import time\n"
        f"print('x' * {size}, flush=True)\n"
        "print('\\n' * 5000, flush=True)\n"
        "print('listening', flush=True)\n"
        "time.sleep(600)\n"
    )
    result = start([service(tmp_path, source)])
    assert isinstance(result, Ok)


def test_python_means_the_interpreter_that_runs_kindlm(tmp_path):
    source = "import sys, time; print('listening', sys.executable, flush=True); time.sleep(600)"
    wanted = service(tmp_path, source, ready_line=f"listening {sys.executable}")
    assert isinstance(start([wanted]), Ok)


def test_a_service_that_ends_while_it_is_needed_is_reported_with_its_last_words(tmp_path):
    ended = []

    async def body(ports):
        (pid,) = [int(p) for p in (tmp_path / "pid").read_text().split()]
        os.kill(pid, signal.SIGINT)
        while not ended:
            await asyncio.sleep(0)
        return ended

    source = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *a: sys.exit('out of memory'))\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
        "print('listening', flush=True)\n"
        "time.sleep(600)\n"
    )
    (error,) = start([service(tmp_path, source)], body, ended)
    assert "ended while the tests ran (exit code 1)" in error.message
    assert error.hint == "Its output: listening | out of memory"


def test_the_end_of_a_service_is_reported_although_its_child_keeps_the_output_open(tmp_path):
    ended = []

    async def body(ports):
        async with asyncio.timeout(20):
            while not ended:
                await asyncio.sleep(0.01)
            pids = started_pids(tmp_path)
            await asyncio.to_thread(assert_ended, pids)

    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids', 'w').write(str(child.pid))\n"
        "print('listening', flush=True)\n"
        "time.sleep(0.2)\n"
        "sys.exit('out of memory')\n"
    )
    start([service(tmp_path, source)], body, ended)
    (error,) = ended
    assert "ended while the tests ran (exit code 1)" in error.message
    assert error.hint == "Its output: listening | out of memory"


def test_a_service_that_is_ended_with_the_run_is_not_reported_of(tmp_path):
    ended = []

    async def body(ports):
        return None

    start([service(tmp_path, READY)], body, ended)
    assert ended == []
