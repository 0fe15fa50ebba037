"""Agents of other packages: what they raise is an error, and so is what is no reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self

from kindlm import plugins
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest, ConversationSpoilt
from kindlm.suite import AgentTarget


def agent_of_package(target: AgentTarget, environ: Mapping[str, str]) -> Result[Agent] | None:
    """Return the agent of an adapter of another package, None if no package has it."""
    found = plugins.find(plugins.Adapter, target.adapter)
    if found is None or isinstance(found, Err):
        return found
    plugin = plugins.installed(plugins.Adapter.group)[target.adapter][0]
    try:
        adapter = found.value.model_validate(dict(target.options))
        agent = adapter.open(target, environ)
    except plugins.CRASHES as error:
        return Err(plugins.crashed(plugin, "cannot open a conversation", error))
    return Ok(_AgentOfPackage(plugin, agent))


class _AgentOfPackage:
    """Implements `ports.Agent`."""

    def __init__(self, plugin: plugins.Plugin, agent: Agent) -> None:
        self._plugin = plugin
        self._agent = agent
        self._is_open = False
        self._error: KindlmError | None = None

    async def __aenter__(self) -> Self:
        """Open the agent; that it cannot be opened is the answer to the first message."""
        try:
            await self._agent.__aenter__()
            self._is_open = True
        except (*plugins.CRASHES, asyncio.CancelledError) as error:
            if plugins.is_cancelled(error):
                raise
            self._error = plugins.crashed(self._plugin, "cannot open a conversation", error)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the agent; one that cannot be closed is not known to have ended well."""
        if not self._is_open:
            return
        try:
            await self._agent.__aexit__(*exception)
        except ConversationSpoilt:
            raise
        except (*plugins.CRASHES, asyncio.CancelledError) as error:
            if plugins.is_cancelled(error):
                raise
            what = "cannot close a conversation"
            raise ConversationSpoilt(plugins.failed(self._plugin, what, error)) from error

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `plugins.answered`."""
        if self._error is not None:
            return Err(self._error)
        return await plugins.answered(
            self._plugin, lambda: self._agent.send(request), AgentReply, request.timeout_s
        )
