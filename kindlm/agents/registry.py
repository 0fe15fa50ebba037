"""Finds the adapter of an agent by its name. A new adapter is one module and one line here.

Nothing heavy is imported before an agent is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kindlm.agents.failures import Who
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.ports import Agent
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget, Command

if TYPE_CHECKING:
    from kindlm.agents.python_processes import PythonProcesses


Maker: TypeAlias = Callable[[Any, Mapping[str, str], Path], Result[Agent]]

_COMMAND = "kindlm.agents.command:command_agent"
_MAKERS = {
    "crewai": "kindlm.agents.crewai_agent:crewai_agent",
    "http": "kindlm.agents.http_agent:http_agent",
    "langgraph": "kindlm.agents.langgraph_agent:langgraph_agent",
    "openai-assistants": "kindlm.agents.openai_assistants:assistants_agent",
    "python": "kindlm.agents.python_agent:python_agent",
    "streaming": "kindlm.agents.streaming:streaming_agent",
    "subprocess": "kindlm.agents.subprocess_agent:subprocess_agent",
    "tapescope": "kindlm.agents.streaming:streaming_agent",
}
_OTHER_NAMES = {"jsonl": "tapescope", "openai-assistant": "openai-assistants"}
"""Names that test cases of EvalView use besides."""

ADAPTERS = tuple(sorted(_MAKERS))
"""The adapters that a configuration can name."""


def make_agent(
    target: AgentTarget | Command,
    *,
    environ: Mapping[str, str],
    root: Path,
    processes: PythonProcesses | None = None,
) -> Result[Agent]:
    """Make the agent of one conversation; bind the rest to get a `ports.AgentFactory`.

    Args:
        target: the agent, or the program that is the agent.
        environ: environment variables, with what `.env` files say.
        root: the folder from which an agent in Python is imported.
        processes: where agents in Python run; in this process, if there are none.

    Returns:
        The agent, not yet opened; or the error of an adapter that is not known
        (PROVIDER_NOT_FOUND), or of options that it does not take (CONFIG_VALIDATION_ERROR).
    """
    if isinstance(target, Command):
        where: str | None = _COMMAND
    else:
        where = _MAKERS.get(_OTHER_NAMES.get(target.adapter, target.adapter))
    if where is None:
        from kindlm.agents.of_packages import agent_of_package

        assert isinstance(target, AgentTarget)
        agent = agent_of_package(target, environ)
        if agent is not None:
            return agent
        hint = hint_for(target.adapter, ADAPTERS, "Known")
        message = f"{Who(target.id).title} has the unknown adapter {target.adapter!r}"
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
    if processes is not None and isinstance(target, AgentTarget) and target.adapter == "python":
        return processes.agent(target)
    module, _, name = where.partition(":")
    maker: Maker = getattr(import_module(module), name)
    return maker(target, environ, root)
