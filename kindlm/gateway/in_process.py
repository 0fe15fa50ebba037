"""Sends the model calls through the gateway that agents in this process make.

Their clients may have been made long before the run, with the address of a provider and its key.
So a request is sent elsewhere when it leaves: `send` of the HTTP clients that the SDKs are built
on is replaced meanwhile. A call belongs to the message that its task or thread answers.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from kindlm.trace_context import EXECUTION_HEADER, MESSAGE_HEADERS

KEY_HEADER = "x-kindlm-key"
"""Has the key of the gateway; the usual headers keep the agent's own credentials then."""

_CLIENTS = ("httpx", "httpx2")


Route = Callable[[str | None, str, bool], str | None]
"""Says where a request of an agent in this process goes instead; None if it stays as it is.

It takes the attempt, None where it is not known which message the request is about; the URL; and
whether the request would wait in the event loop of the gateway, and so for ever.
"""


class Redirection:
    """Replaces `send` of HTTP clients; to be made in the thread of the gateway."""

    def __init__(self, key: str, route: Route) -> None:
        self._key = key
        self._route = route
        self._thread = threading.get_ident()
        self._stack = ExitStack()
        for name in _CLIENTS:
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            self._replace(module.Client, is_async=False)
            self._replace(module.AsyncClient, is_async=True)

    def end(self) -> None:
        """Give the clients their own `send` back."""
        self._stack.close()

    def _replace(self, client: Any, *, is_async: bool) -> None:
        send = client.send

        def redirected(this: Any, request: Any, *more: Any, **options: Any) -> Any:
            blocks = not is_async and threading.get_ident() == self._thread
            self._redirect(request, blocks=blocks)
            return send(this, request, *more, **options)

        client.send = redirected
        self._stack.callback(setattr, client, "send", send)

    def _redirect(self, request: Any, *, blocks: bool) -> None:
        headers = MESSAGE_HEADERS.get()
        subject = None if headers is None else headers.get(EXECUTION_HEADER)
        if headers is not None and subject is None:
            return  # of kindlm, or of the test itself
        url = self._route(subject, str(request.url), blocks)
        if url is not None:
            request.url = type(request.url)(url)
            request.headers["host"] = request.url.netloc.decode("ascii")
            request.headers[KEY_HEADER] = self._key


def instead(url: str, bases: Mapping[str, Iterable[str]], address: str) -> str | None:
    """Return where a request to a provider goes at an address; None if it is to another server.

    `bases` is what URLs of each provider begin with.
    """
    for provider, known in bases.items():
        for base in known:
            if url.startswith(f"{base}/"):
                return f"{address}/{provider}{url[len(base) :]}"
    return None
