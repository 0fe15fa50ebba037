"""The recorder of a run: it encodes payloads as events, and appends them to the run's stream.

With `record.redactPii`, it hides personal data: everything that the patterns of a suite match.
Checks see the unhidden texts. A hidden match keeps its length, so that positions in the text stay
valid, and at most its first and last two characters. The raw body of an answer may contain the
match in other forms, so it is not recorded if anything in it, or read from it, matches.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from threading import RLock
from typing import Any

from kindlm.checks.pii import Pii
from kindlm.dataclass import replace
from kindlm.engine.attempt import Finished
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import RAW_BODY, AssertionEvaluated, ExecutionStarted
from kindlm.events.run import SuiteStarted
from kindlm.guard import guard
from kindlm.outcome import Outcome
from kindlm.patterns import DEFAULT_PATTERNS, PatternError, personal_data_in
from kindlm.plan import PlannedSuite
from kindlm.suite import Suite
from kindlm_store import Append, EventLog, NewEvent, Text, Ticket
from kindlm_store.decoding import spelled

_TEXT_S = 2.0
"""Seconds for all patterns on one text; a text that takes longer is not recorded."""

_SLOW_S = 0.2
"""Seconds for all patterns on one text once they took too long for another one."""

_OF_WIRES = frozenset({"provider.requested", "agent.traced"})
_BODIES = frozenset({"body", "items", "input", "output"})
"""Texts of these events that are in a wire format."""

_IN_PIECES = "[not recorded: it says personal data in pieces]"

_WITHHELD = "[not recorded: the patterns for personal data took too long]"
_NESTING = 4
"""How many levels of JSON in strings of JSON are searched."""

_FIELDS = frozenset({"excerpt", "label", "warnings"})
"""Strings of events, besides texts, that may quote a person or a model."""

_CUT_OFF = frozenset({"actual", "error", "excerpt", "message"})
"""Texts of events that kindlm may have cut, so that a pattern misses a match at the cut."""

# A word before a cut (backwards) or after it, and numbers beside that word.
_CUT_BEFORE = re.compile(r'[^\s"]*(?:\s[^\s"]*\d[^\s"]*)*')
_CUT_BEHIND = re.compile(r'[^\s"\\]*(?:\s[^\s"\\]*\d[^\s"\\]*)*')

_REMEMBERED = 512
_SHORT = 10_000
"""The results for so many texts of at most so many characters are cached."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT_TOKEN = re.compile(_STRING)
_JSON_TOKEN = re.compile(rf"{_STRING}|-?\d[\d.eE+-]*")


def patterns_of(suite: Suite) -> tuple[str, ...]:
    """Return the default patterns, and those that the tests of a suite look for."""
    found = [*DEFAULT_PATTERNS]
    for case in suite.cases:
        for expectation in case.expectations:
            if isinstance(expectation.check, Pii):
                found += (pattern for _, pattern in expectation.check.patterns)
    return tuple(dict.fromkeys(found))


