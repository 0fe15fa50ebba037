"""The `crewai` adapter: crews behind an HTTP server of the user's.

A message is one POST with `{"inputs": {"query"}}`; beside the query are the keys of its context,
and what was said before as `conversation_history`. See crewai_replies for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Self

from kindlm.agents import failures
from kindlm.agents.crewai_replies import read_crew
from kindlm.agents.http_exchange import HttpExchange
from kindlm.agents.http_request import context_with_history, last_user_text, request_warnings
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.reading_aside import read_aside
from kindlm.agents.reply_reading import AgentFailed, UnreadableReply, agent_reply
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget

__all__ = ["CrewAgent", "crewai_agent"]

_HINT = "Check the agent's `endpoint`, and what its server answers"


def crewai_agent(target: AgentTarget, environ: Mapping[str, str], root: Path) -> Result[CrewAgent]:
    """Make an agent for one conversation; the adapter has no options of its own."""
    del environ, root  # all it needs stands in the target
    checked = http_target(target)
    if isinstance(checked, Err):
        return checked
    error = unknown_option(target, ())
    return Err(error) if error else Ok(CrewAgent(checked.value))


class CrewAgent:
    """Implements `ports.Agent`."""

    def __init__(self, target: HttpTarget) -> None:
        self._who = target.who
        self._exchange = HttpExchange(target)

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        inputs = {"query": last_user_text(request), **context_with_history(request)}
        answer = await self._exchange.post({"inputs": inputs}, request.timeout_s)
        if isinstance(answer, Err):
            return answer
        got = answer.value
        try:
            heard = await read_aside(got.text, partial(read_crew, got.text))
        except AgentFailed as failure:
            return Err(failures.of_report(self._who, str(failure), got.text, got.status))
        except UnreadableReply as error:
            return Err(failures.of_reply(self._who, error, got.text, got.status, _HINT))
        warnings = (*request_warnings(request, says_system=False), *heard.warnings)
        return Ok(agent_reply(heard.told, got.text, got.latency_ms, warnings))
