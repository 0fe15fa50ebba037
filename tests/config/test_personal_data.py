"""What a suite that names no patterns looks for as personal data, by examples of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from evaluated import evaluated

from kindlm.config import LoadedSuite
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import CheckContext
from kindlm.recording.personal_data import PersonalData, patterns_of
from kindlm.transcript import Step, Transcript, Turn

Load = Callable[..., LoadedSuite]

FOUND = {
    "ssn": ["123-45-6789", "001-01-0001"],
    "credit card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "6011 0000 0000 0004",
    ],
    "email": ["jane.roe@example.com", "J_ROE+shop@mail.example.co.uk", "j%r@x-y.io"],
}
LEFT = [
    *("123-456-789", "12-345-6789", "123456789", "1234-56-7890"),
    *("4111111111111112", "4111 1111 1111 111", "378282246310005"),
    *("jane.roe@example", "@example.com", "jane roe at example.com", "jane.roe@example.c"),
]


@pytest.fixture
def look(load: Load, minimal: str) -> Callable[[str], CheckResult]:
    """Check a text as a test does whose guardrail is `pii: {}`."""
    loaded = load(minimal.replace("{contains: [hello]}}", "{}, guardrails: {pii: {}}}"))
    assert loaded.suite is not None, loaded.diagnostics
    (expectation,) = loaded.suite.cases[0].expectations

    def look(text: str) -> CheckResult:
        transcript = Transcript(turns=(Turn("Who?", (Step(text),)),))
        return evaluated(expectation, transcript, CheckContext(_nobody))

    return look


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, all_ in FOUND.items() for v in all_])
def test_each_kind_is_found_and_by_one_pattern_alone(
    look: Callable[[str], CheckResult], kind: str, value: str
) -> None:
    text = f"It is {value}, ok"

    result = look(text)

    assert result.outcome is Outcome.FAILED
    (evidence,) = result.evidence
    assert text[evidence.start : evidence.end] == value
    assert evidence.name == kind


@pytest.mark.parametrize("value", LEFT)
def test_what_only_looks_like_it_is_left(look: Callable[[str], CheckResult], value: str) -> None:
    assert look(f"It is {value}, ok").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("\uff11\uff12\uff13-\uff14\uff15-\uff16\uff17\uff18\uff19", "123-45-6789"),
        ("123\u200b-45-\u00ad6789", "123-45-6789"),
        ("4111\u00a01111\u00a01111\u00a01111", "4111 1111 1111 1111"),
        ("jane.roe\u2060@example.com", "jane.roe@example.com"),
        ("jane.roe\uff20example.com", "jane.roe@example.com"),
    ],
)
def test_it_is_found_behind_characters_that_look_alike_or_are_invisible(
    look: Callable[[str], CheckResult], written: str, plain: str
) -> None:
    text = f"caf\u00e9: {written}, ok"

    result = look(text)

    assert result.outcome is Outcome.FAILED
    (evidence,) = result.evidence
    assert text[evidence.start : evidence.end] == written
    assert plain not in f"{result.message}{result.actual}"


@pytest.mark.parametrize("value", [v for all_ in FOUND.values() for v in all_])
def test_the_record_hides_what_the_check_finds(load: Load, minimal: str, value: str) -> None:
    suite: Any = load(minimal).suite
    hidden = PersonalData(patterns_of(suite)).hide(f"It is {value} or \uff11\uff12\uff13-45-6789")
    assert value not in hidden
    assert "-45-" not in hidden


async def _nobody(_question: object) -> Any:
    raise AssertionError("this check asks nobody")
