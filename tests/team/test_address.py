"""Which addresses a history server may have, and where a token may go."""

from __future__ import annotations

import pytest

from kindlm.team.protocol import ServerAddress


@pytest.mark.parametrize(
    ("url", "base", "is_safe"),
    [
        ("https://History.example.com/v1", "https://history.example.com", True),
        ("https://h.example:443/", "https://h.example", True),
        ("https://h.example:8443/team/v1/", "https://h.example:8443/team", True),
        ("http://[::1]:8001", "http://[::1]:8001", True),
        ("http://127.9.9.9", "http://127.9.9.9", True),
        ("http://localhost:1", "http://localhost:1", True),
        ("http://10.0.0.1", "http://10.0.0.1", False),
        ("http://localhost.example.com", "http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", "http://127.0.0.1.example.com", False),
        ("http://127.0.0.1%.example.com", "http://127.0.0.1%.example.com", False),
    ],
)
def test_an_address_is_read_and_known_to_be_safe(url: str, base: str, is_safe: bool) -> None:
    address = ServerAddress.parse(url)
    assert address is not None
    assert (address.base, address.is_encrypted or address.is_loopback) == (base, is_safe)
    assert address.origin == base.removesuffix("/team")


@pytest.mark.parametrize(
    "url",
    [
        "history.example.com", "ftp://h", "https://", "https://u:p@h", "https://h?token=x",
        "https://h#x", "https://h:0", "https://h:99999", "https://h h", "https://h\n",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    assert ServerAddress.parse(url) is None
