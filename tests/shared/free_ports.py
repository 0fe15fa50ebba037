"""Ports for programs that have to be told theirs before they start."""

from __future__ import annotations

import random
import socket
from typing import Final

_GIVEN_TO_NOBODY: Final = range(20_000, 32_000)
"""Below what Linux (32768 on) and macOS (49152 on) give to those who ask for any port."""


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens: they stay free, whatever other tests listen on."""
    draw = random.SystemRandom()
    found: set[int] = set()
    while len(found) < count:
        if _is_free(port := draw.choice(_GIVEN_TO_NOBODY)):
            found.add(port)
    return list(found)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
