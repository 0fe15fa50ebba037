"""The vectors of suites that are about checks and simulated tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import jsonschema
import pytest
from evaluated import awaited, demand
from vector_cases import Departure, NoCounterpart, known, unknown

from kindlm.checks import CheckRunner
from kindlm.checks.judge import judgement
from kindlm.engine.simulation import SimulatedTools
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, Outcome
from kindlm.patterns import DEFAULT_PATTERNS
from kindlm.ports import CheckContext, ModelReply, Question
from kindlm.suite import Expectation, SimulatedTool, ToolAnswer
from kindlm.transcript import Cost, CostSource, Step, ToolCall, ToolUse, Transcript, Turn

Vector = dict[str, Any]


def failing_codes(case: Vector) -> list[str]:
    return [result["code"] for result in case["expected"]["results"] if not result["passed"]]


def verdict(*codes: str) -> Vector:
    """Return what is expected of checks that fail with these codes, or pass."""
    failed = [{"passed": False, "code": code} for code in codes]
    return {"passed": not codes, "results": failed or [{"passed": True}]}


def output_of(case: Vector) -> tuple[Vector, str]:
    return case["input"]["expect"]["output"], case["input"]["context"]["outputText"]


def text_codes(case: Vector) -> Iterator[str]:
    """Yield how the demands on the text fail that do not ask whether it is JSON."""
    wanted, text = output_of(case)
    for word in wanted.get("contains", ()):
        if word.casefold() not in text.casefold():
            yield "CONTAINS_FAILED"
    for word in wanted.get("notContains", ()):
        if word.casefold() in text.casefold():
            yield "NOT_CONTAINS_FAILED"
    if "maxLength" in wanted and len(text) > wanted["maxLength"]:
        yield "MAX_LENGTH_EXCEEDED"


def fenced_json(case: Vector) -> list[Any]:
    """Return the value in the code fence around a whole text, if there is one."""
    fence = re.fullmatch(r"\s*```\w*\n(.*?)\n?```\s*", output_of(case)[1], re.DOTALL)
    try:
        return [json.loads(fence[1])] if fence else []
    except ValueError:
        return []


def fenced_codes(case: Vector) -> list[str]:
    (value,) = fenced_json(case)
    schema = jsonschema.Draft202012Validator(case["input"].get("json_schema", {}))
    return [*([] if schema.is_valid(value) else ["SCHEMA_INVALID"]), *text_codes(case)]


def is_card_without_check_digit(case: Vector) -> bool:
    """Tell whether all that was found is numbers like those of cards that are none."""
    if {match["name"] for match in case["expected"]["results"][0]["matches"]} != {CARD}:
        return False
    numbers = re.findall(SIXTEEN_DIGITS, case["input"]["context"]["outputText"])
    return not any(has_check_digit(re.sub(r"\D", "", number)) for number in numbers)


def has_check_digit(digits: str) -> bool:
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def is_spared_by_arguments(case: Vector) -> bool:
    """Tell whether a call is forbidden with arguments that no call has."""
    calls = case["input"]["context"]["toolCalls"]
    return all(
        entry["shouldNotCall"]
        and entry["argsMatch"]
        and not any(
            call["name"] == entry["tool"] and holds(entry["argsMatch"], call["arguments"])
            for call in calls
        )
        for entry in case["input"]["expect"]["toolCalls"]
    )


def is_another_in_its_place(case: Vector) -> bool:
    """Tell whether the call with these arguments is not the one in this place."""
    (entry,) = case["input"]["expect"]["toolCalls"]
    calls = case["input"]["context"]["toolCalls"]
    place = calls[entry["order"]]
    matching = [call for call in calls if holds(entry["argsMatch"], call["arguments"])]
    return (
        place["name"] == entry["tool"]
        and place not in matching
        and any(call["name"] == entry["tool"] for call in matching)
    )


def holds(expected: Any, actual: Any) -> bool:
    """Tell whether a value matches, by the rules of the one matcher, written a second time."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(name in actual and holds(expected[name], actual[name]) for name in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(holds, expected, actual))
    return isinstance(expected, bool) == isinstance(actual, bool) and bool(expected == actual)


CARD: Final = "pii-pattern-2"
THEIR_NAMES: Final = {"ssn": "pii-pattern-1", "credit card": CARD, "email": "pii-pattern-3"}
SIXTEEN_DIGITS: Final = r"\b(?:\d{4}[\s-]?){3}\d{4}\b"

