"""Categories and sequences of tools, and tools that are forbidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.evalview.tools import SequenceMode, sequence_share
from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import ToolUse, Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

names = st.lists(st.sampled_from("abc"), max_size=6)
modes = st.sampled_from(get_args(SequenceMode))


class TestMissing:
    @pytest.mark.parametrize("called", ["read_file", "Read-File", "readfile"])
    def test_a_tool_that_is_spelt_otherwise_is_named(
        self, evaluate: Evaluate, said: Said, used: Used, called: str
    ) -> None:
        result = evaluate("tool_called", {"tool": "readFile"}, said("", used(called)))
        assert result.failure_code == "TOOL_CALL_MISSING"
        assert f"{called} is not readFile: the names must be identical" in result.message

    def test_another_tool_is_no_slip(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        result = evaluate("tool_called", {"tool": "read_file"}, said("", used("read_files")))
        assert "spelt" not in result.message


class TestCategory:
    PARAMS = {"category": "web", "tools": ["curl", "browse"]}  # noqa: RUF012

    def test_any_of_its_tools_will_do(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        result = evaluate("tool_category", self.PARAMS, said("", used("x"), used("browse")))
        assert result.outcome is Outcome.PASSED

    def test_others_are_named(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        result = evaluate("tool_category", self.PARAMS, said("", used("ls")))
        assert result.failure_code == "TOOL_CATEGORY_MISSING"
        assert result.actual == ["ls"]
        assert result.expected == {"category": "web", "tools": ["curl", "browse"]}

    def test_an_unknown_one_is_never_satisfied(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        result = evaluate("tool_category", {"category": "no", "tools": None}, said("", used("no")))
        assert result.outcome is Outcome.FAILED
        assert "which has no tools" in result.message

    def test_no_call_at_all_is_said(self, evaluate: Evaluate, said: Said) -> None:
        assert "called no tool" in evaluate("tool_category", self.PARAMS, said("")).message


class TestForbidden:
    @pytest.mark.parametrize("called", ["edit_file", "EditFile", "edit-file"])
    def test_spelling_hides_no_call(
        self, evaluate: Evaluate, said: Said, used: Used, called: str
    ) -> None:
        transcript = said("", used("search"), used(called, {"path": "a"}))
        result = evaluate("forbidden_tool", {"tool": "edit_file"}, transcript)
        assert result.failure_code == "TOOL_CALL_UNEXPECTED"
        assert [(call["index"], call["tool"]) for call in result.actual] == [(1, called)]
        assert "call 1" in result.message

    def test_others_are_allowed(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        result = evaluate("forbidden_tool", {"tool": "edit_file"}, said("", used("edit_files")))
        assert result.outcome is Outcome.PASSED


class TestSequence:
    @pytest.mark.parametrize(
        ("mode", "sequence", "called", "score", "holds"),
        [
            ("exact", "ab", "ab", 1, True),
            ("exact", "ab", "abc", 1, False),
            ("exact", "ab", "a", 0.5, False),
            ("exact", "ab", "ba", 0, False),
            ("exact", "aab", "aba", 0.3333, False),
            ("exact", "", "a", 1, True),
            ("subsequence", "ab", "xaxbx", 1, True),
            ("subsequence", "abc", "acb", 0.6667, False),
            ("subsequence", "aa", "a", 0.5, False),
            ("unordered", "aab", "baxa", 1, True),
            ("unordered", "aab", "ab", 0.6667, False),
        ],
    )
    def test_each_mode_compares_the_order_by_its_rule(
        self,
        evaluate: Evaluate,
        said: Said,
        used: Used,
        mode: str,
        sequence: str,
        called: str,
        score: float,
        holds: bool,
    ) -> None:
        params = {"sequence": list(sequence), "mode": mode}
        result = evaluate("tool_sequence", params, said("", *map(used, called)))
        assert result.score == score
        assert (result.outcome is Outcome.PASSED) == holds
        assert (result.failure_code == "TOOL_SEQUENCE_WRONG") == (not holds)

    def test_it_says_what_is_missing(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        result = evaluate("tool_sequence", {"sequence": ["a", "b"]}, said("", used("b")))
        assert '"a" is missing' in result.message
        assert result.actual == ["b"]

    @given(names, names, modes)
    def test_progress_is_a_share(
        self, expected: list[str], called: list[str], mode: SequenceMode
    ) -> None:
        assert 0 <= sequence_share(expected, called, mode) <= 1
        assert sequence_share(expected, expected, mode) == 1

    @given(names, names, st.sampled_from(["subsequence", "unordered"]))
    def test_one_more_call_never_takes_progress_away(
        self, expected: list[str], called: list[str], mode: SequenceMode
    ) -> None:
        before = sequence_share(expected, called, mode)
        assert sequence_share(expected, [*called, "a"], mode) >= before
