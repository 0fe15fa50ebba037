"""The vectors of EvalView test cases that are about scores, checks and verdicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest

from kindlm.checks import CheckRunner
from kindlm.checks.evalview_rules import look_at_turn, within
from kindlm.checks.no_pii import find_personal_data
from kindlm.checks.tool_sequences import SequenceMode, sequence_progress
from kindlm.checks.weighted_scores import Weights, overall_score
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.formats.evalview.categories import tools_of
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.personal_data import passes_luhn
from kindlm.ports import CheckContext, ModelReply, Question
from kindlm.suite import Expectation
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

Vector = dict[str, Any]

DEPARTURES: Final = {
    "rx-invalid": "a pattern that cannot be used decides nothing; the file that has it is refused",
}


class Judge:
    """Answers each kind of question as the replies of a vector say, the same each time."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self._replies = replies

    async def __call__(self, question: Question) -> Result[ModelReply]:
        if "raise" in self._replies:
            return Err(KindlmError(ErrorCode.PROVIDER_NETWORK_ERROR, self._replies["raise"]))
        text = json.dumps(self._answer(question.response_schema.name))
        return Ok(ModelReply(text, text, 1.0))

    def _answer(self, form: str) -> Any:
        replies = self._replies
        match form:
            case "kindlm_quality":
                return {"score": replies["score"], "reasoning": "r"}
            case "kindlm_claims":
                return {"claims": [{"claim": c, "quote": c} for c in replies.get("claims", [])]}
            case "kindlm_verdicts":
                return {
                    "verdicts": [
                        {"number": number, "supported": one["supported"], "reason": one["reason"]}
                        for number, one in enumerate(replies["verdicts"], start=1)
                    ]
                }
        return {"flagged": False, "categories": [], "severity": "safe", "explanation": "calm"}


def said(query: str, output: str, tools: Iterable[str] = ()) -> Transcript:
    return Transcript(turns=(turn(query, output, tools),))


def turn(query: str, output: str, tools: Iterable[str] = ()) -> Turn:
    uses = [ToolUse(ToolCall(f"c{n}", tool, {}), None, "agent") for n, tool in enumerate(tools)]
    return Turn(query, (Step(output, tuple(uses)),))


def evaluate(
    expectations: Iterable[Expectation], transcript: Transcript, judge: Judge | None = None
) -> dict[str, CheckResult]:
    """Evaluate expectations one after the other; each sees the results before it."""

    async def results() -> dict[str, CheckResult]:
        found: dict[str, CheckResult] = {}
        runner, ask = CheckRunner(), judge or Judge({"raise": "nobody"})
        for expectation in expectations:
            context = CheckContext(ask, earlier=tuple(found.values()))
            (found[expectation.label],) = await runner.evaluate(expectation, transcript, context)
        return found

    return asyncio.run(results())


def passes(kind: str, params: Mapping[str, Any], transcript: Transcript) -> bool:
    result = evaluate([Expectation(kind, kind, params)], transcript)[kind]
    assert result.outcome in {Outcome.PASSED, Outcome.FAILED}
    return result.outcome is Outcome.PASSED


def score_params(case: Mapping[str, Any], *, judged: bool) -> dict[str, Any]:
    """Return the params of the weighted score of a case, as its front end makes them."""
    expected = case["expected"]
    output = expected.get("output", {})
    return {
        "minScore": case["thresholds"]["min_score"],
        "judged": judged,
        "query": case["query"],
        "contains": output.get("contains"),
        "notContains": output.get("not_contains"),
        "regexPatterns": output.get("regex_patterns"),
        "jsonSchema": output.get("json_schema"),
    }


@pytest.mark.vectors("evalview.jsonl", "tool_accuracy")
def test_tool_accuracy(vector: Vector) -> None:
    expected, called = vector["input"]["expected"], vector["input"]["actual_tools"]
    transcript = said("q", "a", called)
    tools, names = expected.get("tools", []), expected.get("tool_categories", [])
    params = {
        "minScore": 0,
        "tools": tools,
        "toolCategories": {name: tools_of(name, None) for name in names},
    }

    score = evaluate([Expectation("weighted_score", "score", params)], transcript)["score"]

    missing = [tool for tool in tools if not passes("tool_called", {"tool": tool}, transcript)]
    unsatisfied = [
        name
        for name in names
        if not passes(
            "tool_category", {"category": name, "tools": tools_of(name, None)}, transcript
        )
    ]
    assert score.actual["toolAccuracy"] == vector["expected"]["accuracy"]
    assert missing == vector["expected"]["missing"]
    assert bool(unsatisfied) == ("CATEGORY_NOT_SATISFIED" in vector["expected"]["reason_codes"])


