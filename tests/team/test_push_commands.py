"""`kindlm login`, `push`, `pull` and `test --push` with a real server."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from history_server import Served
from recorded_history import History

from kindlm.cli.app import run
from kindlm.recording import secrets
from kindlm.team.credentials import credentials_file, find_login, parse_address

SUITE = """
kindlm: 1
project: shop
suite: {name: refunds}
%s
tests:
  - {name: says, command: "echo %s", expect: {output: {contains: [hello]}}}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a history, of a user without a login."""
    for name in ("CI", "KINDLM_URL", "KINDLM_TOKEN", "KINDLM_DB", "KINDLM_LEASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(secrets, "TOKENS", set())
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kindlm(here: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str | Path) -> Said:
        code = run([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def token(served: Served, monkeypatch: pytest.MonkeyPatch, here: Path) -> str:
    """The token of a user who has logged in by variables."""
    made = served.token()
    monkeypatch.setenv("KINDLM_URL", served.url)
    monkeypatch.setenv("KINDLM_TOKEN", made)
    return made


def test_a_long_push_says_how_far_it_is(
    token: str, kindlm: Command, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setattr("kindlm.cli.commands.push._EVERY_S", 0.0)
    suite(here)
    kindlm("test")
    meanwhile, end = kindlm("push").err.splitlines()[:2]
    assert meanwhile.endswith("events pushed …")
    assert "events pushed to" in end


def suite(here: Path, sections: str = "", says: str = "hello") -> None:
    (here / "kindlm.yaml").write_text(SUITE % (sections, says), "utf-8")


def texts(served: Served) -> str:
    rows = served.log.path.read_bytes() + served.log.path.with_name("team.db-wal").read_bytes()
    return rows.decode("utf-8", "replace")


def only_run(kindlm: Command) -> str:
    return str(json.loads(kindlm("runs", "--format", "json").out)["runs"][0]["id"])


def test_a_login_is_kept_for_its_user_and_origin(
    served: Served, kindlm: Command, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    token = served.token()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
    done = kindlm("login", "--url", f"{served.url}/v1/")
    file = credentials_file({"XDG_CONFIG_HOME": str(here.parent / "config")})
    assert done.code == 0, done.err
    assert token not in done.out + done.err
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(file.read_text())["servers"][served.url]["token"] == token
    suite(here)
    kindlm("test")
    assert kindlm("push").code == 0
    assert "0 events pushed" in kindlm("push").err
    other = kindlm("push", "--url", "http://127.0.0.1:9")
    assert "There is no token for the history server http://127.0.0.1:9." in other.err
    monkeypatch.setenv("KINDLM_URL", served.url)
    monkeypatch.setenv("KINDLM_TOKEN", token)
    other = kindlm("push", "--url", "http://127.0.0.1:9")
    assert f"KINDLM_TOKEN is only for the server that KINDLM_URL names, {served.url}." in other.err


@pytest.mark.parametrize(
    ("typed", "url", "problem"),
    [
        ("kdl_unknown", None, "answered 401: The token is unknown."),
        ("sk-other", None, "they begin with kdl_"),
        ("kdl_x y", None, "they begin with kdl_"),
        ("kdl_fine", "http://10.0.0.1:8002", "is not encrypted"),
        ("kdl_fine", "https://u:p@h", "not the address"),
    ],
)
def test_a_login_that_does_not_work_is_not_kept(
    served: Served, kindlm: Command, monkeypatch: Any, typed: str, url: str | None, problem: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    done = kindlm("login", "--url", url or served.url)
    assert done.code == 1
    assert problem in done.err
    assert typed not in done.err
    assert not credentials_file({"XDG_CONFIG_HOME": str(Path.cwd().parent / "config")}).exists()


def test_a_token_of_the_environment_goes_to_its_server_alone(here: Path) -> None:
    environ = {"KINDLM_URL": "https://a.example", "KINDLM_TOKEN": "kdl_" + "x" * 43}
    environ["XDG_CONFIG_HOME"] = str(here / "config")
    found = [
        type(find_login(parse_address(url).value, environ)).__name__  # type: ignore[union-attr]
        for url in ("https://a.example/v1", "https://b.example", "http://a.example")
    ]
    assert found == ["Ok", "Err", "Err"]


def test_a_second_push_sends_nothing_and_a_pull_brings_it_back(
    served: Served, token: str, kindlm: Command, here: Path, tmp_path: Path
) -> None:
    suite(here)
    kindlm("test", "--label", "v1")
    kindlm("test")
    first, second = kindlm("push", "--texts"), kindlm("push", "--texts")
    count = len(list(served.log.read()))
    assert first.err.startswith(f"{count} events pushed to {served.url}.\n")
    assert second.err.startswith(f"0 events pushed to {served.url}; {count} were there already.")
    by_name = (
        "Content of runs that were there already is sent only by name: kindlm push RUN --texts"
    )
    assert [by_name in each.err for each in (first, second)] == [False, True]
    run_id = only_run(kindlm)
    kindlm("history", "export", run_id, "-o", "export.jsonl")
    with served.client(token) as client:
        assert client.get(f"/v1/runs/{run_id}").content == Path("export.jsonl").read_bytes()
    there = tmp_path / "other.db"
    assert "Name a run by its id, or use --branch or --group." in kindlm("pull", "v1").err
    pulled = kindlm("pull", run_id, "--db", there)
    assert (pulled.code, kindlm("history", "verify", "--db", there).code) == (0, 0)
    assert f"See it with: kindlm show {run_id} --db {there}" in pulled.err
    assert "0 events pulled" in kindlm("pull", run_id, "--db", there).err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in written if token.encode() in path.read_bytes()] == []


def test_content_stays_here_until_it_is_sent(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    suite(here, says="hello pelican")
    kindlm("test", "--label", "heron")
    first = kindlm("push")
    assert "Content stayed here. To send it, too: kindlm push RUN --texts" in first.err
    assert "pelican" not in texts(served)
    filled = kindlm("push", "latest", "--texts")
    assert "; 4 withheld texts filled in." in filled.err
    assert "pelican" in texts(served)


def test_a_sentence_as_the_name_of_a_tool_is_sent_by_the_command_that_is_named(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    call = '{"kindlm": "tool_call", "name": "I saw a pelican"}'
    (here / "call.json").write_text(call, "utf-8")
    suite(here)
    text = (here / "kindlm.yaml").read_text("utf-8").replace("echo hello", "cat call.json")
    (here / "kindlm.yaml").write_text(text, "utf-8")
    told = kindlm("test", "--push").err
    assert "may be more than a name" in told
    assert "To send it with all its content: kindlm push RUN --texts" in told
    assert "To push it later" not in told  # it would be refused again
    assert "pelican" not in texts(served)
    assert kindlm("push", only_run(kindlm)).code == 1
    assert kindlm("push", only_run(kindlm), "--texts").code == 0
    assert "pelican" in texts(served)


def test_what_a_purge_left_is_sent_by_the_settings_of_now(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    patterns = "upload: {redactPatterns: [her.n]}"
    suite(here, f"{patterns}\nprompts: {{ask: {{user: pelican}}}}", says="hello heron")
    kindlm("test")
    kindlm("review", "latest", "1", "fail", "--note", "no stork was seen")
    assert "1 text erased" in kindlm("history", "purge", "--matching", "pelican", "-y").err
    kindlm("push", "latest")
    (here / "kindlm.yaml").rename(here / "gone.yaml")
    without = kindlm("push", "latest", "--texts")
    assert "Content stayed here: settings of its suites were erased" in without.err
    assert "stork" not in texts(served)
    suite(here, patterns)
    done = kindlm("push", "latest", "--texts")
    assert "withheld texts filled in." in done.err
    assert "--texts" not in done.err
    assert "no stork was seen" in texts(served)
    assert not any(word in texts(served) for word in ("pelican", "heron"))


def test_content_of_a_suite_with_erased_settings_stays_though_others_send_theirs(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    suite(here, "prompts: {ask: {user: pelican}}", says="hello heron")
    kindlm("test")
    assert "1 text erased" in kindlm("history", "purge", "--matching", "pelican", "-y").err
    suite(here, "upload: {includeArtifacts: true}", says="hello heron")
    assert "Content stayed here." in kindlm("push", "latest").err
    assert "heron" not in texts(served)


def test_the_file_of_the_project_names_the_server_not_what_a_run_recorded(
    served: Served, token: str, kindlm: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run from elsewhere could name any server, which would get the token."""
    monkeypatch.delenv("KINDLM_URL")
    file = here / "kindlm.yaml"
    file.write_text(SUITE % (f'upload: {{apiUrl: "{served.url}"}}', "hello"), "utf-8")
    assert kindlm("test", file).code == 0
    (here / "shop").mkdir()
    file.rename(here / "shop" / "kindlm.yaml")
    gone = kindlm("push", "latest")
    assert gone.code == 1
    assert "No history server is configured." in gone.err
    assert not list(served.log.read())
    (here / "shop" / "kindlm.yaml").rename(file)
    assert kindlm("push", "latest").code == 0
    assert list(served.log.read())


