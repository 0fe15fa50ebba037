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
    is_secret_name,
    program_secrets,
    secret_parts,
    url_secrets,
)
from kindlm.suite import Suite


def suite_secrets(environ: Mapping[str, str], suites: Iterable[Suite]) -> set[str]:
    """Return the secrets of an environment that suites run in, and those written into them."""
    variables: set[str] = set()
    written: set[str] = set()
    for suite in suites:
        variables |= _key_variables(suite) | given_variables(suite)
        written |= literal_secrets(suite)
        for address in _addresses(suite):
            # A variable may hold a whole URL, with a password.
            whole = insert(address, lambda name: environ.get(name.removeprefix("env."), ""))
            written.update(url_secrets(whole))
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
    """Return the variables that a suite names as keys of providers."""
    keys = (settings.api_key_env for settings in suite.providers.values())
    return {key for key in keys if key}


def literal_secrets(suite: Suite) -> set[str]:
    """Return the credentials that are written out in a suite.

    They stand in headers that authorize (the whole value, and the value without its scheme), and in
    environment variables of agents and services. All have `SHORTEST_SECRET` characters or more.
    """
    agents = suite.all_agents()
    of_agents = (as_written(agent.options).get("env") or {} for agent in agents)
    environments = (*of_agents, *(service.env for service in suite.services))
    return {
        *(secret for agent in agents for secret in header_secrets(agent.headers)),
        *(secret for env in environments for secret in program_secrets(env)),
    }


_PLACES = frozenset({"cwd", "path", "snapshot"})
"""Options that say where a program is."""


def given_variables(suite: Suite) -> set[str]:
    """Return the environment variables whose values a suite passes to agents, services or packages.

    Their names do not matter: a user who keeps a value out of the file does not want it in the
    history either. They are in headers, options, commands, paths and queries of URLs of agents, and
    the secret parts of all URLs.
    """
    addresses = (*_addresses(suite), *(service.ready_url or "" for service in suite.services))
    found = [part for address in addresses for part in secret_parts(address)]
    options: list[Any] = []
    for agent in suite.all_agents():
        address, _, query = agent.endpoint.partition("?")
        found += (*agent.headers.values(), address.rpartition("://")[2].partition("/")[2], query)
        written = as_written(agent.options).items()
        options += (value for name, value in written if name not in _PLACES)
    for provider in suite.providers.values():
        if provider.options is not None and provider.options.takes_placeholders:
            options.append(as_written(provider.options))
    for case in suite.cases:
        checks = (each.check for each in case.expectations)
        options += (check.options for check in checks if isinstance(check, CheckOfPackage))
        # A word may hold a variable of the test, whose value may look like a placeholder.
        words = () if case.command is None else case.command.words
        found += (f"{{{{{name}}}}}" for word in words for name in bound_names(word))
    for service in suite.services:
        found += (*service.env.values(), *service.command)
    found += (text for value in options for _, text in texts(value, ()))
    return _environment_names(found)


def _addresses(suite: Suite) -> Iterator[str]:
    yield from (agent.endpoint for agent in suite.all_agents())
    yield from (provider.base_url or "" for provider in suite.providers.values())


def _environment_names(templates: Iterable[str]) -> set[str]:
    names = (name for template in templates for name in names_in(template))
    return {name.removeprefix("env.") for name in names if name.startswith("env.")}
