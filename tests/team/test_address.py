"""Which addresses a history server may have, and where a token may go."""

from __future__ import annotations

import pytest

from kindlm.team.protocol import ServerAddress


@pytest.mark.parametrize(
    ("url", "base", "origin"),
    [
        ("https://History.example.com/v1", "https://history.example.com", None),
        ("https://h.example:443/", "https://h.example", None),
        (
            "https://h.example:8443/team/v1/",
            "https://h.example:8443/team",
            "https://h.example:8443",
        ),
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001", None),
        ("http://[::1]:8001", "http://[::1]:8001", None),
    ],
)
def test_an_address_is_read_with_or_without_the_version(
    url: str, base: str, origin: str | None
) -> None:
    address = ServerAddress.parse(url)
    assert address is not None
    assert (address.base, address.origin) == (base, origin or base)


@pytest.mark.parametrize(
    "url",
    [
        "history.example.com", "ftp://h", "https://", "https://u:p@h", "https://h?token=x",
        "https://h#x", "https://h:0", "https://h:99999", "https://h h", "https://h\n",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    assert ServerAddress.parse(url) is None


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://h.example", True),
        ("http://localhost:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://127.0.0.1%.example.com", False),
    ],
)
def test_a_token_goes_over_tls_or_stays_on_this_machine(url: str, safe: bool) -> None:
    address = ServerAddress.parse(url)
    assert address is not None
    assert address.is_safe is safe
