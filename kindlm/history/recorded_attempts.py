"""Reads attempts at executions back from their events, for rescored runs, replays and the cache.

The transcript is folded from the recorded events, so checks of it give the same results again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from kindlm.dataclass import replace
from kindlm.errors import Err, Ok, Result, not_there
from kindlm.events import load_event
from kindlm.events.codec import Payload, read
from kindlm.events.execution_events import (
    RAW_BODY,
    AgentFailed,
    AgentReplied,
    AgentSent,
    CallFailed,
    Conversation,
    ExecutionFinished,
    ExecutionStarted,
    ProviderFailed,
    ProviderRequested,
    ProviderResponded,
    ToolSimulated,
)
from kindlm.history.queries import body_of
from kindlm.plan import Execution
from kindlm.ports import AnsweredThen, HeldConversation, Purpose, RecordedModelCall
from kindlm.suite import ListedTools, Suite
from kindlm.transcript import Cost, CostSource, Message, PaidBefore, Role, Transcript, Usage
from kindlm_store import REDACTED

# The events of one attempt. Many runs have the same subject, so only positions of this run's events
# are searched in the index over subjects.
_EVENTS = """
SELECT type, data FROM event_log
 WHERE subject = :subject AND +stream = :stream
   AND seq BETWEEN (SELECT seq FROM event_log WHERE stream = :stream ORDER BY version LIMIT 1)
       AND (SELECT seq FROM event_log WHERE stream = :stream ORDER BY version DESC LIMIT 1)
   AND type IN (SELECT value FROM json_each(:types))
 ORDER BY version
"""

_REPEATS = """
SELECT e.repeat, e.id, e.attempt, e.status IS NOT NULL AS has_ended, e.source, e.source_attempt
  FROM suites s
  JOIN executions e ON e.suite = s.id
 WHERE s.run = ? AND s.project = ? AND s.name = ? AND e.test = ? AND e.target = ?
   AND s.error_code IS NULL AND e.status IS NOT 'skipped'
 ORDER BY abs(e.repeat - ?), e.repeat
"""

# Several files may have suites of one name.
_SERVERS = """
SELECT servers FROM suites WHERE run = ? AND project = ? AND name = ? AND error_code IS NULL
 ORDER BY path <> ?, ordinal
"""

# The cost of some calls of an attempt, and of all calls of earlier attempts. The original cost of
# replayed answers counts only in the attempt itself, since it was paid once.
_PAID = """
SELECT total(cost_usd) + total(then_usd), coalesce(sum(is_unknown + unknown_then), 0)
  FROM (SELECT cost_usd, coalesce(is_unknown, 0) AS is_unknown,
               iif(attempt = :attempt,
                   coalesce(cost_then_usd, 0) + coalesce(failed_then_usd, 0), 0) AS then_usd,
               iif(attempt = :attempt, coalesce(unknown_then, 0)
                   + (recorded_in IS NOT NULL AND cost_then_usd IS NULL), 0) AS unknown_then
          FROM counted_calls
         WHERE execution = :execution
           AND (attempt < :attempt AND :earlier
                OR attempt = :attempt AND call IN (SELECT value FROM json_each(:calls))))
