"""Makes requests to a history server, without trust in its answers.

All requests may be repeated: pushing twice changes nothing. The client never follows redirects, and
uses no proxy for a server on this machine, so only the server gets the token.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Annotated, Any, BinaryIO, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field, TypeAdapter

from kindlm import __version__
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.strict_json import parse_json, read_json
from kindlm.team.protocol import LEASE, MOST_HEADS, PushAnswer, ServerAddress, StreamEnd
from kindlm.unreachable import retry_after, unreachable_reason
from kindlm.wording import sentence
from kindlm_store import REDACTED

_T = TypeVar("_T")

_UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)

_CONNECT_S = 5.0
_SLOWEST = 10_000
"""Bytes a second: at this rate, a request gets additional time for what it sends and receives."""

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_MOST_OF_AN_ANSWER = 32_000_000
_MOST_OF_A_RUN = 4_000_000_000

_CODES = {
    401: ErrorCode.CLOUD_AUTH_ERROR,
    403: ErrorCode.CLOUD_PLAN_LIMIT,
    429: ErrorCode.CLOUD_RATE_LIMIT,
}

_HINTS = {
    403: "Ask the owner of the server to raise the quota of the token.",
    404: "Check the name of the run, and whether the token is for its project.",
    409: "The run continued in two histories: keep both, and push the other one to another server.",
    413: "A proxy may take less than 6 MB at once. Or an event is too large for the server.",
    422: "Check the history: kindlm history verify. Or update kindlm, here or on the server.",
    429: "Wait a while, then run it again. What has arrived is not sent again.",
}

_AGAIN = "Check the server, then run it again. What has arrived is not sent again."
_ADDRESS = "Check the address: it must be that of kindlm serve-history."


class _UnusableError(Exception):
    """An answer is too long or in a wrong encoding; a further try would not help."""


class ListedRun(BaseModel, extra="ignore", strict=True):
    """A server's entry for a run; a newer server may add keys."""

    run: Annotated[str, Field(pattern=r"^[0-9A-Za-z_.-]{1,100}$")]
    mode: str = "live"
    ended: str | None = None
    group: str | None = None
    shard: Annotated[str, Field(pattern=r"^[1-9]\d{0,5}/[1-9]\d{0,5}$")] | None = None
    dirty: bool | None = None
    ci: str | None = None
    suites: Sequence[str] | None = None


_HEADS = TypeAdapter(dict[str, StreamEnd])
_PUSHED = TypeAdapter(PushAnswer)
_RUNS = TypeAdapter(list[ListedRun])
_OBJECT = TypeAdapter(dict[str, Any])


