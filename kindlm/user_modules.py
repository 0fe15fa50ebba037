"""Imports a user's Python files, each as a separate module, and locates errors in them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, error_text
from kindlm.guard import guard


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that skips itself, as with `pytest.importorskip`, and the line that does."""

    reason: str
    line: int | None


def import_file(file: Path) -> Result[ModuleType | SkippedFile]:
    """Import a test file; several files may have the same name.

    As under pytest, it can import modules from its `import_root`. Other folders may have modules of
    the same names.
    """
    shown, file = file, file.resolve()
    folder = import_root(file)
    name = ".".join(file.with_suffix("").relative_to(folder).parts)
    try:
        # Standard output may be a report.
        with (
            _beside(folder),
            redirect_stdout(sys.stderr),
            guard.running(f"the import of {shown}"),
            guard.single(),
        ):
            return Ok(_imported(file, name))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's file
        line = failed_at(error, file)[0].line
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line = error.lineno
        if is_of_pytest(error, "Skipped") and getattr(error, "allow_module_level", False):
            return Ok(SkippedFile(str(error) or "no reason", line))
        return Err(
            KindlmError(
                ErrorCode.CONFIG_PARSE_ERROR,
                f"The file cannot be imported: {error_text(error)}",
                missing_module_hint(error, folder) or "Fix it: its tests did not run.",
                SourceLocation(str(shown), line),
                {"reason": "import"},
                trace="".join(traceback.format_exception(error)),
            )
        )


class _FreshLoader(SourceFileLoader):
    """Always reads the file: Python may use a cached file that is up to a second old."""

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
    # Classes with postponed annotations look up their module by name.
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
        # A running test can import from the folder, too, except namesakes.
        sys.path[:] = [*path, str(folder)] if str(folder) not in path else path
        if hidden:
            tops = {name.partition(".")[0] for name in hidden}
            for name in [n for n in sys.modules if n not in before and n.partition(".")[0] in tops]:
                del sys.modules[name]
        sys.modules.update(hidden)


def _namesakes(folder: Path) -> dict[str, ModuleType]:
    """Return the modules that were loaded from elsewhere and have a namesake in the folder."""
    hidden = set[str]()
    for here in pkgutil.iter_modules([str(folder)]):
        origin = getattr(sys.modules.get(here.name), "__file__", None)
        if origin is not None and not Path(origin).resolve().is_relative_to(folder):
            hidden.add(here.name)
    loaded = list(sys.modules.items()) if hidden else ()
    return {name: module for name, module in loaded if name.partition(".")[0] in hidden}


def missing_module_hint(error: BaseException, folder: Path) -> str | None:
    """Return the hint for a missing module; None for other errors.

    `folder` is the one that the user's modules are imported from.
    """
    if not isinstance(error, ModuleNotFoundError):
        return None
    return (
        f"It is neither in {folder} nor installed for {sys.executable}."
        " Install its package where kindlm is installed, or name its folder in PYTHONPATH"
    )


def import_root(file: Path) -> Path:
    """Return the folder from which a test file imports modules, as under pytest.

    It is the folder of the file, or that of the outermost package that contains the file.
    """
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def failed_at(error: BaseException, file: Path) -> tuple[SourceLocation, str]:
    """Return the last line of `file` in the traceback of an error, and its text."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    if not frames:
        return SourceLocation(str(file)), ""
    return SourceLocation(str(file), frames[-1].lineno), frames[-1].line or ""


def user_trace(error: BaseException, is_theirs: Callable[[str], bool]) -> str:
    """Return the traceback of an error, beginning with the first line in a user's file."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and not is_theirs(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)


def is_of_pytest(error: BaseException, outcome: str) -> bool:
    """Return whether an error is from `pytest.fail` or `pytest.skip`, without importing pytest."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return {"OutcomeException", outcome} <= names
