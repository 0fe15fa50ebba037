"""Checks of the final text: JSON and its schema, substrings, length."""

from __future__ import annotations

from typing import Any

from kindlm.checks.json_text import parse_json
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.checks.substrings import HIDDEN, find, find_hidden, occurs
from kindlm.json_schema import SchemaIssue, UndecidableSchemaError, schema_issues
from kindlm.outcome import CheckResult, Evidence, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import count, excerpt, shown

__all__ = ["contains", "max_length", "not_contains", "schema"]

_MAX_EVIDENCE = 20
_MAX_LISTED = 5
_CONTEXT = 30


def _has_schema(expectation: Expectation, _transcript: Transcript) -> bool:
    return expectation.params.get("schema") is not None


@check("schema", slow=_has_schema)
def schema(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The whole text is JSON, and fits the schema if there is one.

    Params: `schema`, a JSON Schema or None; `schemaFile`, the name it is known by; `issues`, which
    tells what else is wrong with a value that fits the schema: a schema can not say all that a
    model can.
    """
    document: Any = expectation.params.get("schema")
    try:
        parsed = parse_json(transcript.text)
    except ValueError as error:
        message = f"The output is not JSON: {error}. It is {shown(transcript.text)}."
        code = FailureCode.SCHEMA_PARSE_ERROR
        return [
            failed(expectation, code, message, expected="JSON", actual=excerpt(transcript.text))
        ]
    note = "The output is JSON inside a code fence, which was taken away." if parsed.fenced else ""
    if document is None:
        return [passed(expectation, message=note)]
    try:
        issues = schema_issues(document, parsed.value)
    except UndecidableSchemaError as error:
        return [undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))]
    more = expectation.params.get("issues")
    if not issues and more is not None:
        issues = more(parsed.value)
    if not issues:
        return [passed(expectation, message=note)]
    name = expectation.params.get("schemaFile") or "the schema"
    message = f"The output does not fit {name}: {_listed(issues)} {note}".rstrip()
    return [
        failed(
            expectation,
            FailureCode.SCHEMA_INVALID,
            message,
            expected=name,
            actual=[{"path": issue.path, "message": issue.message} for issue in issues],
        )
    ]


@check("contains")
def contains(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The text contains `text`, whatever its case."""
    text: str = expectation.params["text"]
    if occurs(text, transcript.text):
        return [passed(expectation)]
    message = f"Expected the output to contain {shown(text)}, got {shown(transcript.text)}."
    code = FailureCode.CONTAINS_FAILED
    return [failed(expectation, code, message, expected=text, actual=excerpt(transcript.text))]


@check("not_contains")
def not_contains(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The text does not contain `text`, whatever its case; nor does its normal form."""
    text: str = expectation.params["text"]
    ranges, how = find(text, transcript.text, _MAX_EVIDENCE), ""
    if not ranges:
        ranges, how = find_hidden(text, transcript.text, _MAX_EVIDENCE), HIDDEN
    if not ranges:
        return [passed(expectation)]
    start = ranges[0][0]
    message = (
        f"Expected the output not to contain {shown(text)}, "
        f"found it at character {start}: {shown(_around(transcript.text, *ranges[0]))}.{how}"
    )
    code = FailureCode.NOT_CONTAINS_FAILED
    evidence = [Evidence("output", *found) for found in ranges]
    return [failed(expectation, code, message, expected=text, evidence=evidence)]


@check("max_length")
def max_length(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The text has at most `max` characters (code points)."""
    limit: int = expectation.params["max"]
    length = len(transcript.text)
    if length <= limit:
        return [passed(expectation, threshold=limit)]
    message = f"Expected at most {count(limit, 'character')}, got {length:,}."
    return [
        failed(
            expectation,
            FailureCode.MAX_LENGTH_EXCEEDED,
            message,
            expected=limit,
            actual=length,
            threshold=limit,
        )
    ]


def _listed(issues: list[SchemaIssue]) -> str:
    """Return the first issues for a message, one after the other."""
    shown_first = " ".join(f"{issue.path}: {issue.message};" for issue in issues[:_MAX_LISTED])
    more = len(issues) - _MAX_LISTED
    return f"{shown_first} and {more} more" if more > 0 else shown_first.removesuffix(";") + "."


def _around(text: str, start: int, end: int) -> str:
    """Return a range of a text with a little of what stands beside it."""
    return text[max(start - _CONTEXT, 0) : end + _CONTEXT]
