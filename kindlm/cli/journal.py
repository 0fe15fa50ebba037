"""Journal streams: where what people do to a history is recorded, apart from its runs."""

from __future__ import annotations

import getpass
import os
import secrets
import socket

__all__ = ["author", "new_journal"]


def new_journal() -> str:
    """Return the name of a journal stream of this process alone.

    Journals of several processes, on one machine or many, never claim the same version.
    """
    return f"journal/{secrets.token_hex(10)}"


def author() -> str:
    """Return who is doing something, as `user@host`."""
    try:
        user = getpass.getuser()
    # In a container the user may have no name.
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
