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
from types import MappingProxyType
from typing import Any, Protocol

from datasette.utils import MultiParams  # type: ignore[import-untyped]
from datasette.utils.asgi import Request  # type: ignore[import-untyped]

from kindlm.bounds import MAX_LISTED_RUNS
from kindlm.browse.datasette_server import Message, Receive, Send
from kindlm.dataclass import dataclass, replace
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
from kindlm.team.token_store import Grant, TokenStore
from kindlm_store import EventLog
from kindlm_store.canonical import hash_text
from kindlm_store.database import snapshot

PREFIX = "/v1/"

_PIECE = 64 * 1024
_IN_MEMORY = 256 * 1024
"""Bytes of a temporary file up to which it needs no disk."""

_FLAGS = {None: None, 0: False, 1: True}

_HEADS = """
SELECT name, version, head FROM streams WHERE name IN (SELECT value FROM json_each(:names))
"""

_RUNS = """
SELECT id AS run, project, git_branch AS branch, git_commit AS "commit", started_at, ended, passed,
       group_id AS "group", shard, mode, git_dirty AS dirty, ci,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = r.id ORDER BY ordinal)) AS suites
  FROM runs r
 WHERE (:project IS NULL OR project = :project) AND (:branch IS NULL OR git_branch = :branch)
   AND (:group IS NULL OR group_id = :group)
   AND (:run IS NULL OR substr(id, 1, length(:run)) = :run)
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


@dataclass(eq=False)
class HistoryApi:
    """Answers requests to `/v1/…`.

    `fleet` is the coordinator of the workers that push here; None for a team's server.
    """

    log: EventLog
    tokens: TokenStore
    fleet: FleetHooks | None = None

    def __post_init__(self) -> None:
        # A worker must push whatever it recorded.
        self._longest_body = LONGEST_BODY if self.fleet is None else LONGEST_UNPACKED
        self._taking = ThreadPoolExecutor(1, "kindlm-take")

    def close(self) -> None:
        """Wait until the body being taken is stored; drop those that wait for their turn."""
        self._taking.shutdown(cancel_futures=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            await self._answer(Request(scope, receive), send)
        except ApiError as error:
            await _send_json(send, error.as_json(), error.status, error.headers)
        except _GoneError:
            return
        except Exception as error:  # noqa: BLE001 - the last boundary of a request: logged
            _log_crash(error)
            if self.fleet is not None:
                self.fleet.failed(error)
            await _send_json(send, ApiError(500, "The server failed.").as_json(), 500)

    async def _answer(self, request: Request, send: Send) -> None:
        answer: Any
        match request.method, *request.scope["path"].removeprefix(PREFIX).split("/"):
            case "GET", "heads":
                grant = self._granted(request, "push", "pull")
                answer = await asyncio.to_thread(self._heads, request.args, grant)
            case "POST", "events":
                answer = await self._events(request, self._granted(request, "push"))
            case "GET", "runs":
                grant = self._granted(request, "pull")
                answer = await asyncio.to_thread(self._runs, request.args, grant)
            case "GET", "runs", run:
                await self._send_run(request, send, run, self._granted(request, "pull"))
                return
            case "POST", "shards", shard, "claim" if self.fleet is not None:
                self._granted(request, "push")
                if not (shard.isascii() and shard.isdigit() and len(shard) < 10):
                    raise ApiError(422, "A shard is a number.")
                # In the thread that takes bodies: the new worker then sees all earlier pushes.
                answer = await self._in_turn(self.fleet.claim, int(shard))
            case _:
                raise ApiError(404, "There is nothing at this address.")
        await _send_json(send, answer)

    def _granted(self, request: Request, *scopes: str) -> Grant:
        """Return the grant of a request's token; it needs one of the scopes."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("The request has no token.")
        grant = self.tokens.grant_of(token.strip())
        if isinstance(grant, str):
            raise _unauthorized(grant)
        if grant.scopes.isdisjoint(scopes):
            raise _unauthorized(f"The token {grant.name} lacks the scope {' or '.join(scopes)}.")
        return grant

    def _heads(self, query: MultiParams, grant: Grant) -> dict[str, Any]:
        names = list(dict.fromkeys(query.getlist("stream")))
        if not 0 < len(names) <= MOST_HEADS:
            message = f"One request asks for 1 to {MOST_HEADS} streams, not {len(names)}."
            raise ApiError(422, message)
        with closing(self.log.reader()) as db:
            return {
                name: {"version": version, "head": hash_text(head)}
                for name, version, head in db.execute(_HEADS, {"names": json.dumps(names)})
                if _is_shown(db, name, grant)
            }

    def _runs(self, query: MultiParams, grant: Grant) -> list[dict[str, Any]]:
        limit = query.get("limit") or "1"
        is_short = limit.isascii() and limit.isdigit() and len(limit) < 10
        if not (is_short and 1 <= int(limit) <= MAX_LISTED_RUNS):
            raise ApiError(422, f"limit is a number from 1 to {MAX_LISTED_RUNS:,}.")
        named = {name: query.get(name) for name in ("project", "branch", "group", "run")}
        wanted = {**named, "only": grant.project, "limit": int(limit)}
        with closing(self.log.reader()) as db:
            return [
                {
                    **dict(row),
                    "suites": json.loads(row["suites"]),
                    "passed": _FLAGS[row["passed"]],
                    "dirty": _FLAGS[row["dirty"]],
                }
                for row in db.execute(_RUNS, wanted)
            ]

    async def _send_run(self, request: Request, send: Send, run: str, grant: Grant) -> None:
        lease = request.headers.get(LEASE.lower(), "")
        self._require_lease(lease)
        packed = "gzip" in request.headers.get("accept-encoding", "")
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            await asyncio.to_thread(self._export, file, run, grant, packed)
            headers = {
                "content-type": "application/x-ndjson",
                "content-length": str(file.tell()),
                "vary": "accept-encoding",
                **({"content-encoding": "gzip"} if packed else {}),
            }
            await _send_start(send, 200, headers)
            file.seek(0)
            while piece := file.read(_PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if self.fleet is not None:
                    self.fleet.hear(lease)
            await send({"type": "http.response.body", "body": b""})

    def _export(self, file: Any, run: str, grant: Grant, packed: bool) -> None:
        """Write the export of a run into a file."""
        with ExitStack() as stack:
            db = stack.enter_context(closing(self.log.reader()))
            stack.enter_context(snapshot(db, self.log.path))
            known = db.execute("SELECT 1 FROM streams WHERE name = 'run/' || ?", (run,)).fetchone()
            if not known or not _is_shown(db, f"run/{run}", grant):
                raise ApiError(404, "There is no such run.")
            # Journals that are also about other projects are left out.
            streams = [each for each in streams_of(db, run)[1] if _is_shown(db, each, grant)]
            if packed:
                file = stack.enter_context(gzip.GzipFile("", "wb", 5, file, mtime=0))
            write_export(file, run, streams, db)

    async def _events(self, request: Request, grant: Grant) -> dict[str, Any]:
        lease = request.headers.get(LEASE.lower(), "")
        self._require_lease(lease)
        self.tokens.count_push(grant)
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("gzip", "identity"):
            raise ApiError(422, "The body is neither plain nor gzip: no other encoding is read.")
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            await _receive_body(request, file, self._longest_body)
            return asdict(await self._in_turn(self._take, file, encoding, grant, lease))

    async def _in_turn(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work in the one thread that takes bodies."""
        return await asyncio.get_running_loop().run_in_executor(self._taking, work, *arguments)

    def _require_lease(self, lease: str) -> None:
        if self.fleet is not None and not self.fleet.hear(lease):
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

        answer = PushAnswer(0, 0, 0)
        with SpooledTemporaryFile(_IN_MEMORY) as unpacked:
            # An empty body only reports that a worker is alive.
            if size := unpack(file, unpacked, encoding):
                self.tokens.require_room(grant, size)
                answer = take_body(self.log, unpacked, allowed=allowed)  # type: ignore[arg-type]
                self.tokens.count_bytes(grant, size)
        if self.fleet is not None:
            answer = replace(answer, control=self.fleet.pushed(lease, runs))
        return answer


def _is_shown(db: sqlite3.Connection, stream: str, grant: Grant) -> bool:
    """Return whether a grant allows to read a stream: all its runs are of its project."""
    if grant.project is None:
        return True
    runs = runs_of_stream(db, stream)
    return set().union(*(recorded_projects(db, run) for run in runs)) == {grant.project}


def _too_large(limit: int, what: str = "") -> ApiError:
    return ApiError(413, f"The body is larger than {limit:,} bytes{what}.", {"limit": limit})


async def _receive_body(request: Request, file: Any, most: int) -> None:
    """Write a body to a file as it arrives, up to the limit."""
    if int(request.headers.get("content-length", 0)) > most:
        raise _too_large(most)
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        file.write(message.get("body", b""))
        if file.tell() > most:
            raise _too_large(most)
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
    send: Send, value: Any, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> None:
    body = json.dumps(value).encode()
    described = {"content-type": "application/json", "content-length": str(len(body))}
    await _send_start(send, status, {**described, **headers})
    await send({"type": "http.response.body", "body": body})


async def _send_start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    every = {"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


def _log_crash(error: Exception) -> None:
    """Log where and why something failed, without any content."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    cause = error.__cause__ or error
    # For example SQLITE_FULL, or "No space left on device".
    why = getattr(cause, "sqlite_errorname", None) or getattr(cause, "strerror", None)
    name = f"{type(error).__name__} ({why})" if why else type(error).__name__
    message = f"{name} in {frame.name}, line {frame.lineno} of {frame.filename}"
    _log.error(message, extra={"fields": {"code": "UNKNOWN_ERROR"}})
