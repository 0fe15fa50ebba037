"""Credentials that somebody wrote into a configuration, and variables that hold some.

They belong into the environment, but where they are written out all the same they must not reach
the history: the redactor at the store's door is told of them, the recorded configuration holds a
mark in their place, and no message shows them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.checks.of_packages import CheckOfPackage
from kindlm.config.interpolation import bound_names, insert, names_in
from kindlm.config.raw import items, section, texts
from kindlm.secrecy import (
    SHORTEST_SECRET,
    is_credential_name,
    is_ordinary,
    may_be_secret_name,
    may_name_a_service,
)
from kindlm.suite import AgentTarget, Suite
from kindlm.url_secrets import dsn_secrets, is_url, secret_parts, url_secrets

HIDDEN = "[hidden]"
"""Stands for a credential in what is recorded."""

_PLACES = frozenset({"cwd", "path", "snapshot"})
"""Options that say where a program is."""

_OF_A_USER = re.compile(r"[^\s:/@=]+:([^\s@]+(?:@(?!\w+\()[^\s@]+)*)(?:@\w+\(\S*)?")
"""`user:password`, also before `@tcp(host)/name`, as a DSN of Go has it."""

_PLACEHOLDER = re.compile(r"\{\{[\w.]+\}\}")


def literal_secrets(suite: Suite) -> set[str]:
    """Return the credentials that are written out in what a suite's agents are given.

    These are the values of headers that authorize, whole and without their scheme, and of
    environment variables with such names, of 8 characters or more; and what is secret in the other
    variables of their programs, of services and commands.
    """
    headers = (agent.headers for agent in suite.all_agents())
    return {
        *(secret for given in headers for secret in header_secrets(given)),
        *(secret for env in _environments(suite) for secret in _secrets_of_program(env)),
    }


def address_secrets(suite: Suite, environ: Mapping[str, str]) -> set[str]:
    """Return the credentials in the addresses of a suite, with the variables put in.

    A variable may hold a whole URL: its host is told, its password is not.
    """
    addresses = [agent.endpoint for agent in suite.all_agents()]
    addresses += [provider.base_url or "" for provider in suite.providers.values()]
    whole = (
        insert(address, lambda name: environ.get(name.removeprefix("env."), ""))
        for address in addresses
    )
    return {secret for address in whole for secret in url_secrets(address)}


def credential_variables(suite: Suite) -> set[str]:
    """Return the environment variables that are put into headers that authorize, and URLs.

    Also those that are put into variables of programs that are named like them.
    """
    return {
        name.removeprefix("env.")
        for text in (*_authorizing(suite), *_secret_url_parts(suite))
        for name in names_in(text)
        if name.startswith("env.")
    }


def given_variables(suite: Suite) -> set[str]:
    """Return the environment variables whose values agents and services are given.

    They are those in headers, options, commands and variables of programs, and in the paths and
    queries of addresses, whatever their names: who keeps a value out of a file does not want it in
    the history either. Which host an address is of, or where a program is, is told.
    """
    return {
        name.removeprefix("env.")
        for text in _given(suite)
        for name in names_in(text)
        if name.startswith("env.")
    }


def _given(suite: Suite) -> Iterator[str]:
    for agent in suite.all_agents():
        yield from agent.headers.values()
        address, _, query = agent.endpoint.partition("?")
        yield from (address.rpartition("://")[2].partition("/")[2], query)
        for name, value in agent.options.items():
            if name not in _PLACES:
                yield from (text for _, text in texts(value, ()))
    options = [provider.options for provider in suite.providers.values()]
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
        yield from command.env.values()
        # A word may hold a variable of the test, whose value may read like a placeholder.
        for word in command.words:
            yield from (f"{{{{{name}}}}}" for name in bound_names(word))


def _authorizing(suite: Suite) -> Iterator[str]:
    for agent in suite.all_agents():
        for name, value in (*agent.headers.items(), *_variables(agent).items()):
            if is_credential_name(name):
                yield value


def _variables(agent: AgentTarget) -> Mapping[str, Any]:
    """Return the environment variables that are written for an agent that is a program."""
    env: Mapping[str, Any] = agent.options.get("env") or {}
    return env


def _environments(suite: Suite) -> Iterator[Mapping[str, Any]]:
    yield from (_variables(agent) for agent in suite.all_agents())
    yield from (service.env for service in suite.services)
    yield from (case.command.env for case in suite.cases if case.command is not None)


def _secret_url_parts(suite: Suite) -> Iterator[str]:
    yield from (part for agent in suite.all_agents() for part in secret_parts(agent.endpoint))
    for provider in suite.providers.values():
        yield from secret_parts(provider.base_url or "")
    for service in suite.services:
        yield from secret_parts(service.ready_url or "")


def written_in(raw: Any) -> set[str]:
    """Return the credentials that are written out in a file, whatever else may be wrong with it."""
    agents = [agent for _, agent in items(section(raw), "agents")]
    return {
        secret
        for agent in agents
        for secret in (
            *header_secrets(section(agent, "headers")),
            *_secrets_of_program(section(agent, "env")),
        )
    }


def hide_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as they may be recorded: a mark for what is written out, not for {{env.X}}."""
    return {name: HIDDEN if _is_literal(value) else value for name, value in headers.items()}


