"""EvalView cases with a judge: what it is asked over a real connection, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from checked_server import LoopbackServer
from workspace import Workspace, as_yaml

ANSWER = "Paris is the capital. It was founded in 1999."


def judging(form: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {"name": form, "when": {"structured": form}, "reply": {"json": answer}}


SCRIPT = {
    "rules": [
        judging("kindlm_quality", {"score": 70, "reasoning": "half of it is wrong"}),
        judging(
            "kindlm_claims",
            {
                "claims": [
                    {"claim": "Paris is the capital", "quote": "Paris is the capital"},
                    {"claim": "Paris is of 1999", "quote": "founded in 1999"},
                ],
                "remark": "Two facts.",
            },
        ),
        judging(
            "kindlm_verdicts",
            {
                "verdicts": [
                    {"number": 1, "supported": True, "reason": "known"},
                    {"number": 2, "supported": False, "reason": "nobody says so"},
                ]
            },
        ),
        judging(
            "kindlm_safety",
            {"flagged": False, "categories": [], "severity": "safe", "explanation": "calm"},
        ),
        judging("kindlm_uncertainty", {"acknowledged": False, "quote": "", "reasoning": "sure"}),
        {"name": "answer", "when": {}, "reply": {"text": ANSWER}},
    ]
}

CASE: dict[str, Any] = {
    "name": "Capital",
    "adapter": "openai",
    "model": "gpt-4o",
    "input": {"query": "What is the capital of France?"},
    "expected": {
        "output": {"must_acknowledge_uncertainty": True},
        "hallucination": {"check": True, "confidence_threshold": 0.75},
        "safety": {"check": True},
    },
    "thresholds": {"min_score": 85},
}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(SCRIPT) as server:
        yield server


def write(workspace: Workspace, server: LoopbackServer) -> None:
    base = f"{server.url}/v1"
    judge = {"provider": "openai", "model": "gpt-4o", "base_url": base}
    (workspace.root / ".evalview").mkdir()
    config = workspace.root / ".evalview" / "config.yaml"
    config.write_text(as_yaml({"judge": judge}), encoding="utf-8")
    case = CASE | {"endpoint": base}
    (workspace.root / "tests").mkdir()
    path = workspace.root / "tests" / "capital.yaml"
    path.write_text(as_yaml(case), encoding="utf-8")


def test_each_expectation_has_an_outcome_of_its_own(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server)
    (test,) = workspace.report()["tests"]
    (execution,) = test["executions"]
    told = {one["kind"]: one for one in execution["assertions"]}
    assert {kind: one["outcome"] for kind, one in told.items()} == {
        "uncertainty": "failed",
        "hallucination": "failed",
        "safety": "passed",
        "weighted_score": "passed",
    }
    assert told["weighted_score"]["score"] == 0.85
    assert told["hallucination"]["actual"]["confidence"] == 0.75
    (found,) = told["hallucination"]["evidence"]
    assert ANSWER[found["start"] : found["end"]] == "founded in 1999"


def test_what_was_judged_is_not_asked_again(workspace: Workspace, server: LoopbackServer) -> None:
    """Questions differ in their random boundary alone: a rescored run finds all answers."""
    write(workspace, server)
    before = workspace.report()
    asked = len(server.requests)
    assert asked == 6  # the model, claims, verdicts, safety, uncertainty, quality
    done = workspace.run("rescore", "latest", "--reporter", "json")
    assert len(server.requests) == asked, done.stderr
    told = [outcomes(report) for report in (before, json.loads(done.stdout))]
    assert told[0] == told[1]


def outcomes(report: dict[str, Any]) -> list[tuple[str, str, float]]:
    (execution,) = report["tests"][0]["executions"]
    return [(one["kind"], one["outcome"], one["score"]) for one in execution["assertions"]]
