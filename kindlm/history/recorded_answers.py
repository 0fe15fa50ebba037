"""Finds answers of earlier runs by the fingerprint of a request, for the cache and for judges.

The fingerprint covers the provider, the model, the parameters and the messages, except for the
random boundary around data. A request that is made several times, as by the passes of a judge, gets
the answers of an attempt in their recorded order, each once.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events.execution_events import AgentReplied, ProviderResponded
from kindlm.history.recorded_attempts import RecordedAttempt
from kindlm.history.runs import sources_of
from kindlm.matching import equal
from kindlm.plan import Execution, QualifiedName
from kindlm.ports import Asked, ModelReply, Provenance, Purpose, RecordedAnswers
from kindlm.suite import ProviderSettings
from kindlm.transcript import PaidBefore
from kindlm_store import REDACTED

# The calls of executions of some runs; CROSS JOIN makes SQLite use an index for each step. A
# rescored execution has its conversation in another run. A replayed run repeats only last attempts,
# and failures of last tries.
_CALLS = """
SELECT s.project, s.name, e.test, e.target, e.repeat, c.purpose, c.fingerprint,
       row_number() OVER (PARTITION BY s.id, c.execution, c.attempt, c.purpose, c.fingerprint
                          ORDER BY c.call) - 1,
       c.execution, c.attempt, c.call, s.id
  FROM json_each(:runs) AS run
 CROSS JOIN suites s ON s.run = run.value
 CROSS JOIN executions e ON e.suite = s.id
 CROSS JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id OR (c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE c.fingerprint IS NOT NULL
"""

_OF_EXECUTION = """
   AND c.status = 'responded'
   AND s.project = :project AND s.name = :suite AND e.test = :name AND e.target = :target
   AND e.repeat = :repeat
"""

_OF_REPLAY = """
   AND (c.status = 'responded' OR (c.status = 'failed' AND c.retry_in_ms IS NULL))
   AND (c.execution <> e.id OR c.attempt = e.attempt)
"""

_IN_ORDER = " ORDER BY run.key, e.number, c.attempt DESC, c.call"


class RecordedCall(NamedTuple):
    """A call to a model that ended; `number` counts equal requests in an attempt, from 0.

    `test` and `repeat` are those of the execution that asked.
    """

    test: QualifiedName
    repeat: int
    purpose: str
    fingerprint: str
    number: int
    execution: str
    attempt: int
    call: int
    suite_id: str


RecordedCalls = Mapping[tuple[str, str], Sequence[RecordedCall]]
"""Calls by purpose and fingerprint; those of the first run and of last attempts come first."""


def read_calls(
    db: sqlite3.Connection, runs: Sequence[str], execution: Execution | None = None
) -> RecordedCalls:
    """Return the answered calls of an execution in some runs, or all calls for a replay."""
    wanted: dict[str, Any] = {"runs": json.dumps(runs)}
    query = _CALLS + _OF_REPLAY
    if execution is not None:
        wanted |= execution.test._asdict() | {"repeat": execution.repeat}
        query = _CALLS + _OF_EXECUTION
    found: dict[tuple[str, str], list[RecordedCall]] = {}
    for row in db.execute(query + _IN_ORDER, wanted):
        call = RecordedCall(QualifiedName(*row[:4]), *row[4:])
        found.setdefault((call.purpose, call.fingerprint), []).append(call)
    return found


class FoundAnswers(RecordedAnswers):
    """Gives answers among some recorded calls to the requests of one execution."""

    takes_any = False
    """Whether the n-th equal request gets any unused answer, and not only the n-th."""

    def __init__(self, db: sqlite3.Connection, calls: RecordedCalls, execution: Execution) -> None:
        self._db = db
        self._calls = calls
        self._execution = execution
        self._asked: Counter[tuple[str, str]] = Counter()
        self._given_again: set[Provenance | None] = set()
        self._attempt = cache(partial(RecordedAttempt, db))
        self._config = cache(partial(_config_of, db))
        self._config_now: Mapping[str, Any] = json.loads(execution.suite.suite.config_text)

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return the recorded answer or an error; None if the model has to be called."""
        number, calls = self._equal_requests(asked)
        for call in calls:
            if call.number == number or self.takes_any:
                given = self._reply(call, asked)
                if isinstance(given, Ok) and given.value.recorded not in self._given_again:
                    self._given_again.add(given.value.recorded)
                    return given
        return None

    def _equal_requests(self, asked: Asked) -> tuple[int, Sequence[RecordedCall]]:
        """Return how often this request was made before, and all recorded calls for it."""
        request = (str(asked.purpose), asked.fingerprint)
        self._asked[request] += 1
        return self._asked[request] - 1, self._calls.get(request, ())

    def _reply(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:  # noqa: ARG002
        """Return the outcome of a call; None if it may not be used, or its text is gone."""
        attempt = self._attempt(call.execution, call.attempt)
        answer = attempt.answer(call.call)
        if not isinstance(answer, Ok):
            return answer
        event: ProviderResponded = answer.value
        calls, facts = tuple(event.tool_calls), reply_fields(attempt, event)
        finish = event.finish_reason
        return Ok(ModelReply(raw="", tool_calls=calls, finish_reason=finish, **facts))


def reply_fields(
    attempt: RecordedAttempt, event: ProviderResponded | AgentReplied
) -> dict[str, Any]:
    """Return the fields of a recorded answer that replies of models and agents share."""
    step = event.step()
    original = event.recorded_in or f"{attempt.id}/{event.call}"
    then = PaidBefore(event.failed_then_usd or 0.0, event.unknown_then or 0)
    return {
        "text": step.text,
        "latency_ms": step.latency_ms,
        "usage": step.usage,
        "model": step.model,
        "warnings": tuple(event.warnings),
        "recorded": Provenance(original, step.cost, then + attempt.paid_before(event.call)),
    }


# The run, its sources, and all runs rescored from these. The run itself comes first, then the
# oldest.
_RELATED = """
WITH RECURSIVE related(id) AS (
  SELECT value FROM json_each(:sources)
  UNION
  SELECT r.id FROM related x JOIN runs r ON r.source_run = x.id WHERE r.mode = 'rescored'
)
SELECT r.id FROM related x JOIN runs r ON r.id = x.id
 ORDER BY r.id <> :run, r.started_at, r.id
"""


def runs_related_to(db: sqlite3.Connection, run: str) -> list[str]:
    """Return the runs that share the conversations of a run; that run comes first."""
    sources = json.dumps([*sources_of(db, run)])
    return [row[0] for row in db.execute(_RELATED, {"run": run, "sources": sources})]


class RescoredAnswers(FoundAnswers):
    """Gives judges the recorded answers of runs that share the conversation.

    These include answers of attempts that were cut off. Answers from another server are not used,
    since its model may differ.
    """

    takes_any = True

    def __init__(self, db: sqlite3.Connection, runs: Sequence[str], execution: Execution) -> None:
        super().__init__(db, read_calls(db, runs, execution), execution)

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return the recorded answer or an error; None if a judge has to be called."""
        given = None if asked.purpose is Purpose.TEST else super().answer(asked)
        if given is None and asked.purpose is Purpose.SIMULATE:
            message = (
                "The simulated user was never asked this: another persona, goal or model leads to"
                " another conversation."
            )
            return not_found(message, "Undo the change, or record it: kindlm test")
        return given

    def _reply(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:
        then = _server(self._config(call.suite_id), asked.provider)
        now = _server(self._config_now, asked.provider)
        # Messages of a simulated user are a part of the conversation, whoever wrote them.
        is_fit = asked.purpose is Purpose.SIMULATE or equal(then, now)
        return super()._reply(call, asked) if is_fit else None


def not_found(message: str, hint: str) -> Err:
    """Return the error that there is no recorded answer."""
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))


_MOST_RUNS = 20
"""The most runs of a suite that are searched, finished or not, from the newest on."""

# A run may have several suites of one project and name, of different files. All shards of a group
# count as one run.
_EARLIER = """
WITH live AS MATERIALIZED (
  SELECT r.id, r.started_at, coalesce(r.group_id, r.id) AS whole
    FROM runs r
   WHERE r.mode = 'live' AND r.id <> ? AND EXISTS (
     SELECT 1 FROM suites s JOIN contents c ON c.ref = s.config_ref
      WHERE s.run = r.id AND s.project = ? AND s.name = ? AND c.body IS NOT NULL))
SELECT id FROM live
 WHERE whole IN (SELECT whole FROM live GROUP BY whole ORDER BY max(started_at) DESC LIMIT ?)
 ORDER BY started_at DESC, id
"""

_CONFIG = "SELECT c.body FROM suites s JOIN contents c ON c.ref = s.config_ref WHERE s.id = ?"

_OF_ENVIRONMENT = re.compile(r"\{\{\s*env\.")


def earlier_runs(db: sqlite3.Connection, run: str, project: str, suite: str) -> list[str]:
    """Return the live runs of a suite except the given one, newest first."""
    return [row[0] for row in db.execute(_EARLIER, (run, project, suite, _MOST_RUNS))]


class CachedAnswers(FoundAnswers):
    """Gives recorded answers to the same request in the same test, target, repeat and purpose.

    They come from the first of the `earlier` runs that has any. These requests are made again:

    - a request with values of the environment, which are not recorded;
    - a request to a provider whose configuration has changed;
    - a request that got an error, or an answer that was purged;
    - a request whose answer held a secret or personal data, which is not recorded;
    - a request whose answer has tool calls and whose provider needs unrecorded data back with them.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        earlier: Callable[[str, str], Sequence[str]],
        wants_echo: Callable[[ProviderSettings], bool],
        execution: Execution,
    ) -> None:
        suite = execution.suite.suite
        runs = earlier(suite.project, suite.name)
        super().__init__(db, read_calls(db, runs, execution), execution)
        self._wants_echo = wants_echo

    def _reply(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:
        then = self._config(call.suite_id).get("config", {})
        now = self._config_now.get("config", {})
        provider = now.get("providers", {}).get(asked.provider)
        if (
            any(message.written not in (None, message.text) for message in asked.request.messages)
            or then.get("record", {}).get("redactPii")
            or provider is None
            or _OF_ENVIRONMENT.search(json.dumps(provider))
            or not equal(then.get("providers", {}).get(asked.provider), provider)
        ):
            return None
        given = super()._reply(call, asked)
        if not isinstance(given, Ok) or not _is_whole(given.value):
            return None
        settings = self._execution.suite.suite.providers[asked.provider]
        return None if given.value.tool_calls and self._wants_echo(settings) else given


def _config_of(db: sqlite3.Connection, suite_id: str) -> Mapping[str, Any]:
    row = db.execute(_CONFIG, (suite_id,)).fetchone()
    is_known = row is not None and row[0] not in (None, REDACTED)
    return json.loads(row[0]) if is_known else {}


def _server(document: Mapping[str, Any], provider: str) -> Mapping[str, Any]:
    """Return the settings of a provider, except the key and the model.

    They are in `providers` of kindlm.yaml, in `judge` of an EvalView project, or in `[llm]` of
    kindlm.toml.
    """
    config = document.get("config", {})
    settings = config.get("providers", {}).get(provider) or config.get("judge")
    settings = settings or document.get("llm") or {}
    others = settings.keys() - {"apiKeyEnv", "api_key_env", "model"}
    return {name: settings[name] for name in others if settings[name] is not None}


def _is_whole(reply: ModelReply) -> bool:
    """Return whether an answer is complete and recorded as it was given."""
    if not reply.text and not reply.tool_calls:
        return False
    written = [call.malformed or json.dumps(call.arguments) for call in reply.tool_calls]
    return not any(REDACTED in text for text in (reply.text, *written))
