"""`${NAME}` and `{{serve.NAME.port}}` in files of EvalView: filled in now, or when a test is run.

Where a secret may be, in what is sent and where it is sent to, only the name of a variable goes
into what is loaded, and the value is put in when the test is run. Everywhere else it is put in at
once, so that it may also be a number. What is inserted is never expanded again; a dollar sign that
begins no `${NAME}` is a dollar sign.

`serve:` of `.evalview/config.yaml`, an extension, has the keys that it has in kindlm.yaml. The
programs run in the folder that holds `.evalview`; their ports stand in addresses, headers and
options, also in those of the cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from kindlm.config.compile import compile_service
from kindlm.config.diagnostics import Reporter
from kindlm.config.interpolation import MARK
from kindlm.config.references import check_unique
from kindlm.config.templates import check_deferred
from kindlm.document import Path, Raw, items, section, texts, walk
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.suite import Service

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACEHOLDER = re.compile(r"\{\{env\.(\w+)\}\}")

SAID = MARK + r"{{env.\1}}"
"""In what is said to the agent, where its author may write anything."""

ADDRESS = r"{{env.\1}}"
"""In addresses, headers and options, which are filled in likewise in all formats."""

_NOT_DEFERRED = frozenset({"timeout", "streaming", "mode", "verbose", "sequence_mode"})
_ADDRESSES = frozenset({"endpoint", "headers", "adapter_config", "serve"})


def variables_in(text: str) -> set[str]:
    """Return the names of the variables that stand in a text."""
    return set(_VARIABLE.findall(text))


def has_all(
    value: Any, environ: Mapping[str, str], reporter: Reporter, *, is_run: bool = True
) -> bool:
    """Report each variable without a value where it is written; return whether there is none.

    Where nothing `is_run`, those that are filled in at run time need no value.
    """
    complete = True
    for path, _ in walk(value, ()):
        # It would be taken as it is written.
        if path and isinstance(path[-1], str) and _VARIABLE.search(path[-1]):
            complete = False
            message = "A key cannot hold a variable"
            reporter.error(path, message, "Write the key out", reason="variable_in_key")
    for path, text in texts(value, ()):
        if not is_run and _form(path) is not None:
            continue
        names = _VARIABLE.findall(text)
        if _form(path) == ADDRESS:
            names += _PLACEHOLDER.findall(text)
        for name in dict.fromkeys(names):
            if name in environ:
                continue
            complete = False
            reporter.variable_not_set(path, name)
    return complete


def expand(value: Any, environ: Mapping[str, str], path: Path = ()) -> Any:
    """Return a value with its variables filled in, or marked for run time; all must be set."""
    match value:
        case str():
            form = _form(path)
            if form is not None:
                return _VARIABLE.sub(form, value)
            return _VARIABLE.sub(lambda found: environ.get(found[1], found[0]), value)
        case dict():
            return {key: expand(item, environ, (*path, key)) for key, item in value.items()}
        case list():
            return [expand(item, environ, (*path, at)) for at, item in enumerate(value)]
        case _:
            return value


def _form(path: Path) -> str | None:
    """Return how a variable is written until the test is run; None where it is put in at once."""
    match path:
        case ("turns", int(), "query" | "context", *_):
            return SAID
        case ("adapter_config", field, *_) if field in _NOT_DEFERRED:
            return None
        case ("input", *_) | ("model",):
            return SAID
        case (field, *_) if field in _ADDRESSES:
            return ADDRESS
        case ("judge", "base_url"):
            return ADDRESS
        case _:
            return None


_WITH_PORTS = ("endpoint", "headers", "adapter_config")


def compile_services(config: ProjectConfig, file: FilePath | None) -> tuple[Service, ...]:
    """Return the programs to start for a suite, by the configuration in that file."""
    if file is None:
        return ()
    return tuple(compile_service(item, file.parent.parent) for item in config.serve or ())


def check_serve(raw: Raw, reporter: Reporter) -> None:
    """Report programs of one name, and placeholders that can never be filled in."""
    check_unique(items(raw, "serve"), "name", "service", reporter)
    names: list[str] = []
    for path, item in items(raw, "serve"):
        # They are started in their order: a later one has no port yet.
        names.append(str(item.get("name")))
        for place, text in _texts(item, path, ("command", "ready", "env")):
            check_deferred(place, text, names, reporter, only_deferred=True)
    judge = texts(section(raw, "judge").get("base_url"), ("judge", "base_url"))
    for place, text in (*_texts(raw, (), _WITH_PORTS), *judge):
        check_deferred(place, text, names, reporter, only_deferred=False)


def check_ports_of_case(raw: Raw, config: ProjectConfig, reporter: Reporter) -> None:
    """Report the ports of programs that nothing starts."""
    services = [item.name for item in config.serve or ()]
    for place, text in _texts(raw, (), _WITH_PORTS):
        check_deferred(place, text, services, reporter, only_deferred=False)


def _texts(raw: Raw, path: Path, keys: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for key in keys:
        yield from texts(raw.get(key), (*path, key))
