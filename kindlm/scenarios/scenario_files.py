"""Loads files with scenarios: each is a suite, and one that cannot be loaded keeps no other.

A Python file is imported as a module of its own, with what stands beside it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from kindlm.config.diagnostics import Diagnostic
from kindlm.config.load import LoadedSuite, read_bytes, suite_identity
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.formats.python_imports import import_root
from kindlm.guard import guard
from kindlm.scenarios.agent_fixture import AgentFixture, agent_fixture, conftest_with_agent
from kindlm.scenarios.configuration import LoadedConfiguration
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.function_script import failed_at, is_of_pytest
from kindlm.scenarios.scenario_suite import choose_agents, compile_scenarios
from kindlm.scenarios.written import prepared_by_conftest
from kindlm.scenarios.yaml_form import read_scenarios


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides how scenarios are loaded, besides their files."""

    root: Path
    project: str
    environ: Mapping[str, str]
    configuration: LoadedConfiguration


def load_scenarios(file: Path, around: Surroundings, name: str | None = None) -> LoadedSuite:
    """Load the scenarios of a Python or YAML file. Never raises for what a user did.

    `name` is what its suite is known by, if that is not where the file is.
    """
    path = name or suite_identity(file, around.root)
    data = read_bytes(file)
    if isinstance(data, Err):
        return _unusable(file, path, 0, [data.error])
    if file.suffix.lower() != ".py":
        read = read_scenarios(file, data.value)
        if any(found.severity == "error" for found in read.diagnostics):
            return LoadedSuite(file, None, path, read.tests, read.diagnostics)
        found = FoundScenarios(read.scenarios, read.diagnostics)
        return compiled_suite(file, path, found, around, data.value)
    imported = import_file(file)
    if isinstance(imported, Err):
        return _unusable(file, path, 1, [imported.error])
    if isinstance(imported.value, SkippedFile):
        skipped = Diagnostic(_skipped_file(file, imported.value), "warning", "", None)
        found = FoundScenarios((), (skipped,))
    else:
        conftest = prepared_by_conftest(file, around.root)
        before = None if isinstance(conftest, Err) else conftest.value
        agent = _agent_of(imported.value, file, around.root)
        if isinstance(agent, Err):
            return _unusable(file, path, 1, [agent.error])
        found = find_scenarios(imported.value, data.value, str(file), before, agent.value)
        if isinstance(conftest, Err) and found.scenarios:
            return _unusable(file, path, len(found.scenarios), [conftest.error])
    return compiled_suite(file, path, found, around, data.value)


def _agent_of(module: ModuleType, file: Path, root: Path) -> Result[AgentFixture | None]:
    """Return the fixture that makes the agent of a file; the conftest.py that has it is imported.

    Only then: most of what a conftest.py holds is for pytest.
    """
    own = agent_fixture(module)
    conftest = conftest_with_agent(file, root) if own is None else None
    if conftest is None:
        return Ok(own)
    imported = import_file(conftest)
    if isinstance(imported, Err):
        return imported
    found = imported.value
    return Ok(None if isinstance(found, SkippedFile) else agent_fixture(found))


def compiled_suite(
    file: Path, path: str, found: FoundScenarios, around: Surroundings, data: bytes
) -> LoadedSuite:
    """Return the suite of a file whose scenarios were found; `data` is its text."""
    loaded, scenarios = around.configuration, found.scenarios
    if any(each.severity == "error" for each in found.problems):
        return LoadedSuite(file, None, path, len(scenarios), found.problems)
    if loaded.config is None:
        return LoadedSuite(file, None, path, len(scenarios), loaded.diagnostics)
    chosen = choose_agents(scenarios, loaded, around.root, around.environ)
    if len(chosen.faults) == len(scenarios) > 0:
        unusable = _unusable(file, path, len(scenarios), chosen.errors)
        return replace(unusable, diagnostics=(*loaded.diagnostics, *unusable.diagnostics))
    suite = compile_scenarios(path, around.project, scenarios, chosen, loaded, data)
    referenced = () if loaded.file is None else (loaded.file,)
    faults = (Diagnostic(error, "error", "agent", None) for error in chosen.errors)
    told = (*loaded.diagnostics, *found.problems, *faults, *_hints(scenarios))
    return LoadedSuite(file, suite, path, len(scenarios), told, referenced)


def _hints(scenarios: Sequence[Scenario]) -> Iterator[Diagnostic]:
    """Yield why scenarios can only be run by pytest, once for all cases of one."""
    told: set[tuple[str, str]] = set()
    for each in scenarios:
        if each.hint is None:
            continue
        name = each.name.partition("[")[0]
        if (name, each.hint) not in told:
            told.add((name, each.hint))
            yield Diagnostic(_only_pytest(name, each), "warning", name, None)


