"""Recorded answers that secrets were taken out of: what looks at them is not known any more."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_project import Project

from kindlm.cli.app import run

_KEY = "plain-and-very-secret"


def leaking(request: dict[str, Any]) -> dict[str, Any]:
    """Give the key away in the way that is asked for."""
    where = request["message"]
    calls = [{"name": "pay", "arguments": {"key": _KEY if where == "call" else "none"}}]
    said = f"The key is {_KEY}." if where == "text" else "I tell no key."
    return {"message": said, "tool_calls": calls, "more": _KEY if where == "body" else "none"}


CHECKS = {
    "not_contains": ("text", "t.check(r).not_contains(key)"),
    "contains": ("text", "t.check(r).contains(key)"),
    "matches": ("text", "t.check(r).matches('very-secret')"),
    "custom": ("text", "t.check(r).custom('c', lambda r: key not in r.text)"),
    "assert": ("text", "t.check(r).latency(60_000); assert key not in r.text"),
    "mentions": ("text", "t.require(not r.mentions(key), 'c')"),
    "arguments": ("call", "t.check(r).tool_not_called('pay', {'key': key})"),
    "calls": ("call", "t.check(r).custom('c', lambda r: key != r.tool_calls[0].arguments['key'])"),
    "body": ("body", "t.check(r).custom('c', lambda r: key not in r.raw)"),
    "name": ("call", "t.check(r).tool_called('pay')"),
    "latency": ("text", "t.check(r).latency(60_000)"),
    "text_beside_calls": ("call", "t.check(r).contains('no key')"),
}
KNOWN = {"name", "latency"}


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_what_looks_at_a_secret_that_was_taken_out_is_not_known(
    project: Project, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", _KEY)
    project.agent.answer = leaking
    tests = "".join(
        f"""
@scenario("{name}")
async def test_{name}(t: Trial) -> None:
    r = await t.agent.send("{where}")
    {check}
"""
        for name, (where, check) in CHECKS.items()
    )
    project.test(tests=f"\nimport os\n\nkey = os.environ['SHOP_API_KEY']\n{tests}")
    passed_then = {"contains", "matches", "text_beside_calls"} | KNOWN
    assert project.statuses() == {
        f"test_{name}": "passed" if name in passed_then else "failed" for name in CHECKS
    }
    assert run([command]) == 1
    assert project.statuses() == {
        f"test_{name}": "passed" if name in KNOWN else "errored" for name in CHECKS
    }
    warnings = project.rows(
        "SELECT test, body FROM executions, json_each(warnings) AS warning"
        "  JOIN contents ON ref = warning.value ->> '$.$ref' WHERE body LIKE '%removed a secret%'"
    )
    assert {name.partition("::test_")[2] for name, _ in warnings} == CHECKS.keys() - {"body"}
