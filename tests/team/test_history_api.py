"""What `/v1` answers: what is right is taken whole, and of all else nothing is kept."""

from __future__ import annotations

import gzip
import json
import logging
from contextlib import closing
from errno import ENOSPC
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from history_server import GZIP, Served, body_of, history_server
from recorded_history import History

from kindlm.events.codec import new_event
from kindlm.events.run import RunInterrupted
from kindlm.history.runs import streams_of
from kindlm.recording.export_file import write_export
from kindlm.team import history_api
from kindlm.team.bodies import bodies
from kindlm.team.history_api import HistoryApi, unpack
from kindlm.team.protocol import LONGEST_BODY, ApiError, Control, StreamEnd
from kindlm.team.team_server import RunningServer
from kindlm.team.token_store import TokenLimits
from kindlm_store import EventLog, OpenError
from kindlm_store.verification import verify_file


def push(client: httpx.Client, body: bytes, **headers: str) -> httpx.Response:
    return client.post("/v1/events", content=body, headers=GZIP | headers)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert set(answer.json()) == {"error", "message", "details"}
    return answer.status_code, answer.json()["error"]


def exported(log: EventLog, run: str = "aaaa2222") -> bytes:
    out = BytesIO()
    with closing(log.reader()) as db:
        write_export(out, run, streams_of(db, run)[1], db)
    return out.getvalue()


def is_empty(log: EventLog) -> bool:
    return next(log.read(), None) is None


def test_a_run_is_pushed_and_comes_back_byte_for_byte(served: Served, home: History) -> None:
    events = len(list(home.log.read()))
    with served.client(served.token()) as client:
        first, second = (push(client, body_of(home)) for _ in range(2))
        heads = client.get("/v1/heads", params={"stream": ["run/aaaa2222", "run/nothere2"]})
        pulled = client.get("/v1/runs/aaaa2222")
        plain = client.get("/v1/runs/aaaa2222", headers={"accept-encoding": "identity"})
        listed = client.get("/v1/runs", params={"project": "shop"})
    control = {"stop": None, "at_once": False, "max_rpm": None}
    assert first.json() == {"added": events, "known": 0, "filled": 0, "control": control}
    assert second.json() == {"added": 0, "known": events, "filled": 0, "control": control}
    head = home.log.head("run/aaaa2222")
    assert head is not None
    assert heads.json() == {"run/aaaa2222": {"version": head.version, "head": head.hash}}
    assert pulled.headers["content-encoding"] == "gzip"
    assert pulled.content == plain.content == exported(home.log) == exported(served.log)
    (run,) = listed.json()
    assert run["run"] == "aaaa2222"
    assert (run["project"], run["ended"], run["passed"]) == ("shop", "finished", True)
    assert run["suites"] == ["support"]
    assert verify_file(served.log.path).ok


def test_what_cannot_be_answered_is_refused_in_json(served: Served) -> None:
    many = "&".join(f"stream=run/{number}" for number in range(101))
    with served.client(served.token()) as client:
        for method, path, expected in (
            ("GET", "/v1/nothing", (404, "not_found")),
            ("GET", "/v1/", (404, "not_found")),
            ("POST", "/v1/shards/1/claim", (404, "not_found")),
            ("GET", "/v1/runs/nothere2", (404, "not_found")),
            ("GET", "/v1/runs/..%2f..", (404, "not_found")),
            ("DELETE", "/v1/runs", (404, "not_found")),
            ("GET", "/v1/heads", (422, "validation_error")),
            ("GET", f"/v1/heads?{many}", (422, "validation_error")),
            ("GET", "/v1/runs?limit=0", (422, "validation_error")),
            ("GET", "/v1/runs?limit=x", (422, "validation_error")),
            ("GET", "/v1/runs?limit=0000000019999999", (422, "validation_error")),
        ):
            answer = client.request(method, path)
            assert refusal(answer) == expected


def test_without_a_token_that_allows_it_nothing_is_answered(served: Served) -> None:
    pull, pushing = served.token("reader", "pull"), served.token("writer", "push")
    cases = [
        (None, "GET", "/v1/heads?stream=run/a", "The request has no token."),
        ("kdl_wrong", "GET", "/v1/heads?stream=run/a", "The token is unknown."),
        (pull, "POST", "/v1/events", "The token reader lacks the scope push."),
        (pushing, "GET", "/v1/runs", "The token writer lacks the scope pull."),
        (pushing, "GET", "/v1/runs/aaaa2222", "The token writer lacks the scope pull."),
    ]
    for token, method, path, message in cases:
        with served.client(token) as client:
            answer = client.request(method, path)
        assert refusal(answer) == (401, "auth_error")
        assert answer.json()["message"] == message
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_token_of_a_project_sees_and_writes_no_other(served: Served, home: History) -> None:
    body = body_of(home)
    with served.client(served.token("other", project="bakery")) as client:
        assert refusal(push(client, body)) == (404, "not_found")
        assert is_empty(served.log)
        with served.client(served.token("shop", project="shop")) as ours:
            assert push(ours, body).status_code == 200
            assert ours.get("/v1/runs/aaaa2222").status_code == 200
            assert len(ours.get("/v1/runs").json()) == 1
        assert client.get("/v1/heads", params={"stream": "run/aaaa2222"}).json() == {}
        assert client.get("/v1/runs").json() == []
        assert client.get("/v1/runs?project=shop").json() == []
        assert client.get("/v1/runs/aaaa2222").status_code == 404


