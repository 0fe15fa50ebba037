"""Reading YAML: what the text means, where it stands, and that nothing breaks the reader."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kindlm.document import MAX_BYTES, Document
from kindlm.yaml_document import read_document


def read(text: str) -> Document:
    return read_document(text.encode())


def problem(text: str | bytes) -> tuple[str, int, int]:
    document = read_document(text.encode() if isinstance(text, str) else text)
    [found] = document.problems
    assert found.position
    assert found.hint
    return found.message, found.position.line, found.position.column


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("Off", "Off"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("True", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("~", None),
        ("", None),
        ("=", "="),
        ('"true"', "true"),
        ("٣", "٣"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, value: Any) -> None:
    found = read(f"a: {text}").value["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", [".inf", "-.INF", ".nan", "1e999", "9" * 2000, "!!str 1", "!!set {}", "!mine x"]
)
def test_what_json_cannot_hold_is_an_error_at_its_place(text: str) -> None:
    assert problem(f"b: 1\na: {text}")[1:] == (2, 4)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read("1: a\ntrue: b\n~: c\n010: d").value == {
        "1": "a",
        "true": "b",
        "~": "c",
        "010": "d",
    }


def test_a_second_equal_key_is_an_error_and_the_first_one_holds() -> None:
    document = read("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 4\n")
    assert document.value == {"a": 1, "b": {"c": 1, "d": 2}}
    places = [(p.path, p.position and p.position.line, p.message) for p in document.problems]
    assert places == [
        (("b", "c"), 5, 'The key "c" occurs twice: first on line 3'),
        (("a",), 6, 'The key "a" occurs twice: first on line 1'),
    ]


def test_an_alias_stands_for_its_value() -> None:
    assert read("a: &x {b: [1]}\nc: *x").value == {"a": {"b": [1]}, "c": {"b": [1]}}


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a:\n\tb: 1", "A tab is used for indentation", 2, 1),
        ("a: |\n  x\n\ty", "A tab is used for indentation", 3, 1),
        ("a: b: c", "A ':' is not allowed here", 1, 5),
        ("a: 'x\nb: 1\n", "A quote is never closed", 1, 4),
        ("a: [1, 2\nb: 3", "A '[' that opens on line 1 is not closed", 2, 2),
        ('a: "\\d"', "This escape is unknown in double quotes", 1, 5),
        ('a: "\\ufdd0"', "The character U+FDD0 is not allowed", 1, 4),
        ("a: @x", "A value cannot begin with '@'", 1, 4),
        ("a: *x", "The alias *x refers to nothing", 1, 4),
        ("a: &x [*x]", "The alias *x is inside the value that it refers to", 1, 8),
        ("a: &x {b: 1}\nc:\n  <<: *x", "Merge keys (<<) are not part of YAML 1.2", 3, 3),
        ("a: 1\n---\nb: 1", "The file contains more than one document", 2, 1),
        ("? [a]\n: b", "A key must be text", 1, 3),
        ("a: &x b\n*x : c", "A key must be text", 2, 1),
        ("a: {{x}}", "A value that begins with {{ must be in quotes", 1, 4),
        ("- {{env.X}}/chat", "A value that begins with {{ must be in quotes", 1, 3),
        ("a: 1\n  b: 2", "A ':' is not allowed here", 2, 4),
        ("- a\nb: 1", "A list ends here, but this line is not indented like the rest", 2, 1),
        ("a: \x00", "The character U+0000 is not allowed in YAML", 1, 4),
        (b"a: 1\nb: \xc3\xbc\xff", "The file is not UTF-8: byte 10 (0xff) is not valid", 2, 5),
        (b"\xef\xbb\xbfab\xff", "The file is not UTF-8: byte 5 (0xff) is not valid", 1, 3),
        (b"\xff\xfea\x00", "The file is UTF-16, not UTF-8", 1, 1),
    ],
)
def test_syntax_errors_say_what_and_where(
    text: str | bytes, message: str, line: int, column: int
) -> None:
    assert problem(text) == (message, line, column)


def test_a_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    document = read_document(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: x\r\n")
    assert document.value == {"a": 1, "b": {"c": "x"}}
    assert document.position(("b", "c"), key=True).line == 3
    assert document.line(3) == "  c: x"


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "~"])
def test_an_empty_file_is_null(text: str) -> None:
    assert read(text).value is None
    assert read(text).readable


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n"
            for i in range(9)
        ),
        f"a: &a {'x' * 900_000}\nb: [{'*a,' * 20_000}]",
        "[" + "a," * 500_000 + "]",
    ],
    ids=["brackets", "braces", "dashes", "billion laughs", "long alias", "many items"],
)
def test_a_hostile_file_is_refused_by_a_limit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kindlm.yaml_document.MAX_NODES", 50_000)
    document = read(text)
    assert document.value is None
    assert [p.limit for p in document.problems] == [True]


def test_a_file_of_two_mebibytes_is_refused() -> None:
    document = read_document(b"a" * (2 * MAX_BYTES))
    assert [p.limit for p in document.problems] == [True]


def test_many_anchors_in_a_small_file_are_no_problem() -> None:
    names = [f"n{i}" for i in range(2_000)]
    text = "\n".join(f"{name}: &{name} 1" for name in names)
    assert len(read(text).value) == 2_000


KEYS = st.text("abcxyz", min_size=1, max_size=4)
TREES = st.recursive(
    st.one_of(
        st.integers(), st.text("ab \"'#:-[]{},\n\u00fc\U0001f600", max_size=9), st.booleans()
    ),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=4), st.sampled_from([True, False, None]))
def test_positions_point_at_the_key(tree: dict[str, Any], flow: bool | None) -> None:
    """Whatever the style, the place of a path is where its key is written."""
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True, width=40)
    document = read(text)
    assert document.value == tree
    lines = text.split("\n")
    for path in keys_of(tree, ()):
        position = document.position(path, key=True)
        rest = lines[position.line - 1][position.column - 1 :]
        assert re.match(rf"(\? )?['\"]?{path[-1]}['\"]?\s*(:|$)", rest), (path, rest)


def keys_of(value: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict):
        below = [keys_of(item, (*path, key)) for key, item in value.items()]
        return [(*path, key) for key in value] + [item for found in below for item in found]
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in keys_of(item, (*path, i))]
    return []


def test_an_absent_key_is_where_its_parent_is() -> None:
    document = read("a: 1\nb:\n  c: {d: 1}\n")
    assert document.position(("b", "c", "zz")).line == 3
    assert document.position(("b", "zz", "y")).line == 2
    assert document.position(("zz",)).line == 1


YAML_LIKE = st.text(
    st.sampled_from(list("ab1:- \n\t[]{},#&*!|>'\"%@`?~\\<.\r\ufeff\u2028é")), max_size=60
)


@given(st.one_of(YAML_LIKE.map(str.encode), st.text().map(str.encode), st.binary()))
def test_no_input_breaks_the_reader(data: bytes) -> None:
    """Anything gives JSON values or problems, with places that are in the text."""
    document = read_document(data)
    json.dumps(document.value, allow_nan=False)
    assert document.readable or document.problems
    for found in document.problems:
        assert found.message
        if found.position:
            line = document.line(found.position.line)
            assert line is not None
            assert 1 <= found.position.column <= len(line) + 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a: 1\nb: "x\nc: 2\nd: "y"\n', 2),
        ("a: 'it's'\n", 1),
        ('- name: "one\n  vars: {a: "b"}\n', 1),
    ],
)
def test_a_quote_that_ends_too_early_or_too_late_is_named_by_its_line(text: str, line: int) -> None:
    message, _, _ = problem(text)
    assert message == f"Text follows the end of the quote that opens on line {line}"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_named(encoding: str) -> None:
    [found] = read_document("kindlm: 1\n".encode(encoding)).problems
    assert found.message == f"The file is {encoding[:6].upper()}, not UTF-8"
    assert found.hint == "Save the file with the encoding UTF-8"
