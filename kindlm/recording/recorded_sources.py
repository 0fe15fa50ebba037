"""What a run takes from earlier ones: from the one that it is derived from, or from all."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.history.recorded_answers import (
    CachedAnswers,
    EarlierRuns,
    ReplayedAnswers,
    ReplayedRun,
    RescoredAnswers,
    runs_related_to,
)
from kindlm.history.recorded_attempts import RecordedTranscripts
from kindlm.ports import AnswerSource, Embedder, EmbedderFactory, TranscriptSource
from kindlm.providers.embedders import find_embedder
from kindlm.recording.request import Derived, RunRequest
from kindlm.suite import Suite

__all__ = ["embedders", "recorded_sources"]


def recorded_sources(
    request: RunRequest, run: str, db: sqlite3.Connection
) -> tuple[TranscriptSource | None, AnswerSource | None]:
    """Return where conversations and answers come from; None is for what a live run does.

    `run` is the run that is requested.
    """
    derived = request.derived
    if derived is None:
        cache = partial(CachedAnswers, EarlierRuns(db, run))
        return None, cache if request.options.cache else None
    if derived.mode == "replayed":
        replayed = ReplayedRun(db, derived.run, asks_judges=derived.asks_judges)
        return None, partial(ReplayedAnswers, replayed)
    rescored = partial(RescoredAnswers, db, runs_related_to(db, derived.run))
    return RecordedTranscripts(db, derived.run), rescored


def embedders(derived: Derived | None, environ: Mapping[str, str]) -> EmbedderFactory:
    """Return what finds embedders; vectors are not recorded, so that they are computed anew.

    Where nobody is to be called, only a local model can.
    """
    found = partial(find_embedder, environ=environ)
    if derived is None or derived.asks_judges:
        return found

    def local(suite: Suite, target: str) -> Result[Embedder]:
        embedder = found(replace(suite, providers={}), target)
        return Err(_not_recorded()) if isinstance(embedder, Err) else embedder

    return local


def _not_recorded() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "Embeddings are not recorded, and a replayed run calls nobody.",
        "Use method: judge or field-diff, name a local model in KINDLM_EMBEDDING_MODEL, or let"
        " the provider be called: --judge live",
    )