def test_a_suite_without_a_name_is_known_after_a_purge(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    tests = "tests: [{name: says, command: echo hello, expect: {output: {contains: [hello]}}}]"
    (here / "kindlm.yaml").write_text(f"prompts: {{ask: {{user: pelican}}}}\n{tests}", "utf-8")
    kindlm("test")
    kindlm("history", "purge", "--matching", "pelican", "-y")
    done = kindlm("push", "latest", "--texts")
    assert done.code == 0, done.err
    assert "stayed here" not in done.err
    assert "hello" in texts(served)


def test_patterns_hold_whatever_is_asked_for(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    suite(here, "upload: {redactPatterns: [pelic.n]}", says="hello pelican")
    kindlm("test")
    suite(here, "upload: {redactPatterns: [her.n]}", says="hello heron")
    kindlm("test")
    done = kindlm("push", "--texts")
    assert "Content that upload.redactPatterns match stayed here." in done.err
    assert "pelican" not in texts(served)
    assert "hello heron" not in texts(served)


def test_patterns_hold_for_later_reviews(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    suite(here, "upload: {redactPatterns: [sto.k]}", says="hello pelican")
    kindlm("test")
    kindlm("push", "--texts")
    kindlm("review", "latest", "1", "fail", "--note", "no stork was seen")
    (here / "kindlm.yaml").unlink()
    done = kindlm("push", "--texts")
    assert done.code == 0
    assert "stork" not in texts(served)


def test_a_refused_run_stops_no_other(
    served: Served, token: str, kindlm: Command, here: Path, home: History, tmp_path: Path
) -> None:
    for name in ("aaaa2222", "bbbb3333"):
        other = History(tmp_path / "other.db", f"journal/{name}")
        went_on = other.run(name)
        went_on.suite()
        for number in range(5):
            went_on.execution(user="Another one", repeat=number + 1)
        went_on.finish()
        other.close()
    assert kindlm("push", "--db", home.log.path).code == 0
    done = kindlm("push", "--db", tmp_path / "other.db")
    assert done.code == 1
    assert "answered 409" in done.err
    with closing(served.log.reader()) as reader:
        assert reader.execute("SELECT 1 FROM runs WHERE id = 'bbbb3333'").fetchone()


@pytest.mark.parametrize("named", [(), ("aaaa2222",)])
def test_a_run_of_which_the_server_has_more_and_other_events_is_refused(
    served: Served,
    token: str,
    kindlm: Command,
    home: History,
    tmp_path: Path,
    named: tuple[str, ...],
) -> None:
    other = History(tmp_path / "other.db", "journal/other")
    longer = other.run("aaaa2222")
    longer.suite()
    for number in range(20):
        longer.execution(user="Another one", repeat=number + 1)
    longer.finish()
    other.close()
    assert kindlm("push", "--db", tmp_path / "other.db").code == 0
    done = kindlm("push", *named, "--db", home.log.path)
    assert done.code == 1
    assert "answered 409" in done.err


def test_a_run_is_pushed_while_it_goes_on(
    served: Served, token: str, kindlm: Command, here: Path
) -> None:
    suite(here)
    done = kindlm("test", "--push")
    assert done.code == 0
    assert f"events pushed to {served.url}." in done.err
    with served.client(token) as client:
        [row] = client.get("/v1/runs").json()
    assert (row["run"], row["ended"]) == (only_run(kindlm), "finished")
    assert "0 events pushed" in kindlm("push").err


def test_a_configured_upload_never_changes_the_exit_code(
    token: str, kindlm: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "http://127.0.0.1:9"
    suite(here, f'upload: {{enabled: true, apiUrl: "{gone}/v1"}}')
    without = kindlm("test")
    assert without.code == 0
    assert f"There is no token for the history server {gone}" in without.err
    monkeypatch.setattr("kindlm.team.pushing._LAST_TRIES_S", 0.0)
    monkeypatch.setenv("KINDLM_URL", gone)
    done = kindlm("test")
    assert done.code == 0
    assert f"! The history server {gone} cannot be reached: connection refused." in done.err
    assert f"kindlm push {only_run(kindlm)}\n" in done.err
    elsewhere = kindlm("test", "--db", "all.db")
    (run,) = json.loads(kindlm("runs", "--format", "json", "--db", "all.db").out)["runs"]
    assert f"kindlm push {run['id']} --db all.db\n" in elsewhere.err


def test_a_push_without_a_server_is_refused_before_anything_runs(
    kindlm: Command, here: Path
) -> None:
    suite(here)
    done = kindlm("test", "--push")
    assert "No history server is configured." in done.err
    assert "kindlm login --url URL" in done.err
    assert "Name it with --url" not in done.err  # which it does not take
    assert kindlm("runs").code == 1


def test_an_agent_that_prints_the_token_is_recorded_without_it(
    served: Served, kindlm: Command, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    token = served.token()
    monkeypatch.setattr("sys.stdin", io.StringIO(token))
    kindlm("login", "--url", served.url)
    monkeypatch.setattr(secrets, "TOKENS", set())
    saved = credentials_file({"XDG_CONFIG_HOME": str(here.parent / "config")})
    (here / "kindlm.yaml").write_text(
        (SUITE % ("", "x")).replace('"echo x"', f'"cat {saved}"').replace("[hello]", "[servers]")
    )
    assert kindlm("test", "--push", "--texts").code == 0
    with served.client(token) as client:
        sent: httpx.Response = client.get(f"/v1/runs/{only_run(kindlm)}")
    assert "servers" in sent.text
    assert token not in sent.text
