"""The recorder of a run: all stays in order, and personal data does not get into the log.

What patterns match is hidden beside the calls, whatever it is wrapped in.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluated import demand
from hypothesis import given
from hypothesis import strategies as st
from suites import make_suite

from kindlm.engine.attempt import Finished
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.codec import new_event
from kindlm.events.execution_events import (
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderResponded,
)
from kindlm.events.run import SuiteStarted
from kindlm.outcome import CheckResult, Outcome, Status
from kindlm.plan import Plan, Selection, make_plan
from kindlm.recording.personal_data import PersonalData, patterns_of
from kindlm.recording.recorder import RunRecorder
from kindlm.recording.request import SkippedSuite
from kindlm.suite import Case, Expectation, Prompt, Suite
from kindlm_store import EventLog, Text

SLOW = r"^(a|a)*$"
EMAIL = "jane.roe@example.com"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "kindlm.db") as log:
        yield log


def plan(*, redact: bool, pattern: str = SLOW) -> Plan:
    params = {"customPatterns": [{"name": "slow", "pattern": pattern}]}
    case = Case(
        "greets",
        Prompt("Hi"),
        targets=("gpt",),
        expectations=(demand("pii", "pii", params),),
    )
    suite = make_suite(case, redact_pii=redact)
    return make_plan([suite], Selection())


def placed(planned: Plan) -> dict[int, Suite | SkippedSuite]:
    return {each.ordinal: each.suite for each in planned.suites}


def started(test: str) -> ExecutionStarted:
    return ExecutionStarted(suite=0, test=test, target="gpt", repeat=1, attempt=1, messages=[])


def finished(output: str) -> ExecutionFinished:
    return ExecutionFinished(status=Status.PASSED, output=output)


@pytest.mark.usefixtures("impatient_patterns")
def test_slow_patterns_hold_up_no_call_and_keep_the_order(log: EventLog) -> None:
    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(placed(plan(redact=True)))
        first, second = recorder.about("1.1"), recorder.about("2.1")
        first.record(started("first"))
        first.record(finished("a" * 40 + "!"))
        second.record(started("second"))
        second.record(finished(EMAIL))
        await second.durable()
        await first.durable()
        recorder.close()

    asyncio.run(record())
    assert [(event.subject, event.type) for event in log.read()] == [
        ("1.1", "execution.started"),
        ("1.1", "execution.finished"),
        ("2.1", "execution.started"),
        ("2.1", "execution.finished"),
    ]


@pytest.mark.usefixtures("impatient_patterns")
def test_who_stops_waiting_loses_no_event(log: EventLog) -> None:
    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(placed(plan(redact=True)))
        recorder.record(started("first"))
        recorder.record(finished("a" * 40 + "!"))
        recorder.record(finished("last"))
        waiting = asyncio.create_task(recorder.durable())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await recorder.durable()
        recorder.close()

    asyncio.run(record())
    assert len(list(log.read())) == 3


@pytest.mark.parametrize("redact", [True, False])
def test_events_that_several_threads_record_are_all_kept(log: EventLog, redact: bool) -> None:
    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(placed(plan(redact=redact)))

        def from_a_thread(subject: str) -> None:
            about = recorder.about(subject)
            for number in range(300):
                about.record(started(f"{number}"))

        threads = [asyncio.to_thread(from_a_thread, name) for name in ("1.1", "2.1")]
        others = asyncio.gather(*threads)
        here = recorder.about("3.1")
        for number in range(300):
            here.record(started(f"{number}"))
            await asyncio.sleep(0)
        await others
        await recorder.durable()
        recorder.close()

    asyncio.run(record())
    recorded = [(event.subject, event.data["test"]) for event in log.read()]
    assert len(recorded) == 900
    for subject in ("1.1", "2.1", "3.1"):
        assert [test for about, test in recorded if about == subject] == [
            str(number) for number in range(300)
        ]


def test_after_hidden_events_that_the_log_refused_it_gets_no_later_ones(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, refused = EventLog.submit, []

    def refuse_once(self: EventLog, submission: Any) -> Any:
        if not refused:
            refused.append(submission)
            raise ValueError("too large")
        return submit(self, submission)

    monkeypatch.setattr(EventLog, "submit", refuse_once)

    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        recorder.hide_personal_data(placed(plan(redact=True)))
        recorder.record(started("first"))
        await asyncio.sleep(0)
        recorder.record(started("second"))
        with pytest.raises(ValueError, match="too large"):
            await recorder.durable()
        recorder.close()

    asyncio.run(record())
    assert list(log.read()) == []


def test_durable_waits_for_events_that_another_thread_is_handing_over(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, begun, may_go_on = EventLog.submit, threading.Event(), threading.Event()

    def slow(self: EventLog, submission: Any) -> Any:
        begun.set()
        may_go_on.wait(60)
        return submit(self, submission)

    monkeypatch.setattr(EventLog, "submit", slow)

    async def record() -> None:
        recorder = RunRecorder(log, "run/r")
        other = threading.Thread(target=recorder.record, args=(started("first"),))
        other.start()
        begun.wait(60)
        threading.Timer(0.2, may_go_on.set).start()
        await recorder.durable()
        assert may_go_on.is_set()
        assert len(list(log.read())) == 1
        other.join()
        recorder.close()

    asyncio.run(record())


@pytest.mark.parametrize(
    ("kind", "params", "stays"),
    [
        ("latency", {"maxMs": 5000}, True),
        ("cost", {"maxUsd": 5000}, True),
        ("max_length", {"max": 5000}, True),
        ("contains", {"text": "5000"}, False),
    ],
)
def test_what_checks_have_measured_stays(
    log: EventLog, kind: str, params: dict[str, Any], stays: bool
) -> None:
    planned = plan(redact=True, pattern=r"\d{4,}")
    recorder = RunRecorder(log, "run/r")
    recorder.hide_personal_data(placed(planned))
    message = "Expected at most 5000, it took 61234."
    result = CheckResult(kind, "x", Outcome.FAILED, message=message, actual=61234)
    evaluated = AssertionEvaluated.of(result, 0, demand(kind, "x", params), duration_ms=1.0)
    recorder.record(started("measures"))
    recorder.record(evaluated)
    recorder.close()
    log.flush().result()
    _, event = log.read()
    recorded = [log.text(event.data[name]["$ref"]) for name in ("message", "actual")]
    assert (recorded == [message, "61234"]) is stays


@pytest.mark.parametrize("redact", [True, False])
def test_what_is_shown_is_what_is_recorded(log: EventLog, redact: bool) -> None:
    planned = plan(redact=redact)
    recorder = RunRecorder(log, "run/r")
    recorder.hide_personal_data(placed(planned))
    (execution,) = planned
    error = KindlmError(ErrorCode.PROVIDER_API_ERROR, f"OpenAI returned 400: no {EMAIL}")
    result = CheckResult("contains", "c", Outcome.FAILED, message=f'Expected "{EMAIL}".')
    shown = recorder.shown(Finished(execution, Status.ERRORED, error, (result,)))
    recorder.close()
    assert shown.error is not None
    texts = (shown.error.message, shown.failed[0].message)
    assert all((EMAIL in text) is not redact for text in texts)


CARD = "4111 1111 1111 1111"
CARD_NUMBER = 4111111111111111


def suite(*expectations: Expectation) -> Suite:
    return make_suite(Case("greets", Prompt("Hi"), targets=("gpt",), expectations=expectations))


@pytest.fixture
def personal() -> PersonalData:
    return PersonalData(patterns_of(suite()))


def is_gone(text: str) -> bool:
    return not any(part in text for part in (EMAIL, CARD, str(CARD_NUMBER)))


def test_a_match_keeps_its_length_and_its_ends(personal: PersonalData) -> None:
    assert personal.hide(f"Write to {EMAIL}!") == f"Write to ja{'*' * 16}om!"


@pytest.mark.parametrize(("said", "hidden"), [("PIN 4711", "PIN ****"), ("PIN 471", "PIN ***")])
def test_nothing_is_left_of_a_short_match(said: str, hidden: str) -> None:
    assert PersonalData((r"(?<=PIN )\d{3,4}",)).hide(said) == hidden


def test_texts_without_matches_stay_as_they_are(personal: PersonalData) -> None:
    body = '{ "order":"A-17", "n": [1, 2.50, -3e4],  "t": "caf\\u00e9 \\"x\\"" }'
    for text in (body, "", "[", "order 1234 5678 9012 3456", '"quoted" and more'):
        assert personal.hide(text) == text


@pytest.mark.parametrize("nested", [1, 2, 3])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_inside_json_is_looked_into(
    personal: PersonalData, nested: int, ascii_only: bool
) -> None:
    value: Any = {"é": f"to\n{EMAIL}", "card": CARD_NUMBER, "n": 12, "list": [CARD, None]}
    for _ in range(nested):
        value = {"arguments": json.dumps(value, ensure_ascii=ascii_only)}
    hidden = personal.hide(json.dumps(value))
    assert is_gone(hidden)
    for _ in range(nested):
        hidden = json.loads(hidden)["arguments"]
    assert json.loads(hidden)["n"] == 12
    assert json.loads(hidden)["é"] == f"to\nja{'*' * 16}om"


def test_what_is_escaped_is_found(personal: PersonalData) -> None:
    escaped = EMAIL.replace("@", "\\u0040")
    assert json.loads(personal.hide(f'{{"to": "{escaped}"}}')) == {"to": f"ja{'*' * 16}om"}


def test_json_stays_json_where_a_pattern_takes_its_punctuation() -> None:
    personal = PersonalData((r'"name": "[^"]*"',))
    hidden = personal.hide('{"name": "Jane Roe"}')
    assert "Jane" not in hidden
    json.loads(hidden)


def test_a_mask_that_still_matches_is_made_of_stars_alone() -> None:
    assert PersonalData((r"\d{2,}",)).hide("born 19841231 there") == "born ******** there"


@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_that_takes_too_long_keeps_the_text_out() -> None:
    personal = PersonalData((r"^(a|a)*$",))
    hidden = personal.hide("a" * 40 + "!")
    assert "aaaa" not in hidden
    assert "not recorded" in hidden


@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_that_took_too_long_still_lets_nothing_through() -> None:
    personal = PersonalData((r"^(a|a)*$", r"E-\d{4}"))
    texts = ["a" * 40 + ending for ending in "!?."]
    assert not any("aaaa" in personal.hide(text) for text in texts)
    assert personal.hide("E-1234 is quick to search") == "E-**34 is quick to search"


def test_with_a_pattern_that_does_not_compile_nothing_is_recorded() -> None:
    assert PersonalData(("(",)).hide("a secret").startswith("[not recorded")


def test_the_patterns_of_the_tests_are_looked_for_too() -> None:
    params = {
        "denyPatterns": [r"\bC-\d{6}\b"],
        "customPatterns": [{"name": "staff", "pattern": r"\bE-\d{4}\b"}],
    }
    personal = PersonalData(patterns_of(suite(demand("pii", "pii", params))))
    assert personal.hide("C-123456, E-1234") == "C-****56, E-**34"
    assert is_gone(personal.hide(EMAIL))


def test_texts_of_an_event_are_hidden_and_names_stay(personal: PersonalData) -> None:
    data = {
        "test": EMAIL,
        "text": Text(EMAIL),
        "warnings": [EMAIL],
        "messages": [{"text": Text(f"Hi {EMAIL}"), "role": "user"}],
        "evidence": [{"excerpt": EMAIL, "start": 3}],
        "call": 1,
    }
    hidden = personal.hide_in("provider.responded", data)
    assert hidden["test"] == EMAIL
    assert hidden["text"] == Text(f"ja{'*' * 16}om")
    assert hidden["messages"][0]["role"] == "user"
    assert is_gone(hidden["messages"][0]["text"].body)
    assert is_gone(str((hidden["warnings"], hidden["evidence"])))
    assert (hidden["call"], hidden["evidence"][0]["start"]) == (1, 3)


PIECES = "\n".join(json.dumps({"delta": EMAIL[at : at + 4]}) for at in range(0, len(EMAIL), 4))


@pytest.mark.parametrize(
    ("text", "raw", "is_kept"),
    [
        ("Hi", '{"content": "Hi"}', True),
        (f"Write to {EMAIL}", '{"content": "V3JpdGU="}', False),
        ("Hi", f'{{"content": "{EMAIL}"}}', False),
        ("Hi", PIECES, False),
    ],
)
def test_a_body_is_recorded_only_if_nothing_of_its_answer_matches(
    personal: PersonalData, text: str, raw: str, is_kept: bool
) -> None:
    event = {"text": Text(text), "raw": Text(raw)}
    assert ("raw" in personal.hide_in("provider.responded", event)) is is_kept


@pytest.mark.parametrize(
    ("kind", "key", "is_hidden"),
    [
        ("agent.traced", "body", True),
        ("provider.requested", "items", True),
        ("provider.requested", "text", False),
        ("tool.called", "input", False),
    ],
)
def test_what_a_wire_says_in_pieces_is_not_recorded(
    personal: PersonalData, kind: str, key: str, is_hidden: bool
) -> None:
    hidden = personal.hide_in(kind, {key: Text(PIECES)})
    assert ("in pieces" in hidden[key].body) is is_hidden


def test_the_configuration_of_a_suite_is_hidden_like_its_executions(log: EventLog) -> None:
    recorder = RunRecorder(log, "run/r")
    recorder.hide_personal_data(placed(plan(redact=True)))
    recorder.record(
        SuiteStarted(
            suite="shop",
            ordinal=0,
            project="shop",
            front_end="kindlm",
            path="kindlm.yaml",
            config_hash="0" * 12,
            config=json.dumps({"user": EMAIL}),
            gates=(),
            tests=(),
        )
    )
    recorder.close()
    log.flush().result()
    (event,) = log.read()
    assert is_gone(log.text(event.data["config"]["$ref"]) or EMAIL)


def test_events_reach_the_log_at_the_end_of_a_turn_of_the_loop(log: EventLog) -> None:
    async def record() -> int:
        recorder = RunRecorder(log, "run/r")
        recorder.record(started("first"))
        await asyncio.sleep(0)
        await log.flush()
        return len(list(log.read()))

    assert asyncio.run(record()) == 1


def test_warnings_of_an_answer_are_hidden_as_they_are_recorded(personal: PersonalData) -> None:
    """An event that was just made holds them as a tuple."""
    answer = ProviderResponded(call=1, text="", latency_ms=1.0, warnings=(f"about {EMAIL}",))
    event = new_event(answer)
    assert is_gone(str(personal.hide_in(event.type, event.data)))


NUMBERS = PersonalData((r"\d{4,}",))


def test_what_kindlm_says_of_a_text_is_hidden_as_the_text_is() -> None:
    hidden = NUMBERS.hide_in("provider.failed", {"message": Text("OpenAI returned 500: 1984123")})
    assert hidden["message"].body == "OpenAI returned 500: 19***23"


texts = st.text(st.sampled_from('a1 @.-"\\{}[]:,\n') | st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.tuples(values, st.sampled_from([EMAIL, CARD, CARD_NUMBER])), st.booleans())
def test_no_json_lets_anything_through(value: Any, ascii_only: bool) -> None:
    personal = PersonalData(patterns_of(suite()))
    hidden = personal.hide(json.dumps(value, ensure_ascii=ascii_only))
    assert is_gone(hidden)
    assert isinstance(json.loads(hidden), list)


@given(texts, texts)
def test_no_text_lets_an_address_through(before: str, after: str) -> None:
    personal = PersonalData(patterns_of(suite()))
    assert EMAIL not in personal.hide(f"{before} {EMAIL} {after}")


@pytest.mark.parametrize("matched", [EMAIL, CARD])
@pytest.mark.parametrize("form", ["{}", '{{"said": "{}", "n": 12}}', 'got "{}".'])
def test_no_part_of_a_match_is_left_where_a_text_was_cut(
    personal: PersonalData, matched: str, form: str
) -> None:
    for at in range(len(matched)):
        for part in (f"it says {matched[:at]}…", f"…{matched[at:]} is said"):
            event = {"message": Text(form.format(part)), "output": Text(part)}
            hidden = personal.hide_in("assertion.evaluated", event)
            message = hidden["message"].body
            assert "sa" in message
            left = set(re.findall(r"[\w@.]+", message)) - {
                "it",
                "says",
                "is",
                "said",
                "n",
                "12",
                ".",
            }
            assert left - {"got"} == set()
            if form.startswith("{{"):
                assert json.loads(message)["n"] == 12


def test_what_was_not_cut_stays(personal: PersonalData) -> None:
    event = {"message": Text("Expected 5 words, got 12."), "output": Text("Wait… what?")}
    assert personal.hide_in("assertion.evaluated", event) == event
