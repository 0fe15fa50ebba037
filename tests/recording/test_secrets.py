"""Which values of an environment are secrets: rather too few than ordinary words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindlm.recording.secrets import secret_values
from kindlm_store import Redactor

LINES = ("MIIEvAIBADANBgkqhkiG9w0BAQEFAASC", "ZmFrZWZha2VmYWtlZmFrZWZha2VmYWtl")
PEM = f"-----BEGIN PRIVATE KEY-----\r\n{LINES[0]}\r\n  {LINES[1]}\r\n-----END PRIVATE KEY-----"
ESCAPED = PEM.replace("\r\n", "\\n")


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("SHOP_KEY", "anything", {"anything"}),
        ("SHOP_KEY", "messages", {"messages"}),
        ("DB_PASS", "pgPassw0rdXYZ", {"pgPassw0rdXYZ"}),
        ("MYSQL_PWD", "hunter2hunter2", {"hunter2hunter2"}),
        ("db_passwd", "correct-horse-battery-staple", {"correct-horse-battery-staple"}),
        ("DB_PASS", "/9jAbCdEf123Gh", {"/9jAbCdEf123Gh"}),
        ("SHOP_CREDENTIALS", "me:0123456789", {"me:0123456789", "0123456789"}),
        ("SHOP_AUTH", "customer-support:Zx81k", {"customer-support:Zx81k"}),
        ("SHOP_AUTH", "Bearer abc-0123456789", {"Bearer abc-0123456789", "abc-0123456789"}),
        (
            "COOKIE",
            "theme=darkgrey; id=4711081547",
            {"theme=darkgrey; id=4711081547", "id=4711081547", "4711081547"},
        ),
        ("DB_DSN", "host=db password=x0123456789", {"x0123456789"}),
        ("DB_DSN", "Server=db;User Id=me;Password='x 0123456789';", {"x 0123456789"}),
        ("DB_DSN", "jdbc:mysql://db/shop?user=me&password=x0123456789", {"x0123456789"}),
        ("DB_DSN", "postgresql://me:x0123456789@db/shop", {"x0123456789"}),
        (
            "DB_DSN",
            "me:x0123456789@tcp(db:3306)/shop",
            {"me:x0123456789@tcp(db:3306)/shop", "x0123456789"},
        ),
        ("DB_DSN", "x0123456789", {"x0123456789"}),
        ("GIT_AUTH", "https://ghp0123456789@git.example", {"ghp0123456789"}),
        ("GIT_URL", "https://ghp0123456789:x-oauth-basic@git.example", {"ghp0123456789"}),
        ("DB_URL", "postgres://me:x/01#23456789@db/shop", {"x/01#23456789"}),
        ("HOSTS", "http://me:first12345@a,http://me:second1234@b", {"first12345", "second1234"}),
        ("DB_URL", "postgres://u:pgPassw0rdXYZ@h/db", {"pgPassw0rdXYZ"}),
        ("HTTPS_PROXY", "http://me:p%40ss%20w0rd@proxy:3128", {"p%40ss%20w0rd", "p@ss w0rd"}),
        ("HOOK", "https://hooks.example/x?id=1&token=abc0123456789", {"abc0123456789"}),
        (
            "SHOP_KEY",
            '{"type": "service_account", "of": {"private_key": "abc0123456789"}}',
            {
                '{"type": "service_account", "of": {"private_key": "abc0123456789"}}',
                "abc0123456789",
            },
        ),
        ("SHOP_KEY", PEM, {PEM, *LINES}),
        ("SHOP_KEY", ESCAPED, {ESCAPED, *LINES}),
        ("SHOP_KEY", '{"broken_key": ', {'{"broken_key":'}),
        ("DOCS_URL", "https://shopkeeper-4711:Zx81kkqq@login.example.com/", {"Zx81kkqq"}),
        ("SHOP_KEY", "two\nordinaryWordsOfLetters", {"two\nordinaryWordsOfLetters"}),
    ],
)
def test_a_secret_is_reported_by_the_name_of_its_variable_or_its_place_in_a_url(
    name: str, value: str, secrets: set[str]
) -> None:
    assert secret_values({name: f" {value}\n"}, ()) == secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/me/shop-2"),
        ("OLDPWD", "/home/me/shop-2"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXXXqyNzvM/agent.4711"),
        ("XAUTHORITY", "/run/user/1000/gdm/Xauthority"),
        ("GIT_AUTHOR_NAME", "Ada Lovelace 1815"),
        ("XDG_SESSION_TYPE", "wayland-1"),
        ("DESKTOP_SESSION", "plasma5-x11"),
        ("SESSION_MANAGER", "local/host:@/tmp/.ICE-unix/1234,unix/host:/tmp/.ICE-unix/1234"),
        ("AUTH_MODE", "disabled4"),
        ("SHOP_AUTH", "disabled"),
        ("SHOP_AUTH", "basic, digest"),
        ("SHOP_AUTH", "https://login.example.com:8443/v1"),
        ("DB_PASS", "postgres"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gone/service-account.json"),
        ("COOKIE_DOMAIN", "shop4.example.com"),
        ("COMPASS", "north-by-north-west-4"),
        ("DATABASE_URL", "postgres://postgres:postgres@localhost:5432/shop"),
        ("DATABASE_URL", "postgres://me:short@localhost:5432/shop"),
        ("LIST_URL", "https://example.com/?sort_key=created_at"),
        ("LIST_URL", "https://example.com/?sort_key=created_at_2"),
        ("LIST_URL", "https://example.com/?nextPageToken=page-2-of-9"),
        ("SENTRY_DSN", "https://o1.ingest.sentry.io:8080/project-4711/@all"),
        ("DB_DSN", "host=db-4711 user=me port=5432"),
        ("DB_DSN", "host=shop-4711.example.com user=shopkeeper-2"),
        ("DB_DSN", "postgresql+asyncpg://shop_admin1@db/shop"),
        ("HOMEPAGE", "https://[broken"),
        ("HOMEPAGE", "https://[broken?@"),
        ("HOMEPAGE", "://?@"),
    ],
)
def test_what_stands_in_ordinary_texts_is_no_secret(name: str, value: str) -> None:
    assert secret_values({name: value}, ()) == set()


def test_a_key_is_no_secret_if_it_is_the_whole_path_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "x0123456789"
    file.touch()
    assert secret_values({"SHOP": str(file)}, ["SHOP"]) == set()
    assert secret_values({"SHOP": file.name}, ["SHOP"]) == {file.name}


def test_the_credentials_in_a_file_of_google_are_secrets_however_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text('\n {"private_key_id": "abc0123456789"}')
    secrets = secret_values({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}, ())
    assert secrets == {"abc0123456789"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SENTRY_DSN", "https://abc0123456789@o1.ingest.sentry.io/1"),
        ("DB_DSN", "postgresql://me:x0123456789@localhost/shop"),
        ("DOCS_AUTH", "customer-support:Zx81kkqq"),
        ("DOCS_AUTH", "customer-support:short"),
        ("TOKEN_URL", "https://login.example.com/oauth/token"),
    ],
)
def test_no_scheme_host_or_user_is_taken_out(name: str, value: str) -> None:
    redact = Redactor(secret_values({name: value}, ()))
    said = (
        '{"scheme":"https://","db":"postgresql://","host":"https://login.example.com",'
        ' "by":"customer","for":"customer-support", "all":"https://…", "end":'
        " 'https://'} https://... https://"
    )
    assert redact(said) == said