def test_what_others_add_to_a_run_never_hides_it(
    served: Served, home: History, tmp_path: Path, make: Any
) -> None:
    elsewhere = History(tmp_path / "elsewhere.db", journal="journal/k")
    added = elsewhere.run("bbbb2222", project="bakery", mode="settled", source_run="aaaa2222")
    added.leave()
    with (
        closing(elsewhere),
        served.client(served.token("shop", project="shop")) as shop,
        served.client(served.token("bakery", project="bakery")) as bakery,
    ):
        assert push(shop, body_of(home)).status_code == 200
        assert refusal(push(bakery, body_of(elsewhere, "bbbb2222"))) == (404, "not_found")
        # With a token of no project, or before the run is there, it can be pushed.
        with served.client(served.token("all")) as client:
            assert push(client, body_of(elsewhere, "bbbb2222")).status_code == 200
            whole = client.get("/v1/runs/aaaa2222")
        pulled = shop.get("/v1/runs/aaaa2222")
        of_bakery = bakery.get("/v1/runs/bbbb2222")
    assert pulled.status_code == of_bakery.status_code == 200
    assert pulled.content == exported(home.log)
    assert b"bbbb2222" in whole.content
    assert b"aaaa2222-" not in of_bakery.content


def test_a_forged_file_is_refused_and_nothing_of_it_is_kept(served: Served, home: History) -> None:
    forged = gzip.decompress(body_of(home)).replace(b"Question 1", b"Question 7")
    with served.client(served.token()) as client:
        answers = [push(client, gzip.compress(each)) for each in (forged, b"{}\n", b"\xff\n")]
        assert [refusal(answer) for answer in answers] == [(422, "validation_error")] * 3
        assert all(answer.json()["details"]["line"] > 0 for answer in answers)
    assert is_empty(served.log)


def test_a_body_that_is_not_one_gzip_is_refused(served: Served, home: History) -> None:
    body = body_of(home)
    middle = len(body) // 2
    plain = gzip.decompress(body)
    damaged = body[:middle] + bytes(8) + body[middle + 8 :]
    with served.client(served.token()) as client:
        for changed in (body[:-3], body + b"x", body + body, damaged, plain):
            assert refusal(push(client, changed)) == (422, "validation_error")
        assert push(client, body, **{"content-encoding": "br"}).status_code == 422
        assert is_empty(served.log)
        assert client.post("/v1/events", content=plain).status_code == 200


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_api, "LONGEST_UNPACKED", 1_000_000)
    bomb, unpacked = gzip.compress(bytes(5_000_000), 9), BytesIO()
    with pytest.raises(ApiError):
        unpack(BytesIO(bomb), unpacked, "gzip")
    assert len(unpacked.getvalue()) <= 1_000_000
    with served.client(served.token()) as client:
        answer = push(client, bomb)
    assert refusal(answer) == (413, "payload_too_large")


