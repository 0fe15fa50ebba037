"""The section `output` of `expect`: what the final text contains, matches and fits, its length.

Substrings are compared lower-cased and nothing more: `ß` is not `ss`, an accent is not its plain
letter. What a text must not hold is looked for in its normal form, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kindlm.checks.base import (
    Advice,
    Check,
    ExpectSection,
    Key,
    Made,
    Place,
    Rule,
    failed,
    passed,
    undecided,
)
from kindlm.json_schema import SchemaIssue, schema_issues
from kindlm.model_answers import unfenced
from kindlm.normal_form import normal_form
from kindlm.outcome import CheckResult, Evidence
from kindlm.patterns import Dialect, PatternError, searches
from kindlm.ports import CheckContext
from kindlm.section import WHOLE, Maybe, Text
from kindlm.strict_json import NotJsonError, parse_json, parse_json_at
from kindlm.transcript import Transcript
from kindlm.values import refuse
from kindlm.wording import count, excerpt, listed, shown

CODES = {
    "SCHEMA_PARSE_ERROR": "the output is no JSON",
    "SCHEMA_INVALID": "the output does not fit its schema; all places are listed",
    "CONTAINS_FAILED": "a text is missing from the output",
    "NOT_CONTAINS_FAILED": "the output has a text that it must not have",
    "PATTERN_NOT_MATCHED": "no part of the output matches a pattern",
    "INVALID_PATTERN": "a pattern does not compile, or takes too long",
    "MAX_LENGTH_EXCEEDED": "the output is longer than allowed",
}

_MAX_EVIDENCE = 20
_CONTEXT = 30
_SEARCHED = 100_000
_PATTERN_S = 1.0

_HIDDEN = (
    " It is written there with characters that Unicode treats as the same, or with invisible ones"
    " (compared as NFKC)."
)
"""Says of a match that only the normal form has it."""
_MAX_LISTED = 5
_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000
_MAX_READ = 20_000_000
"""How many characters of objects that turn out to be none are read before a text is given up."""


class Output(ExpectSection):
    """What is expected of the final text."""

    key = Key(
        "output", "The final text.", order=10, in_format=True, examples=[{"contains": ["refund"]}]
    )

    format: Literal["text", "json"] = Field(default="text", examples=["json"])
    """With `json` the whole text must be JSON that fits `schemaFile`."""
    schema_file: Maybe[Text] = Field(default=None, examples=["schemas/answer.json"])
    """JSON Schema that the output must fit, relative to this file. Required with format json."""
    contains: list[str] = Field(default=[], examples=[["refund", "REF-5678"]])
    """Texts that must all be in the output; case does not matter."""
    not_contains: list[str] = Field(default=[], examples=[["error", "undefined"]])
    """Texts of which none may be in the output or in its normal form; case does not matter."""
    max_length: Maybe[Annotated[int, Field(gt=0), WHOLE]] = Field(default=None, examples=[500])
    """Most characters the output may have."""

    @model_validator(mode="after")
    def _json_needs_a_schema(self) -> Self:
        if self.format == "json" and self.schema_file is None:
            raise refuse(
                "schemaFile is required when format is json", "Add `schemaFile: ./schema.json`"
            )
        return self

    @classmethod
    def schema_files(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
        # With format text the file is not used, which is a warning: it may as well be absent.
        if written.get("format") == "json":
            yield ("schemaFile",), written.get("schemaFile")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        if self.format == "json" and self.schema_file is not None:
            fits = Schema(schema(self.schema_file), self.schema_file)
            yield Made(fits, self.schema_file, ("schemaFile",))
        for index, text in enumerate(self.contains):
            yield Made(Contains(text), text, ("contains", index))
        for index, text in enumerate(self.not_contains):
            yield Made(NotContains(text), text, ("notContains", index))
        if self.max_length is not None:
            yield Made(MaxLength(self.max_length), f"≤ {self.max_length}", ("maxLength",))

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        for index, text in enumerate(self.contains):
            if not text:
                yield ("contains", index), EMPTY

    def unused(self) -> Iterator[Advice]:
        if self.format == "text" and self.schema_file is not None:
            message = "schemaFile is not used with format text"
            yield Advice(("schemaFile",), message, "Add `format: json`")


EMPTY = "every text holds the empty one"
"""Why a check that looks for the empty text never fails."""


@dataclass(frozen=True, slots=True)
class Contains(Check):
    """The text contains `text`, whatever its case."""

    kind = "contains"

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, text = self.text, transcript.text
        if occurs(wanted, text):
            return passed()
        message = f"Expected the output to contain {shown(wanted)}, got {shown(text)}."
        code = "CONTAINS_FAILED"
        return failed(code, message, expected=wanted, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class NotContains(Check):
    """The text does not contain `text`, whatever its case; nor does its normal form."""

    kind = "not_contains"
    rules = (
        Rule(
            "not_contains",
            "forbidden-text",
            "A forbidden text in the answer",
            "The final text contains a text of output.notContains.",
            "Read the execution with kindlm show; tell the agent what it must not say.",
        ),
    )

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found, how = occurrences(self.text, transcript.text)
        if not found:
            return passed()
        start, end = found[0].start, found[0].end
        around = transcript.text[max(start - _CONTEXT, 0) : end + _CONTEXT]
        message = (
            f"Expected the output not to contain {shown(self.text)}, found it at character {start}:"
            f" {shown(around)}.{how}"
        )
        code = "NOT_CONTAINS_FAILED"
        return failed(code, message, expected=self.text, evidence=found)


def occurs(needle: str, text: str) -> bool:
    """Return whether `text` contains `needle`, whatever its case."""
    return needle.lower() in text.lower()


def occurrences(unwanted: str, text: str) -> tuple[list[Evidence], str]:
    """Return where a text has a substring, and what to say if only its normal form has it."""
    ranges, how = _find(unwanted, text, _MAX_EVIDENCE), ""
    if not ranges:
        ranges, how = find_hidden(unwanted, text, _MAX_EVIDENCE), _HIDDEN
    return [Evidence("output", *found) for found in ranges], how


def _find(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs, as character ranges of `text`; at most `limit` of them."""
    lowered, wanted = text.lower(), needle.lower()
    found: list[tuple[int, int]] = []
    start = lowered.find(wanted)
    while start >= 0 and len(found) < limit:
        found.append((start, start + len(wanted)))
        start = lowered.find(wanted, start + max(len(wanted), 1))
    if not found or len(lowered) == len(text):
        return found
    # A few characters become two when lower-cased: the ranges are those of the text itself.
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    origin.append(len(text))
    return [
        (origin[start], origin[end - 1] + 1 if end > start else origin[start])
        for start, end in found
    ]


