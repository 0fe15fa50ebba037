"""The vectors of suites that are about checks and simulated tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pytest

from kindlm.checks import CheckRunner
from kindlm.checks.judge_answers import parse_judgement
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import CheckContext, ModelReply, Question
from kindlm.simulation import SimulatedTools
from kindlm.suite import Expectation, SimulatedTool, ToolAnswer
from kindlm.transcript import Cost, CostSource, Step, ToolCall, ToolUse, Transcript, Turn

Vector = dict[str, Any]


@dataclass(frozen=True)
class Departure:
    """Where kindlm decides otherwise than a vector, and the rule that says so."""

    rule: str
    codes: frozenset[str] = frozenset()


DEPARTURES: Final = {
    "assertion/output-004": Departure(
        "every expectation is an assertion of its own: none hides another",
        frozenset({"SCHEMA_PARSE_ERROR", "CONTAINS_FAILED"}),
    ),
    "assertion/output-006": Departure("one surrounding code fence is stripped and noted"),
    "assertion/output-022": Departure("length counts characters, not UTF-16 units"),
    "assertion/pii-018": Departure("the card pattern counts only with a valid check digit"),
    "assertion/toolCalls-025": Departure("with argsMatch, only a call that matches is unexpected"),
    "assertion/toolCalls-036": Departure(
        "one call satisfies all parts together", frozenset({"TOOL_CALL_ORDER_WRONG"})
    ),
    "assertion/latency-004": Departure(
        "what was not reported is not 0: nobody knows", frozenset({"ASSERTION_EVAL_ERROR"})
    ),
}

SIMULATION_DEPARTURES: Final = {
    "tool_sim-013": ("extra keys are allowed at every level", ["hit"]),
    "tool_sim-014": ("the order of keys never matters", ["hit"]),
}

# The same failure by another name: what a judge answered cannot be read, or it did not answer; an
# answer that came too late for the test is not one that never came.
SAME_CODE: Final = {
    "JUDGE_PARSE_ERROR": "JUDGE_EVAL_ERROR",
    "PROVIDER_TIMEOUT": "LATENCY_EXCEEDED",
}

DEFAULT_PII: Final = [
    r"\b\d{3}-\d{2}-\d{4}\b",
    r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b",
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b",
]


class Judge:
    """Gives the replies of a vector in turn, the last one again and again."""

    def __init__(self, replies: list[dict[str, str]]) -> None:
        self.asked: list[Question] = []
        self._replies = replies

    async def __call__(self, question: Question) -> Result[ModelReply]:
        self.asked.append(question)
        reply = self._replies[min(len(self.asked), len(self._replies)) - 1]
        if "throw" in reply:
            return Err(KindlmError(ErrorCode.PROVIDER_API_ERROR, reply["throw"]))
        return Ok(ModelReply(reply["text"], reply["text"], 1.0))


def evaluate(
    expectations: list[Expectation], transcript: Transcript, judge: Judge
) -> list[CheckResult]:
    async def results() -> list[CheckResult]:
        runner, context = CheckRunner(), CheckContext(judge)
        return [
            result
            for expectation in expectations
            for result in await runner.evaluate(expectation, transcript, context)
        ]

    return asyncio.run(results())


def expectations_of(vector: Vector) -> Iterator[Expectation]:
    expect = vector["input"]["expect"]
    defaults = {"minScore": 0.7, "passes": 3 if vector["input"].get("multi_pass") else 1}
    for kind, params in [
        *output_params(expect.get("output", {}), vector["input"].get("json_schema")),
        *guardrail_params(expect.get("guardrails", {})),
        *[tool_params(call) for call in expect.get("toolCalls", [])],
        *[("judge", defaults | criterion) for criterion in expect.get("judge", [])],
        *[(kind, expect[kind]) for kind in ("latency", "cost") if kind in expect],
    ]:
        yield Expectation(kind, kind, params)


def output_params(output: dict[str, Any], schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if output.get("format") == "json":
        yield "schema", {"schema": schema, "schemaFile": output["schemaFile"]}
    for text in output.get("contains", []):
        yield "contains", {"text": text}
    for text in output.get("notContains", []):
        yield "not_contains", {"text": text}
    if "maxLength" in output:
        yield "max_length", {"max": output["maxLength"]}


def guardrail_params(guardrails: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "pii" in guardrails:
        yield "pii", {"denyPatterns": DEFAULT_PII} | guardrails["pii"]
    keywords = guardrails.get("keywords", {})
    for word in keywords.get("deny", []):
        yield "keywords_deny", {"word": word}
    if keywords.get("allow"):
        yield "keywords_allow", {"words": keywords["allow"]}


def tool_params(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return ("tool_not_called" if call.get("shouldNotCall") else "tool_called"), call


def transcript_of(vector: Vector) -> Transcript:
    context = vector["input"].get("context", {})
    uses = tuple(
        ToolUse(ToolCall(f"call_{n}", call["name"], call["arguments"]), call.get("response"), "x")
        for n, call in enumerate(context.get("toolCalls", []))
    )
    if vector["area"] == "assertion/latency" and "latencyMs" not in context:
        return Transcript()
    usd = context.get("costUsd")
    step = Step(
        context.get("outputText", ""),
        uses,
        cost=Cost() if usd is None else Cost(usd, CostSource.COMPUTED),
        latency_ms=context.get("latencyMs", 0.0),
    )
    return Transcript(turns=(Turn("", (step,)),))


def codes_of(results: list[CheckResult]) -> set[str]:
    return {result.failure_code.value for result in results if result.failure_code is not None}


def expected_codes(vector: Vector) -> set[str]:
    departure = DEPARTURES.get(vector["id"])
    if departure is not None:
        return set(departure.codes)
    codes = {result["code"] for result in vector["expected"]["results"] if "code" in result}
    return {SAME_CODE.get(code, code) for code in codes}


def check_verdict(vector: Vector, results: list[CheckResult]) -> None:
    assert codes_of(results) == expected_codes(vector)
    passed = all(result.outcome is Outcome.PASSED for result in results)
    assert passed == (not expected_codes(vector))
    if vector["id"] not in DEPARTURES:
        assert passed == vector["expected"]["passed"]
    for result in results:
        if result.outcome is Outcome.INCONCLUSIVE:
            assert result.score is None


@pytest.mark.vectors("suite.jsonl", "assertion/output", "assertion/keywords", "assertion/toolCalls")
def test_verdicts(vector: Vector) -> None:
    results = evaluate(list(expectations_of(vector)), transcript_of(vector), Judge([]))

    check_verdict(vector, results)
    for expected in vector["expected"]["results"]:
        if "arg_diffs" in expected:
            check_differences(results, expected["arg_diffs"])


@pytest.mark.vectors("suite.jsonl", "assertion/latency", "assertion/cost")
def test_limits(vector: Vector) -> None:
    check_verdict(vector, evaluate(list(expectations_of(vector)), transcript_of(vector), Judge([])))


def check_differences(results: list[CheckResult], arg_diffs: dict[str, Any]) -> None:
    (result,) = (result for result in results if result.outcome is Outcome.FAILED)
    expected, actual = result.expected["argsMatch"], result.actual["arguments"]
    differing = {difference.path.split("[")[0] for difference in mismatches(expected, actual)}
    assert differing == arg_diffs.keys()
    for name, difference in arg_diffs.items():
        assert expected[name] == difference["expected"]
        assert actual.get(name) == difference.get("received")


@pytest.mark.vectors("suite.jsonl", "assertion/pii")
def test_personal_data(vector: Vector) -> None:
    if "pattern" in vector["input"]:
        custom = [{"name": "p", "pattern": vector["input"]["pattern"]}]
        expectation = Expectation("pii", "pii", {"customPatterns": custom})
        (result,) = evaluate([expectation], transcript_of(vector), Judge([]))
        assert (result.outcome is Outcome.INCONCLUSIVE) == vector["expected"]["rejected"]
        return
    results = evaluate(list(expectations_of(vector)), transcript_of(vector), Judge([]))

    check_verdict(vector, results)
    if vector["id"] not in DEPARTURES:
        (expected,), (result,) = vector["expected"]["results"], results
        found = [{"name": item.name, "redacted": item.excerpt} for item in result.evidence]
        assert found == expected.get("matches", [])


@pytest.mark.vectors("suite.jsonl", "assertion/judge")
def test_judge(vector: Vector) -> None:
    if "expect" not in vector["input"]:
        pytest.skip("a judge is always configured: the first model, if no other")
    several = vector["input"].get("multi_pass")
    replies = vector["input"]["judge_replies"]
    judge = Judge(for_each_pass(replies) if several else replies)

    (result,) = evaluate(list(expectations_of(vector)), transcript_of(vector), judge)

    if several:
        check_median(vector, result)
    else:
        check_verdict(vector, [result])
        lost = result.outcome is Outcome.INCONCLUSIVE
        assert len(judge.asked) == (2 if lost else vector["expected"]["judge_calls"])
        assert lost or result.score == vector["expected"]["results"][0]["score"]
    asked_for = vector["input"]["expect"]["judge"][0].get("model")
    assert {question.model for question in judge.asked} == {asked_for}


def for_each_pass(replies: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return replies so that each is that of one pass: who gives no judgement is asked again."""
    return [reply for reply in replies for _ in range(1 if is_judgement(reply) else 2)]


