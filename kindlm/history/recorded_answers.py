"""Recorded answers that are given again: to judges in a rescored run, to models with a cache.

A question is the same if its fingerprint is: provider, model, parameters and every character of its
messages, but for the random boundary around the data. Asked several times, as by the passes of a
judge, it gets the answers in the order in which they came then, each of them once.

`kindlm test --cache` asks only what has not been asked. There, a request has an answer if its
identical twin was answered before: of the same test, target and repeat of the suite, for the same
purpose, at the same provider as it is configured now. The newest run that has one gives it. What is
not known to be the same is asked again: a request with values of the environment, which are not
recorded; an answer in which something else stands in the place of a secret or of personal data, or
that was purged; one that was an error.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AgentReplied, CallAnswered, ProviderResponded
from kindlm.history.transcripts import read_answer
from kindlm.matching import equal
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, Asked, ModelReply, Provenance, Purpose
from kindlm_store import REDACTED

__all__ = [
    "CallKey",
    "EarlierRuns",
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


_MOST_RUNS = 20
"""So many runs of a suite are looked at, from the newest on, whether they finished or not."""

_OF_ENVIRONMENT = re.compile(r"\{\{\s*env\.")

_RUNS = """
SELECT s.id AS suite, c.body AS config
  FROM runs r
 CROSS JOIN suites s ON s.run = r.id AND s.name = :suite AND s.project = :project
  JOIN contents c ON c.ref = s.config_ref
 WHERE r.mode = 'live' AND r.id <> :run AND c.body IS NOT NULL
 ORDER BY r.started_at DESC, r.id
 LIMIT :limit
"""

# Each step by an index, from the few runs to the few calls of one execution in each of them.
_CALLS = """
SELECT run.key AS place, c.attempt, c.execution, c.call, c.purpose, c.fingerprint
  FROM json_each(:suites) AS run
 CROSS JOIN executions e ON e.suite = run.value AND e.test = :test AND e.target = :target
   AND e.repeat = :repeat
 CROSS JOIN provider_calls c ON c.execution = e.id
 WHERE c.status = 'responded' AND c.fingerprint IS NOT NULL
 ORDER BY run.key, c.attempt DESC, c.call
"""


class EarlierRuns:
    """The runs whose answers are taken; `run` is the one that takes them, and not among these.

    `db` is a read-only connection.
    """

    def __init__(self, db: sqlite3.Connection, run: str) -> None:
        self._db = db
        self._run = run
        self._known: dict[tuple[str, str], tuple[_EarlierSuite, ...]] = {}

    def answers(self, execution: Execution) -> EarlierAnswers:
        """Return the answers for one execution; a `ports.AnswerSource`."""
        suite = execution.suite.suite
        key = (suite.project, suite.name)
        if key not in self._known:
            self._known[key] = tuple(self._suites(*key))
        return EarlierAnswers(self._db, self._known[key], execution)

    def _suites(self, project: str, suite: str) -> Iterator[_EarlierSuite]:
        wanted = {"project": project, "suite": suite, "run": self._run, "limit": _MOST_RUNS}
        for row in self._db.execute(_RUNS, wanted):
            yield _EarlierSuite(row["suite"], row["config"])


class EarlierAnswers:
    """The answers for one execution; a `ports.RecordedAnswers`."""

    def __init__(
        self, db: sqlite3.Connection, earlier: Sequence[_EarlierSuite], execution: Execution
    ) -> None:
        self._db = db
        self._earlier = earlier
        self._now = _EarlierSuite("", execution.suite.suite.config_text)
        # Of one request, its answers in each attempt at the execution, the newest attempt first.
        self._given: dict[tuple[str, str], list[tuple[int, list[CallKey]]]] = {}
        self._asked: Counter[tuple[str, str]] = Counter()
        key = {
            "suites": json.dumps([suite.id for suite in earlier]),
            "test": execution.case.name,
            "target": execution.target,
            "repeat": execution.repeat,
        }
        rows = db.execute(_CALLS, key).fetchall()
        for (place, attempt), calls in groupby(rows, key=lambda row: (row[0], row[1])):
            found: dict[tuple[str, str], list[CallKey]] = {}
            for _, _, identity, call, purpose, fingerprint in calls:
                found.setdefault((purpose, fingerprint), []).append(
                    CallKey(identity, attempt, call)
                )
            for asked, answers in found.items():
                self._given.setdefault(asked, []).append((place, answers))

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what the request was answered; None if it is to be sent."""
        key = (str(asked.purpose), asked.fingerprint)
        number = self._asked[key]
        self._asked[key] += 1
        if not _is_known(asked):
            return None
        for place, answers in self._given.get(key, ()):
            if number < len(answers) and self._is_same(self._earlier[place], asked.provider):
                reply = read_reply(self._db, answers[number])
                if reply is not None and _is_whole(reply):
                    return Ok(reply)
        return None

    def agent(self) -> Agent | None:
        """Return None: agents and commands are always asked, who may do more than answer."""
        return None

    def _is_same(self, earlier: _EarlierSuite, provider: str) -> bool:
        """Tell whether a provider is the one of then, and its answers are recorded as they were."""
        if earlier.hides_personal_data:
            return False
        then, now = earlier.providers.get(provider), self._now.providers.get(provider)
        if now is None or _OF_ENVIRONMENT.search(json.dumps(now)):
            return False
        return equal(then, now)


@dataclass(frozen=True)
class _EarlierSuite:
    """A suite as a run had it, by its id; `config` is its recorded configuration."""

    id: str
    config: str

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        document: Mapping[str, Any] = json.loads(self.config).get("config", {})
        return document

    @property
    def providers(self) -> Mapping[str, Any]:
        providers: Mapping[str, Any] = self._document.get("providers", {})
        return providers

    @property
    def hides_personal_data(self) -> bool:
        return bool(self._document.get("record", {}).get("redactPii"))


def _is_known(asked: Asked) -> bool:
    """Tell whether the fingerprint holds all of a request: no value of the environment is in it."""
    return all(each.written in (None, each.text) for each in asked.request.messages)


def _is_whole(reply: ModelReply) -> bool:
    """Tell whether an answer is one, and stands there as it was given."""
    if not reply.text and not reply.tool_calls:
        return False
    written = [call.malformed or json.dumps(call.arguments) for call in reply.tool_calls]
    return not any(REDACTED in text for text in (reply.text, *written))
