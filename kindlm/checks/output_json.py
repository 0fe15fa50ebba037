"""Checks of JSON in the final text, and of the schema that it has to fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.json_schema import SchemaIssue, UndecidableSchemaError, schema_issues
from kindlm.model_answers import unfenced
from kindlm.outcome import CheckResult, FailureCode
from kindlm.strict_json import NotJsonError, parse_json, parse_json_at
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, listed, shown

__all__ = ["find_json", "json_of", "output_schema", "schema"]

_MAX_LISTED = 5
_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000
_MAX_READ = 20_000_000
"""How many characters of objects that turn out to be none are read before a text is given up."""


def _has_schema(expectation: Expectation, _transcript: Transcript) -> bool:
    return expectation.params.get("schema") is not None


@check("schema", slow=_has_schema)
def schema(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The whole text is JSON, and fits the schema if there is one.

    Params: `schema`, a JSON Schema or None; `schemaFile`, the name it is known by; `issues`, which
    tells what else is wrong with a value that fits the schema: a schema can not say all that a
    model can.
    """
    params, text = expectation.params, transcript.text
    document: Any = params.get("schema")
    try:
        value = json_of(text)
    except ValueError as error:
        message = f"The output is not JSON: {error}. It is {shown(text)}."
        return _no_json(expectation, message, text)
    note = ""
    if unfenced(text) is not None:
        note = "The output is JSON inside a code fence, which was taken away."
    if document is None:
        return passed(expectation, message=note)
    try:
        issues = schema_issues(document, value)
    except UndecidableSchemaError as error:
        return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))
    more = params.get("issues")
    if not issues and more is not None:
        issues = more(value)
    if not issues:
        return passed(expectation, message=note)
    name = params.get("schemaFile") or "the schema"
    first = " ".join(f"{issue.path}: {issue.message};" for issue in issues[:_MAX_LISTED])
    left = len(issues) - _MAX_LISTED
    places = f"{first} and {left} more" if left > 0 else f"{first.removesuffix(';')}."
    message = f"The output does not fit {name}: {places} {note}".rstrip()
    return _invalid(expectation, message, name, issues)


@check("output_schema", slow=_has_schema)
def output_schema(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The JSON in the text fits `schema`.

    It is the whole text if that is JSON, a code fence around it allowed, else the first object
    in it that can be read.
    """
    try:
        value = find_json(transcript.text)
    except ValueError:
        message = f"The output holds no JSON object. It is {shown(transcript.text)}."
        return _no_json(expectation, message, transcript.text)
    try:
        issues = schema_issues(expectation.params["schema"], value)
    except UndecidableSchemaError as error:
        return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))
    if not issues:
        return passed(expectation)
    places = (f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
    message = f"The JSON in the output does not fit the schema: {listed(places, len(issues))}."
    return _invalid(expectation, message, "the schema", issues)


def _no_json(expectation: Expectation, message: str, text: str) -> CheckResult:
    code = FailureCode.SCHEMA_PARSE_ERROR
    return failed(expectation, code, message, expected="JSON", actual=excerpt(text))


def _invalid(
    expectation: Expectation, message: str, name: str, issues: Sequence[SchemaIssue]
) -> CheckResult:
    actual = [{"path": issue.path, "message": issue.message} for issue in issues]
    code = FailureCode.SCHEMA_INVALID
    return failed(expectation, code, message, expected=name, actual=actual)


def json_of(text: str) -> Any:
    """Return the JSON that a whole text is, a code fence around it allowed.

    Raises:
        ValueError: it is no JSON; says where.
    """
    inside = unfenced(text)
    return parse_json(text if inside is None else inside)


def find_json(text: str) -> Any:
    """Return the JSON that a text is, or the first object in it; raise `ValueError` if none is.

    Nothing is found any more once a thousand places turned out to be none, or once 20 million
    characters were read in vain: where objects are open within one another, each is read to the
    place where all of them break off.
    """
    try:
        return json_of(text)
    except ValueError:
        pass
    read = 0
    for opening in islice(_OPENING.finditer(text), _MAX_OPENINGS):
        start = opening.start()
        try:
            return parse_json_at(text, start)
        except NotJsonError as error:
            read += error.position - start + 1
        except ValueError:  # it does not say where
            read += len(text) - start
        if read > _MAX_READ:
            break
    raise ValueError("it holds no JSON object")
