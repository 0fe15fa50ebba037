"""Numbers in files of other programs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from kindlm.formats.foreign_results import Amount


@pytest.mark.parametrize(
    ("value", "expected"), [(10**400, None), (-(10**400), None), (1e400, None), (-1, None), (2, 2)]
)
def test_a_number_that_no_amount_can_be_is_ignored(value: Any, expected: float | None) -> None:
    assert TypeAdapter(Amount).validate_python(value) == expected
