"""Spans as the tests write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from otlp import otlp_request

from kindlm.telemetry.spans import Span, read_json


@pytest.fixture
def spans_of() -> Callable[..., list[Span]]:
    """Return a function that reads spans as they come in JSON."""

    def spans_of(*spans: dict[str, Any], scope: str = "a") -> list[Span]:
        return read_json(otlp_request(*spans, scope=scope))

    return spans_of
