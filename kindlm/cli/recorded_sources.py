"""What a derived run takes from the run that it is derived from."""

from __future__ import annotations

import sqlite3
from functools import partial

from kindlm.cli.run_request import Derived
from kindlm.history.recorded_answers import RecordedJudgements
from kindlm.history.transcripts import RecordedTranscripts
from kindlm.ports import AnswerSource, TranscriptSource

__all__ = ["recorded_sources"]


def recorded_sources(
    derived: Derived | None, db: sqlite3.Connection
) -> tuple[TranscriptSource | None, AnswerSource | None]:
    """Return where conversations and answers come from; None is for what a live run does."""
    if derived is None:
        return None, None
    return RecordedTranscripts(db, derived.run), partial(RecordedJudgements, db, derived.run)
