"""Checks placeholders in prompts, commands and addresses, and the variables that fill them.

It also warns of texts that look like placeholders, and of variables that would run as a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

from kindlm.checks.guardrails import CANARY
from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import expect_sections
from kindlm.config.files import FILE_KEYS, ReferencedFiles
from kindlm.config.interpolation import DEFERRED_PREFIXES, is_deferred, names_in
from kindlm.config.rows import RowFile
from kindlm.config.schema import KindlmConfig
from kindlm.document import Path, Raw, expectations, items, prompts_of, section, texts
from kindlm.errors import Err, Ok
from kindlm.plugins import Adapter
from kindlm.suggestions import hint_for
from kindlm.values import words_of
from kindlm.wording import first_of

_ENV = re.compile(r"env\.\w+")
_PORT = re.compile(r"serve\.(\w+)\.port")


def check_templates(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report variables that a test does not set, and placeholders that can never be filled in."""
    services = [str(item.get("name")) for _, item in items(raw, "serve")]
    has_gateway = any(agent.get("gateway") is True for _, agent in items(raw, "agents"))
    for path, text in all_templates(raw, files):
        started, takes_variables = services, path[0] in ("prompts", "tests")
        if path[0] == "serve":
            # Services start in order: a later one has no port yet.
            started = services[: int(path[1]) + 1]
            if has_gateway and "env" in path:
                text = text.replace("{{gateway}}", "")  # noqa: PLW2901 - the rest of it
        check_deferred(path, text, started, reporter, only_deferred=not takes_variables)
        if path[0] == "tests" and "arguments" in path:
            for name in filter(is_deferred, names_in(text)):
                message = (
                    f"{_as_written(name)} has no value here: calls get only variables of the test"
                )
                hint = "Give it to the server, in its `env` or `headers`"
                reporter.error(path, message, hint, reason="unknown_placeholder", value=name)
    for path, agent in items(raw, "agents"):
        for key in agent.keys() - Adapter.reserved:
            for place, text in texts(agent[key], (*path, key)):
                check_deferred(place, text, services, reporter, only_deferred=False)
    prompts = prompt_templates(raw, files)
    for path, test in items(raw, "tests"):
        own = "\n".join(text for _, text in _own_templates(path, test))
        named = [prompts.get(name, {}) for name in prompts_of(test).values()]
        # What the test sends with each of its prompts.
        sent = ["\n".join([*it.values(), own]) for it in named] or [own]
        needed = dict.fromkeys(name for text in sent for name in names_in(text))
        check_variables(path, test, list(needed), reporter, files)
        if "input" in section(test, "vars") and all(named):
            _check_input((*path, "vars", "input"), sent, reporter)


def _check_input(path: Path, sent: Sequence[str], reporter: Reporter) -> None:
    """Report an input that is not sent: it has no place, or only one with spaces: `{{ input }}`."""
    for text in sent:
        if "{{input}}" not in text and (found := _NEAR_INPUT.search(text)):
            message = f"It is not sent: {found[0]} in the prompt is not replaced"
            hint = "Write {{input}} without spaces"
            reporter.error(path, message, hint, reason="near_placeholder", value=found[0])
            return
    # A variable of that name may be unused, as any other.
    is_variable = reporter.place(path).endswith(".vars.input")
    if not is_variable and not any("{{input}}" in text for text in sent):
        message = "It is not sent: nothing that the test sends contains {{input}}"
        hint = "Write {{input}} into the prompt or the command, or remove it"
        reporter.error(path, message, hint, reason="not_sent")


def all_templates(raw: Raw, files: ReferencedFiles) -> Iterator[tuple[Path, str]]:
    """Yield all texts that may hold placeholders, with their paths."""
    for templates in prompt_templates(raw, files).values():
        yield from templates.items()
    for name, provider in section(raw, "providers").items():
        if isinstance(provider, dict):
            yield from texts(provider.get("baseUrl"), ("providers", name, "baseUrl"))
    of_entries = {"agents": ("endpoint", "url", "headers"), "serve": ("env", "command", "ready")}
    for entries, keys in of_entries.items():
        for path, entry in items(raw, entries):
            for key in keys:
                yield from texts(entry.get(key), (*path, key))
    for path, test in items(raw, "tests"):
        yield from _own_templates(path, test)


