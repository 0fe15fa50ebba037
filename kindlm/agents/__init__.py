"""Agents under test: makes the agent of one conversation from its target.

A new adapter is one module, `NAME_agent.py`, which `packages.own_names` finds. If an agent of
another package raises, or returns something that is not a reply, the call fails with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from kindlm import packages
from kindlm.agents.agent_failures import AgentFailure, Who
from kindlm.dataclass import replace
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.plugins import Adapter
from kindlm.ports import Agent, AgentReply, AgentRequest, ConversationSpoilt
from kindlm.suite import AgentTarget, Command

if TYPE_CHECKING:
    from kindlm.agents.python_processes import PythonProcesses


def make_agent(
    target: AgentTarget | Command,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    environ: Mapping[str, str],
    root: Path,
    processes: PythonProcesses | None = None,
) -> Result[Agent]:
    """Make the agent of one conversation.

    With the keyword arguments bound, it is a `ports.AgentFactory`. `variables` are added to
    `environ` for a program that is started for this conversation. Python agents are imported from
    `root`, and run in `processes`: without these, or as an object, an agent runs in this process.
    """
    environ = {**environ, **variables}
    if isinstance(target, Command):
        from kindlm.agents.command import CommandAgent

        return Ok(CommandAgent(target, environ))
    kind = packages.own(Adapter, target.adapter)
    if kind is None:
        made = packages.made(
            Adapter,
            target.adapter,
            lambda kind: (target.options or kind()).open(target, environ),
            Agent,
            unknown=f"{Who(target.id).title} has the unknown adapter {target.adapter!r}",
            failing="cannot open a conversation",
        )
        return made if isinstance(made, Err) else Ok(_AgentOfPackage(*made.value))
    options: Adapter = kind() if target.options is None else target.options
    whole = replace(target, options=options)
    try:
        if target.adapter == "python":
            from kindlm.agents.python_agent import python_agent

            if processes is not None and target.instance is None:
                return Ok(processes.agent(whole, variables))
            return Ok(python_agent(whole, root))
        folder = str(root.absolute() / (target.directory or "."))
        opened = options.open(replace(whole, directory=folder), environ)
    except AgentFailure as failed:
        return Err(failed.error)
    return opened if isinstance(opened, Err) else Ok(opened)


class _AgentOfPackage:
    """Implements `ports.Agent` by another package's agent, whose crashes become errors."""

    def __init__(self, plugin: packages.Plugin, agent: Agent) -> None:
        self._plugin = plugin
        self._agent = agent
        self._is_open = False
        self._error: KindlmError | None = None

    async def __aenter__(self) -> Self:
        """Open the agent; if that fails, the first message gets the error."""
        try:
            await self._agent.__aenter__()
            self._is_open = True
        except (*packages.CRASHES, asyncio.CancelledError) as error:
            if packages.is_cancelled(error):
                raise
            self._error = packages.crashed(self._plugin, "cannot open a conversation", error)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the agent; a failure spoils the conversation."""
        if not self._is_open:
            return
        try:
            await self._agent.__aexit__(*exception)
        except (*packages.CRASHES, asyncio.CancelledError) as error:
            if isinstance(error, ConversationSpoilt) or packages.is_cancelled(error):
                raise
            what = "cannot close a conversation"
            raise ConversationSpoilt(packages.failed(self._plugin, what, error)) from error

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        if self._error is not None:
            return Err(self._error)
        return await packages.answered(
            self._plugin, lambda: self._agent.send(request), AgentReply, request.timeout_s
        )
