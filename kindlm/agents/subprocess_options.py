"""The settings of an agent that is a program, checked before it is started."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.agents.failures import SHORTEST_HIDDEN, Who, bad_option
from kindlm.agents.http_request import PLACEHOLDERS, placeholders
from kindlm.agents.http_target import unknown_option
from kindlm.agents.json_values import PATH
from kindlm.agents.reply_reading import Reading
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.secrecy import is_credential_name, is_ordinary, may_be_secret_name
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

SANDBOXES = ("local", "daytona")

_PATHS = ("responsePath", "toolCallsPath")
_OPTIONS = ("command", "oneShot", "env", "cwd", "sandbox", "snapshot", *_PATHS)


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """How the program of an agent is run and talked to.

    Attributes:
        words: the program and its arguments, in which a `one_shot` has placeholders.
        one_shot: whether it is started anew for each message, and prints text.
        env: environment variables for it, besides those of the run.
        folder: where it runs, relative to the file that names it.
        sandbox: one of `SANDBOXES`.
        snapshot: what a sandbox is made of, None for what its provider makes it of.
    """

    who: Who
    words: tuple[str, ...]
    one_shot: bool
    env: Mapping[str, str]
    folder: str
    sandbox: str
    snapshot: str | None
    reading: Reading


def program_settings(target: AgentTarget) -> Result[ProgramSettings]:
    """Check a target and return its settings; no error holds the value of a variable."""
    options = target.options
    env = options.get("env", {})
    who = Who(target.id, _secrets(env))
    words = _words(options.get("command"))
    error = (
        unknown_option(target, _OPTIONS)
        or _wrong_type(who, options)
        or _wrong_words(who, words, one_shot=options.get("oneShot", False))
        or _wrong_path(who, options)
    )
    if error is not None:
        return Err(error)
    return Ok(
        ProgramSettings(
            who=who,
            words=words,
            one_shot=options.get("oneShot", False),
            env=env,
            folder=options.get("cwd", "."),
            sandbox=options.get("sandbox", SANDBOXES[0]),
            snapshot=options.get("snapshot"),
            reading=Reading(
                response_path=options.get("responsePath"),
                tool_calls_path=options.get("toolCallsPath"),
            ),
        )
    )


def _words(command: Any) -> tuple[str, ...]:
    """Return the words of a command, none if they cannot be told."""
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError:
            return ()
    if isinstance(command, list | tuple) and all(isinstance(word, str) for word in command):
        return tuple(command)
    return ()


def _wrong_type(who: Who, options: Mapping[str, Any]) -> KindlmError | None:
    if not isinstance(options.get("oneShot", False), bool):
        return bad_option(who, "`oneShot` must be true or false")
    for name in ("cwd", "snapshot"):
        if name in options and not (isinstance(options[name], str) and options[name]):
            return bad_option(who, f"`{name}` must be a text")
    if not _are_variables(options.get("env", {})):
        return bad_option(who, "`env` must be a mapping of names to texts")
    sandbox = options.get("sandbox", SANDBOXES[0])
    if sandbox not in SANDBOXES:
        hint = hint_for(str(sandbox), SANDBOXES, "Known")
        return bad_option(who, f"`sandbox` is {sandbox!r}", hint)
    if "snapshot" in options and sandbox == SANDBOXES[0]:
        return bad_option(who, "`snapshot` has no meaning without a sandbox", "Remove it")
    return None


def _are_variables(env: Any) -> bool:
    return isinstance(env, dict) and all(
        isinstance(name, str)
        and isinstance(value, str)
        and name
        and "=" not in name
        and "\0" not in name + value
        for name, value in env.items()
    )


def _wrong_words(who: Who, words: tuple[str, ...], *, one_shot: Any) -> KindlmError | None:
    if not words or not words[0]:
        hint = "Write it like `python agent.py`, or as a list of words"
        return bad_option(who, "its `command` is no command", hint)
    if not one_shot:
        misplaced = next((name for name in placeholders(words) if name in PLACEHOLDERS), None)
        if misplaced is None:
            return None
        message = f"{{{{{misplaced}}}}} in its `command` is not filled in: it is told in lines"
        return bad_option(who, message, "Add `oneShot: true`, or remove it")
    if next(placeholders(words[0]), None) is not None:
        message = "a message cannot name the program: the first word has a placeholder"
        return bad_option(who, message, "Put it into an argument")
    unknown = next((name for name in placeholders(words) if name not in PLACEHOLDERS), None)
    if unknown is not None:
        hint = hint_for(unknown, PLACEHOLDERS, "Known")
        return bad_option(who, f"`command` has the unknown placeholder {{{{{unknown}}}}}", hint)
    return None


def _wrong_path(who: Who, options: Mapping[str, Any]) -> KindlmError | None:
    for name in _PATHS:
        path = options.get(name)
        if path is None:
            continue
        if options.get("oneShot"):
            return bad_option(who, f"`{name}` has no meaning with `oneShot`", "Remove it")
        if not (isinstance(path, str) and PATH.fullmatch(path)):
            return bad_option(who, f"`{name}` is no path", "Write it like data.items[0].text")
    return None


def _secrets(env: Any) -> frozenset[str]:
    """Return the values that must not be shown, by the names of their variables."""
    if not isinstance(env, dict):
        return frozenset()
    return frozenset(
        value
        for name, value in env.items()
        if isinstance(value, str)
        and _is_credential(str(name), value)
        and len(value) >= SHORTEST_HIDDEN
    )


def _is_credential(name: str, value: str) -> bool:
    return is_credential_name(name) or (may_be_secret_name(name) and not is_ordinary(value))
