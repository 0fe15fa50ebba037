"""Agents that are to run in a sandbox where none can be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kindlm.config import Diagnostic
from kindlm.errors import ErrorCode, KindlmError
from kindlm.suite import Suite
from kindlm.wording import shown

__all__ = ["unsandboxed"]


def unsandboxed(suites: Iterable[Suite], environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield a warning for each agent that will run on this machine, as far as that is known now."""
    agents = (agent for suite in suites for agent in suite.all_agents())
    names = dict.fromkeys(a.id for a in agents if a.options.get("sandbox") == "daytona")
    if not names:
        return
    from kindlm.agents.daytona_sandbox import what_is_lacking

    lacking = what_is_lacking(environ)
    if lacking is None:
        return
    for name in names:
        error = KindlmError(
            ErrorCode.PROVIDER_NOT_FOUND,
            f"The agent {shown(name)} runs on this machine, in no sandbox of Daytona.",
            f"No sandbox can be made: {lacking}",
        )
        yield Diagnostic(error, "warning", "sandbox", None)
