"""Finds credentials written into a configuration, and the variables that hold some.

They belong in the environment. If they are written out anyway, they must not reach the history:
the redactor removes them, the recorded configuration has a mark in their place, and no message
shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindlm.checks.user_code import CheckOfPackage
from kindlm.config.interpolation import bound_names, insert, names_in
from kindlm.document import items, section, texts
from kindlm.packages import as_written
from kindlm.secrecy import (
    header_secrets,
    hide_credentials,
    is_credential_name,
    program_secrets,
    secret_parts,
    url_secrets,
)
from kindlm.suite import AgentTarget, Suite

_PLACES = frozenset({"cwd", "path", "snapshot"})
"""Options that say where a program is."""


def literal_secrets(suite: Suite) -> set[str]:
    """Return the credentials that are written out in what a suite's agents are given.

    These are the values of headers that authorize, whole and without their scheme, and of
    environment variables with such names, of 8 characters or more; and what is secret in the other
    variables of their programs, and of services.
    """
    agents = suite.all_agents()
    environments = (*map(_variables, agents), *(service.env for service in suite.services))
    return {
        *(secret for agent in agents for secret in header_secrets(agent.headers)),
        *(secret for env in environments for secret in program_secrets(env)),
    }


def address_secrets(suite: Suite, environ: Mapping[str, str]) -> set[str]:
    """Return the credentials in the addresses of a suite, with the variables put in.

    A variable may hold a whole URL: its host may be recorded, its password may not.
    """
    whole = (
        insert(address, lambda name: environ.get(name.removeprefix("env."), ""))
        for address in _addresses(suite)
    )
    return {secret for address in whole for secret in url_secrets(address)}


def credential_variables(suite: Suite) -> set[str]:
    """Return the environment variables that are put into headers that authorize, and URLs.

    Also those that are put into variables of programs that are named like them.
    """
    written = [
        value
        for agent in suite.all_agents()
        for name, value in (*agent.headers.items(), *_variables(agent).items())
        if is_credential_name(name)
    ]
    addresses = (*_addresses(suite), *(service.ready_url or "" for service in suite.services))
    written += [part for address in addresses for part in secret_parts(address)]
    return _variables_in(written)


def given_variables(suite: Suite) -> set[str]:
    """Return the environment variables whose values agents and services are given.

    They are those in headers, options, commands and variables of programs, and in the paths and
    queries of addresses, whatever their names: who keeps a value out of a file does not want it in
    the history either. The host of an address, and where a program is, may be recorded.
    """
    return _variables_in(_given(suite))


def _addresses(suite: Suite) -> Iterator[str]:
    yield from (agent.endpoint for agent in suite.all_agents())
    yield from (provider.base_url or "" for provider in suite.providers.values())


def _variables_in(texts: Iterable[str]) -> set[str]:
    """Return the environment variables whose placeholders stand in some texts."""
    names = (name for text in texts for name in names_in(text))
    return {name.removeprefix("env.") for name in names if name.startswith("env.")}


def _given(suite: Suite) -> Iterator[str]:
    for agent in suite.all_agents():
        yield from agent.headers.values()
        address, _, query = agent.endpoint.partition("?")
        yield from (address.rpartition("://")[2].partition("/")[2], query)
        for name, value in as_written(agent.options).items():
            if name not in _PLACES:
                yield from (text for _, text in texts(value, ()))
    options: list[Mapping[str, Any]] = [
        as_written(provider.options)
        for provider in suite.providers.values()
        if provider.options is not None and provider.options.takes_placeholders
    ]
    options += [
        each.check.options
        for case in suite.cases
        for each in case.expectations
        if isinstance(each.check, CheckOfPackage)
    ]
    for written in options:
        yield from (text for _, text in texts(written, ()))
    for service in suite.services:
        yield from (*service.env.values(), *service.command)
    for command in (case.command for case in suite.cases if case.command is not None):
        # A word may hold a variable of the test, whose value may read like a placeholder.
        for word in command.words:
            yield from (f"{{{{{name}}}}}" for name in bound_names(word))


def _variables(agent: AgentTarget) -> Mapping[str, Any]:
    """Return the environment variables that are written for an agent that is a program."""
    env: Mapping[str, Any] = as_written(agent.options).get("env") or {}
    return env


def written_in(raw: Any) -> set[str]:
    """Return the credentials that are written out in a file, whatever else may be wrong with it."""
    agents = [agent for _, agent in items(section(raw), "agents")]
    return {
        secret
        for agent in agents
        for secret in (
            *header_secrets(section(agent, "headers")),
            *program_secrets(section(agent, "env")),
        )
    }


def hide_in_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an agent as they may be recorded."""
    hidden = {"env": hide_credentials(options["env"])} if options.get("env") else {}
    return {**options, **hidden}
