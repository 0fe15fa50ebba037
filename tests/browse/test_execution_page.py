"""The page of an execution."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pages import HOSTILE, assert_harmless, text_of

from kindlm.outcome import Status
from kindlm.reports.conversation import highlighted
from kindlm.transcript import CostSource


@pytest.fixture
def failing(history: Any, make: Any) -> Any:
    """A run in which the second of three repeats fails, after a retry, with a tool called."""
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned(repeat=3)])
    writer.execution(repeat=1, assertions=(make.passed(),))
    evidence = [{"source": "output", "start": 3, "end": 8}]
    writer.execution(
        repeat=2,
        output="Hi there, friend.",
        tools=(("lookup", {"order": "A-100"}, {"found": True}),),
        definitions=[
            {
                "name": "lookup",
                "description": "Looks up an order.",
                "parameters": {"properties": {"order": {"type": "string"}}},
            }
        ],
        failures=(make.provider_failed(),),
        judge="It is kind.",
        assertions=(
            make.failed(expected="hi", actual="Hi there", evidence=evidence),
            make.passed(kind="pii", label="pii"),
        ),
    )
    writer.execution(repeat=3, assertions=(make.passed(),))
    return writer.finish()


def test_it_says_why_an_execution_failed(ask: Any, failing: Any) -> None:
    page = ask("execution/aaaa2222-2").text
    text = text_of(page)
    assert "failed greets gpt" in text
    assert "Failed assertions 1 of 2" in text
    assert 'CONTAINS_FAILED kindlm.yaml:42 Expected the output to contain "hi".' in text
    assert 'actual "Hi there"' in text
    assert "Hi <mark>there</mark>, friend." in page


def test_the_conversation_is_there_with_every_try(ask: Any, failing: Any) -> None:
    text = text_of(ask("execution/aaaa2222-2").text)
    assert "system You are kind." in text
    assert "user Hello!" in text
    assert "PROVIDER_RATE_LIMIT HTTP 429: Too many requests. Retried after 800 ms." in text
    assert (
        'lookup result from responses[0] arguments { "order": "A-100" } result { "found": true }'
        in text
    )
    assert "1 judge call" in text
    assert "1 tool definition lookup Looks up an order. Definition" in text
    assert "Response as received" in text
    assert text.count("Request ") >= 3


def test_calls_of_a_simulated_user_are_not_called_judge_calls(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(finished=False)
    writer._request("1.1", 2, "gpt", purpose="simulate", after=None)
    writer._respond("1.1", 2, "What next?", "gpt", 1.0, 0.0)
    writer.interrupt("SIGINT")
    text = text_of(ask("execution/aaaa2222-1").text)
    assert "1 other call simulate" in text
    assert "judge call" not in text


def test_a_result_that_the_agent_did_not_report_is_not_shown_as_null(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(tools=(("lookup", {"order": "A-100"}, None),))
    writer.finish()
    text = text_of(ask("execution/aaaa2222-1").text)
    assert 'lookup no result reported arguments { "order": "A-100" } Request' in text


def test_each_call_is_a_bar_of_the_timeline_that_leads_to_it(ask: Any, failing: Any) -> None:
    page = ask("execution/aaaa2222-2").text
    text = text_of(page)
    bars = re.findall(r'<a href="#(call-1-\d)"><title>(.*?), started after', page)
    assert [place for place, _ in bars] == [f"call-1-{call}" for call in (1, 2, 2, 3, 4)]
    assert "call 1 gpt, failed: " in text
    assert "call 4 judge " in text
    assert all(f'id="{place}"' in page for place, _ in bars)
    assert "Tokens 10 in, 5 out Cost $0.0030 (agents $0.0010, judges $0.0020)" in text


def test_a_name_that_the_timeline_has_no_room_for_ends_with_an_ellipsis(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned()])
    writer.execution(tools=(("look_up_the_orders_of_the_customer", {}, {}),))
    writer.finish()
    assert ">\u00a0\u00a0tool look_up_the_orders_of_th…" in ask("execution/bbbb3333-1").text


def test_an_unknown_cost_beside_free_answers_is_shown(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned()])
    unusable = make.provider_failed(input_tokens=9, cost_source=CostSource.UNKNOWN)
    writer.execution(failures=(unusable,), cost_usd=0.0, assertions=(make.passed(),))
    writer.finish()
    assert "Cost $0 + unknown" in text_of(ask("execution/bbbb3333-1").text)


def test_a_long_text_is_folded_under_its_beginning(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned()])
    writer.execution(output="It begins\n" + "word " * 1_000, assertions=(make.passed(),))
    writer.finish()
    page = ask("execution/bbbb3333-1").text
    (summary,) = re.findall(r'<details class="fold whole"><summary>(.*?)</summary>', page)
    assert summary.startswith('<span class="cut">It begins word word')
    assert "more characters" not in summary
    assert text_of(summary).endswith("… 5,010 characters")


def test_a_command_was_said_nothing(ask: Any, history: Any, make: Any) -> None:
    """What it was started with is not a message, and that of the record is empty."""
    started = {"system": None, "user": "", "assertions": (make.passed(),)}
    for run, provider in (("bbbb3333", "command"), ("cccc4444", "openai")):
        writer = history.run(run)
        writer.suite(tests=[make.planned("greets", provider)])
        writer.execution("greets", provider, provider=provider, **started)
        writer.finish()
    command, model = (text_of(ask(f"execution/{run}-1").text) for run in ("bbbb3333", "cccc4444"))
    assert "Conversation command call 1 · 120 ms" in command
    assert "Conversation user empty assistant call 1" in model


def test_repeats_are_one_click_away(ask: Any, failing: Any) -> None:
    page = ask("execution/aaaa2222-2").text
    assert 'rel="prev" href="/-/kindlm/kindlm/execution/aaaa2222-1"' in page
    assert 'rel="next" href="/-/kindlm/kindlm/execution/aaaa2222-3"' in page
    assert 'href="/-/kindlm/kindlm/run/aaaa2222"' in page
    assert 'rel="prev"' not in ask("execution/aaaa2222-1").text


def test_one_that_goes_on_is_shown_as_far_as_it_is(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333", planned=2)
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(repeat=1, assertions=(make.passed(),))
    writer.execution(repeat=2, finished=False)
    writer.leave()
    going_on, done = (ask(f"execution/bbbb3333-{number}") for number in (2, 1))
    assert "not finished greets gpt" in text_of(going_on.text)
    assert 'aria-label="repeat 2, not finished"' in done.text


def test_one_that_was_skipped_says_that_nothing_was_said(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(tests=[make.planned(skip=True)])
    writer.execution(status=make.SKIPPED)
    writer.finish()
    assert "Conversation No messages." in text_of(ask("execution/bbbb3333-1").text)


def test_there_is_no_such_execution(ask: Any, failing: Any) -> None:
    assert ask("execution/aaaa2222-9").status_code == 404
    assert ask("execution/~27~3Bx").status_code == 404


def test_what_agents_wrote_is_text(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333", label=HOSTILE)
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)], path=HOSTILE)
    writer.execution(
        HOSTILE,
        HOSTILE,
        system=HOSTILE,
        user=HOSTILE * 500,
        output=HOSTILE,
        tools=((HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),),
        error=("PROVIDER_TIMEOUT", 201, HOSTILE, HOSTILE),
        warnings=(HOSTILE,),
        assertions=(
            make.failed(
                label=HOSTILE,
                message=HOSTILE,
                expected=HOSTILE,
                actual={HOSTILE: HOSTILE},
                reasoning=HOSTILE,
                evidence=[{"source": "output", "start": 0, "end": 9999, "name": HOSTILE}],
            ),
        ),
    )
    writer.finish()

    page = ask("execution/bbbb3333-1").text

    assert "alert(1)" in page
    assert_harmless(page)


def test_personal_data_is_shown_redacted_wherever_it_stands(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("cccc4444")
    writer.suite(tests=[make.planned()])
    output = "Write to ann@example.com today."
    found = {"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***.com"}
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=[found])
    writer.execution(output=output, assertions=(leak,))
    writer.finish()

    page = ask("execution/cccc4444-1").text

    assert "ann@example.com" not in page
    assert "a**@***.com" in page


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        ([(0, 2), (1, 4)], "[abcd]ef"),
        ([(4, 99)], "abcd[ef]"),
        ([(3, 3), (9, 12)], "abcdef"),
        ([], "abcdef"),
    ],
)
def test_highlights_stay_inside_the_text(ranges: list[tuple[int, int]], shown: str) -> None:
    pieces = highlighted("abcdef", ranges)
    assert "".join(f"[{piece}]" if hit else piece for piece, hit in pieces) == shown


def test_what_only_advises_stands_apart(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("aaaa3333")
    writer.suite(tests=[make.planned()])
    advice = make.failed(label="says goodbye", advisory=True)
    writer.execution(status=Status.PASSED, assertions=(advice, make.passed()))
    writer.finish()
    page = ask("execution/aaaa3333-1").text
    assert "Failed assertions" not in text_of(page)
    assert "Advisory assertions 1 failed contains says goodbye (advisory)" in text_of(page)
