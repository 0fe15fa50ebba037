"""From the paths of a command line to suites: what they hold, and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.config import Diagnostic, LoadedSuite, load_suite, suite_identity
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.formats.discovery import (
    WHAT_HOLDS_TESTS,
    Discovery,
    Found,
    Unreadable,
    cases_in,
    discover,
    pack_in,
)
from kindlm.garbage import put_off
from kindlm.guard import guard
from kindlm.recording.project import (
    configured_tests,
    project_name,
    run_environment,
    tests_folder,
)
from kindlm.recording.request import SkippedSuite
from kindlm.recording.secrets import remember_secrets, short_secrets, suite_secrets
from kindlm.suite import Expectation, Suite

if TYPE_CHECKING:
    from kindlm.formats.evalview import EvalviewConfigs
    from kindlm.scenarios.load import Surroundings as ScenarioSurroundings

__all__ = ["Loaded", "default_paths", "load_paths"]

_DEFAULT_FILE = "kindlm.yaml"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the paths held: suites that can run, and those that can't, with everything found.

    `files` are those that were named or found, `folders` where they are, in order: their `.env`
    files belong to the run. `referenced` are files that the suites refer to, also those that are
    not there. `ignored` are YAML files that look like tests and are none. `unnamed` are tests of
    suites of several files, by the path of the suite and their name, that are in other files.
    """

    suites: tuple[Suite, ...]
    skipped: tuple[SkippedSuite, ...]
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    referenced: tuple[Path, ...]
    ignored: tuple[Path, ...]
    unnamed: frozenset[tuple[str, str]] = frozenset()


