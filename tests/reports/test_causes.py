"""How failures are grouped by cause: by what was demanded, never by what a model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, ScoreLimits
from kindlm.reports.causes import Cause, causes_of, own_frame
from kindlm.reports.conversation import is_in_message


@pytest.fixture
def causes(history: Any, make: Any) -> Any:
    """Return the causes of a run, of which each test has one execution with these assertions."""

    def found(*tests: dict[str, Any]) -> list[Cause]:
        run = history.run()
        run.suite(tests=[make.planned(f"test {index}") for index, _ in enumerate(tests)])
        for index, fields in enumerate(tests):
            run.execution(f"test {index}", **fields)
        view: RunView = run.finish()
        return causes_of(view, view.tests())

    return found


@pytest.mark.parametrize(("tries", "told"), [(1, ""), (2, ", after 2 tries")])
def test_tries_are_those_of_the_agent_not_of_the_models_that_it_calls(
    causes: Any, make: Any, tries: int, told: str
) -> None:
    refused = ("PROVIDER_RATE_LIMIT", 202, "Too many requests.", None)
    failures = (make.provider_failed(),) * tries
    (cause,) = causes({"failures": failures, "models_failed": 2, "output": None, "error": refused})
    assert dict(cause.rows)["error"] == f"PROVIDER_RATE_LIMIT (202){told}"


def wrong_amount(make: Any, amount: float, **arguments: Any) -> Any:
    return make.failed(
        "tool_called",
        "refund",
        "TOOL_CALL_ARGS_MISMATCH",
        f"No call to refund matches; call 0: amount: expected 5, got {amount}.",
        expected={"tool": "refund", "argsMatch": {"id": 7, "amount": 5}},
        actual={"index": 0, "tool": "refund", "arguments": {"id": 7, "amount": amount} | arguments},
    )


def test_tests_of_one_name_in_two_suites_are_two(history: Any, make: Any) -> None:
    run = history.run()
    for index, file in enumerate(("a.yaml", "b.yaml")):
        run.suite(name=file, path=file, tests=[make.planned("refund")])
        for repeat in (1, 2):
            missing = make.failed(
                "tool_called", "look", "TOOL_CALL_MISSING", "No.", expected={"tool": "look"}, line=9
            )
            run.execution("refund", suite=index, repeat=repeat, assertions=(missing,))
    view = run.finish()
    (cause,) = causes_of(view, view.tests())
    assert cause.whom == "2 tests, 4 of 4 repeats"
    assert list(cause.places) == [("a.yaml", 9), ("b.yaml", 9)]
    assert cause.place() == "a.yaml:9 and 1 more place"


@pytest.mark.parametrize(
    ("value", "message", "told"),
    [
        (True, "It is true.", True),
        (True, "It is false.", False),
        ([], "Nothing.", False),
        (5, "Expected 6, got 15.", False),
        (1500, "It took 1,500 ms.", True),
        ({"index": 3, "name": "x"}, 'Found "x".', True),
        (int("9" * 400), "Too large.", False),
    ],
)
def test_a_message_has_a_value_as_a_word(value: Any, message: str, told: bool) -> None:
    assert is_in_message(value, message) is told


def undecided(make: Any, message: str) -> Any:
    fields = {"outcome": Outcome.INCONCLUSIVE, "expected": None, "actual": None}
    return make.failed("judge", "is kind", "JUDGE_EVAL_ERROR", message, **fields)


def test_what_is_undecided_for_different_reasons_has_a_cause_for_each(
    causes: Any, make: Any
) -> None:
    cut = 'The judge gave no judgement: it was cut off. It answered "{}".'
    found = causes(
        {"assertions": (undecided(make, cut.format("It is")),)},
        {"assertions": (undecided(make, cut.format(r"Hm: \"kind\" means")),)},
        {"assertions": (undecided(make, "The judge could not be asked: rate limit hit."),)},
        {"assertions": (undecided(make, 'The cost is not known: "a" has no price.'),)},
        {"assertions": (undecided(make, 'The cost is not known: "b" reported 5 tokens.'),)},
    )
    assert [len(cause.executions) for cause in found] == [2, 1, 1, 1]
    assert found[1].sentence == "The judge could not be asked: rate limit hit."


def test_what_is_undecided_without_a_message_has_not_failed(causes: Any, make: Any) -> None:
    (cause,) = causes({"assertions": (undecided(make, ""),)})
    assert cause.sentence == "judge is kind was undecided"


def test_a_score_of_a_judge_is_that_of_the_shown_execution(causes: Any, make: Any) -> None:
    scores = ({"score": score, "threshold": 0.7} for score in (0.1, 0.4))
    low = (make.failed("judge", "is kind", "JUDGE_BELOW_THRESHOLD", "", **it) for it in scores)
    (cause,) = causes(*({"assertions": (check,)} for check in low))
    assert cause.sentence == "The judge's score is too low: is kind"
    assert cause.rows[0] == ("score", "0.10, needs 0.70")
    assert len(cause.executions) == 2


def test_scores_with_different_minimums_have_a_cause_for_each(causes: Any, make: Any) -> None:
    fields = ({"score": 0.5, "threshold": least} for least in (0.7, 0.9, 0.7))
    low = (make.failed("python", "a.py:f", "CUSTOM_CHECK_FAILED", "a.py:f", **it) for it in fields)
    found = causes(*({"assertions": (check,)} for check in low))
    assert [cause.whom for cause in found] == ["2 tests, 2 of 2 repeats", "test 1 · gpt"]


def test_the_sentence_of_a_weighted_score_is_true_of_all_tests(causes: Any, make: Any) -> None:
    def low(score: int) -> Any:
        message = f"The score is {score}, expected at least 90: tools 50, output 75, sequence 100."
        fields = {"score": score / 100, "threshold": 0.9}
        return make.failed("weighted_score", "score", "SCORE_BELOW_THRESHOLD", message, **fields)

    (cause,) = causes({"assertions": (low(70),)}, {"assertions": (low(10),)})
    assert cause.sentence == "The weighted score is below 90"
    assert cause.rows[0][0] == "score"
    assert cause.rows[0][1].startswith("The score is 70, expected at least 90: tools 50")


def test_checks_of_all_tools_that_are_undecided_for_one_reason_are_one_cause(
    causes: Any, make: Any
) -> None:
    def unseen(kind: str, tool: str, line: int) -> Any:
        why = "No model answered the agent shop through the gateway for this message."
        fields = {"outcome": Outcome.INCONCLUSIVE, "expected": None, "actual": None, "line": line}
        return make.failed(kind, tool, None, why, **fields)

    checks = (unseen("tool_called", "lookup", 4), unseen("tool_not_called", "refund", 5))
    (cause,) = causes({"assertions": checks}, {"assertions": checks[1:]})
    assert cause.whom == "2 tests, 2 of 2 repeats"
    assert [line for _, line in cause.places] == [4, 5]


def test_the_first_tests_of_a_cause_are_named(causes: Any, make: Any) -> None:
    (cause,) = causes(*({"assertions": (wrong_amount(make, 60),)} for _ in range(5)))
    assert cause.where == "test 0, test 1, test 2, … 2 more · gpt"


def test_other_values_in_the_same_arguments_are_one_cause(causes: Any, make: Any) -> None:
    (cause, other) = causes(
        {"assertions": (wrong_amount(make, 60),), "output": "Done."},
        {"assertions": (wrong_amount(make, 61),), "output": "It is done now."},
        {"assertions": (wrong_amount(make, 62, id=8),)},
    )
    assert cause.sentence == "Wrong arguments in the call to refund: amount"
    assert cause.rows == [
        ("expected", 'refund {"id": 7, "amount": 5}'),
        ("called", 'refund {"id": 7, "amount": 60}'),
        ("said", '"Done."'),
    ]
    assert (cause.whom, cause.where) == ("2 tests, 2 of 2 repeats", "test 0, test 1 · gpt")
    assert other.sentence.endswith(": id, amount")
    assert other.whom == "test 2 · gpt"


def test_two_tools_in_the_wrong_order_are_one_cause(causes: Any, make: Any) -> None:
    def misplaced(tool: str, index: int, order: int) -> Any:
        message = "refund was called before lookup."
        code, expected = "TOOL_CALL_ORDER_WRONG", {"tool": tool, "order": order}
        actual = {"index": index, "tool": tool, "arguments": {}}
        return make.failed("tool_called", tool, code, message, expected=expected, actual=actual)

    (cause,) = causes({"assertions": (misplaced("lookup", 1, 0), misplaced("refund", 0, 1))})
    assert cause.sentence == "refund was called before lookup"
    assert ("expected", "lookup, order: 0") in cause.rows


def leak(make: Any, text: str, start: int) -> dict[str, Any]:
    end = start + len("jo@example.com")
    found = {"source": "output", "start": start, "end": end, "name": "email"}
    shown = {"name": "email", "redacted": "jo**********om", "source": "output"}
    leaked = make.failed(
        "pii",
        "pii",
        "PII_DETECTED",
        "Expected no personal data.",
        actual=[shown],
        evidence=[{**found, "excerpt": "jo**********om"}],
    )
    return {"output": text, "assertions": (leaked,)}


def test_personal_data_is_named_by_its_patterns_and_masked(causes: Any, make: Any) -> None:
    text = "Write. " * 40 + "To jo@example.com"
    (cause,) = causes(leak(make, "jo@example.com", 0), leak(make, text, text.index("jo@")))
    assert cause.sentence == "Personal data in the answer: email jo**********om"
    assert dict(cause.rows)["said"] == '"jo**********om"'
    assert "jo@" not in f"{cause}"


def test_personal_data_found_elsewhere_in_the_run_is_masked(causes: Any, make: Any) -> None:
    missing = make.failed("contains", "x", "CONTAINS_FAILED", "Expected x.", expected="x")
    other = {"output": "I am jo@example.com", "assertions": (missing,)}
    first, _ = causes(other, leak(make, "jo@example.com", 0))
    assert dict(first.rows)["said"] == '"I am jo**********om"'


def test_errors_that_quote_different_answers_are_one_cause(causes: Any) -> None:
    def error(answer: str) -> dict[str, Any]:
        message = f"The agent sent an answer that cannot be used (no text): {answer}"
        return {"output": None, "error": ("PROVIDER_API_ERROR", 204, message, None)}

    (cause,) = causes(error('{"said": "It is\\ndone."}'), error('["not yet"]'), error('"no"'))
    assert cause.sentence.endswith('{"said": "It is\\ndone."}')


def test_errors_share_a_cause_but_for_numbers_and_ids(causes: Any) -> None:
    def error(request: str) -> dict[str, Any]:
        message = f"OpenAI answered 500 after 3{len(request)} ms (request {request})"
        return {"output": None, "error": ("PROVIDER_API_ERROR", 204, message, "Try later.")}

    (cause,) = causes(error("0123456789abcdef"), error("fedcba98765"))
    assert len(cause.executions) == 2
    assert cause.rows == [("error", "PROVIDER_API_ERROR (204)"), ("fix", "Try later.")]


def test_the_sentence_is_not_said_again(causes: Any, make: Any) -> None:
    custom = make.failed(
        "custom", "is short", "CUSTOM_CHECK_FAILED", 'Not short: "Hi there."', expected="short"
    )
    (cause,) = causes({"output": "Hi there.", "assertions": (custom,)})
    assert (cause.sentence, cause.rows) == ('Not short: "Hi there."', [])


TRACE = """Traceback
  File "/shop/agent.py", line 41, in answer
    sdk.ask()
  File "/v/site-packages/sdk/a.py", line 7, in ask
