"""Checks that a judging model decides: what it is asked, and what comes of its answers."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_project import Project

CHECKED = {
    "judge": 't.judge(reply, "polite?", threshold=3)',
    "sentiment": 't.sentiment(reply, "empathetic")',
    "guardrail": 't.guardrail(reply, must=["apologise"])',
    "factuality": 't.factuality(reply, "Returns within 30 days")',
}
GOOD: dict[str, dict[str, Any]] = {
    "judge": {"score": 3, "reasoning": "fine"},
    "sentiment": {"conveyed": True, "quote": "", "reasoning": "fine"},
    "guardrail": {"kept": True, "quote": "", "reasoning": "fine"},
    "factuality": {"factual": True, "quote": "", "reasoning": "fine"},
}
BAD: dict[str, dict[str, Any]] = {
    "judge": {"score": 2.9, "reasoning": "curt"},
    "sentiment": {"conveyed": False, "quote": "", "reasoning": "curt"},
    "guardrail": {"kept": False, "quote": "", "reasoning": "curt"},
    "factuality": {"factual": False, "quote": "", "reasoning": "curt"},
}


def scenario_with(check: str) -> str:
    return f"""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    {check}
"""


@pytest.mark.parametrize(("answers", "outcome"), [(GOOD, "passed"), (BAD, "failed")])
def test_a_judge_decides(
    project: Project, answers: dict[str, dict[str, Any]], outcome: str
) -> None:
    kinds = {"criteria": "judge", "tone": "sentiment", "rule": "guardrail"}
    project.agent.judge = lambda data: answers[
        next((kind for key, kind in kinds.items() if key in data), "factuality")
    ]
    code = project.test(tests=scenario_with("\n    ".join(CHECKED.values())))
    assert code == (0 if outcome == "passed" else 1)
    assert [(kind, found, line) for kind, _, found, line in project.checks()] == [
        (kind, outcome, line) for line, kind in enumerate(CHECKED, 5)
    ]


@pytest.mark.parametrize("answer", [400, "no JSON", {"score": "4"}, {"score": 9}, {}])
def test_without_a_proper_answer_after_one_more_try_nothing_is_decided(
    project: Project, answer: Any
) -> None:
    project.agent.judge = lambda _: answer
    project.test(tests=scenario_with("; ".join(CHECKED.values())))
    assert [outcome for _, _, outcome, _ in project.checks()] == ["inconclusive"] * len(CHECKED)
    assert project.statuses() == {"test_it": "errored"}
    assert len(project.agent.questions) == 2 * len(CHECKED)


def test_a_guardrail_has_a_verdict_for_each_rule(project: Project) -> None:
    project.agent.judge = lambda data: {
        "kept": data["rule"] != "blame the user",
        "quote": "",
        "reasoning": data["kind"],
    }
    project.test(
        tests=scenario_with(
            'seen = await t.guardrail(reply, must=["apologise"], must_not=["blame the user"])\n'
            "    assert [(v.passed, v.reasoning) for v in seen] =="
            ' [(True, "must"), (False, "must not")]'
        )
    )
    assert [(label, outcome) for _, label, outcome, _ in project.checks()] == [
        ("must: apologise", "passed"),
        ("must not: blame the user", "failed"),
    ]


def test_a_judge_sees_the_conversation_until_the_answer_and_not_the_threshold(
    project: Project,
) -> None:
    project.agent.judge = lambda _: {"score": 5, "reasoning": "good"}
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    await t.agent.send("one")
    second = await t.agent.send("two")
    await t.agent.send("three")
    verdict = await t.judge(second, "polite?", threshold=4.25, scale=5)
    assert verdict.passed and verdict.score == 1 and verdict.reasoning == "good"
"""
    )
    [question] = project.agent.questions
    said = [message["text"] for message in question["transcript"]["messages"]]
    assert said == ["one", "You said: one", "two", "You said: two"]
    assert question["transcript"]["finalText"] == "You said: two"
    assert "4.25" not in str(question)
    assert "from 0 to 5" in question["system"]
    [(score, threshold)] = project.rows(
        "SELECT score, threshold FROM assertions WHERE kind='judge'"
    )
    assert (score, threshold) == (1, 0.85)


def test_judges_are_waited_for_also_when_the_scenario_raised(project: Project) -> None:
    project.agent.judge = lambda _: {"score": 1, "reasoning": "rude"}
    project.test(tests=scenario_with('t.judge(reply, "polite?")\n    raise ValueError("boom")'))
    assert project.statuses() == {"test_it": "errored"}
    assert [outcome for _, _, outcome, _ in project.checks()] == ["failed"]


def test_calls_of_a_judge_belong_to_its_check(project: Project) -> None:
    project.agent.judge = lambda data: {
        "kept": True,
        "quote": "",
        "reasoning": data["rule"],
    }
    project.test(
        tests=scenario_with(
            't.check(reply).contains("hi")\n    t.guardrail(reply, must=["a", "b", "c"])'
        )
    )
    found = project.rows(
        "SELECT a.label, c.assertion, c.purpose FROM assertions a JOIN provider_calls c"
        " ON c.execution = a.execution AND c.assertion = a.position"
        " WHERE c.purpose = 'judge' ORDER BY a.position"
    )
    assert found == [(f"must: {rule}", at, "judge") for at, rule in enumerate("abc", 1)]


def test_without_a_model_nothing_is_decided_and_the_way_out_is_told(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("kindlm.toml", f'[agent]\ntype = "http"\nurl = "{project.agent.url}"\n')
    project.test(tests=scenario_with('t.judge(reply, "polite?")'))
    assert [outcome for _, _, outcome, _ in project.checks()] == ["inconclusive"]
    assert "[llm]" in capsys.readouterr().out


def test_a_function_that_is_not_async_waits_for_a_verdict(project: Project) -> None:
    project.agent.judge = lambda _: {"conveyed": False, "quote": "", "reasoning": "curt"}
    project.test(
        tests="""
@scenario("x")
def test_it(t: SyncTrial) -> None:
    reply = t.agent.send("hi")
    seen = t.sentiment(reply, "kind").wait()
    t.require(seen.passed is False, seen.reasoning)
"""
    )
    assert [(label, outcome) for _, label, outcome, _ in project.checks()] == [
        ("kind", "failed"),
        ("curt", "passed"),
    ]


def test_what_can_not_be_meant_is_an_error_of_the_test(project: Project) -> None:
    checks = (
        't.judge(reply, "polite?", threshold=6, scale=5)',
        't.judge(reply, "polite?", scale=0)',
        "t.guardrail(reply)",
        't.check(reply, weight=0).contains("x")',
        't.score("x", float("nan"))',
        't.score("x", 4)',
    )
    functions = (
        scenario_with(check).replace("test_it", f"test_{at}") for at, check in enumerate(checks)
    )
    project.test(tests="".join(functions))
    errors = project.rows("SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref")
    assert len(errors) == len(checks)
    assert all("ValueError" in error for (error,) in errors)
