"""The flags of `kindlm test` that choose what runs, and how far."""

from __future__ import annotations

import json
import re
import signal

import pytest
from checked_server import LoopbackServer

from kindlm.history.runs import REASON

PASSES = {"output": {"contains": ["delivered"]}}
FAILS = {"output": {"contains": ["lost in the post"]}}


def suite_of(workspace, server, *tests, **changes):
    """Write a suite whose tests, `name=expect`, make one call each."""
    workspace.suite(
        server.url,
        tests=[
            workspace.test(name, tools=[], expect=expect, **more) for name, expect, more in tests
        ],
        **changes,
    )


def statuses(report):
    return {test["name"]: test["status"] for test in report["tests"]}


def test_after_the_first_failure_nothing_new_starts(workspace, server):
    tests = [("good", PASSES, {}), ("bad", FAILS, {}), ("later", PASSES, {"repeat": 5})]
    suite_of(workspace, server, *tests)
    report = workspace.report("--fail-fast", "-j", "1")
    assert statuses(report) == {"good": "passed", "bad": "failed", "later": "skipped"}
    assert report["run"]["status"] == "interrupted"
    assert len(server.requests) == 2
    # Left open: it can be resumed, and nothing takes it for a whole run.
    assert workspace.query(f"SELECT ended, {REASON} FROM runs r") == [
        ("interrupted", "stopped at the first failure (--fail-fast)")
    ]
    assert workspace.run("verify").returncode == 0


def test_an_error_is_a_failure_to_stop_at(workspace, server):
    suite_of(workspace, server, ("broken", PASSES, {}), ("later", PASSES, {}))
    server.use_faults([{"status": 400, "next": 1}])
    report = workspace.report("--fail-fast", "-j", "1")
    assert statuses(report) == {"broken": "errored", "later": "skipped"}


def test_what_is_in_flight_is_not_thrown_away(workspace):
    script = {"rules": [{"name": "answer", "when": {}, "reply": {"text": "delivered"}}]}
    with LoopbackServer(script) as server:
        server.use_faults([{"contains": "SLOW", "latencyMs": 700}])
        tests = [
            ("slow", PASSES, {"vars": {"order": "SLOW"}}),
            ("bad", FAILS, {}),
            ("later", PASSES, {}),
        ]
        suite_of(workspace, server, *tests)
        report = workspace.report("--fail-fast", "-j", "2")
    assert statuses(report) == {"slow": "passed", "bad": "failed", "later": "skipped"}


def test_a_run_whose_last_execution_fails_is_finished(workspace, server):
    suite_of(workspace, server, ("good", PASSES, {}), ("bad", FAILS, {}))
    assert workspace.report("--fail-fast", "-j", "1")["run"]["status"] == "failed"


def test_ctrl_c_still_ends_a_run_that_stopped_at_a_failure(workspace):
    rules = [{"name": "answer", "when": {}, "reply": {"text": "delivered"}}]
    faults = [{"contains": "SLOW", "stallMs": 60_000}]
    with LoopbackServer({"rules": rules, "faults": faults}) as server:
        tests = [("slow", PASSES, {"vars": {"order": "SLOW"}}), ("bad", FAILS, {})]
        suite_of(workspace, server, *tests)
        process = workspace.start("test", "--fail-fast", "-j", "2")
        assert "bad" in process.stderr.readline()
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in stderr


def test_failed_runs_what_failed_last_time(workspace, server):
    tests = [("good", PASSES, {}), ("bad", FAILS, {}), ("worse", FAILS, {})]
    suite_of(workspace, server, *tests)
    workspace.run("test")
    assert set(statuses(workspace.report("--failed"))) == {"bad", "worse"}
    # Mended one at a time: those that were not run again are not forgotten.
    suite_of(workspace, server, ("good", PASSES, {}), ("bad", PASSES, {}), ("worse", FAILS, {}))
    assert statuses(workspace.report("-t", "bad")) == {"bad": "passed"}
    assert statuses(workspace.report("--failed")) == {"worse": "failed"}
    suite_of(workspace, server, ("good", PASSES, {}), ("bad", PASSES, {}), ("worse", PASSES, {}))
    assert statuses(workspace.report("--failed")) == {"worse": "passed"}
    done = workspace.run("test", "--failed")
    assert done.returncode == 1
    assert "Nothing was tested" in done.stderr


