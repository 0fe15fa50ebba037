"""Programs that are started for the cases of a project: an extension of EvalView's configuration.

`serve:` of `.evalview/config.yaml` has the keys that it has in kindlm.yaml. The programs run in the
folder that holds `.evalview`, and `{{serve.NAME.port}}` stands for the port of one in addresses,
headers and options, also in those of the cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from kindlm.config.compile_targets import compile_service
from kindlm.config.diagnostics import Reporter
from kindlm.config.places import Path
from kindlm.config.raw import Raw, items, section, texts
from kindlm.config.templates import check_deferred
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.suite import Service

_ADDRESSES = ("endpoint", "headers", "adapter_config")


def compile_services(config: ProjectConfig, file: FilePath | None) -> tuple[Service, ...]:
    """Return the programs to start for a suite, by the configuration in that file."""
    if file is None:
        return ()
    return tuple(compile_service(item, file.parent.parent) for item in config.serve or ())


def check_serve(raw: Raw, reporter: Reporter) -> None:
    """Report programs of one name, and placeholders that can never be filled in."""
    names: dict[str, Path] = {}
    for path, item in items(raw, "serve"):
        name = str(item.get("name"))
        for place, text in _texts(item, path, ("command", "ready", "env")):
            # They are started in their order: a later one has no port yet.
            check_deferred(place, text, [*names, name], reporter, only_deferred=True)
        if name in names:
            line = reporter.where(names[name]).line
            reporter.error(
                (*path, "name"),
                f'The service "{name}" is there twice: first on line {line}',
                "Give each one a name of its own",
                reason="duplicate_service",
                value=name,
            )
        names.setdefault(name, (*path, "name"))
    for place, text in (*_texts(raw, (), _ADDRESSES), *_judge(raw)):
        check_deferred(place, text, list(names), reporter, only_deferred=False)


def check_ports_of_case(raw: Raw, config: ProjectConfig, reporter: Reporter) -> None:
    """Report the ports of programs that nothing starts."""
    services = [item.name for item in config.serve or ()]
    for place, text in _texts(raw, (), _ADDRESSES):
        check_deferred(place, text, services, reporter, only_deferred=False)


def _texts(raw: Raw, path: Path, keys: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for key in keys:
        yield from texts(raw.get(key), (*path, key))


def _judge(raw: Raw) -> Iterator[tuple[Path, str]]:
    url: Any = section(raw, "judge").get("base_url")
    if isinstance(url, str):
        yield ("judge", "base_url"), url
