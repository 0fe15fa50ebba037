"""`kindlm login`: save the token of a history server."""

from __future__ import annotations

import getpass
import os
import sys
from contextlib import closing

from kindlm.cli.console import note, or_fail
from kindlm.cli.options import INSECURE, option


def login_command(
    url: str = option("--url URL", "Address of the history server.", default=...),
    insecure: bool = INSECURE,
) -> None:
    """Save the token of a history server. Reads it from the terminal or from stdin."""
    from kindlm.team.client import HistoryClient
    from kindlm.team.credentials import checked_login, parse_address, save_token

    address = or_fail(parse_address(url))
    if sys.stdin.isatty():
        token = getpass.getpass(f"Token for {address.origin}: ", sys.stderr)
    else:
        token = sys.stdin.readline(1_000)
    login = or_fail(checked_login(address, token.strip(), insecure=insecure))
    with closing(HistoryClient(login.address.base, login.token, patience_s=0)) as client:
        or_fail(client.heads(["journal/0"]))
    path = or_fail(save_token(login, os.environ, insecure=insecure))
    note(f"The token for {address.origin} is saved in {path}.")
