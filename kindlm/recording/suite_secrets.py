"""The secrets that suites name, give to agents, or have written into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kindlm.config.credentials import (
    address_secrets,
    credential_variables,
    given_variables,
    literal_secrets,
)
from kindlm.config.interpolation import names_in
from kindlm.recording.secrets import secret_values
from kindlm.secrecy import SHORTEST_SECRET, is_secret_name
from kindlm.suite import Suite

__all__ = ["short_secrets", "suite_secrets"]


def suite_secrets(environ: Mapping[str, str], suites: Iterable[Suite]) -> set[str]:
    """Return the secrets of an environment that suites run in, and those written into them."""
    variables: set[str] = set()
    written: set[str] = set()
    for suite in suites:
        variables |= _key_variables(suite) | given_variables(suite)
        written |= literal_secrets(suite) | address_secrets(suite, environ)
    return secret_values(environ, variables) | written


def short_secrets(environ: Mapping[str, str], suite: Suite) -> list[str]:
    """Return the secret variables that a suite uses and whose values are too short to be hidden."""
    used = {name for name in _variables(suite) if is_secret_name(name)} | _key_variables(suite)
    return sorted(name for name in used if 0 < len(environ.get(name, "").strip()) < SHORTEST_SECRET)


def _variables(suite: Suite) -> set[str]:
    """Return the variables that the configuration of a suite names, in the way of its format."""
    if suite.front_end == "evalview":
        from kindlm.formats.evalview.variables import variables_in

        return variables_in(suite.config_text)
    written = names_in(suite.config_text)
    return {name.removeprefix("env.") for name in written if name.startswith("env.")}


def _key_variables(suite: Suite) -> set[str]:
    """Return the variables that a suite names as keys, or puts where credentials stand."""
    keys = (settings.api_key_env for settings in suite.providers.values())
    return {key for key in keys if key} | credential_variables(suite)