"""

_TALK = (ExecutionStarted, ProviderRequested, ProviderResponded, ToolSimulated, AgentSent)
_TALK_TYPES = frozenset(kind.type for kind in (*_TALK, AgentReplied))
_REQUEST_TYPES = frozenset((ProviderRequested.type, AgentSent.type))
_FAILED_TYPES = frozenset((ProviderFailed.type, AgentFailed.type))
_ERROR_TYPES = _FAILED_TYPES | {ExecutionFinished.type}
_TYPES = json.dumps(sorted(_TALK_TYPES | _ERROR_TYPES))

# The conversation does not contain these texts, so they may be purged.
_UNSEEN = (RAW_BODY, "tools", "context", "stop_sequences", "response_schema", "output")

_GONE = "(erased or withheld)"


class PurgedError(LookupError):
    """A text that is needed is gone."""


class _Stored(NamedTuple):
    """A stored event, with references to texts."""

    type: str
    data: dict[str, Any]


class RecordedAttempt:
    """One attempt at an execution, with all its calls, including those to judges.

    Texts are read when an event is requested, which raises `PurgedError` if one of them is gone.
    Without its run in this history, an attempt has no events.
    """

    def __init__(self, db: sqlite3.Connection, execution: str, attempt: int) -> None:
        self.id = f"{execution}.{attempt}"
        self._db = db
        self._talk: list[_Stored] = []
        self._requests: dict[int, _Stored] = {}
        self._outcomes: dict[int, _Stored] = {}
        self._finished: _Stored | None = None
        run, _, number = execution.rpartition("-")
        wanted = {"subject": f"{number}.{attempt}", "stream": f"run/{run}", "types": _TYPES}
        for name, data in db.execute(_EVENTS, wanted):
            event = _Stored(name, json.loads(data))
            call = event.data.get("call", 0)
            if name == ExecutionFinished.type:
                self._finished = event
            elif name in _REQUEST_TYPES:
                self._requests[call] = event
            elif call:
                self._outcomes[call] = event
            asked = self._requests.get(call)
            purpose = asked and asked.data.get("purpose", Purpose.TEST)
            if name in _TALK_TYPES and purpose in (None, Purpose.TEST):
                self._talk.append(event)

    @property
    def last_call(self) -> int:
        """The number of its last call; 0 without calls."""
        return max(self._requests, default=0)

    @property
    def started(self) -> ExecutionStarted | None:
        """The event of its start, without tools."""
        return self._load(self._talk[0]) if self._talk else None

    @property
    def finished(self) -> ExecutionFinished | None:
        """The event of its end, without output; None if it has not ended."""
        return self._load(self._finished) if self._finished else None

    def talk(self) -> Iterator[Payload]:
        """Yield the events of the conversation with the target under test."""
        return map(self._load, self._talk)

    def answer(self, call: int) -> Result[Any] | None:
        """Return the event with the answer of a call, without the body, or the error of the call.

        It is None if the call did not end, or texts of the answer are gone.
        """
        stored = self._outcomes.get(call)
        if stored is None:
            return None
        try:
            outcome = self._load(stored)
        except PurgedError:
            return None
        is_error = isinstance(outcome, CallFailed)
        return Err(outcome.failure(self.paid_before(call))) if is_error else Ok(outcome)

    def paid_before(self, call: int) -> PaidBefore:
        """Return what was paid before the answer of a call, for the same request.

        These are failed tries, including an agent's model calls in them. Earlier attempts of the
        execution, whose answers are not given again, count for the first request to the target.
        """
        asked = self._requests[call].data
        # Messages to an agent have no fingerprint; each is answered before the next.
        earlier = [(number, each.data) for number, each in self._requests.items() if number < call]
        equal = [n for n, data in earlier if data.get("fingerprint") == asked.get("fingerprint")]
        ended = (n for n in equal if n in self._outcomes)
        failed = [n for n in ended if self._outcomes[n].type in _FAILED_TYPES]
        tries = failed[::-1][: asked.get("attempt", 1) - 1]
        is_first = asked.get("after") == 0
        if not tries and not is_first:
            return PaidBefore()
        first = min(tries, default=call)
        agents = (n for n, data in earlier if n > first and data.get("purpose") == Purpose.AGENT)
        return self._paid((*tries, *agents), earlier=is_first)

    def messages_to_agent(self) -> list[AnsweredThen]:
        """Return what the answers of an agent cost and took, whose code a replay runs again."""
        found = list[AnsweredThen]()
        sent = [n for n, request in self._requests.items() if request.type == AgentSent.type]
        for number, end in pairwise((*sent, self.last_call + 1)):
            outcome = self._outcomes.get(number)
            if self._requests[number].data.get("attempt", 1) == 1:
                found.append(AnsweredThen(self._paid((), earlier=not found)))
            known = found[-1]
            if _is_tried_again(outcome):
                failed = self._paid(range(number, end))
                found[-1] = known._replace(tries=(*known.tries, failed))
            elif outcome is not None:
                data = outcome.data
                then = PaidBefore(data.get("failed_then_usd") or 0.0, data.get("unknown_then") or 0)
                took_ms = data["latency_ms"] if outcome.type == AgentReplied.type else None
                found[-1] = known._replace(before=known.before + then, latency_ms=took_ms)
        return found

    def _paid(self, calls: Iterable[int], *, earlier: bool = False) -> PaidBefore:
        execution, _, attempt = self.id.rpartition(".")
        asked = {"execution": execution, "attempt": int(attempt), "earlier": earlier}
        row = self._db.execute(_PAID, {**asked, "calls": json.dumps(list(calls))}).fetchone()
        return PaidBefore(*row)

    def body(self, call: int) -> str | None:
        """Return the body of an answer as received, by its original call; None if it is gone."""
        stored = self._outcomes.get(call)
        if stored is None:
            return None
        original = stored.data.get("recorded_in")
        if original is None:
            return self._text_at(stored.data.get(RAW_BODY))
        attempt_id, _, number = original.rpartition("/")
        execution, _, attempt = attempt_id.rpartition(".")
        return RecordedAttempt(self._db, execution, int(attempt)).body(int(number))

    def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the model's tools; [] if they are not recorded."""
        stored = self._talk[0].data.get("tools") if self._talk else None
        text = self._text_at(stored)
        return [] if text in (None, REDACTED) else list(json.loads(text))

    def request(self, call: int) -> ProviderRequested:
        """Return the request of a call to a model, with the conversation that it continues."""
        asked: ProviderRequested = self._load(self._requests[call])
        messages, after = tuple(asked.messages), asked.after
        while after:
            before: ProviderRequested = self._load(self._requests[after])
            answer: ProviderResponded = self._load(self._outcomes[after])
            reply = Message(Role.ASSISTANT, answer.text, tool_calls=tuple(answer.tool_calls))
            messages, after = (*before.messages, reply, *messages), before.after
        if asked.after is not None and (started := self.started) is not None:
            # The first answer includes the prefill.
            first = [m for m in started.messages if not (m.prefill and asked.after)]
            messages = (*first, *messages)
        return replace(asked, messages=messages)

    def model_calls(self) -> list[RecordedModelCall]:
        """Return the model calls that an agent made, in order, whose requests are there."""
        found = list[RecordedModelCall]()
        items: dict[int, tuple[str, ...]] = {0: ()}
        is_tried_again = False
        for number, stored in self._requests.items():
            outcome = self._outcomes.get(number)
            if stored.type == AgentSent.type:
                is_tried_again = _is_tried_again(outcome)
            if stored.data.get("purpose") != Purpose.AGENT:
                continue
            try:
                asked: ProviderRequested = self._load(stored)
                items[number] = (*items[asked.base or 0], *asked.items)
            except LookupError:
                continue  # texts of it, or of what it continues, are purged
            if outcome is None or asked.path is None:
                continue
            answer, has_failed = outcome.data, outcome.type == ProviderFailed.type
            body_then, recorded_in = self._text_at(answer.get(RAW_BODY)), answer.get("recorded_in")
            found.append(
                RecordedModelCall(
                    id=recorded_in or f"{self.id}/{number}",
                    path=asked.path,
                    body=asked.body,
                    items=items[number],
                    content_type=answer.get("content_type") or "",
                    answer=None if body_then == REDACTED else body_then,
                    cost_usd=answer.get("cost_then_usd" if recorded_in else "cost_usd"),
                    latency_ms=answer["latency_ms"],
                    failure=self._text_at(answer["message"]) or _GONE if has_failed else None,
                    # A failed try of an agent is charged as a whole.
                    failed=() if is_tried_again else _charged(answer, has_failed=has_failed),
                )
            )
        return found

    def exchanges(self) -> list[tuple[str, int]]:
        """Return each message of the user to an agent, and the number of the last call for it."""
        messages = list(self.started.messages) if self.started else []
        last_tries: list[int] = []
        for call, stored in self._requests.items():
            if stored.type == AgentSent.type:
                sent: AgentSent = self._load(stored)
                if sent.attempt == 1:
                    messages += sent.messages
                if (outcome := self._outcomes.get(call)) and not _is_tried_again(outcome):
                    last_tries.append(call)
        users = (message.text for message in messages if message.role is Role.USER)
        return list(zip(users, last_tries, strict=False))

    def _load(self, stored: _Stored) -> Any:
        seen = {key: value for key, value in stored.data.items() if key not in _UNSEEN}
        # A failure counts even if its text was erased.
        gone = _GONE if stored.type in _ERROR_TYPES else None
        return load_event(stored.type, seen, partial(text_of, self._db, gone=gone))

    def _text_at(self, stored: Mapping[str, str] | None) -> str | None:
        return None if stored is None else body_of(self._db, stored["$ref"])


