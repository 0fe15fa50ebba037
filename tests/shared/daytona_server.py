"""A server that speaks the part of Daytona's API that sandboxes of agents need, on loopback.

A sandbox is a folder and a set of variables, and what is run in it runs here, in a shell, as the
daemon of Daytona does it: standard output and standard error line by line into one log, with
prefixes that tell them apart, and an input that stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

STDOUT, STDERR = b"\x01\x01\x01", b"\x02\x02\x02"
CHUNK = 32_768


@dataclass
class Command:
    process: asyncio.subprocess.Process
    text: str
    log: list[bytes] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    code: int | None = None

    async def label(self, pipe: asyncio.StreamReader, prefix: bytes) -> None:
        while line := await pipe.readline():
            labelled = prefix + line.removesuffix(b"\n") + b"\n"
            for start in range(0, len(labelled), CHUNK):
                await self.add(labelled[start : start + CHUNK])

    async def more(self, sent: int) -> tuple[list[bytes], bool]:
        """Wait for more of the log; return it, and whether it is the end."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.log) > sent or self.code is not None)
            return self.log[sent:], self.code is not None

    async def add(self, piece: bytes) -> None:
        async with self.changed:
            self.log.append(piece)
            self.changed.notify_all()

    async def watch(self) -> None:
        assert self.process.stdout
        assert self.process.stderr
        await asyncio.gather(
            self.label(self.process.stdout, STDOUT), self.label(self.process.stderr, STDERR)
        )
        code = await self.process.wait()
        async with self.changed:
            self.code = code if code >= 0 else 128 - code
            self.changed.notify_all()


@dataclass
class DaytonaServer:
    """What is asked of it. With `refuses` no sandbox is made, with that status."""

    folder: Path
    refuses: int | None = None
    breaks_logs: bool = False
    url: str = ""
    made: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    commands: dict[str, Command] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        session = "/toolbox/{box}/process/session"
        app.add_routes(
            [
                web.post("/api/sandbox", self.create),
                web.delete("/api/sandbox/{box}", self.delete),
                web.post(session, self.create_session),
                web.post(session + "/{session}/exec", self.execute),
                web.delete(session + "/{session}", self.delete_session),
                web.get(session + "/{session}/command/{command}", self.command),
                web.post(session + "/{session}/command/{command}/input", self.input),
                web.get(session + "/{session}/command/{command}/logs", self.logs),
            ]
        )
        return app

    async def create(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers["Authorization"])
        if self.refuses is not None:
            return web.json_response({"message": "no more sandboxes"}, status=self.refuses)
        asked = await request.json()
        self.made.append(asked)
        return web.json_response(self.sandbox(f"box-{len(self.made)}", asked))

    def sandbox(self, name: str, asked: dict[str, Any], state: str = "started") -> dict[str, Any]:
        return {
            "id": name,
            "organizationId": "org",
            "name": name,
            "user": "daytona",
            "env": asked.get("env", {}),
            "labels": asked.get("labels", {}),
            "public": False,
            "networkBlockAll": False,
            "kvm": False,
            "target": "eu",
            "cpu": 1,
            "gpu": 0,
            "memory": 1,
            "disk": 3,
            "state": state,
            "toolboxProxyUrl": f"{self.url}/toolbox",
        }

    async def delete(self, request: web.Request) -> web.Response:
        name = request.match_info["box"]
        self.deleted.append(name)
        for key, command in self.commands.items():
            if key.startswith(f"{name}/"):
                self.kill(command)
        return web.json_response(self.sandbox(name, {}, "destroyed"))

    async def create_session(self, request: web.Request) -> web.Response:
        return web.json_response(await request.json(), status=201)

    async def execute(self, request: web.Request) -> web.Response:
        asked = await request.json()
        box = request.match_info["box"]
        env = self.made[int(box.removeprefix("box-")) - 1].get("env", {})
        process = await asyncio.create_subprocess_shell(
            asked["command"],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=20_000_000,
        )
        command = Command(process, asked["command"])
        self.commands[f"{box}/{request.match_info['session']}"] = command
        self.tasks.append(asyncio.create_task(command.watch()))
        return web.json_response({"cmdId": "c1"}, status=202)

    def found(self, request: web.Request) -> Command:
        return self.commands[f"{request.match_info['box']}/{request.match_info['session']}"]

    async def command(self, request: web.Request) -> web.Response:
        command = self.found(request)
        told = {"id": "c1", "command": command.text, "exitCode": command.code}
        return web.json_response({key: value for key, value in told.items() if value is not None})

    async def input(self, request: web.Request) -> web.Response:
        command = self.found(request)
        if command.code is not None:
            return web.json_response({"message": "command has completed"}, status=410)
        assert command.process.stdin
        command.process.stdin.write((await request.json())["data"].encode())
        return web.Response(status=204)

    async def logs(self, request: web.Request) -> web.WebSocketResponse:
        command = self.found(request)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sent = 0
        with contextlib.suppress(ConnectionError):  # of a client that has heard enough
            while True:
                pieces, is_over = await command.more(sent)
                sent += len(pieces)
                for piece in pieces:
                    await socket.send_bytes(piece)
                if self.breaks_logs:
                    await socket.close(code=1011, message=b"the runner is gone")
                    break
                if is_over:
                    await socket.close()
                    break
        return socket

    async def delete_session(self, request: web.Request) -> web.Response:
        self.kill(self.found(request))
        return web.Response(status=204)

    def kill(self, command: Command) -> None:
        if command.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.process.pid, signal.SIGKILL)


@asynccontextmanager
async def daytona_server(folder: Path) -> AsyncIterator[DaytonaServer]:
    """Serve until the context is left; nothing that was started goes on after it."""
    server = DaytonaServer(folder)
    runner = web.AppRunner(server.app(), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        for command in server.commands.values():
            server.kill(command)
        await asyncio.gather(*server.tasks)
        await runner.cleanup()