class PersonalData:
    """Hides matches of patterns for personal data; a pattern that does not compile is ignored.

    Texts for which the patterns take too long are not recorded. After the first of them, each
    further text gets less time. `given_up` is called once, with the pattern that ran out of time.
    """

    def __init__(
        self, patterns: tuple[str, ...], given_up: Callable[[str], None] = lambda _: None
    ) -> None:
        self._patterns = [pattern for pattern in patterns if _compiles(pattern)]
        self._time_s = _TEXT_S
        self._given_up = given_up
        self._remembered = lru_cache(_REMEMBERED)(self._hide)

    def hide_in(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an event's data without personal data; `kind` is the type of the event."""
        hidden: dict[str, Any] = self._hide_value(data, is_wire=kind in _OF_WIRES)
        body = data.get(RAW_BODY)
        if isinstance(body, Text) and (hidden != data or self._is_in_pieces_of(body.body)):
            del hidden[RAW_BODY]
        return hidden

    def hide(self, text: str) -> str:
        """Return a text without personal data; JSON stays JSON."""
        return self._remembered(text) if len(text) <= _SHORT else self._hide(text)

    def hide_in_excerpt(self, text: str) -> str:
        """Return a text that kindlm may have cut, without personal data.

        A pattern may miss a match that is cut off, so the words beside an ellipsis are left out.
        """
        first, *others = self.hide(text).split("…")
        pieces = [first, *(_CUT_BEHIND.sub("", piece, count=1) for piece in others)]
        backwards = [piece[::-1] for piece in pieces[:-1]]
        before = [_CUT_BEFORE.sub("", piece, count=1)[::-1] for piece in backwards]
        return "…".join((*before, pieces[-1]))

    def _hide_value(self, value: Any, key: str = "", *, is_wire: bool = False) -> Any:
        """Return the value of an event's `key` without personal data.

        `is_wire` applies to events with `_BODIES`.
        """
        hide = self.hide_in_excerpt if key in _CUT_OFF else self.hide
        match value:
            case Text(body):
                hidden = hide(body)
                is_left = is_wire and key in _BODIES and self._is_in_pieces_of(hidden)
                return Text(json.dumps(_IN_PIECES) if is_left else hidden)
            case str():
                return hide(value) if key in _FIELDS else value
            case Mapping():
                return {
                    name: self._hide_value(member, name, is_wire=is_wire)
                    for name, member in value.items()
                }
            case list() | tuple():
                return [self._hide_value(item, key, is_wire=is_wire) for item in value]
            case _:
                return value

    def _is_in_pieces_of(self, text: str) -> bool:
        """Return whether pieces of a text, such as the deltas of a stream, spell personal data."""
        whole = spelled(text)
        return self.hide(whole) != whole

    def _hide(self, text: str) -> str:
        try:
            return self._hide_nested(text, time.monotonic() + self._time_s, _NESTING)
        except PatternError:
            return json.dumps(_WITHHELD) if _is_json(text) else _WITHHELD

    def _hide_nested(self, text: str, end: float, depth: int) -> str:
        was_json = _is_json(text)

        def hide_token(found: re.Match[str]) -> str:
            token = found[0]
            if not token.startswith('"'):
                value, hidden = token, self._mask(token, end)
            else:
                try:
                    value = json.loads(token)
                except ValueError:
                    return token  # quotation marks of a text
                hidden = self._hide_nested(value, end, depth - 1)
            return token if hidden == value else json.dumps(hidden, ensure_ascii=False)

        if depth:
            # Escapes may hide a match in a string, so its value is checked.
            text = (_JSON_TOKEN if was_json else _TEXT_TOKEN).sub(hide_token, text)
        hidden = self._mask(text, end)
        if was_json and not _is_json(hidden):
            return json.dumps(hidden, ensure_ascii=False)
        return hidden

    def _mask(self, text: str, end: float) -> str:
        for pattern in self._patterns:
            for start, stop in self._ranges(pattern, text, end):
                kept = 2 if stop - start > 4 else 0
                stars = "*" * (stop - start - 2 * kept)
                mask = text[start : start + kept] + stars + text[stop - kept : stop]
                if self._ranges(pattern, mask, end):
                    mask = "*" * (stop - start)
                text = text[:start] + mask + text[stop:]
        return text

    def _ranges(self, pattern: str, text: str, end: float) -> list[tuple[int, int]]:
        """Return what a pattern matches; raise `PatternError` if the time is over."""
        try:
            return list(personal_data_in(text, pattern, end))
        except PatternError:
            if self._time_s != _SLOW_S:
                self._time_s = _SLOW_S
                self._given_up(pattern)
            raise


def _compiles(pattern: str) -> bool:
    try:
        list(personal_data_in("", pattern, time.monotonic() + _TEXT_S))
    except PatternError:
        return False
    return True


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[", '"')):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(slots=True)
class _Outbox:
    """The events of a run on their way to the log, each with the `PersonalData` that it needs.

    `hiding` has the `PersonalData` of suites that ask for it, by ordinal. Patterns may be slow, and
    must not delay the event loop: a `thread` hides the data, and all events of the run pass through
    it to keep their order. `measured` are the kinds of checks that reported only numbers; nothing
    is hidden in those. `ticket` and `hidden` belong to the last submitted events. `written` wraps
    `ticket` for all coroutines that wait for it.
    """

    log: EventLog
    stream: str
    hiding: dict[int, PersonalData] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    thread: ThreadPoolExecutor | None = None
    lock: RLock = field(default_factory=RLock)
    waiting: list[tuple[NewEvent, PersonalData | None]] = field(default_factory=list)
    ticket: Ticket | None = None
    hidden: Future[Ticket] | None = None
    written: asyncio.Future[Any] | None = None

    def flush(self) -> None:
        """Submit the waiting events to the log; keep them if it refuses them."""
        with self.lock:
            waiting, self.waiting = self.waiting, []
            if not waiting:
                return
            events, personal = zip(*waiting, strict=True)
            try:
                if self.thread is None:
                    self.ticket = self.log.submit(Append(self.stream, events))
                    self.written = None
                else:
                    self.hidden = self.thread.submit(self._hide, events, personal, self.hidden)
            except Exception:
                self.waiting = waiting
                raise

    def _hide(
        self,
        events: Sequence[NewEvent],
        personal: Sequence[PersonalData | None],
        before: Future[Ticket] | None,
    ) -> Ticket:
        if before is not None:
            # It is done, in this thread; after an error, all later events fail, too.
            before.result()
        hidden = [
            event if hides is None else event.with_data(hides.hide_in(event.type, event.data))
            for event, hides in zip(events, personal, strict=True)
        ]
        return self.log.submit(Append(self.stream, hidden))


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`.

    The log gets all events of one turn of the event loop together, at the end of the turn and
    before the network is read. It gets each event at once from other threads, and while user code
    runs, which may block or end the process.
    """

    def __init__(
        self, log: EventLog, stream: str, subject: str | None = None, outbox: _Outbox | None = None
    ) -> None:
        self._outbox = outbox or _Outbox(log, stream)
        self._subject = subject
        self._suite: int | None = None
        """The suite of the execution that it is about."""

    def hide_personal_data(
        self, suites: Iterable[PlannedSuite], given_up: Callable[[str], None]
    ) -> None:
        """Hide personal data in events of the suites that ask for it.

        `given_up` is called from another thread with each pattern that takes too long.
        """
        given_up = cache(given_up)
        for planned in suites:
            if planned.suite.redact_pii:
                personal = PersonalData(patterns_of(planned.suite), given_up)
                self._outbox.hiding[planned.ordinal] = personal
        if self._outbox.hiding:
            self._outbox.thread = ThreadPoolExecutor(1, thread_name_prefix="kindlm-personal-data")

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        outbox = self._outbox
        return RunRecorder(outbox.log, outbox.stream, subject, outbox)

    def record(self, payload: Payload) -> None:
        """Hand an event to the log.

        Raises:
            ValueError: It cannot be stored.
        """
        if isinstance(payload, ExecutionStarted):
            self._suite = payload.suite
        suite = payload.ordinal if isinstance(payload, SuiteStarted) else self._suite
        outbox, event = self._outbox, new_event(payload, subject=self._subject)
        hides = None if suite is None else outbox.hiding.get(suite)
        if hides is not None and isinstance(payload, AssertionEvaluated) and payload.only_numbers:
            hides = None
            outbox.measured.add(payload.result.kind)
        with outbox.lock:
            outbox.waiting.append((event, hides))
            is_first = len(outbox.waiting) == 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            outbox.flush()
            return
        if guard.user_code:
            outbox.flush()
        elif is_first:
            loop.call_soon(outbox.flush)

    async def durable(self) -> None:
        """Return when all recorded events are on disk; wait while the log is behind.

        Raises `WriteFailedError` if writing to the disk failed.
        """
        outbox = self._outbox
        if outbox.waiting:
            # Further events of this turn go to the log together with it.
            await asyncio.sleep(0)
        with outbox.lock:
            # The lock waits for another thread that submits events.
            outbox.flush()
            hidden = outbox.hidden
            if hidden is None and outbox.ticket is not None:
                outbox.written = outbox.written or asyncio.wrap_future(outbox.ticket)
            written = outbox.written
        # Events are written in order, so the last ticket covers all. Shielded, since a cancelled
        # waiter must not cancel the write.
        if hidden is not None:
            await (await asyncio.shield(asyncio.wrap_future(hidden)))
        elif written is not None:
            await asyncio.shield(written)
        await outbox.log.ready()

    def close(self) -> None:
        """Submit all events to the log; nothing may be recorded afterwards."""
        self._outbox.flush()
        if self._outbox.thread is not None:
            self._outbox.thread.shutdown()

    def shown(self, finished: Finished) -> Finished:
        """Return the end of an execution without personal data, for display."""
        personal = self._outbox.hiding.get(finished.execution.suite.ordinal)
        if personal is None:
            return finished
        error, measured = finished.error, self._outbox.measured
        return replace(
            finished,
            error=error and replace(error, message=personal.hide_in_excerpt(error.message)),
            failed=tuple(
                result
                if result.kind in measured and result.outcome is Outcome.FAILED
                else replace(result, message=personal.hide_in_excerpt(result.message))
                for result in finished.failed
            ),
        )
