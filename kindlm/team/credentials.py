"""Stores the tokens of history servers, one for each origin, in a file that only its user can read.

`KINDLM_TOKEN` takes precedence. A token is sent only to its own server, and over a network only
with TLS unless the user allows otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse
from kindlm.recording import secrets
from kindlm.secrecy import SHORTEST_SECRET
from kindlm.team.protocol import TOKEN_PREFIX, ServerAddress

_MOST_OF_A_TOKEN = 200


class _Saved(BaseModel, strict=True, extra="ignore"):
    token: str
    insecure: bool = False


class _File(BaseModel, strict=True, extra="ignore"):
    servers: dict[str, _Saved] = {}


class Login(NamedTuple):
    """The address of a history server, and the token for it."""

    address: ServerAddress
    token: str


def credentials_file(environ: Mapping[str, str]) -> Path:
    """Return the file of the tokens; it need not exist."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    # By the XDG base directory specification, relative paths are ignored.
    base = Path(folder) if os.path.isabs(folder) else Path.home() / ".config"  # noqa: PTH117
    return base / "kindlm" / "credentials.json"


def parse_address(url: str, what: str = "--url") -> Result[ServerAddress]:
    """Parse an address that the user wrote; the error names `what` it is."""
    address = ServerAddress.parse(url)
    if address is None:
        hint = "Write it as https://HOST or http://127.0.0.1:PORT, without a user or query."
        return Err(misuse(f"{what} is not the address of a history server.", hint))
    return Ok(address)


def server_login(
    url: str | None,
    configured: str | None,
    environ: Mapping[str, str],
    *,
    insecure: bool = False,
) -> Result[Login]:
    """Return the server to use, with its token; `NO_SERVER` if none is named anywhere.

    The first of these counts: `url` of the command line, `upload.apiUrl` as `configured`,
    `KINDLM_URL`, and the server that the user has logged in to, if it is the only one.
    """
    named = {"--url": url, "upload.apiUrl": configured, "KINDLM_URL": environ.get("KINDLM_URL")}
    what, written = next(((what, each) for what, each in named.items() if each), (None, None))
    if what is None or written is None:
        found = _read(credentials_file(environ))
        if isinstance(found, Err):
            return found
        if len(found.value.servers) != 1:
            return Err(NO_SERVER)
        what, (written,) = "The saved server", found.value.servers
    address = parse_address(written, what)
    if isinstance(address, Err):
        return address
    return find_login(address.value, environ, insecure=insecure)


def _unauthorized(message: str, hint: str, where: SourceLocation | None = None) -> KindlmError:
    return KindlmError(ErrorCode.CLOUD_AUTH_ERROR, message, hint, where)


NO_SERVER = _unauthorized(
    "No history server is configured.",
    "Set `upload.apiUrl` or KINDLM_URL, or log in: kindlm login --url URL",
)


def find_login(
    address: ServerAddress, environ: Mapping[str, str], *, insecure: bool = False
) -> Result[Login]:
    """Return a server with its token: `KINDLM_TOKEN`, else the one saved for its origin.

    If `KINDLM_URL` is set, `KINDLM_TOKEN` is for that server only.
    """
    insecure = insecure or environ.get("KINDLM_INSECURE", "") not in ("", "0")
    token = environ.get("KINDLM_TOKEN", "").strip()
    bound = environ.get("KINDLM_URL", "").strip()
    way_out = f"Log in: kindlm login --url {address.base}. In CI, set KINDLM_URL and KINDLM_TOKEN."
    if token and bound:
        of = parse_address(bound, "KINDLM_URL")
        if isinstance(of, Err):
            return of
        if of.value.origin != address.origin:
            token = ""
            way_out = (
                f"KINDLM_TOKEN is only for the server that KINDLM_URL names, {of.value.origin}."
            )
    if not token:
        found = _read(credentials_file(environ))
        if isinstance(found, Err):
            return found
        saved = found.value.servers.get(address.origin)
        if saved is None:
            message = f"There is no token for the history server {address.origin}."
            return Err(_unauthorized(message, way_out))
        token, insecure = saved.token.strip(), insecure or saved.insecure
    return checked_login(address, token, insecure=insecure)


def checked_login(address: ServerAddress, token: str, *, insecure: bool) -> Result[Login]:
    """Return a login if its token may be sent; from then on, no message shows the token."""
    if len(token) >= SHORTEST_SECRET:
        secrets.TOKENS.add(token)
    fits = token.isascii() and token.isprintable() and " " not in token
    if not (token.startswith(TOKEN_PREFIX) and fits and len(token) <= _MOST_OF_A_TOKEN):
        message = f"That is not a token of a history server: they begin with {TOKEN_PREFIX}"
        return Err(_unauthorized(message, "Create one on the server with kindlm token create."))
    if not (address.is_encrypted or address.is_loopback or insecure):
        message = f"{address.origin} is not encrypted: anybody on the way could read the token."
        hint = "Use https://. In a network that you trust: --insecure, or KINDLM_INSECURE=1"
        return Err(misuse(message, hint))
    return Ok(Login(address, token))


def save_token(login: Login, environ: Mapping[str, str], *, insecure: bool) -> Result[Path]:
    """Save the token for the origin of its server, replacing an earlier one."""
    path = credentials_file(environ)
    found = _read(path)
    if isinstance(found, Err):
        return found
    saved = _Saved(token=login.token, insecure=insecure)
    servers = {**found.value.servers, login.address.origin: saved}
    text = json.dumps(_File(servers=servers).model_dump(), indent=2)
    written = path.with_name(".credentials-new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.chmod(0o700)
        written.unlink(missing_ok=True)  # left by an interrupted login
        written.touch(mode=0o600, exist_ok=False)
        written.write_text(f"{text}\n", "utf-8")
        written.replace(path)
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror or error}."
        return Err(misuse(why, "Set XDG_CONFIG_HOME to a folder that you can write to."))
    return Ok(path)


def _read(path: Path) -> Result[_File]:
    try:
        return Ok(_File.model_validate_json(path.read_bytes()))
    except FileNotFoundError:
        return Ok(_File())
    except ValidationError:
        why = "it is not as kindlm login writes it"
    except OSError as error:
        why = str(error.strerror or error)
    hint = "Remove the file and log in again: kindlm login --url URL"
    return Err(_unauthorized(f"{path} cannot be read: {why}.", hint, SourceLocation(str(path))))
