"""The API of a history server: an ASGI application for `/v1`, as in `protocol.py`.

- The API reads a body only after it has checked the token. It writes the body to a temporary file
  and decompresses that in pieces, so memory and disk use are bounded.
- One thread takes all bodies, one after another, each completely or not at all.
- The API writes a pulled run to a temporary file first, so a slow reader holds no snapshot.
- Unexpected errors are logged. Their answers reveal nothing about them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sqlite3
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, NamedTuple, Protocol
from urllib.parse import parse_qsl

from kindlm.browse.datasette_server import Message, Receive, Send
from kindlm.dataclass import replace
from kindlm.history.runs import streams_of
from kindlm.recording.export_file import write_export
from kindlm.team.bodies import recorded_projects, runs_of_stream, take_body
from kindlm.team.protocol import (
    LEASE,
    LONGEST_BODY,
    LONGEST_UNPACKED,
    MOST_HEADS,
    ApiError,
    Control,
    PushAnswer,
)
from kindlm.team.token_store import Grant, OneToken, TokenStore
from kindlm_store import EventLog
from kindlm_store.canonical import hash_text
from kindlm_store.database import snapshot

PREFIX = "/v1/"

_PIECE = 64 * 1024
_IN_MEMORY = 256 * 1024
"""Bytes of a temporary file up to which it needs no disk."""

_READERS = 4
_MOST_RUNS = 1_000

_HEADS = """
SELECT name, version, head FROM streams WHERE name IN (SELECT value FROM json_each(:names))
"""

_RUNS = """
SELECT id AS run, project, git_branch AS branch, git_commit AS "commit", started_at, ended, passed,
       group_id AS "group", shard, mode, git_dirty AS dirty,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = r.id ORDER BY ordinal)) AS suites
  FROM runs r
 WHERE (:project IS NULL OR project = :project) AND (:branch IS NULL OR git_branch = :branch)
   AND (:only IS NULL OR project = :only)
   AND NOT EXISTS (SELECT 1 FROM suites WHERE run = r.id AND project <> :only)
 ORDER BY started_at DESC, id LIMIT :limit
"""

_log = logging.getLogger("kindlm.team.api")


class FleetHooks(Protocol):
    """The coordinator's part in the requests of its workers."""

    def hear(self, lease: str) -> bool:
        """Note that a worker is alive; return whether its lease is still the newest."""

    def failed(self, error: Exception) -> None:
        """Note that the server failed, so that later pushes are lost."""

    def pushed(self, lease: str, runs: Sequence[str]) -> Control:
        """Note the runs in a push of a worker; return what the worker must do."""

    def claim(self, shard: int) -> dict[str, Any]:
        """Give a shard to a worker."""


class _GoneError(Exception):
    """The client disconnected before its body was complete."""


class _Request(NamedTuple):
    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[bytes, bytes]
    receive: Receive
    send: Send

    @property
    def lease(self) -> str:
        return self.headers.get(LEASE.lower().encode(), b"").decode("latin-1")

    def asked(self, name: str) -> str | None:
        return next((value for key, value in self.query if key == name), None)