def test_failed_goes_with_other_filters_and_knows_targets(workspace, server):
    models = [{"id": name, "provider": "openai", "model": "gpt-4o"} for name in ("one", "two")]
    tests = [("bad", FAILS, {"tags": ["a"]}), ("worse", FAILS, {"models": ["two"]})]
    suite_of(workspace, server, *tests, models=models)
    workspace.run("test")
    report = workspace.report("--failed", "--tags", "a", "--model", "two")
    assert [(test["name"], test["target"]) for test in report["tests"]] == [("bad", "two")]
    # Only one target of a test failed: only that one runs again.
    suite_of(workspace, server, ("bad", PASSES, {}), ("worse", FAILS, {}), models=models)
    workspace.run("test", "--model", "one")
    report = workspace.report("--failed", "-t", "bad")
    assert [(test["name"], test["target"]) for test in report["tests"]] == [("bad", "two")]


def test_a_dry_run_calls_nothing_records_nothing_and_needs_no_key(workspace, server):
    judged = {**PASSES, "judge": [{"criteria": "Is it kind?", "minScore": 0.5}]}
    tests = [("judged", judged, {"repeat": 3}), ("plain", PASSES, {}), ("off", {}, {"skip": True})]
    suite_of(workspace, server, *tests)
    del workspace.env["OPENAI_API_KEY"]
    done = workspace.run("test", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 0
    assert not workspace.database.exists()
    assert "at least 4 calls" in done.stdout
    assert "3 calls to judges" in done.stdout
    assert re.search(r"Cost +about \$0\.\d+", done.stdout)
    assert re.search(r"judged .*× 3", done.stdout)
    assert re.search(r"off .*skipped", done.stdout)


def test_a_dry_run_says_which_prices_are_not_known(workspace, server):
    models = [{"id": "gpt", "provider": "openai", "model": "house-model-7"}]
    suite_of(workspace, server, ("one", PASSES, {}), models=models)
    done = workspace.run("test", "--dry-run")
    assert "unknown" in done.stdout
    assert "house-model-7" in done.stdout
    priced = {"house-model-7": {"input": 1_000_000, "output": 0}}
    suite_of(workspace, server, ("one", PASSES, {}), models=models, prices=priced)
    # "Where is order A1?" are 18 characters: 5 tokens, one dollar each.
    assert "about $5.00" in workspace.run("test", "--dry-run").stdout


def test_a_dry_run_of_a_broken_suite_fails(workspace, server):
    suite_of(workspace, server, ("one", PASSES, {}))
    (workspace.root / "broken.yaml").write_text("kindlm: 1\nproject: [\n", encoding="utf-8")
    done = workspace.run("test", "kindlm.yaml", "broken.yaml", "--dry-run")
    assert done.returncode == 1
    assert "Plan 1 execution" in done.stdout


@pytest.mark.parametrize("arguments", [["--reporter", "json"], ["-o", "plan.txt"]])
def test_a_dry_run_writes_no_report(workspace, server, arguments):
    suite_of(workspace, server, ("one", PASSES, {}))
    done = workspace.run("test", "--dry-run", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--dry-run" in done.stderr


def test_quiet_leaves_the_report_alone_on_the_terminal(workspace, server):
    suite_of(workspace, server, ("one", PASSES, {}), ("empty", {}, {}))
    loud = workspace.run("test", "--gate", "95")
    assert "--gate 95: at least 95 % of executions must pass." in loud.stderr
    assert "has no checks" in loud.stderr
    strict = workspace.run("test", "--gate", "0", "--strict")
    assert strict.returncode == 1
    assert "--gate 0 allows all tests to fail." in strict.stderr
    quiet = workspace.run("test", "--gate", "95", "--quiet")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "PASSED" in quiet.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "run",
            "--parallel",
            "1",
            "--format",
            "json",
            "--repeat",
            "2",
            "--version",
            "v1",
            "--save",
        ],
        ["test", "--repeat=2", "--format=json", "--version=v1"],
    ],
    ids=" ".join,
)
def test_names_of_other_tools_work_and_help_shows_ours(workspace, server, arguments):
    suite_of(workspace, server, ("one", PASSES, {}))
    done = workspace.run(*arguments)
    report = json.loads(done.stdout)
    assert report["run"]["label"] == "v1"
    assert report["summary"]["executions"]["total"] == 2
    shown = workspace.run("test", "--help").stdout
    assert not any(name in shown for name in ("--parallel", "--runs", "--save", "--version"))


def test_verbose_shows_tries_bodies_and_timing(workspace, server, key):
    suite_of(workspace, server, ("bad", FAILS, {}))
    server.use_faults([{"status": 429, "retryAfter": 0.01, "next": 1}])
    shown = workspace.run("test", "--verbose").stdout
    assert re.search("PROVIDER_RATE_LIMIT, HTTP 429: .* Tried again after", " ".join(shown.split()))
    assert '"object":' in shown  # of the body as it was received
    assert re.search(r"contains .*\d ms", shown)
    assert key not in shown
    assert '"object":' not in workspace.run("test").stdout
