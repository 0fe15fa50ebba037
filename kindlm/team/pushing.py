"""Pushes runs to a history server: recorded runs, or one that is still running.

A push sends only what the server lacks. If the server refuses a run, the others are still sent.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.runs import streams_of
from kindlm.suite import Upload
from kindlm.team.bodies import NotSentError, bodies, runs_of_stream
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import LONGEST_BODY, LONGEST_UNPACKED, NO_EVENTS, Control, StreamEnd
from kindlm.team.withholding import UploadNow, Withholding, recorded_rule
from kindlm_store import StoreError, open_reader
from kindlm_store.canonical import hash_text

_ENDS = "SELECT name, version, head FROM streams ORDER BY id"
_PLANNED = "SELECT 1 FROM suites WHERE run = ?"

_LOCAL_JOURNALS = """
SELECT DISTINCT stream FROM event_log WHERE type IN ('contents.purged', 'streams.pulled')
"""
"""Journals about this history alone are not pushed: others cannot erase texts on a server."""

_OF_A_RUN = (404, 409, 413, 422)
"""HTTP statuses about one run; after any other failure, no further run is tried."""

_FINAL = (401, 403, *_OF_A_RUN)
"""HTTP statuses that a repeated request would get again."""

_LOOK_S = 0.5
_MANY_EVENTS = 200
_LAST_TRIES_S = 6.0
_LAST_TRIES_OF_WORKER_S = 30.0
"""Longer, since another worker would repeat, and pay again, what this one cannot push."""

_LONELY_S = 60.0


@dataclass(slots=True)
class Pushed:
    """The results of a push.

    Attributes:
        added: Number of events that are new on the server.
        known: Number of events that the server had already.
        filled: Number of texts that were withheld on the server and are there now.
        withheld: Whether all content of a run was withheld by its settings.
        redacts: Whether content that patterns match was withheld.
        failed: By run, why it is not, or not completely, on the server.
    """

    added: int = 0
    known: int = 0
    filled: int = 0
    withheld: bool = False
    redacts: bool = False
    failed: dict[str, KindlmError] = field(default_factory=dict)


@dataclass(slots=True)
class Push:
    """Sends recorded runs, with the runs and journals that belong to them.

    Attributes:
        texts: Whether to send content that the settings of a run exclude.
        also: Settings that apply besides those of the runs.
        now: Returns current settings of suites whose recorded ones are lost, used with `texts`.
        on_sent: Gets the results so far after each body.
        on_control: Gets a coordinator's orders. Only a worker has it. A worker withholds nothing,
            since the coordinator's history is the user's own.
        heads: Where streams end on the server, as far as known.
    """

    client: HistoryClient
    db: sqlite3.Connection
    texts: bool
    also: Sequence[Upload] = ()
    now: UploadNow = lambda *_: None
    on_sent: Callable[[Pushed], None] = lambda _: None
    on_control: Callable[[Control], None] | None = None
    pushed: Pushed = field(default_factory=Pushed)
    heads: dict[str, StreamEnd] = field(default_factory=dict)

    def runs(self, runs: Sequence[str] | None, *, again: bool = False) -> Result[Pushed]:
        """Push runs; None stands for all that the server lacks or has only in part.

        `again` sends all events, so that the server fills in withheld texts. An error is that of
        the first request.
        """
        db = self.db
        ends = {
            name: StreamEnd(version, hash_text(head)) for name, version, head in db.execute(_ENDS)
        }
        units = {} if runs is None else {run: streams_of(db, run)[1] for run in runs}
        names = list(dict.fromkeys(name for streams in units.values() for name in streams))
        if runs is None:
            local = {name for (name,) in db.execute(_LOCAL_JOURNALS).fetchall()}
            names = [name for name in ends if name not in local]
        answered = self.client.heads(names)
        if isinstance(answered, Err):
            return answered
        there = answered.value
        self.heads = {} if again else dict(there)
        if runs is None:
            # Also streams with more events on the server: they may differ from those here.
            behind = [name for name in names if there.get(name) != ends[name]]
            ids = [name.removeprefix("run/") for name in behind if name.startswith("run/")]
            units = {run: streams_of(db, run)[1] for run in ids}
            carried = {name for streams in units.values() for name in streams}
            # Journals with new notes on runs that the server has already.
            units |= {name: [name] for name in behind if name not in carried}
        self.pushed.known = sum(min(there[name].version, ends[name].version) for name in there)
        self.pushed.failed = {}
        for run, streams in units.items():
            failed = self.run(run, streams)
            if failed is not None:
                self.pushed.failed[run] = failed
                if failed.details.get("status") not in _OF_A_RUN:
                    break
        return Ok(self.pushed)

    def run(self, run: str, streams: Sequence[str]) -> KindlmError | None:
        """Send what the server lacks of a run's streams; return the error if that fails."""
        most = LONGEST_UNPACKED
        rule: Result[Withholding] = Ok(Withholding())
        if self.on_control is None:
            most = LONGEST_BODY
            # A journal may hold notes on runs with stricter settings.
            runs = {run: None for name in streams for run in runs_of_stream(self.db, name)}
            rule = recorded_rule(self.db, [*runs], self.also, self.now, texts=self.texts)
        if isinstance(rule, Err):
            return rule.error
        ends = {name: _end_of(self.db, name) for name in streams}
        try:
            for body in bodies(self.db, run, streams, self.heads, rule.value, most):
                self.pushed.withheld |= rule.value.has_withheld
                self.pushed.redacts |= rule.value.redacts
                answered = self.client.send(body)
                if isinstance(answered, Err):
                    return answered.error
                self.pushed.added += answered.value.added
                self.pushed.filled += answered.value.filled
                self.on_sent(self.pushed)
                if self.on_control is not None:
                    self.on_control(answered.value.control)
        except NotSentError as error:
            why = f"Run {run} was not sent whole: {error}."
            hint = "No part of an event can be left out: the rest of the run stays here."
            if rule.value.every_text and not self.texts:
                hint += " To send it with all its content: kindlm push RUN --texts"
            return KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, why, hint, details={"status": 422})
        # Events recorded meanwhile may have arrived, too; sending them again is harmless.
        self.heads |= ends
        return None


