"""Answers of earlier runs, for a run that asks only what has not been asked: `kindlm test --cache`.

A request has an answer if its identical twin was answered before: of the same test, target and
repeat of the suite, for the same purpose, at the same provider as it is configured now, with the
same model, parameters, messages and tools; asked the n-th time, as by the passes of a judge, it has
the n-th answer. The newest run that has one gives it.

What is not known to be the same is asked again: a request with values of the environment, which are
not recorded; an answer in which something else stands in the place of a secret or of personal data,
or that was purged; one that was an error.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from kindlm.errors import Ok, Result
from kindlm.history.recorded_answers import CallKey, read_reply
from kindlm.matching import equal
from kindlm.plan import Execution
from kindlm.ports import Agent, Asked, ModelReply
from kindlm_store import REDACTED

__all__ = ["EarlierAnswers", "EarlierRuns"]

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
