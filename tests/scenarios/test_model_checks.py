"""Checks that a judging model decides: what it is asked, and what comes of its answers."""

from __future__ import annotations

from typing import Any

import pytest
from checked_server import LoopbackServer
from scenario_project import Project

from kindlm.scenarios.verdicts import Verdict, holds

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


@pytest.mark.parametrize("answer", [400, "not JSON", {"score": "4"}, {"score": 9}, {}])
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


def test_without_a_model_nothing_is_decided_and_the_way_out_is_reported(
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


def test_what_cannot_be_meant_is_an_error_of_the_test(project: Project) -> None:
    checks = (
        't.judge(reply, "polite?", threshold=6, scale=5)',
        't.judge(reply, "polite?", threshold=0)',
        't.judge(reply, "polite?", scale=0)',
        't.judge(reply, "polite?", scale=float("inf"))',
        't.judge(reply, "")',
        't.sentiment(reply, "")',
        't.factuality(reply, "")',
        't.guardrail(reply, must=[""])',
        "t.guardrail(reply)",
        't.check(reply, weight=0).contains("x")',
        't.check(reply, weight=1_000_001).contains("x")',
        't.score("x", float("nan"))',
        't.score("x", 4)',
        't.score("", 1)',
        't.check(reply).custom("", bool)',
    )
    functions = (
        scenario_with(check).replace("test_it", f"test_{at}") for at, check in enumerate(checks)
    )
    project.test(tests="".join(functions))
    errors = project.rows("SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref")
    assert len(errors) == len(checks)
    assert all("ValueError" in error for (error,) in errors)


VERDICTS = """
@scenario("x")
async def test_verdict(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.require(await t.judge(reply, "polite?"), "it is polite")
    await t.agent.send("never")

@scenario("x")
async def test_verdicts(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.require(await t.guardrail(reply, must=["apologise"], must_not=["shout"]), "the rules")
    await t.agent.send("never")

@scenario("x")
async def test_assert(t: Trial) -> None:
    assert await t.judge(await t.agent.send("hi"), "polite?")
    await t.agent.send("never")

@scenario("x")
async def test_listed(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.require([await t.judge(reply, "polite?")], "all of them")
    await t.agent.send("never")

@scenario("x")
async def test_custom(t: Trial) -> None:
    t.check(await t.agent.send("hi")).custom("c", lambda reply: t.judge(reply, "polite?"))

@scenario("x")
def test_thread(t: SyncTrial) -> None:
    t.require(t.judge(t.agent.send("hi"), "polite?").wait(), "it is polite")
    t.agent.send("never")
"""


@pytest.mark.parametrize(
    ("answers", "outcome", "status"),
    [(BAD, "failed", "failed"), ({"judge": {}, "guardrail": {}}, "inconclusive", "errored")],
)
def test_a_verdict_that_is_required_ends_the_scenario(
    project: Project, answers: dict[str, dict[str, Any]], outcome: str, status: str
) -> None:
    project.agent.judge = lambda data: answers["judge" if "criteria" in data else "guardrail"]
    assert project.test(tests=VERDICTS) == 1
    assert "never" not in project.agent.said
    found = {(kind, label): found for kind, label, found, _ in project.checks()}
    required = ("it is polite", "the rules", "all of them")
    assert {found["assert", label] for label in required} == {outcome}
    assert found["custom", "c"] == outcome
    statuses = {**project.statuses()}
    assert statuses.pop("test_assert") == "failed"
    assert set(statuses.values()) == {status}


@pytest.mark.parametrize(
    ("passed", "expected"),
    [([True, True], True), ([True, None], None), ([None, False], False), ([False, True], False)],
)
def test_a_verdict_that_failed_outweighs_an_undecided_one(
    passed: list[bool | None], expected: bool | None
) -> None:
    assert holds([Verdict(each, None, "") for each in passed]) is expected


UNASKED = {
    't.require(t.judge(reply, "polite?"))': "await it",
    't.require(t.agent.send("never"))': "await it",
    'assert t.judge(reply, "polite?")': "was not awaited",
    't.require(t.check(reply).contains("hi"))': "neither true nor false",
    'assert t.check(reply).contains("hi")': "neither true nor false",
    "t.require(reply.mentions)": "call it",
    't.require(reply, "it answered")': "an answer needs a check",
    "t.require(reply)": "No check follows",
    't.require("it is polite", reply.mentions("please"))': "must be text, not False",
    't.require([t.judge(reply, "polite?")])': "await what it holds",
    't.require((reply.mentions("please"), "polite"))': "a tuple is always true",
    't.require({"polite": reply.mentions("please")})': "a dict is always true",
    't.require(filter(None, [0]), "one of them")': "a filter is always true",
    't.require([reply], "it answered")': "a list is always true",
    't.require(await t.converse(Persona(role="x"), goal="g", turns=(1, 1), script=["hi"]))': (
        "goal_reached"
    ),
}


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_what_is_always_true_is_nothing_to_require(project: Project, kind: str) -> None:
    project.agent.judge = lambda data: (
        {"message": "", "done": False, "reason": "no"}
        if "goal" in data
        else {"score": 5, "reasoning": "good"}
    )
    functions = "".join(
        scenario_with(check).replace("test_it", f"test_{at}") for at, check in enumerate(UNASKED)
    )
    if kind == "def":
        functions = functions.replace("async def", "def").replace("await ", "")
        functions = functions.replace("Trial", "SyncTrial").replace('t.agent.send("never")', "[]")
    project.test(tests=functions)
    assert "never" not in project.agent.said
    errors = dict(
        project.rows(
            "SELECT e.test, x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
        )
    )
    for at, told in enumerate(UNASKED.values()):
        if kind == "async def" or at != 1:
            assert told in errors[f"tests/test_it.py::test_{at}"]


@pytest.mark.parametrize(("points", "outcome"), [(3, "passed"), (2.9, "failed")])
def test_three_of_five_points_are_enough_unless_the_test_says_otherwise(
    project: Project, points: float, outcome: str
) -> None:
    project.agent.judge = lambda _: {"score": points, "reasoning": "so so"}
    project.test(tests=scenario_with('await t.judge(reply, "polite?")'))
    assert [found for _, _, found, _ in project.checks()] == [outcome]
    assert "from 0 to 5" in project.agent.questions[0]["system"]


def test_the_server_for_tests_answers_a_judge_by_its_section(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"criteria": "polite", "checks": [{"says": "please"}, {"says": "said"}]}
    script = {"judge": {"rules": [rule]}, "rules": [{"reply": {"text": "no judge"}}]}
    with LoopbackServer(script) as server:
        toml = (project.root / "kindlm.toml").read_text("utf-8")
        judge = project.agent.url.replace("/chat", "/v1")
        project.write("kindlm.toml", toml.replace(judge, f"{server.url}/v1"))
        project.configure('api_key_env = "JUDGE_KEY"\n')
        monkeypatch.setenv("JUDGE_KEY", "key-of-this-test")
        code = project.test(
            tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    found = await t.judge(await t.agent.send("hi"), "is polite", threshold=2, scale=4)
    assert found.score == 0.5
"""
        )
    assert code == 0
    assert [request.asks for request in server.requests] == ["judge"]
