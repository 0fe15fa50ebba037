"""What a check of a package declares about itself holds in records and reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from workspace import Workspace, as_yaml

ENTRY_POINTS = """
[kindlm.checks]
short = acme:Short
"""

ACME = """
from datetime import date
from enum import Enum
from pathlib import Path
from kindlm.plugins import Check, Count, Demands, Maybe, Section

class Since(Section):
    day: Maybe[date] = None
    until: Maybe[date] = None

class Short(Check):
    {variables}
    max: int = 1

    def evaluate(self, transcript, context):
        found = len(transcript.text)
        if "crash" in transcript.text:
            raise ValueError(transcript.text)
        if "unclear" in transcript.text:
            return self.undecided(transcript.text)
        if found <= self.max:
            return self.passed()
        message = f"{{found}} characters, at most {{self.max}} allowed"
        return self.failed("LONG", message, expected={expected})
"""


class Shop:
    """A project with a check of a package."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def write(
        self, *tests: dict[str, Any], reply: str = "Sent 12345 of them.", **more: Any
    ) -> None:
        """Write a suite with these tests, of one check each."""
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "providers": {"fake": {"type": "scripted", "replies": [{"text": reply}]}},
            "models": [{"id": "m", "provider": "fake", "model": "x"}],
            "prompts": {"ask": {"user": "Where?"}},
            "tests": [
                {"name": f"test {number}", "prompt": "ask", **each}
                for number, each in enumerate(tests)
            ],
            **more,
        }
        (self.workspace.root / "kindlm.yaml").write_text(as_yaml(config))

    def check(self, variables: str = "", expected: str = "self.max") -> None:
        """Write the package, whose check has these class variables."""
        source = ACME.format(variables=variables or "pass", expected=expected)
        self.workspace.package(ENTRY_POINTS, source)

    def told(self, *options: str) -> str:
        """Run the tests and return what kindlm prints."""
        done = self.workspace.run("test", *options)
        assert done.returncode == 1, done.stderr
        return done.stdout

    def evaluated(self) -> list[dict[str, Any]]:
        """Return the data of the events of checks, with their texts."""
        rows = self.workspace.query(
            "SELECT data, (SELECT body FROM contents WHERE ref = data ->> '$.message.$ref')"
            "  FROM event_log WHERE type = 'assertion.evaluated' ORDER BY seq"
        )
        return [{**json.loads(data), "message": message} for data, message in rows]


@pytest.fixture
def shop(workspace: Workspace) -> Shop:
    return Shop(workspace)


TOO_LONG = {"expect": {"short": {}}, "tags": ["attack"]}


@pytest.mark.parametrize(
    ("variables", "successes"),
    [
        ("", 1),
        ("demands = Demands.SAFETY", 1),
        ("demands = Demands.TASK", 0),
        ("demands = Demands.LIMIT", 0),
    ],
)
def test_a_failure_is_an_attack_that_succeeded_if_the_check_demands_safety(
    shop: Shop, variables: str, successes: int
) -> None:
    shop.check(variables)
    shop.write(TOO_LONG)
    assert f"Attack success rate: {successes} of 1" in shop.told()


def test_only_a_failure_has_what_the_check_demands(shop: Shop) -> None:
    shop.check("demands = Demands.TASK")
    shop.write({"expect": {"short": {"max": 99}}}, {"expect": {"short": {}}})
    shop.told()
    assert [event.get("demands") for event in shop.evaluated()] == [None, "task"]


def test_demands_are_one_of_those_there_are(shop: Shop) -> None:
    shop.check("demands = 'task'")
    shop.write(TOO_LONG)
    done = shop.workspace.run("validate")
    assert done.returncode == 1
    assert "has `demands` that is not a kindlm.plugins.Demands" in done.stderr


def test_no_answer_explains_that_a_limit_is_exceeded(shop: Shop) -> None:
    shop.write({"expect": {"short": {}}})
    for variables, is_quoted in (("", True), ("demands = Demands.LIMIT", False)):
        shop.check(variables)
        assert ("Sent 12345" in shop.told()) is is_quoted


