"""Placeholders in prompts and addresses: that each of them will have a value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kindlm.config.diagnostics import Reporter, hint_for
from kindlm.config.file_references import SYSTEM_FILE_KEYS
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import DEFERRED_PREFIXES, is_deferred, names_in
from kindlm.config.places import Path, dotted
from kindlm.config.raw import Raw, items, section
from kindlm.errors import Ok

__all__ = ["check_templates"]

_ENV = re.compile(r"env\.\w+")
_PORT = re.compile(r"serve\.(\w+)\.port")


def check_templates(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report variables that a test does not set, and placeholders that can never be filled in."""
    services = [str(item.get("name")) for _, item in items(raw, "serve")]
    prompts = {
        name: dict(_templates(name, prompt, files))
        for name, prompt in section(raw, "prompts").items()
        if isinstance(prompt, dict)
    }
    for templates in prompts.values():
        for path, template in templates.items():
            _check_deferred(path, template, services, reporter, only_deferred=False)
    for path, text in _urls(raw):
        _check_deferred(path, text, services, reporter, only_deferred=True)
    for index, (path, service) in enumerate(items(raw, "serve")):
        # Services are started in their order: a later one has no port yet.
        started = services[: index + 1]
        for place, text in _service_texts(path, service):
            _check_deferred(place, text, started, reporter, only_deferred=True)
    for path, test in items(raw, "tests"):
        _check_variables(path, test, prompts, reporter)


def _templates(name: str, prompt: Raw, files: ReferencedFiles) -> Iterator[tuple[Path, str]]:
    for key in ("system", "user", "assistant"):
        text = prompt.get(key)
        if isinstance(text, str):
            yield ("prompts", name, key), text
    for key in (*SYSTEM_FILE_KEYS, "userFile"):
        file = prompt.get(key)
        if isinstance(file, str) and file:
            content = files.text(file)
            if isinstance(content, Ok):
                yield ("prompts", name, key), content.value


def _urls(raw: Raw) -> Iterator[tuple[Path, str]]:
    for name, provider in section(raw, "providers").items():
        url = provider.get("baseUrl") if isinstance(provider, dict) else None
        if isinstance(url, str):
            yield ("providers", name, "baseUrl"), url


def _service_texts(path: Path, service: Raw) -> Iterator[tuple[Path, str]]:
    for key, text in section(service, "env").items():
        if isinstance(text, str):
            yield (*path, "env", key), text
    for key in ("command", "ready"):
        value = service.get(key)
        if isinstance(value, str):
            yield (*path, key), value
    command = service.get("command")
    for index, word in enumerate(command if isinstance(command, list) else ()):
        if isinstance(word, str):
            yield (*path, "command", index), word


def _check_deferred(
    path: Path, text: str, services: list[str], reporter: Reporter, *, only_deferred: bool
) -> None:
    for name in names_in(text):
        port = _PORT.fullmatch(name)
        if port and port[1] not in services:
            reporter.error(
                path,
                f"{{{{{name}}}}} refers to a service that is not started before",
                hint_for(port[1], services, "Services that are there by then"),
                reason="unknown_service",
                value=port[1],
            )
        elif is_deferred(name) and not port and not _ENV.fullmatch(name):
            reporter.error(
                path,
                f"{{{{{name}}}}} is not a placeholder that can be filled in",
                "Write {{env.NAME}} or {{serve.NAME.port}}",
                reason="unknown_placeholder",
                value=name,
            )
        elif only_deferred and not is_deferred(name):
            reporter.error(
                path,
                f"{{{{{name}}}}} has no value here: variables of tests do not reach {dotted(path)}",
                "Only {{env.NAME}} and {{serve.NAME.port}} can stand here",
                reason="unknown_placeholder",
                value=name,
            )


def _check_variables(
    path: Path, test: Raw, prompts: dict[str, dict[Path, str]], reporter: Reporter
) -> None:
    variables = section(test, "vars")
    for name in variables:
        if name.startswith(DEFERRED_PREFIXES):
            reporter.error(
                (*path, "vars", name),
                f'A variable cannot be called "{name}": the environment and ports have such names',
                "Give it another name",
                reason="reserved_name",
                at_key=True,
            )
    prompt = test.get("prompt")
    templates = prompts.get(prompt, {}) if isinstance(prompt, str) else {}
    needed = dict.fromkeys(name for text in templates.values() for name in names_in(text))
    missing = [name for name in needed if name not in variables and not is_deferred(name)]
    if missing:
        listed = ", ".join(f"{{{{{name}}}}}" for name in missing)
        reporter.error(
            (*path, "vars"),
            f'The test "{test.get("name")}" has no value for {listed} of the prompt "{prompt}"',
            "Add to its `vars:` " + ", ".join(f"`{name}:`" for name in missing),
            reason="missing_variables",
            at_key=True,
            missing=missing,
        )