def hide_credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables of a program as they may be recorded: a mark for credentials."""
    return {
        name: HIDDEN if any(True for _ in _literal_secrets(name, value)) else value
        for name, value in variables.items()
    }


def hide_in_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an agent as they may be recorded."""
    hidden = {"env": hide_credentials(options["env"])} if options.get("env") else {}
    return {**options, **hidden}


def _secrets_of_program(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is secret in variables of a program, of 8 characters or more."""
    for name, value in variables.items():
        if isinstance(value, str):
            found = _literal_secrets(str(name), value)
            yield from (part for part in found if len(part) >= SHORTEST_SECRET)


def _literal_secrets(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a variable of a program, as far as it is written out."""
    yield from _literal_parts(name, value)
    found = variable_secrets(name, value)
    yield from (part for part in found if not _PLACEHOLDER.search(part))


def variable_secrets(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a variable that is named like a credential, or that holds a URL.

    What is an ordinary word, path or address is not.
    """
    parts = list(_in_credential(name, value)) if may_be_secret_name(name) else []
    if "://" in value:
        parts += url_secrets(value)
    yield from (part for part in parts if not is_ordinary(part))


def _in_credential(name: str, value: str) -> Iterator[str]:
    if is_ordinary(value):
        return
    if may_name_a_service(name):
        if is_url(value):
            return  # what is secret in a URL is, whatever its variable
        parts = dsn_secrets(value)
        if parts is not None:
            yield from parts
            return
        password = _OF_A_USER.match(value)
        if password:
            yield password[1]
    yield value
    yield from header_secrets({name: value})


def header_secrets(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the credentials that are written out in headers, of 8 characters or more."""
    for name, value in headers.items():
        if isinstance(value, str):
            yield from (
                part for part in _literal_parts(name, value) if len(part) >= SHORTEST_SECRET
            )


def _literal_parts(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a header: all of it, what follows the scheme, values of cookies."""
    if not is_credential_name(name) or not _is_literal(value):
        return
    yield value
    _, _, credentials = value.partition(" ")
    for part in (credentials.strip(), *(item.partition("=")[2] for item in value.split(";"))):
        if part and _is_literal(part):
            yield part
            yield from _decoded(part)


def _is_literal(value: str) -> bool:
    """Tell whether anything is left of a value without its placeholders and its scheme."""
    rest = _PLACEHOLDER.sub("", value)
    scheme, _, after = rest.partition(" ")
    return bool(after.strip() if _PLACEHOLDER.search(value) else scheme)


def _decoded(part: str) -> Iterator[str]:
    """Yield user and password of Basic authorization."""
    try:
        text = base64.b64decode(part, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    user, colon, password = text.partition(":")
    if colon and user.isprintable():
        yield text
        yield password
