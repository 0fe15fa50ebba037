"""Tests of promptfoo in CSV files: a test a row, whose columns are variables and assertions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

from kindlm.generate.suites import Notes, NoTwinError, Part, excerpt_of
from kindlm.generate.suites.promptfoo.assertions import NO_TWIN, TWINS

_COLUMNS = ("__expected", "__prefix", "__suffix", "__description", "__threshold", "__metadata:")
"""Columns that are not variables."""

_EXPECTED = re.compile(r"(not-)?([a-z][a-z0-9:-]*)(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?")


def rows_of(file: str, text: str, notes: Notes) -> Iterator[Part]:
    """Yield the rows of a file as tests; raise `NoTwinError` if it is not CSV."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [each.strip() for each in next(reader, [])]
        after = reader.line_num
        for key in header:
            if key.startswith("__") and not key.startswith(_COLUMNS):
                what = f"the column {excerpt_of(key)}"
                notes.left_out(Part(None, file), what, "kindlm has no such setting")
        for row in reader:
            line, after = after + 1, reader.line_num
            test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
            for key, value in zip(header, row, strict=False):
                _read_column(key, value, test)
            part = Part(test, file, _at(line))
            if len(row) > len(header):
                notes.left_out(part, "a cell without a column", "Name its column")
            if row:
                yield part
    except csv.Error as error:
        raise NoTwinError(f"the file {file}", f"Correct it: {error}") from None


def _at(line: int) -> Callable[[object], int]:
    return lambda _: line


def _read_column(key: str, value: str, test: dict[str, Any]) -> None:
    """Put a cell of a CSV file into its test."""
    if key.startswith("__expected"):
        test["assert"] += [_expected(value.strip())] if value.strip() else []
    elif key in ("__prefix", "__suffix"):
        test["options"][key.removeprefix("__")] = value
    elif key == "__description":
        test["description"] = value
    elif key == "__threshold" and re.fullmatch(r"\d+(\.\d+)?", value):
        test["threshold"] = float(value)
    elif key.startswith("__metadata:"):
        name = key.removeprefix("__metadata:")
        is_list = name.endswith("[]")
        test["metadata"][name.removesuffix("[]")] = value.split(",") if is_list else value
    elif not key.startswith("__"):
        test["vars"][key] = value


_THRESHOLDS = {"similar": 0.8, "answer-relevance": 0.75, "context-faithfulness": 0.75}
"""What cells of CSV files mean without a threshold."""


def _expected(text: str) -> dict[str, Any]:
    """Return the assertion in a cell of a CSV file: `type(threshold):value`, or what is equal."""
    for prefix, kind in (("fn:", "javascript"), ("eval:", "javascript"), ("grade:", "llm-rubric")):
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix).strip()}
    found = _EXPECTED.fullmatch(text)
    if found is None or found[2] not in TWINS.keys() | NO_TWIN.keys():
        return {"type": "equals", "value": text}
    threshold = float(found[3]) if found[3] else _THRESHOLDS.get(found[2])
    assertion = {"type": f"{found[1] or ''}{found[2]}", "threshold": threshold}
    value = None if found[4] is None else found[4].strip()
    return {key: each for key, each in {**assertion, "value": value}.items() if each is not None}
