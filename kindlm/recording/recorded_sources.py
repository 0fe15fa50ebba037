"""What a run takes from earlier ones: from the one that it is derived from, or from all."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.recorded_answers import (
    CachedAnswers,
    RescoredAnswers,
    earlier_runs,
    runs_related_to,
)
from kindlm.history.recorded_attempts import RecordedTranscripts
from kindlm.history.replayed_answers import ReplayedAnswers, ReplayedRun
from kindlm.ports import AnswerSource, Embedder, TranscriptSource
from kindlm.providers.embedders import find_embedder
from kindlm.recording.request import Derived, RunRequest
from kindlm.suite import Suite


def recorded_sources(
    request: RunRequest, run: str, db: sqlite3.Connection
) -> tuple[TranscriptSource | None, AnswerSource | None]:
    """Return where conversations and answers come from; None is for what a live run does.

    `run` is the run that is requested.
    """
    derived = request.derived
    if derived is None:
        earlier = cache(partial(earlier_runs, db, run))
        return None, partial(CachedAnswers, db, earlier) if request.options.cache else None
    if derived.mode == "replayed":
        replayed = ReplayedRun(db, derived.run, asks_judges=derived.asks_judges)
        return None, partial(ReplayedAnswers, replayed)
    rescored = partial(RescoredAnswers, db, runs_related_to(db, derived.run))
    return RecordedTranscripts(db, derived.run), rescored


def embedder(
    derived: Derived | None, environ: Mapping[str, str], suite: Suite, target: str
) -> Result[Embedder]:
    """Find the embedder for a suite; vectors are not recorded, so they are computed anew.

    Where nobody is to be called, only a local model can.
    """
    if derived is None or derived.asks_judges:
        return find_embedder(suite, target, environ=environ)
    local = find_embedder(replace(suite, providers={}), target, environ=environ)
    if isinstance(local, Ok):
        return local
    message = "Embeddings are not recorded, and a replayed run calls nobody."
    hint = (
        "Use method: judge or field-diff, name a local model in KINDLM_EMBEDDING_MODEL, or let"
        " the provider be called: --judge live"
    )
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
