"""The JSON report: its structure, and that it is valid whatever the texts are."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.reports.json_report import report_schema


def parsed(text: str) -> Any:
    """Parse strictly: one document, no constants that JSON does not have."""

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse)


def validated(text: str) -> Any:
    document = parsed(text)
    jsonschema.Draft202012Validator(report_schema()).validate(document)
    return document


def test_the_schema_is_a_schema_and_strict() -> None:
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    def objects(node: Any) -> Any:
        if isinstance(node, dict):
            if node.get("type") in ("object", ["object", "null"]):
                yield node
            for child in node.values():
                yield from objects(child)
        elif isinstance(node, list):
            for child in node:
                yield from objects(child)

    found = list(objects(schema))
    assert found
    for node in found:
        assert node["additionalProperties"] is False
        assert sorted(node["required"]) == sorted(node["properties"])


def test_a_varied_run(varied: Any, write: Any) -> None:
    report = validated(write(varied, "json"))

    assert report["schemaVersion"] == 1
    run = report["run"]
    assert (run["id"], run["label"], run["status"]) == ("k3f9x2ab", "nightly", "failed")
    assert run["headHash"].startswith("sha256:")
    assert run["git"] == {"commit": "c0ffee" * 6 + "abcd", "branch": "main", "dirty": True}
    assert [(s["name"], s["status"], s["error"]) for s in run["suites"]] == [
        ("support", "failed", None),
        ("broken", "skipped", "Unknown key `tset`."),
    ]
    assert report["summary"]["tests"] == {
        "total": 8, "passed": 1, "failed": 2, "errored": 1, "skipped": 4,
    }  # fmt: skip
    assert report["summary"]["executions"]["total"] == 9
    assert report["summary"]["passRate"] == 3 / 8
    low, high = report["summary"]["passRateInterval"]
    assert low < 3 / 8 < high
    assert report["summary"]["judgeAvg"] == 0.71
    assert report["gates"]["passed"] is False
    assert report["errors"] == [
        {
            "code": "CONFIG_VALIDATION_ERROR",
            "number": 102,
            "message": "Unknown key `tset`.",
            "where": "broken.yaml",
        }
    ]


def test_tests_are_distinguished_by_target(varied: Any, write: Any) -> None:
    tests = parsed(write(varied, "json"))["tests"]

    assert [(t["name"], t["target"], t["status"], t["flaky"]) for t in tests] == [
        ("greets", "gpt", "passed", False),
        ("greets", "claude", "failed", True),
        ("refunds", "gpt", "failed", False),
        ("refunds", "claude", "errored", False),
        ("later", "gpt", "skipped", False),
    ]
    assert tests[0]["tags"] == ["smoke"]
    execution = tests[2]["executions"][0]
    assert execution["toolCalls"] == [
        {
            "name": "lookup_order",
            "arguments": {"order_id": "A1"},
            "response": {"status": "delivered"},
        }
    ]
    assert execution["costUsd"] is None
    (assertion,) = execution["assertions"]
    assert assertion["failureCode"] == "TOOL_CALL_MISSING"
    assert assertion["expected"] == {"tool": "refund_order"}
    assert tests[3]["executions"][0]["error"] == {
        "code": "PROVIDER_RATE_LIMIT",
        "number": 202,
        "message": "The provider refused: too many requests.",
    }


def test_a_stopped_run_says_so(history: Any, make: Any, write: Any) -> None:
    run = history.run(planned=4)
    run.suite(tests=[make.planned("greets", repeat=2), make.planned("refunds", repeat=2)])
    run.execution("greets", assertions=(make.passed(),))
    run.execution("greets", repeat=2, finished=False, output=None)
    report = validated(write(run.interrupt("SIGINT"), "json"))

    assert report["run"]["status"] == "interrupted"
    assert report["run"]["finishedAt"] is None
    assert report["errors"] == [
        {
            "code": "RUN_INTERRUPTED",
            "number": None,
            "message": "SIGINT; 3 of 4 executions did not finish",
            "where": None,
        }
    ]
    # All that ran has passed, and so has each gate over that: the suite and the run have not.
    assert report["run"]["suites"][0]["status"] == "incomplete"
    assert all(gate["passed"] for gate in report["gates"]["results"])
    assert not report["gates"]["passed"]
    assert [(t["name"], t["status"], len(t["executions"])) for t in report["tests"]] == [
        ("greets", "passed", 2),
        ("refunds", "skipped", 0),
    ]


def test_a_killed_run_and_an_empty_one(history: Any, write: Any) -> None:
    killed = history.run("killed00", planned=3).leave()
    report = validated(write(killed, "json"))
    assert report["run"]["status"] == "killed"
    assert [error["code"] for error in report["errors"]] == ["RUN_KILLED"]


@pytest.mark.parametrize(
    "arguments",
    ["NaN", "[1e999]", '"\\ud800"', "[" * 3000 + "]" * 3000, '{"a": Infinity}', "{", ""],
    ids=["nan", "inf", "surrogate", "deep", "infinity", "cut", "empty"],
)
def test_arguments_that_are_no_json_are_given_as_text(
    arguments: str, history: Any, make: Any, write: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(tools=(("lookup", arguments, None),))
    report = validated(write(run.finish(), "json"))

    (call,) = report["tests"][0]["executions"][0]["toolCalls"]
    assert call["arguments"] == arguments


def test_personal_data_is_shown_as_its_check_allows(history: Any, make: Any, write: Any) -> None:
    card = "4111 1111 1111 1111"
    text = json.dumps({"card": card})
    start = text.index(card)
    places = [
        {"source": "output", "start": 8, "end": 8 + len(card)},
        {"source": "tool[0].arguments", "start": start, "end": start + len(card)},
    ]
    evidence = [place | {"name": "card", "excerpt": "41" + "*" * 15 + "11"} for place in places]
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(
        output=f"Card is {card}.",
        tools=(("pay", {"card": card}, {"charged": card}),),
        assertions=(
            make.failed("pii", "no personal data", "PII_DETECTED", "Found.", evidence=evidence),
            make.failed(message=f"It said {card}.", actual=f"Card is {card}."),
        ),
    )
    written = write(run.finish(), "json")

    validated(written)
    assert card not in written
    assert "Card is 41***************11." in written


# Anything that a text can hold, lone surrogates included: the store takes those out.
texts = st.text(alphabet=st.characters(), max_size=30)
numbers = count()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, texts, texts)
def test_any_text_anywhere_gives_valid_json(
    history: Any, make: Any, write: Any, one: str, two: str, three: str
) -> None:
    run = history.run(f"run{next(numbers)}")
    run.suite(one, tests=[make.planned(two, three)])
    run.skipped_suite(two, message=three)
    run.execution(
        two,
        three,
        output=one,
        tools=((two, {one: three}, [two]), ("raw", three, one)),
        assertions=(
            make.failed(
                label=one,
                message=two,
                expected=[three],
                actual={one: two},
                reasoning=three,
                evidence=[{"source": "output", "start": 0, "end": 9, "excerpt": two}],
            ),
        ),
        error=("UNKNOWN_ERROR", 999, one, two),
    )
    validated(write(run.finish(), "json"))
