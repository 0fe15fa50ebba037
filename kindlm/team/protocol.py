"""What a history server and its clients agree on: limits, headers, answers, errors.

- `GET /v1/heads?stream=NAME&stream=…`: `{NAME: {"version": 12, "head": "sha256:…"}}`. Streams that
  the server does not have are left out.
- `POST /v1/events` takes a file of `kindlm history export`, gzip or not, and answers with a
  `PushAnswer`.
- `GET /v1/runs?project=P&branch=B&limit=N`: `[{"run", "project", "branch", "commit", "started_at",
  "ended", "passed", "group"}]`, the newest first.
- `GET /v1/runs/ID`: the file of `kindlm history export ID`, byte for byte.

Errors are those of the error specification (seed 002, section 7): `ApiError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

LONGEST_BODY = 5_000_000
"""Bytes of a body on the wire, however it is encoded; the server answers 413 to a longer one."""

LONGEST_UNPACKED = 64_000_000
"""Bytes that a body may have once it is unpacked. The largest text of an event fits in."""

MOST_HEADS = 100
"""Streams that one request may ask for."""

TOKEN_PREFIX = "kdl_"  # noqa: S105 - how each token begins

LEASE = "Kindlm-Lease"
"""Header of what a worker pushes and fetches: `SHARD.NUMBER`. 409: it is not the newest number."""

Count = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, slots=True)
class ApiError:
    """An answer that is no success: `{"error", "message", "details"}` with an HTTP status.

    `error` is one of auth_error (401), plan_required (403), not_found (404), conflict (409),
    payload_too_large (413), validation_error (422), rate_limit (429), unknown_error (500).
    """

    status: int
    error: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Control:
    """What a coordinator tells a worker in its answer to a push.

    Attributes:
        stop: Why the worker is to end its run, None as long as it may go on.
        at_once: Whether what is in flight is to end, too.
        max_rpm: Calls a minute to each provider that this worker may make from now on.
    """

    stop: str | None = None
    at_once: Annotated[bool, Field(strict=True)] = False
    max_rpm: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What became of a pushed file: events that are new, those known, and withheld texts filled."""

    added: Count
    known: Count
    filled: Count
    control: Control = Control()