DEPARTURES: Final = (
    Departure(
        "every expectation is an assertion of its own: none hides another",
        lambda case: failing_codes(case) == ["SCHEMA_PARSE_ERROR"] and not fenced_json(case),
        lambda case: (
            verdict("SCHEMA_PARSE_ERROR", *text_codes(case)) if any(text_codes(case)) else {}
        ),
    ),
    Departure(
        "one surrounding code fence is stripped and noted",
        lambda case: failing_codes(case) == ["SCHEMA_PARSE_ERROR"] and bool(fenced_json(case)),
        lambda case: verdict(*fenced_codes(case)),
    ),
    Departure(
        "length counts characters, not UTF-16 units",
        lambda case: failing_codes(case) == ["MAX_LENGTH_EXCEEDED"] and not [*text_codes(case)],
        lambda case: verdict(),
    ),
    Departure(
        "the card pattern counts only with a valid check digit",
        is_card_without_check_digit,
        lambda case: verdict(),
    ),
    Departure(
        "with argsMatch, only a call that matches is unexpected",
        is_spared_by_arguments,
        lambda case: verdict(),
    ),
    Departure(
        "one call satisfies all parts together",
        is_another_in_its_place,
        lambda case: verdict("TOOL_CALL_ORDER_WRONG"),
    ),
    Departure(
        "what was not reported is not 0: nobody knows",
        lambda case: (
            case["area"] == "assertion/latency" and "latencyMs" not in case["input"]["context"]
        ),
        lambda case: verdict("ASSERTION_EVAL_ERROR"),
    ),
)


def simulated_answers(case: Vector) -> list[Any]:
    """Return what the simulated tools of a case answer, by the rules of the one matcher."""
    answers = {
        call["id"]: answer_of(tool, call["arguments"])
        for response in case["input"]["model_responses"]
        for call in response.get("toolCalls", ())
        for tool in case["input"]["tools"]
        if tool["name"] == call["name"]
    }
    return [
        {**message, "content": answers.get(message["call_id"], message["content"])}
        for message in case["expected"]["tool_messages_seen_by_last_request"]
    ]


def answer_of(tool: Vector, arguments: Vector) -> Any:
    for rule in tool.get("responses", ()):
        if holds(rule["when"], arguments):
            return rule["then"]
    return tool["defaultResponse"]


SIMULATION_DEPARTURES: Final = (
    Departure(
        "one matcher: extra keys are allowed at every level, and their order never matters",
        lambda case: any(
            isinstance(value, (dict, list))
            for tool in case["input"]["tools"]
            for rule in tool.get("responses", ())
            for value in rule["when"].values()
        ),
        lambda case: {"tool_messages_seen_by_last_request": simulated_answers(case)},
    ),
)

# The same failure by another name: what a judge answered cannot be read, or it did not answer; an
# answer that came too late for the test is not one that never came.
SAME_CODE: Final = {
    "JUDGE_PARSE_ERROR": "JUDGE_EVAL_ERROR",
    "PROVIDER_TIMEOUT": "LATENCY_EXCEEDED",
}


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
        return [await awaited(one, transcript, context, runner) for one in expectations]

    return asyncio.run(results())


def expectations_of(vector: Vector) -> Iterator[Expectation]:
    expect = known(vector["input"]["expect"], *EXPECT)
    defaults = {"minScore": 0.7, "passes": 3 if vector["input"].get("multi_pass") else 1}
    for kind, params in [
        *output_params(expect.get("output", {}), vector["input"].get("json_schema")),
        *guardrail_params(expect.get("guardrails", {})),
        *[tool_params(call) for call in expect.get("toolCalls", [])],
        *[("judge", defaults | criterion) for criterion in expect.get("judge", [])],
        *[(kind, expect[kind]) for kind in ("latency", "cost") if kind in expect],
    ]:
        yield demand(kind, kind, params)


EXPECT: Final = ("output", "guardrails", "toolCalls", "judge", "latency", "cost")


