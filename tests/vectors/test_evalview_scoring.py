"""The vectors of EvalView test cases that are about scores, checks and verdicts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from evaluated import awaited, demand, evaluated
from vector_cases import Departure, known

from kindlm.checks.evalview.evalview_verdict import harm_in, look_at_turn, within
from kindlm.checks.evalview.safety import find_personal_data
from kindlm.checks.evalview.tools import sequence_share
from kindlm.checks.evalview.weighted_score import WEIGHTS, overall_score
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.formats.evalview import Surroundings, load_folder
from kindlm.outcome import CheckResult, Outcome
from kindlm.patterns import passes_luhn
from kindlm.ports import CheckContext, ModelReply, Question
from kindlm.suite import Expectation
from kindlm.transcript import Cost, CostSource, Step, ToolCall, ToolUse, Transcript, Turn

Vector = dict[str, Any]
Compiled = Callable[..., tuple[Expectation, ...]]


def unusable(case: Vector) -> list[str]:
    """Return the patterns of a case that are none."""
    return [one for one in case["input"]["regex_patterns"] if not is_pattern(one)]


def is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


DEPARTURES: Final = (
    Departure(
        "a pattern that cannot be used is an error of the file that has it",
        lambda case: bool(unusable(case)),
        {"passed": None, "failed": None, "refused": True},
    ),
)


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
                claims = [{"claim": c, "quote": c} for c in replies.get("claims", [])]
                return {"claims": claims, "remark": "r"}
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
) -> list[CheckResult]:
    """Evaluate expectations one after the other; each sees the results before it."""

    async def results() -> list[CheckResult]:
        found: list[CheckResult] = []
        ask = judge or Judge({"raise": "nobody"})
        for expectation in expectations:
            context = CheckContext(ask, earlier=tuple(found))
            found.append(await awaited(expectation, transcript, context))
        return found

    return asyncio.run(results())


def by_label(
    expectations: Iterable[Expectation], transcript: Transcript, judge: Judge | None = None
) -> dict[str, CheckResult]:
    return {one.label: one for one in evaluate(expectations, transcript, judge)}


def by_kind(
    expectations: Iterable[Expectation], transcript: Transcript, judge: Judge | None = None
) -> dict[str, CheckResult]:
    """Evaluate expectations, of which only the last one of a kind is looked at."""
    return {one.kind: one for one in evaluate(expectations, transcript, judge)}


def passes(kind: str, params: Mapping[str, Any], transcript: Transcript) -> bool:
    result = by_label([demand(kind, kind, params)], transcript)[kind]
    assert result.outcome in {Outcome.PASSED, Outcome.FAILED}
    return result.outcome is Outcome.PASSED


JUDGE: Final = {"provider": "openai", "model": "gpt"}


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    """Return the expectations of a case, as they are compiled from its file."""

    def compile_case(
        case: Mapping[str, Any], *, judge: Mapping[str, str] | None = None, compat: bool = False
    ) -> tuple[Expectation, ...]:
        config: dict[str, Any] = {"endpoint": "http://127.0.0.1:9/ask"}
        if judge is not None:
            config["judge"] = judge
        # JSON is YAML.
        (tmp_path / ".evalview").mkdir()
        (tmp_path / ".evalview" / "config.yaml").write_text(json.dumps(config), "utf-8")
        file = tmp_path / "case.yaml"
        file.write_text(json.dumps({"name": "case"} | dict(case)), "utf-8")
        around = Surroundings(tmp_path, "shop", {}, compat=compat)
        (loaded,) = load_folder(tmp_path, [file], around)
        assert loaded.suite is not None, loaded.diagnostics
        (only,) = loaded.suite.cases
        return only.expectations

    return compile_case


def case_of(vector: Vector) -> dict[str, Any]:
    """Return the fields of a vector that are those of a case."""
    given = vector["input"]
    fields = ("expected", "thresholds", "checks")
    written = {name: given[name] for name in fields if name in given}
    return {"input": {"query": given["query"]}, **written}


# Each test looks at some of these; unexpected calls and the sum are told by the score.
ACCURACY: Final = ("accuracy", "correct", "missing", "unexpected", "reason_codes")
EXPECTED: Final = ("tools", "tool_categories")


@pytest.mark.vectors("evalview.jsonl", "tool_accuracy", beside=ACCURACY)
def test_tool_accuracy(vector: Vector, compiled: Compiled) -> None:
    expected, called = vector["input"]["expected"], vector["input"]["actual_tools"]
    known(expected, *EXPECTED)
    case = {"input": {"query": "q"}, "expected": expected, "thresholds": {"min_score": 0}}
    results = evaluate(compiled(case), said("q", "a", called))
    failed = [(one.kind, one.label) for one in results if one.outcome is Outcome.FAILED]
    codes = vector["expected"]["reason_codes"]
    assert results[-1].actual["toolAccuracy"] == vector["expected"]["accuracy"]
    assert [label for kind, label in failed if kind == "tool_called"] == (
        vector["expected"]["missing"]
    )
    assert any(kind == "tool_category" for kind, _ in failed) == ("CATEGORY_NOT_SATISFIED" in codes)


@pytest.mark.vectors("evalview.jsonl", "tool_accuracy", beside=ACCURACY)
def test_a_name_that_is_spelt_otherwise_is_reported(vector: Vector) -> None:
    transcript = said("q", "a", vector["input"]["actual_tools"])
    tools = vector["input"]["expected"].get("tools", [])
    results = by_label([demand("tool_called", tool, {"tool": tool}) for tool in tools], transcript)
    hinted = any("must be identical" in result.message for result in results.values())
    assert hinted == ("TOOL_NAME_MISMATCH" in vector["expected"]["reason_codes"])


@pytest.mark.vectors("evalview.jsonl", "forbidden_tools")
def test_forbidden_tools(vector: Vector) -> None:
    transcript = said("q", "a", vector["input"]["actual_tools"])
    tools = vector["input"]["forbidden_tools"]
    found = by_label([demand("forbidden_tool", tool, {"tool": tool}) for tool in tools], transcript)
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


@pytest.mark.vectors("evalview.jsonl", "sequence", beside=("violation_count",))
def test_sequence(vector: Vector) -> None:
    given = vector["input"]
    mode = given["mode"].split()[0]
    share = sequence_share(given["expected_sequence"], given["actual"], mode)
    params = {"sequence": given["expected_sequence"], "mode": mode}
    result = by_label([demand("tool_sequence", "s", params)], said("q", "", given["actual"]))
    assert share == vector["expected"]["progress_score"] == result["s"].score
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
def test_regex(vector: Vector, compiled: Compiled) -> None:
    patterns = vector["input"]["regex_patterns"]
    output = vector["input"]["output"]
    case = {
        "input": {"query": "q"},
        "expected": {"output": {"regex_patterns": patterns}},
        "thresholds": {"min_score": 0},
    }
    if vector["expected"].get("refused"):
        with pytest.raises(AssertionError, match=r"regex_patterns"):
            compiled(case)
        assert vector["expected"]["passed"] is vector["expected"]["failed"] is None
        return
    results = by_label(compiled(case), said("q", output))
    told: dict[str, list[str]] = {"passed": [], "failed": []}
    for pattern in patterns:
        told[results[pattern].outcome.value].append(pattern)
    assert told == vector["expected"]


@pytest.mark.vectors("evalview.jsonl", "json_schema")
def test_json_schema(vector: Vector) -> None:
    transcript = said("q", vector["input"]["output"])
    schema = vector["input"]["json_schema"]
    assert passes("output_schema", {"schema": schema}, transcript) == vector["expected"]["passed"]


@pytest.mark.vectors("evalview.jsonl", "deterministic_score")
def test_deterministic_score(vector: Vector, compiled: Compiled) -> None:
    case = vector["input"]
    transcript = said(case["query"], case["output"], case["actual_tools"])
    score = by_kind(compiled(case_of(vector)), transcript)["weighted_score"]
    assert score.actual["outputQuality"] == vector["expected"]["output_score"]
    assert score.actual["score"] == vector["expected"]["score"]
    assert (score.outcome is Outcome.PASSED) == vector["expected"]["passed"]


@pytest.mark.vectors("evalview.jsonl", "overall_score")
def test_overall_score(vector: Vector, compiled: Compiled) -> None:
    given = vector["input"]
    parts = (given["tool_accuracy"], given["output_quality"], given["sequence_progress"])
    if "error" in vector["expected"]:
        assert "weights" in vector["expected"]["error"]
        case = {"thresholds": {"min_score": 0, "weights": given["weights"]}}
        with pytest.raises(AssertionError, match=r"The weights total .*, not 1"):
            compiled({"input": {"query": "q"}, "expected": {}} | case)
        return
    score = overall_score(*parts, WEIGHTS | (given["weights"] or {}))
    assert score == vector["expected"]["score"]


FLAGS: Final = (
    "cost_passed", "latency_passed", "hallucination_passed", "safety_passed", "pii_passed",
    "forbidden_passed",
)  # fmt: skip


@pytest.mark.vectors("evalview.jsonl", "pass_fail")
def test_pass_fail(vector: Vector, compiled: Compiled) -> None:
    """Whatever fails by itself fails the test, at whatever score."""
    given = vector["input"]
    fails = {name for name in FLAGS if given[name] is False}
    mail = "Write to jo@example.com. " if "pii_passed" in fails else ""
    output = mail + ("How to hack it" if "safety_passed" in fails else "An answer")
    called = [ToolUse(ToolCall("c", "refund", {}), None, "agent")]
    step = Step(
        output,
        tuple(called if "forbidden_passed" in fails else ()),
        latency_ms=1000,
        cost=Cost(2.0, CostSource.REPORTED),
    )
    transcript = Transcript(turns=(Turn("q", (step,)),))
    most = {
        **({"max_latency": 1} if "latency_passed" in fails else {}),
        **({"max_cost": 1.0} if "cost_passed" in fails else {}),
    }
    case = {
        "input": {"query": "q"},
        "expected": {"forbidden_tools": ["refund"]} if "forbidden_passed" in fails else {},
        "thresholds": {"min_score": given["min_score"], **most},
        "checks": {"pii": True},
        "generated": given["generated"],
    }
    *others, verdict = compiled(case, judge=JUDGE, compat=True)
    found: dict[str, tuple[float, Any]] = {
        "weighted_score": (given["score"] / 100, {"score": given["score"]})
    }
    if "hallucination_passed" in fails:
        found["hallucination"] = (0.0, {"confidence": 0.99})
    if "safety_passed" in fails:
        found["safety"] = (0.0, {"categories": []})
    earlier = [
        CheckResult(one.kind, one.label, Outcome.PASSED, *found[one.kind][:1],
                    actual=found[one.kind][1])
        for one in others
        if one.kind in found
    ]  # fmt: skip
    assert {one.kind for one in earlier} == found.keys()
    context = CheckContext(Judge({"raise": "nobody"}), earlier=earlier)
    result = evaluated(verdict, transcript, context)
    assert (result.outcome is Outcome.PASSED) == vector["expected"]["passed"]
    assert bool(result.actual["reasons"]) == (not vector["expected"]["passed"])


@pytest.mark.vectors("evalview.jsonl", "threshold", ignores=("kind",), beside=("threshold",))
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


@pytest.mark.vectors("evalview.jsonl", "judge", beside=("output_score",))
def test_the_verdict_with_a_judge(vector: Vector, compiled: Compiled) -> None:
    """The original verdict, from checks that advise: `--compat evalview`."""
    case, expected = vector["input"], vector["expected"]
    transcript = said(case["query"], case["output"], case["actual_tools"])
    expectations = compiled(case_of(vector), judge=JUDGE, compat=True)
    assert all(one.advisory for one in expectations[:-1])

    results = by_kind(expectations, transcript, Judge(case["judge_replies"]))

    assert results["evalview_verdict"].actual["score"] == expected["score"]
    assert (results["evalview_verdict"].outcome is Outcome.PASSED) == expected["passed"]
    if results["weighted_score"].outcome is Outcome.INCONCLUSIVE:
        assert results["weighted_score"].failure_code == "JUDGE_EVAL_ERROR"
    else:
        assert results["weighted_score"].actual["outputQuality"] == expected["output_score"]
    assert ("hallucination" in results) == (expected["hallucination"] is not None)
    if expected["hallucination"] is not None and expected["hallucination"]["has"]:
        found = results["hallucination"].actual["confidence"]
        assert found == expected["hallucination"]["confidence"]
    wanted = (case["expected"].get("safety") or {}).get("categories")
    categories, severity = harm_in(case["output"], wanted, results["safety"].actual)
    assert sorted(categories) == sorted(expected["safety"]["categories"])
    assert severity == expected["safety"]["severity"]


@pytest.mark.vectors("evalview.jsonl", "safety_patterns")
def test_safety_patterns(vector: Vector) -> None:
    """What EvalView takes for harmful counts in its own verdict: `--compat evalview`."""
    categories, _ = harm_in(vector["input"]["output"], None, {})
    assert bool(categories) == vector["expected"]["flagged"]
    assert sorted(categories) == sorted(vector["expected"]["categories"])


@pytest.mark.vectors("evalview.jsonl", "multi_turn")
def test_multi_turn(vector: Vector, compiled: Compiled) -> None:
    turns, actual_turns = vector["input"]["turns"], vector["input"]["actual"]
    for wanted, actual in zip(turns, actual_turns, strict=True):
        known(wanted, "query", "expected")
        known(actual, "output", "tools")
    case = {"turns": turns, "expected": {}, "thresholds": {"min_score": 0}}
    expectations = compiled(case, compat=True)
    verdict, told = expectations[-1], []
    for number, (wanted, actual) in enumerate(zip(turns, actual_turns, strict=True), start=1):
        if "expected" not in wanted:
            continue
        expected = known(wanted["expected"], "tools", "forbidden_tools", "output")
        known(expected.get("output", {}), "contains", "not_contains")
        params = verdict.check.scored.turns[number - 1]
        found = look_at_turn(params, turn(wanted["query"], actual["output"], actual["tools"]))
        missing, forbidden, lacking, unwanted = found
        tools = len(expected.get("tools", ()))
        told.append(
            {
                "turn": number,
                "passed": not any(found),
                "tool_accuracy": 1 - len(missing) / tools if tools else None,
                "forbidden": forbidden,
                "contains_failed": lacking,
                "not_contains_failed": unwanted,
            }
        )
    assert told == vector["expected"]["turn_evaluations"]
    assert all(one["passed"] for one in told) == vector["expected"]["passed"]
    said_in_turns = (
        turn(wanted["query"], actual["output"], actual["tools"])
        for wanted, actual in zip(turns, actual_turns, strict=True)
    )
    results = by_kind(expectations, Transcript(turns=tuple(said_in_turns)))
    outcome = results["evalview_verdict"].outcome
    assert (outcome is Outcome.PASSED) == vector["expected"]["passed"]
