"""Checks of whole conversations, and what was said in them."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_project import Project

from kindlm.cli.app import run

TALK = """
karen = Persona(role="customer")

async def talk_of(t):
    await t.agent.send("before")
    return await t.converse(karen, goal="a refund", script=["where", "refund"], turns=(1, 2))

@scenario("x")
async def test_it(t: Trial) -> None:
    talk = await talk_of(t)
"""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose text, tool and tokens belong to the message."""
    said = request["message"]
    tools = {"where": "lookup_order", "refund": "issue_refund", "before": "log_in"}
    return {
        "message": f"You said: {said}",
        "tool_calls": [{"name": tools.get(said, "wait"), "arguments": {"of": said}}],
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }


@pytest.fixture
def talks(project: Project) -> Project:
    project.agent.answer = answer
    project.agent.judge = lambda data: (
        {"message": "", "done": True, "reason": "promised"}
        if "goal" in data
        else {"score": 1 if "calm" in data["criteria"] else 5, "reasoning": "so"}
    )
    return project


def outcomes(project: Project) -> list[tuple[Any, ...]]:
    return [(label, outcome) for _, label, outcome, _ in project.checks()]


def test_a_talk_is_checked_over_all_of_its_turns(talks: Project) -> None:
    checks = """
    t.check(talk).tool_called("lookup_order", {"of": "where"}).tool_called("issue_refund")
    t.check(talk).tool_not_called("log_in").tool_not_called("lookup_order")
    t.check(talk).contains("said: where").matches("^You said: where$").not_contains("before")
    t.check(talk).contains("nowhere").not_contains("where").matches("^where")
    t.check(talk).token_usage(22).token_usage(21).latency(60_000)
    t.check(talk).custom("ended", lambda talk: talk.goal_reached and len(talk.replies) == 2)
    """
    assert talks.test(tests=TALK + checks) == 1
    assert [(label.removeprefix("conversation: "), found) for label, found in outcomes(talks)] == [
        ("lookup_order", "passed"),
        ("issue_refund", "passed"),
        ("log_in", "passed"),
        ("lookup_order", "failed"),
        ("said: where", "passed"),
        ("^You said: where$", "passed"),
        ("before", "passed"),
        ("nowhere", "failed"),
        ("where", "failed"),
        ("^where", "failed"),
        ("22 tokens", "passed"),
        ("21 tokens", "failed"),
        ("60000 ms", "passed"),
        ("ended", "passed"),
    ]
    assert all(label.startswith("conversation: ") for label, _ in outcomes(talks))


def test_text_that_a_talk_must_not_have_is_shown_in_its_turn(talks: Project) -> None:
    talks.test(tests=TALK + '    t.check(talk).not_contains("where")')
    excerpt = "(SELECT body FROM contents WHERE ref = place.value ->> '$.excerpt.$ref')"
    sql = f"SELECT place.value ->> 'source', {excerpt} FROM assertions, json_each(evidence) place"
    assert talks.rows(sql) == [("turn[2].output", "where")]


def test_the_conversation_so_far_is_that_of_all_messages(talks: Project) -> None:
    tests = """
@scenario("x")
def test_it(t: SyncTrial) -> None:
    t.agent.send("where")
    t.conversation.tool_called("lookup_order").tool_not_called("issue_refund")
    t.agent.send("refund")
    t.conversation.tool_called("lookup_order").tool_called("issue_refund").token_usage(22)
    t.conversation.custom("messages", lambda messages: messages == t.messages)
    t.check(t.conversation, weight=2).contains("said: where")
    t.judge(t.conversation, "is polite")
"""
    assert talks.test(tests=tests) == 0
    assert [label for label, _ in outcomes(talks)] == [
        "conversation: lookup_order",
        "conversation: issue_refund",
        "conversation: lookup_order #2",
        "conversation: issue_refund",
        "conversation: 22 tokens",
        "conversation: messages",
        "conversation: said: where",
        "conversation: is polite",
    ]


def test_a_judge_sees_a_talk_and_gives_a_verdict_for_each_criterion(talks: Project) -> None:
    checks = """
    polite, calm = await t.judge(talk, ["is polite", "stays calm"])
    assert (polite.passed, calm.passed) == (True, False)
    [again] = await t.judge(talk.last, ["is polite"])
    t.require(again)
    """
    assert talks.test(tests=TALK + checks) == 1
    assert outcomes(talks) == [
        ("conversation: is polite", "passed"),
        ("conversation: stays calm", "failed"),
        ("turn 3: is polite", "passed"),
        ("required", "passed"),
    ]
    asked = [each for each in talks.agent.questions if "criteria" in each]
    texts = [message["text"] for message in asked[0]["transcript"]["messages"]]
    assert texts[0] == "before"
    assert texts[-1] == "You said: refund"


