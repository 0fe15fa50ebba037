"""Pulls runs from a history server: fetches, checks and takes each run as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile

from kindlm.bounds import MAX_LISTED_RUNS
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events.codec import new_event
from kindlm.events.run import StreamsPulled
from kindlm.history.runs import Run, RunFilter, runs
from kindlm.recording.history_file import new_journal, open_log
from kindlm.team.bodies import take_body
from kindlm.team.client import HistoryClient, ListedRun
from kindlm.team.protocol import ApiError, PushAnswer
from kindlm_store import Append, OpenError

_HINTS = {
    409: "It continued in both histories: pull it into another one (--db).",
    422: "Nothing of it was taken. Run kindlm history verify on the server.",
}

_MOST = 500
"""The number of the branch's newest runs to consider first; each shard of a group counts."""


def pull_run(
    client: HistoryClient, database: Path, run: str, *, trusted: bool = False
) -> Result[PushAnswer]:
    """Fetch a run, with everything that belongs to it, into a history; create that if necessary.

    Existing events stay, and nothing is erased. Unless the server is `trusted`, the history notes
    what came from it: see `StreamsPulled`.

    Raises:
        OpenError: The history cannot be opened.
    """

    def allowed(streams: Collection[str]) -> None:
        if f"run/{run}" not in streams:
            raise ApiError(422, "The server sent another run.")

    def note(streams: Mapping[str, int]) -> Append:
        return Append(new_journal(), [new_event(StreamsPulled(streams=streams))])

    with TemporaryFile() as file:
        fetched = client.fetch(run, file)
        if isinstance(fetched, Err):
            return fetched
        file.seek(0)
        with open_log(database) as log:
            try:
                taken = take_body(log, file, allowed=allowed, note=None if trusted else note)
            except ApiError as refused:
                message = f"Run {run} was not taken: {refused.message}"
                hint, details = _HINTS.get(refused.status), {"status": refused.status}
                error = KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, message, hint, details=details)
                return Err(error)
    return Ok(taken)


def pull_newest(
    client: HistoryClient, db: sqlite3.Connection, path: Path, branch: str, after: Run
) -> Result[list[str]]:
    """Pull the newest run, or group, of a branch that can be compared with a run; return new runs.

    `path` is the file of the history that `db` reads. `after` may be a group as one run.
    """
    chosen = list[str]()
    for most in (_MOST, MAX_LISTED_RUNS):
        listed = client.runs(most, project=after.project, branch=branch)
        if isinstance(listed, Err):
            return listed
        chosen = _newest(listed.value, after)
        if chosen or len(listed.value) < most:
            break
    here = {run.id for run in runs(db, RunFilter(ids=chosen, completed=True))}
    pulled = [run for run in chosen if run not in here]
    for run in pulled:
        try:
            taken = pull_run(client, path, run)
        except OpenError as error:
            why = f"the history here {error.reason.rstrip('.')}"
            message = f"No run of the history server {client.base} could be used: {why}."
            hint = "Check the server, and that both sides have the same version of kindlm."
            return Err(KindlmError(ErrorCode.CLOUD_UPLOAD_ERROR, message, hint))
        if isinstance(taken, Err):
            return taken
    return Ok(pulled)


def _newest(rows: Iterable[ListedRun], after: Run) -> list[str]:
    """Return the newest run of a list, or all shards of the newest group; [] if none fits.

    A run with uncommitted changes does not show the branch, so it counts only if no other fits. A
    CI job may change files itself.
    """
    units: dict[tuple[str, str], dict[str, ListedRun]] = {}
    for row in rows:
        shares_suite = row.suites is None or not set(row.suites).isdisjoint(after.suites)
        is_other = row.run != after.id and (row.group is None or row.group != after.group_id)
        if row.mode != "live" or row.ended != "finished" or not (shares_suite and is_other):
            continue
        if row.shard is None or after.shard is not None:
            if row.shard == after.shard:
                units["run", row.run] = {"1/1": row}
        elif row.group is not None:
            # The newest run of a shard counts.
            units.setdefault(("group", row.group), {}).setdefault(row.shard, row)
    whole = [
        list(unit.values())
        for unit in units.values()
        if len(unit) == int(next(iter(unit)).rpartition("/")[2])
    ]
    newest = min(
        whole, key=lambda unit: any(row.dirty and row.ci is None for row in unit), default=[]
    )
    return [row.run for row in newest]
