"""The check of JSON that may stand within other text."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from kindlm.checks.json_text import parse_json
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.outcome import CheckResult, FailureCode
from kindlm.strict_json import NotJsonError, parse_json_at
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, listed, shown

__all__ = ["find_json", "output_fits", "output_schema"]

_MAX_LISTED = 5
_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000
_MAX_READ = 20_000_000
"""How many characters of objects that turn out to be none are read before a text is given up."""


def _always(_expectation: Expectation, _transcript: Transcript) -> bool:
    return True


@check("output_schema", slow=_always)
def output_schema(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The JSON in the text fits `schema`.

    It is the whole text if that is JSON, a code fence around it allowed, else the first object
    in it that can be read.
    """
    try:
        value = find_json(transcript.text)
    except ValueError:
        message = f"The output holds no JSON object. It is {shown(transcript.text)}."
        code, actual = FailureCode.SCHEMA_PARSE_ERROR, excerpt(transcript.text)
        return [failed(expectation, code, message, expected="JSON", actual=actual)]
    try:
        issues = schema_issues(expectation.params["schema"], value)
    except UndecidableSchemaError as error:
        return [undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))]
    if not issues:
        return [passed(expectation)]
    places = (f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
    return [
        failed(
            expectation,
            FailureCode.SCHEMA_INVALID,
            f"The JSON in the output does not fit the schema: {listed(places, len(issues))}.",
            expected="the schema",
            actual=[{"path": issue.path, "message": issue.message} for issue in issues],
        )
    ]


def output_fits(schema: Any, text: str) -> bool:
    """Tell whether a text holds JSON that fits a schema; one that cannot decide is not met."""
    try:
        return not schema_issues(schema, find_json(text))
    except (ValueError, UndecidableSchemaError):
        return False


def find_json(text: str) -> Any:
    """Return the JSON that a text is, or the first object in it; raise `ValueError` if none is.

    Nothing is found any more once a thousand places turned out to be none, or once 20 million
    characters were read in vain: where objects are open within one another, each is read to the
    place where all of them break off.
    """
    try:
        return parse_json(text).value
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