def _is_tried_again(outcome: _Stored | None) -> bool:
    return outcome is not None and outcome.data.get("retry_in_ms") is not None


def _charged(outcome: Mapping[str, Any], *, has_failed: bool) -> tuple[tuple[Usage, Cost], ...]:
    """Return the charge of a failed call, or of the failed calls before a replayed answer."""
    usd, is_unknown = outcome.get("failed_then_usd"), bool(outcome.get("unknown_then"))
    usage = Usage()
    if has_failed:
        usd, is_unknown = outcome.get("cost_usd"), outcome.get("cost_source") == CostSource.UNKNOWN
        tokens = (outcome.get(f"gen_ai.usage.{side}_tokens") for side in ("input", "output"))
        usage = Usage(*tokens)
    if is_unknown:
        return ((Usage(), Cost()),)
    return () if usd is None else ((usage, Cost(usd, CostSource.COMPUTED)),)


def transcript_of(events: Iterable[Payload]) -> Transcript:
    """Return the transcript of the events of a conversation."""
    conversation = Conversation()
    for event in events:
        conversation.add(event)
    return conversation.transcript


class RecordedRepeat(NamedTuple):
    """A repeat of a test and target that began; `source` is the attempt of its conversation."""

    number: int
    execution: str
    attempt: int
    has_ended: bool
    source: RecordedAttempt


