"""The answers of a recorded run, for the same suite run again without calling anybody.

A request is known by its fingerprint, so that a suite may have changed around it. Each repeat gets
the answers of its own; where there are none, those of another repeat of the test stand in, then
those of another test. The same question asked again gets the next answer that was recorded.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.recorded_answers import CallKey, read_reply
from kindlm.history.recorded_requests import RecordedRequest, differences, read_request
from kindlm.history.replayed_agents import ReplayedAgent
from kindlm.history.transcripts import PurgedError
from kindlm.plan import Execution
from kindlm.ports import Agent, Asked, ModelReply, Purpose
from kindlm.transcript import Role
from kindlm.wording import shown

__all__ = ["RecordedRun"]

# Of a call that was tried again, the last try is its outcome. A conversation that is looked at
# again was held in another run.
_OUTCOMES = """
SELECT c.fingerprint, c.purpose, c.status, s.name AS suite, e.test, e.target, e.repeat,
       c.execution, c.attempt, c.call
  FROM executions e
  JOIN suites s ON s.id = e.suite
  JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND ((c.execution = e.id AND c.attempt = e.attempt)
        OR (c.execution = e.source AND c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE e.run = ? AND c.fingerprint IS NOT NULL
   AND (c.status = 'responded' OR (c.status = 'failed' AND c.retry_in_ms IS NULL))
 ORDER BY e.number, c.call
"""

_FAILURE = """
SELECT c.error_code, c.http_status, x.body AS error
  FROM provider_calls c
  LEFT JOIN contents x ON x.ref = c.error_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""

_TOLD = 3

_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


class Place(NamedTuple):
    """Where an answer was recorded, or is wanted."""

    suite: str
    test: str
    target: str
    repeat: int


class Outcome(NamedTuple):
    """How a recorded call ended."""

    place: Place
    key: CallKey
    purpose: str
    responded: bool


class RecordedRun:
    """All answers of a run, by fingerprint; `db` is a read-only connection."""

    def __init__(self, db: sqlite3.Connection, run: str, *, asks_judges: bool) -> None:
        self._db = db
        self._run = run
        self._asks_judges = asks_judges
        self._outcomes: dict[str, list[Outcome]] = {}
        self._own: dict[tuple[str, Place], list[Outcome]] = {}
        self._of_test: dict[tuple[str, str, str], list[Outcome]] = {}
        for row in db.execute(_OUTCOMES, (run,)):
            place = Place(row["suite"], row["test"], row["target"], row["repeat"])
            key = CallKey(row["execution"], row["attempt"], row["call"])
            outcome = Outcome(place, key, row["purpose"], row["status"] == "responded")
            self._outcomes.setdefault(row["fingerprint"], []).append(outcome)
            self._own.setdefault((row["fingerprint"], place), []).append(outcome)
            self._of_test.setdefault(place[:3], []).append(outcome)

    def answers(self, execution: Execution) -> ReplayedAnswers:
        """Return the answers for one execution; a `ports.AnswerSource`."""
        return ReplayedAnswers(self, execution)

    def find(self, fingerprint: str, place: Place, number: int) -> Outcome | None:
        """Return what the `number`-th asking, from 0, of a request was answered."""
        own = self._own.get((fingerprint, place), ())
        if len(own) > number:
            return own[number]
        groups: dict[str, list[Outcome]] = {}
        for outcome in self._outcomes.get(fingerprint, ()):
            groups.setdefault(outcome.key.execution, []).append(outcome)
        able = [group for group in groups.values() if len(group) > number]
        able.sort(key=lambda group: _distance(group[0].place, place))
        return able[0][number] if able else None

    def reply(self, outcome: Outcome) -> Result[ModelReply]:
        """Return what a call was answered, or the error that it ended with."""
        if outcome.responded:
            reply = read_reply(self._db, outcome.key)
            return Err(_purged(outcome)) if reply is None else Ok(reply)
        row = self._db.execute(_FAILURE, outcome.key).fetchone()
        code = ErrorCode.__members__.get(row["error_code"], ErrorCode.UNKNOWN_ERROR)
        details = {"status": row["http_status"], "retryable": False}
        hint = f"So it was in run {self._run}; run it again: kindlm test"
        return Err(KindlmError(code, row["error"] or "(erased or withheld)", hint, details=details))

    def miss(self, asked: Asked, place: Place) -> KindlmError | None:
        """Return that a request was never recorded, and why; None if a judge is to be asked."""
        if asked.purpose is not Purpose.TEST and self._asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        nearest = self._nearest(asked, place)
        if nearest is None:
            why = "nothing like it was recorded of this test"
        else:
            found = list(differences(asked, nearest))
            more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            why = "; ".join(found[:_TOLD]) + more or "it was asked less often"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return KindlmError(
            ErrorCode.PROVIDER_NOT_FOUND,
            f"Run {self._run} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or put it back as it was{judge}",
        )

    def agent(self, execution: Execution) -> Agent:
        """Return an agent that answers as the one of the run did."""
        return ReplayedAgent(self._db, self._run, execution)

    def _nearest(self, asked: Asked, place: Place) -> RecordedRequest | None:
        """Return the recorded request of the test that comes closest."""
        candidates = [
            outcome
            for outcome in self._of_test.get(place[:3], ())
            if outcome.purpose == asked.purpose
        ]
        candidates.sort(key=lambda outcome: _distance(outcome.place, place))
        requests = list(self._requests(candidates))
        turn = _answers(asked.request.messages)
        same_turn = [each for each in requests if _answers(each.messages) == turn]
        near = same_turn or requests
        return min(near, key=lambda each: len(list(differences(asked, each))), default=None)

    def _requests(self, outcomes: Sequence[Outcome]) -> Iterator[RecordedRequest]:
        for outcome in outcomes[:50]:
            try:
                yield read_request(self._db, *outcome.key)
            except PurgedError:
                continue


class ReplayedAnswers:
    """The answers for one execution; a `ports.RecordedAnswers`."""

    def __init__(self, run: RecordedRun, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        suite = execution.suite.suite.name
        self._place = Place(suite, execution.case.name, execution.target, execution.repeat)
        self._asked: Counter[str] = Counter()

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what was answered then, or why nothing was; None if a judge is to be asked."""
        number = self._asked[asked.fingerprint]
        found = self._run.find(asked.fingerprint, self._place, number)
        if found is None:
            miss = self._run.miss(asked, self._place)
            return None if miss is None else Err(miss)
        self._asked[asked.fingerprint] += 1
        reply = self._run.reply(found)
        is_own = found.place == self._place or asked.purpose is not Purpose.TEST
        if isinstance(reply, Err) or is_own:
            return reply
        warning = _stands_in(found.place, self._place)
        return Ok(replace(reply.value, warnings=(*reply.value.warnings, warning)))

    def agent(self) -> Agent:
        """Return an agent that answers as it did then."""
        return self._run.agent(self._execution)


def _distance(then: Place, now: Place) -> tuple[bool, int, str, str, str, int]:
    """Return what orders places: the same one, other repeats of the test, other tests."""
    other_test = then[:3] != now[:3]
    return (other_test, abs(then.repeat - now.repeat), *then)


def _answers(messages: Sequence[object]) -> int:
    return sum(getattr(message, "role", None) is Role.ASSISTANT for message in messages)


def _stands_in(then: Place, now: Place) -> str:
    if then[:3] == now[:3]:
        return f"Answered as repeat {then.repeat} was: of repeat {now.repeat} nothing was recorded."
    return f"Answered as the test {shown(then.test)} on {shown(then.target)} was."


def _purged(outcome: Outcome) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        f"The answer of {outcome.key.execution}, call {outcome.key.call}, was purged or withheld.",
        "Record it again: kindlm test",
    )