def output_params(output: dict[str, Any], schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    known(output, "format", "schemaFile", "contains", "notContains", "maxLength")
    if output.get("format") == "json":
        if "schemaFile" in output and schema is None:
            unknown("no json_schema")
        yield "schema", {"schema": schema, "schemaFile": output.get("schemaFile")}
    for text in output.get("contains", []):
        yield "contains", {"text": text}
    for text in output.get("notContains", []):
        yield "not_contains", {"text": text}
    if "maxLength" in output:
        yield "max_length", {"max": output["maxLength"]}


def guardrail_params(guardrails: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    known(guardrails, "pii", "keywords")
    if "pii" in guardrails:
        pii = known(guardrails["pii"], "enabled", "denyPatterns", "customPatterns")
        # What the format looks for by itself is kindlm's: a copy would hold nothing of it.
        yield "pii", {"denyPatterns": [*DEFAULT_PATTERNS]} | pii
    keywords = known(guardrails.get("keywords", {}), "deny", "allow")
    for word in keywords.get("deny", []):
        yield "keywords_deny", {"text": word}
    if keywords.get("allow"):
        yield "keywords_allow", {"texts": keywords["allow"]}


def tool_params(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if "schema" in call or isinstance(call.get("argsSchema"), str):
        unknown("argsSchema in a file")
    known(call, *TOOL_CALL)
    if not call.get("shouldNotCall"):
        return "tool_called", {key: call[key] for key in call if key != "shouldNotCall"}
    return "tool_not_called", {key: call[key] for key in ("tool", "argsMatch") if key in call}


TOOL_CALL: Final = (
    "tool", "shouldNotCall", "argsMatch", "argsSchema", "order", "responseContains",
    "count", "before", "after",
)  # fmt: skip


def transcript_of(vector: Vector) -> Transcript:
    # A judge is shown nothing by these cases, and a pattern is refused whatever the text.
    spoken = {"judge_replies", "pattern"}.isdisjoint(vector["input"])
    context = known(
        vector["input"]["context"] if spoken else {},
        "outputText",
        "toolCalls",
        "latencyMs",
        "costUsd",
    )
    uses = tuple(
        ToolUse(ToolCall(f"call_{n}", call["name"], call["arguments"]), call.get("response"), "x")
        for n, call in enumerate(context.get("toolCalls", []))
        if known(call, "id", "name", "arguments", "response", "index")
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
    return {result.failure_code for result in results if result.failure_code is not None}


def expected_codes(vector: Vector) -> set[str]:
    codes = {result["code"] for result in vector["expected"]["results"] if "code" in result}
    return {SAME_CODE.get(code, code) for code in codes}


def check_verdict(vector: Vector, results: list[CheckResult]) -> None:
    assert codes_of(results) == expected_codes(vector)
    passed = all(result.outcome is Outcome.PASSED for result in results)
    assert passed == vector["expected"]["passed"]
    for result in results:
        if result.outcome is Outcome.INCONCLUSIVE:
            assert result.score is None


@pytest.mark.vectors(
    "suite.jsonl",
    "assertion/output",
    "assertion/keywords",
    "assertion/toolCalls",
    departures=DEPARTURES,
)
def test_verdicts(vector: Vector) -> None:
    results = evaluate(list(expectations_of(vector)), transcript_of(vector), Judge([]))

    check_verdict(vector, results)
    for expected in vector["expected"]["results"]:
        if "arg_diffs" in expected:
            check_differences(results, expected["arg_diffs"])


@pytest.mark.vectors("suite.jsonl", "assertion/latency", "assertion/cost", departures=DEPARTURES)
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


@pytest.mark.vectors("suite.jsonl", "assertion/pii", departures=DEPARTURES)
def test_personal_data(vector: Vector) -> None:
    if "pattern" in vector["input"]:
        custom = [{"name": "p", "pattern": vector["input"]["pattern"]}]
        expectation = demand("pii", "pii", {"customPatterns": custom})
        (result,) = evaluate([expectation], transcript_of(vector), Judge([]))
        assert (result.outcome is Outcome.INCONCLUSIVE) == vector["expected"]["rejected"]
        return
    results = evaluate(list(expectations_of(vector)), transcript_of(vector), Judge([]))

    check_verdict(vector, results)
    for expected, result in zip(vector["expected"]["results"], results, strict=True):
        found = [
            {"name": THEIR_NAMES.get(item.name or "", item.name), "redacted": item.excerpt}
            for item in result.evidence
        ]
        assert found == expected.get("matches", [])


@pytest.mark.vectors("suite.jsonl", "assertion/judge", beside=("request", "judge_calls", "passed"))
def test_judge(vector: Vector) -> None:
    if "expect" not in vector["input"]:
        raise NoCounterpart("a judge is always configured: the first model, if no other")
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
        judgement().read(reply.get("text", ""))
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
    known(tool, "name", "description", "parameters", "responses", "defaultResponse")
    answers = tuple(ToolAnswer(rule["when"], rule["then"]) for rule in tool.get("responses", []))
    has_default = "defaultResponse" in tool
    default = tool.get("defaultResponse")
    return SimulatedTool(tool["name"], answers=answers, default=default, has_default=has_default)


@pytest.mark.vectors(
    "suite.jsonl",
    "tool_sim",
    departures=SIMULATION_DEPARTURES,
    beside=(
        "final_text",
        "final_text_starts_with",
        "latency_ms",
        "provider_calls",
        "roles_in_last_request",
        "tool_calls",
        "truncated",
        "usage",
    ),
)
def test_simulated_tools(vector: Vector) -> None:
    simulator = SimulatedTools([simulated_tool(tool) for tool in vector["input"]["tools"]])
    calls = [
        ToolCall(call["id"], call["name"], call["arguments"])
        for response in vector["input"]["model_responses"]
        for call in response.get("toolCalls", [])
    ]

    answers = [asyncio.run(simulator.answer(call)).use.response for call in calls]

    seen = [item["content"] for item in vector["expected"]["tool_messages_seen_by_last_request"]]
    for expected, answer, call in zip(seen, answers, calls, strict=False):
        if isinstance(expected, dict) and "$error_object" in expected:
            assert call.name in answer["error"]
        else:
            assert answer == expected
