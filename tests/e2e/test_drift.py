"""The story of a baseline, from the first run to its removal, as a user lives through it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from checked_server import LoopbackServer


def agent(action: str, words: str) -> dict[str, Any]:
    """Script an agent that decides about refunds in JSON, and says why in words."""
    decision = json.dumps({"action": action, "order": {"id": "A1", "total": 30}})
    return {
        "rules": [
            {"name": "decide", "when": {"user": "decide"}, "reply": {"text": decision}},
            {"name": "explain", "when": {}, "reply": {"text": words}},
        ]
    }


BEFORE = agent("refund", "You get your money back.")
REWORDED = agent("refund", "You get all your money back.")
AFTER = agent("escalate", "A colleague will have to look into this.")


def drift(name: str, message: str, **settings: Any) -> dict[str, Any]:
    return {
        "name": name,
        "prompt": "ask",
        "vars": {"message": message},
        "expect": {"baseline": {"drift": settings}},
    }


FIELDS = drift("fields", "Please decide.", method="field-diff", fields=["action", "order.id"])
WORDS = drift("words", "Please explain.", maxScore=0.25)


@pytest.fixture
def server() -> Any:
    with LoopbackServer(BEFORE) as server:
        yield server


@pytest.fixture
def suite(workspace: Any, server: Any) -> Any:
    """A suite with two tests of drift and a gate on it."""

    def write(*tests: dict[str, Any], **changes: Any) -> None:
        workspace.suite(
            server.url,
            prompts={"ask": {"user": "{{message}}"}},
            gates={"passRateMin": 0, "driftScoreMax": 0.3},
            **{"tests": list(tests or (FIELDS, WORDS))} | changes,
        )

    write()
    return write


def assertions(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the one assertion of each test, of its first repeat."""
    return {test["name"]: test["executions"][0]["assertions"][0] for test in report["tests"]}


