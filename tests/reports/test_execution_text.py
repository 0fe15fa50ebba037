"""One execution as a person reads it."""

from __future__ import annotations

import io
import json
from typing import Any

from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.execution_text import render_execution


def rendered(view: RunView, execution: str, **options: Any) -> str:
    found = view.execution(execution)
    assert found is not None
    out = io.StringIO()
    render_execution(view, found, out, ReportOptions(**({"width": 120} | options)))
    return out.getvalue()


def assert_in_order(text: str, *parts: str) -> None:
    position = 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"{part!r} does not follow in\n{text[position:]}"
        position = found


def test_the_conversation_is_reported_in_order(varied: RunView) -> None:
    assert_in_order(
        rendered(varied, "5"),
        "✗ refunds · gpt · repeat 1",
        "responses 2",
        "cost unknown",
        "request  openai gpt",
        "system", "You are kind.",
        "user", "Hello!",
        "call 1, openai gpt, 20 ms",
        'lookup_order {"order_id": "A1"}',
        '{"status": "delivered"}  responses[0]',
        "call 2", "I can't do that.",
        "Assertions",
        "✗ tool_called refund_order  TOOL_CALL_MISSING  kindlm.yaml:57",
        "the agent called only lookup_order.",
    )  # fmt: skip


def test_failed_calls_are_reported_with_code_and_wait(varied: RunView) -> None:
    assert_in_order(
        rendered(varied, "8"),
        "call 1", "PROVIDER_RATE_LIMIT, HTTP 429: Too many requests.", "Tried again after 800 ms.",
        "call 2", "PROVIDER_RATE_LIMIT, HTTP 429: Too many requests.",
        "Error", "PROVIDER_RATE_LIMIT (202): The provider refused", "Lower defaults.concurrency.",
        "None was evaluated.",
    )  # fmt: skip


def test_a_parameter_that_was_not_sent_is_no_part_of_the_request(history: Any) -> None:
    run = history.run()
    run.suite()
    run.execution(
        parameters={"temperature": 0.2, "max_tokens": 64},
        warnings=("`temperature` was not sent: gpt does not take it",),
    )
    text = rendered(run.finish(), "1")
    assert "Warning: `temperature` was not sent" in text
    assert "request  openai gpt, max_tokens 64\n" in text


def test_tokens_that_were_not_reported_are_not_shown_as_none(history: Any) -> None:
    run = history.run()
    run.suite()
    run.execution(tokens=(None, 12))
    assert "tokens unknown in, 12 out" in rendered(run.finish(), "1")


LOOKUP = {
    "name": "lookup",
    "description": "Looks up\x1b[2J an order.",
    "parameters": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "depth": {"type": ["integer", "null"]}},
        "required": ["id"],
        "title": "Lookup",
    },
}


def test_tool_definitions_are_shown_in_brief_and_whole_with_verbose(history: Any) -> None:
    run = history.run()
    run.suite()
    more = [{"name": f"tool_{n}", "description": "", "parameters": {}} for n in range(20)]
    source = run.execution(definitions=[LOOKUP, *more])
    rescored = run.execution(source=f"{source}.1")
    view = run.finish()

    for execution in (source, rescored):
        assert_in_order(
            rendered(view, execution.rpartition("-")[2]),
            "Tool definitions",
            "lookup  Looks up\\x1b[2J an order.",
            "tool_18",
            "… and 1 more with --verbose",
            "Transcript",
        )
    assert '"title": "Lookup"' in rendered(view, "1", verbose=True)
    assert "tool_19" in rendered(view, "1", verbose=True)


def test_tool_definitions_from_elsewhere_may_be_anything(history: Any) -> None:
    run = history.run()
    run.suite()
    run.execution(definitions=[5, {"name": 5}])  # type: ignore[list-item]
    assert "\n  5\n" in rendered(run.finish(), "1")


