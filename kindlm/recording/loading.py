"""Loads the suites at the paths of a command line, with their errors and warnings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from kindlm.config import LoadedSuite, load_suite, suite_identity
from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.formats.discovery import WHAT_HOLDS_TESTS, Discovery, Found, discover, pack_in
from kindlm.garbage import put_off
from kindlm.guard import guard
from kindlm.recording.project import (
    configuration_file,
    project_name,
    project_problems,
    run_environment,
)
from kindlm.recording.request import SkippedSuite
from kindlm.recording.secrets import remember_secrets
from kindlm.recording.suite_secrets import short_secrets, suite_secrets
from kindlm.suite import Suite


@dataclass(frozen=True, slots=True)
class Loaded:
    """The suites at the paths, those that can run and those that cannot, with all diagnostics.

    The `.env` files of `folders`, in order, belong to the run. `referenced` are files that the
    suites refer to, existing or not. `ignored` are YAML files that look like tests but are not.
    `unnamed` are tests, by path of the suite and name, in other files of a suite with a named file.
    """

    suites: tuple[Suite, ...]
    skipped: tuple[SkippedSuite, ...]
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    referenced: tuple[Path, ...]
    ignored: tuple[Path, ...]
    unnamed: frozenset[tuple[str, str]] = frozenset()

    @property
    def ignored_message(self) -> str:
        """A message about files that look like tests but are ignored."""
        return (
            f"Ignored: {', '.join(map(str, self.ignored))}. A suite in a folder needs `kindlm: 1`"
            " at its top, unless its name is kindlm.yaml."
        )


@put_off()
def load_paths(
    paths: Sequence[Path],
    root: Path,
    *,
    strict: bool = False,
    compat: bool = False,
    is_run: bool = True,
) -> Result[Loaded]:
    """Load all suites in the paths; return an error only if a path itself is unusable.

    With `strict`, unknown keys are errors in all formats, and so are tests and checks that never
    fail, and files in a folder that look like tests but are not. With `compat`, EvalView cases pass
    and fail as they do in EvalView. Unless it `is_run`, keys for agents may be missing.
    """
    found = _found_in(paths)
    if isinstance(found, Err):
        return found
    held = found.value
    folders = _folders(held.found, root)
    environ = run_environment([*folders, root], os.environ)
    kinds = {(item.front_end, item.path.suffix.lower()) for item in held.found}
    if ("scenario", ".py") in kinds:
        guard.enter()
        os.environ.update(environ)  # imported agents look up variables there
        if not is_run:
            # Clients that agents create on import require a key, but do not use it.
            for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
                os.environ.setdefault(name, "sk-kindlm-no-key")
    loaded = _distinct(_load(held, root, environ, strict=strict, compat=compat, is_run=is_run))
    if strict:
        loaded = list(map(_strictly, loaded))
        for path in held.ignored:
            message, where = f"{str(path)!r} looks like tests but contains none.", str(path)
            error = misuse(message, WHAT_HOLDS_TESTS, SourceLocation(where))
            loaded.append(_without_suite(path, error))
    suites = tuple(item.suite for item in loaded if item.suite is not None)
    # Messages quote the content of the files.
    remember_secrets(suite_secrets(environ, suites))
    diagnostics: dict[tuple[str, str], Diagnostic] = {}
    wrong = ((*item.diagnostics, *_warnings(item, environ)) for item in loaded)
    as_warnings = (Diagnostic(each, "warning") for each in project_problems(folders, root))
    for each in chain(*wrong, _project_warnings(root, environ), as_warnings):
        # Folders may share a configuration, and its problems.
        diagnostics.setdefault((str(each.error.where), each.error.message), each)
    unnamed = ((item.suite.path, name) for item in loaded if item.suite for name in item.unnamed)
    return Ok(
        Loaded(
            suites=suites,
            skipped=tuple(_skipped(item, root) for item in loaded if item.suite is None),
            diagnostics=tuple(diagnostics.values()),
            files=(*(item.path for item in held.found), *held.unreadable),
            folders=tuple(folders),
            referenced=tuple(file for item in loaded for file in item.referenced),
            ignored=() if strict else held.ignored,
            unnamed=frozenset(unnamed),
        )
    )


def _found_in(paths: Sequence[Path]) -> Result[Discovery]:
    """Return the content of all paths, each file once; an error if there is none."""
    files: dict[Path, Found] = {}
    ignored: list[Path] = []
    unreadable: dict[Path, KindlmError] = {}
    for path in paths:
        pack = pack_in(path)
        if pack is None:
            found = discover(path)
        else:
            from kindlm.scenarios.packs import discover_pack

            guard.enter()  # Modules import the packages around them.
            found = discover_pack(pack)
        if isinstance(found, Err):
            return found
        for item in found.value.found:
            # A file is loaded once, even if several paths lead to it.
            files.setdefault(item.path.resolve(), item)
        ignored += found.value.ignored
        unreadable |= found.value.unreadable
    if not files and not unreadable:
        message = f"No tests in {', '.join(str(path) for path in paths)}."
        return Err(not_there(message, WHAT_HOLDS_TESTS))
    return Ok(Discovery(tuple(files.values()), tuple(ignored), unreadable))


def _folders(found: Sequence[Found], root: Path) -> list[Path]:
    """Return the folders of tests, and their parents with an EvalView configuration."""
    folders = dict.fromkeys(item.path.parent for item in found)
    if cases := {item.path.parent for item in found if item.front_end == "evalview"}:
        from kindlm.formats.evalview import project_folder

        above = (project_folder(folder, root) for folder in folders if folder in cases)
        folders |= dict.fromkeys(folder for folder in above if folder is not None)
    return list(folders)


def _load(
    held: Discovery, root: Path, environ: Mapping[str, str], **of_cases: Any
) -> Iterator[LoadedSuite]:
    """Yield the suites of the files: one per kindlm.yaml, one per folder of EvalView cases.

    Front ends are imported only for files that they read. `of_cases` are settings for cases.
    """
    project = cache(partial(project_name, root))
    folders: dict[Path, list[Path]] = {}
    for item in held.found:
        if item.front_end == "evalview":
            folders.setdefault(item.path.parent.resolve(), []).append(item.path)
    for path, error in held.unreadable.items():
        yield _without_suite(path, error)
    if folders:
        from kindlm.formats.evalview import Surroundings as CaseSurroundings
        from kindlm.formats.evalview import load_folder

        cases = CaseSurroundings(root, project(), environ, **of_cases)
    if any(item.front_end == "scenario" or item.suite for item in held.found):
        from kindlm.scenarios.configuration import load_configuration
        from kindlm.scenarios.scenario_suite import Surroundings, load_scenarios

        scenarios = Surroundings(root, project(), environ, load_configuration(root, environ))
    for item in held.found:
        if item.front_end == "scenario":
            yield load_scenarios(item.path, scenarios, item.suite)
        elif item.front_end == "kindlm" and item.suite is not None:
            from kindlm.scenarios.packs import load_pack_suite

            yield load_pack_suite(item.path, item.suite, scenarios)
        elif item.front_end == "kindlm":
            yield load_suite(item.path, root=root, environ=environ, project=project)
        elif (named := folders.pop(item.path.parent.resolve(), None)) is not None:
            yield from load_folder(item.path.parent, named, cases)


def _warnings(loaded: LoadedSuite, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield warnings about variables of the environment that do not suit a suite."""
    suite, where = loaded.suite, SourceLocation(str(loaded.path))
    if suite is None:
        return
    if short := short_secrets(environ, suite):
        message = f"The value of {' or '.join(short)} is too short to be kept out of records and"
        hint = "kindlm finds secrets by their values; a value of fewer than 8 characters would"
        hint += " match ordinary words. Use a longer one"
        yield Diagnostic(misuse(f"{message} output", hint, where, "short_secret"), "warning")
    expectations = (each for case in suite.cases for each in case.expectations)
    comparing = next((each for each in expectations if each.check.embeds), None)
    if comparing is not None:
        from kindlm.providers.embedders import may_embed

        if not may_embed(suite, environ):
            error = KindlmError(
                ErrorCode.PROVIDER_NOT_FOUND,
                "A check compares embeddings, and no provider of the suite supports embeddings",
                "Add `openai` or `ollama` to `providers`, name a local model in "
                "KINDLM_EMBEDDING_MODEL, or use `method: judge`",
                where=comparing.where,
                details={"reason": "no_embedder"},
            )
            yield Diagnostic(error, "warning", "expect")


