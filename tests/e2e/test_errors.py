"""What goes wrong with a provider: each has its code, and the rest of the run goes on."""

from __future__ import annotations

import socket

import pytest
from checked_server import LoopbackServer


def only_execution(report, test="delivered"):
    (found,) = [entry for entry in report["tests"] if entry["name"] == test]
    (execution,) = found["executions"]
    return execution


FAULTS = [
    ({"status": 401}, "PROVIDER_AUTH_ERROR"),
    ({"status": 429, "retryAfter": 0.01}, "PROVIDER_RATE_LIMIT"),
    ({"status": 500}, "PROVIDER_API_ERROR"),
    ({"status": 400}, "PROVIDER_API_ERROR"),
    ({"malformed": True}, "PROVIDER_API_ERROR"),
    ({"empty": True}, "ENGINE_EMPTY_RESPONSE"),
    ({"cut": "before"}, "PROVIDER_NETWORK_ERROR"),
    ({"cut": "body"}, "PROVIDER_NETWORK_ERROR"),
]


@pytest.mark.parametrize(
    ("faults", "timeout_ms"),
    # Only what is stalled is waited for.
    [(FAULTS, 20_000), ([({"stallMs": 60_000}, "PROVIDER_TIMEOUT")], 1_000)],
    ids=["answered", "stalled"],
)
def test_each_fault_has_its_code_and_the_other_test_passes(workspace, server, faults, timeout_ms):
    names = [f"FAULT{number}" for number in range(len(faults))]
    marked = [workspace.test(name, vars={"order": name}) for name in names]
    defaults = {"retries": 1, "timeoutMs": timeout_ms}
    workspace.suite(server.url, tests=[*marked, workspace.test()], defaults=defaults)
    server.use_faults(
        [
            {**fault, "contains": f"order {name}?"}
            for name, (fault, _) in zip(names, faults, strict=True)
        ]
    )
    report = workspace.report()
    broken = [only_execution(report, name) for name in names]
    assert {execution["status"] for execution in broken} == {"errored"}
    assert [execution["error"]["code"] for execution in broken] == [code for _, code in faults]
    assert [execution["assertions"] for execution in broken] == [[]] * len(faults)
    assert only_execution(report)["status"] == "passed"
    assert report["run"]["status"] != "passed"


def test_a_missing_key_says_which_variable_to_set(workspace, server):
    workspace.suite(server.url)
    del workspace.env["OPENAI_API_KEY"]
    done = workspace.run("test")
    assert done.returncode == 1
    assert "OPENAI_API_KEY" in done.stdout + done.stderr
    assert len(server.requests) == 0


def test_a_wrong_key_is_an_auth_error(workspace):
    with LoopbackServer({"keys": ["another"], "rules": []}) as strict:
        workspace.suite(strict.url)
        execution = only_execution(workspace.report())
    assert execution["error"]["code"] == "PROVIDER_AUTH_ERROR"
    assert execution["error"]["number"] == 201


def test_a_host_that_does_not_answer_is_a_network_error(workspace):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listening
        workspace.suite(f"http://127.0.0.1:{taken.getsockname()[1]}", defaults={"retries": 0})
        execution = only_execution(workspace.report())
    assert execution["error"]["code"] == "PROVIDER_NETWORK_ERROR"


def test_a_passing_fault_is_retried_and_the_test_passes(workspace, server):
    workspace.suite(server.url)
    server.use_faults([{"status": 429, "retryAfter": 0.01, "next": 1}])
    assert workspace.report()["run"]["status"] == "passed"
    tries = workspace.query("SELECT call, try, status FROM provider_calls ORDER BY call")
    assert tries == [(1, 1, "failed"), (2, 2, "responded"), (3, 1, "responded")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tests": [{"name": "t", "prompt": "nope", "expect": {}}]}, "nope"),
        ({"tests": [{"name": "t", "prompt": "ask", "expect": {}}]}, "order"),
        ({"modles": []}, "models"),
        ({"models": [{"id": "m", "provider": "mistral", "model": "x"}]}, "mistral"),
    ],
    ids=["unknown prompt", "missing variable", "misspelt key", "unknown provider"],
)
def test_nothing_of_a_suite_with_an_error_is_called(workspace, server, change, expected):
    workspace.suite(server.url, **change)
    done = workspace.run("test")
    assert done.returncode == 1
    assert expected in done.stderr
    assert "kindlm.yaml:" in done.stderr
    assert len(server.requests) == 0


def test_a_broken_suite_is_skipped_and_the_others_run(workspace, server):
    workspace.suite(server.url)
    folder = workspace.root / "tests"
    folder.mkdir()
    (workspace.root / "kindlm.yaml").rename(folder / "good.yaml")
    (folder / "broken.yaml").write_text("kindlm: 1\nproject: [\n", encoding="utf-8")
    report = workspace.report("tests")
    assert only_execution(report)["status"] == "passed"
    assert {suite["status"] for suite in report["run"]["suites"]} == {"passed", "skipped"}
    assert report["run"]["status"] != "passed"
    assert "broken.yaml" in report["errors"][0]["where"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--reporter", "nope"],
        ["--runs", "0"],
        ["--no-such-option"],
        ["--model", "nope"],
        ["-t", "no test has this name"],
        ["missing.yaml"],
        ["--reporter", "json", "--reporter", "junit"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_1_and_calls_nothing(workspace, server, arguments):
    workspace.suite(server.url)
    done = workspace.run("test", *arguments)
    assert done.returncode == 1
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr
    assert len(server.requests) == 0
