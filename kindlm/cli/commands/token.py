"""`kindlm token`: create, list or revoke tokens of a history server."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from kindlm.cli.console import fail_if, note, or_fail, refuse, table
from kindlm.cli.history import project_here
from kindlm.cli.history_errors import disk_full
from kindlm.cli.options import DATABASE, LIST_FORMAT, ListFormat, argument, option
from kindlm.errors import ErrorCode
from kindlm.reports.untrusted import one_line, printed_json
from kindlm.team.token_store import TokenLimits, TokenStore, token_file
from kindlm.wording import shown_path

token_app = typer.Typer(rich_markup_mode=None)

_MB = 1_000_000
_MOST = 1_000_000_000

_COLUMNS = ("NAME", "STATE", "SCOPES", "PROJECT", "EXPIRES", "LAST USED", "MB TODAY", "MB")


@token_app.command("create")
def create_command(
    name: str = option("--name NAME", "Name of the token, such as ci.", default=...),
    scopes: str = option(
        "--scopes LIST", "push, pull and review, with commas.", default="push,pull"
    ),
    project: str | None = option("--project NAME", "Only runs of this project."),
    days: int | None = option("--days N", "Expire after N days.", min=1, max=36_500),
    pushes_per_minute: int | None = option(
        "--pushes-per-minute N", "Allow N pushes a minute.", min=1, max=_MOST
    ),
    mb_per_day: int | None = option(
        "--mb-per-day N", "Allow N MB a day, unpacked.", min=1, max=_MOST
    ),
    mb_total: int | None = option("--mb-total N", "Allow N MB in all, unpacked.", min=1, max=_MOST),
    db: Path | None = DATABASE,
) -> None:
    """Create a token for a history server, and print it once."""
    limits = TokenLimits(
        pushes_per_minute, mb_per_day and mb_per_day * _MB, mb_total and mb_total * _MB
    )
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with _tokens(project_here(db).database, create=True) as store:
        token = or_fail(store.create(name, wanted, project=project, days=days, limits=limits))
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    note("This token is shown only now. Keep it as a secret, such as KINDLM_TOKEN in CI.")


@token_app.command("list")
def list_command(form: ListFormat = LIST_FORMAT, db: Path | None = DATABASE) -> None:
    """List tokens, with what was pushed with them. The tokens themselves are not stored."""
    with _tokens(project_here(db).database) as store:
        found = store.tokens()
    if form == "json":
        sys.stdout.write(printed_json(found, indent=2) + "\n")
        return
    rows = [
        (
            each["name"], each["state"], ",".join(each["scopes"]), one_line(each["project"] or "-"),
            each["expires_at"] or "-", each["used_at"] or "-",
            f"{each['bytes_today'] / _MB:.1f}", f"{each['bytes'] / _MB:.1f}",
        )
        for each in found
    ]  # fmt: skip
    sys.stdout.write(table(_COLUMNS, rows))


@token_app.command("revoke")
def revoke_command(
    name: str = argument("NAME", "Name of the token."), db: Path | None = DATABASE
) -> None:
    """Revoke a token. A running server refuses it at once."""
    with _tokens(project_here(db).database) as store:
        or_fail(store.revoke(name))
    note(f"The token {name} is revoked.")


@contextmanager
def _tokens(database: Path, *, create: bool = False) -> Iterator[TokenStore]:
    """Open the tokens of a history; end the command if there are none and none are created."""
    if not create and not token_file(database).exists():
        refuse(
            f"There are no tokens for {shown_path(database)}.",
            "Create one: kindlm token create --name ci; or name the history with --db.",
            code=ErrorCode.CONFIG_NOT_FOUND,
        )
    with usable_tokens(database), closing(TokenStore(database)) as store:
        yield store


@contextmanager
def usable_tokens(database: Path) -> Iterator[None]:
    """End the command if the file of the tokens cannot be read or written."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        fail_if(disk_full(database, error))
        refuse(
            f"The file {shown_path(token_file(database))} cannot be used:"
            f" {getattr(error, 'strerror', None) or error}.",
            "Check its permissions and those of its folder.",
            code=ErrorCode.UNKNOWN_ERROR,
        )