def _project_warnings(root: Path, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield the mistakes in kindlm.toml as warnings; to scenarios, they are errors."""
    if not configuration_file(root).is_file():
        return
    from kindlm.scenarios.configuration import load_configuration

    for found in load_configuration(root, environ).diagnostics:
        if found.error.details.get("reason") != "missing_environment":
            yield replace(found, severity="warning")


def _distinct(loaded: Iterable[LoadedSuite]) -> list[LoadedSuite]:
    """Refuse a suite with a test that an earlier suite has; their results would be mixed up."""
    owners: dict[tuple[str, str, str], Path] = {}
    distinct: list[LoadedSuite] = []
    for item in loaded:
        suite = item.suite
        keys = [(suite.project, suite.name, case.name) for case in suite.cases] if suite else []
        taken = next((key for key in keys if key in owners), None)
        if taken is None:
            owners.update(dict.fromkeys(keys, item.path))
            distinct.append(item)
            continue
        project, name, test = taken
        message = f'The test "{test}" of suite "{name}" in project "{project}" is in'
        message += f" {owners[taken]} already."
        hint, where = "Give one of the suites another name.", SourceLocation(str(item.path))
        found = Diagnostic(misuse(message, hint, where), "error", "suite.name")
        distinct.append(replace(item, suite=None, diagnostics=(*item.diagnostics, found)))
    return distinct


def _strictly(loaded: LoadedSuite) -> LoadedSuite:
    """Return a suite without a test, check or gate that never fails, else its errors."""
    found = tuple(
        replace(each, severity="error")
        if each.error.details.get("reason") in ("expects_nothing", "never_fails")
        else each
        for each in loaded.diagnostics
    )
    return loaded if found == loaded.diagnostics else replace(loaded, suite=None, diagnostics=found)


def _skipped(loaded: LoadedSuite, root: Path) -> SkippedSuite:
    error = next(found.error for found in loaded.diagnostics if found.severity == "error")
    if error.where is not None and Path(error.where.file).absolute() != loaded.path.absolute():
        # The line may be in another file, such as that of `varsFrom`.
        error = replace(error, message=f"{error.where}: {error.message}", where=None)
    path = pack_in(Path(loaded.name)) or suite_identity(loaded.path, root)
    return SkippedSuite(loaded.name, path, loaded.tests, error, redact_pii=loaded.may_redact)


def _without_suite(path: Path, error: KindlmError) -> LoadedSuite:
    return LoadedSuite(path, None, path.name, 0, (Diagnostic(error),))
