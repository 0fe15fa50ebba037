"""Runs that are checked again, by other expectations: the tested model is asked nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checked_server import LoopbackServer
from orders import asked, events_of, hold, order, serve_orders, write_orders
from workspace import KEY, Workspace, as_yaml

TOOL_AGENT = {
    "rules": [
        {
            "name": "look up",
            "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]},
        },
        {"name": "answer", "when": {}, "reply": {"text": "Order A1 was delivered."}},
    ]
}


DELIVERED = {"output": {"contains": ["delivered"]}}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def rescored(workspace: Workspace, *arguments: str, **env: str) -> dict[str, Any]:
    """Rescore a run and return the JSON report."""
    done = workspace.run("rescore", "--reporter", "json", *arguments, **env)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        pytest.fail(f"no JSON report: {done.stdout!r} {done.stderr!r}")
    assert done.returncode == (0 if report["run"]["status"] == "passed" else 1)
    return report


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {test["name"]: test["status"] for test in report["tests"]}


def executions(report: dict[str, Any], test: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(t for t in report["tests"] if t["name"] == test)[
        "executions"
    ]
    return found


def test_changed_expectations_are_checked_without_calling_the_tested_model(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0"), order("k1", repeat=2), order("k2")])
    live = workspace.report("-j", "2")
    since = len(server.requests)
    judge = [{"criteria": "Is polite", "minScore": 0.8}]
    changed = {"output": {"contains": ["delivered"]}, "judge": judge}
    write_orders(
        workspace,
        server,
        [order("k0", says="nowhere"), order("k1", repeat=5, expect=changed), order("new")],
    )
    report = rescored(workspace)
    # Only what the judge was not asked before is asked, once for each recorded repeat.
    assert asked(server, since) == {("k1", "judge"): 2}
    assert report["run"]["mode"] == "rescored"
    assert report["run"]["sourceRun"] == live["run"]["id"]
    assert statuses(report) == {"k0": "failed", "k1": "passed", "new": "skipped"}
    assert len(executions(report, "k1")) == 2
    ((new,), (old,)) = executions(report, "k0"), executions(live, "k0")
    assert new["source"] == old["id"]
    for unchanged in ("output", "toolCalls", "turns", "latencyMs", "tokens", "finishReason"):
        assert new[unchanged] == old[unchanged]
    assert workspace.run("verify").returncode == 0
    assert workspace.report()["run"]["status"] == "failed"


def test_what_costs_nothing_now_shows_what_it_cost_then(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    live = workspace.report()
    since = len(server.requests)
    report = rescored(workspace, OPENAI_API_KEY="")
    assert len(server.requests) == since
    assert report["run"]["status"] == "passed"
    now, then = report["summary"], live["summary"]
    assert (now["costUsd"], now["judgeCostUsd"]) == (0, 0)
    assert now["costThenUsd"] == pytest.approx(then["costUsd"])
    assert now["judgeCostThenUsd"] == pytest.approx(then["judgeCostUsd"])
    assert now["judgeAvg"] == then["judgeAvg"]
    # Rescored again, it is what it was at first: nothing is paid, and nothing forgotten.
    again = rescored(workspace, report["run"]["id"])
    assert len(server.requests) == since
    assert again["summary"]["judgeCostThenUsd"] == pytest.approx(then["judgeCostUsd"])
    sources = {execution["source"] for execution in executions(again, "k0")}
    assert sources == {executions(live, "k0")[0]["id"]}


LENGTHY = {
    "rules": [
        {
            "name": "judge",
            "when": {"structured": "kindlm_judgement"},
            # More than a model without thoughts has room for: it is asked again.
            "reply": {"json": {"score": 0.9, "reasoning": "It says where it is. " * 200}},
        },
        {"name": "answer", "when": {}, "reply": {"text": "delivered: {{user}}"}},
    ]
}


@pytest.mark.parametrize("again", [("rescore",), ("test", "--cache"), ("replay",)])
def test_answers_of_a_judge_that_were_of_no_use_count_again(
    workspace: Workspace, again: tuple[str, ...]
) -> None:
    with LoopbackServer(LENGTHY) as server:
        write_orders(workspace, server, 1, gates={"costMaxUsd": 1.0, "passRateMin": 0})
        live = workspace.report()
        done = workspace.run(*again, "--reporter", "json")
    failed = workspace.query("SELECT cost_usd FROM provider_calls WHERE status = 'failed'")
    assert len(failed) == 1
    assert failed[0][0] > 0
    costs = [
        gate["actual"]
        for report in (live, json.loads(done.stdout))
        for gate in report["gates"]["results"]
        if gate["name"] == "costMaxUsd"
    ]
    assert costs[0] == pytest.approx(costs[1])


def test_gates_and_assertions_see_the_recorded_costs_and_times(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    workspace.report()
    limits = {"cost": {"maxUsd": 1e-9}, "latency": {"maxMs": 0.001}}
    test = order("k0", judged=False, expect=limits)
    write_orders(workspace, server, [test], gates={"costMaxUsd": 1e-9, "passRateMin": 0})
    report = rescored(workspace)
    codes = {a["failureCode"] for a in executions(report, "k0")[0]["assertions"]}
    assert codes == {"BUDGET_EXCEEDED", "LATENCY_EXCEEDED"}
    (gate,) = [g for g in report["gates"]["results"] if g["name"] == "costMaxUsd"]
    assert not gate["passed"]
    assert gate["actual"] > 1e-6


def test_each_pass_of_a_judge_and_each_repeat_keeps_its_own_answer(
    workspace: Workspace, server: LoopbackServer
) -> None:
    judge: dict[str, Any] = {"criteria": "Says where it is", "minScore": 0.8, "passes": 3}
    expect = {"output": {"contains": ["delivered"]}, "judge": [judge]}
    write_orders(workspace, server, [order("k0", repeat=2, expect=expect)])
    workspace.report()
    since = len(server.requests)
    report = rescored(workspace)
    assert len(server.requests) == since
    judge["passes"] = 5
    write_orders(workspace, server, [order("k0", repeat=2, expect=expect)])
    more = rescored(workspace, report["run"]["sourceRun"])
    assert asked(server, since) == {("k0", "judge"): 4}
    used = workspace.query(
        "SELECT recorded_in FROM provider_calls WHERE run = ? AND recorded_in IS NOT NULL",
        more["run"]["id"],
    )
    assert len(set(used)) == 6


def test_each_repeat_of_the_only_target_that_ran_is_rescored(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", repeat=3)])
    config = yaml.safe_load((workspace.root / "kindlm.yaml").read_text())
    config["models"].append({**config["models"][0], "id": "other"})
    config["tests"][0]["models"] = ["gpt", "other"]
    (workspace.root / "kindlm.yaml").write_text(as_yaml(config), encoding="utf-8")
    workspace.report("--model", "gpt")
    report = rescored(workspace)
    assert [each["status"] for each in executions(report, "k0")] == ["passed"] * 3
    planned = workspace.query(
        "SELECT repeat FROM planned_tests JOIN suites ON suites.id = suite"
        " WHERE run = ? AND target = 'gpt'",
        report["run"]["id"],
    )
    assert planned == [(3,)]


def test_a_judge_is_not_asked_again_what_another_rescoring_asked(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False, repeat=2)])
    live = workspace.report()["run"]["id"]
    judge: dict[str, Any] = {"criteria": "Is polite", "minScore": 0.8}
    expect = {"output": {"contains": ["delivered"]}, "judge": [judge]}
    write_orders(workspace, server, [order("k0", repeat=2, expect=expect)])
    since = len(server.requests)
    first = rescored(workspace, live)
    assert asked(server, since) == {("k0", "judge"): 2}
    since = len(server.requests)
    second = rescored(workspace, live)
    assert rescored(workspace, second["run"]["id"])["run"]["status"] == "passed"
    assert workspace.run("rescore", "--all").returncode == 0
    assert asked(server, since) == {}
    # Each repeat has the answer to its own question, and what it cost then.
    used = "SELECT recorded_in FROM provider_calls WHERE run = ? ORDER BY execution"
    found = workspace.query(used, second["run"]["id"])
    assert found == [(f"{first['run']['id']}-{repeat}.1/2",) for repeat in (1, 2)]
    spent = [report["summary"]["judgeCostThenUsd"] for report in (first, second)]
    assert spent == [None, pytest.approx(first["summary"]["judgeCostUsd"])]
    # A second look at each needs one more answer; the first one stands.
    judge["passes"] = 2
    write_orders(workspace, server, [order("k0", repeat=2, expect=expect)])
    rescored(workspace, live)
    assert asked(server, since) == {("k0", "judge"): 2}


def test_a_judge_on_another_server_is_asked_anew(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    live = workspace.report()
    with serve_orders() as other:
        write_orders(workspace, other, 1)
        report = rescored(workspace)
        assert asked(other) == {("k0", "judge"): 1}
        assert statuses(rescored(workspace, report["run"]["id"])) == {"k0": "passed"}
        assert asked(other) == {("k0", "judge"): 1}
    since = len(server.requests)
    write_orders(workspace, server, 1)
    rescored(workspace, live["run"]["id"])
    assert len(server.requests) == since


def test_a_judge_with_another_key_is_not_asked_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    workspace.report()
    openai = {"apiKeyEnv": "OTHER_KEY", "baseUrl": f"{server.url}/v1"}
    write_orders(workspace, server, 1, providers={"openai": openai})
    since = len(server.requests)
    assert statuses(rescored(workspace, OTHER_KEY=KEY)) == {"k0": "passed"}
    assert not asked(server, since)


def test_a_run_that_was_stopped_is_not_reported_as_a_whole(
    workspace: Workspace, server: LoopbackServer
) -> None:
    tests = [order("k0", says="nowhere"), order("k1", repeat=3), order("k2")]
    write_orders(workspace, server, tests)
    done = workspace.run("test", "--fail-fast", "-j", "1", "--label", "stopped")
    assert "INTERRUPTED" in done.stdout
    # By today's expectations all passes that was said; but most was never said.
    write_orders(workspace, server, [order("k0"), *tests[1:]])
    told = workspace.run("rescore", "stopped")
    assert told.returncode == 1
    ((live,),) = workspace.query("SELECT id FROM runs WHERE mode = 'live'")
    why = f"run {live} was interrupted: 4 of its 5 executions did not finish"
    assert why in told.stderr
    assert f"ABORTED: {why}" in " ".join(told.stdout.split())
    assert f"Compare: kindlm diff {live} " in told.stdout
    report = json.loads(workspace.run("report", "latest", "--format", "json").stdout)
    assert report["run"]["status"] == "aborted"
    assert [len(test["executions"]) for test in report["tests"]] == [1, 0, 0]
    # Once that run is finished, so can this one be.
    write_orders(workspace, server, tests)
    assert workspace.run("test", "--resume", live).returncode == 1
    since = len(server.requests)
    write_orders(workspace, server, [order("k0"), *tests[1:]])
    assert workspace.run("rescore", "--resume", report["run"]["id"]).returncode == 0
    assert asked(server, since) == {}
    ended = workspace.query("SELECT count(*) FROM executions WHERE run = ?", report["run"]["id"])
    assert ended == [(5,)]


def test_errors_stay_errors(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")], defaults={"retries": 0})
    server.use_faults([{"status": 400, "contains": "<k1>"}])
    live = workspace.report()
    assert statuses(live) == {"k0": "passed", "k1": "errored"}
    server.use_faults([])
    since = len(server.requests)
    report = rescored(workspace)
    assert len(server.requests) == since
    assert statuses(report) == {"k0": "passed", "k1": "errored"}
    assert executions(report, "k1")[0]["error"] == executions(live, "k1")[0]["error"]


def test_conversations_with_tools_are_checked_turn_by_turn(workspace: Workspace) -> None:
    def two_turns(*, first: str, last: str) -> dict[str, Any]:
        return workspace.test(
            "talk",
            conversation=[
                {"user": "Thanks.", "expect": {"output": {"contains": [first]}}},
                {"user": "And now?", "expect": {"output": {"contains": [last]}}},
            ],
        )

    with LoopbackServer(TOOL_AGENT) as echo:
        workspace.suite(echo.url, tests=[two_turns(first="delivered", last="delivered")])
        assert workspace.report()["run"]["status"] == "passed"
        since = len(echo.requests)
        workspace.suite(echo.url, tests=[two_turns(first="delivered", last="never")])
        report = rescored(workspace)
        (execution,) = executions(report, "talk")
        outcomes = [(a["label"], a["outcome"]) for a in execution["assertions"]]
        assert ("turn 2: delivered", "passed") in outcomes
        assert ("turn 3: never", "failed") in outcomes
        assert [call["name"] for call in execution["toolCalls"]] == ["lookup_order"] * 3
        longer = two_turns(first="delivered", last="delivered")
        longer["conversation"].append({"user": "Still?"})
        workspace.suite(echo.url, tests=[longer])
        done = workspace.run("rescore")
        assert done.returncode == 1
        assert "the number of messages of the user changed" in done.stdout
        assert len(echo.requests) == since


def test_a_rescored_run_is_shown_with_what_was_said_in_the_other_one(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    live = workspace.report()
    report = rescored(workspace)
    run, source = report["run"]["id"], live["run"]["id"]
    shown = workspace.run("show", run).stdout
    assert f"from {source}" in shown
    assert "rescored" in shown
    assert "when it was recorded" in shown
    listed = workspace.run("runs").stdout.splitlines()
    assert f"orders · rescored from {source}" in listed[1]
    told = workspace.run("show", run, "1").stdout
    assert f"conversation of {source}-1" in told
    assert "delivered: Where is order <k0>?" in told
    assert f"answer of {source}-1.1/2" in told


def test_a_diff_of_the_two_shows_the_effect_of_the_changed_expectations_alone(
    workspace: Workspace,
) -> None:
    with LoopbackServer(TOOL_AGENT) as echo:
        workspace.suite(echo.url, tests=[workspace.test("a"), workspace.test("b")])
        live = workspace.report()["run"]["id"]
        changed = workspace.test("b")
        changed["expect"]["output"]["contains"] = ["nowhere"]
        workspace.suite(echo.url, tests=[workspace.test("a"), changed])
        new = rescored(workspace)["run"]["id"]
    done = workspace.run("diff", live, new, "--format", "json")
    assert done.returncode == 1
    diff = json.loads(done.stdout)
    tests = {test["name"]: test for test in diff["tests"]}
    assert (tests["a"]["change"], tests["b"]["change"]) == ("unchanged", "regressed")
    unchanged = {"tools": False, "arguments": False, "output": False, "turns": [], "erased": False}
    assert tests["a"]["changed"] == {**unchanged, "checks": False, "checksMade": False}
    assert tests["b"]["changed"] == {**unchanged, "checks": True, "checksMade": True}
    assert [figure["name"] for figure in diff["figures"]] == ["latency", "tokens", "cost"]
    for figure in diff["figures"]:
        assert figure["before"] == figure["after"]


def test_commands_and_programs_are_checked_without_starting_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    program = f"""
with open({str(started)!r}, "a") as file:
    file.write("x")
