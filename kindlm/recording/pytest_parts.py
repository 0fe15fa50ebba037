"""Runs whose tests somebody else starts, one after the other, and tests that are dealt meanwhile.

A process that shares the tests of one plan with others, as a worker of pytest-xdist does, gets them
one by one, and knows neither which come nor whether the others did theirs. So its run begins with
no test selected, each is added as it comes, and the run stays open until somebody who knows about
all of them ends it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from kindlm.errors import KindlmError
from kindlm.events import RunExtended, RunInterrupted, new_event
from kindlm.events.run import DealtTest
from kindlm.plan import Plan
from kindlm.recording.recorder import RunRecorder
from kindlm.recording.request import Driven
from kindlm.recording.run_events import finish_run
from kindlm_store import Append, EventLog, StreamLock

__all__ = ["Parts", "end_dealt", "undealt"]


class Parts:
    """What is run of a plan, part by part; `executions` counts what has come so far."""

    def __init__(
        self, driven: Driven, plan: Plan, lost: Mapping[str, KindlmError], recorder: RunRecorder
    ) -> None:
        self._driven = driven
        self._plan = plan
        self._lost = lost
        self._recorder = recorder
        self.executions = 0

    async def __aiter__(self) -> AsyncIterator[Plan]:
        """Yield one part after the other; those that are dealt are recorded as they come."""
        async for part in self._driven.parts(self._plan, self._lost):
            this = self._dealt(part) if self._driven.dealt else part
            self.executions += len(this)
            yield this

    def _dealt(self, part: Plan) -> Plan:
        """Number the executions of a part in the order of dealing, and record which they are."""
        suites, number = [], self.executions
        for suite in part.suites:
            suites.append(replace(suite, before=number))
            number += suite.executions
        tests = [
            DealtTest(suite=suite.ordinal, name=entry.case.name, target=target)
            for suite in suites
            for entry in suite.cases
            for target in entry.targets
        ]
        self._recorder.record(RunExtended(planned=number, tests=tests))
        return Plan(tuple(suites))


def undealt(plan: Plan) -> Plan:
    """Return a plan before any of its tests was dealt: none is selected."""
    return Plan(
        tuple(
            replace(
                suite,
                before=0,
                cases=tuple(replace(case, selected=False, targets=()) for case in suite.cases),
            )
            for suite in plan.suites
        )
    )


async def end_dealt(run: str, log: EventLog, duration_ms: float, lacking: str | None) -> None:
    """End a run whose tests were dealt to it, once all that share them have ended.

    `lacking` says why not all of them were run, None if they were: only then there is a verdict,
    and the run is sealed. Raises `LockHeldError` if a process is still at it.
    """
    stream = f"run/{run}"
    with StreamLock(log.path, stream):
        if lacking is not None:
            await log.submit(Append(stream, (new_event(RunInterrupted(reason=lacking)),)))
            return
        await finish_run(run, log, duration_ms)
