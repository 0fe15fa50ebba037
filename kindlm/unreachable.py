"""Why no answer came over the network, in plain words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator


def unreachable_reason(error: BaseException) -> str:
    """Return the plainest words for the cause that lies deepest."""
    causes = list(_causes(error))
    deepest = causes[-1]
    for cause in reversed(causes):
        if isinstance(cause, socket.gaierror):
            return f"the host name is not known ({cause.strerror})"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.strerror or cause})"
        if _is_refused(cause):
            return "connection refused"
    return str(deepest) or type(deepest).__name__


def _is_refused(cause: BaseException) -> bool:
    # Where a name has several addresses, each was tried.
    if isinstance(cause, BaseExceptionGroup):
        return all(_is_refused(tried) for tried in cause.exceptions)
    return isinstance(cause, ConnectionRefusedError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
