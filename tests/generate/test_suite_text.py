"""A suite as text holds what its mapping holds, whatever its texts are."""

from pathlib import Path
from typing import Any

import pytest

from kindlm.config import load_suite
from kindlm.errors import Err, Ok
from kindlm.generate.suite_text import BRACES, Comment, literal, suite_text
from kindlm.yaml_document import read_document

TEXTS = [
    "yes", "1e3", "null", "- a", "a: b", "# no comment", "{{env.HOME}}", "", " lead", "trail ",
    "two\nlines\n", "two\n\nlines", "a\nb \nc", "tab\tb", "\x1b[31mred", "\u202eback",
    "it's \"so\"", "a" * 300, "word " * 60, "--- !!python/object:os", "*alias",
    "x\n\n", "\nx", "é ü 漢字 🎉",
]  # fmt: skip


def suite(**test: Any) -> dict[Any, Any]:
    return {
        Comment("A comment\ntests: []\x1b"): 0,
        "kindlm": 1,
        "project": "shop",
        "model": "openai/gpt-4o",
        "tests": [{"name": "one", "input": "Hi", "expect": {"output": {"contains": "x"}}, **test}],
    }


def test_every_text_is_read_as_it_was_given() -> None:
    then = [*TEXTS, {text: text for text in TEXTS}, [[{}, [], [1, None, True, 1e16]]]]
    tools = [{"name": "a", "responses": [Comment("why"), {"then": then}]}]
    made = suite_text(suite(tools=tools), Path("made.yaml"))
    assert isinstance(made, Ok)
    read = read_document(made.value.encode()).value
    assert read["tests"][0]["tools"] == [{"name": "a", "responses": [{"then": then}]}]
    assert made.value.startswith("# A comment\n# tests: []\nkindlm: 1\n")
    assert all(char.isprintable() or char == "\n" for char in made.value)


@pytest.mark.parametrize("text", ["{{env.HOME}}", "{{{{name}}}}", "{{{x}}}", "{ {{ y }} }{{"])
def test_a_literal_text_has_no_placeholders(text: str, tmp_path: Path) -> None:
    made = suite_text(suite(input=literal(text), vars=BRACES), Path("made.yaml"))
    assert isinstance(made, Ok)
    loaded = load_suite(tmp_path / "made.yaml", text=made.value.encode()).suite
    assert loaded is not None
    assert loaded.cases[0].prompt.user == text


def test_a_suite_that_cannot_be_loaded_is_an_error_with_its_place() -> None:
    made = suite_text(suite(tols=[]), Path("made.yaml"))
    assert isinstance(made, Err)
    assert "tols" in made.error.message


def test_half_of_a_character_does_not_make_a_suite_that_cannot_be_loaded(tmp_path: Path) -> None:
    made = suite_text(suite(input="cut \ud83d"), Path("made.yaml"))
    assert isinstance(made, Ok), made
    loaded = load_suite(tmp_path / "made.yaml", text=made.value.encode()).suite
    assert loaded is not None
    assert loaded.cases[0].prompt.user == "cut \ufffd"
