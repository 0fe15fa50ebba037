"""Where Ollama is, by its own variable OLLAMA_HOST, read as Ollama itself reads it.

It may lack the scheme, the port or the host, and may be the address that a server listens on.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

__all__ = ["host_url"]

_PORT = 11434


def host_url(host: str) -> str:
    """Return the URL that a value of OLLAMA_HOST stands for."""
    host = host.strip()
    if not host:
        return f"http://127.0.0.1:{_PORT}"
    has_scheme = "://" in host
    parts = urlsplit(host if has_scheme else f"http://{host}")
    name = parts.hostname or "127.0.0.1"
    if name in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound: this replaces it
        name = "127.0.0.1"
    netloc = f"[{name}]" if ":" in name else name
    port = _port(parts) or (None if has_scheme else _PORT)
    address = netloc if port is None else f"{netloc}:{port}"
    return f"{parts.scheme}://{address}{parts.path}"


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:  # Ollama itself takes the usual port then
        return _PORT
