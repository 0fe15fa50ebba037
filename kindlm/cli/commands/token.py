"""`kindlm token`: who may push to a history server, and pull from it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kindlm.cli.commands.runs import table
from kindlm.cli.console import fail, note, or_fail, refuse
from kindlm.cli.history import disk_full, project_here
from kindlm.cli.options import DatabaseOption, ListFormatOption
from kindlm.errors import ErrorCode
from kindlm.reports.untrusted import one_line, printed_json
from kindlm.team.token_store import Limits, TokenStore, token_file
from kindlm.wording import shown_path

token_app = typer.Typer(rich_markup_mode=None)

_MB = 1_000_000
_MOST = 1_000_000_000

_HEADER = ("NAME", "STATE", "SCOPES", "PROJECT", "EXPIRES", "LAST USED", "MB TODAY", "MB")


@token_app.command("create")
def create_command(
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the token, such as ci.")
    ],
    scopes: Annotated[
        str,
        typer.Option("--scopes", metavar="LIST", help="push, pull and review, with commas."),
    ] = "push,pull",
    project: Annotated[
        str | None,
        typer.Option("--project", metavar="NAME", help="Only runs of this project."),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", min=1, max=36_500, help="Expire after N days."),
    ] = None,
    pushes_per_minute: Annotated[
        int | None,
        typer.Option(
            "--pushes-per-minute", metavar="N", min=1, max=_MOST, help="Allow N pushes a minute."
        ),
    ] = None,
    mb_per_day: Annotated[
        int | None,
        typer.Option(
            "--mb-per-day", metavar="N", min=1, max=_MOST, help="Allow N MB a day, unpacked."
        ),
    ] = None,
    mb_total: Annotated[
        int | None,
        typer.Option(
            "--mb-total", metavar="N", min=1, max=_MOST, help="Allow N MB in all, unpacked."
        ),
    ] = None,
    db: DatabaseOption = None,
) -> None:
    """Create a token for a history server, and print it once."""
    limits = Limits(pushes_per_minute, mb_per_day and mb_per_day * _MB, mb_total and mb_total * _MB)
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with _tokens(project_here(db).database, create=True) as store:
        token = or_fail(store.create(name, wanted, project=project, days=days, limits=limits))
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    note("This token is shown only now. Keep it as a secret, such as KINDLM_TOKEN in CI.")


@token_app.command("list")
def list_command(
    form: ListFormatOption = "terminal",
    db: DatabaseOption = None,
) -> None:
    """List tokens, with what was pushed with them. The tokens themselves are not stored."""
    with _tokens(project_here(db).database) as store:
        found = store.tokens()
    if form == "json":
        listed = [asdict(each) for each in found]
        for each in listed:
            each.update(each.pop("limits"))
        sys.stdout.write(printed_json(listed, indent=2) + "\n")
        return
    rows = [
        (
            token.name, token.state, ",".join(token.scopes), one_line(token.project or "-"),
            token.expires_at or "-", token.used_at or "-",
            f"{token.bytes_today / _MB:.1f}", f"{token.bytes / _MB:.1f}",
        )
        for token in found
    ]  # fmt: skip
    sys.stdout.write(table(_HEADER, rows))


@token_app.command("revoke")
def revoke_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    db: DatabaseOption = None,
) -> None:
    """Revoke a token. A running server refuses it at once."""
    with _tokens(project_here(db).database) as store:
        or_fail(store.revoke(name))
    note(f"The token {name} is revoked.")


def open_tokens(database: Path, *, create: bool = False) -> TokenStore:
    """Open the tokens of a history; end the command if that fails, or there are none to open."""
    if not create and not token_file(database).exists():
        refuse(
            f"There are no tokens for {shown_path(database)}.",
            "Create one: kindlm token create --name ci; or name the history with --db.",
            code=ErrorCode.CONFIG_NOT_FOUND,
        )
    try:
        return TokenStore.open(database)
    except (OSError, sqlite3.Error) as error:
        _fail_to_use(database, "opened", error)


@contextmanager
def _tokens(database: Path, *, create: bool = False) -> Iterator[TokenStore]:
    """Open the tokens of a history; end the command if they cannot be written, either."""
    with open_tokens(database, create=create) as store:
        try:
            yield store
        except sqlite3.Error as error:
            _fail_to_use(database, "written", error)


def _fail_to_use(database: Path, what: str, error: OSError | sqlite3.Error) -> NoReturn:
    if (full := disk_full(database, error)) is not None:
        fail([full])
    why = getattr(error, "strerror", None) or error
    refuse(
        f"The file {shown_path(token_file(database))} cannot be {what}: {why}.",
        "Check its permissions and those of its folder.",
        code=ErrorCode.UNKNOWN_ERROR,
    )