@pytest.mark.vectors("evalview.jsonl", "tool_accuracy")
def test_a_name_that_is_spelt_otherwise_is_told(vector: Vector) -> None:
    transcript = said("q", "a", vector["input"]["actual_tools"])
    tools = vector["input"]["expected"].get("tools", [])
    results = evaluate(
        [Expectation("tool_called", tool, {"tool": tool}) for tool in tools], transcript
    )
    hinted = any("spelt alike" in result.message for result in results.values())
    assert hinted == ("TOOL_NAME_MISMATCH" in vector["expected"]["reason_codes"])


@pytest.mark.vectors("evalview.jsonl", "forbidden_tools")
def test_forbidden_tools(vector: Vector) -> None:
    transcript = said("q", "a", vector["input"]["actual_tools"])
    tools = vector["input"]["forbidden_tools"]
    found = evaluate(
        [Expectation("forbidden_tool", tool, {"tool": tool}) for tool in tools], transcript
    )
    calls = {
        (call["index"], call["tool"]) for result in found.values() for call in result.actual or ()
    }
    assert (
        all(one.outcome is Outcome.PASSED for one in found.values())
        == (vector["expected"]["passed"])
    )
    assert (
        list(dict.fromkeys(tool for _, tool in sorted(calls))) == (vector["expected"]["violations"])
    )


@pytest.mark.vectors("evalview.jsonl", "sequence")
def test_sequence(vector: Vector) -> None:
    given = vector["input"]
    mode = SequenceMode(given["mode"].split()[0])
    progress = sequence_progress(given["expected_sequence"], given["actual"], mode)
    params = {"sequence": given["expected_sequence"], "mode": mode.value}
    result = evaluate([Expectation("tool_sequence", "s", params)], said("q", "", given["actual"]))
    assert progress.share == vector["expected"]["progress_score"] == result["s"].score
    assert (result["s"].outcome is Outcome.PASSED) == vector["expected"]["correct"]


@pytest.mark.vectors("evalview.jsonl", "contains")
def test_contains(vector: Vector) -> None:
    transcript = said("q", vector["input"]["output"])
    for kind in ("contains", "not_contains"):
        told: dict[str, list[str]] = {"passed": [], "failed": []}
        for text in vector["input"][kind]:
            told["passed" if passes(kind, {"text": text}, transcript) else "failed"].append(text)
        assert told == vector["expected"][kind]


@pytest.mark.vectors("evalview.jsonl", "regex", departures=DEPARTURES)
def test_regex(vector: Vector) -> None:
    transcript = said("q", vector["input"]["output"])
    told: dict[str, list[str]] = {"passed": [], "failed": []}
    for pattern in vector["input"]["regex_patterns"]:
        matches = passes("regex", {"pattern": pattern}, transcript)
        told["passed" if matches else "failed"].append(pattern)
    assert told == vector["expected"]


@pytest.mark.vectors("evalview.jsonl", "json_schema")
def test_json_schema(vector: Vector) -> None:
    transcript = said("q", vector["input"]["output"])
    schema = vector["input"]["json_schema"]
    assert passes("output_schema", {"schema": schema}, transcript) == vector["expected"]["passed"]


@pytest.mark.vectors("evalview.jsonl", "deterministic_score")
def test_deterministic_score(vector: Vector) -> None:
    case = vector["input"]
    transcript = said(case["query"], case["output"], case["actual_tools"])
    params = score_params(case, judged=False)
    score = evaluate([Expectation("weighted_score", "score", params)], transcript)["score"]
    assert score.actual["outputQuality"] == vector["expected"]["output_score"]
    assert score.actual["score"] == vector["expected"]["score"]
    assert (score.outcome is Outcome.PASSED) == vector["expected"]["passed"]


@pytest.mark.vectors("evalview.jsonl", "overall_score")
def test_overall_score(vector: Vector) -> None:
    given = vector["input"]
    if "error" in vector["expected"]:
        with pytest.raises(ValueError, match=vector["expected"]["error"]):
            Weights.of(given["weights"])
        return
    parts = (given["tool_accuracy"], given["output_quality"], given["sequence_progress"])
    score = overall_score(*parts, Weights.of(given["weights"]))
    assert score == vector["expected"]["score"]


@pytest.mark.vectors("evalview.jsonl", "pass_fail")
def test_pass_fail(vector: Vector) -> None:
    """Whatever fails by itself fails the test, at whatever score."""
    given = vector["input"]
    output = "Write to jo@example.com" if given["pii_passed"] is False else "An answer"
    transcript = Transcript(turns=(Turn("q", (Step(output, latency_ms=1000),)),))
    params = {
        "minScore": given["min_score"],
        "maxLatency": 1 if given["latency_passed"] is False else None,
        "pii": True,
        "judged": {"hallucination": "hallucination", "safety": "safety"},
    }
    found = {"weighted_score": (given["score"] / 100, {"score": given["score"]})}
    if given["hallucination_passed"] is False:
        found["hallucination"] = (0.0, {"confidence": 0.99})
    if given["safety_passed"] is False:
        found["safety"] = (0.0, {"phrases": ["dangerous_instructions"], "judge": None})
    earlier = [
        CheckResult(kind, kind, Outcome.PASSED, score=score, actual=actual)
        for kind, (score, actual) in found.items()
    ]
    context = CheckContext(Judge({"raise": "nobody"}), earlier=earlier)
    (result,) = asyncio.run(
        CheckRunner().evaluate(Expectation("evalview_verdict", "v", params), transcript, context)
    )
    assert (result.outcome is Outcome.PASSED) == vector["expected"]["passed"]
    assert len(result.actual["reasons"]) == 1


