"""Names that people bring along from other tools: they work, and help shows ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["in_our_names"]

_COMMANDS: Mapping[str, str] = {"run": "test"}

_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "test": {
        "--tag": "--tags",
        "--repeat": "--runs",
        "--parallel": "--concurrency",
        "--format": "--reporter",
        "--version": "--label",
        "--filter-failing": "--failed",
    },
}

_ALWAYS_DONE: Mapping[str, frozenset[str]] = {"test": frozenset({"--save"})}
"""Options for what kindlm does anyway: every run is recorded."""


def in_our_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the names of other tools put into ours."""
    if not arguments:
        return []
    command = _COMMANDS.get(arguments[0], arguments[0])
    names, surplus = _OPTIONS.get(command, {}), _ALWAYS_DONE.get(command, frozenset())
    renamed = [command]
    for position, argument in enumerate(arguments[1:], start=1):
        if argument == "--":
            return [*renamed, *arguments[position:]]
        name, sign, value = argument.partition("=")
        if argument not in surplus:
            renamed.append(names.get(name, name) + sign + value)
    return renamed