def _unusable(file: Path, path: str, tests: int, errors: Sequence[KindlmError]) -> LoadedSuite:
    found = tuple(Diagnostic(error, "error", "", None) for error in errors)
    return LoadedSuite(file, None, path, tests, found)


def _only_pytest(name: str, scenario: Scenario) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{name} is skipped: {scenario.hint}",
        None,
        scenario.where,
        {"reason": "fixture"},
    )


def _skipped_file(file: Path, skipped: SkippedFile) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The file skips itself, so none of its tests run: {skipped.reason}",
        None,
        SourceLocation(str(file), skipped.line),
        {"reason": "skipped"},
    )


_brought: dict[Path, set[str]] = {}
"""The modules that test files brought along from their folders: they are read anew with them."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that skips itself, as `pytest.importorskip` does it, and the line that does."""

    reason: str
    line: int | None


def import_file(file: Path) -> Result[ModuleType | SkippedFile]:
    """Import a test file, also beside others of the same name.

    As under pytest, it can import what stands in its folder, or, if that is a package, in the
    folder of the outermost package. Modules from there are its own: another folder may have a
    module of the same name.
    """
    named, file = file, file.resolve()
    if (how := guard.lost.files.get(str(file))) is not None:
        return Err(_ended(SourceLocation(str(named)), how))
    folder = import_root(file)
    name = ".".join(file.with_suffix("").relative_to(folder).parts)
    for each in _brought.pop(file, ()):
        sys.modules.pop(each, None)
    before = set(sys.modules)
    try:
        # What it prints is not the report, which may be the output.
        with _beside(folder), redirect_stdout(sys.stderr), guard.importing(str(file)):
            return Ok(_imported(file, name))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and guard.is_interrupted:
            raise
        line = failed_at(error, file)[0].line
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line = error.lineno
        if is_of_pytest(error, "Skipped") and getattr(error, "allow_module_level", False):
            return Ok(SkippedFile(str(error) or "no reason", line))
        return Err(_not_imported(SourceLocation(str(named), line), error))
    finally:
        _brought[file] = {each for each in set(sys.modules) - before if _is_beside(each, folder)}


def _is_beside(module: str, folder: Path) -> bool:
    """Return whether a module is one of a folder, and of no package that is installed there."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_relative_to(folder) or _is_of_kindlm(module):
        return False
    if "site-packages" in Path(file).parts:
        return False
    return not any(part.startswith(".") for part in Path(file).relative_to(folder).parts)


def _is_of_kindlm(module: str) -> bool:
    """Return whether a module is one of ours: packs that come along stand in the same folder."""
    return module.partition(".")[0] == "kindlm"


class _FreshLoader(SourceFileLoader):
    """Runs a file as it is now: Python takes a cached file as current for up to a second."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _imported(file: Path, name: str) -> ModuleType:
    if "." in name:
        sys.modules.pop(name, None)
        return importlib.import_module(name)
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    own = f"{name}__{digest}"
    spec = importlib.util.spec_from_file_location(own, file, loader=_FreshLoader(own, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # It stays there: classes with postponed annotations look their module up by name.
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Make modules in a folder importable, in place of loaded ones with the same names."""
    path, hidden = list(sys.path), _namesakes(folder)
    for name in hidden:
        del sys.modules[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # What a test imports while it runs is found, too, unless it has a namesake.
        sys.path[:] = [*path, str(folder)] if str(folder) not in path else path
        if hidden:
            tops = {name.partition(".")[0] for name in hidden}
            for name in [n for n in sys.modules if n not in before and n.partition(".")[0] in tops]:
                del sys.modules[name]
        sys.modules.update(hidden)


def _namesakes(folder: Path) -> dict[str, ModuleType]:
    """Return the loaded modules from elsewhere whose names modules of a folder have, too."""
    loaded = [(name.partition(".")[0], name, module) for name, module in list(sys.modules.items())]
    hidden = {top for top in {top for top, _, _ in loaded} if _hides(folder, top)}
    return {name: module for top, name, module in loaded if top in hidden}


def _hides(folder: Path, name: str) -> bool:
    """Return whether a folder has a module or package of a name that was loaded from elsewhere."""
    origin = getattr(sys.modules.get(name), "__file__", None)
    if origin is None:
        return False
    if not any(map(os.path.isfile, (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"))):
        return False
    return not Path(origin).resolve().is_relative_to(folder)


def _ended(where: SourceLocation, how: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"The file ended kindlm's process while it was imported: {how}",
        "None of its tests ran. A test file must not end the process that imports it.",
        where,
        {"reason": "import"},
    )


def _not_imported(where: SourceLocation, error: BaseException) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"The file cannot be imported: {type(error).__name__}: {error}",
        "Fix it: its tests did not run.",
        where,
        {"reason": "import"},
        trace="".join(traceback.format_exception(error)),
    )