@dataclass(eq=False)
class LivePush:
    """Pushes a run while it is recorded, and the rest of it when the context ends.

    Failures meanwhile are not reported, since later pushes send what is missing. A worker also
    pushes empty bodies, so that the coordinator knows that it is alive.

    Attributes:
        push_of: Returns the push for a reader of the history. Its client, which has no patience, is
            closed at the end.
        every_s: Seconds between pushes, unless 200 events come sooner.
        on_refused: Gets the error if a worker cannot push any more, such as after a lost lease.
        error: Why not everything arrived, None if it did.
    """

    path: Path
    run: str
    push_of: Callable[[sqlite3.Connection], Push]
    every_s: float = 5.0
    on_refused: Callable[[KindlmError], None] = lambda _: None
    pushed: Pushed = field(default_factory=Pushed, init=False)
    error: KindlmError | None = field(init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    # In Python 3.11, a thread counts as ended after Ctrl-C interrupted a join.
    _done: threading.Event = field(default_factory=threading.Event, init=False)

    def __enter__(self) -> Self:
        self.error = _failed("it has not begun")
        threading.Thread(target=self._work, name="kindlm-push", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Push the rest while the server answers; give up on Ctrl-C."""
        self._ended.set()
        try:
            while not self._done.wait(0.1):
                pass
        except KeyboardInterrupt:
            self.error = _failed("it was interrupted")

    def _work(self) -> None:
        try:
            with closing(open_reader(self.path)) as db:
                push = self.push_of(db)
                self.pushed = push.pushed
                with closing(push.client):
                    if self._push_meanwhile(push):
                        self._push_rest(push)
        except (sqlite3.Error, StoreError) as error:
            self.error = _failed(f"the history cannot be read: {error}")
        finally:
            self._done.set()

    def _push_meanwhile(self, push: Push) -> bool:
        """Push recorded events until the run ends; return False after a final error."""
        pushed_at = heard_at = time.monotonic()
        looked_at = 0
        stream = f"run/{self.run}"
        while not self._ended.wait(min(_LOOK_S, self.every_s)):
            end = _end_of(push.db, stream)
            now = time.monotonic()
            if now - pushed_at < self.every_s and end.version - looked_at < _MANY_EVENTS:
                continue
            failed = self._push_new(push, stream, end)
            pushed_at, looked_at = time.monotonic(), end.version
            if failed is None:
                heard_at = pushed_at
            elif self._is_over(failed, push):
                return False
            elif push.on_control is not None and pushed_at - heard_at > _LONELY_S:
                push.on_control(Control("the coordinator does not answer", at_once=True))
        return True

    def _push_new(self, push: Push, stream: str, end: StreamEnd) -> KindlmError | None:
        """Push new events, or report that a worker is alive; return the error if that fails."""
        if stream not in push.heads:
            answered = push.client.heads([stream])
            if isinstance(answered, Err):
                return answered.error
            push.heads[stream] = answered.value.get(stream, NO_EVENTS)
        is_planned = push.db.execute(_PLANNED, (self.run,)).fetchone() is not None
        if end.version and is_planned and push.heads[stream] != end:
            failed = push.run(self.run, [stream])
            if failed is not None:
                del push.heads[stream]  # some of several bodies may have arrived
            return failed
        if push.on_control is not None:
            beat = push.client.send(b"")
            if isinstance(beat, Err):
                return beat.error
            push.on_control(beat.value.control)
        return None

    def _push_rest(self, push: Push) -> None:
        """Push everything that belongs to the run; repeat failed tries for some seconds."""
        if not _end_of(push.db, f"run/{self.run}").version:
            # The disk may be full.
            why = "The run was not pushed: nothing of it was recorded."
            self.error = KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, why)
            return
        patience_s = _LAST_TRIES_S if push.on_control is None else _LAST_TRIES_OF_WORKER_S
        until = time.monotonic() + patience_s
        while True:
            done = push.runs([self.run])
            self.error = done.error if isinstance(done, Err) else self.pushed.failed.get(self.run)
            if self.error is None or self._is_over(self.error, push) or time.monotonic() > until:
                return
            time.sleep(_LOOK_S)

    def _is_over(self, failed: KindlmError, push: Push) -> bool:
        """Return whether an error is final; if so, report it."""
        if failed.details.get("status") not in _FINAL:
            return False
        self.error = failed
        if push.on_control is not None:
            self.on_refused(failed)
        return True


def _failed(why: str) -> KindlmError:
    hint = "The run is recorded; push it later."
    return KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, f"The run was not pushed: {why}.", hint)


def _end_of(db: sqlite3.Connection, stream: str) -> StreamEnd:
    row = db.execute("SELECT version, head FROM streams WHERE name = ?", (stream,)).fetchone()
    return NO_EVENTS if row is None else StreamEnd(row[0], hash_text(row[1]))
