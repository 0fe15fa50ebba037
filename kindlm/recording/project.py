"""The project of a run: its root, database, configuration, environment and commit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.scenarios.environment import names_kindlm, put_in, unset_in

if TYPE_CHECKING:
    from kindlm.events.run import GitState


_ENDINGS = {"junit": "xml", "markdown": "md", "terminal": "txt"}
"""The ending of a report's file, where it is not the name of its format."""

_DEFAULT_FILE = "kindlm.yaml"
_IN_ROOTS = (_DEFAULT_FILE, "kindlm.toml", ".kindlm", ".evalview")


@dataclass(frozen=True, slots=True)
class Project:
    """The folder that paths and histories belong to."""

    root: Path
    database: Path


def find_project(database: Path | None = None) -> Result[Project]:
    """Return the project of the working directory.

    Its root is the nearest ancestor with a `.kindlm` folder or a project file, else that directory.
    The database is the one given, else `KINDLM_DB`, else `store.path` of the project's
    configuration, else `.kindlm/kindlm.db`.
    """
    root = _root()
    if database is not None:
        return Ok(Project(root, database.resolve()))
    if named := os.environ.get("KINDLM_DB"):
        return Ok(Project(root, Path(named).resolve()))
    table = _configuration(root)
    if isinstance(table, Err):
        return table
    configured = _section(table.value, "store").get("path")
    if not isinstance(configured, str) or not configured:
        return Ok(Project(root, (root / ".kindlm/kindlm.db").resolve()))
    filled = _filled(configured, "store.path", root)
    if isinstance(filled, Err):
        return filled
    return Ok(Project(root, (root / filled.value).resolve()))


