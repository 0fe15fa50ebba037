"""The check that the final text is JSON and fits a schema."""

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
    "SCHEMA_PARSE_ERROR": "The output is not JSON.",
    "SCHEMA_INVALID": "The output does not match its schema. The message lists all places.",
}

_MAX_LISTED = 5
_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000


@dataclass(frozen=True, slots=True)
class Schema(Check):
    """The whole output is JSON, and fits the schema if there is one.

    `schema_file` is the name of the schema in messages. `issues` returns further problems of a
    value that fits the schema, as pydantic models demand more than a schema can say.
    """

    kind = "schema"
    demands = Demands.TASK

    schema: Any = None
    schema_file: str | None = None
    issues: Callable[[Any], list[SchemaIssue]] | None = None

    def is_slow(self, transcript: Transcript) -> bool:
        return self.schema is not None

    def value(self, text: str) -> Any:
        """Return the JSON value of a text; raise `ValueError` if there is none."""
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
            note = "The output is JSON inside a code fence, which was removed."
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
    """The JSON in the output fits the schema; see `find_json`."""

    kind = "output_schema"

    def value(self, text: str) -> Any:
        return find_json(text)


def json_of(text: str) -> Any:
    """Return the JSON value of a whole text, perhaps in a code fence.

    Raises:
        ValueError: the text is not JSON, or repeats a key, so that one value would hide another.
    """
    inside = unfenced(text)
    return parse_json(text if inside is None else inside, unique_keys)


def find_json(text: str) -> Any:
    """Return the JSON value of a text, or the first object among 1,000 places in it.

    Raises `ValueError` if there is none.
    """
    try:
        return json_of(text)
    except ValueError:
        pass
    for opening in islice(_OPENING.finditer(text), _MAX_OPENINGS):
        with suppress(ValueError):
            return parse_json_at(text, opening.start())
    raise ValueError("it holds no JSON object")