def test_a_check_of_the_conversation_can_end_the_scenario(talks: Project) -> None:
    checks = """
    t.require(t.conversation).tool_called("lookup_order").contains("never said")
    await t.agent.send("not sent")
    """
    assert talks.test(tests=TALK + checks) == 1
    assert outcomes(talks) == [
        ("conversation: lookup_order", "passed"),
        ("conversation: never said", "failed"),
    ]
    assert "not sent" not in talks.agent.said


def test_the_conversation_of_another_trial_is_not_checked(talks: Project) -> None:
    tests = """
conversations = []

@scenario("x", repeats=2)
async def test_it(t: Trial) -> None:
    await t.agent.send("where")
    conversations.append(t.conversation)
    t.check(conversations[0]).contains("where")
"""
    assert talks.test(tests=tests) == 1
    assert len(outcomes(talks)) == 1
    [(error,)] = talks.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    assert "this is the conversation of another trial" in error


def test_messages_are_what_was_said_so_far(talks: Project) -> None:
    checks = """
    first, second = t.messages[2:4]
    assert t.messages[0].text == "before" and len(t.messages) == 6
    assert (first.role, first.text, first.tool_calls) == ("user", "where", ())
    assert (second.role, second.text) == ("assistant", "You said: where")
    assert [(call.name, call.arguments) for call in second.tool_calls] == [
        ("lookup_order", {"of": "where"})
    ]
    t.check(talk).contains("said")
    """
    assert talks.test(tests=TALK + checks) == 0


def test_looking_at_it_again_finds_the_same(talks: Project) -> None:
    checks = """
    assert len(t.messages) == 6
    t.check(talk).tool_called("lookup_order").not_contains("before").contains("where")
    t.judge(talk, ["is polite"])
    """
    assert talks.test(tests=TALK + checks) == 0
    before = outcomes(talks)
    assert run(["rescore"]) == 0
    assert outcomes(talks) == before


NONSENSE = {
    't.check(talk).json_schema({"type": "object"})': "about one answer",
    't.sentiment(talk, "calm")': "what t.agent.send returned",
    "t.judge(talk, [])": "needs a criterion",
    't.judge(talk, ["polite", ""])': "criteria is empty",
    't.require(talk, "done")': "require .goal_reached",
    't.check(t.messages).contains("a")': "write t.conversation",
    't.judge(t.messages, "is polite")': "write t.conversation",
}


def test_what_cannot_be_meant_is_an_error_of_the_test(talks: Project) -> None:
    head, _, body = TALK.partition("@scenario")
    tests = [
        f"@scenario{body}    {check}\n".replace("test_it", f"test_{number}")
        for number, check in enumerate(NONSENSE)
    ]
    assert talks.test(tests=head + "".join(tests)) == 1
    found = talks.rows(
        "SELECT e.test, x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    errors = {test.partition("::test_")[2]: error for test, error in found}
    for number, why in enumerate(NONSENSE.values()):
        assert why in errors[str(number)]


def test_before_the_first_answer_there_is_no_conversation(talks: Project) -> None:
    tests = """
@scenario("x")
async def test_it(t: Trial) -> None:
    assert t.messages == ()
    t.conversation.tool_not_called("refund")
"""
    assert talks.test(tests=tests) == 1
    assert talks.statuses() == {"test_it": "errored"}


YAML = """\
name: x
turns:
  - says: where
    expect: {judge: [is polite, is short]}
  - says: refund
conversation:
  - tool_called: lookup_order
    contains: "said: where"
  - tool_not_called: issue_refund
    weight: 2
  - judge: {criteria: [is polite, stays calm], threshold: 4}
"""


def test_yaml_has_checks_of_the_conversation(talks: Project) -> None:
    talks.write("tests/x.yaml", YAML)
    assert talks.test() == 1
    assert talks.checks() == [
        ("judge", "is polite", "passed", 4),
        ("judge", "is short", "passed", 4),
        ("tool_called", "conversation: lookup_order", "passed", 7),
        ("contains", "conversation: said: where", "passed", 8),
        ("tool_not_called", "conversation: issue_refund", "failed", 9),
        ("judge", "conversation: is polite", "passed", 11),
        ("judge", "conversation: stays calm", "failed", 11),
    ]
