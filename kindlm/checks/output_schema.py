"""Checks that the final text is JSON, and fits a schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

from kindlm.checks.base import Check, failed, passed
from kindlm.dataclass import dataclass
from kindlm.json_schema import SchemaIssue, schema_issues
from kindlm.model_answers import unfenced
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.strict_json import parse_json, parse_json_at, unique_keys
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, listed, shown

CODES = {
    "SCHEMA_PARSE_ERROR": "the output is not JSON",
    "SCHEMA_INVALID": "the output does not fit its schema; all places are listed",
}

_MAX_LISTED = 5
_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000


@dataclass(frozen=True, slots=True)
class Schema(Check):
    """The whole text is JSON, and fits the schema if there is one.

    `schema_file` is the name that the schema is known by. `issues` returns what else is wrong with
    a value that fits the schema: a schema cannot say all that a model can.
    """

    kind = "schema"
    demands = Demands.TASK

    schema: Any = None
    schema_file: str | None = None
    issues: Callable[[Any], list[SchemaIssue]] | None = None

    def is_slow(self, transcript: Transcript) -> bool:
        return self.schema is not None

    def value(self, text: str) -> Any:
        """Return the JSON that a text is; raise `ValueError` if it is none."""
        return json_of(text)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        try:
            value = self.value(text)
        except ValueError as error:
            message = f"The output is not JSON: {error}. It is {shown(text)}."
            return failed("SCHEMA_PARSE_ERROR", message, expected="JSON", actual=excerpt(text))
        note = ""
        if unfenced(text) is not None:
            note = "The output is JSON inside a code fence, which was taken away."
        if self.schema is None:
            return passed(message=note)
        found = schema_issues(self.schema, value)
        if not found and self.issues is not None:
            found = self.issues(value)
        if not found:
            return passed(message=note)
        name = self.schema_file or "the schema"
        places = listed(found, _MAX_LISTED, lambda issue: f"{issue.path}: {issue.message}")
        message = f"The output does not fit {name}: {places}. {note}".rstrip()
        actual = [{"path": issue.path, "message": issue.message} for issue in found]
        return failed("SCHEMA_INVALID", message, expected=name, actual=actual)


@dataclass(frozen=True, slots=True)
class OutputSchema(Schema):
    """The JSON in the text fits the schema.

    It is the whole text if that is JSON, a code fence around it allowed, else the first object
    in it that can be read.
    """

    kind = "output_schema"

    def value(self, text: str) -> Any:
        return find_json(text)


def json_of(text: str) -> Any:
    """Return the JSON that a whole text is, a code fence around it allowed.

    Raises:
        ValueError: it is not JSON, or a key occurs twice: one value hides another; says where.
    """
    inside = unfenced(text)
    return parse_json(text if inside is None else inside, unique_keys)


def find_json(text: str) -> Any:
    """Return the JSON that a text is, or the first object in it; raise `ValueError` if none is.

    Nothing is found any more once a thousand places turned out to be none.
    """
    try:
        return json_of(text)
    except ValueError:
        pass
    for opening in islice(_OPENING.finditer(text), _MAX_OPENINGS):
        with suppress(ValueError):
            return parse_json_at(text, opening.start())
    raise ValueError("it holds no JSON object")