def gate(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = (g for g in report["gates"]["results"] if g["name"] == "driftScoreMax")
    return found  # type: ignore[no-any-return]


def test_a_baseline_from_the_first_run_to_its_removal(
    workspace: Any, server: Any, suite: Any
) -> None:
    # There is nothing to compare with yet.
    first = workspace.report()
    assert first["run"]["status"] == "passed"
    for assertion in assertions(first).values():
        assert (assertion["outcome"], assertion["score"]) == ("skipped", None)
        assert assertion["message"] == "No baseline for this test. Run: kindlm baseline set"
    assert gate(first)["passed"]
    assert workspace.run("baseline", "compare").returncode == 1

    done = workspace.run("baseline", "set")
    assert done.returncode == 0, done.stderr
    assert first["run"]["id"] in done.stderr

    # The same agent has not drifted.
    same = workspace.report()
    assert same["run"]["status"] == "passed"
    assert {a["score"] for a in assertions(same).values()} == {1.0}
    assert gate(same)["actual"] == 0

    # Other words for the same are a drift that is allowed.
    server.use_script(REWORDED)
    reworded = assertions(workspace.report())
    assert reworded["fields"]["score"] == 1
    assert 0.75 <= reworded["words"]["score"] < 1

    # Another answer is too much.
    server.use_script(AFTER)
    changed = workspace.report()
    assert changed["run"]["status"] == "failed"
    found = assertions(changed)
    assert {a["failureCode"] for a in found.values()} == {"DRIFT_EXCEEDED"}
    assert (found["fields"]["score"], found["fields"]["threshold"]) == (0.5, 0.85)
    assert found["fields"]["expected"] == {"maxDrift": 0.15, "fields": {"action": "refund"}}
    assert found["fields"]["actual"] == {"drift": 0.5, "fields": {"action": "escalate"}}
    assert not gate(changed)["passed"]
    assert gate(changed)["actual"] == pytest.approx(1 - found["words"]["score"])
    assert changed["summary"]["driftMax"] == gate(changed)["actual"]
    baselines = workspace.query("SELECT DISTINCT baseline_run FROM suites")
    assert set(baselines) == {(None,), (first["run"]["id"],)}

    compared = workspace.run("baseline", "compare")
    assert compared.returncode == 1
    assert "✗ fields · gpt  passed 1/1 → failed 0/1" in compared.stdout
    assert "DRIFT_EXCEEDED" in compared.stdout
    assert "2 tests newly failed" in compared.stdout

    # What is accepted as it is now becomes the baseline, and then nothing has drifted.
    assert workspace.run("baseline", "set").returncode == 0
    assert workspace.report()["run"]["status"] == "passed"

    assert workspace.run("baseline", "remove").returncode == 0
    last = workspace.report()
    assert {a["outcome"] for a in assertions(last).values()} == {"skipped"}
    assert workspace.run("verify").returncode == 0


def test_judging_drift_is_counted_apart_from_the_tested_model(
    workspace: Any, server: Any, suite: Any
) -> None:
    first = workspace.report()
    assert not first["summary"]["judgeCostUsd"]
    workspace.run("baseline", "set")

    second = workspace.report()

    assert second["summary"]["judgeCostUsd"] > 0
    assert second["summary"]["costUsd"] == pytest.approx(first["summary"]["costUsd"])
    calls = workspace.query(
        "SELECT purpose, count(*) FROM provider_calls WHERE run = ? GROUP BY 1",
        second["run"]["id"],
    )
    assert dict(calls) == {"test": 2, "drift": 1}


def test_a_comparison_of_fields_that_nothing_has_warns_until_they_are_corrected(
    workspace: Any, server: Any, suite: Any
) -> None:
    suite(drift("typo", "Please decide.", method="field-diff", fields=["acton", "order.nr"]))
    workspace.report()
    workspace.run("baseline", "set")
    server.use_script(AFTER)

    mistaken = workspace.run("test")

    assert mistaken.returncode == 0
    assert "Nothing was compared: neither the baseline nor" in mistaken.stdout
    assert "has acton, order.nr" in mistaken.stdout
    assert "Warning in 1 execution" in mistaken.stdout
    # One field that exists is something to compare: the others may be missing for a reason.
    suite(drift("typo", "Please decide.", method="field-diff", fields=["acton", "order.id"]))
    rescored = workspace.run("rescore")
    assert rescored.returncode == 0
    assert "Nothing was compared" not in rescored.stdout


def test_a_test_that_is_new_since_the_baseline_is_skipped(
    workspace: Any, server: Any, suite: Any
) -> None:
    workspace.report()
    workspace.run("baseline", "set")
    suite(FIELDS, drift("new", "Please decide.", method="field-diff"))

    found = assertions(workspace.report())

    assert found["fields"]["outcome"] == "passed"
    assert found["new"]["outcome"] == "skipped"
    compared = workspace.run("baseline", "compare")
    assert compared.returncode == 1
    assert "words · gpt  passed 1/1 → not defined" in compared.stdout
    assert "new · gpt  not defined → passed 1/1" in compared.stdout


def test_a_baseline_that_was_tampered_with_decides_nothing_and_the_rest_runs(
    workspace: Any, server: Any, suite: Any
) -> None:
    plain = workspace.test("plain", prompt="ask", vars={"message": "Please explain."}, tools=[])
    plain["expect"] = {"output": {"contains": ["money"]}}
    suite(FIELDS, plain)
    workspace.report()
    workspace.run("baseline", "set")
    with closing(sqlite3.connect(workspace.database, isolation_level=None)) as db:
        db.execute("DROP TRIGGER contents_update")
        db.execute("UPDATE contents SET body = replace(body, 'refund', 'refuse')")

    report = workspace.report()

    assert report["run"]["status"] == "failed"
    by_name = {test["name"]: test for test in report["tests"]}
    assert by_name["plain"]["status"] == "passed"
    assert by_name["fields"]["status"] == "errored"
    (assertion,) = by_name["fields"]["executions"][0]["assertions"]
    assert (assertion["outcome"], assertion["score"]) == ("inconclusive", None)
    assert "the run was changed after it was recorded" in assertion["message"]
    compared = workspace.run("baseline", "compare", "--verbose")
    assert compared.returncode == 1
    assert "501" in compared.stderr


def test_embeddings_are_those_of_the_provider_and_are_named(
    workspace: Any, server: Any, suite: Any
) -> None:
    suite(drift("meaning", "Please explain.", method="embedding", maxScore=0.25))
    workspace.report()
    workspace.run("baseline", "set")

    same = assertions(workspace.report())["meaning"]
    assert (same["outcome"], same["score"]) == ("passed", 1)
    assert "openai/text-embedding" in same["message"]

    server.use_script(AFTER)
    changed = assertions(workspace.report())["meaning"]
    assert changed["failureCode"] == "DRIFT_EXCEEDED"
    assert changed["actual"]["drift"] == pytest.approx(1 - changed["score"])
    assert "openai/text-embedding" in changed["message"]


def test_the_run_that_a_drift_was_measured_from_is_named_by_a_label(
    workspace: Any, server: Any, suite: Any
) -> None:
    first = workspace.report()
    assert workspace.run("baseline", "set", "--label", "release").returncode == 0

    listed = json.loads(workspace.run("baseline", "list", "--format", "json").stdout)

    (baseline,) = listed["baselines"]
    assert (baseline["label"], baseline["active"]) == ("release", True)
    assert baseline["run"] == first["run"]["id"]
    assert {a["outcome"] for a in assertions(workspace.report()).values()} == {"passed"}
