"""Reads one execution of a recorded run of kindlm."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from kindlm.dataclass import replace
from kindlm.events.execution_events import ProviderRequested
from kindlm.generate.recorded_suite import Target
from kindlm.generate.recordings import Recording
from kindlm.history.recorded_attempts import PurgedError, RecordedAttempt, transcript_of
from kindlm.history.rows import ExecutionView
from kindlm.outcome import Status
from kindlm.secrecy import HIDDEN
from kindlm.telemetry.messages import definitions_in
from kindlm.transcript import Role, Step, Transcript, Turn
from kindlm.wires.reading import WIRES, read_request, sent_body
from kindlm_store import REDACTED


def read_execution(db: sqlite3.Connection, execution: ExecutionView) -> Recording:
    """Return the recording of the last attempt at an execution.

    System text and tools are known if the target is a model, or an agent whose model calls the
    gateway recorded.
    """
    attempt = RecordedAttempt(db, execution.source, execution.source_attempt)
    try:
        events = list(attempt.talk())
        transcript = transcript_of(events)
    except PurgedError:
        why = "Its texts were purged or withheld."
        return Recording(execution.test, Transcript(), missing=why)
    missing = transcript.unseen
    if not any(turn.user for turn in transcript.turns):
        missing = "It has no message of a user."
    elif missing is None and not transcript.shows_tools:
        # The suite may say that the agent reports every tool call.
        config, _ = _configuration(db, execution)
        agents = (it for it in config.get("agents", ()) if it["id"] == execution.target)
        if not any(agent.get("reportsTools") for agent in agents):
            missing = "Nothing shows that the agent reports its tool calls."
    asked = next((each for each in events if isinstance(each, ProviderRequested)), None)
    tools: Any = attempt.tools()
    provider, model = (asked.provider, asked.model) if asked is not None else (None, None)
    if asked is None:
        transcript = replace(transcript, turns=tuple(map(_one_call_a_step, transcript.turns)))
        if (call := next(iter(attempt.model_calls()), None)) is not None:
            wire, body = WIRES.get(call.path), sent_body(call.path, call.body, call.items)
            if wire is not None and isinstance(body, dict):
                said = read_request(wire, body).messages
                system = "\n\n".join(each.text for each in said if each.role is Role.SYSTEM)
                transcript = replace(transcript, system=system or None)
                provider, model = call.path.partition("/")[0], body.get("model")
                tools = body.get("tools")
    (tags,) = db.execute("SELECT tags FROM executions WHERE id = ?", (execution.id,)).fetchone()
    return Recording(
        execution.test,
        transcript,
        tuple(definitions_in(tools)),
        provider,
        model,
        failed=execution.status is not Status.PASSED,
        tags=tuple(json.loads(tags or "[]")),
        missing=missing,
    )


def _one_call_a_step(turn: Turn) -> Turn:
    """Return the turn of an agent, whose answers do not show which calls were parallel."""
    uses = (use for step in turn.steps for use in step.tool_uses)
    return Turn(turn.user, (*(Step("", (use,)) for use in uses), Step(turn.text)))


def recorded_target(
    db: sqlite3.Connection, execution: ExecutionView, root: Path, folder: Path
) -> Target:
    """Return the target of an execution of a kindlm.yaml, for a suite in another folder.

    It is the model of the recording if the configuration contained secrets, which were not
    recorded. Programs of `serve` run in the folder of their suite: the new suite has to be there.
    """
    config, suite = _configuration(db, execution)
    suite_folder = (root / suite).parent
    home = Path(os.path.relpath(suite_folder, folder)).as_posix()
    agent, model = (
        next((each for each in config.get(key, ()) if each["id"] == execution.target), None)
        for key in ("agents", "models")
    )
    written: dict[str, Any]
    if agent is not None:
        written = {"agents": [_moved(agent, home)]}
    elif model is not None:
        name, provider = model["model"], model["provider"]
        written = {"providers": {provider: config["providers"][provider]}, "models": [model]}
        if name in config.get("prices", {}):
            written["prices"] = {name: config["prices"][name]}
    else:
        return Target(why_not=_UNKNOWN)
    is_served = "{{serve." in json.dumps(written)
    if home == "." and config.get("serve") and (agent or is_served):
        written["serve"] = config["serve"]
    elif is_served:
        what, instead = ("agent", "--agent") if agent else ("model", "--provider and --model")
        shown = os.path.relpath(suite_folder)
        return Target(why_not=f"Its suite starts the {what}: pass --output {shown}, or {instead}.")
    text = json.dumps(written)
    cannot_move = HIDDEN in text or REDACTED in text
    return Target() if cannot_move else Target(written, is_agent=agent is not None)


def _configuration(db: sqlite3.Connection, execution: ExecutionView) -> tuple[dict[str, Any], str]:
    """Return the kindlm.yaml of an execution as recorded, {} if it has none; and its path."""
    body, path = db.execute(_CONFIG, (execution.suite_id,)).fetchone() or (None, "")
    # An imported run has no `config`.
    return {} if body in (None, REDACTED) else json.loads(body).get("config", {}), path


def _moved(agent: dict[str, Any], home: str) -> dict[str, Any]:
    """Return the entry of an agent; `home` is the path from the new suite to the old one."""
    entry = {key: value for key, value in agent.items() if value not in (False, {}, None)}
    for key in ("path", "cwd"):
        if key in agent or agent["adapter"] == _FOLDERS[key]:
            entry[key] = Path(os.path.normpath(Path(home, agent.get(key, ".")))).as_posix()
    return entry


_CONFIG = """
SELECT c.body, s.path FROM suites s LEFT JOIN contents c ON c.ref = s.config_ref
 WHERE s.id = ? AND s.front_end = 'kindlm'
"""
_UNKNOWN = "kindlm does not know what it ran on: pass --agent, or --provider and --model."
_FOLDERS = {"path": "python", "cwd": "subprocess"}
"""Options of agents that are folders relative to the suite, each with its adapter."""
