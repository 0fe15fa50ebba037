"""What refers to MCP servers must be there, and makes sense: calls, and tools that models get."""

from __future__ import annotations

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, Raw, items
from kindlm.suggestions import hint_for


def server_ids(raw: Raw) -> list[str]:
    """Return the ids of agents that are MCP servers."""
    return [
        str(agent.get("id"))
        for _, agent in items(raw, "agents")
        if agent.get("adapter", agent.get("type")) == "mcp"
    ]


def check_servers(raw: Raw, reporter: Reporter) -> None:
    """Report tests that call what is no server, talk to one, or give models tools of none."""
    servers = server_ids(raw)
    for path, test in items(raw, "tests"):
        _check_turns(path, test, reporter)
        _check_targets(path, test, raw, servers, reporter)
        for place, tools in items(test, "tools"):
            mcp = tools.get("mcp")
            server = mcp.get("server") if isinstance(mcp, dict) else None
            if isinstance(server, str) and server and server not in servers:
                reporter.error(
                    (*path, *place, "mcp", "server"),
                    f'"{server}" is not an MCP server',
                    hint_for(server, servers, "Agents with `adapter: mcp`"),
                    reason="unknown_server",
                    value=server,
                )


def _check_turns(path: Path, test: Raw, reporter: Reporter) -> None:
    """Report messages among calls, and calls among messages."""
    is_call = "call" in test
    for key in ("input", "prompt", "prompts", "command") if is_call else ():
        if key in test:
            _excluded((*path, key), f"`{key}` and `call` cannot be combined", reporter)
    for place, turn in items(test, "conversation"):
        foreign = "user" if is_call else "call"
        if foreign in turn:
            begins = "calls" if is_call else "messages"
            turn_place = reporter.place((*path, *place))
            message = f"{turn_place} cannot have `{foreign}`: the test is one of {begins}"
            _excluded((*path, *place, foreign), message, reporter)
        elif "user" not in turn and "call" not in turn:
            reporter.missing_key((*path, *place, "call" if is_call else "user"))


def _excluded(path: Path, message: str, reporter: Reporter) -> None:
    reporter.error(path, message, "Remove one of them", reason="schema", at_key=True)


def _check_targets(path: Path, test: Raw, raw: Raw, servers: list[str], reporter: Reporter) -> None:
    chosen, is_call = test.get("models"), "call" in test
    if is_call and not servers:
        reporter.error(
            (*path, "call"),
            "There is no MCP server to call",
            "Add an agent with `adapter: mcp`",
            reason="no_target",
            at_key=True,
        )
    others = [item.get("id") for key in ("models", "agents") for _, item in items(raw, key)]
    unfit = [each for each in others if each not in servers] if is_call else servers
    for index, target in enumerate(chosen if isinstance(chosen, list) else ()):
        if target in unfit:
            reporter.error(
                (*path, "models", index),
                f'"{target}" is not an MCP server, and this test has a `call`'
                if is_call
                else f'"{target}" is an MCP server, and this test has no `call`',
                "Remove it here" if is_call else "Write `call:` in place of the prompt",
                reason="unfit_target",
                value=target,
            )
