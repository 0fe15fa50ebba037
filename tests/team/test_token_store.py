"""Tokens are kept as hashes, in a file of their owner; what they push is counted there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kindlm.errors import Err, Ok
from kindlm.team.protocol import ApiError
from kindlm.team.token_store import Grant, TokenLimits, TokenStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TokenStore]:
    with closing(TokenStore(tmp_path / "team.db")) as opened:
        yield opened


def made(store: TokenStore, name: str = "ci", *scopes: str, **more: object) -> str:
    created = store.create(name, scopes or ("push", "pull"), **more)  # type: ignore[arg-type]
    assert isinstance(created, Ok)
    return created.value


def test_a_token_grants_what_it_was_made_for(store: TokenStore) -> None:
    token = made(store, "ci", "push", "review", project="shop")
    grant = store.grant_of(token)
    assert isinstance(grant, Grant)
    assert (grant.name, grant.scopes, grant.project) == ("ci", {"push", "review"}, "shop")
    assert token.startswith("kdl_")
    assert len(token) == 4 + 43
    found = store.by_id(grant.id)
    assert found == grant


def test_no_file_holds_the_token_and_only_its_owner_reads_them(
    store: TokenStore, tmp_path: Path
) -> None:
    token = made(store)
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert token.encode() not in file.read_bytes()
        assert b"kdl_" not in file.read_bytes()


def test_what_is_wrong_with_a_token_is_said(store: TokenStore) -> None:
    token, old = made(store), made(store, "old", days=1)
    store.revoke("ci")
    store._rows("UPDATE tokens SET expires_at = '2020-01-01T00:00:00Z' WHERE name = 'old'")
    problems = {each: store.grant_of(each) for each in (token, old, "kdl_no", "")}
    assert problems == {
        token: "The token is revoked.",
        old: "The token is expired.",
        "kdl_no": "The token is unknown.",
        "": "The token is unknown.",
    }
    assert [each["state"] for each in store.tokens()] == ["expired", "revoked"]  # newest first


def test_a_name_is_free_again_once_its_token_is_not_valid(store: TokenStore) -> None:
    made(store)
    assert isinstance(store.create("ci", ["push"]), Err)
    assert isinstance(store.revoke("ci"), Ok)
    assert isinstance(store.revoke("ci"), Err)
    made(store)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "a\n", "ä", "../x"])
def test_a_name_is_plain(store: TokenStore, name: str) -> None:
    assert isinstance(store.create(name, ["push"]), Err)


@pytest.mark.parametrize("project", ["", " "])
def test_a_project_without_a_name_is_refused(store: TokenStore, project: str) -> None:
    assert isinstance(store.create("ci", ["push"], project=project), Err)


@pytest.mark.parametrize("scopes", [[], ["all"], ["push", "admin"]])
def test_there_are_three_scopes(store: TokenStore, scopes: list[str]) -> None:
    assert isinstance(store.create("ci", scopes), Err)


def test_several_processes_use_the_file_at_once(store: TokenStore, tmp_path: Path) -> None:
    def one_more(number: int) -> bool:
        with closing(TokenStore(tmp_path / "team.db")) as other:
            return isinstance(other.create(f"ci-{number // 4}", ["push"]), Ok)

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(one_more, range(16)))
    assert sum(created) == 4
    token = made(store)
    with closing(TokenStore(tmp_path / "team.db")) as other:
        assert isinstance(other.grant_of(token), Grant)
        store.revoke("ci")
        assert other.grant_of(token) == "The token is revoked."


def test_a_token_was_used_when_it_was_granted_something(store: TokenStore) -> None:
    used = made(store)
    store.create("other", ["push"])
    store.grant_of(used)
    assert {each["name"]: each["used_at"] is not None for each in store.tokens()} == {
        "ci": True,
        "other": False,
    }


def test_pushes_of_a_minute_are_limited(store: TokenStore) -> None:
    grant = store.grant_of(made(store, limits=TokenLimits(pushes_per_minute=2)))
    assert isinstance(grant, Grant)
    store.count_push(grant)
    store.count_push(grant)
    with pytest.raises(ApiError) as refused:
        [store.count_push(grant) for _ in range(3)]  # a minute may begin in between
    assert refused.value.status == 429
    assert 0 < refused.value.details["retry_after"] <= 60


def test_bytes_are_limited_and_counted_after_a_restart(store: TokenStore, tmp_path: Path) -> None:
    token = made(store, limits=TokenLimits(bytes_per_day=1_000_000, bytes_in_all=1_500_000))
    grant = store.grant_of(token)
    assert isinstance(grant, Grant)
    store.count_bytes(grant, 900_000)
    with closing(TokenStore(tmp_path / "team.db")) as again:
        with pytest.raises(ApiError) as refused:
            again.require_room(grant, 200_000)
        assert refused.value.status == 403
        assert refused.value.details == {"quota": "mb_per_day", "limit": 1.0, "used": 0.9}
        again.require_room(grant, 100_000)
        again.count_bytes(grant, 100_000)
        again._rows("UPDATE tokens SET day = '2020-01-01'")
        with pytest.raises(ApiError) as refused:
            again.require_room(grant, 600_000)
        assert refused.value.details == {"quota": "mb_total", "limit": 1.5, "used": 1.0}
        assert [each["bytes_today"] for each in again.tokens()] == [0]
