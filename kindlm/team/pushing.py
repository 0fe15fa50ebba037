"""Pushing runs to a history server: those that are recorded, or one that goes on.

What is there already is not sent again. A run that the server refuses stops no other.
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
from kindlm.recording.run_streams import streams_of
from kindlm.suite import Upload
from kindlm.team.bodies import NotSentError, bodies
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import LONGEST_BODY, LONGEST_UNPACKED, Control, StreamEnd
from kindlm.team.withholding import UploadNow, gone, recorded_rule
from kindlm.wording import count
from kindlm_store import StoreError, open_reader
from kindlm_store.canonical import hash_text

_ENDS = "SELECT name, version, head FROM streams ORDER BY id"
_END = "SELECT version, head FROM streams WHERE name = ?"
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


def push_runs(
    client: HistoryClient,
    db: sqlite3.Connection,
    runs: Sequence[str] | None,
    *,
    texts: bool,
    also: Sequence[Upload] = (),
    now: UploadNow = gone,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    on_control: Callable[[Control], None] | None = None,
) -> Result[Pushed]:
    """Push recorded runs, with the runs and journals that belong to them.

    Args:
        client: The server.
        db: A reader of the history.
        runs: Ids of the runs; None for all that the server does not have whole.
        texts: Whether content is sent, even if the settings of a run do not include it.
        also: Settings that hold beside those of the runs.
        now: Has the settings of suites whose recorded ones are lost, if `texts` are asked for.
        again: Whether all of the runs is sent, so that the server fills what was withheld.
        tell: Hears of each body that has arrived.
        on_control: Hears what a coordinator says. A worker has it, and withholds nothing.

    Returns:
        What became of them, or why the server could not be asked.
    """
    rows = db.execute(_ENDS).fetchall()
    ends = {name: StreamEnd(version=version, hash=hash_text(head)) for name, version, head in rows}
    units = {} if runs is None else {run: streams_of(db, run)[1] for run in runs}
    names = list(dict.fromkeys(name for streams in units.values() for name in streams))
    if runs is None:
        ours = {name for (name,) in db.execute(_OURS).fetchall()}
        names = [name for name in ends if name not in ours]
    answered = client.heads(names)
    if isinstance(answered, Err):
        return answered
    heads = answered.value
    # Also where the server has more: it may have gone on from ours, or apart from them.
    behind = [name for name in names if heads.get(name) != ends[name]]
    if runs is None:
        units = {
            name.removeprefix("run/"): streams_of(db, name.removeprefix("run/"))[1]
            for name in behind
            if name.startswith("run/")
        }
        carried = {name for streams in units.values() for name in streams}
        # Of runs that are there already, somebody has noted more.
        units |= {name: [name] for name in behind if name not in carried}
    there = (min(heads[name].version, ends[name].version) for name in names if name in heads)
    push = _Push(
        client, db, {} if again else heads, Pushed(known=sum(there)), texts, tell,
        also=also, now=now, on_control=on_control,
    )  # fmt: skip
    for run, streams in units.items():
        failed = push.run(run, streams)
        if failed is not None:
            push.pushed.failed[run] = failed
            if failed.details.get("status") not in _OF_A_RUN:
                break
    return Ok(push.pushed)


@dataclass(slots=True)
class _Push:
    """Sends the streams of one run after the other, each stream once."""

    client: HistoryClient
    db: sqlite3.Connection
    heads: dict[str, StreamEnd]
    pushed: Pushed
    texts: bool
    tell: Callable[[str], None] = lambda _: None
    also: Sequence[Upload] = ()
    now: UploadNow = gone
    on_control: Callable[[Control], None] | None = None
    sent: set[str] = field(default_factory=set)

    def run(self, run: str, streams: Sequence[str]) -> KindlmError | None:
        """Send what the server lacks of a run; return why that failed."""
        ids = [name.removeprefix("run/") for name in streams if name.startswith("run/")]
        rule = recorded_rule(self.db, ids, self.also, self.now, texts=self.texts)
        if self.on_control is not None:
            rule = Ok(None)  # The history of the coordinator is the user's own.
        if isinstance(rule, Err):
            return rule.error
        left = [name for name in streams if name not in self.sent]
        is_worker = self.on_control is not None
        most = LONGEST_UNPACKED if is_worker else LONGEST_BODY
        tell = None if is_worker else self._too_large
        made = bodies(self.db, run, left, self.heads, rule.value, most, tell=tell)
        try:
            for body in made:
                if rule.value is not None:
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
        self.sent.update(left)
        return None

    def _too_large(self, texts: int) -> None:
        self.pushed.too_large += texts


class LivePush:
    """Pushes a run while it goes on, and the rest of it when the context ends.

    Failures meanwhile are quiet: what has not arrived is sent later. With a lease, the server also
    hears of this process while nothing happens, and what it says is obeyed.

    Args:
        client: The server, not patient; its connections are closed in the end.
        path: The history.
        run: Id of the run.
        texts: Whether content is sent, even if the settings of the run do not include it.
        also: Settings that hold beside those of the run: its suites may have others by now.
        every_s: How often it is pushed, unless 200 events come sooner.
        on_control: Hears what a coordinator says; a worker has it, and so a lease.
        on_refused: Hears why a worker cannot push any more, such as that another one has the shard.

    Attributes:
        pushed: What has arrived in the end.
        error: Why not all of it has; None if it has.
    """

    def __init__(
        self,
        client: HistoryClient,
        path: Path,
        run: str,
        *,
        texts: bool,
        also: Sequence[Upload] = (),
        every_s: float = 5.0,
        on_control: Callable[[Control], None] | None = None,
        on_refused: Callable[[KindlmError], None] = lambda _: None,
    ) -> None:
        self.pushed = Pushed()
        self.error: KindlmError | None = _failed("it has not begun")
        self._client = client
        self._path = path
        self._run = run
        self._stream = f"run/{run}"
        self._texts = texts
        self._also = also
        self._every_s = every_s
        self._on_control = on_control
        self._on_refused = on_refused
        self._last_tries_s = _LAST_TRIES_S if on_control is None else _LAST_TRIES_OF_WORKER_S
        self._there: StreamEnd | None = None
        self._ended = threading.Event()
        # Python 3.11 takes a thread for ended if Ctrl-C comes while it is joined.
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kindlm-push", daemon=True)

    def __enter__(self) -> Self:
        """Begin to push."""
        self._thread.start()
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
            with closing(self._client):
                self._push()
        except (sqlite3.Error, StoreError) as error:
            self.error = _failed(f"the history cannot be read: {error}")
        finally:
            self._done.set()

    def _push(self) -> None:
        pushed_at = heard_at = time.monotonic()
        looked_at = 0
        with closing(open_reader(self._path)) as db:
            while not self._ended.wait(min(_LOOK_S, self._every_s)):
                version = _end_of(db, self._stream).version
                now = time.monotonic()
                if now - pushed_at < self._every_s and version - looked_at < _MANY_EVENTS:
                    continue
                failed = self._push_new(db)
                pushed_at, looked_at = time.monotonic(), version
                if failed is None:
                    heard_at = pushed_at
                elif self._is_over(failed):
                    return
                elif self._on_control is not None and pushed_at - heard_at > _LONELY_S:
                    self._on_control(Control("the coordinator does not answer", at_once=True))
            self._push_rest(db)

    def _push_new(self, db: sqlite3.Connection) -> KindlmError | None:
        """Push what has been recorded since; return why that failed."""
        if self._there is None:
            answered = self._client.heads([self._stream])
            if isinstance(answered, Err):
                return answered.error
            self._there = answered.value.get(self._stream, StreamEnd())
        end = _end_of(db, self._stream)
        is_planned = db.execute(_PLANNED, (self._run,)).fetchone() is not None
        if not (end.version and is_planned) or self._there == end:
            return self._beat()
        push = _Push(
            self._client, db, {self._stream: self._there}, self.pushed, self._texts,
            also=self._also, on_control=self._on_control,
        )  # fmt: skip
        failed = push.run(self._run, [self._stream])
        # What has arrived of several bodies is not known here. What was recorded since the end was
        # read may have arrived, too: it is sent again.
        self._there = end if failed is None else None
        return failed

    def _beat(self) -> KindlmError | None:
        """Say that this worker is alive, if it is one."""
        if self._on_control is None:
            return None
        answered = self._client.send(b"")
        if isinstance(answered, Err):
            return answered.error
        self._on_control(answered.value.control)
        return None

    def _push_rest(self, db: sqlite3.Connection) -> None:
        """Push all that belongs to the run, with patience."""
        until = time.monotonic() + self._last_tries_s
        while True:
            done = push_runs(
                self._client, db, [self._run],
                texts=self._texts, also=self._also, on_control=self._on_control,
            )  # fmt: skip
            if isinstance(done, Ok):
                self.error = done.value.failed.get(self._run)
                done.value.added += self.pushed.added
                done.value.withheld |= self.pushed.withheld
                done.value.redacts |= self.pushed.redacts
                self.pushed = done.value
            else:
                self.error = done.error
            if self.error is None or self._is_over(self.error) or time.monotonic() > until:
                return
            time.sleep(_LOOK_S)

    def _is_over(self, failed: KindlmError) -> bool:
        """Return whether a failure is the end of it."""
        status = failed.details.get("status")
        if status not in _FINAL:
            return False
        self.error = failed
        if self._on_control is not None:
            self._on_refused(failed)
        return True


def _failed(why: str) -> KindlmError:
    hint = "The run is recorded; push it later."
    return KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, f"The run was not pushed: {why}.", hint)


def _end_of(db: sqlite3.Connection, stream: str) -> StreamEnd:
    row = db.execute(_END, (stream,)).fetchone()
    return StreamEnd() if row is None else StreamEnd(version=row[0], hash=hash_text(row[1]))
