"""`.evalview/config.yaml`: where it is, and loading it.

The one that is nearest above a case counts, up to the root of the project. What is not written in a
case is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kindlm.config.credentials import header_secrets
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.document import Document
from kindlm.config.load import read_bytes
from kindlm.config.raw import section
from kindlm.config.validation import fit
from kindlm.errors import Err
from kindlm.formats.evalview.project_config import PACE, ProjectConfig
from kindlm.formats.evalview.reading import read_file
from kindlm.formats.evalview.rules import check_project
from kindlm.formats.evalview.services import check_serve
from kindlm.formats.evalview.variables import expand, has_all

_FOLDER = ".evalview"
_NAMES = ("config.yaml", "config.yml", "config.toml")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration of a project; None if its file has an error, among the diagnostics.

    `file` is where it is, None where there is none.
    """

    config: ProjectConfig | None
    file: Path | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(slots=True)
class EvalviewConfigs:
    """The configurations of a project, each loaded once."""

    root: Path
    environ: Mapping[str, str]
    strict: bool = False
    is_run: bool = True
    _loaded: dict[Path, LoadedConfig] = field(default_factory=dict)

    def of(self, folder: Path) -> LoadedConfig:
        """Return the configuration that counts in a folder; an empty one if there is none."""
        file = _find(folder.resolve(), self.root.resolve())
        if file is None:
            return LoadedConfig(ProjectConfig())
        if file not in self._loaded:
            self._loaded[file] = load_config(
                file, self.environ, strict=self.strict, is_run=self.is_run
            )
        return self._loaded[file]


def project_folder(folder: Path, root: Path) -> Path | None:
    """Return the folder that holds the `.evalview` that counts for a folder of cases."""
    file = _find(folder.resolve(), root.resolve())
    return None if file is None else file.parent.parent


def load_config(
    file: Path, environ: Mapping[str, str], *, strict: bool, is_run: bool
) -> LoadedConfig:
    """Load a configuration. Never raises for what a user did: see the diagnostics."""
    data = read_bytes(file)
    if isinstance(data, Err):
        return LoadedConfig(None, file, (Diagnostic(data.error, "error", "", None),))
    documents = read_file(file, data.value)
    whole = Reporter(str(file), documents)
    whole.problems()
    if whole.has_errors:
        return LoadedConfig(None, file, tuple(whole.diagnostics))
    document = _first(documents)
    if document is None:
        return LoadedConfig(ProjectConfig(), file, tuple(whole.diagnostics))
    reporter = Reporter(str(file), document)
    config = _fitted(document.value, environ, reporter, strict=strict, is_run=is_run)
    if config is not None:
        check_project(config, reporter)
        _warn_of_unserved(config, reporter)
    reporter.sort_phase(0)
    diagnostics = (*whole.diagnostics, *reporter.diagnostics)
    return LoadedConfig(None if reporter.has_errors else config, file, diagnostics)


def _first(documents: Document) -> Document | None:
    values = [at for at, value in enumerate(documents.value or ()) if value is not None]
    return documents.part(values[0]) if values else None


def _fitted(
    value: Any, environ: Mapping[str, str], reporter: Reporter, *, strict: bool, is_run: bool
) -> ProjectConfig | None:
    if not isinstance(value, dict):
        reporter.error((), "The file must hold a mapping", "Begin with `adapter: http`",
                       reason="schema")  # fmt: skip
        return None
    reporter.hide(header_secrets(section(value, "headers")))
    if not has_all(value, environ, reporter, is_run=is_run):
        return None
    filled = expand(value, environ)
    check_serve(filled, reporter)
    return fit(ProjectConfig, filled, reporter, tolerant=not strict)


def _warn_of_unserved(config: ProjectConfig, reporter: Reporter) -> None:
    pricing = config.model.pricing if config.model else None
    if pricing is not None and pricing.cached_per_1m is not None:
        message = "`cached_per_1m` has no effect: what was read from a cache costs as what is read"
        reporter.warning(("model", "pricing", "cached_per_1m"), message, reason="no_effect")
    for name in PACE:
        if config.retry is not None and name in config.retry.model_fields_set:
            message = f"`{name}` has no effect: how long to wait is found out while a run goes on"
            reporter.warning(("retry", name), message, reason="no_effect")


def _find(folder: Path, root: Path) -> Path | None:
    """Return the configuration that is nearest above the cases of a folder, up to the root."""
    above = (folder, *folder.parents) if folder.is_relative_to(root) else (folder,)
    for place in above:
        for name in _NAMES:
            if (file := place / _FOLDER / name).is_file():
                return file
        if place == root:
            break
    return None
