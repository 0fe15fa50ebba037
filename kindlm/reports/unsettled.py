"""Why a run has no verdict that its tests and gates could tell of.

A format for programs tells tests and gates, and of a run that was stopped after seven tests that
passed it would tell nothing but successes. What is said here is told beside them, as an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from kindlm.history.run_view import RunView
from kindlm.wording import count


@dataclass(frozen=True, slots=True)
class Unsettled:
    """`code` is `RUN_` or `GROUP_` and how it stands: `RUN_ABORTED`."""

    code: str
    message: str


def unsettled(view: RunView) -> Unsettled | None:
    """Return why a run, or a group of shards, has no verdict; None for one that has."""
    status = view.status
    if status in ("passed", "failed"):
        return None
    if view.group is not None:
        return Unsettled(f"GROUP_{status.upper()}", view.group.what_lacks)
    return Unsettled(f"RUN_{status.upper()}", "; ".join(_reasons(view, status)))


def _reasons(view: RunView, status: str) -> list[str]:
    if status == "running":
        why = "it has not ended yet"
    else:
        why = view.info.reason or "its process ended before it could say why"
    executions = count(view.info.planned, "execution")
    missing = f"{view.missing:,} of {executions} did not run to their end"
    return [why, missing] if view.missing else [why]
