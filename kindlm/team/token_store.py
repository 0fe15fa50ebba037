"""The tokens of a history server, in a small SQLite file beside the history.

The file stores only the SHA-256 of a token, so a reader of the file cannot push or pull. The hash
also signs sessions of the pages, so only the owner of the file can read it.

Several processes use the file at once: a change by `kindlm token` affects a server from its next
request on.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Self

from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse, not_there
from kindlm.recording.history_file import make_folder
from kindlm.team.protocol import TOKEN_PREFIX, ApiError

SCOPES = ("push", "pull", "review")

_CHOICE = "Scopes are push, pull and review."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

_TOKEN_BYTES = 32
_MB = 1_000_000
_WAIT_S = 10.0

_TABLE = """
CREATE TABLE IF NOT EXISTS tokens (
  id TEXT PRIMARY KEY, sha256 BLOB NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,
  project TEXT, created_at TEXT NOT NULL, expires_at TEXT, revoked_at TEXT, used_at TEXT,
  pushes_per_minute INTEGER, bytes_per_day INTEGER, bytes_in_all INTEGER,
  minute INTEGER NOT NULL DEFAULT 0, pushes INTEGER NOT NULL DEFAULT 0,
  day TEXT NOT NULL DEFAULT '', bytes_today INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0)
"""

_KNOWN = """
SELECT name, scopes, project,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked'
            WHEN expires_at <= :now THEN 'expired'
            ELSE 'valid' END AS state,
       created_at, expires_at, used_at,
       iif(day = substr(:now, 1, 10), bytes_today, 0) AS bytes_today, bytes,
       pushes_per_minute, bytes_per_day, bytes_in_all, id, sha256
  FROM tokens
"""

_USED = """
UPDATE tokens SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at < :minute_ago)
"""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The quotas of a token; None is unlimited."""

    pushes_per_minute: int | None = None
    bytes_per_day: int | None = None
    bytes_in_all: int | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its use and its quotas, in the order of `_KNOWN`. Times are UTC, ISO 8601.

    `state` is valid, expired or revoked. `bytes` counts everything that was ever pushed with it.
    """

    name: str
    scopes: Sequence[str]
    project: str | None
    state: str
    created_at: str
    expires_at: str | None
    used_at: str | None
    bytes_today: int
    bytes: int
    pushes_per_minute: int | None
    bytes_per_day: int | None
    bytes_in_all: int | None


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions of a token.

    Attributes:
        name: Name of the token.
        scopes: Some of push, pull and review.
        project: The only project that it is for, None for all projects.
        id: The unique id of the token.
    """

    name: str
    scopes: frozenset[str]
    project: str | None
    id: str


