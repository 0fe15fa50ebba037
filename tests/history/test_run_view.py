"""A recorded run, read back."""

from __future__ import annotations

from typing import Any

from kindlm.outcome import Status


def test_a_run_is_read_back_whole(history: Any, make: Any) -> None:
    run = history.run(label="first")
    run.suite(tests=[make.planned("greets", repeat=2), make.planned("refuses")])
    run.execution("greets", assertions=(make.passed(),), tools=(("lookup", {"id": 1}, {"ok": 1}),))
    run.execution("greets", repeat=2, assertions=(make.failed(),))
    run.execution("refuses", judge="0.5")
    view = run.finish()

    assert view.info.label == "first"
    assert view.info.passed is False
    assert [(t.name, t.status, t.flaky) for t in view.tests()] == [
        ("greets", Status.FAILED, True),
        ("refuses", Status.PASSED, False),
    ]
    (suite,) = view.suites
    assert suite.tests.passed == 1
    assert suite.executions.total == 3
    first, _ = view.executions(next(view.tests()))
    assert first.output == "Hi there."
    assert [m["text"] for m in view.first_messages(first)] == ["You are kind.", "Hello!"]
    (call,) = view.tool_calls(first)
    assert (call.tool, call.arguments, call.response) == ("lookup", {"id": 1}, {"ok": 1})
    assert [c.purpose for c in view.calls(first)] == ["test", "test"]
    assert view.summary.cost_usd == 0.003
    assert view.summary.judge_cost_usd == 0.002
