"""Text that came from outside, made safe to print."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.normal_form import INVISIBLE
from kindlm.reports.junit_report import escaped
from kindlm.reports.untrusted import bounded, one_line, printed_json, visible


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[2J\x1b[31mred", r"\x1b[2J\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\x00b\x7f", r"a\x00b\x7f"),
        ("evil\u202etxt.exe", r"evil\u202etxt.exe"),
        ("\u2066hidden\u2069", r"\u2066hidden\u2069"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("half\ud83d", r"half\ud83d"),
        ("one\u2028two", r"one\u2028two"),
        ("back\rover", r"back\rover"),
        ("a\u3164b\u2800c\u115f\uffa0\u034f", r"a\u3164b\u2800c\u115f\uffa0\u034f"),
        ("\u17b4a\ufe0fb \ufe0e", r"\u17b4a\ufe0fb \ufe0e"),
        ("\u2764\ufe0f\ufe01\ufe02", "\u2764\ufe0f" + r"\ufe01\ufe02"),
        ("a\U000e0101", r"a\U000e0101"),
        ("a\u180b\u1820\u180c\u180c", r"a\u180b" + "\u1820\u180c" + r"\u180c"),
        ("a\U000e0080\ufff0", r"a\U000e0080\ufff0"),
    ],
)
def test_what_is_not_meant_to_be_read_is_written_out(written: str, shown: str) -> None:
    assert visible(written) == shown


def test_what_unicode_calls_a_control_a_format_a_surrogate_or_private_is_written_out() -> None:
    unreadable = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    kept = {
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in unreadable and visible(char) == char
    }
    assert kept == {"\n", "\t", "\u200c", "\u200d"}


def test_what_is_invisible_after_a_letter_is_written_out() -> None:
    invisible = re.compile(f"[{INVISIBLE}]")
    chars = filter(invisible.match, map(chr, range(sys.maxunicode + 1)))
    assert {char for char in chars if visible(f"a{char}") == f"a{char}"} == {"\u200c", "\u200d"}


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines\tand a tab",
        "Grüße, 日本語",
        "[bold]x[/bold]",
        "👩\u200d💻",
        "\u2764\ufe0f 1\ufe0f\u20e3 \u00a9\ufe0f 🏳\ufe0f\u200d🌈",
        "葛\U000e0100城 한국어 ⠓⠑⠇⠇⠕ ᠠ\u180b",
    ],
)
def test_what_is_meant_to_be_read_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("char", ["\u3164", "\u2800", "\u115f", "\ufe0f", "\U000e0101", "\u202e"])
def test_nothing_unseen_is_in_json_or_xml(char: str) -> None:
    told = {"said": f"a{char}b"}
    assert char not in printed_json(told)
    assert json.loads(printed_json(told)) == told
    assert escaped(told["said"]) == f"a#x{ord(char):02X}b"


def test_windows_line_breaks_are_line_breaks() -> None:
    assert visible("a\r\nb") == "a\nb"


@given(st.text(alphabet=st.characters(), max_size=50))
def test_no_control_reaches_the_terminal(text: str) -> None:
    for char in visible(text):
        assert char in "\n\t\u200c\u200d" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"}


def test_a_bounded_text_says_what_was_left_out() -> None:
    assert bounded("abc", 3) == "abc"
    assert bounded("abcd", 3) == "abc… (1 more character)"
    assert bounded("x" * 5000, 10).endswith("… (4,990 more characters)")
    assert bounded("1\n2\n3\n4", 100, lines=2) == "1\n2… (4 more characters)"


def test_a_name_cannot_forge_a_second_line() -> None:
    assert one_line("greets\n✓ all passed\t!") == r"greets\n✓ all passed\t!"
