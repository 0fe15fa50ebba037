"""The checks of an answer that need no model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from scenario_project import Project

from kindlm.cli.app import run

USED = {
    "message": '```json\n{"id": 1, "name": "Order A-1234"}\n```',
    "tool_calls": [
        {"name": "lookup_order", "arguments": {"id": "A1", "deep": {"x": 1, "y": 2}}},
        {"name": "refund", "arguments": {}},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 21},
    "cost": 0.02,
}

HEAD = """
import re
from pydantic import BaseModel, field_validator

class Order(BaseModel):
    id: int
    name: str

class Other(BaseModel):
    id: str

class Even(Order):
    @field_validator("id")
    @classmethod
    def is_even(cls, value):
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value

class Broken(Order):
    @field_validator("id")
    @classmethod
    def breaks(cls, value):
        return 1 / 0

async def later(found):
    return found

async def yields(reply):
    yield True

async def forgets(reply):
    return later(reply)

def fails():
    assert 1 == 2, "not the same"
"""


def outcomes_of(project: Project, checks: Iterable[str], answer: dict[str, Any]) -> dict[str, str]:
    """Return how each check of the answer comes out, in a scenario of its own."""
    project.agent.answer = lambda _: answer
    listed = list(checks)
    functions = "".join(
        f"""
@scenario("{number}")
async def test_{number}(t: Trial) -> None:
    t.check(await t.agent.send("hi")){check}
"""
        for number, check in enumerate(listed)
    )
    project.test(tests=HEAD + functions)
    found = project.rows(
        "SELECT e.test, a.outcome FROM assertions a JOIN executions e ON e.id = a.execution"
    )
    return {listed[int(test.rpartition("_")[2])]: outcome for test, outcome in found}


PASSING = (
    '.contains("order a-")',
    '.contains_any(["refund", "order a-"])',
    '.starts_with("```JSON")',
    f".equals({USED['message']!r})",
    ".cost(0.02)",
    '.not_contains("sorry")',
    r'.matches(r"[A-Z]-\d{4}")',
    '.matches(re.compile("order", re.IGNORECASE))',
    '.not_matches("order")',
    '.json_schema({"type": "object", "required": ["id"]})',
    ".json_schema(Order)",
    ".latency(60_000)",
    ".token_usage(31)",
    '.tool_called("refund")',
    '.tool_called("lookup_order", {"id": "A1"})',
    '.tool_called("lookup_order", {"deep": {"y": 2}})',
    '.tool_not_called("delete")',
    '.tool_not_called("lookup_order", {"id": "B2"})',
    '.custom("len", lambda reply: len(reply.tool_calls) == 2)',
    '.custom("usage", lambda reply: reply.usage.output_tokens == 21)',
    '.custom("later", lambda reply: later(reply.mentions("ORDER")))',
)


def test_passes(project: Project) -> None:
    found = outcomes_of(project, PASSING, USED)
    assert found == dict.fromkeys(PASSING, "passed")


FAILING = (
    '.contains("refund")',
    '.contains_any(["refund", "money"])',
    '.starts_with("refund")',
    '.equals("order")',
    ".cost(0.01)",
    '.matches("order")',
    '.not_matches(re.compile("order", re.IGNORECASE))',
    '.json_schema({"type": "array"})',
    ".json_schema(Other)",
    ".json_schema(Even)",
    ".latency(0)",
    ".token_usage(30)",
    '.tool_called("delete")',
    '.tool_called("lookup_order", {"id": "B2"})',
    '.tool_not_called("refund")',
    '.tool_not_called("lookup_order", {"id": "A1"})',
    '.custom("len", lambda reply: False)',
    '.custom("later", lambda reply: later(0))',
    '.custom("fails", lambda reply: fails())',
)


def test_a_set_of_texts_has_one_label_in_all_processes(project: Project) -> None:
    outcomes_of(project, ['.contains_any({"delta", "refund", "alpha", "beta"})'], USED)
    assert project.rows("SELECT label FROM assertions") == [("alpha | beta | delta | refund",)]


def test_fails(project: Project) -> None:
    found = outcomes_of(project, FAILING, USED)
    assert found == dict.fromkeys(FAILING, "failed")


UNDECIDED = (
    ".token_usage(0)",
    '.matches("(")',
    '.custom("raises", lambda reply: 1 / 0)',
    '.custom("yields", lambda reply: (yield))',
    '.custom("yields later", yields)',
    '.custom("is not called", lambda reply: reply.mentions)',
    '.custom("is the answer", lambda reply: reply)',
    '.custom("is not awaited", forgets)',
)


def test_is_not_decided(project: Project) -> None:
    found = outcomes_of(project, UNDECIDED, {"message": "hi"})
    assert found == dict.fromkeys(UNDECIDED, "inconclusive")
    assert set(project.statuses().values()) == {"errored"}


def test_validators_of_a_model_that_break_decide_nothing(project: Project) -> None:
    found = outcomes_of(project, [".json_schema(Broken)"], USED)
    assert found == {".json_schema(Broken)": "inconclusive"}


def test_what_validators_of_a_model_say_is_reported(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes_of(project, [".json_schema(Even)"], USED)
    assert "$.id: Value error, 1 is odd" in capsys.readouterr().out
    assert run(["rescore"]) == 1
    assert "$.id: Value error, 1 is odd" in capsys.readouterr().out


def test_a_check_looks_at_its_answer_alone(project: Project) -> None:
    project.agent.answer = lambda request: (
        USED if request["message"] == "one" else {"message": "done"}
    )
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    first = await t.agent.send("one")
    second = await t.agent.send("two")
    t.check(second).tool_not_called("refund").not_contains("Order").contains("done")
    t.check(first).tool_called("refund").token_usage(31).not_contains("done")
"""
    )
    assert {outcome for _, _, outcome, _ in project.checks()} == {"passed"}