def recorded_repeats(
    db: sqlite3.Connection, run: str, execution: Execution
) -> Iterator[RecordedRepeat]:
    """Yield the repeats of a test and target in a run, the nearest numbers first."""
    rows = db.execute(_REPEATS, (run, *execution.test, execution.repeat)).fetchall()
    for number, name, attempt, has_ended, *source in rows:
        yield RecordedRepeat(number, name, attempt, has_ended, RecordedAttempt(db, *source))


def held_conversation(
    db: sqlite3.Connection, run: str, execution: Execution
) -> HeldConversation | str:
    """Return the conversation of the same test, target and repeat in a run, or why it has none.

    It has an error if texts of it were purged, or the run that held it is not in this history.
    """
    repeat = next(recorded_repeats(db, run, execution), None)
    if repeat is None or repeat.number != execution.repeat or not repeat.has_ended:
        return f"run {run} has no conversation of it; run it: kindlm test"
    source, case, calls = repeat.source, execution.case, repeat.source.last_call
    ended = RecordedAttempt(db, repeat.execution, repeat.attempt).finished
    why = f"The run that held the conversation {source.id} is not in this history."
    try:
        events, started = list(source.talk()), source.started
    except PurgedError:
        started, why = None, f"Texts of the conversation {source.id} were purged or withheld."
    if started is None or ended is None:
        hint = "Run the test again: kindlm test."
        error = not_there(why, f"{hint} Or merge a history that has it: kindlm history merge")
        return HeldConversation(source.id, Transcript(), (), error=error, calls=calls)
    transcript, failure = transcript_of(events), ended.failure
    now, then = 1 + len(case.follow_ups), len(transcript.turns)
    if case.script is None and failure is None and now != then:
        return f"the number of messages of the user changed ({then} → {now}); run it: kindlm test"
    replies = [event.call for event in events if isinstance(event, AgentReplied)]
    bodies = () if case.script is None else tuple(map(source.body, replies))
    messages, warnings = tuple(started.messages), tuple(ended.warnings)
    return HeldConversation(source.id, transcript, messages, failure, warnings, calls, bodies)


def listed_in(db: sqlite3.Connection, run: str, suite: Suite) -> tuple[ListedTools, ...]:
    """Return what the MCP servers of a suite listed when a run began."""
    named = run, suite.project, suite.name, suite.path
    row = db.execute(_SERVERS, named).fetchone()
    return tuple(read_servers(db, row["servers"] if row else None))


def read_servers(db: sqlite3.Connection, column: str | None) -> Iterator[ListedTools]:
    """Yield the lists of MCP servers of a column, except purged ones."""
    for server in json.loads(column or "[]"):
        with suppress(PurgedError):
            yield read(ListedTools, server, partial(text_of, db))


def text_of(db: sqlite3.Connection, ref: str, *, gone: str | None = None) -> str:
    """Return the text of a reference, else `gone`, else raise `PurgedError`."""
    text = body_of(db, ref)
    text = gone if text is None else text
    if text is None:
        raise PurgedError
    return text