@pytest.mark.vectors("evalview.jsonl", "threshold")
def test_threshold(vector: Vector) -> None:
    given = vector["input"]
    assert within(given["value"], given["max"]) == vector["expected"]["passed"]


@pytest.mark.vectors("evalview.jsonl", "pii")
def test_pii(vector: Vector) -> None:
    output = vector["input"]["output"]
    found = [one.name for one in find_personal_data(output)]
    assert passes("no_pii", {}, said("q", output)) == vector["expected"]["passed"]
    assert list(dict.fromkeys(found)) == vector["expected"]["types"]


@pytest.mark.vectors("evalview.jsonl", "luhn")
def test_luhn(vector: Vector) -> None:
    assert passes_luhn(vector["input"]["digits"]) == vector["expected"]["valid"]


@pytest.mark.vectors("evalview.jsonl", "judge")
def test_the_verdict_with_a_judge(vector: Vector) -> None:
    """The original verdict, from checks that advise: `--compat evalview`."""
    case, expected = vector["input"], vector["expected"]
    hallucination = case["expected"].get("hallucination", {})
    safety = case["expected"].get("safety", {})
    transcript = said(case["query"], case["output"], case["actual_tools"])
    expectations = [
        Expectation(
            "safety",
            "safety",
            {
                "categories": safety.get("categories"),
                "severityThreshold": safety.get("severity_threshold", "medium"),
                "allowHarmful": safety.get("allow_harmful", False),
            },
        ),
        Expectation("weighted_score", "score", score_params(case, judged=True)),
    ]
    if expected["hallucination"] is not None:
        params = {"confidenceThreshold": hallucination.get("confidence_threshold", 0.8)}
        expectations.insert(0, Expectation("hallucination", "hallucination", params))
    verdict = {
        "minScore": case["thresholds"]["min_score"],
        "allowHallucination": hallucination.get("allow", False),
        "safety": expectations[-2].params,
        "judged": {"hallucination": "hallucination", "safety": "safety"},
    }
    expectations.append(Expectation("evalview_verdict", "verdict", verdict))

    results = evaluate(expectations, transcript, Judge(case["judge_replies"]))

    assert results["verdict"].actual["score"] == expected["score"]
    assert (results["verdict"].outcome is Outcome.PASSED) == expected["passed"]
    if results["score"].outcome is Outcome.INCONCLUSIVE:
        assert results["score"].failure_code is FailureCode.JUDGE_EVAL_ERROR
    else:
        assert results["score"].actual["outputQuality"] == expected["output_score"]
    if expected["hallucination"] is not None and expected["hallucination"]["has"]:
        found = results["hallucination"].actual["confidence"]
        assert found == expected["hallucination"]["confidence"]
    if expected["safety"]["categories"]:
        assert results["safety"].actual["phrases"] == expected["safety"]["categories"]
        assert results["safety"].actual["severity"] == expected["safety"]["severity"]


@pytest.mark.vectors("evalview.jsonl", "safety_patterns")
def test_safety_patterns(vector: Vector) -> None:
    transcript = said("q", vector["input"]["output"])
    judge = Judge({"score": 90})
    result = evaluate([Expectation("safety", "s", {})], transcript, judge)["s"]
    assert (result.outcome is Outcome.FAILED) == vector["expected"]["flagged"]
    assert result.actual["phrases"] == vector["expected"]["categories"]


@pytest.mark.vectors("evalview.jsonl", "multi_turn")
def test_multi_turn(vector: Vector) -> None:
    told = []
    for number, (wanted, actual) in enumerate(
        zip(vector["input"]["turns"], vector["input"]["actual"], strict=True), start=1
    ):
        if "expected" not in wanted:
            continue
        expected = wanted["expected"]
        output = expected.get("output", {})
        params = {
            "tools": expected.get("tools"),
            "forbiddenTools": expected.get("forbidden_tools"),
            "contains": output.get("contains"),
            "notContains": output.get("not_contains"),
        }
        found = look_at_turn(params, turn(wanted["query"], actual["output"], actual["tools"]))
        tools = len(expected.get("tools", ()))
        told.append(
            {
                "turn": number,
                "passed": found.passed,
                "tool_accuracy": 1 - len(found.missing) / tools if tools else None,
                "forbidden": list(found.forbidden),
                "contains_failed": list(found.lacking),
                "not_contains_failed": list(found.unwanted),
            }
        )
    assert told == vector["expected"]["turn_evaluations"]
    assert all(one["passed"] for one in told) == vector["expected"]["passed"]
