"""Loads kindlm.yaml: from a file to a `Suite`, or to diagnostics with line and column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kindlm.config.advice import credentials_in, warn
from kindlm.config.compile import compile_suite
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.entries import Plugged
from kindlm.config.files import ReferencedFiles
from kindlm.config.long_form import write_out
from kindlm.config.references import check_references, check_requirements
from kindlm.config.schema import KindlmConfig
from kindlm.config.validation import fit, report_no_mapping
from kindlm.dataclass import dataclass
from kindlm.document import MAX_BYTES, Node, section
from kindlm.errors import Err, Ok, Result, SourceLocation, not_there
from kindlm.suite import Suite
from kindlm.yaml_document import read_document


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A configuration file, loaded as far as it can be.

    There is no `suite` if there is an error among the `diagnostics`; then `tests` is the number of
    entries in `tests`. `name` is that of the suite if it can be read, else the file's. `referenced`
    are all files that it refers to, also missing ones. `unnamed` are the tests of a suite of
    several files that are in files that the user did not name. `may_redact` says whether its text
    has the key `redactPii`.
    """

    path: Path
    suite: Suite | None
    name: str
    tests: int
    diagnostics: tuple[Diagnostic, ...]
    referenced: tuple[Path, ...] = ()
    unnamed: frozenset[str] = frozenset()
    may_redact: bool = False


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a suite of a pack, with the identity `suite`, takes from the project that runs it.

    `put` adds the sections with these `keys`, such as `models`, from the project's `file` to the
    document of the suite. Referenced files are relative to that file.
    """

    suite: str
    file: Path
    keys: frozenset[str]
    put: Callable[[Node], None]


def load_suite(
    path: Path,
    *,
    root: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    project: Callable[[], str] = lambda: "project",
    text: bytes | None = None,
    borrowed: Borrowed | None = None,
) -> LoadedSuite:
    """Load a kindlm.yaml. Errors of the user become diagnostics, not exceptions.

    A suite's identity is its path relative to `root`. Some warnings depend on `environ`. `project`
    returns the name of the project, if the file has none. `text` is the content of a file that is
    not written yet.
    """
    data = read_bytes(path) if text is None else Ok(text)
    if isinstance(data, Err):
        diagnostic = Diagnostic(data.error)
        return LoadedSuite(path, None, path.name, 0, (diagnostic,))
    document = read_document(data.value)
    reporter = Reporter(str(path), document)
    reporter.problems()
    folder, identity = path.parent, suite_identity(path, root)
    if borrowed is not None and document.root is not None and isinstance(document.value, dict):
        borrowed.put(document.root)
        reporter.borrow(str(borrowed.file), borrowed.keys)
        folder, identity = borrowed.file.parent, borrowed.suite
    files = ReferencedFiles(folder)
    write_out(document, lambda: default_name(path, root, project), project, files)
    raw = document.value
    reporter.hide(credentials_in(raw))
    suite = config = None
    if document.readable and not isinstance(raw, dict):
        report_no_mapping(raw, reporter)
    elif document.readable:
        plugged = Plugged(raw, reporter)
        config = fit(KindlmConfig, plugged.rest, reporter)
        check_requirements(raw, reporter)
        reporter.sort_phase()
        check_references(raw, reporter, files)
        reporter.sort_phase()
    if config is not None:
        failed = reporter.has_errors
        plugged.put_into(config)
        warn(config, raw, reporter, files, environ)
        reporter.sort_phase()
        if not failed:
            suite = compile_suite(config, identity, folder.resolve(), files, reporter)
    written = section(raw).get("tests")
    tests = len(suite.cases if suite else written if isinstance(written, list) else ())
    found = tuple(reporter.diagnostics)
    name = section(raw, "suite").get("name")
    name = name if isinstance(name, str) and name else path.name
    may_redact = b"redactPii" in data.value
    return LoadedSuite(path, suite, name, tests, found, files.asked, may_redact=may_redact)


def suite_identity(path: Path, root: Path | None) -> str:
    """Return the identity of a suite: the path of its file, relative to the root if it is below."""
    if root is not None and path.resolve().is_relative_to(root.resolve()):
        return path.resolve().relative_to(root.resolve()).as_posix()
    return path.as_posix()


def default_name(path: Path, root: Path | None, project: Callable[[], str]) -> str:
    """Return the name of a suite that has none: that of its file, or of the folder or project."""
    if path.stem != "kindlm":
        return path.stem
    folder = path.resolve().parent
    return project() if root is None or folder == root.resolve() else folder.name


def read_bytes(path: Path) -> Result[bytes]:
    """Return the first `MAX_BYTES` + 1 bytes of a file, or an error that says why it can't."""
    try:
        # A pipe or a device may have no end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError("it is not a regular file")  # noqa: TRY301 - as other faults
        with path.open("rb") as file:
            return Ok(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        message, hint = f"{path} does not exist", "Check the path, or run: kindlm init"
    except IsADirectoryError:
        message, hint = f"{path} is a folder", "Name a file in it"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message, hint = f"{path} cannot be read: {reason}", "Check its path and permissions"
    return Err(not_there(message, hint, SourceLocation(str(path))))