def prompt_templates(raw: Raw, files: ReferencedFiles) -> dict[str, dict[Path, str]]:
    """Return the texts of each prompt, including the content of its files, by their paths."""
    found: dict[str, dict[Path, str]] = {}
    for name, prompt in section(raw, "prompts").items():
        if not isinstance(prompt, dict):
            continue
        templates = found[name] = {}
        for key in ("system", "user", "assistant", *FILE_KEYS):
            text = prompt.get(key)
            if key in FILE_KEYS and isinstance(text, str) and text:
                content = files.text(text)
                text = content.value if isinstance(content, Ok) else None
            if isinstance(text, str):
                templates["prompts", name, key] = text
    return found


def _own_templates(path: Path, test: Raw) -> Iterator[tuple[Path, str]]:
    """Yield the texts with placeholders in a test: its command, calls and conversation."""
    yield from texts(test.get("command"), (*path, "command"))
    yield from texts(section(test, "call", "arguments"), (*path, "call", "arguments"))
    for place, turn in items(test, "conversation"):
        yield from texts(turn.get("user"), (*path, *place, "user"))
        inner = (*path, *place, "call", "arguments")
        yield from texts(section(turn, "call", "arguments"), inner)


def check_deferred(
    path: Path, text: str, services: list[str], reporter: Reporter, *, only_deferred: bool
) -> None:
    """Report placeholders of the environment, ports and others that never get a value.

    `services` are those that have started by then. With `only_deferred`, variables of tests are
    errors, too.
    """
    for name in names_in(text):
        port = _PORT.fullmatch(name)
        is_known = port or name == CANARY or _ENV.fullmatch(name)
        if port and port[1] not in services:
            message = f"{_as_written(name)} refers to a service that is not started yet"
            hint = hint_for(port[1], services, "Services started by then")
            reporter.error(path, message, hint, reason="unknown_service", value=port[1])
        elif not is_known and (only_deferred or is_deferred(name)):
            message = f"{_as_written(name)} has no value in {reporter.place(path)}"
            hint = "Only {{env.NAME}} and {{serve.NAME.port}} are allowed here"
            reporter.error(path, message, hint, reason="unknown_placeholder", value=name)


def _as_written(name: str) -> str:
    return f"{{{{{name}}}}}"


_MAX_SHOWN = 20
"""The most variables, and rows that lack one, that messages list."""


def check_variables(
    path: Path, test: Raw, needed: list[str], reporter: Reporter, files: ReferencedFiles
) -> None:
    """Report the variables that a test needs, and that its `vars` or some of its rows lack."""
    variables = section(test, "vars")
    for name in variables:
        if name.startswith(DEFERRED_PREFIXES):
            message = f'A variable cannot be called "{name}": that prefix is reserved'
            hint, at = "Give it another name", (*path, "vars", name)
            reporter.error(at, message, hint, reason="reserved_name", at_key=True)
    asked = [name for name in needed if name not in variables and not is_deferred(name)]
    file = test.get("varsFrom")
    found = files.rows(file) if asked and isinstance(file, str) and file else Ok(RowFile(()))
    if isinstance(found, Err) or (found.value.errors and not found.value.rows):
        return  # The file is reported; its columns are unknown.
    rows = found.value.rows
    columns = {name for row in rows for name in row.values}
    if missing := [name for name in asked if name not in columns]:
        # If the test has no `vars`, the text that needs them is shown.
        asks = ("prompt", "conversation", "command")
        place = next((key for key in asks if key in test and "vars" not in test), "vars")
        written = first_of(map(_as_written, missing), _MAX_SHOWN)
        message = f'The test "{test.get("name")}" has no value for {written}'
        names = first_of((f"`{name}:`" for name in missing), _MAX_SHOWN)
        hint = f"Add {names} to its `vars:`" + (", or to its rows" if "varsFrom" in test else "")
        reason = "missing_variables"
        reporter.error((*path, place), message, hint, reason=reason, at_key=True, missing=missing)
    # Rows that lack a variable which other rows have.
    asked = [name for name in asked if name in columns]
    gaps = [(row, name) for row in rows for name in asked if name not in row.values]
    for row, name in gaps[:_MAX_SHOWN]:
        message = f'The row "{row.id}" of the test "{test.get("name")}" has no value for '
        message += _as_written(name)
        message += f"; {len(gaps):,} values are missing" if len(gaps) > _MAX_SHOWN else ""
        hint = "Add it to the row, or to the `vars` of the test for all rows"
        where = (*path, "varsFrom"), str(file), row.line
        reporter.error_in_file(*where, message, hint, reason="missing_variables")


