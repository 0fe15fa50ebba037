"""Our own log: one execution of a recorded run."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from kindlm.dataclass import replace
from kindlm.events.execution_events import ProviderRequested
from kindlm.gateway.upstreams import WIRES, sent_body
from kindlm.generate.recorded_suite import Target
from kindlm.generate.recordings import Recording
from kindlm.history.recorded_attempts import PurgedError, RecordedAttempt, transcript_of
from kindlm.history.rows import ExecutionView
from kindlm.outcome import Status
from kindlm.secrecy import HIDDEN
from kindlm.telemetry.dialects import definitions_in
from kindlm.transcript import Role, Step, Transcript
from kindlm.wires.reading import read_request
from kindlm_store import REDACTED


def read_execution(db: sqlite3.Connection, execution: ExecutionView) -> Recording:
    """Return the last attempt of an execution.

    What a model was asked is known of models under test, and of agents whose model calls the
    gateway recorded.
    """
    name, failed = execution.test, execution.status is not Status.PASSED
    attempt = RecordedAttempt(db, execution.source, execution.source_attempt)
    try:
        events = list(attempt.talk())
        said = transcript_of(events)
    except PurgedError:
        return Recording(name, Transcript(), missing="Its texts were purged or withheld.")
    asked = next((each for each in events if isinstance(each, ProviderRequested)), None)
    (tags,) = db.execute("SELECT tags FROM executions WHERE id = ?", (execution.id,)).fetchone()
    recording = Recording(name, said, failed=failed, tags=tuple(json.loads(tags or "[]")))
    if asked is not None:
        recording = replace(
            recording,
            tools=tuple(definitions_in(attempt.tools())),
            provider=asked.provider,
            model=asked.model,
        )
    else:
        recording = _of_agent(recording, attempt)
    if not any(turn.user for turn in said.turns):
        return replace(recording, missing="It has no message of a user.")
    if not said.shows_tools or said.unseen is not None:
        why = said.unseen or "Nothing shows that the agent reports its tool calls."
        return replace(recording, missing=why)
    return recording


def _of_agent(recording: Recording, attempt: RecordedAttempt) -> Recording:
    """Return the recording of an agent, whose answers do not say which calls it made at once."""
    said = recording.transcript
    turns = tuple(
        replace(
            turn,
            steps=tuple(
                each
                for step in turn.steps
                for each in (
                    *(Step("", (use,)) for use in step.tool_uses),
                    replace(step, tool_uses=()),
                )
            ),
        )
        for turn in said.turns
    )
    recording = replace(recording, transcript=replace(said, turns=turns))
    call = next(iter(attempt.model_calls()), None)
    if call is None or call.path not in WIRES:
        return recording
    wire, body = WIRES[call.path], sent_body(call.path, call.body, call.items)
    if not isinstance(body, dict):
        return recording
    system = [each.text for each in read_request(wire, body).messages if each.role is Role.SYSTEM]
    transcript = replace(recording.transcript, system="\n\n".join(system) or None)
    return replace(
        recording,
        transcript=transcript,
        tools=tuple(definitions_in(body.get("tools"))),
        provider=call.path.partition("/")[0],
        model=body.get("model"),
    )


def recorded_target(
    db: sqlite3.Connection, execution: ExecutionView, root: Path, folder: Path
) -> Target:
    """Return what an execution of a kindlm.yaml ran on, for a suite in another folder.

    That is the model of the recording if the configuration cannot be carried over: parts of it were
    secrets, or `serve` starts programs in the folder of the suite. An agent then has to be named.
    """
    nothing = Target()
    row = db.execute(_CONFIG, (execution.suite_id,)).fetchone()
    if row is None or row[0] is None:
        return nothing
    config = json.loads(row[0]).get("config", {})  # an imported run has none
    home = Path(os.path.relpath((root / row[1]).parent, folder)).as_posix()
    for agent in config.get("agents", ()):
        if agent["id"] != execution.target:
            continue
        entry = {key: value for key, value in agent.items() if value not in (False, {}, None)}
        for key in ("path", "cwd"):
            if key in agent or agent["adapter"] == _FOLDERS[key]:
                entry[key] = Path(os.path.normpath(Path(home, agent.get(key, ".")))).as_posix()
        written: dict[str, Any] = {"agents": [entry]}
        if home == "." and config.get("serve"):
            written |= {"serve": config["serve"]}
        elif "{{serve." in json.dumps(written):
            folder = Path(os.path.relpath((root / row[1]).parent))
            return Target(
                why_not=f"Its suite starts the agent: pass --output {folder}, or --agent."
            )
        return nothing if _cannot_move(written) else Target(written, is_agent=True)
    for model in config.get("models", ()):
        if model["id"] == execution.target:
            provider = {model["provider"]: config["providers"][model["provider"]]}
            found = {"providers": provider, "models": [model]}
            return nothing if _cannot_move(found) else Target(found)
    return nothing


_CONFIG = """
SELECT c.body, s.path FROM suites s LEFT JOIN contents c ON c.ref = s.config_ref
 WHERE s.id = ? AND s.front_end = 'kindlm'
"""
_FOLDERS = {"path": "python", "cwd": "subprocess"}
"""Options of agents that are folders, relative to the suite, and whose they are."""


def _cannot_move(written: dict[str, Any]) -> bool:
    text = json.dumps(written)
    return HIDDEN in text or REDACTED in text or ("{{serve." in text and "serve" not in written)
