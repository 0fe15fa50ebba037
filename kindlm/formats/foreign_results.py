"""Results that other programs recorded, as far as they carry the facts; no file says all of them.

A fact that a file does not carry is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """A tool call that an agent made."""

    name: str
    arguments: Mapping[str, Any]
    response: Any


@dataclass(frozen=True, slots=True)
class ForeignExecution:
    """One repeat of a test. `passed` is None if the file does not say; `score` is in [0, 1]."""

    passed: bool | None
    output: str | None = None
    query: str | None = None
    calls: tuple[ForeignCall, ...] = ()
    failures: tuple[str, ...] = ()
    score: float | None = None
    threshold: float | None = None
    latency_ms: float | None = None
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignTest:
    """A test with its repeats; without a target, the file does not say what was tested."""

    name: str
    target: str | None
    executions: tuple[ForeignExecution, ...]


@dataclass(frozen=True, slots=True)
class ForeignResults:
    """What a file holds.

    Attributes:
        format: Whose format it is: kindlm or evalview.
        suite: Name of the suite; None if the file does not say.
        at: When it was recorded, UTC, ISO 8601 with microseconds; None if the file does not say.
        tests: The tests, in the order of the file.
        warnings: What could not be carried over.
    """

    format: str
    suite: str | None
    at: str | None
    tests: tuple[ForeignTest, ...]
    warnings: tuple[str, ...] = field(default=())