def test_a_body_that_is_too_long_is_refused(served: Served) -> None:
    def chunks() -> Any:
        for _ in range(LONGEST_BODY // 50_000 + 2):
            yield bytes(50_000)

    with served.client(served.token()) as client:
        for content in (bytes(LONGEST_BODY + 1), chunks()):
            answer = client.post("/v1/events", content=content)
            assert refusal(answer) == (413, "payload_too_large")
            assert answer.json()["details"] == {"limit": LONGEST_BODY}


def test_quotas_are_answered_with_what_is_used(served: Served, home: History) -> None:
    body = body_of(home)
    size = len(gzip.decompress(body))
    small = served.token("small", limits=TokenLimits(bytes_in_all=size + 10))
    with served.client(small) as client:
        assert refusal(push(client, gzip.compress(bytes(size)))) == (422, "validation_error")
        assert push(client, body).status_code == 200
        answer = push(client, body)
    assert refusal(answer) == (403, "plan_required")
    assert answer.json()["details"]["quota"] == "mb_total"
    assert answer.json()["details"]["used"] == size / 1_000_000
    with served.client(served.token("slow", limits=TokenLimits(pushes_per_minute=1))) as client:
        answers = [push(client, b"") for _ in range(3)]
    late = next(answer for answer in answers if answer.status_code == 429)
    assert refusal(late) == (429, "rate_limit")
    assert 1 <= int(late.headers["retry-after"]) <= 60


def test_what_fails_is_logged_and_not_shown(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        full = OSError(ENOSPC, "No space left on device")
        raise OpenError(served.log.path, "a text of the user, kdl_secret") from full

    monkeypatch.setattr(history_api, "take_body", broken)
    with caplog.at_level(logging.ERROR), served.client(served.token()) as client:
        answer = push(client, gzip.compress(b"x"))
    assert refusal(answer) == (500, "unknown_error")
    (line,) = (record for record in caplog.records if record.name == "kindlm.team.api")
    assert "OpenError (No space left on device) in broken" in line.getMessage()
    for said in (answer.text, line.getMessage()):
        assert "secret" not in said
        assert "text of" not in said


class Hooks:
    """A coordinator that gives each shard a number, and notes what it is told."""

    def __init__(self) -> None:
        self.number = 0
        self.told: list[tuple[str, list[str]]] = []
        self.heard = 0

    def hear(self, lease: str) -> bool:
        self.heard += 1
        return lease == f"1.{self.number}"

    def failed(self, error: Exception) -> None:
        raise error

    def pushed(self, lease: str, runs: Any) -> Control:
        self.told.append((lease, list(runs)))
        return Control(max_rpm=30.0)

    def claim(self, shard: int) -> dict[str, Any]:
        self.number += 1
        return {"lease": f"{shard}.{self.number}", "run": None}


def test_a_worker_pushes_and_fetches_with_the_lease_that_it_claimed(
    tmp_path: Path, home: History
) -> None:
    with history_server(tmp_path / "group.db") as other:
        hooks = Hooks()
        headers = {"authorization": f"Bearer {other.token()}"}
        api = HistoryApi(other.log, other.tokens, fleet=hooks)
        with (
            RunningServer(api) as server,
            httpx.Client(base_url=server.url, headers=headers, trust_env=False) as client,
        ):
            assert refusal(push(client, body_of(home))) == (409, "conflict")
            claimed = client.post("/v1/shards/1/claim").json()
            assert claimed == {"lease": "1.1", "run": None}
            answer = push(client, body_of(home), **{"kindlm-lease": "1.1"})
            assert answer.json()["control"] == {"stop": None, "at_once": False, "max_rpm": 30.0}
            alive = client.post("/v1/events", headers={"kindlm-lease": "1.1"})
            assert alive.json()["added"] == 0
            heard = hooks.heard
            assert client.get("/v1/runs/aaaa2222", headers={"kindlm-lease": "1.1"}).is_success
            assert hooks.heard > heard
            client.post("/v1/shards/1/claim")
            late = client.get("/v1/runs/aaaa2222", headers={"kindlm-lease": "1.1"})
            assert refusal(late) == (409, "conflict")
            stale = push(client, body_of(home), **{"kindlm-lease": "1.1"})
            assert refusal(stale) == (409, "conflict")
            assert stale.json()["details"] == {"lease": "1.1"}
            assert refusal(client.post("/v1/shards/x/claim")) == (422, "validation_error")
        api.close()
    assert hooks.told == [("1.1", ["aaaa2222"]), ("1.1", [])]


def test_answers_are_json_and_no_one_keeps_them(served: Served) -> None:
    with served.client(None) as client:
        answer = client.get("/v1/runs")
    assert json.loads(answer.content)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"


def test_a_run_of_several_projects_is_for_no_token_of_one(
    served: Served, home: History, make: Any
) -> None:
    mixed = home.run("cccc2222", project="bakery")
    mixed.suite(tests=[make.planned()])  # of the project shop
    mixed.leave()
    begin = body_of(home, "cccc2222")
    home.log.append("run/cccc2222", [new_event(RunInterrupted(reason="SIGTERM"))])
    with (
        served.client(served.token("all")) as client,
        served.client(served.token("bakery", project="bakery")) as bakery,
    ):
        assert push(client, begin).status_code == 200
        there = client.get("/v1/heads", params={"stream": "run/cccc2222"}).json()
        heads = {"run/cccc2222": StreamEnd(version=2, head=there["run/cccc2222"]["head"])}
        with closing(home.log.reader()) as db:
            (rest,) = bodies(db, "cccc2222", ["run/cccc2222"], heads)
        assert refusal(push(bakery, rest)) == (404, "not_found")
        assert bakery.get("/v1/heads", params={"stream": "run/cccc2222"}).json() == {}
        assert bakery.get("/v1/runs").json() == []
        assert bakery.get("/v1/runs/cccc2222").status_code == 404
        assert len(client.get("/v1/runs?project=bakery").json()) == 1


def test_a_coordinator_hears_that_its_history_takes_nothing(
    served: Served, home: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: Any, **__: Any) -> Any:
        raise OpenError(served.log.path, "cannot be written")

    class Failing(Hooks):
        failure: Exception | None = None

        def failed(self, error: Exception) -> None:
            self.failure = error

    hooks = Failing()
    with (
        closing(HistoryApi(served.log, served.tokens, fleet=hooks)) as api,
        RunningServer(api) as server,
        httpx.Client(
            base_url=server.url,
            headers={"authorization": f"Bearer {served.token()}", "kindlm-lease": "1.0"},
            trust_env=False,
        ) as client,
    ):
        assert push(client, body_of(home)).status_code == 200
        assert hooks.failure is None
        monkeypatch.setattr(history_api, "take_body", is_full)
        assert refusal(push(client, body_of(home))) == (500, "unknown_error")
    assert isinstance(hooks.failure, OpenError)
