"""What tests of checks share: a way to evaluate one expectation on a transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest
from evaluated import demand, evaluated, nobody

from kindlm.outcome import CheckResult
from kindlm.ports import Ask
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn


class Evaluate(Protocol):
    def __call__(
        self, kind: str, params: Mapping[str, Any], transcript: Transcript, ask: Ask = ...
    ) -> CheckResult: ...


@pytest.fixture
def evaluate() -> Evaluate:
    """Evaluate one expectation that gives exactly one result."""

    def evaluate(
        kind: str, params: Mapping[str, Any], transcript: Transcript, ask: Ask = nobody
    ) -> CheckResult:
        return evaluated(demand(kind, f"label of {kind}", params), transcript, ask)

    return evaluate


@pytest.fixture
def said() -> Callable[..., Transcript]:
    """Make a transcript of one turn that ends with a text, after some tool calls."""

    def said(text: str, *uses: ToolUse) -> Transcript:
        steps = (Step("", uses), Step(text)) if uses else (Step(text),)
        return Transcript(turns=(Turn("Hello?", steps),))

    return said


@pytest.fixture
def used() -> Callable[..., ToolUse]:
    """Make a tool call with its answer."""

    def used(
        name: str,
        arguments: dict[str, Any] | None = None,
        response: Any = None,
        malformed: str | None = None,
    ) -> ToolUse:
        call = ToolCall("call_1", name, arguments or {}, malformed)
        return ToolUse(call, response, "defaultResponse")

    return used
