"""The protocol between a history server and its clients: limits, headers, answers, errors.

- `GET /v1/heads?stream=NAME&stream=…`: `{NAME: {"version": 12, "head": "sha256:…"}}`. Streams that
  the server does not have are left out.
- `POST /v1/events` takes a file of `kindlm history export`, gzip or not, and answers with a
  `PushAnswer`.
- `GET /v1/runs?project=P&branch=B&group=G&run=R&limit=N`: `[{"run", "project", "branch", "commit",
  "started_at", "ended", "passed", "group"}]`, the newest first. `run` is the beginning of an id.
- `GET /v1/runs/ID`: the file of `kindlm history export ID`, byte for byte.

An error is an `ApiError`, as the KindLM error specification defines it for APIs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from ipaddress import ip_address
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field

from kindlm.dataclass import dataclass

LONGEST_BODY = 5_000_000
"""Bytes of a body on the wire, compressed or not; the server answers 413 to a longer one."""

LONGEST_UNPACKED = 64_000_000
"""Bytes of a body after decompression. The largest text of an event fits in."""

NOT_TAKEN = 71
"""The exit code of a worker whose events are refused, as those of the next worker would be."""

MOST_HEADS = 100
"""The largest number of streams in one request."""

TOKEN_PREFIX = "kdl_"  # noqa: S105 - how each token begins

LEASE = "Kindlm-Lease"
"""Header with a worker's lease, `SHARD.NUMBER`; the answer is 409 if it is not the newest lease."""

Count = Annotated[int, Field(strict=True, ge=0)]
HashText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


_ERRORS = {
    401: "auth_error",
    403: "plan_required",
    404: "not_found",
    409: "conflict",
    413: "payload_too_large",
    429: "rate_limit",
    500: "unknown_error",
}


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Where a stream ends: `head` is the hash of its last event, None if there is none."""

    version: Annotated[int, Field(strict=True, ge=1, le=2**62)]
    head: HashText | None


NO_EVENTS = StreamEnd(0, None)


@dataclass(eq=False)
class ApiError(Exception):
    """An error as the answer to a request: `{"error", "message", "details"}` with an HTTP status.

    `error` follows from the status, and is `validation_error` for statuses not in `_ERRORS`.
    """

    status: int
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        error = _ERRORS.get(self.status, "validation_error")
        return {"error": error, "message": self.message, "details": self.details}


@dataclass(frozen=True, slots=True)
class Control:
    """Orders of a coordinator to a worker, in the answer to a push.

    Attributes:
        stop: Why the worker must end its run, None if it may continue.
        at_once: Whether calls in flight must end, too.
        max_rpm: The worker's limit of calls per minute to each provider from now on.
    """

    stop: str | None = None
    at_once: Annotated[bool, Field(strict=True)] = False
    max_rpm: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """Counts of a pushed file: new events, known events, and withheld texts that it filled in."""

    added: Count
    known: Count
    filled: Count
    control: Control = Control()


_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server: the URL to which `/v1/…` is appended, and parts of it.

    `origin` has scheme, host and port; a token is saved for an origin.
    """

    base: str
    origin: str
    host: str

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """Return the address in a URL; None if it is invalid or has a user, query or fragment."""
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            return None
        scheme = parts.scheme.lower()
        fits = scheme in _PORTS and host and url.isprintable() and " " not in url.strip()
        if not (fits and host) or "@" in parts.netloc or "?" in url or "#" in url or port == 0:
            return None
        written = f"[{host}]" if ":" in host else host
        place = "" if port in (None, _PORTS[scheme]) else f":{port}"
        origin = f"{scheme}://{written}{place}"
        path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        return cls(origin + path, origin, host)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.origin.startswith("https:")

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