class HistoryApi:
    """Answers requests to `/v1/…`.

    Args:
        log: The history.
        tokens: The permissions and quotas of each token.
        fleet: The coordinator of the workers that push here; None for a team's server.
    """

    def __init__(
        self,
        log: EventLog,
        tokens: TokenStore | OneToken,
        *,
        fleet: FleetHooks | None = None,
    ) -> None:
        self._log = log
        self._tokens = tokens
        self._fleet = fleet
        # Workers leave no text out for its size.
        self._longest_body = LONGEST_BODY if fleet is None else LONGEST_UNPACKED
        self._taking = ThreadPoolExecutor(1, "kindlm-take")
        self._reading = ThreadPoolExecutor(_READERS, "kindlm-read")
        self._exporting = ThreadPoolExecutor(_READERS, "kindlm-export")

    def close(self) -> None:
        """Wait until the current work is done; drop requests that wait for their turn."""
        for executor in (self._taking, self._reading, self._exporting):
            executor.shutdown(cancel_futures=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = _Request(
            scope["method"],
            scope["path"],
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True),
            dict(scope["headers"]),
            receive,
            send,
        )
        try:
            await self._answer(request)
        except ApiError as error:
            await _send_json(send, error.status, error.as_json(), error.headers)
        except _GoneError:
            return
        except Exception as error:  # noqa: BLE001 - the last boundary of a request: logged
            _log_crash(error)
            if self._fleet is not None:
                self._fleet.failed(error)
            await _send_json(send, 500, ApiError(500, "The server failed.").as_json())

    async def _answer(self, request: _Request) -> None:
        match request.path.removeprefix(PREFIX).split("/"):
            case ["heads"]:
                grant = self._granted(request, "GET", "push", "pull")
                await self._heads(request, grant)
            case ["events"]:
                grant = self._granted(request, "POST", "push")
                await self._events(request, grant)
            case ["runs"]:
                grant = self._granted(request, "GET", "pull")
                await self._runs(request, grant)
            case ["runs", run]:
                grant = self._granted(request, "GET", "pull")
                await self._run(request, grant, run)
            case ["shards", shard, "claim"] if self._fleet is not None:
                self._granted(request, "POST", "push")
                await self._claim(request, shard, self._fleet)
            case _:
                raise ApiError(404, "There is nothing at this address.")

    def _granted(self, request: _Request, method: str, *scopes: str) -> Grant:
        """Return the grant of a request's token; it needs one of the scopes."""
        if request.method != method:
            message = f"This address answers to {method} only."
            raise ApiError(405, message, headers={"allow": method})
        scheme, _, token = (
            request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        )
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("The request has no token.")
        grant = self._tokens.grant_of(token.strip())
        if isinstance(grant, str):
            raise _unauthorized(grant)
        if grant.scopes.isdisjoint(scopes):
            raise _unauthorized(f"The token {grant.name} lacks the scope {' or '.join(scopes)}.")
        return grant

    async def _heads(self, request: _Request, grant: Grant) -> None:
        names = list(dict.fromkeys(value for key, value in request.query if key == "stream"))
        if not 0 < len(names) <= MOST_HEADS:
            message = f"One request asks for 1 to {MOST_HEADS} streams, not {len(names)}."
            raise ApiError(422, message)

        def found(db: sqlite3.Connection) -> dict[str, Any]:
            rows = db.execute(_HEADS, {"names": json.dumps(names)}).fetchall()
            return {
                name: {"version": version, "head": hash_text(head)}
                for name, version, head in rows
                if self._is_shown(db, name, grant)
            }

        await _send_json(request.send, 200, await self._read(found))

    async def _runs(self, request: _Request, grant: Grant) -> None:
        limit = request.asked("limit") or "1"
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= _MOST_RUNS):
            raise ApiError(422, f"limit is a number from 1 to {_MOST_RUNS:,}.")
        wanted = {
            "project": request.asked("project"),
            "branch": request.asked("branch"),
            "only": grant.project,
            "limit": int(limit),
        }

        def found(db: sqlite3.Connection) -> list[dict[str, Any]]:
            listed = [dict(row) for row in db.execute(_RUNS, wanted)]
            for row in listed:
                row["suites"] = json.loads(row["suites"])
                for flag in ("passed", "dirty"):
                    row[flag] = None if row[flag] is None else bool(row[flag])
            return listed

        await _send_json(request.send, 200, await self._read(found))

    async def _read(self, query: Callable[[sqlite3.Connection], Any]) -> Any:
        def run() -> Any:
            with closing(self._log.reader()) as db:
                return query(db)

        return await asyncio.get_running_loop().run_in_executor(self._reading, run)

    async def _run(self, request: _Request, grant: Grant, run: str) -> None:
        self._require_lease(request.lease)
        packed = b"gzip" in request.headers.get(b"accept-encoding", b"")
        loop = asyncio.get_running_loop()
        file = await loop.run_in_executor(self._exporting, self._exported, run, grant, packed)
        with file:
            headers = {
                "content-type": "application/x-ndjson",
                "content-length": str(file.tell()),
                "vary": "accept-encoding",
            }
            if packed:
                headers["content-encoding"] = "gzip"
            await _send_start(request.send, 200, headers)
            file.seek(0)
            while piece := file.read(_PIECE):
                await request.send({"type": "http.response.body", "body": piece, "more_body": True})
                if self._fleet is not None:
                    self._fleet.hear(request.lease)
            await request.send({"type": "http.response.body", "body": b""})

    def _exported(self, run: str, grant: Grant, packed: bool) -> BinaryIO:
        """Return the export of a run as a temporary file, positioned at its end."""
        file: Any = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - returned
        try:
            with closing(self._log.reader()) as db, snapshot(db, self._log.path):
                streams = self._shown_streams(db, run, grant)
                with ExitStack() as stack:
                    out: Any = file
                    if packed:
                        out = stack.enter_context(gzip.GzipFile("", "wb", 5, file, mtime=0))
                    write_export(out, run, streams, db)
        except BaseException:
            file.close()
            raise
        opened: BinaryIO = file
        return opened

    def _shown_streams(self, db: sqlite3.Connection, run: str, grant: Grant) -> list[str]:
        known = db.execute("SELECT 1 FROM streams WHERE name = 'run/' || ?", (run,)).fetchone()
        if not known or not self._is_shown(db, f"run/{run}", grant):
            raise ApiError(404, "There is no such run.")
        # Journals that are also about other projects are left out.
        return [each for each in streams_of(db, run)[1] if self._is_shown(db, each, grant)]

    def _is_shown(self, db: sqlite3.Connection, stream: str, grant: Grant) -> bool:
        """Return whether a grant allows to read a stream: all its runs are of its project."""
        if grant.project is None:
            return True
        runs = runs_of_stream(db, stream)
        return set().union(*(recorded_projects(db, run) for run in runs)) == {grant.project}

    async def _events(self, request: _Request, grant: Grant) -> None:
        self._require_lease(request.lease)
        self._tokens.count_push(grant)
        encoding = request.headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if encoding not in ("gzip", "identity"):
            raise ApiError(422, "The body is neither plain nor gzip: no other encoding is read.")
        loop = asyncio.get_running_loop()
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            await _receive_body(request.receive, request.headers, file, self._longest_body)
            answer = await loop.run_in_executor(
                self._taking, self._take, file, encoding, grant, request.lease
            )
        await _send_json(request.send, 200, asdict(answer))

    def _require_lease(self, lease: str) -> None:
        if self._fleet is not None and not self._fleet.hear(lease):
            message = "Another worker has this shard by now."
            raise ApiError(409, message, {"lease": lease})

    def _take(self, file: Any, encoding: str, grant: Grant, lease: str) -> PushAnswer:
        """Take a body, in the one thread that also handles claims: no lease changes meanwhile."""
        self._require_lease(lease)
        runs: list[str] = []

        def allowed(streams: Mapping[str, frozenset[str | None]]) -> None:
            runs.extend(name[4:] for name in streams if name.startswith("run/"))
            if grant.project is None or set().union(*streams.values()) <= {grant.project}:
                return
            raise ApiError(404, f"The token {grant.name} is for the project {grant.project} only.")

        with SpooledTemporaryFile(_IN_MEMORY) as unpacked:
            size = unpack(file, unpacked, encoding)
            answer = PushAnswer(0, 0, 0)
            # An empty body only reports that a worker is alive.
            if size:
                self._tokens.require_room(grant, size)
                answer = take_body(self._log, unpacked, allowed=allowed)  # type: ignore[arg-type]
                self._tokens.count_bytes(grant, size)
        if self._fleet is not None:
            answer = replace(answer, control=self._fleet.pushed(lease, runs))
        return answer

    async def _claim(self, request: _Request, shard: str, fleet: FleetHooks) -> None:
        if not (shard.isascii() and shard.isdigit() and len(shard) < 10):
            raise ApiError(422, "A shard is a number.")
        loop = asyncio.get_running_loop()
        # In the thread that takes bodies: the new worker then sees all earlier pushes of the shard.
        answer = await loop.run_in_executor(self._taking, fleet.claim, int(shard))
        await _send_json(request.send, 200, answer)


