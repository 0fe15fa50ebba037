"""Where a history server is, and whether a token may go there."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server, without `/v1` at its end.

    Attributes:
        base: What paths are added to.
        origin: Scheme, host and port: what a token is saved for.
        host: The host alone.
    """

    base: str
    origin: str
    host: str

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """Return the address in a URL; None if it is none, or holds a user, query or fragment."""
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
        """Whether it is asked over TLS."""
        return self.origin.startswith("https:")

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.host)

    @property
    def is_safe(self) -> bool:
        """Whether a token may go there without anybody on the way reading it."""
        return self.is_encrypted or self.is_loopback


def is_loopback(host: str) -> bool:
    """Return whether only this machine can be reached at a host: an address, or `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