KeyError: 'total'
"""
OF_PYTHON = '  File "/usr/lib/python3.12/json/decoder.py", line 5, in f\nValueError: no'


@pytest.mark.parametrize(
    ("trace", "frame"),
    [(None, None), (OF_PYTHON, None), (TRACE, "/shop/agent.py:41 KeyError: 'total'")],
)
def test_of_a_traceback_the_users_own_frame_counts(trace: str | None, frame: str | None) -> None:
    assert own_frame(trace) == frame


def test_a_repeat_that_failed_in_two_attempts_counts_once(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("it", repeat=3)])
    for number in (1, 2):
        for attempt in (1, 2):
            failed = (make.failed(label="hi"),)
            place = {"number": number, "repeat": number, "attempt": attempt}
            run.execution("it", **place, assertions=failed, retried=True)
        run.execution("it", **place | {"attempt": 3}, assertions=(make.passed(),))
    run.execution("it", number=3, repeat=3, assertions=(make.passed(),))
    view = run.finish()
    (cause,) = causes_of(view, view.tests(), retried=True)
    assert (len(cause.executions), cause.whom) == (4, "it · gpt, 2 of 3 repeats")


def test_a_limit_for_all_repeats_concerns_those_that_ended(history: Any, make: Any) -> None:
    run = history.run(planned=3)
    run.suite(tests=[make.planned("it", repeat=3, score_limits=ScoreLimits(min_mean=0.9))])
    for repeat in (1, 2):
        run.execution("it", repeat=repeat, score=0.5, assertions=(make.passed(),))
    run.execution("it", repeat=3, finished=False, output=None)
    view = run.interrupt("SIGINT")
    (cause,) = causes_of(view, view.tests())
    assert cause.whom == "it · gpt, 2 of 2 repeats"