print('{{"kindlm": "tool_call", "name": "find", "arguments": {{"id": "A1"}}}}')
print("done")
"""
    (workspace.root / "agent.py").write_text(program, encoding="utf-8")

    def suite(text: str) -> None:
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "programs"},
            "tests": [
                {
                    "name": "runs",
                    "command": "python agent.py",
                    "expect": {
                        "output": {"contains": [text]},
                        "toolCalls": [{"tool": "find", "argsMatch": {"id": "A1"}}],
                    },
                }
            ],
        }
        (workspace.root / "kindlm.yaml").write_text(as_yaml(config), encoding="utf-8")

    suite("done")
    assert workspace.report()["run"]["status"] == "passed"
    suite("gone")
    report = rescored(workspace)
    assert started.read_text() == "x"
    assertions = executions(report, "runs")[0]["assertions"]
    assert {a["kind"]: a["outcome"] for a in assertions} == {
        "contains": "failed",
        "tool_called": "passed",
    }


def test_neither_keys_nor_variables_of_what_is_not_called_are_needed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    prompts = {"ask": {"system": "Be {{env.TONE}}", "user": "Where is order <{{order}}>?"}}
    tests = [order("k0", judged=False)]
    write_orders(workspace, server, tests)
    path = workspace.root / "kindlm.yaml"
    config = yaml.safe_load(path.read_text()) | {"prompts": prompts}
    path.write_text(as_yaml(config), encoding="utf-8")
    assert workspace.report(TONE="kind")["run"]["status"] == "passed"
    assert rescored(workspace, OPENAI_API_KEY="")["run"]["status"] == "passed"


def test_a_changed_prompt_is_reported_since_answers_are_to_the_earlier_one(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False), order("k1", judged=False)])
    workspace.report()
    assert "has changed since" not in workspace.run("rescore").stderr
    other = order("k1", judged=False) | {"vars": {"order": "A7"}}
    write_orders(workspace, server, [order("k0", judged=False), other])
    assert "the prompt of 1 test has changed since" in workspace.run("rescore").stderr


def test_drift_is_measured_against_the_baseline_of_now(
    workspace: Workspace, server: LoopbackServer
) -> None:
    drift = {"baseline": {"drift": {"maxScore": 0.1, "method": "judge"}}}
    write_orders(workspace, server, [order("k0", judged=False, expect=drift)])
    first = workspace.report()["run"]["id"]
    (skipped,) = executions(rescored(workspace), "k0")[0]["assertions"]
    assert skipped["outcome"] == "skipped"
    assert workspace.run("baseline", "set", first).returncode == 0
    since = len(server.requests)
    (measured,) = executions(rescored(workspace), "k0")[0]["assertions"]
    assert measured["outcome"] in ("passed", "failed")
    assert [request.asks for request in server.requests[since:]] == ["drift"]


def test_words_for_runs_do_not_mean_rescored_ones(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    live = workspace.report()["run"]["id"]
    rescored(workspace)
    assert rescored(workspace)["run"]["sourceRun"] == live
    assert rescored(workspace, "latest")["run"]["sourceRun"] == live
    assert workspace.run("baseline", "set").returncode == 0
    assert workspace.query("SELECT run FROM active_baselines") == [(live,)]


def test_all_runs_are_rescored_each_as_a_run_of_its_own(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    live = [workspace.report()["run"]["id"] for _ in range(2)]
    since = len(server.requests)
    write_orders(workspace, server, [order("k0"), order("k1", says="nowhere")])
    done = workspace.run("rescore", "--all", "--since", "30d", "--suite", "orders")
    assert done.returncode == 1
    assert [line.split(" ")[0] for line in done.stdout.splitlines()[:2]] == live
    assert "passed → failed" in done.stdout
    assert done.stdout.endswith("2 runs rescored: 0 pass now.\n")
    assert len(server.requests) == since
    sources = workspace.query("SELECT source_run FROM runs WHERE mode = 'rescored'")
    assert sorted(sources) == sorted((run,) for run in live)
    assert workspace.run("rescore", "--all", "--since", "2099-01-01").returncode == 1


def test_a_suite_that_could_not_be_loaded_then_is_named_as_left_out(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    (workspace.root / "other.yaml").write_text("suite: other\ntests: []\n", encoding="utf-8")
    assert workspace.run("test", "kindlm.yaml", "other.yaml").returncode == 1
    done = workspace.run("rescore")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 suite that could not be loaded left out" in done.stderr
    assert "left out" not in workspace.run("rescore", "--suite", "orders").stderr


def test_a_limit_of_costs_is_one_for_all_runs(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    for _ in range(3):
        workspace.report()
    since = len(server.requests)
    write_orders(workspace, server, [order("k0"), order("k1")])
    # The first judge is paid for, the second is beyond the limit, the third is not asked.
    done = workspace.run("rescore", "--all", "--max-cost", "0.002", "-j", "1")
    assert done.returncode == 1
    assert "2 runs rescored, 1 left: 1 pass now." in done.stdout
    assert asked(server, since) == {("k0", "judge"): 2}


@pytest.mark.parametrize("part", [0.5, 1.0], ids=["passed", "met"])
def test_no_run_begins_once_the_limit_of_costs_is_spent(
    workspace: Workspace, server: LoopbackServer, part: float
) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    first = workspace.report()["run"]["id"]
    for _ in range(3):
        workspace.report()
    write_orders(workspace, server, [order("k0")])
    # What its judge says is not asked again: the next run is the first that costs anything.
    cost = rescored(workspace, first)["summary"]["judgeCostUsd"]
    since = len(server.requests)
    done = workspace.run("rescore", "--all", "--max-cost", f"{cost * part:.12f}")
    assert done.returncode == 1
    assert asked(server, since) == {("k0", "judge"): 1}
    assert "2 runs rescored, 2 left: 2 pass now." in done.stdout
    told = " ".join(done.stderr.split())
    assert f"is spent, after ${cost:.4f}: 2 runs not rescored." in told


def test_a_rescored_run_that_was_killed_is_finished_without_asking_twice(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order(f"k{n}", judged=False) for n in range(4)])
    source = workspace.report()["run"]["id"]
    write_orders(workspace, server, 4)
    held = hold(server, "k1", asks="judge")
    process = workspace.start("rescore", "-j", "1")
    held()
    process.kill()
    process.communicate()
    ((run,),) = workspace.query("SELECT id FROM runs WHERE mode = 'rescored'")
    assert f"kindlm rescore --resume {run}" in workspace.run("show", run).stdout
    assert workspace.run("test", "--resume").returncode == 1
    before, since = events_of(workspace, run), len(server.requests)
    # Without the key, it stays as it is.
    assert "ABORTED" in workspace.run("rescore", "--resume", OPENAI_API_KEY="").stdout
    report = rescored(workspace, "--resume")
    assert asked(server, since) == {(name, "judge"): 1 for name in ("k1", "k2", "k3")}
    assert report["run"]["id"] == run
    assert report["run"]["sourceRun"] == source
    assert report["run"]["status"] == "passed"
    assert events_of(workspace, run)[: len(before)] == before
    assert workspace.run("verify").returncode == 0


def test_what_a_judge_said_before_a_rescored_run_was_resumed_counts_once_for_the_gate(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    workspace.report()
    judges = [{"criteria": text, "minScore": 0.8} for text in ("Says where it is", "Is polite")]
    write_orders(
        workspace,
        server,
        [order("k0") | {"expect": {"judge": judges}}],
        gates={"costMaxUsd": 100},
    )
    assert workspace.run("rescore", "--max-cost", "0.000001").returncode == 1
    report = rescored(workspace, "--resume", "--max-cost", "100")
    (gate,) = [gate for gate in report["gates"]["results"] if gate["name"] == "costMaxUsd"]
    summary = report["summary"]
    assert summary["judgeCostThenUsd"] is None
    assert gate["actual"] == pytest.approx(summary["judgeCostUsd"] + summary["costThenUsd"])


def test_a_cost_that_was_unknown_then_is_not_0_in_a_rescored_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    model = {"id": "gpt", "provider": "openai", "model": "our-own"}
    test = order("k0", judged=False, models=["gpt"])
    write_orders(workspace, server, [test], models=[model], gates={"costMaxUsd": 100})
    workspace.report()
    assert workspace.report("--cache")["summary"]["costThenUsd"] is None
    report = rescored(workspace)
    assert report["summary"]["costThenUsd"] is None
    assert not report["gates"]["passed"]


def test_an_interrupted_run_is_rescored_as_far_as_it_went(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 3)
    held = hold(server, "k1")
    process = workspace.start("test", "-j", "1")
    held()
    process.kill()
    process.communicate()
    ((run,),) = workspace.query("SELECT id FROM runs")
    since = len(server.requests)
    report = rescored(workspace, run)
    assert len(server.requests) == since
    assert statuses(report) == {"k0": "passed", "k1": "skipped", "k2": "skipped"}


def test_what_cannot_be_rescored_is_reported(workspace: Workspace, server: LoopbackServer) -> None:
    def told(*arguments: str) -> str:
        done = workspace.run("rescore", *arguments)
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    assert "No runs are recorded yet" in told()
    write_orders(workspace, server, 1)
    run = workspace.report()["run"]["id"]
    assert "There is no run 'nope'" in told("nope")
    assert "--all cannot be combined with RUN" in told(run, "--all")
    assert "--since requires --all" in told("--since", "1d")
    assert "--resume cannot be combined with RUN" in told(run, "--resume", "x")
    other = workspace.root / "other.yaml"
    text = (workspace.root / "kindlm.yaml").read_text()
    other.write_text(text.replace("name: orders", "name: others"), encoding="utf-8")
    message = told("-c", "other.yaml")
    assert "none of its tests is defined any more" in message
    other.write_text(text.replace("project: shop", "project: elsewhere"), encoding="utf-8")
    message = told("-c", "other.yaml")
    assert "none of its tests is defined any more" in message
    assert "`project`" in message
    (workspace.root / "kindlm.yaml").unlink()
    assert "kindlm.yaml" in told()


def test_a_conversation_that_was_purged_is_an_error_of_its_test_alone(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")])
    run = workspace.report()["run"]["id"]
    assert workspace.run("purge", "--matching", "<k1>", "--yes").returncode == 0
    report = rescored(workspace, run)
    assert statuses(report) == {"k0": "passed", "k1": "errored"}
    assert "purged" in executions(report, "k1")[0]["error"]["message"]


def test_purging_what_no_check_looks_at_takes_no_conversation_away(workspace: Workspace) -> None:
    with LoopbackServer(TOOL_AGENT) as server:
        tool = {"name": "lookup_order", "description": "Warbles", "defaultResponse": "found"}
        workspace.suite(server.url, tests=[workspace.test(tools=[tool], expect=DELIVERED)])
        run = workspace.report()["run"]["id"]
        assert workspace.run("purge", "--matching", "Warbles", "--yes").returncode == 0
        assert rescored(workspace, run)["run"]["status"] == "passed"


def test_a_run_whose_conversations_are_not_in_the_history_errors_test_by_test(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    live = workspace.report()["run"]["id"]
    run = rescored(workspace, live)["run"]["id"]
    exported = workspace.run("export", run).stdout.splitlines()
    header, *lines = [json.loads(line) for line in exported]
    stream = f"run/{run}"
    header["streams"] = {stream: header["streams"][stream]}
    kept = [line for line in lines if line.get("event", {}).get("stream", stream) == stream]
    alone = workspace.root / "alone.jsonl"
    alone.write_text("".join(json.dumps(line) + "\n" for line in [header, *kept]), "utf-8")
    imported = workspace.run("import", str(alone), "--db", "alone.db")
    assert imported.returncode == 0, imported.stderr
    report = rescored(workspace, run, "--db", "alone.db")
    assert statuses(report) == {"k0": "errored", "k1": "errored"}
    assert "is not in this history" in executions(report, "k0")[0]["error"]["message"]


def test_a_run_without_any_text_cannot_be_rescored(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    run = workspace.report()["run"]["id"]
    assert workspace.run("purge", "--run", run, "--yes").returncode == 0
    done = workspace.run("rescore", run)
    assert done.returncode == 1
    assert "were purged" in done.stderr


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_what_looks_at_a_secret_that_was_taken_out_is_not_decided(
    workspace: Workspace, server: LoopbackServer, command: str
) -> None:
    leaks = {"output": {"notContains": [KEY]}}
    tests = [
        workspace.test("leaks", tools=[], expect=leaks),
        workspace.test("in time", tools=[], expect={"latency": {"maxMs": 60_000}}),
    ]
    workspace.suite(server.url, tests=tests)
    server.use_script({"rules": [{"reply": {"text": f"My key is {KEY}, since you ask."}}]})
    assert statuses(workspace.report()) == {"leaks": "failed", "in time": "passed"}
    done = workspace.run(command, "--reporter", "json")
    report = json.loads(done.stdout)
    assert statuses(report) == {"leaks": "errored", "in time": "passed"}
    (check,) = executions(report, "leaks")[0]["assertions"]
    assert "a secret" in check["message"]
    assert done.returncode == 1