def run_environment(folders: list[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the variables that the `.env` files of `folders` add.

    Earlier folders take precedence over later ones; variables that are set are not overridden.
    """
    merged = dict(environ)
    for folder in folders:
        file = folder / ".env"
        if not file.is_file():
            continue
        from dotenv import dotenv_values

        # Python decodes the variables of the environment in the same way.
        text = StringIO(file.read_text("utf-8-sig", "surrogateescape"))
        # Nothing is expanded in these files: a password may contain a dollar sign.
        for name, value in dotenv_values(stream=text, interpolate=False).items():
            if value is not None:
                merged.setdefault(name, value)
    return merged


def regression_threshold(root: Path) -> Result[float | None]:
    """Return `diff.regression_threshold` of the project's configuration; None if it has none."""
    table = _configuration(root)
    if isinstance(table, Err):
        return table
    diff = _section(table.value, "diff")
    value = diff.get("regression_threshold")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (is_number and 0 <= value <= 1):
        return Ok(value)
    message = f"diff.regression_threshold is {value!r}: it must be a number from 0 to 1."
    return _invalid(root, message, "It is how far a mean score may fall: 0.05 by default.")


def report_files(root: Path) -> Result[list[tuple[str, Path]]]:
    """Return the reports that `report` of the project's configuration asks for, and their files.

    The files are `report`, with the ending of its format, in the folder `output_dir`.
    """
    table = _configuration(root)
    if isinstance(table, Err):
        return table
    report = _section(table.value, "report")
    formats, folder = report.get("formats", []), report.get("output_dir", "reports")
    known = isinstance(formats, list) and all(isinstance(name, str) and name for name in formats)
    if not (known and isinstance(folder, str) and folder):
        message = "report.formats must be a list of names, and report.output_dir a folder."
        hint = 'Such as formats = ["json", "junit"] and output_dir = "reports".'
        return _invalid(root, message, hint)
    filled = _filled(folder, "report.output_dir", root)
    if isinstance(filled, Err):
        return filled
    into = root / filled.value
    return Ok([(name, into / f"report.{_ENDINGS.get(name, name)}") for name in formats])


def exit_codes() -> str | None:
    """Return `KINDLM_EXIT_CODES`, else `exit_codes` of the project of the working directory."""
    return os.environ.get("KINDLM_EXIT_CODES") or _text(_root(), "exit_codes")


def project_name(root: Path) -> str:
    """Return the name of the project if its tests do not give one.

    That is `project` of its configuration, else `KINDLM_PROJECT`, else the name of its remote
    repository, else that of its folder.
    """
    named = _text(root, "project") or os.environ.get("KINDLM_PROJECT")
    return named or remote_name(root) or root.resolve().name or "project"


def tests_folder(root: Path) -> str:
    """Return `tests` of the project's configuration, by default the folder of that name."""
    return _text(root, "tests") or "tests"


def default_paths(folder: Path) -> Result[tuple[Path, ...]]:
    """Return the paths to run when none are named: `kindlm.yaml`, and the folder with the tests.

    That is `tests`, unless the project's configuration names another one. Beside a kindlm.yaml, the
    folder only runs if the project has a configuration of scenarios: without one, a folder of that
    name may hold other things.
    """
    suite, tests = folder / _DEFAULT_FILE, folder / tests_folder(folder)
    if suite.exists():
        table = _configuration(folder)
        has_none = isinstance(table, Ok) and not table.value
        if has_none and not (folder / "kindlm.toml").is_file():
            return Ok((suite,))
        is_there = tests.exists() or _text(folder, "tests") is not None
        return Ok((suite, tests) if is_there else (suite,))
    if tests.exists():
        return Ok((tests,))
    hint = "Create a first suite: kindlm init"
    above = (parent / _DEFAULT_FILE for parent in folder.resolve().parents)
    # Files that run only if they, or their folder, are named.
    here = [file for end in ("test_*.py", "*_test.py") for file in sorted(folder.glob(end))]
    here = [file for file in here if file.is_file() and b"kindlm" in file.read_bytes()]
    if (yml := folder / "kindlm.yml").is_file() or here:
        name = yml.name if yml.is_file() else here[0].name
        hint = f"Found {name}; name it, as in: kindlm test {shlex.quote(name)}"
    elif found := next((file for file in above if file.is_file()), None):
        hint = f"Found one in a parent folder; name it: {os.path.relpath(found, folder)}"
    message = f"There is no {_DEFAULT_FILE} and no folder {tests_folder(folder)}/ here."
    return Err(not_there(message, hint))


def paths_from(root: Path, paths: Iterable[Path]) -> list[str]:
    """Return paths relative to the project's root, so that they are valid on any machine."""
    return [
        path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        for path in (path.resolve() for path in paths)
    ]


def configuration_file(root: Path) -> Path:
    """Return where the project's configuration is, or would be."""
    file = root / "kindlm.toml"
    return file if file.is_file() or not _is_in_pyproject(root) else root / "pyproject.toml"


def _root() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any((folder / name).exists() for name in _IN_ROOTS) or _is_in_pyproject(folder):
            return folder
    return here


def _is_in_pyproject(folder: Path) -> bool:
    """Return whether a pyproject.toml has a kindlm table, or is broken after its start."""
    table = _tool_table(folder)
    return isinstance(table, Err) or bool(table.value)


def _configuration(root: Path) -> Result[dict[str, Any]]:
    path = root / "kindlm.toml"
    if not path.is_file():
        return _tool_table(root)
    try:
        return Ok(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        return _unreadable(path, error)


def _tool_table(folder: Path) -> Result[dict[str, Any]]:
    """Return `[tool.kindlm]` of a folder's pyproject.toml; without it the file is not kindlm's."""
    path = folder / "pyproject.toml"
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return Ok({})
    try:
        return Ok(_section(_section(tomllib.loads(text), "tool"), "kindlm"))
    except (ValueError, RecursionError) as error:
        return _unreadable(path, error) if names_kindlm(text) else Ok({})


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    section = table.get(name, {})
    return section if isinstance(section, dict) else {}


def _text(root: Path, key: str) -> str | None:
    """Return a text of the configuration; loading the tests reports its errors."""
    table = _configuration(root)
    written = table.value.get(key) if isinstance(table, Ok) else None
    if not isinstance(written, str):
        return None
    found = _filled(written, key, root)
    return found.value if isinstance(found, Ok) else None


def _filled(text: str, place: str, root: Path) -> Result[str]:
    if "\0" in text:
        return _invalid(root, f"{place} has a NUL character.", "Remove it")
    environ = run_environment([root], os.environ)
    if not (unset := unset_in(text, environ)):
        return Ok(put_in(text, environ))
    message = f"The environment variable {unset[0]} is not set; {place} needs it."
    return _invalid(root, message, f"Set {unset[0]} in your environment or .env file")


def _invalid(root: Path, message: str, hint: str) -> Err:
    where = SourceLocation(str(configuration_file(root)))
    return Err(misuse(message, hint, where=where))


def _unreadable(path: Path, error: Exception) -> Err:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    message = f"{path.name} cannot be read: {reason}."
    hint = "Fix the file: it must be valid TOML, https://toml.io"
    where = SourceLocation(str(path))
    return Err(KindlmError(ErrorCode.CONFIG_PARSE_ERROR, message, hint, where=where))


_SCHEME_AND_HOST = re.compile(r"[\w+.-]+://[^/]*")

_CI = {
    "GITHUB_ACTIONS": "github",
    "GITLAB_CI": "gitlab",
    "BUILDKITE": "buildkite",
    "CIRCLECI": "circleci",
    "JENKINS_URL": "jenkins",
    "TF_BUILD": "azure",
    "CI": "unknown",
}


def git_state(folder: Path) -> GitState | None:
    """Return the current commit of a folder, None outside of git or before the first commit.

    In a copy without git, as in a container, `KINDLM_COMMIT` names the commit (with `-dirty` at its
    end if files have changed since) and `KINDLM_BRANCH` the branch.
    """
    # Commands that only read load no events.
    from kindlm.events.run import GitState

    if named := os.environ.get("KINDLM_COMMIT"):
        commit, branch = named.removesuffix("-dirty"), os.environ.get("KINDLM_BRANCH") or None
        return GitState(commit=commit, branch=branch, dirty=commit != named)
    if not (head := _git(folder, "rev-parse", "HEAD")):
        return None
    is_dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    return GitState(commit=head, branch=branch_of(folder), dirty=is_dirty)


def branch_of(folder: Path) -> str | None:
    """Return the branch of a folder; None outside of git and on a detached HEAD.

    GitLab checks out a commit, and names the tested branch in a variable. It sets none for merge
    requests, whose branch may have any name in a fork.
    """
    checked_out = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    return checked_out or (
        os.environ.get("CI_COMMIT_BRANCH") if os.environ.get("GITLAB_CI") else None
    )


def ci_service(environ: Mapping[str, str]) -> str | None:
    """Return the CI service that set this environment, None without one."""
    return next((name for variable, name in _CI.items() if environ.get(variable)), None)


def commit_of(folder: Path, revision: str) -> str | None:
    """Return the commit that a revision names in a folder's repository; None if there is none."""
    wanted = f"{revision}^{{commit}}"
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted) or None


def remote_name(folder: Path) -> str | None:
    """Return the name of the repository that a folder's repository was cloned from, or None."""
    url = _git(folder, "config", "--get", "remote.origin.url") or ""
    path = re.split(r"[?#]", _SCHEME_AND_HOST.sub("", url))[0] if "://" in url else url
    return re.split(r"[/:]", path.rstrip("/"))[-1].removesuffix(".git") or None


def folder_in_repository(folder: Path) -> str:
    """Return a folder's path inside its repository, with slashes; empty at its top or outside."""
    top = _top_of(folder)
    path = "." if top is None else folder.resolve().relative_to(top).as_posix()
    return "" if path == "." else path


def _top_of(folder: Path) -> Path | None:
    folder = folder.resolve()
    # In a linked work tree or a submodule it is a file.
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


def _git(folder: Path, *arguments: str) -> str | None:
    # Without a repository, this saves starting git.
    if "GIT_DIR" not in os.environ and _top_of(folder) is None:
        return None
    try:
        command = ("git", "-C", str(folder), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
