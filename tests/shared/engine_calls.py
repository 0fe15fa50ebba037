"""The calls of one attempt on their own: of a run that has no provider, and records nothing."""

from __future__ import annotations

from typing import Any

from suites import make_suite

from kindlm.engine.calls import Calls
from kindlm.engine.resources import LiveRun, Ports
from kindlm.engine.stop import Clock, Deadline, Stop
from kindlm.plan import make_plan
from kindlm.suite import Case, Prompt


class _NothingRecorded:
    def about(self, subject: str) -> _NothingRecorded:
        return self

    def record(self, payload: object) -> None:
        """Forget it."""

    async def durable(self) -> None:
        """Do nothing."""


def make_calls(clock: Clock, deadline: Deadline, *, retries: int = 0) -> Calls:
    """Return what makes the calls of an attempt; to be made in the task that it may cut off."""
    nothing: dict[str, Any] = dict.fromkeys(
        ["clients", "agents", "checker", "aside", "baselines", "embedders"]
    )
    recorder = _NothingRecorded()
    ports = Ports(**nothing, recorder=recorder, clock=clock)  # type: ignore[arg-type]
    plan = make_plan([make_suite(Case("t", Prompt("Hi"), ("m",)), retries=retries)])
    (execution,) = plan
    calls = Calls(LiveRun(plan, ports, Stop()), execution, 1)
    calls.deadline = deadline
    return calls
