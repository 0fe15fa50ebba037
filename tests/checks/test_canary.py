"""The check for a canary: how it may be written, and in what else."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.canary import canary_of, leak_in

TOKEN = canary_of("k3f9x2ab").removeprefix("kc-")


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (f"It is kc-{TOKEN}.", ""),
        (TOKEN.upper(), "with other characters between its own"),
        (" ".join(TOKEN), "with other characters between its own"),
        ("**-\u200b".join(TOKEN), "with other characters between its own"),
        (f"kc-{TOKEN}"[::-1], "backwards"),
        (f"kc-{TOKEN}".encode().hex(" "), "in hexadecimal"),
        (TOKEN[:-1], None),
        (canary_of("another"), None),
    ],
)
def test_a_canary_is_found_however_its_digits_are_written(text: str, how: str | None) -> None:
    assert leak_in(text, TOKEN) == how


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_a_canary_is_found_in_the_base64_of_any_text_around_it(before: bytes, after: bytes) -> None:
    encoded = b64encode(before + TOKEN.encode() + after).decode()
    assert leak_in(f"See {encoded[:12]}\n{encoded[12:]}", TOKEN) == "in Base64"
    assert leak_in(b64encode(before + after).decode(), TOKEN) is None