def is_judgement(reply: dict[str, str]) -> bool:
    try:
        parse_judgement(reply.get("text", ""))
    except ValueError:
        return False
    return True


def check_median(vector: Vector, result: CheckResult) -> None:
    """Hold a judge of several passes to a vector, and to two rules where vectors differ.

    The median of an even number of scores is the mean of the middle two, not the upper one; half
    of the passes or less decide nothing.
    """
    found = vector["expected"]["results"][0].get("multi_pass", {"passes": 3, "scores": []})
    decided = 2 * len(found["scores"]) > found["passes"]
    assert (result.outcome is not Outcome.INCONCLUSIVE) == decided
    assert result.score == (pytest.approx(median(found["scores"])) if decided else None)
    if not decided:
        assert codes_of([result]) == {"JUDGE_EVAL_ERROR"}
    elif result.score == vector["expected"]["results"][0]["score"]:
        check_verdict(vector, [result])


def simulated_tool(tool: dict[str, Any]) -> SimulatedTool:
    answers = tuple(ToolAnswer(rule["when"], rule["then"]) for rule in tool.get("responses", []))
    has_default = "defaultResponse" in tool
    default = tool.get("defaultResponse")
    return SimulatedTool(tool["name"], answers=answers, default=default, has_default=has_default)


@pytest.mark.vectors("suite.jsonl", "tool_sim")
def test_simulated_tools(vector: Vector) -> None:
    simulator = SimulatedTools([simulated_tool(tool) for tool in vector["input"]["tools"]])
    calls = [
        ToolCall(call["id"], call["name"], call["arguments"])
        for response in vector["input"]["model_responses"]
        for call in response.get("toolCalls", [])
    ]

    answers = [asyncio.run(simulator.answer(call)).response for call in calls]

    seen = [item["content"] for item in vector["expected"]["tool_messages_seen_by_last_request"]]
    if vector["id"] in SIMULATION_DEPARTURES:
        _, seen = SIMULATION_DEPARTURES[vector["id"]]
    for expected, answer, call in zip(seen, answers, calls, strict=False):
        if isinstance(expected, dict) and "$error_object" in expected:
            assert call.name in answer["error"]
        else:
            assert answer == expected
