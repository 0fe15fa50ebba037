"""Pushes runs to a history server: recorded ones, or one that is still running.

It does not send what is there already. A run that the server refuses does not stop others.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.runs import streams_of
from kindlm.suite import Upload
from kindlm.team.bodies import NotSentError, bodies
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import LONGEST_BODY, LONGEST_UNPACKED, NO_EVENTS, Control, StreamEnd
from kindlm.team.withholding import UploadNow, Withholding, gone, recorded_rule
from kindlm.wording import count
from kindlm_store import StoreError, open_reader
from kindlm_store.canonical import hash_text

_ENDS = "SELECT name, version, head FROM streams ORDER BY id"
_PLANNED = "SELECT 1 FROM suites WHERE run = ?"

_OURS = """
SELECT DISTINCT stream FROM event_log WHERE type IN ('contents.purged', 'streams.pulled')
"""
"""Journals about this history alone, which stay here: a server does not let others erase."""

_OF_A_RUN = (404, 409, 413, 422)
"""Statuses that are about one run. After another failure, no other run is tried."""

_FINAL = (401, 403, *_OF_A_RUN)
"""Statuses that the same request would get again."""

_LOOK_S = 0.5
_MANY_EVENTS = 200
_LAST_TRIES_S = 6.0
_LAST_TRIES_OF_WORKER_S = 30.0
"""What a worker could not push is run again, and paid again."""

_LONELY_S = 60.0


@dataclass(slots=True)
class Pushed:
    """What became of runs.

    Attributes:
        added: Events that are on the server now and were not before.
        known: Events that were there already.
        filled: Texts that were withheld there and are there now.
        withheld: Whether all content of a run stays here by its settings.
        redacts: Whether content stays here that patterns of a run match.
        too_large: Number of texts that stay here, each of an event with more than a server takes.
        failed: Run → why it is not on the server, or not all of it.
    """

    added: int = 0
    known: int = 0
    filled: int = 0
    withheld: bool = False
    redacts: bool = False
    too_large: int = 0
    failed: dict[str, KindlmError] = field(default_factory=dict)


@dataclass(slots=True)
class Push:
    """Sends recorded runs, with the runs and journals that belong to them.

    Attributes:
        client: The server.
        db: A reader of the history.
        texts: Whether content is sent, even if the settings of a run do not include it.
        also: Settings that hold beside those of the runs.
        now: Has the settings of suites whose recorded ones are lost, if `texts` are asked for.
        tell: Hears of each body that has arrived.
        on_control: Hears what a coordinator says. A worker has it, and withholds nothing: the
            history of the coordinator is the user's own.
        pushed: What has become of the runs until now.
        heads: Where the streams end on the server, as far as that was asked.
    """

    client: HistoryClient
    db: sqlite3.Connection
    texts: bool
    also: Sequence[Upload] = ()
    now: UploadNow = gone
    tell: Callable[[str], None] = lambda _: None
    on_control: Callable[[Control], None] | None = None
    pushed: Pushed = field(default_factory=Pushed)
    heads: dict[str, StreamEnd] = field(default_factory=dict)

    def runs(self, runs: Sequence[str] | None, *, again: bool = False) -> Result[Pushed]:
        """Push runs.

        Args:
            runs: Their ids; None for all that the server does not have whole.
            again: Whether all of them is sent, so that the server fills what was withheld.

        Returns:
            What has become of them, or why the server could not be asked.
        """
        db = self.db
        ends = {
            name: StreamEnd(version, hash_text(head)) for name, version, head in db.execute(_ENDS)
        }
        units = {} if runs is None else {run: streams_of(db, run)[1] for run in runs}
        names = list(dict.fromkeys(name for streams in units.values() for name in streams))
        if runs is None:
            ours = {name for (name,) in db.execute(_OURS).fetchall()}
            names = [name for name in ends if name not in ours]
        answered = self.client.heads(names)
        if isinstance(answered, Err):
            return answered
        there = answered.value
        self.heads = {} if again else dict(there)
        if runs is None:
            # Also where the server has more: it may have gone on from ours, or apart from them.
            behind = [name for name in names if there.get(name) != ends[name]]
            ids = [name.removeprefix("run/") for name in behind if name.startswith("run/")]
            units = {run: streams_of(db, run)[1] for run in ids}
            carried = {name for streams in units.values() for name in streams}
            # Of runs that are there already, somebody has noted more.
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
        """Send what the server lacks of the streams of a run; return why that failed."""
        ids = [name.removeprefix("run/") for name in streams if name.startswith("run/")]
        most, tell = LONGEST_UNPACKED, None
        rule: Result[Withholding] = Ok(Withholding())
        if self.on_control is None:
            most, tell = LONGEST_BODY, self._too_large
            rule = recorded_rule(self.db, ids, self.also, self.now, texts=self.texts)
        if isinstance(rule, Err):
            return rule.error
        ends = {name: _end_of(self.db, name) for name in streams}
        try:
            for body in bodies(self.db, run, streams, self.heads, rule.value, most, tell=tell):
                self.pushed.withheld |= rule.value.has_withheld
                self.pushed.redacts |= rule.value.redacts
                answered = self.client.send(body)
                if isinstance(answered, Err):
                    return answered.error
                self.pushed.added += answered.value.added
                self.pushed.filled += answered.value.filled
                if self.on_control is not None:
                    self.on_control(answered.value.control)
                self.tell(f"{count(self.pushed.added, 'event')} pushed …")
        except NotSentError as error:
            why = f"Run {run} was not sent whole: {error}."
            hint = "What an event itself holds cannot be left out: the rest of the run stays here."
            return KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, why, hint, details={"status": 422})
        # What was recorded since may have arrived, too: then it is sent again.
        self.heads |= ends
        return None

    def _too_large(self, texts: int) -> None:
        self.pushed.too_large += texts


@dataclass(eq=False)
class LivePush:
    """Pushes a run while it goes on, and the rest of it when the context ends.

    Failures meanwhile are quiet: what has not arrived is sent later. With a lease, the server also
    hears of this process while nothing happens, and what it says is obeyed.

    Attributes:
        client: The server, not patient; its connections are closed in the end.
        path: The history.
        run: Id of the run.
        texts: Whether content is sent, even if the settings of the run do not include it.
        also: Settings that hold beside those of the run: its suites may have others by now.
        every_s: How often it is pushed, unless 200 events come sooner.
        on_control: Hears what a coordinator says; a worker has it, and so a lease.
        on_refused: Hears why a worker cannot push any more, such as that another one has the shard.
        pushed: What has arrived in the end.
        error: Why not all of it has; None if it has.
    """

    client: HistoryClient
    path: Path
    run: str
    _: KW_ONLY
    texts: bool
    also: Sequence[Upload] = ()
    every_s: float = 5.0
    on_control: Callable[[Control], None] | None = None
    on_refused: Callable[[KindlmError], None] = lambda _: None
    pushed: Pushed = field(default_factory=Pushed, init=False)
    error: KindlmError | None = field(init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    # Python 3.11 takes a thread for ended if Ctrl-C comes while it is joined.
    _done: threading.Event = field(default_factory=threading.Event, init=False)

    def __enter__(self) -> Self:
        """Begin to push."""
        self.error = _failed("it has not begun")
        threading.Thread(target=self._work, name="kindlm-push", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Push what is left, as long as the server answers; Ctrl-C gives up."""
        self._ended.set()
        try:
            while not self._done.wait(0.1):
                pass
        except KeyboardInterrupt:
            self.error = _failed("it was interrupted")

    def _work(self) -> None:
        try:
            with closing(self.client), closing(open_reader(self.path)) as db:
                push = Push(
                    self.client, db, self.texts, self.also,
                    on_control=self.on_control, pushed=self.pushed,
                )  # fmt: skip
                if self._push_meanwhile(push):
                    self._push_rest(push)
        except (sqlite3.Error, StoreError) as error:
            self.error = _failed(f"the history cannot be read: {error}")
        finally:
            self._done.set()

    def _push_meanwhile(self, push: Push) -> bool:
        """Push what is recorded, until the run ends; return whether the rest can be pushed."""
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
            elif self._is_over(failed):
                return False
            elif self.on_control is not None and pushed_at - heard_at > _LONELY_S:
                self.on_control(Control("the coordinator does not answer", at_once=True))
        return True

    def _push_new(self, push: Push, stream: str, end: StreamEnd) -> KindlmError | None:
        """Push what has been recorded since; return why that failed."""
        if stream not in push.heads:
            answered = self.client.heads([stream])
            if isinstance(answered, Err):
                return answered.error
            push.heads[stream] = answered.value.get(stream, NO_EVENTS)
        is_planned = push.db.execute(_PLANNED, (self.run,)).fetchone() is not None
        if end.version and is_planned and push.heads[stream] != end:
            failed = push.run(self.run, [stream])
            if failed is not None:
                del push.heads[stream]  # some of several bodies may have arrived
            return failed
        if self.on_control is not None:
            beat = self.client.send(b"")
            if isinstance(beat, Err):
                return beat.error
            self.on_control(beat.value.control)
        return None

    def _push_rest(self, push: Push) -> None:
        """Push all that belongs to the run, with patience."""
        patience_s = _LAST_TRIES_S if self.on_control is None else _LAST_TRIES_OF_WORKER_S
        until = time.monotonic() + patience_s
        while True:
            done = push.runs([self.run])
            self.error = done.error if isinstance(done, Err) else self.pushed.failed.get(self.run)
            if self.error is None or self._is_over(self.error) or time.monotonic() > until:
                return
            time.sleep(_LOOK_S)

    def _is_over(self, failed: KindlmError) -> bool:
        """Return whether a failure is the end of it."""
        if failed.details.get("status") not in _FINAL:
            return False
        self.error = failed
        if self.on_control is not None:
            self.on_refused(failed)
        return True


def _failed(why: str) -> KindlmError:
    hint = "The run is recorded; push it later."
    return KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, f"The run was not pushed: {why}.", hint)


def _end_of(db: sqlite3.Connection, stream: str) -> StreamEnd:
    row = db.execute("SELECT version, head FROM streams WHERE name = ?", (stream,)).fetchone()
    return NO_EVENTS if row is None else StreamEnd(row[0], hash_text(row[1]))