def _too_large(limit: int, what: str) -> ApiError:
    return ApiError(413, f"The body is larger than {limit:,} bytes{what}.", {"limit": limit})


async def _receive_body(
    receive: Receive, headers: Mapping[bytes, bytes], file: Any, most: int
) -> None:
    """Write a body to a file as it arrives, up to the limit."""
    announced = headers.get(b"content-length", b"0")
    if int(announced) > most:
        raise _too_large(most, "")
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise _too_large(most, "")
        file.write(piece)
        more = message.get("more_body", False)
    file.seek(0)


def unpack(packed: Any, out: Any, encoding: str) -> int:
    """Decompress a body into `out`, and rewind that; return the size."""
    source = gzip.GzipFile(fileobj=packed, mode="rb") if encoding == "gzip" else packed
    size = 0
    try:
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > LONGEST_UNPACKED:
                raise _too_large(LONGEST_UNPACKED, " once it is unpacked")
            out.write(piece)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ApiError(422, "The body is not gzip, or damaged.") from None
    out.seek(0)
    return size


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, headers={"www-authenticate": "Bearer"})


async def _send_json(
    send: Send, status: int, value: Any, headers: Mapping[str, str] | None = None
) -> None:
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    described = {"content-type": "application/json", "content-length": str(len(body))}
    await _send_start(send, status, described | dict(headers or {}))
    await send({"type": "http.response.body", "body": body})


async def _send_start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    always = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    encoded = [
        (name.encode(), value.encode("latin-1")) for name, value in (always | dict(headers)).items()
    ]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


def _log_crash(error: Exception) -> None:
    """Log where and why something failed, without any content."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    cause = error.__cause__ or error
    # For example SQLITE_FULL, or "No space left on device".
    why = getattr(cause, "sqlite_errorname", None) or getattr(cause, "strerror", None)
    fields = {"code": "UNKNOWN_ERROR"}
    name = f"{type(error).__name__} ({why})" if why else type(error).__name__
    message = f"{name} in {frame.name}, line {frame.lineno} of {frame.filename}"
    _log.error(message, extra={"fields": fields})
