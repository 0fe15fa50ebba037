"""Amounts in sentences."""

from __future__ import annotations

import pytest

from kindlm.money import plain_usd


@pytest.mark.parametrize(
    ("usd", "written"),
    [
        (0.0, "0.0000"),
        (0.015, "0.0150"),
        (12.3456789, "12.3457"),
        (0.000012, "0.000012"),
        (0.0000012345, "0.0000012"),
    ],
)
def test_a_small_amount_is_not_written_as_none_nor_with_an_exponent(
    usd: float, written: str
) -> None:
    assert plain_usd(usd) == written
