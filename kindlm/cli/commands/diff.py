"""`kindlm diff`: compare two runs, test by test."""

from __future__ import annotations

import io
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import typer

from kindlm.cli.console import fail, fail_if, note, or_fail, refuse, show, warn
from kindlm.cli.ending import NOTHING_RUN, loading
from kindlm.cli.history import (
    commit_named,
    existing_history,
    open_history,
    report_options,
    warn_of_passed_over,
)
from kindlm.cli.options import (
    DATABASE,
    INSECURE,
    RUN_NAMES,
    SERVER,
    DiffFormat,
    argument,
    flag,
    option,
)
from kindlm.cli.reporters import STDOUT, is_history, open_report
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, not_there
from kindlm.garbage import put_off
from kindlm.history.baselines import BaselineChecks
from kindlm.history.run_names import RunNames, Side, find_sides
from kindlm.history.run_view import RunView
from kindlm.recording.project import Project, branch_of, regression_threshold
from kindlm.reports.diff import write_diff
from kindlm.reports.untrusted import plain
from kindlm.wording import first_of

_PATIENCE_S = 20.0
"""How long to wait for an unreachable server. After that, the local history may be enough."""

_NOT_COMPARED = (
    "### ❌ kindlm: NOT COMPARED\n\nThe last run of this job was not compared; its log says why.\n"
)

_NAMES = f"{RUN_NAMES} Or a group of shards."


# Ten thousand tests are a million objects, which all live until the end.
@put_off()
def diff_command(
    before: str | None = argument(
        "BEFORE", f"{_NAMES} Default: baseline if one is set, else previous.", default=None
    ),
    after: str | None = argument("AFTER", "Named in the same way. Default: latest.", default=None),
    base: str | None = option(
        "--base BRANCH",
        "Compare with the newest finished run of BRANCH; the only argument is then AFTER.",
    ),
    url: str | None = SERVER,
    insecure: bool = INSECURE,
    comment: bool = flag(
        "--comment", "In GitHub Actions: keep one comment on the pull request up to date."
    ),
    form: DiffFormat = option("--format", "Format of the comparison.", default="terminal"),
    fail_on: Literal["default", "behaviour", "any", "never"] = option(
        "--fail-on",
        "What exits with 1. default: confirmed regressions and removed tests. behaviour:"
        " also changed behaviour. any: also suspected regressions.",
        default="default",
    ),
    test: str | None = option(
        "--test -t PATTERN", "Compare only tests and suites whose name contains PATTERN."
    ),
    output: Path | None = option("--output -o FILE", "Write to FILE; - is stdout."),
    old: str | None = option("--before", hidden=True),
    new: str | None = option("--after", hidden=True),
    db: Path | None = DATABASE,
) -> None:
    """Compare two runs: regressions, fixes and changed behaviour.

    Exits with 1 if a regression is confirmed or a test was removed.
    """
    with loading():
        from kindlm.history.diff.evidence_values import FailOn
        from kindlm.history.diff.power import comparison_power
        from kindlm.history.diff.run_diff import DiffOptions, compare_runs
        from kindlm.reports.figures import power_text

    if None not in (before, old) or None not in (after, new):
        refuse("A run to compare is named twice.", "Name each once: kindlm diff BEFORE AFTER")
    sides = (before if old is None else old, after if new is None else new)
    if base is None and url is not None:
        refuse("--url requires --base.", "Add --base BRANCH.")
    if base is not None:
        if None not in sides:
            refuse("--base names the earlier run, and so does BEFORE.", "Leave one of them out.")
        sides = (None, sides[0] if sides[1] is None else sides[1])
    output = None if output == STDOUT else output
    with _commented(comment):
        history = existing_history(db)
        if output is not None and is_history(output, history.database):
            refuse(f"The comparison would overwrite the history: {output}.", "Name another file.")
        threshold = or_fail(regression_threshold(history.root))
        options = DiffOptions(FailOn(fail_on), test, regression_threshold=threshold)
        shown = report_options(db)
    with _commented(comment), open_history(db) as reader:
        if base is not None:
            branch = Base(base, url, insecure, comment)
            compared = sides_with_branch(reader, history, branch, sides[1])
            if compared is None:
                return
            found = compared
        else:
            found = or_fail(find_sides(reader, *sides, commit_named))
            _check_baseline(reader, *found, by_default=sides[0] is None)
        options = replace(options, note=warn_of_passed_over(reader, sides[1], found[1], base))
        reader.execute("BEGIN")  # one snapshot, and no locks for each statement
        diff = compare_runs(reader, *found, options)
        if test is not None and not diff.tests:
            refuse(
                f"No test or suite of these runs has {test!r} in its name.",
                "Leave --test out to see all of them.",
            )
        if output is None:
            write_diff(diff, form, sys.stdout, shown)
            sys.stdout.flush()
        else:
            with open_report(output) as out:
                write_diff(diff, form, out, replace(shown, color=False))
        rates = diff.evidence.rates.values()
        power = comparison_power((rate.before, rate.after.n) for rate in rates)
        if power is not None:
            typer.echo(power_text(power), err=True)
        if comment:
            text = io.StringIO()
            write_diff(diff, "markdown", text, shown)
            _keep_comment(text.getvalue())
    if diff.fails:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Base:
    """The options about the branch to compare with."""

    branch: str
    url: str | None
    insecure: bool
    comment: bool


