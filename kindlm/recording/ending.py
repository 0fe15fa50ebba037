"""The end of a run that was completed: its verdict, and the seal."""

from __future__ import annotations

import asyncio
from contextlib import closing

from kindlm.events import RunSealed, new_event
from kindlm.history.run_view import RunView
from kindlm.recording.journal import new_journal
from kindlm.recording.run_events import run_finished
from kindlm_store import Append, EventLog, HeadOf

__all__ = ["finish_run"]


async def finish_run(run: str, log: EventLog, duration_ms: float) -> None:
    """Compute the verdict from the read models, record it, and seal the run.

    Not if the tables can not be trusted, also when they are computed anew: a verdict from tables
    that miss what happened would be sealed for good.
    """
    if log.projection_errors():
        await asyncio.to_thread(log.rebuild)
    if log.projection_errors():
        return
    with closing(log.reader()) as reader:
        finished = run_finished(RunView(reader, run), duration_ms)
    stream = f"run/{run}"
    await log.submit(
        Append(stream, (new_event(finished),), seal=True),
        Append(new_journal(), (new_event(RunSealed(run=run, head=HeadOf(stream))),)),
    )
