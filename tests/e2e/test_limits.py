"""What a run may cost and how long it may take: kept in time, told, and mended by resuming."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import pytest
from checked_server import LoopbackServer
from orders import SCRIPT, Silent, asked, hold, order, write_orders
from pages import one_line
from workspace import Workspace

CALL_USD = 0.01
"""What one answer costs: 5,000 tokens at two dollars a million."""

PRICES = {"gpt-4o": {"input": 0, "output": 2}}
USAGE = {"inputTokens": 10, "outputTokens": 5_000}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    rule = {"name": "answer", "when": {}, "reply": {"text": "delivered: {{user}}", "usage": USAGE}}
    judge = {
        "name": "judge",
        "when": {"asks": "judge"},
        "reply": {"json": {"score": 1, "reasoning": "yes"}, "usage": USAGE},
    }
    with LoopbackServer({"rules": [judge, rule]}) as server:
        yield server


def plain(count: int, *, judged: bool = False) -> list[Any]:
    return [order(f"k{number}", judged=judged) for number in range(count)]


def test_a_suite_that_has_spent_its_money_starts_nothing_new_and_others_go_on(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, plain(6), prices=PRICES, gates={"costMaxUsd": 1.5 * CALL_USD})
    text = (workspace.root / "kindlm.yaml").read_text()
    rich = text.replace("name: orders", "name: rich").replace("costMaxUsd: 0.015", "costMaxUsd: 9")
    (workspace.root / "rich.yaml").write_text(rich)
    paths = ("kindlm.yaml", "rich.yaml")
    report = workspace.report(*paths, "-j", "1", "--reporter", "junit=out.xml")
    statuses = {
        test["name"]: test["executions"][0]["status"]
        for test in report["tests"]
        if test["suite"] == "orders"
    }
    assert list(statuses.values()) == ["passed"] * 2 + ["skipped"] * 4
    others = [test for test in report["tests"] if test["suite"] == "rich"]
    assert [test["status"] for test in others] == ["passed"] * 6
    (gate,) = [
        g
        for g in report["gates"]["results"]
        if g["name"] == "costMaxUsd" and g["suite"] == "orders"
    ]
    assert (gate["passed"], gate["actual"]) == (False, pytest.approx(2 * CALL_USD))
    assert report["run"]["status"] == "failed"
    # It says why in every report.
    reason = "the suite had spent more than its costMaxUsd of $0.015"
    skipped = report["tests"][2]["executions"][0]
    assert skipped["warnings"] == [reason]
    assert f"4 executions of orders skipped: {reason}" in one_line(workspace.run("show").stdout)
    assert f'<skipped message="{reason}"' in (workspace.root / "out.xml").read_text()


@pytest.mark.parametrize(("raised", "then"), [(False, "skipped"), (True, "passed")])
def test_what_a_limit_left_out_runs_once_the_run_is_resumed_with_a_higher_one(
    workspace: Workspace, server: LoopbackServer, raised: bool, then: str
) -> None:
    suite, fails = workspace.root / "kindlm.yaml", order("o0", judged=False, says="nowhere")
    write_orders(workspace, server, [fails, order("o1", judged=False)], suite={"name": "other"})
    suite.rename(workspace.root / "other.yaml")
    write_orders(workspace, server, plain(4), prices=PRICES, gates={"costMaxUsd": 1.5 * CALL_USD})
    stopped = workspace.run("test", "kindlm.yaml", "other.yaml", "-j", "1", "--fail-fast")
    assert "2 executions of orders skipped" in one_line(stopped.stdout)
    assert "INTERRUPTED" in stopped.stdout
    if raised:
        suite.write_text(suite.read_text().replace("costMaxUsd: 0.015", "costMaxUsd: 9"))
    report = workspace.report("--resume", *(["--force-resume"] if raised else []))
    statuses = [test["status"] for test in report["tests"]]
    assert statuses == ["passed", "passed", then, then, "failed", "passed"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_is_spent_beyond_a_limit_than_was_in_flight(
    workspace: Workspace, server: LoopbackServer, concurrency: int
) -> None:
    """Judges count, and are asked no more: only calls that had begun come on top."""
    limit = 6.5 * CALL_USD
    write_orders(
        workspace, server, plain(12, judged=True), prices=PRICES, gates={"costMaxUsd": limit}
    )
    report = workspace.report("-j", str(concurrency))
    spent = report["summary"]["costUsd"] + report["summary"]["judgeCostUsd"]
    assert limit < spent < limit + concurrency * CALL_USD + 1e-9
    assert report["summary"]["judgeCostUsd"] > 0
    assert report["run"]["status"] == "failed"


def test_a_run_that_has_spent_its_money_is_aborted_and_finished_with_more(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, plain(6), prices=PRICES)
    limit = str(1.5 * CALL_USD)
    stopped = workspace.run("test", "-j", "1", "--max-cost", limit)
    assert stopped.returncode == 1
    assert "ABORTED" in stopped.stdout
    assert "--max-cost allows ($0.015)" in stopped.stdout
    assert "4 of 6 executions did not finish" in one_line(stopped.stdout)
    assert len(server.requests) == 2
    # The limit still holds, and nothing more is spent.
    again = workspace.run("test", "--resume")
    assert again.returncode == 1
    assert "--max-cost allows ($0.015)" in again.stdout
    assert len(server.requests) == 2
    report = workspace.report("--resume", "--max-cost", "1")
    assert report["run"]["status"] == "passed"
    assert report["summary"]["costUsd"] == pytest.approx(6 * CALL_USD)
    assert len(server.requests) == 6
    assert workspace.query("SELECT ended FROM runs") == [("finished",)]


def test_a_run_that_is_cut_off_says_all_that_it_spent_and_is_finished_with_more(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """What had begun is judged when the run is resumed; what is paid for stays counted."""
    judge = {"judge": [{"criteria": "Says where it is", "minScore": 0.8, "passes": 3}]}
    tests = [order(f"k{number}", expect=judge) for number in range(6)]
    write_orders(workspace, server, tests, prices=PRICES)
    stopped = workspace.run("test", "-j", "3", "--max-cost", str(4.5 * CALL_USD))
    assert stopped.returncode == 1
    calls = len(server.requests)
    assert 5 <= calls <= 4 + 3
    assert (
        f"ABORTED: ${calls * CALL_USD:.4f} spent, more than --max-cost allows ($0.045)"
        in one_line(stopped.stdout)
    )
    # Of four calls each, at most one can have had all.
    ((ended, cut_off),) = workspace.query(
        "SELECT count(status), sum(status IS NULL) FROM executions"
    )
    assert cut_off >= 1
    assert f"{6 - ended} of 6 executions did not finish" in one_line(stopped.stdout)
    assert workspace.query("SELECT sum(cost_usd) FROM spend") == [
        (pytest.approx(calls * CALL_USD),)
    ]
    report = workspace.report("--resume", "--max-cost", "1")
    assert report["run"]["status"] == "passed"
    assert [test["status"] for test in report["tests"]] == ["passed"] * 6
    spent = report["summary"]["costUsd"] + report["summary"]["judgeCostUsd"]
    assert spent == pytest.approx(len(server.requests) * CALL_USD)


def test_to_spend_exactly_what_a_suite_may_passes_its_gate(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """As floats, six times 0.01 are a little more than 0.06."""
    assert reduce(add, [CALL_USD] * 6) > 0.06
    write_orders(workspace, server, plain(6), prices=PRICES, gates={"costMaxUsd": 0.06})
    report = workspace.report("--max-cost", "0.06")
    assert report["run"]["status"] == "passed"


def test_a_limit_of_less_than_a_hundredth_of_a_cent_is_written_out(
    workspace: Workspace, server: LoopbackServer
) -> None:
    prices = {"gpt-4o": {"input": 0.001, "output": 0}}
    write_orders(workspace, server, plain(2), prices=prices)
    told = one_line(workspace.run("test", "-j", "1", "--max-cost", "1e-09").stdout)
    found = re.search(r"\$(0\.0+[1-9]\d?) spent, more than --max-cost allows \(\$(\S+)\)", told)
    assert found
    assert found[2] == "0.000000001"


def test_a_run_whose_last_call_passes_a_limit_is_complete_and_warns(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, plain(1), prices=PRICES)
    done = workspace.run("test", "--max-cost", "0.005")
    assert done.returncode == 0
    warning = "A limit was reached near the end of the run: $0.0100 spent, more than"
    assert f"{warning} --max-cost allows ($0.005)." in one_line(done.stderr)


def test_fail_fast_leaves_a_run_that_can_be_finished(
    workspace: Workspace, server: LoopbackServer
) -> None:
    tests = plain(5)
    tests[1] = order("k1", judged=False, says="nowhere")
    write_orders(workspace, server, tests)
    stopped = workspace.run("test", "-j", "1", "--fail-fast")
    assert "INTERRUPTED" in stopped.stdout
    assert len(server.requests) == 2
    report = workspace.report("--resume")
    assert [test["status"] for test in report["tests"]] == ["passed", "failed", *["passed"] * 3]
    assert len(server.requests) == 5


def test_a_limit_needs_no_price_of_what_does_not_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    models = [{"id": name, "provider": "openai", "model": name} for name in ("gpt-4o", "new-1")]
    tests = [order("k0", judged=False, models=["gpt-4o"])]
    tests.append(order("k1", judged=False, models=["new-1"], skip=True))
    write_orders(workspace, server, tests, models=models, gates={"costMaxUsd": 1})
    done = workspace.run("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cost limit" not in done.stderr


@pytest.mark.parametrize("limit", ["gate", "flag"])
def test_a_limit_that_cannot_be_kept_is_reported_before_anything_is_spent(
    workspace: Workspace, server: LoopbackServer, limit: str
) -> None:
    gates = {"gates": {"costMaxUsd": 1}} if limit == "gate" else {}
    models = [{"id": "gpt", "provider": "openai", "model": "brand-new-1"}]
    tests = [order("k0", judged=False, says="nowhere"), *plain(2)[1:]]
    write_orders(workspace, server, tests, models=models, **gates)
    flags = ("--max-cost", "1", "-j", "1") if limit == "flag" else ()
    done = workspace.run("test", *flags)
    # Clients of packages may report a cost, which the limit then counts.
    warning = 'unless calls report their cost: the price of "brand-new-1" is not known'
    assert done.stderr.count(warning) == 1
    assert done.stderr.index(warning) < done.stderr.index("k0")
    if limit == "flag":
        assert 'ABORTED: a call of unknown cost was made to "brand-new-1"' in one_line(done.stdout)
        assert len(server.requests) == 1
        # A higher limit would not help.
        assert "MORE" not in done.stdout
    assert "prices" in done.stderr
    unlimited = workspace.run("test", *(() if limit == "flag" else ("--db", "x.db")))
    assert (warning in unlimited.stderr) is (limit == "gate")


def test_a_run_that_takes_too_long_is_aborted_and_finished_later(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, plain(6))
    held = hold(server, "k3")
    process = workspace.start("test", "-j", "1", "--max-time", "1")
    held()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert "ABORTED" in stdout
    assert "(--max-time)" in stdout
    assert workspace.report("--resume")["run"]["status"] == "passed"
    assert asked(server)["k0", "agent"] == 1


ANSWER_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"
    b'{"id": "x", "object": "chat.completion", '
)


@pytest.mark.parametrize("limits", ["call", "call body", "execution body", "run"])
def test_a_call_that_takes_too_long_is_cut_off_and_its_connection_closed(
    workspace: Workspace, limits: str
) -> None:
    what, _, body = limits.partition(" ")
    defaults = {
        "call": {"timeoutMs": 1_000, "retries": 0},
        "execution": {"executionTimeoutMs": 1_000},
        "run": {},
    }[what]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = Silent(f"http://127.0.0.1:{listening.getsockname()[1]}")
        write_orders(workspace, silent, plain(1), defaults=defaults)
        arguments = ("--max-time", "1") if what == "run" else ()
        process = workspace.start("test", *arguments)
        listening.settimeout(60)
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(30)
            data = b""
            while b"<k0>" not in data:
                data += connection.recv(65_536)
            if body:
                connection.sendall(ANSWER_HEAD)
            # Nothing more is said; the other side hangs up.
            while connection.recv(65_536):
                pass
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    ended = "aborted" if what == "run" else "finished"
    assert workspace.query("SELECT ended FROM runs") == [(ended,)]
    if what != "run":
        assert workspace.query("SELECT error_code FROM executions") == [("PROVIDER_TIMEOUT",)]


def test_a_provider_that_wants_to_be_left_alone_for_long_is_left_out(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 6)
    server.use_faults([{"status": 429, "retryAfter": 86_400, "contains": "<k1>", "next": 1}])

    done = workspace.run("test", "-j", "2")

    assert done.returncode == 1
    assert "takes no calls for 86,400 s" in done.stdout
    assert "ABORTED" in done.stdout
    assert "kindlm test --resume" in done.stdout
    assert len(server.requests) < 12, "nobody is asked any more"
    assert workspace.report("--resume")["summary"]["executions"]["total"] == 6


def test_a_run_that_is_finished_by_a_long_pause_is_not_said_to_be_resumed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    server.use_faults([{"status": 429, "retryAfter": 4_000, "next": 1}])

    done = workspace.run("test")

    assert done.returncode == 1
    assert "FAILED: 1 test errored" in done.stdout
    told, stdout = one_line(done.stderr), one_line(done.stdout)
    assert "Later, kindlm test --resume runs what was skipped, and --failed what failed." in told
    assert "Try again later" in stdout
    assert "concurrency" not in stdout, "calling less often would not help"
    assert workspace.run("test", "--resume").returncode == 1
    assert workspace.run("test", "--failed").returncode == 0


def test_what_needs_another_provider_goes_on_without_the_one_that_takes_no_calls(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """Neither the tests of the other one nor a judge there wait for it, nor is it asked again."""
    with LoopbackServer(SCRIPT) as closed:
        closed.use_faults([{"status": 429, "retryAfter": 86400}])
        write_orders(
            workspace,
            server,
            [
                *(order(f"k{n}", judged=False, models=["gone"]) for n in range(6)),
                *(order(f"k{n}", judged=False, models=["gpt"]) for n in range(6, 18)),
                order("judged", models=["gpt"]),
            ],
            providers={
                "openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"},
                "anthropic": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": closed.url},
            },
            models=[
                {"id": "gpt", "provider": "openai", "model": "gpt-4o"},
                {"id": "gone", "provider": "anthropic", "model": "claude-sonnet-4-5"},
            ],
            defaults={"judgeModel": "gone"},
        )

        done = workspace.run("test", "-j", "2")

        assert done.returncode == 1
        assert '"anthropic" takes no calls for 86,400 s' in one_line(done.stdout)
        assert "ABORTED" in done.stdout
        then = dict(workspace.query("SELECT test, status FROM executions WHERE status <> ''"))
        refused = {test for test, status in then.items() if status == "errored"}
        passed = {test for test, status in then.items() if status == "passed"}
        assert passed == {f"k{number}" for number in range(6, 18)}
        assert refused
        assert set(then) == passed | refused
        assert len(closed.requests) == len(refused) <= 2

        closed.use_faults([])
        assert workspace.run("test", "--resume").returncode == 1, "what was refused is errored"
    ended = dict(workspace.query("SELECT test, status FROM executions"))
    assert {test for test, status in ended.items() if status != "passed"} == refused
    assert len(ended) == 19
