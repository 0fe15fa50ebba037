"""Suites that run against what was recorded: no provider is called, and what is new is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import yaml
from altering_server import AlteringServer, wrong
from checked_server import LoopbackServer
from orders import SCRIPT, Silent, asked, order, serve_orders, write_orders
from workspace import Workspace, as_yaml

TOOL_AGENT = {
    "rules": [
        {
            "name": "look up",
            "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]},
        },
        {"name": "answer", "when": {}, "reply": {"text": "Order A1 was delivered."}},
    ],
    "judge": {"default": 0.9},
}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def replayed(workspace: Workspace, *arguments: str, **env: str) -> dict[str, Any]:
    """Replay a run without a key and return the JSON report."""
    keyless = {"OPENAI_API_KEY": ""} | env
    done = workspace.run("replay", "--reporter", "json", *arguments, **keyless)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        pytest.fail(f"no JSON report: {done.stdout!r} {done.stderr!r}")
    assert done.returncode == (0 if report["run"]["status"] == "passed" else 1)
    return report


def executions(report: dict[str, Any], test: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(t for t in report["tests"] if t["name"] == test)[
        "executions"
    ]
    return found


def error_of(report: dict[str, Any], test: str) -> str:
    (execution,) = executions(report, test)
    assert execution["status"] == "errored"
    message: str = execution["error"]["message"]
    return message


def test_a_suite_runs_with_recorded_answers_when_there_is_no_server_any_more(
    workspace: Workspace,
) -> None:
    talk = workspace.test("talk", conversation=[{"user": "Thanks."}], repeat=2)
    talk["expect"]["judge"] = [{"criteria": "Says where it is", "minScore": 0.8, "passes": 2}]
    with LoopbackServer(TOOL_AGENT) as server:
        workspace.suite(server.url, tests=[talk])
        live = workspace.report()
        requests = len(server.requests)
        assert requests
        workspace.suite(server.url, tests=[talk])
    # The port is closed: who calls is refused.
    report = replayed(workspace)
    assert report["run"]["status"] == live["run"]["status"] == "passed"
    assert report["run"]["mode"] == "replayed"
    assert report["run"]["sourceRun"] == live["run"]["id"]
    for now, then in zip(executions(report, "talk"), executions(live, "talk"), strict=True):
        for same in ("status", "output", "toolCalls", "turns", "latencyMs", "tokens"):
            assert now[same] == then[same]
        assert now["costUsd"] == 0
        assert now["costThenUsd"] == pytest.approx(then["costUsd"])
        assert now["warnings"] == []
    summary, before = report["summary"], live["summary"]
    assert (summary["costUsd"], summary["judgeCostUsd"]) == (0, 0)
    assert summary["costThenUsd"] == pytest.approx(before["costUsd"])
    assert summary["judgeCostThenUsd"] == pytest.approx(before["judgeCostUsd"])
    assert workspace.run("verify").returncode == 0
    # A replayed run can be replayed, too.
    again = replayed(workspace, "--from", report["run"]["id"])
    assert again["run"]["status"] == "passed"
    assert again["summary"]["costThenUsd"] == pytest.approx(before["costUsd"])


def test_expectations_tools_and_tests_around_a_request_may_change(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0"), order("k1")])
    workspace.report()
    since = len(server.requests)
    renamed = order("other", judged=False) | {"vars": {"order": "k1"}}
    write_orders(workspace, server, [order("k0", says="nowhere"), renamed])
    report = replayed(workspace)
    assert len(server.requests) == since
    assert executions(report, "k0")[0]["status"] == "failed"
    (other,) = executions(report, "other")
    assert other["status"] == "passed"
    assert "k1" in other["warnings"][0]


CHANGED_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"prompts": {"ask": {"user": "Tell me of <{{order}}>."}}}, 'messages[0].content: "Where is'),
    (
        {"prompts": {"ask": {"system": "Be kind", "user": "Where is order <{{order}}>?"}}},
        'messages[0].role: "user" → "system"; messages[0].content: ',
    ),
    (
        {
            "models": [
                {
                    "id": "gpt",
                    "provider": "openai",
                    "model": "gpt-4o",
                    "params": {"temperature": 0.9},
                }
            ]
        },
        "temperature: 0.2 → 0.9",
    ),
    (
        {"models": [{"id": "gpt", "provider": "openai", "model": "gpt-5"}]},
        'model: "gpt-4o" → "gpt-5"',
    ),
    (
        {
            "models": [
                {
                    "id": "gpt",
                    "provider": "openai",
                    "model": "gpt-4o",
                    "params": {"stopSequences": ["END"]},
                }
            ]
        },
        "its stop sequences, its response schema or",
    ),
]
"""What is changed in a suite, and what then differs from the request that was recorded."""


def test_a_request_that_was_never_recorded_is_reported_with_what_differs(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    run = workspace.report()["run"]["id"]
    since = len(server.requests)
    path = workspace.root / "kindlm.yaml"
    recorded = yaml.safe_load(path.read_text())
    reporters = ("--reporter", "terminal", "--reporter", "json=replayed.json")
    for change, difference in CHANGED_REQUESTS:
        path.write_text(as_yaml(recorded | change), encoding="utf-8")
        done = workspace.run("replay", *reporters)
        assert done.returncode == 1
        assert "Record it: kindlm test" in done.stdout
        report = json.loads((workspace.root / "replayed.json").read_text())
        message = error_of(report, "k0")
        assert f"Run {run} never recorded this request" in message
        assert difference in message
    assert len(server.requests) == since


def test_another_answer_of_a_tool_leads_to_a_request_that_was_never_recorded(
    workspace: Workspace,
) -> None:
    with LoopbackServer(TOOL_AGENT) as server:
        workspace.suite(server.url)
        workspace.report()
        changed = workspace.test()
        changed["tools"][0]["defaultResponse"] = {"status": "lost"}
        workspace.suite(server.url, tests=[changed, workspace.test("new", vars={"order": "B2"})])
        since = len(server.requests)
        report = replayed(workspace)
        assert len(server.requests) == since
    message = error_of(report, "delivered")
    assert "messages[2].content: " in message
    assert "lost" in message
    assert "delivered" in message
    assert "no similar request was recorded for this test" in error_of(report, "new")


def test_repeats_that_were_not_recorded_are_answered_as_others_were(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False, repeat=2)])
    workspace.report()
    report = replayed(workspace, "--runs", "3")
    warnings = [execution["warnings"] for execution in executions(report, "k0")]
    assert warnings[:2] == [[], []]
    assert warnings[2] == ["This is the answer of repeat 2: repeat 3 was not recorded."]


def test_judges_are_asked_only_if_they_are_to_be(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    workspace.report()
    since = len(server.requests)
    polite = {"judge": [{"criteria": "Is polite", "minScore": 0.8}]}
    write_orders(workspace, server, [order("k0", expect=polite), order("k1")])
    report = replayed(workspace)
    assert len(server.requests) == since
    (assertion,) = executions(report, "k0")[0]["assertions"]
    assert assertion["outcome"] == "inconclusive"
    assert "never recorded this question to a judge" in assertion["message"]
    assert "Is polite" in assertion["message"]
    live = replayed(workspace, "--judge", "live", OPENAI_API_KEY="sk-e2e-0123456789")
    assert live["run"]["status"] == "passed"
    assert asked(server, since) == {("k0", "judge"): 1}
    assert live["summary"]["judgeCostUsd"] > 0


def test_an_answer_is_given_as_often_as_it_was_recorded(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0")])
    workspace.report()
    more = order("k0")
    more["expect"]["judge"][0]["passes"] = 2
    write_orders(workspace, server, [more])
    _, judged = executions(replayed(workspace), "k0")[0]["assertions"]
    assert judged["outcome"] == "inconclusive"
    assert "it was asked fewer times" in judged["message"]


def test_a_test_gets_its_own_answer_if_another_asked_the_same(workspace: Workspace) -> None:
    tests = [order("k0", judged=False), {**order("k0", judged=False), "name": "k0 again"}]
    with AlteringServer(SCRIPT) as server:
        server.alter(wrong("<k0>", 2))
        write_orders(workspace, server, tests)
        live = workspace.report()
    said = [executions(live, test["name"])[0]["output"] for test in tests]
    assert len(set(said)) == 2
    report = replayed(workspace)
    assert [executions(report, test["name"])[0]["output"] for test in tests] == said


def test_an_answer_that_was_erased_is_not_given_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False), order("k1", judged=False)])
    run = workspace.report()["run"]["id"]
    assert workspace.run("purge", "--matching", "delivered: .*<k0>", "--yes").returncode == 0
    report = replayed(workspace)
    assert [test["status"] for test in report["tests"]] == ["errored", "passed"]
    message = error_of(report, "k0")
    assert message == f"The answer of {run}-1, call 1, was purged or withheld."
    again = report["run"]["id"]
    assert workspace.run("purge", "--run", run, "--run", again, "--yes").returncode == 0
    for command in (["replay", "--from", run], ["rescore", run]):
        done = workspace.run(*command)
        assert done.returncode == 1
        assert "purged or withheld" in done.stdout


def test_what_failed_then_fails_again(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 2)
    server.use_faults(
        [{"status": 400, "contains": "<k0>"}, {"status": 429, "contains": "<k1>", "next": 1}]
    )
    live = workspace.report()
    server.use_faults([])
    since = len(server.requests)
    report = replayed(workspace)
    assert len(server.requests) == since
    assert error_of(report, "k0") == error_of(live, "k0")
    assert executions(report, "k1")[0]["status"] == "passed"


def test_embeddings_are_not_recorded(workspace: Workspace, server: LoopbackServer) -> None:
    drift = {"baseline": {"drift": {"maxScore": 0.1, "method": "embedding"}}}
    write_orders(workspace, server, [order("k0", judged=False, expect=drift)])
    workspace.report()
    assert workspace.run("baseline", "set").returncode == 0
    since = len(server.requests)
    (assertion,) = executions(replayed(workspace), "k0")[0]["assertions"]
    assert assertion["outcome"] == "inconclusive"
    assert "Embeddings are not recorded" in assertion["message"]
    assert len(server.requests) == since


def test_values_of_the_environment_are_not_needed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False)])
    path = workspace.root / "kindlm.yaml"
    prompts = {"ask": {"system": "{{env.TONE}}!", "user": "Where is order <{{order}}>?"}}
    config = yaml.safe_load(path.read_text()) | {"prompts": prompts}
    path.write_text(as_yaml(config), encoding="utf-8")
    assert workspace.report(TONE="Be kind")["run"]["status"] == "passed"
    assert replayed(workspace)["run"]["status"] == "passed"
    assert replayed(workspace, TONE="Be rude")["run"]["status"] == "passed"


def write_agent(workspace: Workspace, *users: str, **prompt: str) -> None:
    """Write a suite that says this to an agent, which notes whatever it hears."""
    (workspace.root / "shop.py").write_text(
        "def agent(message):\n"
        "    with open('heard', 'a') as file:\n"
        "        print(message, file=file)\n"
        "    if 'Break' in message:\n"
        "        raise ValueError('broken')\n"
        "    return f'delivered: {message}'\n",
        encoding="utf-8",
    )
    expect = {"output": {"contains": ["delivered"]}}
    first, *others = users
    test = {
        "name": "talks",
        "prompt": "ask",
        "conversation": [{"user": user, "expect": expect} for user in others],
        "expect": expect,
    }
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "agents"},
        "agents": [{"id": "shop", "adapter": "python", "endpoint": "shop:agent"}],
        "prompts": {"ask": {"user": first, **prompt}},
        "tests": [test],
    }
    (workspace.root / "kindlm.yaml").write_text(as_yaml(config), encoding="utf-8")


def test_agents_are_answered_for_by_the_messages_that_they_were_sent(workspace: Workspace) -> None:
    write_agent(workspace, "I am {{env.WHO}}.", "Thanks.", "And now?")
    live = workspace.report(WHO="Ann")
    assert live["run"]["status"] == "passed"
    heard = (workspace.root / "heard").read_text()
    report = replayed(workspace)
    assert report["run"]["status"] == "passed"
    assert executions(report, "talks")[0]["output"] == "delivered: And now?"
    write_agent(workspace, "I am {{env.WHO}}.", "Thank you.", "And now?")
    assert 'message 2 of the user: "Thanks."' in error_of(replayed(workspace), "talks")
    write_agent(workspace, "I am {{env.WHO}}.", "Thanks.", "And now?", "Bye.")
    assert "the user sent 3 messages then" in error_of(replayed(workspace), "talks")
    write_agent(workspace, "I am {{env.WHO}}, and tired.")
    assert 'message 1 of the user: "I am Ann."' in error_of(replayed(workspace), "talks")
    assert (workspace.root / "heard").read_text() == heard


def test_an_agent_is_not_answered_for_with_another_system_text(workspace: Workspace) -> None:
    write_agent(workspace, "Hello.", system="You sell bikes.")
    assert workspace.report()["run"]["status"] == "passed"
    assert replayed(workspace)["run"]["status"] == "passed"
    write_agent(workspace, "Hello.", system="You sell cars.")
    assert "the system text is different" in error_of(replayed(workspace), "talks")


def test_an_agent_that_failed_fails_again(workspace: Workspace) -> None:
    write_agent(workspace, "Hello.", "Break.")
    live = workspace.report()
    heard = (workspace.root / "heard").read_text()
    assert error_of(replayed(workspace), "talks") == error_of(live, "talks")
    assert (workspace.root / "heard").read_text() == heard


def test_commands_are_answered_for_by_the_record(workspace: Workspace) -> None:
    started = workspace.root / "started"
    (workspace.root / "agent.py").write_text(
        f"""
