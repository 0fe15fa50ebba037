"""Tests that become one for each row of a file."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.config.rows import read_rows
from kindlm.errors import checked


@pytest.fixture
def suite(minimal: str) -> str:
    return minimal.replace("{user: Hi}", "{user: '{{message}}'}").replace(
        "prompt: ask", "prompt: ask\n    varsFrom: FILE"
    )


@pytest.fixture
def load_rows(load: Any, suite: str, tmp_path: Path) -> Any:
    def write_and_load(name: str, content: str | bytes, **replaced: str) -> Any:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        text = suite.replace("FILE", name)
        for old, new in replaced.items():
            text = text.replace(old, new)
        return load(text)

    return write_and_load


def cases(loaded: Any) -> list[tuple[str, str]]:
    assert loaded.suite, loaded.diagnostics
    return [(case.name, case.prompt.user) for case in loaded.suite.cases]


def problems(loaded: Any) -> list[tuple[str, int, str]]:
    assert loaded.suite is None
    assert {item.path for item in loaded.diagnostics} <= {"tests[0].varsFrom", "tests[0].prompt"}
    return [
        (Path(item.error.where.file).name, item.error.where.line, item.error.message)
        for item in loaded.diagnostics
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("r.csv", "message\nHi\nHo\n", [("greets [1]", "Hi"), ("greets [2]", "Ho")]),
        ("r.csv", "id,message\na,Hi\nb,Ho\n", [("greets [a]", "Hi"), ("greets [b]", "Ho")]),
        ("r.csv", '\ufeffmessage\r\n"a, ""b""\nc"\r\n\r\nHo', [("greets [1]", 'a, "b"\nc'), ("greets [2]", "Ho")]),
        ("r.csv", "message\n{{env.HOME}}\n", [("greets [1]", "{{env.HOME}}")]),
        ("r.csv", "message,x\nHi,1\n \t \n", [("greets [1]", "Hi")]),
        ("r.csv", "message\n \n", [("greets [1]", " ")]),
        ("R.CSV", "message,x\n,1\n", [("greets [1]", "")]),
        ("r.jsonl", '{"message": "Hi"}\n\n{"message": "Ho", "id": 7}\n', [("greets [1]", "Hi"), ("greets [7]", "Ho")]),
        ("r.ndjson", '{"message": 1.5}\n{"message": [true, "ü"]}', [("greets [1]", "1.5"), ("greets [2]", '[true, "ü"]')]),
        ("r.jsonl", '{"message": "a\\u2028b"}\r\n', [("greets [1]", "a\u2028b")]),
    ],
)  # fmt: skip
def test_a_test_becomes_one_for_each_row(
    load_rows: Any, name: str, content: str, expected: list[tuple[str, str]]
) -> None:
    loaded = load_rows(name, content)
    assert cases(loaded) == expected
    assert loaded.tests == len(expected)
    # They share what no row changes.
    assert len({id(case.expectations) for case in loaded.suite.cases}) == 1


@pytest.mark.parametrize(
    ("name", "content", "line", "message"),
    [
        ("r.csv", "", 1, "The file holds no rows"),
        ("r.csv", "message\n", 1, "The file holds no rows"),
        ("r.csv", "message,x\nHi\n", 2, "The row has 1 value, the header has 2 names"),
        ("r.csv", 'message\n"a\nb"\nc,d\n', 4, "The row has 2 values, the header has 1 name"),
        ("r.csv", 'message\n"a\nb\n', 2, "This is not CSV: unexpected end of data"),
        ("r.csv", "message\nx\x00\n\"a\"b\n", 3, "This is not CSV: ',' expected after '\"'"),
        ("r.csv", "message,message\na,b\n", 1, 'The column "message" occurs twice'),
        ("r.csv", "id;message\nA;Hi\n", 1, "The columns are separated by semicolons"),
        ("r.csv", "id\tmessage\nA\tHi\n", 1, "The columns are separated by tabs"),
        ("r.csv", "my message\na\n", 1, '"my message" cannot be the name of a variable'),
        ("r.csv", "env.HOME\na\n", 1, 'A variable cannot be called "env.HOME": that prefix is reserved'),
        ("r.csv", "id,message\na,1\nb,2\na,3\n", 4, 'The row "a" occurs twice: first on line 2'),
        ("r.csv", "id,message\n ,1\n", 2, "The id of the row is empty"),
        ("r.jsonl", '{"message": "a"}\n[1]\n', 2, "The row is not an object"),
        ("r.jsonl", '{"message": "a"', 1, "The row is not JSON: Expecting ',' delimiter (line 1, column 16)"),
        ("r.jsonl", '{"message": NaN}', 1, "The row is not JSON: NaN is not a JSON number"),
        ("r.jsonl", '{"message": "a", "message": "b"}', 1, 'The row is not JSON: the key "message" occurs twice'),
        ("r.jsonl", '{"message": "\\ud800"}', 1, '"message" contains an invalid character'),
        ("r.jsonl", '{"message": "\\ufdd0{{env.HOME}}"}', 1, '"message" contains an invalid character'),
        ("r.jsonl", "[" * 100_000, 1, "The row is not JSON: it is nested too deeply"),
        ("r.txt", "message\n", 1, '"r.txt" is neither CSV nor JSON Lines'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_reported_with_its_line(
    load_rows: Any, name: str, content: str, line: int, message: str
) -> None:
    found = problems(load_rows(name, content))
    if name == "r.txt":
        assert [message] == [said for _, _, said in found]
    else:
        assert found == [(name, line, message)]


def test_equal_ids_are_to_be_made_unique(load_rows: Any) -> None:
    [found] = load_rows("r.csv", "id,message\n1,a\n1,b\n").diagnostics
    assert found.error.hint == "Give each row an id of its own"


def test_all_faulty_rows_are_reported_with_their_text(load_rows: Any) -> None:
    loaded = load_rows("r.csv", "id,message\na\nb,2\nc,3,4\n")
    assert [line for _, line, _ in problems(loaded)] == [2, 4]
    assert [item.source_line for item in loaded.diagnostics] == ["a", "c,3,4"]
    loaded = load_rows("r.jsonl", '{"a b": 1}\n{"id": "b", "message": 2}\n[]\n{"id": ""}\n')
    assert [line for _, line, _ in problems(loaded)] == [1, 3, 4]


def test_the_telling_ends_at_some_point(load_rows: Any) -> None:
    assert len(problems(load_rows("r.csv", "id,message\n" + "x\n" * 500))) == 20


def test_a_row_without_a_variable_is_named(load_rows: Any) -> None:
    loaded = load_rows("r.jsonl", '{"message": "Hi"}\n{"id": "b"}\n{"message": null}\n')
    assert problems(loaded) == [
        ("r.jsonl", 2, 'The row "b" of the test "greets" has no value for {{message}}'),
        ("r.jsonl", 3, 'The row "3" of the test "greets" has no value for {{message}}'),
    ]


def test_a_variable_that_no_row_has_is_reported_once(load_rows: Any) -> None:
    loaded = load_rows("r.csv", "text\nHi\nHo\n")
    [(file, _, message)] = problems(loaded)
    assert file == "kindlm.yaml"
    assert message == 'The test "greets" has no value for {{message}}'
    assert loaded.diagnostics[0].error.details["missing"] == ["message"]


def test_variables_of_the_test_hold_where_a_row_has_none(load_rows: Any) -> None:
    loaded = load_rows(
        "r.jsonl",
        '{"message": "Hi"}\n{}\n',
        **{"prompt: ask": "prompt: ask\n    vars: {message: all}"},
    )
    assert cases(loaded) == [("greets [1]", "Hi"), ("greets [2]", "all")]


def test_a_row_does_not_take_the_name_of_a_test(load_rows: Any) -> None:
    other = "tests:\n  - {name: 'greets [1]', prompt: ask, vars: {message: a}, expect: {}}\n"
    loaded = load_rows("r.csv", "message\nHi\n", **{"tests:\n": other})
    assert [
        item.error.details["reason"] for item in loaded.diagnostics if item.severity == "error"
    ] == ["duplicate_test"]


def test_rows_are_in_the_hash(load_rows: Any) -> None:
    hashes = [
        load_rows("r.csv", content).suite.config_hash
        for content in ("message\na\n", "message\nb\n")
    ]
    assert hashes[0] != hashes[1]


def test_a_rows_file_stays_in_the_folder(load: Any, suite: str) -> None:
    [found] = load(suite.replace("FILE", "../r.csv")).diagnostics
    assert (found.path, found.error.code.name) == ("tests[0].varsFrom", "CONFIG_FILE_REF_ERROR")


def test_a_value_may_be_as_long_as_the_file(load_rows: Any) -> None:
    long = "x" * 200_000
    (case,) = load_rows("r.csv", f"message\n{long}\n").suite.cases
    assert case.prompt.user == long


def test_too_many_rows_are_refused(load_rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kindlm.config.rows.MAX_ROWS", 3)
    [(_, line, message)] = problems(load_rows("r.csv", "message\n" + "a\n" * 5))
    assert (line, message) == (5, "The file holds more than 3 rows")


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0")), min_size=2, max_size=2),
        min_size=1,
    )
)  # fmt: skip
def test_what_the_csv_module_writes_is_read_back(cells: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b"], *cells])
    found = checked(read_rows("r.csv", text.getvalue()))
    assert found.errors == ()
    assert [[row.values["a"], row.values["b"]] for row in found.rows] == cells


JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0"))


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b.c", "ü"]), JSON_TEXT), min_size=1))
def test_json_lines_are_read_back(rows: list[dict[str, str]]) -> None:
    text = "\n".join(json.dumps(row) for row in rows)
    found = checked(read_rows("r.jsonl", text))
    assert found.errors == ()
    assert [row.values for row in found.rows] == rows


@given(
    st.sampled_from(["r.csv", "r.jsonl"]), st.text(st.sampled_from(list('a,"\n\r{}[]:\\ 1\x00')))
)
def test_any_text_gives_rows_or_errors(name: str, text: str) -> None:
    found = checked(read_rows(name, text))
    assert found.rows or found.errors
    for error in found.errors:
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 2
        assert str(error)
        assert error.hint


def test_a_column_is_no_placeholder_in_a_check(load_rows: Any) -> None:
    """Otherwise, a check that no answer has the text of a column would never fail."""
    loaded = load_rows("r.csv", "message,answer\nHi,hello\n", hello="'{{answer}}'")
    (found,) = loaded.diagnostics
    assert (found.severity, found.error.details["reason"]) == ("warning", "not_expanded")
