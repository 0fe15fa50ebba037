"""What MCP servers list when a run begins: it is recorded, and models get their tools by it.

A run that is made of another one calls no server: it takes what was listed then.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from typing import Any

from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.recorded_attempts import listed_in
from kindlm.plan import PlannedSuite
from kindlm.recording.request import RunRequest
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget, Case, ListedTools, ServerTools, SimulatedTool, Suite


async def with_listed_tools(
    suite: Suite, planned: PlannedSuite, request: RunRequest, db: sqlite3.Connection
) -> Result[Suite]:
    """Return the suite with what its servers list, and with the tools that its tests ask for.

    Only servers that are tested or used are asked. One whose tools are used must answer; the
    executions of tests of one that does not say so themselves.
    """
    selected = {item.case.name: item.targets for item in planned.cases if item.selected}
    used: dict[str, None] = {}
    tested: dict[str, AgentTarget] = {}
    for case in suite.cases:
        targets = () if case.skip else selected.get(case.name, ())
        if not suite.models.keys().isdisjoint(targets):
            used |= dict.fromkeys(tools.server for tools in case.server_tools)
        agents = [case.agent] if case.agent else [suite.agents.get(name) for name in targets]
        tested |= {each.id: each for each in agents if each is not None and each.adapter == "mcp"}
    derived, found = request.derived, dict[str, Result[ListedTools]]()
    if derived is not None:
        then = listed_in(db, derived.run, suite)
        found = {each.server: Ok(each) for each in then}
    else:
        servers = {**{name: suite.agents[name] for name in used}, **tested}
        asked = (_list_tools(suite, server, request) for server in servers.values())
        found = dict(zip(servers, await asyncio.gather(*asked), strict=True))
    listed = {name: each.value for name, each in found.items() if isinstance(each, Ok)}
    suite = replace(suite, listed=tuple(listed.values()))
    if derived is not None and derived.mode == "rescored":
        return Ok(suite)
    for name in used:
        if derived is not None and name not in found:
            message = f"Run {derived.run} holds no list of the tools of the MCP server {name!r}"
            hint = "A replay calls no server. Record the run: kindlm test"
            return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
        result = found[name]
        if isinstance(result, Err):
            return result
    cases = []
    for case in suite.cases:
        filled = _with_tools(case, listed)
        if isinstance(filled, Err):
            return filled
        cases.append(filled.value)
    return Ok(replace(suite, cases=tuple(cases)))


async def _list_tools(
    suite: Suite, server: AgentTarget, request: RunRequest
) -> Result[ListedTools]:
    from kindlm.agents.agent_registry import make_agent
    from kindlm.agents.mcp_agent import McpAgent

    made = make_agent(server, environ=request.environ, root=request.root)
    if isinstance(made, Err):
        return made
    assert isinstance(made.value, McpAgent), "it is made by its adapter"
    async with made.value as agent:
        return await agent.list_tools((server.timeout_ms or suite.timeout_ms) / 1000)


def _with_tools(case: Case, listed: Mapping[str, ListedTools]) -> Result[Case]:
    """Return a case with the tools of its servers before its own; those of one name are one."""
    if not all(tools.server in listed for tools in case.server_tools):
        return Ok(case)  # it is not run on a model
    own = {tool.name: tool for tool in case.tools}
    found: dict[str, SimulatedTool] = {}
    for asked in case.server_tools:
        tools = {tool["name"]: tool for tool in listed[asked.server].tools}
        for name in tools if asked.only is None else asked.only:
            if name not in tools or name in found:
                return _unfit(case, asked, name, tools)
            found[name] = _tool(own.pop(name, None), tools[name], asked)
    return Ok(replace(case, tools=(*found.values(), *own.values())))


def _tool(
    own: SimulatedTool | None, listed: Mapping[str, Any], asked: ServerTools
) -> SimulatedTool:
    """Return a tool as its server describes it; what the test says of it counts first."""
    tool = own or SimulatedTool(listed["name"], server=None if asked.simulate else asked.server)
    description, schema = listed.get("description"), listed.get("inputSchema")
    result = listed.get("outputSchema")
    return replace(
        tool,
        description=description if tool.description is None else tool.description,
        parameters=schema if tool.parameters is None else tool.parameters,
        result_schema=result if tool.result_schema is None else tool.result_schema,
    )


def _unfit(case: Case, asked: ServerTools, name: str, tools: Mapping[str, Any]) -> Err:
    message = f"The MCP server {asked.server!r} has no tool {name!r}"
    hint = hint_for(name, list(tools), "Its tools")
    if name in tools:
        message = f"The tool {name!r} of the MCP server {asked.server!r} is another server's, too"
        hint = "Name the tools of each server with `only`: models tell them apart by name"
    code = ErrorCode.CONFIG_FILE_REF_ERROR
    return Err(KindlmError(code, f'{message}, in the test "{case.name}"', hint, where=case.where))
