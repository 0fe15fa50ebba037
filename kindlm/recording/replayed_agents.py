"""Agents whose code runs again in a replayed run, while their models answer as an earlier run did.

The agent is asked live, behind the gateway; the gateway asks here instead of a provider.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from weakref import WeakValueDictionary

from kindlm.gateway.replay import RecordedModels
from kindlm.history.recorded_attempts import RecordedAttempt, recorded_executions
from kindlm.history.replayed_answers import as_repeat
from kindlm.plan import Execution
from kindlm.ports import RecordedModelCall


class ReplayedGateway:
    """Answers calls of agents' models from an earlier run.

    Args:
        db: A read-only connection.
        run: The earlier run.
        masks_times: Whether requests that differ in times and UUIDs alone are the same.
    """

    def __init__(self, db: sqlite3.Connection, run: str, *, masks_times: bool) -> None:
        self._db = db
        self._run = run
        self._masks_times = masks_times
        # They hold all that an attempt asked, and are let go with the conversation.
        self._open: WeakValueDictionary[str, RecordedModels] = WeakValueDictionary()

    def models(self, execution: Execution) -> RecordedModels | None:
        """Return the answers for a new attempt at an execution; None if none were recorded.

        They are those of the same repeat, or of the nearest one.
        """
        for row in recorded_executions(self._db, self._run, execution):
            attempt = RecordedAttempt(self._db, row["source"], row["source_attempt"])
            if calls := attempt.model_calls():
                then, now = row["repeat"], execution.repeat
                warnings = [] if then == now else [as_repeat(then, now)]
                models = RecordedModels(
                    attempt.id,
                    calls,
                    attempt.latencies_ms(),
                    self._masks_times,
                    warnings,
                    attempt.paid_before_agent_usd(),
                )
                self._open[execution.id] = models
                return models
        return None

    def answer(self, subject: str, path: str, body: Any) -> RecordedModelCall | str:
        """Return the recorded answer to a request, or why there is none; see `replay.Replayer`."""
        models = self._open.get(subject.partition(".")[0])
        if models is None:
            return f"Run {self._run} recorded no model call of this test."
        return models.answer(path, body)
