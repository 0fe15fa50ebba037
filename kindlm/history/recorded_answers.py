"""Answers of recorded calls, to be given again; when a run is rescored, those of judges.

A question is the same if its fingerprint is: provider, model, parameters and every character of its
messages, but for the random boundary around the data. Asked several times, as by the passes of a
judge, it gets the answers in the order in which they came then, each of them once.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AgentReplied, CallAnswered, ProviderResponded
from kindlm.history.transcripts import read_answer
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, Asked, ModelReply, Provenance, Purpose

__all__ = [
    "CallKey",
    "RecordedJudgements",
    "read_agent_reply",
    "read_reply",
    "runs_related_to",
]

# The run itself, what it was derived from, and all that was rescored of any of these: they looked
# at the same conversations. The run's own answers come first, then the older ones.
_RELATED = """
WITH RECURSIVE above(id) AS (
  VALUES (:run)
  UNION
  SELECT r.source_run FROM above a JOIN runs r ON r.id = a.id WHERE r.source_run IS NOT NULL
), related(id) AS (
  SELECT id FROM above
  UNION
  SELECT r.id FROM related x JOIN runs r ON r.source_run = x.id WHERE r.mode = 'rescored'
)
SELECT r.id FROM related x JOIN runs r ON r.id = x.id
 ORDER BY r.id <> :run, r.started_at, r.id
"""

# Each step by an index, from the few runs to the few calls of one execution in each of them.
_JUDGEMENTS = """
SELECT c.fingerprint, c.execution, c.attempt, c.call,
       coalesce(c.recorded_in, c.execution || '.' || c.attempt || '/' || c.call) AS origin
  FROM json_each(:runs) AS run
 CROSS JOIN suites s ON s.run = run.value AND s.name = :suite AND s.project = :project
 CROSS JOIN executions e ON e.suite = s.id AND e.test = :test AND e.target = :target
   AND e.repeat = :repeat
 CROSS JOIN provider_calls c ON c.execution = e.id
 WHERE c.purpose <> 'test' AND c.status = 'responded'
 ORDER BY run.key, c.attempt DESC, c.call
"""


class CallKey(NamedTuple):
    """A recorded call: the execution, its attempt, and the number of the call in it."""

    execution: str
    attempt: int
    call: int


def read_reply(db: sqlite3.Connection, key: CallKey) -> ModelReply | None:
    """Return what a model answered, and where that was recorded first; None if it was purged."""
    event = read_answer(db, *key)
    if not isinstance(event, ProviderResponded):
        return None
    return ModelReply(
        raw="",
        tool_calls=tuple(event.tool_calls),
        finish_reason=event.finish_reason,
        **_facts(event, key),
    )


def read_agent_reply(db: sqlite3.Connection, key: CallKey) -> AgentReply | None:
    """Return what an agent answered, and the tools it said it used; None if it was purged."""
    event = read_answer(db, *key)
    if not isinstance(event, AgentReplied):
        return None
    step = event.step()
    return AgentReply(
        raw=None,
        tool_uses=step.tool_uses,
        reported=step.reported,
        reports_tools=step.reports_tools,
        **_facts(event, key),
    )


def _facts(event: CallAnswered, key: CallKey) -> dict[str, Any]:
    call = event.recorded_in or f"{key.execution}.{key.attempt}/{key.call}"
    return {
        "text": event.text,
        "latency_ms": event.latency_ms,
        "usage": event.usage,
        "model": event.model,
        "warnings": tuple(event.warnings),
        "recorded": Provenance(call, event.cost),
    }


def _never_asked() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "The simulated user was never asked this: with another persona, goal or model the"
        " conversation would be another one.",
        "Put it back as it was, or record it: kindlm test",
    )


def runs_related_to(db: sqlite3.Connection, run: str) -> list[str]:
    """Return the runs that looked at the same conversations as a run; that run comes first."""
    return [row[0] for row in db.execute(_RELATED, {"run": run})]


class RecordedJudgements:
    """Gives judges of one execution the answers of earlier runs; a `ports.RecordedAnswers`.

    `runs` looked at the same conversations; where several of them asked the same question, the
    answers of the first come first. What none of them asked is for the judge itself.
    """

    def __init__(self, db: sqlite3.Connection, runs: Sequence[str], execution: Execution) -> None:
        self._db = db
        suite = execution.suite.suite
        key = {
            "runs": json.dumps(runs),
            "project": suite.project,
            "suite": suite.name,
            "test": execution.case.name,
            "target": execution.target,
            "repeat": execution.repeat,
        }
        self._calls: dict[str, deque[CallKey]] = {}
        # An answer that was given again in a later run is still one answer.
        known: set[str] = set()
        for fingerprint, *call, origin in db.execute(_JUDGEMENTS, key):
            if origin not in known:
                known.add(origin)
                self._calls.setdefault(fingerprint, deque()).append(CallKey(*call))

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return the next answer to a question, of those that were not purged.

        None if a judge is to be asked; a simulated user is not.
        """
        calls = self._calls.get(asked.fingerprint)
        while calls and asked.purpose is not Purpose.TEST:
            reply = read_reply(self._db, calls.popleft())
            if reply is not None:
                return Ok(reply)
        # Somebody who talks to the agent belongs to a conversation that was held.
        return Err(_never_asked()) if asked.purpose is Purpose.SIMULATE else None

    def agent(self) -> Agent | None:
        """Return None: when a run is rescored, nobody talks to an agent."""
        return None
