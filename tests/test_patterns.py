"""Patterns of users: what is too large to compile is refused before the engine writes it out."""

from __future__ import annotations

import time

import pytest

from kindlm.patterns import Dialect, PatternError, excess_of, first_match, personal_data_in

MILLIONS = "(?:(?:a{100}){100}){100}"


@pytest.mark.parametrize(
    "pattern",
    [
        MILLIONS,
        "a{1000000}",
        "a{1000000,}",
        "(?:ab){60000}",
        "((a{100}){100}){100}",
        "(?:(?:(?:a{100}){100}){100}){0}",
        "(?P<name>(?=a{1000})b{1000}){100}",
        "[()]{50}(?:[^]]{400}){300}",
        "a{99999999999999999999}",
        "a" * 10_001,
    ],
)
def test_repeats_are_counted_as_the_engine_writes_them_out(pattern: str) -> None:
    excess = excess_of(pattern)

    assert excess is not None
    with pytest.raises(PatternError, match=excess):
        first_match(pattern, "a", time.monotonic() + 1)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\b\d{3}-\d{2}-\d{4}\b", "123-45-6789"),
        ("(?:a{100}){100}", "a" * 10_000),
        ("(?:(?:a{0,1000}){0,1000}){0,1000}b", "b"),
        (r"\({100}", "(" * 100),
        ("[(]{10}[]{100}]{3}", "(" * 10 + "]{1"),
        ("(?:[a-z]{1,9}){1,9999}", "word"),
    ],
)
def test_what_takes_little_space_is_searched(pattern: str, text: str) -> None:
    assert first_match(pattern, text, time.monotonic() + 5, Dialect.OUTPUT)


@pytest.mark.parametrize("pattern", ["(" * 9_999, "[" * 9_999, "{1}" * 3_000, ")" * 9_999, ""])
def test_counting_takes_no_time(pattern: str) -> None:
    begin = time.monotonic()
    assert excess_of(pattern) is None
    assert time.monotonic() - begin < 2


# On a busy machine, the time is over before the memory.
_ENDLESS = "calls itself|took too long"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(?R)?", _ENDLESS), ("(?:(?R))*", _ENDLESS), ("(?u)a", "does not compile")],
)
def test_a_pattern_that_the_engine_gives_up_is_an_error(pattern: str, reason: str) -> None:
    end = time.monotonic() + 5
    with pytest.raises(PatternError, match=reason):
        first_match(pattern, "ab", end, Dialect.PERSONAL_DATA)
    with pytest.raises(PatternError, match=reason):
        list(personal_data_in("ab", pattern, end))
