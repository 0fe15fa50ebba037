"""The vectors of suites that are about trying again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_calls import make_calls
from vector_cases import unknown

from kindlm.engine.calls import retry_delay
from kindlm.engine.stop import Deadline
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events.execution_events import ProviderRequested
from kindlm.ports import ModelReply

Vector = dict[str, Any]


class Clock:
    """A clock whose waits take no time."""

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0


@pytest.mark.vectors("suite.jsonl", "retry")
def test_retries(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    if "attempt" in given:
        assert delay_ms(given) == pytest.approx(expected["delay_ms"])
        return
    result, calls = asyncio.run(call(given["outcomes"], given["max_retries"]))
    assert calls == expected["calls"]
    if isinstance(result, Ok):
        assert expected["result"] == "ok"
    else:
        assert expected["result"] == {"error": result.error.message}


def delay_ms(given: Vector) -> float:
    after = given["retry_after_ms"]
    seconds = retry_delay(
        given["attempt"],
        None if after is None else after / 1000,
        given["random"],
        base_s=given["base_ms"] / 1000,
        max_s=given["max_ms"] / 1000,
    )
    return seconds * 1000


async def call(outcomes: list[str], retries: int) -> tuple[Result[Any], int]:
    """Call something that comes out as the vector says; return the last result and the calls."""
    coming = iter(outcomes)
    calls = 0

    async def once() -> Result[ModelReply]:
        nonlocal calls
        calls += 1
        outcome = next(coming)
        if outcome not in {"ok", "retryable", "fatal", "permanent", "not retryable"}:
            unknown(f"outcome {outcome}")
        if outcome == "ok":
            return Ok(ModelReply(outcome, None, 0.0))
        details = {"retryable": outcome == "retryable"}
        return Err(KindlmError(ErrorCode.PROVIDER_NETWORK_ERROR, outcome, details=details))

    clock = Clock()
    deadline = Deadline(3600, clock)
    async with deadline.timeout:
        making = make_calls(clock, deadline, retries=retries)
        asked = ProviderRequested(purpose="test", provider="p", model="m", call=0, fingerprint="")
        result = await making.make(None, asked, once, making.recorder.record)
    return result, calls
