"""What a token may push: in a minute, in a day, and in all. The counters are beside the token."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple

from kindlm.team.access import Grant
from kindlm.team.protocol import ApiError
from kindlm.team.token_store import TokenStore, shown

_MB = 1_000_000


class _Quota(NamedTuple):
    name: str
    limit: int | None
    used: int


class Quotas:
    """Counts what is pushed with the tokens of a store. Bytes are counted unpacked."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens

    def push_begins(self, grant: Grant) -> ApiError | None:
        """Count a push; return why it may not be made now."""
        now = int(time.time())
        with self._tokens.transaction() as db:
            query = "SELECT minute, pushes, pushes_per_minute FROM tokens WHERE id = ?"
            minute, pushes, limit = db.execute(query, (grant.id,)).fetchone()
            pushes = 1 + (pushes if minute == now // 60 else 0)
            if limit is not None and pushes > limit:
                message = f"The token {grant.name} may push {limit:,} times a minute."
                details = {"limit": limit, "retry_after": 60 - now % 60}
                return ApiError(429, "rate_limit", message, details)
            update = "UPDATE tokens SET minute = ?, pushes = ? WHERE id = ?"
            db.execute(update, (now // 60, pushes, grant.id))
        return None

    def reserve(self, grant: Grant, size: int) -> ApiError | None:
        """Count bytes that are about to be stored; return why they may not be."""
        today = shown(datetime.now(UTC))[:10]
        with self._tokens.transaction() as db:
            row = db.execute("SELECT * FROM tokens WHERE id = ?", (grant.id,)).fetchone()
            used_today = row["bytes_today"] if row["day"] == today else 0
            for quota in (
                _Quota("mb_per_day", row["bytes_per_day"], used_today),
                _Quota("mb_total", row["bytes_in_all"], row["bytes"]),
            ):
                if quota.limit is not None and quota.used + size > quota.limit:
                    return _exceeded(grant, quota)
            db.execute(
                "UPDATE tokens SET day = ?, bytes_today = ?, bytes = bytes + ? WHERE id = ?",
                (today, used_today + size, size, grant.id),
            )
        return None

    def give_back(self, grant: Grant, size: int) -> None:
        """Take back what was counted: nothing of it was stored."""
        with self._tokens.transaction() as db:
            db.execute(
                "UPDATE tokens SET bytes_today = max(0, bytes_today - ?),"
                " bytes = max(0, bytes - ?) WHERE id = ?",
                (size, size, grant.id),
            )


def _exceeded(grant: Grant, quota: _Quota) -> ApiError:
    assert quota.limit is not None
    when = "today" if quota.name == "mb_per_day" else "in all"
    message = f"The token {grant.name} may push {quota.limit / _MB:g} MB {when}."
    details = {"quota": quota.name, "limit": quota.limit / _MB, "used": quota.used / _MB}
    return ApiError(403, "plan_required", message, details)