def find_hidden(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs in the normal form of `text`, as `_find` does.

    It is compared with the normal form of `needle`; one of invisible characters alone has none.
    """
    form, wanted = normal_form(text), normal_form(needle)
    if not (form or wanted) or not needle:
        return []
    sought = needle if wanted is None else wanted.text
    found = _find(sought, text if form is None else form.text, limit)
    return found if form is None else [form.written(*place) for place in found]


@dataclass(frozen=True, slots=True)
class MaxLength(Check):
    """The text has at most `max` characters (code points)."""

    kind = "max_length"

    max: int

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        limit, length = self.max, len(transcript.text)
        if length <= limit:
            return passed(threshold=limit)
        return failed(
            "MAX_LENGTH_EXCEEDED",
            f"Expected at most {count(limit, 'character')}, got {length:,}.",
            expected=limit,
            actual=length,
            threshold=limit,
        )


@dataclass(frozen=True, slots=True)
class Matches(Check):
    """The pattern matches somewhere in the text; `flags` are letters such as `i`.

    The first 100,000 characters are searched, for a second at most. It is undecided whether a
    pattern matches that cannot be used.
    """

    kind = "matches"

    pattern: str
    flags: str = ""

    def is_slow(self, transcript: Transcript) -> bool:
        return True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        try:
            if self.finds(text):
                return passed()
        except PatternError as error:
            message = f"The pattern {shown(self.pattern)} cannot be used: {error}."
            return undecided(message, "INVALID_PATTERN")
        message = f"Expected the output to match {shown(self.pattern)}, got {shown(text)}."
        code = "PATTERN_NOT_MATCHED"
        return failed(code, message, expected=self.pattern, actual=excerpt(text))

    def finds(self, text: str) -> bool:
        """Return whether it matches; raise `PatternError` if the pattern cannot be used."""
        pattern = f"(?{self.flags}){self.pattern}" if self.flags else self.pattern
        return searches(pattern, text[:_SEARCHED], time.monotonic() + _PATTERN_S)


@dataclass(frozen=True, slots=True)
class Regex(Matches):
    """As `Matches`, but case is ignored and `.` matches line breaks."""

    kind = "regex"

    def finds(self, text: str) -> bool:
        deadline = time.monotonic() + _PATTERN_S
        return searches(self.pattern, text[:_SEARCHED], deadline, Dialect.OUTPUT)


def count_unmatched(patterns: Iterable[str], text: str) -> int:
    """Return how many patterns do not match, as `Regex` does; one that cannot be used does not."""

    def unmatched(pattern: str) -> bool:
        try:
            return not Regex(pattern).finds(text)
        except PatternError:
            return True

    return sum(map(unmatched, patterns))


@dataclass(frozen=True, slots=True)
class Schema(Check):
    """The whole text is JSON, and fits the schema if there is one.

    `schema_file` is the name that the schema is known by. `issues` returns what else is wrong with
    a value that fits the schema: a schema cannot say all that a model can.
    """

    kind = "schema"

    schema: Any = None
    schema_file: str | None = None
    issues: Callable[[Any], list[SchemaIssue]] | None = None

    def is_slow(self, transcript: Transcript) -> bool:
        return self.schema is not None

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        try:
            value = json_of(text)
        except ValueError as error:
            return _no_json(f"The output is not JSON: {error}. It is {shown(text)}.", text)
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
        first = " ".join(f"{issue.path}: {issue.message};" for issue in found[:_MAX_LISTED])
        left = len(found) - _MAX_LISTED
        places = f"{first} and {left} more" if left > 0 else f"{first.removesuffix(';')}."
        return _invalid(f"The output does not fit {name}: {places} {note}".rstrip(), name, found)


@dataclass(frozen=True, slots=True)
class OutputSchema(Check):
    """The JSON in the text fits the schema.

    It is the whole text if that is JSON, a code fence around it allowed, else the first object
    in it that can be read.
    """

    kind = "output_schema"

    schema: Any

    def is_slow(self, transcript: Transcript) -> bool:
        return True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        try:
            value = find_json(transcript.text)
        except ValueError:
            message = f"The output holds no JSON object. It is {shown(transcript.text)}."
            return _no_json(message, transcript.text)
        found = schema_issues(self.schema, value)
        if not found:
            return passed()
        places = (f"{issue.path}: {issue.message}" for issue in found[:_MAX_LISTED])
        message = f"The JSON in the output does not fit the schema: {listed(places, len(found))}."
        return _invalid(message, "the schema", found)


def _no_json(message: str, text: str) -> CheckResult:
    return failed("SCHEMA_PARSE_ERROR", message, expected="JSON", actual=excerpt(text))


def _invalid(message: str, name: str, issues: Sequence[SchemaIssue]) -> CheckResult:
    actual = [{"path": issue.path, "message": issue.message} for issue in issues]
    return failed("SCHEMA_INVALID", message, expected=name, actual=actual)


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