_NEARLY = re.compile(r"\{\{[ \t]*[\w.-]{1,60}[ \t]*\}\}|\$\{(?:env|serve)\.[\w.]+\}")
_EXACT = re.compile(r"\{\{[\w.]+\}\}")
_NEAR_INPUT = re.compile(r"\{\{(?!input\}\})[ \t]*input[ \t]*\}\}")


def warn_of_placeholders(
    config: KindlmConfig, raw: Raw, reporter: Reporter, files: ReferencedFiles
) -> None:
    """Warn of texts that look like placeholders, and are not filled in."""
    for path, text in all_templates(raw, files):
        inexact = (found[0] for found in _NEARLY.finditer(text) if not _EXACT.fullmatch(found[0]))
        if (written := next(inexact, None)) is not None:
            message = f"{written} is not replaced: it is not a placeholder"
            hint = "Write {{NAME}} without spaces; names have letters, digits, _ and dots"
            reporter.warning(path, message, hint, reason="near_placeholder", value=written)
    for index, test in enumerate(config.tests):
        raw_test = raw["tests"][index]
        rows = None if test.vars_from is None else files.rows(test.vars_from)
        columns = (row.values for row in rows.value.rows) if isinstance(rows, Ok) else ()
        known = set(test.vars).union(*columns)
        tools = (("tools",), raw_test.get("tools"))
        added = {path: expect.added for path, expect in expect_sections(("tests", index), test)}
        for at, part in (*expectations(raw_test), tools):
            of_part: Path = ("tests", index, *at)
            for place, text in texts(part, of_part):
                # A check of a package gets the environment and ports in its options.
                bound = place[len(of_part)] in added.get(of_part, ())
                found = [
                    name
                    for name in names_in(text)
                    if name in known or (is_deferred(name) and not bound)
                ]
                if at == ("tools",) and CANARY in found:
                    found.remove(CANARY)  # tools get it
                if found:
                    written, where = _as_written(found[0]), f"`{at[-1]}`"
                    message = f"{written} is not replaced: variables are not available in {where}"
                    reporter.warning(place, message, "Write the value", reason="not_expanded")


_INTERPRETERS = (
    (re.compile(r"(?:ba|da|a|z|k|fi)?sh|(?:python|pypy)[\d.]*"), re.compile(r"-\w*c\w*")),
    (re.compile("perl|ruby|node|bun|php"), re.compile(r"-\w*[epr]|--eval|--print")),
)
"""Interpreters, each with the option before a word of code."""


def warn_of_commands(config: KindlmConfig, reporter: Reporter) -> None:
    """Warn of variables in the first word after the options of an interpreter, if it is code."""
    for index, test in enumerate(config.tests):
        words = () if test.command is None else words_of(test.command)
        for position in _code_in(words):
            # kindlm chooses the ports: numbers.
            found = names_in(words[position])
            name = next((name for name in found if not name.startswith("serve.")), None)
            if name is not None:
                place: Path = ("tests", index, "command")
                place = place if isinstance(test.command, str) else (*place, position)
                written = _as_written(name)
                message = f"What is in {written} becomes part of a program here and is executed"
                hint = f"Pass it as a separate argument after the program: {written}"
                reporter.warning(place, message, hint, reason="run_as_program", value=written)


def _code_in(words: Sequence[str]) -> Iterator[int]:
    for start, word in enumerate(words, start=1):
        rest = words[start:]  # `bash -euo pipefail -c CODE` has the one usual value of an option
        options = list(takewhile(lambda each: each[:1] == "-" or each == "pipefail", rest))
        for names, code in _INTERPRETERS:
            if names.fullmatch(PurePosixPath(word).name) and any(map(code.fullmatch, options)):
                yield from range(start, len(words))[len(options) : len(options) + 1]
