"""Answers of earlier runs that are given again: by a cache, in a rescored run, in a replayed one.

A question is the same if its fingerprint is: provider, model, parameters and every character of its
messages, but for the random boundary around the data. Asked several times, as by the passes of a
judge, it gets the answers of an attempt in the order in which they came then, each of them once.
Where an attempt has no more of them, the next attempt that has goes on.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple, Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import (
    AgentReplied,
    CallAnswered,
    CallFailed,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.history.recorded_attempts import PurgedError, RecordedAttempt, recorded_executions
from kindlm.history.request_differences import differences, is_as_recorded, text_difference
from kindlm.matching import equal
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, AgentRequest, Asked, ModelReply, Provenance, Purpose
from kindlm.transcript import Message, Role
from kindlm.wording import count, shown
from kindlm_store import REDACTED

__all__ = [
    "CachedAnswers",
    "EarlierRuns",
    "ReplayedAnswers",
    "ReplayedRun",
    "RescoredAnswers",
    "agent_reply",
    "runs_related_to",
]

# The calls of executions of some runs, those of the first run first; each step by an index. A
# conversation that is looked at again was held in another run. A replayed run fails where the last
# try failed, and knows the last attempt only.
_CALLS = """
SELECT s.name, e.test, e.target, e.repeat, c.purpose, c.fingerprint,
       row_number() OVER (PARTITION BY s.id, c.execution, c.attempt, c.purpose, c.fingerprint
                          ORDER BY c.call) - 1,
       c.execution, c.attempt, c.call, s.id
  FROM json_each(:runs) AS run
 CROSS JOIN suites s ON s.run = run.value
 CROSS JOIN executions e ON e.suite = s.id
 CROSS JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id OR (c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE c.fingerprint IS NOT NULL
   AND (c.status = 'responded'
        OR (:is_replay AND c.status = 'failed' AND c.retry_in_ms IS NULL))
   AND (NOT :is_replay OR c.execution <> e.id OR c.attempt = e.attempt)
"""

_OF_EXECUTION = """
   AND s.project = :project AND s.name = :suite AND e.test = :test AND e.target = :target
   AND e.repeat = :repeat
"""

_IN_ORDER = " ORDER BY run.key, e.number, c.attempt DESC, c.call"


class Place(NamedTuple):
    """Where an answer was recorded, or is wanted."""

    suite: str
    test: str
    target: str
    repeat: int

    @classmethod
    def of(cls, execution: Execution) -> Place:
        """Return the place of an execution."""
        suite, case = execution.suite.suite, execution.case
        return cls(suite.name, case.name, execution.target, execution.repeat)

    def distance(self, now: Place) -> tuple[Any, ...]:
        """Return what orders places: this one, other repeats of the test, other tests."""
        return (self[:3] != now[:3], abs(self.repeat - now.repeat), *self)


class RecordedCall(NamedTuple):
    """A call to a model that ended; `number` counts the calls for one request in an attempt."""

    place: Place
    purpose: str
    fingerprint: str
    number: int
    execution: str
    attempt: int
    call: int
    suite_id: str


_Calls = Mapping[tuple[str, str, int], Sequence[RecordedCall]]
"""Calls by their purpose, fingerprint and number."""


def _read_calls(
    db: sqlite3.Connection,
    runs: Sequence[str],
    execution: Execution | None = None,
    *,
    is_replay: bool = False,
) -> _Calls:
    """Return the calls of some runs, of one execution if it is given."""
    wanted: dict[str, Any] = {"runs": json.dumps(runs), "is_replay": is_replay}
    query = _CALLS
    if execution is not None:
        wanted |= Place.of(execution)._asdict() | {"project": execution.suite.suite.project}
        query += _OF_EXECUTION
    found: dict[tuple[str, str, int], list[RecordedCall]] = {}
    for row in db.execute(query + _IN_ORDER, wanted):
        call = RecordedCall(Place(*row[:4]), *row[4:])
        found.setdefault((call.purpose, call.fingerprint, call.number), []).append(call)
    return found


class RecordedAnswers:
    """The answers of some runs to the requests of one execution; a `ports.RecordedAnswers`.

    Subclasses say which of them are given again, and what becomes of other requests. `db` is a
    read-only connection.
    """

    is_replay = False

    def __init__(self, db: sqlite3.Connection, runs: Sequence[str], execution: Execution) -> None:
        self._db = db
        self._execution = execution
        self._asked: Counter[tuple[str, str]] = Counter()
        self._given_again: set[Provenance | None] = set()
        self._attempts: dict[tuple[str, int], RecordedAttempt] = {}
        self._calls = _read_calls(db, runs, execution, is_replay=self.is_replay)

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what was answered then, or why nothing was; None if the model is to be asked."""
        request = (str(asked.purpose), asked.fingerprint)
        number = self._asked[request]
        self._asked[request] += 1
        for call in self._calls.get((*request, number), ()):
            given = self._given(call, asked)
            if isinstance(given, Err):
                return given
            if given is not None and given.value.recorded not in self._given_again:
                self._given_again.add(given.value.recorded)
                return given
        return self._without(asked, number)

    def agent(self) -> Agent | None:
        """Return None: agents and commands may do more than answer, so they are asked."""
        return None

    def _given(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:  # noqa: ARG002
        """Return what a call was answered; None if that is not to be given, or was purged."""
        return self._reply(call)

    def _without(self, asked: Asked, number: int) -> Result[ModelReply] | None:  # noqa: ARG002
        """Return what becomes of a request without an answer, the `number`-th like it from 0 on."""
        return None

    def _reply(self, call: RecordedCall) -> Result[ModelReply] | None:
        """Return how a call ended; None if the text of its answer is not there any more."""
        attempt = self._attempt(call)
        try:
            outcome = attempt.outcome(call.call)
        except PurgedError:
            return None
        if isinstance(outcome, CallFailed):
            return Err(outcome.failure())
        assert isinstance(outcome, ProviderResponded)
        return Ok(
            ModelReply(
                raw="",
                tool_calls=tuple(outcome.tool_calls),
                finish_reason=outcome.finish_reason,
                **_facts(attempt, outcome),
            )
        )

    def _attempt(self, call: RecordedCall) -> RecordedAttempt:
        key = (call.execution, call.attempt)
        if key not in self._attempts:
            self._attempts[key] = RecordedAttempt(self._db, *key)
        return self._attempts[key]


def agent_reply(attempt: RecordedAttempt, event: AgentReplied) -> AgentReply:
    """Return what an agent answered, and the tools it used."""
    step = event.step()
    return AgentReply(
        raw=None,
        tool_uses=step.tool_uses,
        reported=step.reported,
        reports_tools=step.reports_tools,
        **_facts(attempt, event),
    )


def _facts(attempt: RecordedAttempt, event: CallAnswered) -> dict[str, Any]:
    return {
        "text": event.text,
        "latency_ms": event.latency_ms,
        "usage": event.usage,
        "model": event.model,
        "warnings": tuple(event.warnings),
        # Given again and again, it is still the answer to the call that was really made.
        "recorded": Provenance(event.recorded_in or f"{attempt.id}/{event.call}", event.cost),
    }


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


def runs_related_to(db: sqlite3.Connection, run: str) -> list[str]:
    """Return the runs that looked at the same conversations as a run; that run comes first."""
    return [row[0] for row in db.execute(_RELATED, {"run": run})]


class RescoredAnswers(RecordedAnswers):
    """Gives judges the answers of runs that looked at the same conversation.

    What none of them asked is for the judge itself.
    """

    def _given(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:
        return None if asked.purpose is Purpose.TEST else self._reply(call)

    def _without(self, asked: Asked, number: int) -> Result[ModelReply] | None:  # noqa: ARG002
        if asked.purpose is not Purpose.SIMULATE:
            return None
        # Somebody who talks to the agent belongs to a conversation that was held.
        message = (
            "The simulated user was never asked this: with another persona, goal or model the"
            " conversation would be another one."
        )
        return _not_found(message, "Put it back as it was, or record it: kindlm test")


def _not_found(message: str, hint: str) -> Err:
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))


_MOST_RUNS = 20
"""So many runs of a suite are looked at, from the newest on, whether they finished or not."""

_EARLIER = """
SELECT s.id AS suite, c.body AS config
  FROM runs r
 CROSS JOIN suites s ON s.run = r.id AND s.name = :suite AND s.project = :project
  JOIN contents c ON c.ref = s.config_ref
 WHERE r.mode = 'live' AND r.id <> :run AND c.body IS NOT NULL
 ORDER BY r.started_at DESC, r.id
 LIMIT :limit
"""

_OF_ENVIRONMENT = re.compile(r"\{\{\s*env\.")


class EarlierRuns:
    """The live runs before one that takes answers from them; `db` is a read-only connection."""

    def __init__(self, db: sqlite3.Connection, run: str) -> None:
        self.db = db
        self._run = run
        self._known: dict[int, dict[str, Any]] = {}

    def configs(self, execution: Execution) -> dict[str, Any]:
        """Return what the suite of an execution was configured as, by its ids in these runs.

        That of the newest run comes first; "now" is what it is now.
        """
        suite, ordinal = execution.suite.suite, execution.suite.ordinal
        if ordinal not in self._known:
            wanted = {"project": suite.project, "suite": suite.name, "run": self._run}
            rows = self.db.execute(_EARLIER, {**wanted, "limit": _MOST_RUNS})
            texts = {row["suite"]: row["config"] for row in rows} | {"now": suite.config_text}
            self._known[ordinal] = {
                name: json.loads(text).get("config", {}) for name, text in texts.items()
            }
        return self._known[ordinal]


class CachedAnswers(RecordedAnswers):
    """Answers to what was asked before in the same test, target and repeat, for the same purpose.

    The newest run that has one gives it. What is not known to be the same is asked again: a request
    with values of the environment, which are not recorded; one to a provider that is configured in
    another way now; an answer in which something else stands in the place of a secret or of
    personal data, or that was purged; one that was an error.
    """

    def __init__(self, earlier: EarlierRuns, execution: Execution) -> None:
        self._configs = earlier.configs(execution)
        runs = dict.fromkeys(suite.rpartition("/")[0] for suite in self._configs)
        super().__init__(earlier.db, list(runs), execution)

    def _given(self, call: RecordedCall, asked: Asked) -> Result[ModelReply] | None:
        then, now = self._configs.get(call.suite_id, {}), self._configs["now"]
        provider = now.get("providers", {}).get(asked.provider)
        if (
            any(message.written not in (None, message.text) for message in asked.request.messages)
            or then.get("record", {}).get("redactPii")
            or provider is None
            or _OF_ENVIRONMENT.search(json.dumps(provider))
            or not equal(then.get("providers", {}).get(asked.provider), provider)
        ):
            return None
        given = self._reply(call)
        return given if isinstance(given, Ok) and _is_whole(given.value) else None


def _is_whole(reply: ModelReply) -> bool:
    """Tell whether an answer is one, and stands there as it was given."""
    if not reply.text and not reply.tool_calls:
        return False
    written = [call.malformed or json.dumps(call.arguments) for call in reply.tool_calls]
    return not any(REDACTED in text for text in (reply.text, *written))


class ReplayedRun:
    """A run whose answers are given again; `db` is a read-only connection."""

    def __init__(self, db: sqlite3.Connection, run: str, *, asks_judges: bool) -> None:
        self.db = db
        self.id = run
        self.asks_judges = asks_judges

    @cached_property
    def calls(self) -> _Calls:
        """The calls of all its tests."""
        return _read_calls(self.db, [self.id], is_replay=True)


_TOLD = 3
_NEAREST = 50
_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


class ReplayedAnswers(RecordedAnswers):
    """Gives the answers of a run to the same suite, without calling anybody.

    Its tests may have changed around the requests. Each repeat gets the answers of its own; where
    there are none, those of another repeat of the test stand in, then those of another test.
    """

    is_replay = True

    def __init__(self, run: ReplayedRun, execution: Execution) -> None:
        super().__init__(run.db, [run.id], execution)
        self._run = run
        self._place = Place.of(execution)

    def agent(self) -> Agent:
        """Return an agent that answers as it did then."""
        return ReplayedAgent(self._db, self._run.id, self._execution)

    def _given(self, call: RecordedCall, asked: Asked) -> Result[ModelReply]:
        given = self._reply(call)
        if given is None:
            message = f"The answer of {call.execution}, call {call.call}, was purged or withheld."
            return _not_found(message, "Record it again: kindlm test")
        if isinstance(given, Err):
            hint = f"So it was in run {self._run.id}; run it again: kindlm test"
            return Err(replace(given.error, hint=hint))
        then, now = call.place, self._place
        if asked.purpose is not Purpose.TEST or then == now:
            return given
        warning = f"Answered as the test {shown(then.test)} on {shown(then.target)} was."
        if then[:3] == now[:3]:
            warning = _as_repeat(then.repeat, now.repeat)
        return Ok(replace(given.value, warnings=(*given.value.warnings, warning)))

    def _without(self, asked: Asked, number: int) -> Result[ModelReply] | None:
        request = (str(asked.purpose), asked.fingerprint, number)
        others = self._run.calls.get(request, ())
        if others:
            return self._given(min(others, key=self._distance), asked)
        if asked.purpose is not Purpose.TEST and self._run.asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        nearest = self._differences(asked)
        if nearest is None:
            why = "nothing like it was recorded of this test"
        else:
            more = f"; and {len(nearest) - _TOLD} more" if len(nearest) > _TOLD else ""
            why = "; ".join(nearest[:_TOLD]) + more or "it was asked less often"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return _not_found(
            f"Run {self._run.id} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or put it back as it was{judge}",
        )

    def _distance(self, call: RecordedCall) -> tuple[Any, ...]:
        return (*call.place.distance(self._place), call.call)

    def _differences(self, asked: Asked) -> list[str] | None:
        """Return how a request differs from the recorded one of the test that comes closest."""
        calls = [
            call
            for calls in self._run.calls.values()
            for call in calls
            if call.purpose == asked.purpose and call.place[:3] == self._place[:3]
        ]
        found: list[tuple[ProviderRequested, list[dict[str, Any]]]] = []
        for call in sorted(calls, key=self._distance)[:_NEAREST]:
            attempt = self._attempt(call)
            try:
                request = attempt.request(call.call)
            except PurgedError:
                continue
            # A judge has no tools.
            found.append((request, [] if request.after is None else attempt.tools()))
        turn = _answers(asked.request.messages)
        same_turn = [each for each in found if _answers(each[0].messages) == turn]
        differing = [list(differences(asked, *each)) for each in same_turn or found]
        return min(differing, key=len, default=None)


def _answers(messages: Sequence[Message]) -> int:
    return sum(message.role is Role.ASSISTANT for message in messages)


def _as_repeat(then: int, now: int) -> str:
    return f"Answered as repeat {then} was: of repeat {now} nothing was recorded."


class _Held(NamedTuple):
    """A conversation with an agent: what the user said, and the call that each message ended with.

    `system` is the system text.
    """

    repeat: int
    attempt: RecordedAttempt
    system: str | None
    exchanges: tuple[tuple[str, int], ...]


class ReplayedAgent:
    """Answers one conversation from the record; implements `ports.Agent`.

    It is that of the same repeat, or of the one that began with most of the same messages. What is
    answered goes by the messages that the agent was sent.
    """

    def __init__(self, db: sqlite3.Connection, run: str, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        self._sent = 0
        self._held = max(self._conversations(db), key=self._matching, default=None)

    def _conversations(self, db: sqlite3.Connection) -> Iterator[_Held]:
        """Yield the conversations of the test whose messages are all there."""
        for row in recorded_executions(db, self._run, self._execution):
            if row["status"] == "skipped":
                continue
            attempt = RecordedAttempt(db, row["source"], row["source_attempt"])
            try:
                first = attempt.started.messages if attempt.started else ()
                exchanges = tuple(attempt.exchanges())
            except PurgedError:
                continue
            system = next((m.text for m in first if m.role is Role.SYSTEM), None)
            yield _Held(row["repeat"], attempt, system, exchanges)

    def _matching(self, held: _Held) -> int:
        """Return how many messages of the case were sent then, one after the other."""
        case = self._execution.case
        written = case.written or case
        texts = zip(
            (case.prompt.user, *case.follow_ups),
            (written.prompt.user, *written.follow_ups),
            (user for user, _ in held.exchanges),
            strict=False,
        )
        same = takewhile(
            lambda both: is_as_recorded(Message(Role.USER, both[0], written=both[1]), both[2]),
            texts,
        )
        return len(list(same))

    async def __aenter__(self) -> Self:
        """Open nothing: there is nobody to talk to."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Return what was answered to the same message then."""
        held, number = self._held, self._sent
        self._sent += 1
        if held is None:
            return self._miss("nothing was recorded of this test")
        system = next((m for m in request.messages if m.role is Role.SYSTEM), None)
        if (system is None) != (held.system is None) or (
            system is not None and not is_as_recorded(system, held.system or "")
        ):
            return self._miss("the system text is another one")
        if number >= len(held.exchanges):
            return self._miss(f"the user sent {count(len(held.exchanges), 'message')} then")
        (user, call), message = held.exchanges[number], request.messages[-1]
        if not is_as_recorded(message, user):
            difference = text_difference(message.text, user)
            return self._miss(f"message {number + 1} of the user is {difference}")
        try:
            outcome = held.attempt.outcome(call)
        except PurgedError:
            outcome = None
        if isinstance(outcome, CallFailed):
            return Err(outcome.failure())
        if not isinstance(outcome, AgentReplied):
            return self._miss("the answer was purged or withheld, or never came")
        reply = agent_reply(held.attempt, outcome)
        if self._execution.case.script is not None:
            reply = replace(reply, raw=held.attempt.body(call))
        if held.repeat != self._execution.repeat:
            warning = _as_repeat(held.repeat, self._execution.repeat)
            reply = replace(reply, warnings=(*reply.warnings, warning))
        return Ok(reply)

    def _miss(self, why: str) -> Err:
        message = f"Run {self._run} never recorded what the agent says to this: {why}."
        return _not_found(message, "Record it: kindlm test; or put it back as it was")
