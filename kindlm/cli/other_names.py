"""Names that people bring along from other tools: they work, and help shows ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_COMMANDS: Mapping[str, str] = {"run": "test"}

_ALIKE: Mapping[str, str] = {"watch": "test"}
"""Commands of ours that take the options of another one."""

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


_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "test": {"--resume": "latest"},
    "rescore": {"--resume": "latest"},
}
"""What an option means that stands alone: typer has none with a value that may be left out."""


def in_our_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the names of other tools put into ours, and defaults put in."""
    if not arguments:
        return []
    command = _COMMANDS.get(arguments[0], arguments[0])
    like = _ALIKE.get(command, command)
    names, surplus = _OPTIONS.get(like, {}), _ALWAYS_DONE.get(like, frozenset())
    defaults = _DEFAULTS.get(like, {})
    renamed = [command]
    for position, argument in enumerate(arguments[1:], start=1):
        if argument == "--":
            return [*renamed, *arguments[position:]]
        if argument in defaults and not _has_value(arguments, position):
            renamed.append(f"{argument}={defaults[argument]}")
            continue
        name, sign, value = argument.partition("=")
        if argument not in surplus:
            renamed.append(names.get(name, name) + sign + value)
    return renamed


def _has_value(arguments: Sequence[str], position: int) -> bool:
    return position + 1 < len(arguments) and not arguments[position + 1].startswith("-")