def test_every_attempt_is_reported(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(output="First try.", tools=(("lookup", {"id": 1}, 1),), finished=False)
    run.execution(output="Second try.", number=1, attempt=2, assertions=(make.passed(),))
    assert_in_order(
        rendered(run.finish(), "1"),
        "attempts 2",
        "Transcript of attempt 1", "lookup", "First try.",
        "Transcript of attempt 2", "Second try.",
        "✓ contains",
    )  # fmt: skip


def test_verbose_adds_bodies_what_judges_were_asked_and_timing(varied: RunView) -> None:
    brief, verbose = rendered(varied, "4"), rendered(varied, "4", verbose=True)

    assert '{"raw": "Hi there."}' not in brief
    assert "Is it kind?" not in brief
    assert "judge      call 2" in brief
    assert '{"raw": "Hi there."}' in verbose
    assert "Is it kind?" in verbose
    assert "2 ms" in verbose.split("Assertions")[1]


def test_evidence_is_shown_in_its_place(history: Any, make: Any) -> None:
    text = "Sure, I guarantee it."
    start = text.index("guarantee")
    evidence = [{"source": "output", "start": start, "end": start + len("guarantee")}]
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(output=text, assertions=(make.failed(evidence=evidence),))

    assert "Sure, I »guarantee« it." in rendered(run.finish(), "1")


def test_personal_data_is_redacted_everywhere(history: Any, make: Any) -> None:
    card = "4111 1111 1111 1111"
    output = f"Your card {card} is charged."
    start = output.index(card)
    evidence = [
        {"source": "output", "start": start, "end": start + len(card), "excerpt": "41***11"}
    ]
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(
        output=output,
        tools=(("charge", {"card": card}, {"card": card}),),
        assertions=(
            make.failed("pii", "no personal data", "PII_DETECTED", evidence=evidence),
            make.failed(
                "keywords_deny",
                evidence=[{"source": "output", "start": start - 1, "end": start + 4}],
                actual=output,
            ),
        ),
        warnings=(f"The agent wrote {card}.",),
    )
    text = rendered(run.finish(), "1", verbose=True)

    for part in (card, "4111", "1111"):
        assert part not in text
    assert "41***11" in text


def test_content_cannot_control_the_terminal(history: Any, make: Any) -> None:
    hostile = "\x1b[2J[bold]x[/bold]\x00\u202e"
    run = history.run()
    run.suite(hostile, tests=[make.planned(hostile, hostile)])
    run.execution(
        hostile,
        hostile,
        user=hostile,
        system=hostile,
        output=hostile,
        tools=((hostile, {hostile: hostile}, hostile),),
        judge=json.dumps(hostile),
        assertions=(
            make.failed(
                label=hostile,
                code=hostile,
                reasoning=hostile,
                evidence=[{"source": "output", "start": 0, "end": 3, "name": hostile}],
            ),
        ),
        failures=(make.provider_failed(hostile),),
        error=(hostile, 999, hostile, hostile),
        warnings=(hostile,),
    )
    text = rendered(run.finish(), "1", verbose=True)

    assert not set(text) & {"\x1b", "\x00", "\u202e"}
    assert r"\x1b[2J[bold]x[/bold]" in text


def test_a_result_that_only_advises_says_so(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    advice = make.failed(label="says goodbye", advisory=True)
    run.execution(status=Status.PASSED, assertions=(advice, make.passed()))
    text = rendered(run.finish(), "1")
    assert_in_order(text, "✗ contains says goodbye (advisory)", "✓ contains contains hi")


def test_personal_data_of_one_attempt_is_redacted_in_all(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    found = {"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***.com"}
    leak = make.failed("pii", "pii", "PII_DETECTED", evidence=[found])
    run.execution(output="Write to ann@example.com.", assertions=(leak,), retried=True)
    run.execution(number=1, attempt=2, output="Not ann@example.com.", assertions=(make.passed(),))
    view = run.finish()
    history.review(view.id, 1, passed=False, note="It told ann@example.com.")
    text = rendered(view, "1")
    assert "ann@example.com" not in text
    assert_in_order(text, "Transcript of attempt 1", "PII_DETECTED", "Transcript of attempt 2")
    assert "It told a**" in text


def test_an_attempt_that_was_cut_off_is_reported_as_that(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(finished=False)
    run.execution(number=1, attempt=2, assertions=(make.passed(),))
    assert_in_order(
        rendered(run.finish(), "1"),
        "Attempt 1 was cut off",
        "Transcript of attempt 2",
        "Assertions of attempt 2",
    )