class HistoryClient:
    """A client of one server, for one thread at a time.

    Args:
        url: Address of the server; it may end in `/v1`.
        token: No error shows it.
        lease: The lease of a worker on its shard, `SHARD.NUMBER`.
        patience_s: How long to repeat requests while the server is away or asks to wait.
        answer_s: Time limit of a request and its answer, besides the time for their bytes.
        wait: Waits a number of seconds between tries.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        lease: str | None = None,
        patience_s: float = 60.0,
        answer_s: float = 120.0,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        address = ServerAddress.parse(url)
        assert address is not None, "checked by the caller"
        self.base = address.base
        self._token = token
        self._patience_s = patience_s
        self._answer_s = answer_s
        self._wait = wait
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(
            headers={
                "authorization": f"Bearer {token}",
                "user-agent": f"kindlm/{__version__}",
                "accept-encoding": "gzip",
                **({} if lease is None else {LEASE: lease}),
            },
            verify=_tls_context() if address.is_encrypted else False,
            trust_env=not address.is_loopback,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
        )

    def close(self) -> None:
        """Close its connections."""
        self._runner.run(self._http.aclose())
        self._runner.close()

    def heads(self, streams: Sequence[str]) -> Result[dict[str, StreamEnd]]:
        """Return where streams end on the server, without those that it does not have."""
        found: dict[str, StreamEnd] = {}
        for start in range(0, len(streams), MOST_HEADS):
            some = streams[start : start + MOST_HEADS]
            answered = self._ask(_HEADS, "heads", params=[("stream", name) for name in some])
            if isinstance(answered, Err):
                return answered
            found |= {name: answered.value[name] for name in some if name in answered.value}
        return Ok(found)

    def send(self, body: bytes) -> Result[PushAnswer]:
        """Push a gzipped file of events; with an empty body, only report that a worker is alive."""
        headers = {"content-type": "application/x-ndjson"}
        if body:
            headers["content-encoding"] = "gzip"
        answered = self._ask(_PUSHED, "events", "POST", content=body, headers=headers)
        if isinstance(answered, Err):
            return answered
        control = answered.value.control
        stop = None if control.stop is None else self._safe(control.stop)
        return Ok(replace(answered.value, control=replace(control, stop=stop)))

    def runs(
        self,
        limit: int = 1,
        *,
        project: str | None = None,
        branch: str | None = None,
        group: str | None = None,
        run: str | None = None,
    ) -> Result[list[ListedRun]]:
        """Return the newest runs; `run` is the beginning of their ids.

        Nothing that the server says about them is checked.
        """
        query = {"project": project, "branch": branch, "group": group, "run": run, "limit": limit}
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask(_RUNS, "runs", params=given)

    def claim(self, shard: int) -> Result[dict[str, Any]]:
        """Become the worker of a shard: later requests send its lease.

        Nothing in the answer is checked.
        """
        answered = self._ask(_OBJECT, f"shards/{shard}/claim", "POST")
        if isinstance(answered, Ok):
            self._http.headers[LEASE] = str(answered.value.get("lease"))
        return answered

    def fetch(self, run: str, out: BinaryIO) -> Result[None]:
        """Write the export of a run into a seekable file."""
        answered = self._request(f"runs/{quote(run, safe='')}", out=out)
        return answered if isinstance(answered, Err) else Ok(None)

    def _ask(
        self, form: TypeAdapter[_T], path: str, method: str = "GET", **given: Any
    ) -> Result[_T]:
        """Make a request; return its answer, validated as `form`."""
        answered = self._request(path, method, **given)
        if isinstance(answered, Err):
            return answered
        try:
            return Ok(form.validate_python(parse_json(answered.value.decode())))
        except ValueError:
            return Err(self._failed("gave an answer that is not one of a history server", _ADDRESS))

    def _request(
        self, path: str, method: str = "GET", *, out: BinaryIO | None = None, **given: Any
    ) -> Result[bytes]:
        """Return the answer to a request, or write it into `out`.

        The request is repeated while that may help and the patience lasts.
        """
        pause, left = _FIRST_PAUSE_S, self._patience_s
        while True:
            asked = None
            try:
                response, body = self._runner.run(self._exchange(method, path, out, given))
            except _UnusableError as error:
                return Err(self._failed(f"cannot be used: {error}", _ADDRESS))
            except TimeoutError:
                return Err(self._failed("takes too long to answer", _AGAIN))
            except _UNREACHABLE as error:
                why = f"cannot be reached: {self._safe(unreachable_reason(error))}"
                failed = self._failed(why, _AGAIN)
            else:
                if response.status_code == 200:
                    return Ok(body)
                failed = self._refused(response.status_code, body)
                if response.status_code != 429 and response.status_code < 500:
                    return Err(failed)
                asked = retry_after(response.headers, datetime.now(UTC))
            waited = pause if asked is None else max(asked, _FIRST_PAUSE_S)
            if waited > min(left, _LONGEST_PAUSE_S):
                return Err(failed)
            self._wait(waited)
            left -= waited
            pause *= 2

    async def _exchange(
        self, method: str, path: str, out: BinaryIO | None, given: Mapping[str, Any]
    ) -> tuple[httpx.Response, bytes]:
        """Make a request once.

        Raises:
            TimeoutError: It takes too long, even if data still arrives.
        """
        allowed_s = self._answer_s + len(given.get("content", b"")) / _SLOWEST
        due = asyncio.get_running_loop().time() + allowed_s
        async with (
            asyncio.timeout_at(due) as deadline,
            self._http.stream(method, f"{self.base}/v1/{path}", **given) as response,
        ):
            body = BytesIO()
            into: BinaryIO = body
            most = _MOST_OF_AN_ANSWER
            if out is not None and response.status_code == 200:
                into, most = out, _MOST_OF_A_RUN
                out.seek(0)
                out.truncate()
            # A body compressed twice can grow a million times.
            encoding = response.headers.get("content-encoding", "identity")
            if encoding.strip().lower() not in ("identity", "gzip"):
                raise _UnusableError("its answer has an encoding that was not requested")
            total = 0
            async for piece in response.aiter_bytes():
                total += into.write(piece)
                if total > most:
                    raise _UnusableError("its answer is too long")
                deadline.reschedule(due + total / _SLOWEST)
            return response, body.getvalue()

    def _refused(self, status: int, body: bytes) -> KindlmError:
        """Return the error for an answer other than 200."""
        if 300 <= status < 400:
            return self._failed(f"redirects ({status})", "Name the address that it leads to.")
        answer = read_json(body.decode("utf-8", "replace"))
        message = answer.get("message") if isinstance(answer, dict) else None
        why = f"answered {status}"
        if message and isinstance(message, str):
            why = f"{why}: {self._safe(message)}"
        hint = _HINTS.get(status, _AGAIN if status >= 500 else _ADDRESS)
        if status == 401:
            hint = f"Log in: kindlm login --url {self.base}. Or check KINDLM_TOKEN."
        return self._failed(why, hint, _CODES.get(status), status)

    def _failed(
        self, why: str, hint: str, code: ErrorCode | None = None, status: int | None = None
    ) -> KindlmError:
        message = f"The history server {self.base} {why.rstrip('.')}."
        details = {} if status is None else {"status": status}
        return KindlmError(code or ErrorCode.CLOUD_UPLOAD_ERROR, message, hint, details=details)

    def _safe(self, text: str) -> str:
        """Return untrusted text as one bounded line without the token."""
        return sentence(text.replace(self._token, REDACTED))


def _tls_context() -> ssl.SSLContext:
    """Return a context with the certificates of the system and those of httpx."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context