def test_checks_of_one_kind_are_distinguished(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    for text in ("one", "two"):
        reply = await t.agent.send(text)
        t.check(reply).contains("said").contains("said")
"""
    )
    labels = [label for _, label, *_ in project.checks()]
    assert labels == ["said", "said #2", "turn 2: said", "turn 2: said #2"]


NONSENSE = {
    '.json_schema("text")': "pydantic model",
    ".json_schema(int)": "pydantic model",
    '.json_schema({"typ": "array"})': "no keyword of JSON Schema",
    ".contains(None)": "must be text",
    ".not_contains(1)": "must be text",
    ".contains('')": "is empty",
    ".not_contains('')": "is empty",
    ".equals(' ')": "more than spaces",
    ".contains_any('refund')": "list of texts",
    ".contains_any([])": "list of texts",
    ".matches(None)": "matches takes a pattern",
    ".matches('')": "matches needs a pattern",
    r".not_matches('\bword\b')": r'has a backspace: write r"\bword\b"',
    ".matches(re.compile(''))": "matches needs a pattern",
    '.latency("5")': "max_ms must be a number",
    '.latency(float("inf"))': "max_ms must be a number",
    ".latency(-1)": "max_ms must be a number",
    '.token_usage(float("nan"))': "max_tokens must be a number",
    ".token_usage(True)": "max_tokens must be a number",
    '.tool_called("")': "tool is empty",
    ".tool_not_called(None)": "tool must be text",
    ".tool_not_called('other', 'A1')": "arguments must be a mapping",
    ".tool_not_called('other', {'id': re.compile('A1')})": "arguments must be JSON",
    ".called('a')": "'Checks' object has no attribute 'called'",
    ".contains": "No check follows",
    ".contains('hi') or 1": "neither true nor false",
}


def test_what_cannot_be_meant_is_an_error_of_the_test(project: Project) -> None:
    assert outcomes_of(project, NONSENSE, USED) == {".contains('hi') or 1": "failed"}
    assert set(project.statuses().values()) == {"errored"}
    errors = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref ORDER BY e.number"
    )
    for (error,), told in zip(errors, NONSENSE.values(), strict=True):
        assert told in error


def test_a_required_check_cannot_be_waited_for(project: Project) -> None:
    project.test(
        tests="""
async def later(reply):
    return True

@scenario("x")
async def test_it(t: Trial) -> None:
    t.require(await t.agent.send("hi")).custom("later", later)
"""
    )
    [(error,)] = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    assert "use t.check" in error


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ('matches("^bye")', "failed"),
        ('matches("(")', "errored"),
        ('custom("raises", lambda reply: 1 / 0)', "errored"),
    ],
)
def test_a_required_check_that_does_not_pass_ends_the_scenario(
    project: Project, check: str, status: str
) -> None:
    project.test(
        tests=f"""
@scenario("x")
async def test_it(t: Trial) -> None:
    t.require(await t.agent.send("hi")).{check}
    await t.agent.send("never")
"""
    )
    assert project.agent.said == ["hi"]
    assert project.statuses() == {"test_it": status}
