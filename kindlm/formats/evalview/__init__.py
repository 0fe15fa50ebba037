"""Loads EvalView test cases: from the files of a folder to a `Suite`, or to diagnostics with lines.

It loads each file by itself, then makes one suite of all. The nearest `.evalview/config.yaml` above
the folder, up to the root of the project, has defaults for the cases. Variables are filled in
before the values are validated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from kindlm.config import LoadedSuite, read_bytes, suite_identity
from kindlm.config.advice import warn_of_credentials
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.interpolation import MARK
from kindlm.config.references import check_unique
from kindlm.config.templates import check_deferred
from kindlm.config.toml_document import read_toml
from kindlm.config.validation import fit, kind_of
from kindlm.dataclass import dataclass
from kindlm.document import Document, Path, Raw, cases_of, items, section, texts
from kindlm.errors import Err, SourceLocation, misuse
from kindlm.formats.discovery import cases_in
from kindlm.formats.evalview.case_schema import CaseConfig
from kindlm.formats.evalview.evalview_suite import CheckedCase, compile_folder
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.formats.evalview.rules import check_case, check_project, warn_of_case
from kindlm.secrecy import header_secrets
from kindlm.wording import shown_path
from kindlm.yaml_document import read_documents

_FOLDER = ".evalview"
_NAMES = ("config.yaml", "config.yml", "config.toml")


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """The settings for loading cases, compared by identity: they are a key of a cache.

    With `is_run`, kindlm will call the agents, so all variables need values.
    """

    root: FilePath
    project: str
    environ: Mapping[str, str]
    strict: bool = False
    compat: bool = False
    is_run: bool = True


def project_folder(folder: FilePath, root: FilePath) -> FilePath | None:
    """Return the folder above the `.evalview` for a folder of cases; None if there is none."""
    file = _find(folder.resolve(), root.resolve())
    return None if file is None else file.parent.parent


@lru_cache(maxsize=8)  # the folders of a project share its configuration
def _load_config(
    file: FilePath | None, around: Surroundings
) -> tuple[ProjectConfig | None, tuple[Diagnostic, ...]]:
    """Return the configuration of a project, None if it has an error; and its diagnostics."""
    if file is None:
        return ProjectConfig(), ()
    shown = FilePath(shown_path(file))
    documents, whole = _read(shown)
    values = [at for at, value in enumerate(documents.value or ()) if value is not None]
    if len(values) > 1:
        message = "The configuration is one document, and this is a second one"
        whole.error((values[1],), message, "Join the two: remove the line '---'", reason="syntax")
    if whole.has_errors or not values:
        return None if whole.has_errors else ProjectConfig(), tuple(whole.diagnostics)
    document, config = documents.part(values[0]), None
    reporter = Reporter(str(shown), document)
    if (filled := _filled(document.value, ("headers",), around, reporter)) is not None:
        check_unique(items(filled, "serve"), "name", "service", reporter)
        started: list[str] = []
        for path, item in items(filled, "serve"):
            # Programs start in order: a later one has no port yet.
            started.append(str(item.get("name")))
            _check_ports(item, ("command", "ready", "env"), started, reporter, path)
        _check_ports(filled, _WITH_PORTS, started, reporter)
        _check_ports(section(filled, "judge"), ("base_url",), started, reporter, ("judge",))
        config = fit(ProjectConfig, filled, reporter, tolerant=not around.strict)
    if config is not None:
        check_project(config, reporter)
    reporter.sort_phase()
    diagnostics = (*whole.diagnostics, *reporter.diagnostics)
    return None if reporter.has_errors else config, diagnostics


def _find(folder: FilePath, root: FilePath) -> FilePath | None:
    """Return the nearest configuration in or above a folder, up to the root."""
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(root)] or [folder]
    files = (place / _FOLDER / name for place in above for name in _NAMES)
    return next((file for file in files if file.is_file()), None)


def _read(path: FilePath) -> tuple[Document, Reporter]:
    data = read_bytes(path)
    if isinstance(data, Err):
        reporter = Reporter(str(path), Document())
        reporter.diagnostics.append(Diagnostic(data.error))
        return Document(), reporter
    is_toml = path.suffix.lower() == ".toml"
    documents = read_toml(data.value) if is_toml else read_documents(data.value, merges=True)
    reporter = Reporter(str(path), documents)
    reporter.problems()
    return documents, reporter


def load_folder(
    folder: FilePath, named: Sequence[FilePath], around: Surroundings
) -> list[LoadedSuite]:
    """Load the cases of a folder and those in `named` files, whatever their names are.

    Return the suite, unless all `named` files have errors, and a suite that cannot run for each
    named file with an error; if the configuration has an error, one suite that cannot run. The
    suite does not depend on which of its files are named; others get no diagnostics. Errors of the
    user become diagnostics.
    """
    config_file = _find(folder.resolve(), around.root.resolve())
    config, found = _load_config(config_file, around)
    # A link to a file names it.
    files = {os.path.realpath(path): path for path in cases_in(folder)}
    for path in named:
        files.setdefault(os.path.realpath(path), path)
    asked = {files[os.path.realpath(path)] for path in named}
    identity = suite_identity(folder, around.root)
    name = around.project if identity == "." else identity
    referenced = () if config_file is None else (config_file,)
    if config is None:
        tests = sum(len(cases_of(_read(path)[0])) for path in asked)
        return [LoadedSuite(folder, None, name, tests, found, referenced)]
    cases, taken = list[CheckedCase](), dict[str, SourceLocation]()
    failed, unread = list[LoadedSuite](), list[str]()
    for path in files.values():
        of_file, alone = _load_file(path, config, around, taken)
        cases += of_file
        if not of_file:
            unread.append(suite_identity(path, around.root))
            failed += [alone] if path in asked else []
        elif path in asked:
            found += alone.diagnostics
    unnamed = {case.config.name for case in cases if case.file not in asked}
    if len(failed) == len(asked):
        return failed
    home = folder if config_file is None else config_file.parent.parent  # of `.evalview`
    names, compat = (name, around.project, identity), around.compat
    suite = compile_folder(*names, cases, config, home, compat=compat, unread=tuple(unread))
    whole = LoadedSuite(folder, suite, name, len(cases), found, referenced, frozenset(unnamed))
    return [whole, *failed]


_MOST_CASES = 1_000


def _load_file(
    path: FilePath, config: ProjectConfig, around: Surroundings, taken: dict[str, SourceLocation]
) -> tuple[list[CheckedCase], LoadedSuite]:
    """Return the cases of a file, none if it has an error; and the file as one that cannot run.

    `taken` are the places of the names in earlier files, to which it adds its own.
    """
    documents, whole = _read(path)
    found = cases_of(documents)
    if not found and not whole.has_errors:
        whole.error((), "The file holds no case", "Begin with `name:`")
    if len(found) > _MOST_CASES:
        message = f"The file holds {len(found):,} cases, and {_MOST_CASES:,} is the most"
        whole.error((), message, "Split it", reason="limit")
        found = []
    cases: list[CheckedCase] = []
    diagnostics = list(whole.diagnostics)
    for document in found:
        reporter = Reporter(str(path), document)
        filled = _filled(document.value, ("adapter_config", "headers"), around, reporter)
        if filled is not None:
            started = [item.name for item in config.serve or ()]
            _check_ports(filled, _WITH_PORTS, started, reporter)
            case = fit(CaseConfig, filled, reporter, tolerant=not around.strict)
            if filled.get("input") is None and filled.get("turns") is None:
                reporter.missing_key(("input",))
            if case is not None:
                check_case(case, config, reporter)
                if not reporter.has_errors:
                    warn_of_case(case, config, reporter)
                    cases.append(CheckedCase(case, path, reporter.where))
        reporter.sort_phase()
        diagnostics += reporter.diagnostics
    is_wrong = any(item.severity == "error" for item in diagnostics)
    for each in () if is_wrong else cases:
        name, place = each.config.name, each.where(("name",))
        if (first := taken.setdefault(name, place)) is not place:
            message = f'The name "{name}" occurs twice: first at {first}'
            hint = "kindlm identifies results by case name within a folder: rename one"
            error = misuse(message, hint, place, "duplicate_test")
            diagnostics.append(Diagnostic(error, "error", "name"))
            is_wrong = True
    alone = LoadedSuite(path, None, path.name, len(found), tuple(diagnostics))
    return [] if is_wrong else cases, alone


# Variables: `${NAME}`, and `{{serve.NAME.port}}` of programs to start
#
# Messages, addresses, headers and options may hold secrets: their variables are filled in when the
# test runs, and the suite has only the names. All other variables are filled in at once, and may be
# numbers. Inserted values are never expanded again. A dollar sign without a name in braces stays.

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACEHOLDER = re.compile(r"\{\{env\.(\w+)\}\}")
_WITH_DEFAULT = re.compile(r"\$\{(?:[A-Za-z_][A-Za-z0-9_]*:|[A-Z_][A-Z0-9_]*)[-=?+]")
"""The beginning of a variable as a shell fills it in: `${NAME:-default}`, not the code `${a+b}`."""

_SAID = MARK + r"{{env.\1}}"
"""The form of a variable in messages. The mark tells it from the same text by the author."""

_ADDRESS = r"{{env.\1}}"
"""The form of a variable in addresses, headers and options, as in kindlm.yaml."""

_NOT_DEFERRED = frozenset({"timeout", "streaming", "mode", "verbose", "sequence_mode"})


def variables_in(text: str) -> set[str]:
    """Return the names of the variables in a text."""
    return set(_VARIABLE.findall(text))


def _filled(
    value: Any, headers: Path, around: Surroundings, reporter: Reporter
) -> dict[str, Any] | None:
    """Return a mapping with its variables filled in; None after reporting those without a value.

    Messages do not show credentials in its `headers`. If nothing will run, variables of run time
    need no values.
    """
    if not isinstance(value, dict):
        message = f"There must be a mapping here, but it is {kind_of(value)}"
        reporter.error((), message, "Begin with a key, such as `name:`")
        return None
    reporter.hide(header_secrets(section(value, *map(str, headers))))
    found: dict[str, Any] = _expanded(value, (), around, reporter)
    agent = headers[:-1]
    for path, entry in ((agent, section(found, *map(str, agent))), *items(found, "serve")):
        warn_of_credentials(path, entry, reporter, "${NAME}")
    return None if reporter.has_errors else found


def _expanded(value: Any, path: Path, around: Surroundings, reporter: Reporter) -> Any:
    """Return a value with its variables filled in, or marked for run time; report unset ones."""
    if isinstance(value, dict):
        for key in filter(_VARIABLE.search, value):
            message, hint = "A key cannot hold a variable", "Write the key out"
            reporter.error((*path, key), message, hint, reason="variable_in_key")
        return {key: _expanded(it, (*path, key), around, reporter) for key, it in value.items()}
    if isinstance(value, list):
        return [_expanded(it, (*path, at), around, reporter) for at, it in enumerate(value)]
    if not isinstance(value, str):
        return value
    # The command of a program may be a shell, which fills them in.
    if path[:1] != ("serve",) and (found := _WITH_DEFAULT.search(value)):
        message = f"{found[0]}…}} is not replaced: variables have no defaults here"
        hint = "Write ${NAME}, and set it in your environment or .env file"
        reporter.warning(path, message, hint, reason="near_placeholder")
    form = _form(path)
    if around.is_run or form is None:
        names = _VARIABLE.findall(value) + (_PLACEHOLDER.findall(value) if form == _ADDRESS else [])
        for name in dict.fromkeys(names):
            if name not in around.environ:
                reporter.variable_not_set(path, name)
    return _VARIABLE.sub(form or (lambda it: around.environ.get(it[1], it[0])), value)


def _form(path: Path) -> str | None:
    """Return the form of variables at a path until the test runs; None if filled in at once."""
    match path:
        case ("turns", int(), "query" | "context", *_) | ("input", *_) | ("model",):
            return _SAID
        case ("adapter_config", field, *_) if field in _NOT_DEFERRED:
            return None
        case ("endpoint" | "headers" | "adapter_config" | "serve", *_) | ("judge", "base_url"):
            return _ADDRESS
        case _:
            return None


_WITH_PORTS = ("endpoint", "headers", "adapter_config")
"""The keys of cases and configurations that may have ports of programs."""


def _check_ports(
    raw: Raw, keys: Sequence[str], started: list[str], reporter: Reporter, path: Path = ()
) -> None:
    """Report placeholders under these keys that never get a value; `path` is that of `raw`."""
    is_program = path[:1] == ("serve",)
    for key in keys:
        for place, text in texts(raw.get(key), (*path, key)):
            check_deferred(place, text, started, reporter, only_deferred=is_program)
