"""The project of a run: its root, database, configuration, environment and commit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.scenarios.environment import put_in, unset_in
from kindlm.wording import first_of

if TYPE_CHECKING:
    from dotenv.parser import Binding

    from kindlm.events.run import GitState


_ENDINGS = {"junit": "xml", "markdown": "md", "terminal": "txt"}
"""The ending of a report's file, where it is not the name of its format."""

_DEFAULT_FILE = "kindlm.yaml"
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-+?=][^}]*)?\}")
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
    root = root_of(Path.cwd())
    given = database or os.environ.get("KINDLM_DB")
    if given:
        return Ok(Project(root, Path(given).resolve()))
    configured = _setting(root, "store", "path")
    if isinstance(configured, Err):
        return configured
    path = configured.value if isinstance(configured.value, str) else ""
    return Ok(Project(root, (root / (path or ".kindlm/kindlm.db")).resolve()))


def run_environment(folders: list[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the variables that the `.env` files of `folders` add.

    Earlier folders take precedence over later ones; variables that are set are not overridden.
    """
    merged = dict(environ)
    for folder in folders:
        # Of two lines with a name, the last one counts.
        of_file = {line.key: line.value for line in _lines(folder / ".env") or ()}
        for name, value in of_file.items():
            if name is not None and value is not None:
                merged.setdefault(name, value)
    return merged


def project_problems(folders: Sequence[Path], root: Path) -> Iterator[KindlmError]:
    """Yield what of the project has no effect on a run of the tests in `folders`."""
    yield from environment_problems([*folders, root])
    yield from overruled_variables(folders)
    yield from unread_configurations(folders, root)
    yield from repository_problems(root)


def environment_problems(folders: Iterable[Path]) -> Iterator[KindlmError]:
    """Yield what `run_environment` cannot read, without its text, which may be a secret."""
    for folder in {folder.resolve(): folder for folder in reversed([*folders])}.values():
        file = folder / ".env"
        lines = _lines(file)
        if lines is None:
            message = "The file is not UTF-8, so none of its variables is set"
            hint = "Save it as UTF-8; `>` in Windows PowerShell writes UTF-16"
            yield misuse(message, hint, SourceLocation(str(file)), "env_encoding")
        for line in lines or ():
            if line.error:
                # The line begins with the empty lines before it.
                text = line.original.string
                empty = text[: len(text) - len(text.lstrip())].count("\n")
                where = SourceLocation(str(file), line.original.line + empty)
                message = "The line is ignored: it is not NAME=VALUE"
                hint = "A quotation mark that begins a value must also end it"
                yield misuse(message, hint, where, "env_line")
                continue
            name, value = line.key or "", line.value or ""
            is_quoted = line.original.string.partition("=")[2].lstrip().startswith("'")
            # Another value of the environment takes precedence, such as that of a container.
            is_used = os.environ.get(name, value) == value
            if is_used and not is_quoted and _REFERENCE.search(value):
                where = SourceLocation(str(file), line.original.line)
                message = f"kindlm does not replace ${{NAME}} in the value of {name}"
                hint = "Write the whole value, or put it in single quotes if it is intended"
                yield misuse(message, hint, where, "env_reference")


def overruled_variables(folders: Sequence[Path]) -> Iterator[KindlmError]:
    """Yield the `.env` files of `folders` whose variables have the values of earlier folders."""
    of_run = run_environment([*folders], {})
    for folder in folders:
        own = run_environment([folder], {})
        # What the environment itself sets is meant for all of them.
        names = [
            name
            for name, value in own.items()
            if value != of_run[name] and os.environ.get(name) in (None, of_run[name])
        ]
        if names:
            message = f"{first_of(names, 3)}: the .env beside another suite counts in this run"
            hint = "A run has one environment. Test this folder by itself, or use other names"
            yield misuse(message, hint, SourceLocation(str(folder / ".env")), "env_overruled")


def _lines(file: Path) -> list[Binding] | None:
    """Return the lines of an `.env` file, if there is one; None if its encoding is unknown."""
    if not file.is_file():
        return []
    # Python decodes the variables of the environment in the same way.
    text = file.read_text("utf-8-sig", "surrogateescape")
    if "\0" in text:  # UTF-16; no variable can hold one
        return None
    from dotenv.parser import parse_stream

    # Nothing is expanded in these files: a password may contain a dollar sign.
    return list(parse_stream(StringIO(text)))


def regression_threshold(root: Path) -> Result[float | None]:
    """Return `diff.regression_threshold` of the project's configuration; None if it has none."""
    found = _setting(root, "diff", "regression_threshold")
    if isinstance(found, Err) or found.value is None:
        return found
    value = found.value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return Ok(value)
    message = f"diff.regression_threshold is {value!r}: it must be a number from 0 to 1."
    return _invalid(root, message, "It is how far a mean score may fall: 0.05 by default.")


def report_files(root: Path) -> Result[list[tuple[str, Path]]]:
    """Return the reports that `report` of the project's configuration asks for, and their files.

    The files are `report`, with the ending of its format, in the folder `output_dir`.
    """
    formats = _setting(root, "report", "formats")
    if isinstance(formats, Err):
        return formats
    folder = _setting(root, "report", "output_dir")
    if isinstance(folder, Err):
        return folder
    names = formats.value or []
    into = "reports" if folder.value is None else folder.value
    are_names = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if not (are_names and isinstance(into, str) and into):
        message = "report.formats must be a list of names, and report.output_dir a folder."
        hint = 'Such as formats = ["json", "junit"] and output_dir = "reports".'
        return _invalid(root, message, hint)
    return Ok([(name, root / into / f"report.{_ENDINGS.get(name, name)}") for name in names])


def exit_codes() -> str | None:
    """Return `KINDLM_EXIT_CODES`, else `exit_codes` of the project of the working directory."""
    return os.environ.get("KINDLM_EXIT_CODES") or _text(root_of(Path.cwd()), "exit_codes")


def project_name(root: Path) -> str:
    """Return the name of the project if its tests do not give one.

    That is `project` of its configuration, else `KINDLM_PROJECT`, else the name of its remote
    repository, else that of its folder.
    """
    named = _text(root, "project") or os.environ.get("KINDLM_PROJECT")
    return named or remote_name(root) or root.resolve().name or "project"


def default_paths(folder: Path) -> Result[tuple[Path, ...]]:
    """Return the paths to run when none are named: `kindlm.yaml`, and the folder with the tests.

    That is `tests`, unless the project's configuration names another one. Beside a kindlm.yaml, the
    folder only runs if the project has a configuration of scenarios: without one, a folder of that
    name may hold other things.
    """
    named = _text(folder, "tests")
    suite, tests = folder / _DEFAULT_FILE, folder / (named or "tests")
    if suite.exists():
        is_configured = (folder / "kindlm.toml").is_file() or _is_in_pyproject(folder)
        runs_both = is_configured and (tests.exists() or named is not None)
        return Ok((suite, tests) if runs_both else (suite,))
    if tests.exists():
        return Ok((tests,))
    hint = "Name a file or folder with tests, or create a first suite: kindlm init"
    message = f"There is no {_DEFAULT_FILE} and no folder {named or 'tests'}/ here."
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


def unread_configurations(folders: Iterable[Path], root: Path) -> Iterator[KindlmError]:
    """Yield the configurations nearer to `folders` with tests than that of the project."""
    for folder in dict.fromkeys(each for tests in folders for each in (tests, *tests.parents)):
        is_below = root in folder.resolve().parents
        if is_below and (file := configuration_file(folder)).is_file():
            message = f"This configuration does not apply: the project of this run is {root}"
            where = SourceLocation(str(file))
            yield misuse(message, "Run kindlm in the folder of this file", where, "unread")


def root_of(folder: Path) -> Path:
    """Return the root of the project that a folder with an absolute path is in."""
    for each in (folder, *folder.parents):
        if any((each / name).exists() for name in _IN_ROOTS) or _is_in_pyproject(each):
            return each
    return folder


def _is_in_pyproject(folder: Path) -> bool:
    """Return whether a pyproject.toml has a kindlm table, or is broken after its start."""
    table = _table(folder / "pyproject.toml")
    return isinstance(table, Err) or bool(table.value)


def _table(path: Path) -> Result[Any]:
    """Return the content of a kindlm.toml, or `[tool.kindlm]` of a pyproject.toml."""
    is_own = path.name == "kindlm.toml"
    text = ""
    try:
        text = path.read_text("utf-8-sig", errors="strict" if is_own else "replace")
        table = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        if not is_own and "kindlm" not in text:
            return Ok(None)  # not kindlm's concern
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{path.name} cannot be read: {reason}."
        hint = "Fix the file: it must be valid TOML, https://toml.io"
        where = SourceLocation(str(path))
        return Err(KindlmError(ErrorCode.CONFIG_PARSE_ERROR, message, hint, where=where))
    return Ok(table if is_own else _at(table, "tool", "kindlm"))


def _at(table: Any, *keys: str) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _setting(root: Path, *keys: str) -> Result[Any]:
    """Return a value of the project's configuration, with the values of its variables."""
    own = root / "kindlm.toml"
    table = _table(own if own.is_file() else root / "pyproject.toml")
    if isinstance(table, Err):
        return table
    value, place = _at(table.value, *keys), ".".join(keys)
    if not isinstance(value, str):
        return Ok(value)
    if "\0" in value:
        return _invalid(root, f"{place} has a NUL character.", "Remove it")
    environ = run_environment([root], os.environ)
    if unset := unset_in(value, environ):
        message = f"The environment variable {unset[0]} is not set; {place} needs it."
        return _invalid(root, message, f"Set {unset[0]} in your environment or .env file")
    return Ok(put_in(value, environ))


def _text(root: Path, key: str) -> str | None:
    """Return a text of the configuration; loading the tests reports its errors."""
    found = _setting(root, key)
    return found.value if isinstance(found, Ok) and isinstance(found.value, str) else None


def _invalid(root: Path, message: str, hint: str) -> Err:
    return Err(misuse(message, hint, where=SourceLocation(str(configuration_file(root)))))


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
    # A folder whose status is not known, as after a timeout, is not clean.
    is_dirty = _git(folder, "status", "--porcelain", "--untracked-files=no") != ""
    return GitState(commit=head, branch=branch_of(folder), dirty=is_dirty)


def repository_problems(folder: Path) -> Iterator[KindlmError]:
    """Yield that git refuses the folder's repository, so its commit cannot be recorded.

    Git does so if another user owns the files, as they often do in containers.
    """
    top = _top_of(folder)
    if top is None or top.stat().st_uid == os.geteuid() or os.environ.get("KINDLM_COMMIT"):
        return
    command = ("git", "-C", str(top), "rev-parse", "--git-dir")
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        if "safe.directory" in done.stderr:
            message = "The commit is not recorded: git refuses a repository of another user"
            hint = f"git config --global --add safe.directory {shlex.quote(str(top))}"
            yield misuse(message, hint, SourceLocation(str(top)), "git_owner")


def branch_of(folder: Path) -> str | None:
    """Return the branch of a folder; None outside of git and on a detached HEAD.

    GitLab checks out a commit, and names the tested branch in a variable. GitHub does the latter,
    too. Neither counts for merge and pull requests, whose branch may have any name in a fork.
    """
    checked_out = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    if not checked_out and os.environ.get("GITHUB_EVENT_NAME") == "push":
        pushed = _git(folder, "rev-parse", "HEAD") == os.environ.get("GITHUB_SHA")
        is_branch = os.environ.get("GITHUB_REF_TYPE") == "branch"
        return os.environ.get("GITHUB_REF_NAME") if pushed and is_branch else None
    return checked_out or os.environ.get("CI_COMMIT_BRANCH")


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
    if "://" in url:
        # A host is no name, and a query may hold a token.
        url = re.split(r"[?#]", url.partition("://")[2].partition("/")[2])[0]
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git") or None


def folder_in_repository(folder: Path) -> str:
    """Return a folder's path inside its repository, with slashes; empty at its top or outside.

    In a container without git, GitHub copies the repository to its workspace.
    """
    folder = folder.resolve()
    top = _top_of(folder) or Path(os.environ.get("GITHUB_WORKSPACE") or folder).resolve()
    return "/".join(folder.relative_to(top).parts) if folder.is_relative_to(top) else ""


def _top_of(folder: Path) -> Path | None:
    folder = folder.resolve()
    # In a linked work tree or a submodule it is a file.
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


def _git(folder: Path, *arguments: str) -> str | None:
    environ = dict(os.environ)
    if _top_of(folder) is not None:
        # Hooks of git have these variables, which may be about another folder or repository.
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            environ.pop(name, None)
    elif "GIT_DIR" not in environ:
        return None  # without starting git
    command = ("git", "-C", str(folder), *arguments)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=True, env=environ
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