def sides_with_branch(
    db: sqlite3.Connection, project: Project, base: Base, wanted: str | None
) -> tuple[Side, Side] | None:
    """Return the newest run of a branch and the run to compare with it.

    The former is pulled from the history server, if there is one. Without a run of the branch, the
    command ends; with `--comment`, it says so in the comment, and this returns None.
    """
    from kindlm.cli.history_server import find_server, upload_now
    from kindlm.team.client import HistoryClient
    from kindlm.team.credentials import NO_SERVER
    from kindlm.team.pulling import pull_newest

    here = branch_of(Path.cwd())
    branch = base.branch
    names = RunNames(db, revision=commit_named)
    after = or_fail(names.find_changed(wanted, branch, here))
    view = RunView(db, after)
    upload = upload_now(project.root)
    configured = None if upload is None else upload.url
    problem = None
    login = find_server(base.url, configured, project.root, insecure=base.insecure)
    if isinstance(login, Err):
        problem = None if login.error is NO_SERVER else login.error
    else:
        address, token = login.value
        with closing(HistoryClient(address.base, token, patience_s=_PATIENCE_S)) as client:
            pulled = pull_newest(client, db, project.database, branch, view.info)
        if isinstance(pulled, Err):
            problem = pulled.error
        elif pulled.value:
            note(f"Pulled from {address.base}: {', '.join(pulled.value)}")
    found = RunNames(db, after).newest_of_branch(branch)
    if problem is not None:
        if found is None:
            fail([problem])
        warn(problem.message, "The newest run in the history here is compared.")
    if found is not None:
        return or_fail(found), after
    suites = first_of(map(repr, view.info.suites), 3)
    message = f"No run of branch {branch!r} with a suite of {view.id} ({suites}) has finished yet."
    hint = f"Run kindlm test on {branch}. The recorded runs: kindlm runs"
    if not base.comment:
        show([not_there(message, hint)])
        raise typer.Exit(NOTHING_RUN)
    note(message)
    _keep_comment(f"### ⚠️ kindlm: nothing to compare with\n\n{plain(message)}\n")
    return None


@contextmanager
def _commented(is_wanted: bool) -> Iterator[None]:
    """On an error, replace an earlier comment: it must not pass for the result of this commit."""
    try:
        yield
    except Exception:  # also one that ends the command as a crash
        if is_wanted:
            _keep_comment(_NOT_COMPARED, create=False)
        raise


def _keep_comment(text: str, *, create: bool = True) -> None:
    """Write a text into the comment of the pull request; warn if that fails."""
    from kindlm.cli.pull_request import CommentError, NoPullRequestError, keep_comment

    try:
        keep_comment(os.environ, Path.cwd(), text, create=create)
    except NoPullRequestError:
        note("There is no comment to write: no pull request started this workflow.")
    except CommentError as error:
        warn(f"The comment on the pull request could not be written: {error}.")


def _check_baseline(db: sqlite3.Connection, before: Side, after: Side, *, by_default: bool) -> None:
    """End the command if BEFORE is a baseline whose events have changed since.

    If BEFORE is the baseline `by_default`, note that.
    """
    names = RunNames(db, after)
    if not names.has_baseline or names.find("baseline") != Ok(before):
        return
    runs = [before] if isinstance(before, str) else before.runs
    fail_if(BaselineChecks(db).corruption(runs))
    if by_default:
        what = f"run {before}" if isinstance(before, str) else f"group {before.name}"
        note(f"Compared with the baseline, {what}. With the run before: kindlm diff previous")
