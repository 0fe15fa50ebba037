"""kindlm: behavioural regression testing for AI agents, with a complete record of every run.

The public names are loaded on first use, since most commands do not need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kindlm.scenarios.api import scenario
    from kindlm.scenarios.checks import Checks
    from kindlm.scenarios.trial import SyncTrial, Trial
    from kindlm.scenarios.under_test import AgentError, Persona, Reply
    from kindlm.scenarios.users import Conversed, SimulationError
    from kindlm.scenarios.verdicts import Pending, Verdict

__all__ = [
    "AgentError",
    "Checks",
    "Conversed",
    "Pending",
    "Persona",
    "Reply",
    "SimulationError",
    "SyncTrial",
    "Trial",
    "Verdict",
    "scenario",
]

__version__ = "0.1.0"

_PLACES = {
    "api": ("scenario",),
    "checks": ("Checks",),
    "trial": ("SyncTrial", "Trial"),
    "under_test": ("AgentError", "Persona", "Reply"),
    "users": ("Conversed", "SimulationError"),
    "verdicts": ("Pending", "Verdict"),
}


def __getattr__(name: str) -> Any:
    """Return a name of the public interface."""
    for place, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"kindlm.scenarios.{place}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
