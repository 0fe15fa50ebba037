"""The options of adapters that start a program."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN
from kindlm.plugins import Adapter
from kindlm.secrecy import is_credential_name, is_ordinary, may_be_secret_name
from kindlm.section import CommandLine, Maybe, Text
from kindlm.values import refuse


def _check_variables(env: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
        raise refuse("must be a mapping of names to texts")
    return env


class ProgramOptions(Adapter):
    """What a program is started with."""

    command: Maybe[CommandLine] = Field(default=None, examples=["python agent.py"])
    """Program with its arguments (`mcp`; required for `subprocess`): a string that is split like a
    shell would, or a list. No shell runs it."""
    env: Annotated[dict[str, str], AfterValidator(_check_variables)] = Field(
        default={}, examples=[{"MODE": "test"}]
    )
    """Environment variables for the program (`subprocess`, `mcp`), added to those of the run. In a
    sandbox, the program gets only these."""
    cwd: Text = Field(default=".", examples=["agent"])
    """Working folder of the program (`subprocess`, `mcp`), relative to this file; in a sandbox,
    relative to the start folder of its snapshot. By default the folder of this file."""

    @property
    def words(self) -> list[str]:
        """The program and its arguments, none if there is no program."""
        return shlex.split(self.command) if isinstance(self.command, str) else self.command or []

    def compiled(self) -> Self:
        """Split the command before variables are put in: a value is one word, whatever is in it."""
        if self.command is None:
            return self
        return self.model_copy(update={"command": self.words})


def program_secrets(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values that must not be shown, by the names of their variables."""
    return frozenset(
        value
        for name, value in env.items()
        if len(value) >= SHORTEST_HIDDEN
        and (is_credential_name(name) or (may_be_secret_name(name) and not is_ordinary(value)))
    )