class OneToken:
    """A store of one token without quotas, for the workers of a run."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def grant_of(self, token: str) -> Grant | str:
        """Return the grant of the token, to push and pull; return an error for any other token."""
        if not hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token):
            return "The token is unknown."
        return Grant("worker", frozenset({"push", "pull"}), None, "worker")

    def count_push(self, _grant: Grant) -> None:
        """Do nothing: workers may push as often as they like."""

    def reserve(self, _grant: Grant, _size: int) -> None:
        """Do nothing: workers may push as much as they like."""

    give_back = reserve


class TokenStore:
    """The tokens of one history, with the uncompressed bytes pushed with each."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        # Requests are answered in several threads.
        self._lock = Lock()

    @classmethod
    def open(cls, database: Path) -> Self:
        """Open the tokens of a history; create their file if there is none.

        Raises:
            OSError: The file cannot be created or read.
            sqlite3.Error: The file is not a token store.
        """
        path = token_file(database)
        make_folder(database)
        # SQLite gives its WAL files the same mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        connection = sqlite3.connect(
            path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        project: str | None = None,
        days: int | None = None,
        limits: TokenLimits = TokenLimits(),  # noqa: B008 - a value
    ) -> Result[str]:
        """Create a token and return it; nothing can show it again."""
        if not _NAME.fullmatch(name):
            return Err(
                misuse(
                    f"{name!r} cannot be the name of a token.",
                    "Use up to 64 letters, digits, dots, dashes and underscores, such as ci-main.",
                )
            )
        if project is not None and not project.strip():
            return Err(misuse("--project names no project.", "For all projects, leave it out."))
        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            return Err(misuse(f"There is no scope {unknown[0]!r}.", _CHOICE))
        if not scopes:
            return Err(misuse("A token needs a scope.", _CHOICE))
        token = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        digest = _digest(token)
        with self._transaction() as db:
            if _valid_id(db, name):
                return Err(
                    misuse(
                        f"There is a token {name!r} already.",
                        f"Choose another name, or revoke that one: kindlm token revoke {name}",
                    )
                )
            db.execute(
                "INSERT INTO tokens (id, sha256, name, scopes, project, created_at, expires_at,"
                " pushes_per_minute, bytes_per_day, bytes_in_all)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    _id(digest), digest, name, " ".join(dict.fromkeys(scopes)), project,
                    _now(), days and _now(timedelta(days=days)),
                    limits.pushes_per_minute, limits.bytes_per_day, limits.bytes_in_all,
                ),
            )  # fmt: skip
        return Ok(token)

    def revoke(self, name: str) -> Result[None]:
        """Revoke the valid token of a name."""
        with self._transaction() as db:
            if (found := _valid_id(db, name)) is None:
                what = f"There is no valid token {name!r}."
                return Err(not_there(what, "All tokens: kindlm token list"))
            db.execute("UPDATE tokens SET revoked_at = ? WHERE id = ?", (_now(), found))
        return Ok(None)

    def tokens(self) -> list[Token]:
        """Return all tokens, the newest first."""
        with self._lock:
            query = f"{_KNOWN} ORDER BY created_at DESC"
            rows = self._connection.execute(query, {"now": _now()}).fetchall()
        return [Token(row["name"], row["scopes"].split(), *row[2:12]) for row in rows]

    def grant_of(self, token: str) -> Grant | str:
        """Return the grant of a token and note its use, or return why the token is not valid."""
        digest = _digest(token)
        row = self._known(_id(digest))
        if row is None or not hmac.compare_digest(row["sha256"], digest):
            return "The token is unknown."
        if row["state"] != "valid":
            return f"The token is {row['state']}."
        with self._lock:
            ago = _now(-timedelta(minutes=1))
            known = {"id": row["id"], "now": _now(), "minute_ago": ago}
            self._connection.execute(_USED, known)
        return _grant(row)

    def by_id(self, token: str) -> tuple[Grant, bytes] | None:
        """Return the grant and the SHA-256 of the valid token with an id."""
        row = self._known(token)
        return None if row is None or row["state"] != "valid" else (_grant(row), row["sha256"])

    def count_push(self, grant: Grant) -> None:
        """Count a push; raise `ApiError` if it exceeds the quota."""
        now = int(time.time())
        with self._transaction() as db:
            query = "SELECT minute, pushes, pushes_per_minute FROM tokens WHERE id = ?"
            minute, pushes, limit = db.execute(query, (grant.id,)).fetchone()
            pushes = 1 + (pushes if minute == now // 60 else 0)
            if limit is not None and pushes > limit:
                wait = 60 - now % 60
                raise ApiError(
                    429,
                    f"The token {grant.name} may push {limit:,} times a minute.",
                    {"limit": limit, "retry_after": wait},
                    {"retry-after": str(wait)},
                )
            update = "UPDATE tokens SET minute = ?, pushes = ? WHERE id = ?"
            db.execute(update, (now // 60, pushes, grant.id))

    def reserve(self, grant: Grant, size: int) -> None:
        """Count bytes before they are stored; raise `ApiError` if they exceed a quota."""
        known = {"now": _now(), "id": grant.id}
        with self._transaction() as db:
            row = db.execute(f"{_KNOWN} WHERE id = :id", known).fetchone()
            for quota, when, limit, used in (
                ("mb_per_day", "today", row["bytes_per_day"], row["bytes_today"]),
                ("mb_total", "in all", row["bytes_in_all"], row["bytes"]),
            ):
                if limit is not None and used + size > limit:
                    message = f"The token {grant.name} may push {limit / _MB:g} MB {when}."
                    details = {"quota": quota, "limit": limit / _MB, "used": used / _MB}
                    raise ApiError(403, message, details)
            db.execute(
                "UPDATE tokens SET day = ?, bytes_today = ?, bytes = bytes + ? WHERE id = ?",
                (known["now"][:10], row["bytes_today"] + size, size, grant.id),
            )

    def give_back(self, grant: Grant, size: int) -> None:
        """Undo a reservation whose bytes were not stored."""
        with self._transaction() as db:
            db.execute(
                "UPDATE tokens SET bytes_today = max(0, bytes_today - ?),"
                " bytes = max(0, bytes - ?) WHERE id = ?",
                (size, size, grant.id),
            )

    def _known(self, token: str) -> sqlite3.Row | None:
        with self._lock:
            known = {"now": _now(), "id": token}
            row: sqlite3.Row | None = self._connection.execute(
                f"{_KNOWN} WHERE id = :id", known
            ).fetchone()
        return row

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction that excludes other writers."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def token_file(database: Path) -> Path:
    """Return the file of the tokens of a history."""
    return database.with_name(f"{database.name}.tokens")


def _now(later: timedelta = timedelta()) -> str:
    """Return the time in seconds, in the form of the file."""
    return (datetime.now(UTC) + later).strftime("%Y-%m-%dT%H:%M:%SZ")


def _valid_id(db: sqlite3.Connection, name: str) -> str | None:
    query = f"SELECT id FROM ({_KNOWN}) WHERE name = :name AND state = 'valid'"  # noqa: S608
    row = db.execute(query, {"name": name, "now": _now()}).fetchone()
    return None if row is None else str(row["id"])


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _id(digest: bytes) -> str:
    """Return the id of a token: the beginning of its hash, too short to reveal the token."""
    return digest[:6].hex()


def _grant(row: sqlite3.Row) -> Grant:
    return Grant(row["name"], frozenset(row["scopes"].split()), row["project"], row["id"])
