"""Collects the secrets of suites: those written into them, and the values of their variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindlm.checks.user_code import CheckOfPackage
from kindlm.config.interpolation import bound_names, insert, names_in
from kindlm.document import texts
from kindlm.packages import as_written, own
from kindlm.plugins import Provider
from kindlm.recording import secrets
from kindlm.secrecy import (
    SHORTEST_SECRET,
    header_secrets,
    is_credential_name,
    is_secret_name,
    program_secrets,
    secret_parts,
    url_secrets,
)
from kindlm.suite import AgentTarget, Suite


def suite_secrets(environ: Mapping[str, str], suites: Iterable[Suite]) -> set[str]:
    """Return the secrets of an environment that suites run in, and those written into them."""
    variables: set[str] = set()
    written: set[str] = set()
    for suite in suites:
        variables |= _key_variables(suite) | given_variables(suite)
        written |= literal_secrets(suite) | address_secrets(suite, environ)
    return secrets.secret_values(environ, variables) | written | secrets.TOKENS


def short_secrets(environ: Mapping[str, str], suite: Suite) -> list[str]:
    """Return the secret variables of a suite whose values are too short to be hidden."""
    used = {name for name in _variables(suite) if is_secret_name(name)} | _key_variables(suite)
    return sorted(name for name in used if 0 < len(environ.get(name, "").strip()) < SHORTEST_SECRET)


def needed_variables(suite: Suite) -> set[str]:
    """Return the variables that a suite names, including those of its providers' keys."""
    usual = {
        kind.usual_key_variable
        for each in suite.providers.values()
        if each.api_key_env is None and (kind := own(Provider, each.type)) is not None
    }
    return _variables(suite) | _key_variables(suite) | {name for name in usual if name}


def _variables(suite: Suite) -> set[str]:
    """Return the variables that the configuration of a suite names, in the syntax of its format."""
    if suite.front_end == "evalview":
        from kindlm.formats.evalview import variables_in  # few suites are of EvalView

        return variables_in(suite.config_text)
    return _environment_names([suite.config_text])


def _key_variables(suite: Suite) -> set[str]:
    """Return the variables that a suite names as keys, or puts in place of credentials."""
    keys = (settings.api_key_env for settings in suite.providers.values())
    return {key for key in keys if key} | credential_variables(suite)


def credential_variables(suite: Suite) -> set[str]:
    """Return the environment variables that a suite puts in place of credentials.

    They stand in headers that authorize, in the secret parts of URLs, and in environment variables
    of agents with names such as TOKEN.
    """
    written = [
        value
        for agent in suite.all_agents()
        for name, value in (*agent.headers.items(), *_environment(agent).items())
        if is_credential_name(name)
    ]
    addresses = (*_addresses(suite), *(service.ready_url or "" for service in suite.services))
    written += [part for address in addresses for part in secret_parts(address)]
    return _environment_names(written)


def literal_secrets(suite: Suite) -> set[str]:
    """Return the credentials that are written out in a suite.

    They stand in headers that authorize (the whole value, and the value without its scheme), and in
    environment variables of agents and services. All have `SHORTEST_SECRET` characters or more.
    """
    agents = suite.all_agents()
    environments = (*map(_environment, agents), *(service.env for service in suite.services))
    return {
        *(secret for agent in agents for secret in header_secrets(agent.headers)),
        *(secret for env in environments for secret in program_secrets(env)),
    }


def address_secrets(suite: Suite, environ: Mapping[str, str]) -> set[str]:
    """Return the credentials in the addresses of a suite, with the variables put in."""
    whole = (
        insert(address, lambda name: environ.get(name.removeprefix("env."), ""))
        for address in _addresses(suite)
    )
    return {secret for address in whole for secret in url_secrets(address)}


def given_variables(suite: Suite) -> set[str]:
    """Return the environment variables whose values a suite passes to agents, services or packages.

    Their names do not matter: a user who keeps a value out of the file does not want it in the
    history either.
    """
    return _environment_names(_given(suite))


_PLACES = frozenset({"cwd", "path", "snapshot"})
"""Options that say where a program is."""


def _given(suite: Suite) -> Iterator[str]:
    """Yield the texts that are passed on: headers, options, commands, paths and queries of URLs."""
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
        # A word may hold a variable of the test, whose value may look like a placeholder.
        for word in command.words:
            yield from (f"{{{{{name}}}}}" for name in bound_names(word))


def _addresses(suite: Suite) -> Iterator[str]:
    yield from (agent.endpoint for agent in suite.all_agents())
    yield from (provider.base_url or "" for provider in suite.providers.values())


def _environment(agent: AgentTarget) -> Mapping[str, Any]:
    """Return the environment variables that a suite sets for an agent that is a program."""
    env: Mapping[str, Any] = as_written(agent.options).get("env") or {}
    return env


def _environment_names(templates: Iterable[str]) -> set[str]:
    """Return the NAME of each placeholder `{{env.NAME}}` in some texts."""
    names = (name for template in templates for name in names_in(template))
    return {name.removeprefix("env.") for name in names if name.startswith("env.")}
