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
from collections.abc import Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

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

_VALID = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"

_SHOWN = """
       name, scopes, project,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked'
            WHEN expires_at <= :now THEN 'expired'
            ELSE 'valid' END AS state,
       created_at, expires_at, used_at,
       iif(day = substr(:now, 1, 10), bytes_today, 0) AS bytes_today, bytes,
       pushes_per_minute, bytes_per_day, bytes_in_all
"""

_CREATE = f"""
INSERT INTO tokens (id, sha256, name, scopes, project, created_at, expires_at,
                    pushes_per_minute, bytes_per_day, bytes_in_all)
SELECT :id, :sha256, :name, :scopes, :project, :now, :expires_at,
       :pushes_per_minute, :bytes_per_day, :bytes_in_all
 WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE name = :name AND {_VALID})
RETURNING id
"""  # noqa: S608

_REVOKE = f"UPDATE tokens SET revoked_at = :now WHERE name = :name AND {_VALID} RETURNING id"  # noqa: S608

_USED = """
UPDATE tokens SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at < :minute_ago)
"""

_PUSHED = """
UPDATE tokens SET pushes = 1 + iif(minute = :minute, pushes, 0), minute = :minute WHERE id = :id
RETURNING pushes, pushes_per_minute
"""

_STORED = """
UPDATE tokens SET bytes_today = :size + iif(day = substr(:now, 1, 10), bytes_today, 0),
                  day = substr(:now, 1, 10), bytes = :size + bytes
 WHERE id = :id
"""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The quotas of a token; None is unlimited."""

    pushes_per_minute: int | None = None
    bytes_per_day: int | None = None
    bytes_in_all: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions of a token. `project` is the only one that it is for, None for all.

    `key` is the SHA-256 of the token, which signs sessions.
    """

    name: str
    scopes: frozenset[str]
    project: str | None
    id: str
    key: bytes = field(repr=False)


class TokenStore:
    """The tokens of one history, with the uncompressed bytes pushed with each.

    Each method that changes the file makes one SQL statement, so it excludes other writers. The
    file is created if there is none. If `database` is None, the tokens are only in memory, as that
    of the workers of a run.

    Raises:
        OSError: The file cannot be created or read.
        sqlite3.Error: The file is not a token store.
    """

    def __init__(self, database: Path | None) -> None:
        place = Path(":memory:") if database is None else token_file(database)
        if database is not None:
            make_folder(database)
            # SQLite gives its WAL files the same mode.
            os.close(os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            place.chmod(0o600)
        self._connection = sqlite3.connect(
            place, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        self._connection.row_factory = sqlite3.Row
        # Requests are answered in several threads.
        self._lock = Lock()
        try:
            self._rows("PRAGMA journal_mode = WAL")
            self._rows(_TABLE)
        except BaseException:
            self.close()
            raise

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
            hint = "Use up to 64 letters, digits, dots, dashes and underscores, such as ci-main."
            return Err(misuse(f"{name!r} cannot be the name of a token.", hint))
        if project is not None and not project.strip():
            return Err(misuse("--project names no project.", "For all projects, leave it out."))
        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            return Err(misuse(f"There is no scope {unknown[0]!r}.", _CHOICE))
        if not scopes:
            return Err(misuse("A token needs a scope.", _CHOICE))
        token = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        digest = _digest(token)
        created = self._rows(
            _CREATE,
            id=_id(digest),
            sha256=digest,
            name=name,
            scopes=" ".join(dict.fromkeys(scopes)),
            project=project,
            expires_at=days and _now(timedelta(days=days)),
            **asdict(limits),
        )
        if not created:
            hint = f"Choose another name, or revoke that one: kindlm token revoke {name}"
            return Err(misuse(f"There is a token {name!r} already.", hint))
        return Ok(token)

    def revoke(self, name: str) -> Result[None]:
        """Revoke the valid token of a name."""
        if not self._rows(_REVOKE, name=name):
            what = f"There is no valid token {name!r}."
            return Err(not_there(what, "All tokens: kindlm token list"))
        return Ok(None)

    def tokens(self) -> list[dict[str, Any]]:
        """Return all tokens, the newest first, with their use and their quotas.

        Times are UTC, ISO 8601. `state` is valid, expired or revoked. `bytes` counts all that was
        ever pushed with a token.
        """
        rows = self._rows(f"SELECT {_SHOWN} FROM tokens ORDER BY created_at DESC, rowid DESC")  # noqa: S608
        return [{**dict(row), "scopes": row["scopes"].split()} for row in rows]

    def grant_of(self, token: str) -> Grant | str:
        """Return the grant of a token and note its use, or return why the token is not valid."""
        digest = _digest(token)
        row = self._known(_id(digest))
        if row is None or not hmac.compare_digest(row["sha256"], digest):
            return "The token is unknown."
        if row["state"] != "valid":
            return f"The token is {row['state']}."
        self._rows(_USED, id=row["id"], minute_ago=_now(-timedelta(minutes=1)))
        return _grant(row)

    def by_id(self, token: str) -> Grant | None:
        """Return the grant of the valid token with an id."""
        row = self._known(token)
        return None if row is None or row["state"] != "valid" else _grant(row)

    def count_push(self, grant: Grant) -> None:
        """Count a push; raise `ApiError` if it exceeds the quota."""
        now = int(time.time())
        ((pushes, limit),) = self._rows(_PUSHED, id=grant.id, minute=now // 60)
        if limit is not None and pushes > limit:
            wait = 60 - now % 60
            message = f"The token {grant.name} may push {limit:,} times a minute."
            details = {"limit": limit, "retry_after": wait}
            raise ApiError(429, message, details, {"retry-after": str(wait)})

    def require_room(self, grant: Grant, size: int) -> None:
        """Raise `ApiError` if further bytes exceed a quota."""
        row = self._known(grant.id)
        assert row is not None
        for quota, when, limit, used in (
            ("mb_per_day", "today", row["bytes_per_day"], row["bytes_today"]),
            ("mb_total", "in all", row["bytes_in_all"], row["bytes"]),
        ):
            if limit is not None and used + size > limit:
                message = f"The token {grant.name} may push {limit / _MB:g} MB {when}."
                details = {"quota": quota, "limit": limit / _MB, "used": used / _MB}
                raise ApiError(403, message, details)

    def count_bytes(self, grant: Grant, size: int) -> None:
        """Count stored bytes."""
        self._rows(_STORED, id=grant.id, size=size)

    def _known(self, token: str) -> sqlite3.Row | None:
        query = f"SELECT {_SHOWN}, id, sha256 FROM tokens WHERE id = :id"  # noqa: S608
        return next(iter(self._rows(query, id=token)), None)

    def _rows(self, statement: str, **values: object) -> list[sqlite3.Row]:
        """Execute a statement, which can use `:now`."""
        with self._lock:
            return self._connection.execute(statement, {"now": _now(), **values}).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def token_file(database: Path) -> Path:
    """Return the file of the tokens of a history."""
    return database.with_name(f"{database.name}.tokens")


def _now(later: timedelta = timedelta()) -> str:
    """Return the time in seconds, in the form of the file."""
    return (datetime.now(UTC) + later).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _id(digest: bytes) -> str:
    """Return the id of a token: the beginning of its hash, too short to reveal the token."""
    return digest[:6].hex()


def _grant(row: sqlite3.Row) -> Grant:
    scopes = frozenset(row["scopes"].split())
    return Grant(row["name"], scopes, row["project"], row["id"], row["sha256"])