def default_paths(folder: Path) -> Result[tuple[Path, ...]]:
    """Return what is run when nothing is named: `kindlm.yaml`, and the folder with the tests.

    That is `tests`, unless the project's configuration names another one. Beside a kindlm.yaml it
    is run where there is such a configuration, which is for what is in it: a project without one
    may keep other things in a folder of that name.
    """
    suite, tests = folder / _DEFAULT_FILE, tests_folder(folder)
    if suite.exists():
        beside = configured_tests(folder)
        return Ok((suite,) if beside is None else (suite, beside))
    if (folder / tests).exists():
        return Ok((folder / tests,))
    above = (parent / _DEFAULT_FILE for parent in folder.resolve().parents)
    found = next((file for file in above if file.is_file()), None)
    return Err(
        KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            f"There is no {_DEFAULT_FILE} and no folder {tests}/ here.",
            "Write a first suite: kindlm init"
            if found is None
            else f"There is one above: name it, {os.path.relpath(found, folder)}",
        )
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
    """Load all suites that the paths hold; an error only if a path itself is of no use.

    Where one is `strict`, unknown keys are errors in all formats, and so are files of a folder that
    look like tests and are none. With `compat`, cases of EvalView
    pass and fail as they do there. Where nothing `is_run`, since
    what was said is recorded, what is needed to call agents need not be there.
    """
    found = _found_in(paths)
    if isinstance(found, Err):
        return found
    held = found.value
    if any(item.front_end == "scenario" and _is_python(item.path) for item in held.found):
        guard.enter()
    folders = _folders(held.found, root)
    environ = run_environment([*folders, root], os.environ)
    around = _Around(root, environ, strict, compat, is_run)
    loaded = _distinct(list(_load(held.found, held.unreadable, around)))
    if strict:
        loaded += [_unrecognised(path) for path in held.ignored]
    _remember_secrets(environ, loaded)
    return Ok(
        Loaded(
            suites=tuple(item.suite for item in loaded if item.suite is not None),
            skipped=tuple(_skipped(item, root) for item in loaded if item.suite is None),
            diagnostics=_each_once(wrong for item in loaded for wrong in _wrong_in(item, environ)),
            files=(
                *(item.path for item in held.found),
                *(item.path for item in held.unreadable),
            ),
            folders=tuple(folders),
            referenced=tuple(file for item in loaded for file in item.referenced),
            ignored=() if strict else held.ignored,
            unnamed=frozenset(
                (item.suite.path, name)
                for item in loaded
                if item.suite is not None
                for name in item.unnamed
            ),
        )
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """What decides how tests are loaded, besides their files; see `load_paths`."""

    root: Path
    environ: Mapping[str, str]
    strict: bool
    compat: bool
    is_run: bool


def _found_in(paths: Sequence[Path]) -> Result[Discovery]:
    """Return what all the paths hold together, each file once; an error if that is nothing."""
    files: dict[Path, Found] = {}
    ignored: list[Path] = []
    unreadable: dict[Path, Unreadable] = {}
    for path in paths:
        pack = pack_in(path)
        if pack is None:
            found = discover(path)
        else:
            from kindlm.scenarios.installed_packs import discover_pack

            guard.enter()  # the packages around it are imported
            found = discover_pack(pack)
        if isinstance(found, Err):
            return found
        for item in found.value.found:
            # One file is one suite, by whichever names it was reached.
            files.setdefault(item.path.resolve(), item)
        ignored += found.value.ignored
        unreadable |= {item.path.resolve(): item for item in found.value.unreadable}
    if not files and not unreadable:
        return Err(_no_tests(paths))
    return Ok(Discovery(tuple(files.values()), tuple(ignored), tuple(unreadable.values())))


def _is_python(file: Path) -> bool:
    return file.suffix.lower() == ".py"


def _folders(found: Sequence[Found], root: Path) -> list[Path]:
    """Return where tests are, and what is above them with the configuration of EvalView."""
    here = [item.path.parent for item in found]
    cases = dict.fromkeys(item.path.parent for item in found if item.front_end == "evalview")
    if not cases:
        return list(dict.fromkeys(here))
    from kindlm.formats.evalview import project_folder

    above = [project for folder in cases if (project := project_folder(folder, root)) is not None]
    return list(dict.fromkeys([*here, *above]))


def _load(
    found: Sequence[Found], unreadable: Sequence[Unreadable], around: _Around
) -> Iterator[LoadedSuite]:
    """Yield the suites of the files: of kindlm.yaml one for each file, of EvalView for a folder.

    A front end is imported only for a file that it reads.
    """
    folders = _case_folders(found)
    for unread in unreadable:
        # In a folder with cases it is taken for one, and told with them.
        if (named := folders.get(unread.path.parent.resolve())) is not None:
            named.append(unread.path)
        else:
            diagnostic = Diagnostic(unread.error, "error", "", None)
            yield LoadedSuite(unread.path, None, unread.path.name, 0, (diagnostic,))

    project = cache(lambda: project_name(around.root))

    @cache
    def configs() -> EvalviewConfigs:
        from kindlm.formats.evalview import EvalviewConfigs

        return EvalviewConfigs(around.root, around.environ, around.strict, around.is_run)

    @cache
    def scenarios() -> ScenarioSurroundings:
        from kindlm.scenarios.configuration_files import load_configuration
        from kindlm.scenarios.load import Surroundings

        configuration = load_configuration(around.root, around.environ)
        return Surroundings(around.root, project(), around.environ, configuration)

    for item in found:
        if item.front_end == "kindlm":
            yield load_suite(item.path, root=around.root)
        elif item.front_end == "scenario":
            from kindlm.scenarios.load import load_scenarios

            yield load_scenarios(item.path, scenarios(), item.suite)
        elif (named := folders.pop(item.path.parent.resolve(), None)) is not None:
            yield from _load_cases(item.path.parent, named, configs(), project(), around)


def _case_folders(found: Sequence[Found]) -> dict[Path, list[Path]]:
    """Return the EvalView cases by where they are, links followed."""
    folders: dict[Path, list[Path]] = {}
    for item in found:
        if item.front_end == "evalview":
            folders.setdefault(item.path.parent.resolve(), []).append(item.path)
    return folders


def _load_cases(
    folder: Path, named: Sequence[Path], configs: EvalviewConfigs, project: str, around: _Around
) -> list[LoadedSuite]:
    """Load all cases of a folder, of which some were named: it is one suite, whichever they are."""
    from kindlm.formats.evalview import Surroundings, load_folder

    reached = {os.path.realpath(path) for path in named}
    here = cases_in(folder)
    asked = {path for path in here if os.path.realpath(path) in reached}
    reached -= {os.path.realpath(path) for path in asked}
    # What is named by the user need not be named like a case.
    others = [path for path in named if os.path.realpath(path) in reached]
    files = [*here, *others]
    surroundings = Surroundings(
        around.root, project, around.environ, around.strict, around.compat, around.is_run
    )
    return load_folder(folder, files, configs.of(folder), surroundings, {*asked, *others})


def _each_once(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Leave out what is told already: folders may share a configuration."""
    told: dict[tuple[str, str], Diagnostic] = {}
    for item in found:
        told.setdefault((str(item.error.where), item.error.message), item)
    return tuple(told.values())


def _remember_secrets(environ: Mapping[str, str], loaded: Iterable[LoadedSuite]) -> None:
    """Keep what must not be shown, since messages quote what is written in the files."""
    suites = [item.suite for item in loaded if item.suite is not None]
    remember_secrets(suite_secrets(environ, suites))


def _wrong_in(loaded: LoadedSuite, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield what is wrong with a file, and what of the environment does not suit it."""
    yield from loaded.diagnostics
    if loaded.suite is None:
        return
    if short := short_secrets(environ, loaded.suite):
        yield Diagnostic(_too_short(short, loaded.path), "warning", "", None)
    if (embedding := _embedding_drift(loaded.suite)) is not None:
        from kindlm.providers.embedders import may_embed

        if not may_embed(loaded.suite, environ):
            yield Diagnostic(_nobody_embeds(embedding), "warning", "baseline.drift.method", None)


def _embedding_drift(suite: Suite) -> Expectation | None:
    """Return the first expectation that compares embeddings; without a baseline it is skipped."""
    return next(
        (
            expectation
            for case in suite.cases
            for expectation in case.expectations
            if expectation.kind == "drift" and expectation.params["method"] == "embedding"
        ),
        None,
    )


def _too_short(variables: Sequence[str], file: Path) -> KindlmError:
    values = "The values of" if len(variables) > 1 else "The value of"
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{values} {', '.join(variables)} can not be kept out of what is recorded and shown",
        "Secrets are found by their values; one of fewer than 8 characters would be found in "
        "ordinary words. Use a longer one",
        where=SourceLocation(str(file)),
        details={"reason": "short_secret"},
    )


def _nobody_embeds(expectation: Expectation) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "Drift is measured by embeddings, and no provider of the suite can embed texts",
        "Add `openai` or `ollama` to `providers`, name a local model in KINDLM_EMBEDDING_MODEL, or "
        "use `method: judge`",
        where=expectation.where,
        details={"reason": "no_embedder"},
    )


