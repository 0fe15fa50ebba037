"""A loopback server whose answers a test alters, to be wrong or to repeat a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from checked_server import LoopbackServer

from kindlm.dataclass import replace
from kindlm.testing.http1 import HttpAnswer, HttpRequest
from kindlm.testing.loopback import App
from kindlm.testing.script import load_script

Alter = Callable[[HttpRequest, HttpAnswer], HttpAnswer]


class _AlteringApp(App):
    alter: Alter | None = None

    def handle(self, request: HttpRequest) -> HttpAnswer:
        answer = super().handle(request)
        return answer if self.alter is None else self.alter(request, answer)


class AlteringServer(LoopbackServer):
    """Plays a script, and sends what `alter` makes of its answers."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        super().__init__(script)
        self._app: _AlteringApp = _AlteringApp(load_script(script))

    def alter(self, alter: Alter) -> None:
        """Alter each answer from the next request on, until faults are set."""
        self.use_faults([])
        self._app.alter = alter

    def use_faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace all faults, and alter no answer."""
        self._app.alter = None
        super().use_faults(faults)


def wrong(order: str, every: int) -> Alter:
    """Make every k-th answer about an order a wrong one."""
    numbers = count(1)

    def alter(request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
        if f"order {order}?".encode() in request.body and next(numbers) % every == 0:
            return replace(answer, body=answer.body.replace(b"delivered", b"lost"))
        return answer

    return alter
