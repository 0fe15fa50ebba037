"""Runs that ask only what has not been asked: a recorded answer stands in for its twin."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from altering_server import AlteringServer, wrong
from checked_server import LoopbackServer
from orders import SCRIPT, asked, order, serve_orders, write_orders
from workspace import Workspace

from kindlm.dataclass import replace
from kindlm.history import recorded_answers
from kindlm.testing.http1 import HttpAnswer, HttpRequest

TOOL = {"name": "lookup_order", "defaultResponse": {"status": "delivered"}}
TOLD = {**TOOL, "description": "Finds an order."}


def gpt(**params: Any) -> list[Any]:
    return [{"id": "gpt", "provider": "openai", "model": "gpt-4o", "params": params}]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def executions(report: dict[str, Any], test: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(t for t in report["tests"] if t["name"] == test)[
        "executions"
    ]
    return found


def taken(report: dict[str, Any]) -> tuple[int, int]:
    summary = report["summary"]
    return summary["callsFromHistory"], summary["calls"]


def test_what_was_asked_before_is_not_asked_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", repeat=2), order("k1")])
    live = workspace.report()
    assert taken(live) == (0, 6)
    since = len(server.requests)
    cached = workspace.report("--cache")
    assert not server.requests[since:]
    assert taken(cached) == (6, 6)
    assert cached["run"]["mode"] == "live"
    now, before = cached["summary"], live["summary"]
    assert (now["costUsd"], now["judgeCostUsd"]) == (0, 0)
    assert now["costThenUsd"] == pytest.approx(before["costUsd"])
    assert now["judgeCostThenUsd"] == pytest.approx(before["judgeCostUsd"])
    for name in ("k0", "k1"):
        for again, once in zip(executions(cached, name), executions(live, name), strict=True):
            for same in ("status", "output", "latencyMs", "tokens"):
                assert again[same] == once[same]
    assert workspace.run("verify").returncode == 0
    # Whoever asks for all anew gets it.
    assert taken(workspace.report()) == (0, 6)


def test_the_terminal_says_how_much_is_from_the_history(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    assert "from the history" not in workspace.run("test").stdout
    write_orders(workspace, server, 3)
    shown = workspace.run("test", "--cache").stdout
    assert re.search(
        r"\$0\.\d+\s+\$0\.\d+ when it was recorded  ·  4 of 6 calls from the history", shown
    )


def test_an_empty_history_makes_a_plain_run(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 2)
    report = workspace.report("--cache")
    assert report["run"]["status"] == "passed"
    assert taken(report) == (0, 4)
    assert len(server.requests) == 4


def test_another_request_is_made(workspace: Workspace, server: LoopbackServer) -> None:
    plain: dict[str, Any] = {
        "prompts": {"ask": {"user": "Where is order <{{order}}>?"}},
        "tests": [order("k0", judged=False, tools=[TOOL])],
    }
    workspace.suite(server.url, **plain)
    workspace.report()
    changes: list[dict[str, Any]] = [
        {"prompts": {"ask": {"user": "Tell me of <{{order}}>."}}},
        {"models": gpt(temperature=0.9)},
        {"models": [{"id": "gpt", "provider": "openai", "model": "gpt-4o-mini"}]},
        {"tests": [order("k0", judged=False, tools=[TOLD])]},
        {"project": "another"},
        {"suite": {"name": "another"}},
    ]
    for change in changes:
        since = len(server.requests)
        workspace.suite(server.url, **plain | change)
        assert taken(workspace.report("--cache")) == (0, 1), change
        assert len(server.requests) == since + 1
    # And then it has been asked, too.
    assert taken(workspace.report("--cache")) == (1, 1)


def test_only_what_changed_is_asked(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")])
    workspace.report()
    since = len(server.requests)
    changed = order("k1") | {"vars": {"order": "k9"}}
    write_orders(workspace, server, [order("k0", says="k0"), changed])
    report = workspace.report("--cache")
    assert asked(server, since) == {("k9", "agent"): 1, ("k9", "judge"): 1}
    assert taken(report) == (2, 4)


def test_another_address_is_another_provider(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 1)
    workspace.report()
    with serve_orders() as other:
        write_orders(workspace, other, 1)
        assert taken(workspace.report("--cache")) == (0, 2)
        assert len(other.requests) == 2


@pytest.mark.parametrize("place", ["address", "message"])
def test_values_of_the_environment_are_not_known_to_be_the_same(
    workspace: Workspace, server: LoopbackServer, place: str
) -> None:
    values = {"GATEWAY_PORT": str(server.port), "CITY": "Bremen"}
    openai = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": "http://127.0.0.1:{{env.GATEWAY_PORT}}/v1"}
    written: dict[str, Any] = (
        {"providers": {"openai": openai}, "prompts": {"ask": {"user": "Where is {{order}}?"}}}
        if place == "address"
        else {"prompts": {"ask": {"user": "Where is {{order}} in {{env.CITY}}?"}}}
    )
    workspace.suite(server.url, tests=[order("k0", judged=False)], **written)
    assert workspace.report(**values)["run"]["status"] == "passed"
    assert taken(workspace.report("--cache", **values)) == (0, 1)
    assert len(server.requests) == 2


def test_each_repeat_has_an_answer_of_its_own(workspace: Workspace) -> None:
    with AlteringServer(SCRIPT) as server:
        server.alter(wrong("<k0>", 2))
        write_orders(workspace, server, [order("k0", judged=False)])
        live = workspace.report("--runs", "2")
        cached = workspace.report("--cache", "--runs", "3")
    assert len({each["output"] for each in executions(live, "k0")}) == 2
    assert taken(cached) == (2, 3)
    said = [each["output"] for each in executions(cached, "k0")]
    assert said[:2] == [each["output"] for each in executions(live, "k0")]


def judged(passes: int) -> dict[str, Any]:
    test: dict[str, Any] = order("k0")
    test["expect"]["judge"][0]["passes"] = passes
    return test


def test_each_pass_of_a_judge_has_an_answer_of_its_own(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [judged(2)])
    workspace.report()
    write_orders(workspace, server, [judged(2)])
    workspace.report()
    since = len(server.requests)
    write_orders(workspace, server, [judged(3)])
    # Of a third pass there is none, however often the first two were asked.
    assert taken(workspace.report("--cache")) == (3, 4)
    assert asked(server, since) == {("k0", "judge"): 1}
    assert taken(workspace.report("--cache")) == (4, 4)


def test_nothing_is_asked_again_where_another_file_has_a_suite_of_the_same_name(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.suite(server.url).rename(workspace.root / "other.yaml")
    write_orders(workspace, server, [judged(2)])
    files = ("kindlm.yaml", "other.yaml")
    assert taken(workspace.report(*files)) == (0, 4)
    assert taken(workspace.report(*files, "--cache")) == (4, 4)


def test_what_was_purged_is_asked_again(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 2)
    workspace.report()
    since = len(server.requests)
    assert workspace.run("purge", "--matching", "delivered: .*k1", "--yes").returncode == 0
    report = workspace.report("--cache")
    assert report["run"]["status"] == "passed"
    # It says the same again, and that has been judged.
    assert asked(server, since) == {("k1", "agent"): 1}
    assert executions(report, "k1")[0]["output"].startswith("delivered")


def test_an_answer_of_which_something_is_hidden_is_asked_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    mail = order("k0", judged=False) | {"vars": {"order": "ann@example.com"}}
    mail["expect"]["guardrails"] = {"pii": {"enabled": True}}
    write_orders(workspace, server, [mail], record={"redactPii": True})
    assert workspace.report()["run"]["status"] == "failed"
    # As it is recorded it would pass.
    assert workspace.report("--cache")["run"]["status"] == "failed"
    write_orders(workspace, server, [mail])
    report = workspace.report("--cache")
    assert (report["run"]["status"], taken(report)) == ("failed", (0, 1))


def test_an_answer_that_held_a_secret_is_asked_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    secret = {"SHOP_TOKEN": "tok-4f1c9ab27be1"}
    test = order("k0", judged=False, says=secret["SHOP_TOKEN"]) | {
        "vars": {"order": "tok-4f1c9ab27be1"}
    }
    write_orders(workspace, server, [test])
    assert workspace.report(**secret)["run"]["status"] == "passed"
    report = workspace.report("--cache", **secret)
    assert (report["run"]["status"], taken(report)) == ("passed", (0, 1))


def test_an_empty_answer_is_asked_again(workspace: Workspace) -> None:
    def silence(_: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
        document = json.loads(answer.body)
        document["choices"][0]["message"]["content"] = ""
        return replace(answer, body=json.dumps(document).encode())

    with AlteringServer(SCRIPT) as server:
        server.alter(silence)
        write_orders(workspace, server, [order("k0", judged=False)])
        assert executions(workspace.report(), "k0")[0]["status"] != "passed"
        server.use_faults([])
        report = workspace.report("--cache")
    assert (report["run"]["status"], taken(report)) == ("passed", (0, 1))


def test_an_answer_whose_thoughts_have_to_go_back_is_asked_again(workspace: Workspace) -> None:
    call = {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]}
    rules = [
        {"when": {"notCalled": ["lookup_order"]}, "reply": call},
        {"reply": {"text": "delivered"}},
    ]
    with LoopbackServer({"rules": rules}) as server:
        for provider, from_history in [("openai", 1), ("deepseek", 0)]:
            key = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}
            model = {"id": "m", "provider": provider, "model": "gpt-4o"}
            for answer in ("one", "two"):
                test = workspace.test(tools=[{**TOOL, "defaultResponse": answer}])
                given: dict[str, Any] = {"providers": {provider: key}, "models": [model]}
                workspace.suite(server.url, tests=[test], **given)
                report = workspace.report("--cache")
                assert report["run"]["status"] == "passed"
            assert taken(report) == (from_history, 2)


def test_a_call_that_failed_is_made_again(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")], defaults={"retries": 0})
    server.use_faults([{"status": 500, "contains": "<k0>", "asks": "agent", "next": 1}])
    assert executions(workspace.report(), "k0")[0]["status"] == "errored"
    since = len(server.requests)
    assert workspace.report("--cache")["run"]["status"] == "passed"
    assert asked(server, since) == {("k0", "agent"): 1, ("k0", "judge"): 1}


def test_a_conversation_goes_on_from_where_it_changed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(
        workspace, server, [order("k0", judged=False, conversation=[{"user": "And now?"}])]
    )
    workspace.report()
    since = len(server.requests)
    write_orders(
        workspace, server, [order("k0", judged=False, conversation=[{"user": "And then?"}])]
    )
    report = workspace.report("--cache")
    assert taken(report) == (1, 2)
    assert len(server.requests) == since + 1
    (execution,) = executions(report, "k0")
    assert execution["costUsd"] > 0
    assert execution["costThenUsd"] > 0


def test_a_run_that_is_resumed_keeps_the_option(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")], defaults={"concurrency": 1})
    workspace.report()
    write_orders(workspace, server, [order("k0", says="gone"), order("k1")])
    since = len(server.requests)
    assert workspace.run("test", "--cache", "--fail-fast", "-j", "1").returncode == 1
    done = workspace.run("test", "--resume", "--cache")
    assert "cannot be combined with --cache" in done.stderr
    report = workspace.report("--resume")
    assert taken(report) == (4, 4)
    assert not server.requests[since:]


def test_a_limit_of_costs_counts_what_is_spent_now(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    workspace.report()
    assert workspace.report("--cache", "--max-cost", "0")["run"]["status"] == "passed"


def test_nothing_is_called_with_a_limit_of_nothing(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0")])
    workspace.report()
    write_orders(workspace, server, [order("k0"), order("k1")])
    since = len(server.requests)
    done = workspace.run("test", "--cache", "--max-cost", "0")
    assert done.returncode == 1
    assert not server.requests[since:]
    assert "--max-cost 0 allows no call" in " ".join(done.stdout.split())
    assert f"Next: kindlm test --resume {done.stdout.split('--resume ')[1]}" in done.stdout
    assert "--max-cost MORE" in done.stdout


def test_what_is_taken_waits_for_no_turn(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 3)
    workspace.report()
    # At one call in ten minutes, six of them would take an hour.
    assert taken(workspace.report("--cache", "--max-rpm", "0.1")) == (6, 6)


def test_the_newest_answer_counts(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    workspace.report()
    server.use_script({"rules": [{"name": "now", "when": {}, "reply": {"text": "delivered now"}}]})
    workspace.report()
    (execution,) = executions(workspace.report("--cache"), "k0")
    assert execution["output"] == "delivered now"


def test_all_shards_of_a_group_count_as_one_run(
    workspace: Workspace, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(workspace, server, [order(f"k{n}", judged=False) for n in range(3)])
    workspace.report("--test", "k2")
    for shard in ("1/2", "2/2"):
        workspace.report("--test", "k0", "--test", "k1", "--shard", shard, "--run-group", "g")
    monkeypatch.setattr(recorded_answers, "_MOST_RUNS", 1)
    assert taken(workspace.report("--cache")) == (2, 3)


def test_an_agent_is_asked_every_time(workspace: Workspace, server: LoopbackServer) -> None:
    says = {"output": {"contains": ["delivered"]}}
    write_orders(workspace, server, [{"name": "k0", "command": "echo delivered", "expect": says}])
    workspace.report()
    assert taken(workspace.report("--cache")) == (0, 1)


def test_the_same_conversations_are_no_new_evidence(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False, repeat=8), order("k1")])
    workspace.report()
    write_orders(workspace, server, [order("k0", judged=False, repeat=8, says="gone"), order("k1")])
    workspace.report("--cache")
    done = workspace.run("diff", "--format", "json")
    diff = json.loads(done.stdout)
    assert done.returncode == 1
    (changed,) = (test for test in diff["tests"] if test["name"] == "k0")
    assert (changed["change"], changed["strength"]) == ("regressed", "other expectations")
    told = workspace.run("baseline", "set").stderr
    assert "10 of its 10 calls were answered from the history" in " ".join(told.split())


def test_repeats_that_were_added_to_taken_ones_are_evidence_of_their_own(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    workspace.report("--runs", "3")
    server.use_script({"rules": [{"name": "no", "when": {}, "reply": {"text": "gone"}}]})
    report = workspace.report("--cache", "--runs", "4")
    assert [each["status"] for each in executions(report, "k0")].count("failed") == 1
    (changed,) = json.loads(workspace.run("diff", "--format", "json").stdout)["tests"]
    assert (changed["change"], changed["strength"]) == ("regressed", "one sample")


def test_a_test_over_time_counts_each_conversation_once(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False, repeat=2)])
    workspace.report()
    workspace.report("--cache")
    workspace.report("--cache", "--runs", "3")
    done = workspace.run("runs", "--test", "k0", "--format", "json")
    (trend,) = json.loads(done.stdout)["tests"]
    assert [run["ownExecutions"]["tested"] for run in trend["runs"]] == [0, 0, 2]
    shown = workspace.run("runs", "--test", "k0").stdout
    assert "with answers from the history" in shown
    assert "100 %, 2 of 2" in shown