def _distinct(loaded: Sequence[LoadedSuite]) -> list[LoadedSuite]:
    """Refuse a suite that has a test of another one: results of the two could not be told apart."""
    owners: dict[tuple[str, str, str], Path] = {}
    distinct: list[LoadedSuite] = []
    for item in loaded:
        keys = _identities(item.suite)
        taken = next((key for key in keys if key in owners), None)
        if taken is not None:
            error = Diagnostic(_taken(item.path, taken, owners[taken]), "error", "suite.name", None)
            item = replace(item, suite=None, diagnostics=(*item.diagnostics, error))  # noqa: PLW2901
        else:
            owners.update(dict.fromkeys(keys, item.path))
        distinct.append(item)
    return distinct


def _identities(suite: Suite | None) -> list[tuple[str, str, str]]:
    return [] if suite is None else [(suite.project, suite.name, case.name) for case in suite.cases]


def _taken(path: Path, identity: tuple[str, str, str], owner: Path) -> KindlmError:
    project, suite, test = identity
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f'The test "{test}" of suite "{suite}" in project "{project}" is in {owner} already.',
        "Give one of the suites another name.",
        where=SourceLocation(str(path)),
    )


def _skipped(loaded: LoadedSuite, root: Path) -> SkippedSuite:
    error = next(found.error for found in loaded.diagnostics if found.severity == "error")
    if error.where is not None and error.where.file != str(loaded.path):
        # Its line is one of another file, such as that of `varsFrom`.
        error = replace(error, message=f"{error.where}: {error.message}", where=None)
    error = _of_all_variables(error, loaded.diagnostics)
    return SkippedSuite(loaded.name, suite_identity(loaded.path, root), loaded.tests, error)


def _of_all_variables(error: KindlmError, found: Iterable[Diagnostic]) -> KindlmError:
    """Return the error of a variable that is not set with all those of the file."""
    of_all = (item.error.details.get("missing", ()) for item in found if item.severity == "error")
    names = list(dict.fromkeys(name for names in of_all for name in names))
    if error.details.get("reason") != "missing_environment" or len(names) < 2:
        return error
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    message = f"The environment variables {listed} are not set"
    hint = "Set them in your environment or .env file"
    return replace(error, message=message, hint=hint, details={**error.details, "missing": names})


def _unrecognised(path: Path) -> LoadedSuite:
    error = KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{str(path)!r} looks like tests and holds none.",
        WHAT_HOLDS_TESTS,
        where=SourceLocation(str(path)),
    )
    return LoadedSuite(path, None, path.name, 0, (Diagnostic(error, "error", "", None),))


def _no_tests(paths: Sequence[Path]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"No tests in {', '.join(str(path) for path in paths)}.",
        WHAT_HOLDS_TESTS,
    )
