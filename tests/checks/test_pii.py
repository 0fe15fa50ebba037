"""The check for personal data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from evaluated import check_of
from hypothesis import example, given
from hypothesis import strategies as st

from kindlm.checks.guardrails import redacted
from kindlm.outcome import CheckResult, Outcome
from kindlm.patterns import DEFAULT_PATTERNS
from kindlm.transcript import ToolUse, Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

SSN = r"\b\d{3}-\d{2}-\d{4}\b"
CARD = r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b"
EMAIL = r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b"
DEFAULTS = {"denyPatterns": [SSN, CARD, EMAIL]}
HANGS = {"name": "hangs", "pattern": "^(a|a)*$"}
VICTIM = "a" * 60 + "!"


def custom(*patterns: str) -> dict[str, Any]:
    named = [{"name": f"c{n}", "pattern": pattern} for n, pattern in enumerate(patterns)]
    return {"denyPatterns": [], "customPatterns": named}


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("My SSN is 123-45-6789", "ssn", "12*******89"),
        ("Card 4111 1111 1111 1111", "credit card", "41***************11"),
        ("Mail USER@Example.com", "email", "US************om"),
    ],
)
def test_the_defaults_are_found_and_shown_redacted(
    evaluate: Evaluate, said: Said, text: str, name: str, shown: str
) -> None:
    result = evaluate("pii", DEFAULTS, said(text))

    assert result.failure_code == "PII_DETECTED"
    (evidence,) = result.evidence
    assert (evidence.source, evidence.name, evidence.excerpt) == ("output", name, shown)
    assert text.endswith(text[evidence.start : evidence.end])
    assert result.actual == [{"name": name, "redacted": shown, "source": "output"}]
    assert shown in result.message


@pytest.mark.parametrize(
    "text", ["", "order 1234-5678-9012-3456", "a@b.c", "١٢٣-٤٥-٦٧٨٩", "9123-45-67890"]
)
def test_what_is_no_personal_data_passes(evaluate: Evaluate, said: Said, text: str) -> None:
    assert evaluate("pii", DEFAULTS, said(text)).outcome is Outcome.PASSED


def test_a_card_that_begins_inside_other_digits_is_found(evaluate: Evaluate, said: Said) -> None:
    text = "Order 0001 4111 1111 1111 1111"

    (evidence,) = evaluate("pii", DEFAULTS, said(text)).evidence

    assert text[evidence.start : evidence.end] == "4111 1111 1111 1111"


def test_cards_that_share_digits_are_found_whole(evaluate: Evaluate, said: Said) -> None:
    text = "SSN 123-45-6789 4111 1111 1111 1111"

    _, card = evaluate("pii", DEFAULTS, said(text)).evidence

    assert text[card.start : card.end] == "6789 4111 1111 1111 1111"


@pytest.mark.parametrize("number", ["1234-5678-9012-3456", "4111111111111111"])
def test_the_card_pattern_needs_a_check_digit_wherever_it_is_written(
    evaluate: Evaluate, said: Said, number: str
) -> None:
    written_out = evaluate("pii", custom(CARD), said(number))
    another = evaluate("pii", custom(CARD[:-2]), said(number))

    assert (written_out.outcome is Outcome.FAILED) == (number == "4111111111111111")
    assert another.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "bob@example.com"},
        {"a": {"b": [{"c": "line\nbob@example.com"}]}},
        {"a": "x\tbob@example.com\u2028"},
        {"bob@example.com": 1},
        {"a": '"bob@example.com"', "é": "bob@example.com"},
        {"a": ["bob@example.com"] * 3},
    ],
)
def test_arguments_of_tools_are_looked_at(
    evaluate: Evaluate, said: Said, used: Used, arguments: dict[str, Any]
) -> None:
    result = evaluate("pii", DEFAULTS, said("done", used("noop"), used("send", arguments)))

    assert result.failure_code == "PII_DETECTED"
    recorded = json.dumps(arguments, ensure_ascii=False)
    places = {(evidence.start, evidence.end) for evidence in result.evidence}
    assert len(places) == len(result.evidence) == recorded.count("bob@example.com")
    for evidence in result.evidence:
        assert evidence.source == "tool[1].arguments"
        assert recorded[evidence.start : evidence.end] == "bob@example.com"


@pytest.mark.parametrize(
    "use",
    [{"arguments": {"card": 4111111111111111}}, {"malformed": "{card: 4111111111111111"}],
)
def test_numbers_and_malformed_arguments_are_looked_at(
    evaluate: Evaluate, said: Said, used: Used, use: dict[str, Any]
) -> None:
    result = evaluate("pii", DEFAULTS, said("done", used("pay", **use)))

    assert [evidence.name for evidence in result.evidence] == ["credit card"]


@pytest.mark.parametrize("ssn", ["\uff11\uff12\uff13-45-6789", "1\u200b23-45-6789"])
def test_places_in_arguments_are_those_of_what_was_written(
    evaluate: Evaluate, said: Said, used: Used, ssn: str
) -> None:
    use = used("send", {"text": f"é {ssn}"})

    (evidence,) = evaluate("pii", DEFAULTS, said("done", use)).evidence

    assert use.call.written[evidence.start : evidence.end] == ssn


def test_a_pattern_can_span_the_json_of_arguments(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    result = evaluate("pii", custom(r'"pin":\s*"\d{4}"'), said("", used("pay", {"pin": "1234"})))

    assert result.failure_code == "PII_DETECTED"


def test_what_tools_answer_is_not_written_by_the_model(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    found = used("find", {}, response={"mail": "bob@example.com"})

    assert evaluate("pii", DEFAULTS, said("done", found)).outcome is Outcome.PASSED


def test_no_part_of_a_result_repeats_what_was_found(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    secrets = ["123-45-6789", "4111111111111111", "bob.smith@example.com"]
    use = used("send", {secret: secret for secret in secrets})

    result = evaluate("pii", DEFAULTS, said(" ".join(secrets), use))

    assert len(result.evidence) == 9
    for secret in secrets:
        assert secret[2:-2] not in repr(result)


@pytest.mark.parametrize("broken", ["(", "a{2}{3}", "[b-a]"])
def test_a_pattern_that_does_not_compile_decides_nothing(
    evaluate: Evaluate, said: Said, broken: str
) -> None:
    result = evaluate("pii", custom(broken), said("text"))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "INVALID_PATTERN"
    assert result.score is None


@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_that_takes_too_long_decides_nothing(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("pii", {"customPatterns": [HANGS]}, said(VICTIM))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "INVALID_PATTERN"
    assert '"hangs"' in result.message


@pytest.mark.parametrize(
    ("params", "text", "is_slow"),
    [
        ({"denyPatterns": list(DEFAULT_PATTERNS)}, "short", False),
        ({"denyPatterns": list(DEFAULT_PATTERNS)}, "long " * 1_000, True),
        ({"denyPatterns": [*DEFAULT_PATTERNS, "my own"]}, "short", True),
        ({"customPatterns": [HANGS]}, "short", True),
    ],
)
def test_only_the_default_patterns_on_a_short_text_are_quick(
    said: Said, params: dict[str, Any], text: str, is_slow: bool
) -> None:
    assert check_of("pii", params).is_slow(said(text)) is is_slow


@pytest.mark.usefixtures("impatient_patterns")
def test_all_patterns_share_one_time_limit(evaluate: Evaluate, said: Said) -> None:
    many = [{"name": f"hangs {n}", "pattern": f"^(a|a)*[$x{n}]$"} for n in range(300)]

    began = time.monotonic()
    result = evaluate("pii", {"customPatterns": many}, said(VICTIM))

    assert result.failure_code == "INVALID_PATTERN"
    # A tenth of a second for each would be 30.
    assert time.monotonic() - began < 15


@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_that_takes_too_long_hides_nothing_that_another_finds(
    evaluate: Evaluate, said: Said
) -> None:
    patterns = {"denyPatterns": [HANGS["pattern"], SSN]}

    result = evaluate("pii", patterns, said(f"{VICTIM}\n123-45-6789"))

    assert result.failure_code == "PII_DETECTED"
    assert '"pii-pattern-1"' in result.message
    assert "ssn 12*******89" in result.message


def test_what_another_pattern_finds_still_counts(evaluate: Evaluate, said: Said) -> None:
    params = {"denyPatterns": [SSN], "customPatterns": [{"name": "broken", "pattern": "("}]}

    result = evaluate("pii", params, said("123-45-6789"))

    assert result.failure_code == "PII_DETECTED"
    assert '"broken"' in result.message


def test_a_pattern_that_matches_nothing_at_all_finds_nothing(
    evaluate: Evaluate, said: Said
) -> None:
    assert evaluate("pii", custom("x*"), said("abc")).outcome is Outcome.PASSED


def test_the_message_says_where_each_match_is(evaluate: Evaluate, said: Said, used: Used) -> None:
    use = used("send", {"text": "To bob@example.com, soon"})

    result = evaluate("pii", DEFAULTS, said("123-45-6789 " * 6, use))

    assert result.evidence[-1].excerpt == "bo***********om"
    first = ", ".join(["ssn 12*******89 in the answer"] * 5)
    assert result.message == f"Expected no personal data, found 7 matches: {first} and 2 more."
    alone = evaluate("pii", DEFAULTS, said("done", use)).message
    assert alone.endswith("1 match: email bo***********om in tool[0].arguments.")


def test_evidence_is_bounded(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("pii", DEFAULTS, said("123-45-6789 " * 500))

    assert len(result.evidence) == len(result.actual) == 50
    assert "500 matches" in result.message
    assert len(result.message) <= 1_000


@given(st.text())
@example("12345")
def test_redaction_shows_at_most_two_characters_at_each_end(text: str) -> None:
    shown = redacted(text)

    assert shown.isprintable()
    if len(text) < 5:
        assert shown == "*" * len(text)
    elif text.isprintable() and len(text) <= 64:
        assert shown == text[:2] + "*" * (len(text) - 4) + text[-2:]