PATTERNS = {"guardrails": {"pii": {"customPatterns": [{"name": "digits", "pattern": r"\d{2,}"}]}}}


@pytest.mark.parametrize(
    ("variables", "reply", "message"),
    [
        ("", "Sent 1 of them.", "LONG: ** characters, at most 1 allowed"),
        ("only_numbers = True", "Sent 1 of them.", "LONG: 15 characters, at most 1 allowed"),
        (
            "only_numbers = True",
            "A crash: 1234.",
            "crashed: ValueError: A crash: ****. (acme, line",
        ),
        ("only_numbers = True", "1234 is unclear.", "**** is unclear."),
    ],
)
def test_personal_data_is_looked_for_unless_results_have_only_numbers(
    shop: Shop, variables: str, reply: str, message: str
) -> None:
    shop.check(variables)
    shop.write({"expect": {"short": {}, **PATTERNS}}, reply=reply, record={"redactPii": True})
    assert message.replace("**", "") in " ".join(shop.told().split()).replace("**", "")
    (found,) = (each for each in shop.evaluated() if each["gen_ai.evaluation.name"] == "short")
    assert message in found["message"]


def test_a_crash_names_its_line_and_verbose_shows_the_traceback(shop: Shop) -> None:
    shop.check()
    shop.write({"expect": {"short": {}}}, reply="A crash.")
    told = " ".join(shop.told().split())
    assert "crashed: ValueError: A crash. (acme, line 18)" in told
    assert "Traceback" not in told
    assert "raise ValueError(transcript.text)" in shop.told("--verbose")


def test_an_optional_key_may_be_left_out(shop: Shop) -> None:
    shop.check("least: Maybe[Count] = None")
    shop.write({"expect": {"short": {"max": 99}}})
    assert shop.workspace.run("test").returncode == 0
    shop.write({"expect": {"short": {"least": None}}})
    assert "short.least is empty" in shop.workspace.run("validate").stderr


@pytest.mark.parametrize(
    ("kind", "valid", "invalid", "message"),
    [
        ("date", "2026-01-02", "soon", "should be a valid date"),
        ("Path", "orders/a1.txt", 5, "must be text"),
        ("Maybe[date]", "2026-01-02", None, "is empty"),
        ("Maybe[Since]", {"day": "2026-01-02"}, {"day": "soon"}, "should be a valid date"),
        ("tuple[int, ...]", [1, 2], [1, "2"], "must be a whole number"),
        ("Enum('Tone', {'WARM': 'warm', 'COLD': 'cold'})", "warm", "wram", 'Did you mean "warm"?'),
    ],
)
def test_an_option_has_any_type_that_json_can_hold(
    shop: Shop, kind: str, valid: Any, invalid: Any, message: str
) -> None:
    shop.check(f"given: {kind}")
    shop.write({"expect": {"short": {"max": 99, "given": valid}}})
    assert shop.workspace.run("test").returncode == 0
    shop.write({"expect": {"short": {"max": 99, "given": invalid}}})
    assert message in shop.workspace.run("validate").stderr


def test_a_misspelt_class_variable_is_named(shop: Shop) -> None:
    shop.check("demand = 1")
    shop.write(TOO_LONG)
    said = shop.workspace.run("validate").stderr
    assert "non-annotated attribute was detected: `demand = 1`" in said
    assert "(acme, line 11)" in said
    assert "errors.pydantic.dev" not in said


@pytest.mark.parametrize("expected", ["self.max", "None"])
def test_failures_of_different_limits_have_a_cause_for_each(shop: Shop, expected: str) -> None:
    shop.check(expected=expected)
    shop.write({"expect": {"short": {"max": 2}}}, {"expect": {"short": {"max": 1}}})
    told = shop.told()
    assert "LONG: 19 characters, at most 2 allowed" in told
    assert "LONG: 19 characters, at most 1 allowed" in told


def test_failures_of_one_limit_have_one_cause(shop: Shop) -> None:
    shop.check()
    shop.write(TOO_LONG, TOO_LONG)
    assert shop.told().count("LONG: 19 characters, at most 1 allowed") == 1
