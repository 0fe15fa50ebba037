"""Pulling a run from a history server: fetched as a whole, checked, and taken as a whole."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import BinaryIO

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.recording.history_file import open_log
from kindlm.recording.secrets import secret_values
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import ApiError, PushAnswer
from kindlm.team.taking import take_body

_HINTS = {
    409: "It went on in both histories: pull it into another one (--db).",
    422: "Nothing of it was taken. Check the server's history: kindlm history verify",
}


def pull_run(client: HistoryClient, database: Path, run: str) -> Result[PushAnswer]:
    """Fetch a run and all that belongs to it into a history; create that if need be.

    What is there already stays, and nothing is erased.

    Raises:
        OpenError: The history cannot be opened.
    """
    with TemporaryFile() as file:
        fetched = client.fetch(run, file)
        if isinstance(fetched, Err):
            return fetched
        if not database.exists():
            # What is refused must leave no history where there was none.
            with TemporaryDirectory(prefix="kindlm-") as folder:
                trial = _take(run, file, Path(folder) / database.name)
            if isinstance(trial, ApiError):
                return Err(_refused(run, trial))
        answer = _take(run, file, database)
    return Err(_refused(run, answer)) if isinstance(answer, ApiError) else Ok(answer)


def _take(run: str, file: BinaryIO, database: Path) -> PushAnswer | ApiError:
    def allowed(streams: Collection[str]) -> ApiError | None:
        if f"run/{run}" in streams:
            return None
        return ApiError(422, "validation_error", "The server sent another run.")

    file.seek(0)
    with open_log(database, secret_values(os.environ, ())) as log:
        return take_body(log, file, allowed=allowed)


def _refused(run: str, refused: ApiError) -> KindlmError:
    message = f"Run {run} was not taken: {refused.message}"
    hint = _HINTS.get(refused.status)
    return KindlmError(
        ErrorCode.CLOUD_UPLOAD_ERROR, message, hint, details={"status": refused.status}
    )
