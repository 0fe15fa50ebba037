"""Prepares the suites of a run: cassettes, environment, served programs, tools of servers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

from kindlm.checks.guardrails import canary_of
from kindlm.config.diagnostics import Diagnostic
from kindlm.config.interpolation import bind_services, bind_suite
from kindlm.dataclass import dataclass, replace
from kindlm.engine.stop import Stop, cut_off
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.runs import sources_of
from kindlm.plan import Plan, PlannedSuite, make_plan, plan_repeats
from kindlm.recording.request import Derived, RunRequest, SkippedSuite
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget, Case, ListedTools, Service, SimulatedTool, Suite
from kindlm.wording import shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """The suites that can run, and by ordinal those that cannot.

    `plan` holds all tests, `work` those to run, `ended` an error for each program that has ended.
    """

    plan: Plan
    work: Plan
    skipped: dict[int, SkippedSuite]
    ended: list[KindlmError]


@dataclass(eq=False, slots=True)
class Serving:
    """Prepares the suites of a run one after the other, and starts their programs.

    The programs of a suite get `variables_for` it in their environment, except its providers. A
    requested stop starts no more of them, and a program that ends by itself stops the run.
    `cassettes` has the runs that the cassettes of each suite, by project and name, began with.
    """

    request: RunRequest
    run: str
    stop: Stop
    reader: sqlite3.Connection
    show_problem: Callable[[KindlmError | Diagnostic], None]
    variables_for: Callable[[Suite], Mapping[str, str]]
    cassettes: Mapping[tuple[str, str], Mapping[str, str]]
    ended: list[KindlmError] = field(default_factory=list)

    @asynccontextmanager
    async def suites(self) -> AsyncIterator[Served]:
        """Yield the suites that are ready, and those that are not, while their programs run."""
        request, derived = self.request, self.request.derived
        # A replay has the canary of the original run; it may be a replay of a replay.
        sources = sources_of(self.reader, self.run if derived is None else derived.run)
        original = next((each for each, mode in sources.items() if mode != "replayed"), self.run)
        suites = {at: each for at, each in request.placed.items() if isinstance(each, Suite)}
        skipped = {at: s for at, s in request.placed.items() if isinstance(s, SkippedSuite)}
        plan = partial(make_plan, selection=request.selection, places=request.places)
        async with AsyncExitStack() as stack:
            for planned in plan(list(suites.values())).suites:
                suite, serving = planned.suite, self._serve(planned, canary_of(original), stack)
                served = await _unless_stopped(serving, self.stop)
                if isinstance(served, Err):
                    skipped[planned.ordinal] = _skipped(suite, served.error)
                elif served is not None:
                    suites[planned.ordinal] = served.value
            whole = plan(list(suites.values()), missing=skipped)
            # A derived run has the executions of its source.
            repeats = None if derived is None else derived.repeats
            work = whole if repeats is None else plan_repeats(whole, repeats)
            yield Served(whole, work, skipped, self.ended)

    async def _serve(
        self, planned: PlannedSuite, canary: str, stack: AsyncExitStack
    ) -> Result[Suite]:
        """Fill in recorded answers, the environment, the ports of services, and listed tools."""
        suite, request, derived = planned.suite, self.request, self.request.derived
        has_cassettes = any(tool.cassette for case in suite.cases for tool in case.tools)
        if has_cassettes and (derived is None or derived.mode == "replayed"):
            from kindlm.recording.recorded_sources import with_recorded_answers

            known = self.cassettes.get((suite.project, suite.name), {})
            filled = with_recorded_answers(
                planned, self.reader, self.show_problem, known, request.group
            )
            if isinstance(filled, Err):
                return filled
            suite = filled.value
        wanted = suite if derived is None else replace(suite, services=_called(suite, derived))
        services = bind_services(wanted, environ=request.environ)
        if isinstance(services, Err):
            return services
        ports: Result[dict[str, int]] = Ok({})
        if services.value:
            from kindlm.engine.services import start_services  # most suites serve no programs

            starting = start_services(services.value, partial(self._environ, suite), self._lost)
            ports = await stack.enter_async_context(starting)
        if isinstance(ports, Err):
            return ports
        bound = bind_suite(
            suite,
            environ=request.environ,
            ports=ports.value,
            selected={case.case.name: case.targets for case in planned.cases},
            # A program that is not called needs no address.
            required=derived is None,
            canary=canary,
        )
        if isinstance(bound, Err) or all(agent.adapter != "mcp" for agent in suite.all_agents()):
            return bound
        return await _with_listed_tools(bound.value, planned, request, self.reader)

    def _environ(self, suite: Suite, service: Service) -> Mapping[str, str]:
        environ, providers = self.request.environ, suite.providers.values()
        # The gateway's upstream must not call models through the gateway: calls would never end.
        is_upstream = _is_in(service, (each.base_url or "" for each in providers))
        return environ if is_upstream else {**environ, **self.variables_for(suite)}

    def _lost(self, error: KindlmError) -> None:
        self.ended.append(error)
        self.show_problem(error)
        self.stop.abort(f"{error.message} {error.hint or ''}".rstrip())


def _skipped(suite: Suite, error: KindlmError) -> SkippedSuite:
    tests = sum(len(case.targets) for case in suite.cases)
    return SkippedSuite(suite.name, suite.path, tests, error)


def _called(suite: Suite, derived: Derived) -> tuple[Service, ...]:
    """Return the programs of judges, and in a replay, of agents whose code runs again."""
    urls = list[str]()
    if derived.mode == "replayed":
        urls += (agent.endpoint for agent in suite.all_agents() if agent.gateway)
    if derived.asks_judges:
        checks = (each.check for case in suite.cases for each in case.expectations)
        judges = (suite.judge(check.judge_model) for check in checks)
        urls += (suite.providers[judge.provider].base_url or "" for judge in judges if judge)
    return tuple(service for service in suite.services if _is_in(service, urls))


def _is_in(service: Service, urls: Iterable[str]) -> bool:
    return any(f"serve.{service.name}." in url for url in urls)


async def _with_listed_tools(
    suite: Suite, planned: PlannedSuite, request: RunRequest, db: sqlite3.Connection
) -> Result[Suite]:
    """Return the suite with the tools of its MCP servers, and with the server tools of its tests.

    A derived run takes the recorded lists of its source. Only servers that are tested or used are
    asked. It is an error if a server whose tools are used does not answer. If a tested server does
    not answer, its executions report that themselves.
    """
    from kindlm.history.recorded_attempts import listed_in  # most runs list no tools

    used: dict[str, None] = {}
    tested: dict[str, AgentTarget] = {}
    targets_of = {item.case.name: item.targets for item in planned.cases}
    for case in suite.cases:
        targets = () if case.skip else targets_of.get(case.name, ())
        if not suite.models.keys().isdisjoint(targets):
            used |= dict.fromkeys(tools.server for tools in case.server_tools)
        agents = [case.agent] if case.agent else [suite.agents.get(name) for name in targets]
        tested |= {each.id: each for each in agents if each is not None and each.adapter == "mcp"}
    derived = request.derived
    if derived is None:
        servers = {**{name: suite.agents[name] for name in used}, **tested}
        asked = (_list_tools(suite, server, request) for server in servers.values())
        found = dict(zip(servers, await asyncio.gather(*asked), strict=True))
    else:
        found = {each.server: Ok(each) for each in listed_in(db, derived.run, suite)}
    listed = {name: each.value for name, each in found.items() if isinstance(each, Ok)}
    suite = replace(suite, listed=tuple(listed.values()))
    if derived is not None and derived.mode == "rescored":
        return Ok(suite)
    for name in used:
        result = found.get(name)
        if result is None:
            message = f"The recorded run holds no list of the tools of the MCP server {name!r}"
            hint = "A replay calls no server. Record the run: kindlm test"
            return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
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
    from kindlm.agents import make_agent
    from kindlm.agents.mcp_agent import McpAgent

    made = make_agent(server, environ=request.environ, root=request.root)
    if isinstance(made, Err):
        return made
    assert isinstance(made.value, McpAgent), "it is made by its adapter"
    async with made.value as agent:
        return await agent.list_tools((server.timeout_ms or suite.timeout_ms) / 1000)


def _with_tools(case: Case, listed: Mapping[str, ListedTools]) -> Result[Case]:
    """Return a case with server tools before its own; its own definitions take precedence."""
    if not all(tools.server in listed for tools in case.server_tools):
        return Ok(case)  # it does not run on a model
    own = {tool.name: tool for tool in case.tools}
    found: dict[str, SimulatedTool] = {}
    for asked in case.server_tools:
        server = asked.server
        tools = {tool["name"]: tool for tool in listed[server].tools}
        for name in tools if asked.only is None else asked.only:
            if name not in tools or name in found:
                message = f"The MCP server {server!r} has no tool {name!r}"
                hint = hint_for(name, list(tools), "Its tools")
                if name in tools:
                    message = f"Another MCP server than {server!r} has the tool {name!r}, too"
                    hint = "Name the tools of each server with `only`: models see only names"
                message += f', in the test "{case.name}"'
                code = ErrorCode.CONFIG_FILE_REF_ERROR
                return Err(KindlmError(code, message, hint, where=case.where))
            tool = own.pop(name, SimulatedTool(name, server=None if asked.simulate else server))
            described = {
                "description": tools[name].get("description"),
                "parameters": tools[name].get("inputSchema"),
                "result_schema": tools[name].get("outputSchema"),
            }
            written = {key: value for key in described if (value := getattr(tool, key)) is not None}
            found[name] = replace(tool, **{**described, **written})
    return Ok(replace(case, tools=(*found.values(), *own.values())))


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | None:
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.requested.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return None if not task.done() else task.result()
    finally:
        await cut_off((task, stopping))


def unsandboxed(suites: Iterable[Suite], environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield a warning for each agent of a Daytona sandbox that will run on this machine."""
    agents = (agent for suite in suites for agent in suite.all_agents())
    sandboxed = (each for each in agents if getattr(each.options, "sandbox", None) == "daytona")
    for name in dict.fromkeys(agent.id for agent in sandboxed):
        from kindlm.agents.daytona_sandbox import what_is_lacking

        if lacking := what_is_lacking(environ):
            message = f"The agent {shown(name)} runs on this machine, not in a sandbox of Daytona."
            hint = f"No sandbox can be made: {lacking}"
            error = KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint)
            yield Diagnostic(error, "warning", "sandbox")
