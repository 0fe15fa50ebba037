"""Who sees the pages of a history server, and who reviews on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from kindlm.browse.datasette_server import make_datasette
from kindlm.cli.commands.serve_history import reviews_in
from kindlm.errors import Ok
from kindlm.team import token_store
from kindlm.team.pages import Pages
from kindlm.team.token_store import TokenStore

OWN = {"sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html"}
RUNS = "/-/kindlm/kindlm/runs"
EXECUTION = "/-/kindlm/kindlm/execution/aaaa2222-1"
REVIEW = "/-/kindlm/kindlm/review/aaaa2222-1"

Story = Callable[[httpx.AsyncClient], Any]


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[TokenStore]:
    with closing(TokenStore(tmp_path / "team.db")) as opened:
        yield opened


@pytest.fixture
def token(tokens: TokenStore) -> Callable[..., str]:
    """Return a new token."""

    def make(name: str = "ann", *scopes: str, **options: Any) -> str:
        made = tokens.create(name, scopes or ("pull", "review"), **options)
        assert isinstance(made, Ok)
        return made.value

    return make


@pytest.fixture
def visit(history: Any, make: Any, tokens: TokenStore) -> Callable[..., Any]:
    """Tell a story with a client of the pages, without a network; each request has its own port."""
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned(repeat=2)])
    for repeat in (1, 2):
        writer.execution(repeat=repeat, assertions=(make.passed(),))
    writer.finish()

    def call(story: Story, *, header: str | None = None, base: str = "http://team.test") -> Any:
        async def told() -> Any:
            datasette = make_datasette(history.path, review=reviews_in(history.path))
            await datasette.invoke_startup()
            pages, ports = Pages(datasette, tokens, header), count(50_000)

            async def app(scope: Any, receive: Any, send: Any) -> None:
                await pages({**scope, "client": ("192.0.2.7", next(ports))}, receive, send)

            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                found = await story(client)
            datasette.executor.shutdown()
            for database in datasette.databases.values():
                database.close()
            return found

        return asyncio.run(told())

    return call


async def log_in(client: httpx.AsyncClient, token: str, **fields: str) -> httpx.Response:
    return await client.post("/login", data={"token": token} | fields, headers=OWN)


ADDRESSES = (
    "/",
    RUNS,
    EXECUTION,
    "/-/kindlm/kindlm/search?q=x",
    "/-/kindlm",
    "/kindlm",
    "/kindlm.db",
    "/kindlm.json?sql=select+1",
    "/kindlm/runs.csv?_stream=on",
    "/kindlm/contents.json",
    "/_internal",
    "/-/versions",
    "/-/versions.json",
    "/-/databases.json",
    "/-/plugins.json",
    "/-/actor.json",
    "/-/metadata.json",
    "/-/permissions",
    "/-/threads",
    "/-/auth-token?token=x",
    "/-/create-token",
    "/-/static/app.css",
    "//login",
    "/login/",
    "/login/../kindlm",
    "/nothing",
)


def test_nothing_is_answered_without_a_person(visit: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        for address in ADDRESSES:
            url = httpx.URL("http://team.test").copy_with(raw_path=address.encode())
            assert (await client.get(url)).status_code == 401, address
            assert (await client.post(url)).status_code == 401, address
            page = await client.get(url, headers=HTML)
            assert (page.status_code, page.content) == (303, b""), address
            assert page.headers["location"].startswith("/login?next=%2F")

    visit(story)


STRANGERS: tuple[Mapping[str, str], ...] = (
    {"cookie": "kindlm=x"},
    {"cookie": f"kindlm=abc.99999999999.{'0' * 64}"},
    {"cookie": "kindlm=" + "9" * 5000},
    {"cookie": "__Host-kindlm=a; kindlm"},
    {"x-forwarded-user": "ann"},
)


def test_no_header_of_a_stranger_is_a_session(visit: Any, token: Any) -> None:
    api = {"authorization": f"Bearer {token()}"}

    async def story(client: httpx.AsyncClient) -> None:
        for headers in (*STRANGERS, api):
            assert (await client.get(RUNS, headers=headers)).status_code == 401, headers

    visit(story)


def test_datasettes_own_cookies_and_tokens_are_no_way_in(history: Any, tokens: TokenStore) -> None:
    datasette = make_datasette(history.path)
    root = {"cookie": f"ds_actor={datasette.sign({'a': {'id': 'root'}}, 'actor')}"}

    async def story() -> Any:
        await datasette.invoke_startup()
        transport = httpx.ASGITransport(Pages(datasette, tokens, "X-User"))
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [
                await client.get("/-/actor.json", headers=root | {"X-User": name})
                for name in ("root", "ann")
            ] + [await client.get(RUNS, headers=root)]

    *actors, refused = asyncio.run(story())
    assert [answer.json()["actor"]["id"] for answer in actors] == ["kindlm:root", "kindlm:ann"]
    assert refused.status_code == 401


def test_a_token_opens_the_pages_until_it_is_revoked(
    visit: Any, token: Any, tokens: TokenStore
) -> None:
    secret = token()

    async def story(client: httpx.AsyncClient) -> None:
        answer = await log_in(client, secret)
        assert (answer.status_code, answer.headers["location"]) == (303, RUNS)
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert secret not in cookie
        assert secret.removeprefix("kdl_") not in cookie
        page = await client.get(RUNS)
        assert page.status_code == 200
        assert '<a class="account" href="/login">ann</a>' in page.text
        assert (await client.get("/kindlm/runs")).status_code == 200
        assert (await client.get("/")).headers["location"] == RUNS
        assert "Log out" in (await client.get("/login")).text
        tokens.revoke("ann")
        assert (await client.get(RUNS)).status_code == 401

    visit(story)


def test_a_session_ends_with_its_token(
    visit: Any, token: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            del tz
            return datetime(2999, 1, 1, tzinfo=UTC)

    async def story(client: httpx.AsyncClient) -> None:
        await log_in(client, token(days=1))
        assert (await client.get(RUNS)).status_code == 200
        monkeypatch.setattr(token_store, "datetime", Later)
        assert (await client.get(RUNS)).status_code == 401

    visit(story)


def test_a_changed_cookie_is_none(visit: Any, token: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await log_in(client, token("ann"))
        ann = client.cookies["kindlm"]
        client.cookies.clear()
        await log_in(client, token("ben"))
        ben = client.cookies["kindlm"]
        client.cookies.clear()
        token_id, end, signature = ann.split(".")
        forged = [
            f"{ben.split('.')[0]}.{end}.{signature}",
            f"{token_id}.{int(end) + 1}.{signature}",
            f"{token_id}.{end}.{signature[:-1]}{'0' if signature[-1] != '0' else '1'}",
            f"{token_id}.{end}.",
            f"{token_id}.1.{signature}",
        ]
        for value in forged:
            answer = await client.get(RUNS, headers={"cookie": f"kindlm={value}"})
            assert answer.status_code == 401
        genuine = await client.get(RUNS, headers={"cookie": f"a=b; kindlm={ann}; c"})
        assert genuine.status_code == 200

    visit(story)


def test_logging_out_ends_the_session_of_the_browser(visit: Any, token: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await log_in(client, token())
        for attempt in (client.get("/logout"), client.post("/logout")):
            await attempt
            assert (await client.get(RUNS)).status_code == 200
        answer = await client.post("/logout", headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert (await client.get(RUNS)).status_code == 401

    visit(story)


def test_over_https_the_cookie_is_secure(visit: Any, token: Any) -> None:
    secret = token()

    async def story(client: httpx.AsyncClient) -> Any:
        proxied = {"x-forwarded-proto": "https"}
        answer = await client.post("/login", data={"token": secret}, headers=OWN | proxied)
        cookie = answer.headers["set-cookie"]
        seen = await client.get(RUNS, headers=proxied | {"cookie": cookie.partition(";")[0]})
        return cookie, seen.status_code

    for base in ("http://team.test", "https://team.test"):
        cookie, status = visit(story, base=base)
        assert cookie.startswith("__Host-kindlm=")
        assert "; Secure" in cookie
        assert status == 200


def test_other_tokens_open_no_page(visit: Any, token: Any) -> None:
    tokens = {
        token("project", project="shop"): "for all projects",
        token("push", "push"): "the scope pull",
        token("review", "review"): "the scope pull",
        "kdl_x": "unknown",
    }

    async def story(client: httpx.AsyncClient) -> None:
        for secret, why in tokens.items():
            answer = await log_in(client, secret)
            assert answer.status_code == 401
            assert why in answer.text
            assert "set-cookie" not in answer.headers
            assert secret not in answer.text

    visit(story)


def test_only_the_own_form_logs_in(visit: Any, token: Any) -> None:
    secret = token()
    refused: tuple[Mapping[str, str], ...] = (
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null"},
        {"origin": "http://other.test"},
        {"origin": "http://team.test", "sec-fetch-site": "cross-site"},
    )
    taken: tuple[Mapping[str, str], ...] = (
        {"origin": "http://team.test"},
        {"origin": "https://kindlm.example", "x-forwarded-host": "kindlm.example"},
    )

    async def story(client: httpx.AsyncClient) -> None:
        for headers in (*refused, *taken):
            answer = await client.post("/login", data={"token": secret}, headers=headers)
            assert answer.status_code == (403 if headers in refused else 303), headers

    visit(story)


ELSEWHERE = (
    "",
    "https://evil.test",
    "//evil.test",
    "/\\evil.test",
    "/a\r\nset-cookie: b",
    "/\tx",
    "/" + "x" * 3000,
    "javascript:alert(1)",
)


def test_after_the_login_comes_a_page_of_this_server(visit: Any, token: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        secret = token()
        answer = await log_in(client, secret, next="/kindlm/runs?_size=5")
        assert answer.headers["location"] == "/kindlm/runs?_size=5"
        for after in ELSEWHERE:
            answer = await log_in(client, secret, next=after)
            assert answer.headers["location"] == RUNS, after
            assert len(answer.headers.get_list("set-cookie")) == 1

    visit(story)


def test_the_login_page_is_inert_and_keeps_where_one_wanted_to_go(visit: Any) -> None:
    async def story(client: httpx.AsyncClient) -> Any:
        return await client.get("/login", params={"next": '/a"><script>x</script>'})

    page = visit(story)
    assert page.status_code == 200
    assert "<script" not in page.text
    assert 'value="/a&#34;&gt;&lt;script&gt;' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("proxy", "status"), [(None, 429), ("X-Forwarded-User", 303)])
def test_wrong_tokens_are_counted_for_each_address(
    visit: Any, token: Any, proxy: str | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = token()
    # Otherwise, the count may begin anew in a new minute.
    clock = SimpleNamespace(time=time.time, monotonic=lambda: 0.0)
    monkeypatch.setattr("kindlm.team.pages.time", clock)

    async def story(client: httpx.AsyncClient) -> None:
        codes = [(await log_in(client, "kdl_wrong")).status_code for _ in range(11)]
        assert codes == [401] * 10 + [429]
        assert (await log_in(client, secret)).status_code == 429
        other = OWN | {"x-forwarded-for": "203.0.113.9, 198.51.100.4"}
        answer = await client.post("/login", data={"token": secret}, headers=other)
        assert answer.status_code == status

    visit(story, header=proxy)


def test_a_form_that_is_too_long_is_refused(visit: Any) -> None:
    async def story(client: httpx.AsyncClient) -> Any:
        return await log_in(client, "x" * 10_000)

    assert visit(story).status_code == 413


def test_a_proxy_that_is_trusted_says_who_looks(visit: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        for names in (["ann@shop.example"], [], ["  "], ["x" * 201], ["a", "b"], ["a\u202eb"]):
            headers = [(b"X-Forwarded-User", name.encode()) for name in names]
            answer = await client.get(RUNS, headers=headers)
            if names == ["ann@shop.example"]:
                assert names[0] in answer.text
            else:
                assert answer.status_code == 401

    visit(story, header="X-Forwarded-User")


def reviews(history: Any) -> list[Any]:
    return [(e.data["passed"], e.data["by"]) for e in history.log.read(types=["review.recorded"])]


def test_reviews_are_those_of_the_token_or_of_the_person(
    visit: Any, token: Any, history: Any
) -> None:
    async def with_token(client: httpx.AsyncClient) -> None:
        await log_in(client, token("ann"))
        assert f'action="{REVIEW}"' in (await client.get(EXECUTION)).text
        assert (await client.post(REVIEW, data={"verdict": "fail"})).status_code == 403
        answer = await client.post(REVIEW, data={"verdict": "fail"}, headers=OWN)
        assert answer.status_code == 303

    async def behind_a_proxy(client: httpx.AsyncClient) -> None:
        ben = {"remote-user": "ben@shop.example", "origin": "http://team.test"}
        answer = await client.post(REVIEW, data={"verdict": "pass"}, headers=ben)
        assert answer.status_code == 303

    visit(with_token)
    visit(behind_a_proxy, header="Remote-User")
    assert reviews(history) == [(False, "ann"), (True, "ben@shop.example")]


def test_without_the_scope_nobody_reviews(visit: Any, token: Any, history: Any) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await log_in(client, token("ann", "push", "pull"))
        page = await client.get(EXECUTION)
        assert page.status_code == 200
        assert "<form" not in page.text
        answer = await client.post(REVIEW, data={"verdict": "pass"}, headers=OWN)
        assert answer.status_code == 403
        assert "permission" in answer.text

    visit(story)
    assert reviews(history) == []


def test_people_only_read(visit: Any, token: Any) -> None:
    """What is not a review changes nothing; the file as a whole is not handed out."""

    async def story(client: httpx.AsyncClient) -> None:
        await log_in(client, token())
        for path in ("/-/messages", "/kindlm/runs/-/insert", "/kindlm/-/create", "/-/logout"):
            assert (await client.post(path, headers=OWN)).status_code == 403
        assert (await client.get("/kindlm.db")).status_code == 403
        attach = {"sql": "ATTACH 'team.db.tokens' AS t", "_shape": "array"}
        assert not (await client.get("/kindlm.json", params=attach)).is_success
        assert "root" not in (await client.get("/-/actor.json")).text

    visit(story)


def test_no_cache_between_keeps_what_a_person_saw(visit: Any, token: Any) -> None:
    async def story(client: httpx.AsyncClient) -> Any:
        await log_in(client, token())
        paths = (RUNS, "/kindlm/runs", "/kindlm/runs.json", "/kindlm/runs.csv", "/-/databases.json")
        return [(await client.get(path)).headers.get("cache-control", "") for path in paths]

    assert all("no-store" in found and "max-age" not in found for found in visit(story))
