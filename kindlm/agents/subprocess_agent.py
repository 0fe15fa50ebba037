"""The `subprocess` adapter: an agent that is a program, started by its command.

It is talked to in lines (line_agent), or is started anew for each message with `oneShot`
(one_shot_agent). It runs on this machine, or in a sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kindlm.agents.line_agent import LineAgent
from kindlm.agents.one_shot_agent import OneShotAgent
from kindlm.agents.program_place import place
from kindlm.agents.subprocess_options import program_settings
from kindlm.errors import Err, Ok, Result
from kindlm.suite import AgentTarget

__all__ = ["subprocess_agent"]


def subprocess_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[LineAgent | OneShotAgent]:
    """Make an agent for one conversation; see subprocess_options for its options."""
    checked = program_settings(target)
    if isinstance(checked, Err):
        return checked
    settings = checked.value
    home = root.resolve() / (target.directory or ".")
    kind = OneShotAgent if settings.one_shot else LineAgent
    return Ok(kind(settings, partial(place, settings, environ, home)))