with open({str(started)!r}, "a") as file:
    file.write("x")
print('{{"kindlm": "tool_call", "name": "find", "arguments": {{"id": "A1"}}}}')
print("done")
""",
        encoding="utf-8",
    )
    test = {
        "name": "runs",
        "command": "python agent.py",
        "repeat": 2,
        "expect": {
            "output": {"contains": ["done"]},
            "toolCalls": [{"tool": "find", "argsMatch": {"id": "A1"}}],
        },
    }
    config = {"kindlm": 1, "project": "shop", "suite": {"name": "programs"}, "tests": [test]}
    (workspace.root / "kindlm.yaml").write_text(as_yaml(config), encoding="utf-8")
    live = workspace.report()
    report = replayed(workspace, "--runs", "3")
    assert started.read_text() == "xx"
    assert report["run"]["status"] == "passed"
    first, _, third = executions(report, "runs")
    assert first["toolCalls"] == executions(live, "runs")[0]["toolCalls"]
    assert third["warnings"] == ["This is the answer of repeat 2: repeat 3 was not recorded."]


def test_words_for_runs_do_not_mean_replayed_ones(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 1)
    live = workspace.report()["run"]["id"]
    replayed(workspace)
    assert replayed(workspace, "--from", "latest")["run"]["sourceRun"] == live
    assert workspace.run("baseline", "set").returncode == 0
    assert workspace.query("SELECT run FROM active_baselines") == [(live,)]


def test_what_cannot_be_replayed_is_reported(workspace: Workspace, server: LoopbackServer) -> None:
    done = workspace.run("replay")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No runs are recorded yet" in done.stderr
    write_orders(workspace, server, 1)
    workspace.report()
    for arguments, message in (
        (("--from", "nope"), "There is no run 'nope'"),
        (("-t", "no similar request"), "no test matches the selection"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ):
        done = workspace.run("replay", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr


class Billing(BaseHTTPRequestHandler):
    """A model and an agent that fail the first time they are asked something, and bill it.

    What should break they never answer.
    """

    asked: set[str]

    def do_POST(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        is_agent, fails = self.path == "/agent", "Break" in body or body not in self.asked
        self.asked.add(body)
        if is_agent:
            said = {"error": "busy", "cost": 0.25} if fails else {"text": "delivered", "cost": 0.5}
        else:
            # As OpenRouter tells that a provider failed.
            usage = {"prompt_tokens": 0, "completion_tokens": 1_000_000}
            choice = {"error": {"code": 502, "message": "busy"}} if fails else {}
            message = {"role": "assistant", "content": "delivered"}
            choices = [{"message": message, "finish_reason": "stop", **choice}]
            said = {"model": "gpt-4o", "choices": choices, "usage": usage}
        content = json.dumps(said).encode()
        self.send_response(503 if is_agent and fails else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@contextmanager
def serving_bills() -> Iterator[str]:
    handler = type("Handler", (Billing,), {"asked": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_what_failed_calls_cost_then_counts_for_the_gate(workspace: Workspace) -> None:
    with serving_bills() as url:
        agent = {"id": "shop", "adapter": "http", "endpoint": f"{url}/agent"}
        of_agent = [order(name, judged=False, models=["shop"]) for name in ("k2", "Break3")]
        tests = [order(name, judged=False, models=["gpt"]) for name in ("k0", "Break1")]
        write_orders(
            workspace,
            Silent(f"{url}/v1"),
            [*tests, *of_agent],
            agents=[agent],
            prices={"gpt-4o": {"input": 0, "output": 1}},
            defaults={"retries": 1},
            gates={"costMaxUsd": 100},
        )
        live = workspace.report()
        again = replayed(workspace)
        # Agents, and calls that failed in the end, are asked again; the answer is taken twice.
        cached = [workspace.report("--cache") for _ in range(2)]
    assert [test["status"] for test in live["tests"]] == ["passed", "errored"] * 2
    assert spent(live) == pytest.approx(2 + 2 + 0.75 + 0.5)
    assert [spent(report) for report in (again, *cached)] == pytest.approx([spent(live)] * 3)
    assert again["summary"]["costUsd"] == 0
    # The cost of the answers is what checks look at, in any of these runs.
    (answered,) = executions(again, "k0")
    assert answered["costThenUsd"] == pytest.approx(1)


def test_what_is_given_again_in_each_attempt_counts_once_for_the_gate(workspace: Workspace) -> None:
    with serving_bills() as url:

        def write(*follow_ups: str) -> None:
            conversation = [{"user": text} for text in follow_ups]
            write_orders(
                workspace,
                Silent(f"{url}/v1"),
                [order("k0", judged=False, models=["gpt"], conversation=conversation)],
                prices={"gpt-4o": {"input": 0, "output": 1}},
                defaults={"retries": 1},
                gates={"costMaxUsd": 100},
            )

        write("And B2?")
        assert spent(workspace.report()) == pytest.approx(2 + 2)
        write("And C3?", "And D4?")
        # The first answer is in the history. The first try of the second one is over the limit.
        workspace.run("test", "--cache", "--max-cost", "0.5")
        resumed = workspace.report("--resume", "--max-cost", "100")
    # What the answer cost then, and the calls of both attempts now.
    assert spent(resumed) == pytest.approx(2 + 1 + 3)
    assert spent(replayed(workspace)) == pytest.approx(spent(resumed))
    assert spent(
        json.loads(workspace.run("rescore", "--reporter", "json").stdout)
    ) == pytest.approx(spent(resumed))


def test_an_unknown_cost_of_an_earlier_attempt_is_unknown_in_a_replay(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """The first attempt was cut off, since its model had no price; the second one had one."""

    def write(**prices: dict[str, float]) -> None:
        write_orders(
            workspace,
            server,
            [order("k0", judged=False, conversation=[{"user": "And B2?"}])],
            models=[{"id": "gpt", "provider": "openai", "model": "brand-new-1"}],
            prices=prices,
            gates={"costMaxUsd": 100},
        )

    write()
    assert workspace.run("test", "--max-cost", "1").returncode == 1
    write(**{"brand-new-1": {"input": 0, "output": 1}})
    done = workspace.run("test", "--resume", "--force-resume", "--reporter", "json")
    assert "The cost limit leaves out 1 earlier call of unknown cost." in done.stderr
    report = json.loads(done.stdout)
    for _ in range(3):
        assert [test["status"] for test in report["tests"]] == ["passed"]
        (gate,) = [each for each in report["gates"]["results"] if each["name"] == "costMaxUsd"]
        assert (gate["actual"], gate["passed"]) == (None, False)
        assert "the cost of 1 call is not known" in gate["message"]
        report = replayed(workspace)


def spent(report: dict[str, Any]) -> float:
    """Return what the gate on costs looked at."""
    (gate,) = [gate for gate in report["gates"]["results"] if gate["name"] == "costMaxUsd"]
    actual: float = gate["actual"]
    return actual
