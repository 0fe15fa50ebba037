"""The section `output` of `expect`: checks of the final text.

Substrings are compared in lower case, without other normalisation: `ß` is not `ss`, `é` is not
`e`. Forbidden text is also searched in the normal form, and with other white space.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from string import printable
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from kindlm.checks.base import (
    Check,
    ExpectSection,
    Key,
    Made,
    Place,
    Refers,
    Rule,
    UndecidedError,
    failed,
    passed,
)
from kindlm.checks.drift import SimilarTo
from kindlm.checks.limits import MaxLength
from kindlm.dataclass import dataclass
from kindlm.json_schema import SchemaIssue, schema_issues
from kindlm.model_answers import find_json, json_of, unfenced
from kindlm.normal_form import normal_form
from kindlm.outcome import CheckResult, Demands, Evidence
from kindlm.patterns import Dialect, PatternError, first_match
from kindlm.ports import CheckContext
from kindlm.section import WHOLE, Extension, Maybe, Pattern, Solid, Text
from kindlm.transcript import Transcript
from kindlm.values import refuse
from kindlm.wording import bounded, excerpt, listed, shown

CODES = {
    "EQUALS_FAILED": "The output is not equal to the text.",
    "STARTS_WITH_FAILED": "The output does not begin with the text.",
    "CONTAINS_FAILED": "The output lacks a required text. Of alternatives, it lacks all.",
    "NOT_CONTAINS_FAILED": "The output has a forbidden text.",
    "PATTERN_NOT_MATCHED": "No part of the output matches the pattern.",
    "PATTERN_MATCHED": "The output matches a forbidden pattern.",
    "INVALID_PATTERN": "A pattern does not compile or takes too long.",
    "SCHEMA_PARSE_ERROR": "The output is not JSON.",
    "SCHEMA_INVALID": "The output does not match its schema. The message lists all places.",
}

_MAX_EVIDENCE = 20
_CONTEXT = 30
_MAX_LISTED = 5
_PATTERN_S = 1.0

_HIDDEN = (
    " It is written there with characters that Unicode treats as the same, with other hyphens or"
    " quotes, or with invisible characters."
)
"""Added to a message if a text is there only in the normal form."""

_Range: TypeAlias = tuple[int, int]
"""Start and end of a range of characters."""

_BETWEEN_WORDS = re.compile(r"(?<=\S)\s+(?=\S)")

_Patterns = Annotated[list[Annotated[Pattern, Field(min_length=1)]], Field(min_length=1)]


class Output(ExpectSection):
    """Checks of the final text."""

    key = Key(
        "output", "The final text.", order=10, in_format=True, examples=[{"contains": ["refund"]}]
    )

    format: Literal["text", "json"] = Field(default="text", examples=["json"])
    """With `json`, the whole text must be JSON that fits `schema` or `schemaFile`."""
    schema_file: Maybe[Text] = Field(default=None, examples=["schemas/answer.json"])
    """JSON Schema file that the output must fit, relative to this file. `format: json` requires it
    or `schema`."""
    schema_: Extension[Maybe[dict[str, Any]]] = Field(
        default=None, alias="schema", examples=[{"type": "object", "required": ["status"]}]
    )
    """JSON Schema that the output must fit. The whole text must then be JSON, also without `format:
    json`."""
    equals: Extension[Maybe[Solid]] = Field(default=None, examples=["refunded"])
    """The whole output. Case matters; spaces and line breaks around it do not."""
    starts_with: Extension[Maybe[Solid]] = Field(default=None, examples=["Dear customer"])
    """Text that the output must begin with. Case and leading spaces do not matter."""
    contains_any: Extension[Maybe[Annotated[list[Text], Field(min_length=1)]]] = Field(
        default=None, examples=[["refund", "money back"]]
    )
    """At least one of these texts must be in the output. Case does not matter."""
    regex: Extension[Maybe[_Patterns]] = Field(default=None, examples=[[r"REF-\d{4}"]])
    """Regular expressions that must all match somewhere in the output. Case matters, unless one
    begins with `(?i)`."""
    not_regex: Extension[Maybe[_Patterns]] = Field(default=None, examples=[[r"will e-?mail"]])
    """Regular expressions that must not match anywhere in the output or its normal form. Case
    matters, unless one begins with `(?i)`."""
    similar_to: Extension[Maybe[SimilarTo]] = None
    """Text that the output must be similar to in meaning."""
    contains: list[str] = Field(default=[], examples=[["refund", "REF-5678"]])
    """Texts that must all be in the output. Case does not matter."""
    not_contains: list[str] = Field(default=[], examples=[["error", "undefined"]])
    """Texts that must not be in the output or its normal form. Case does not matter."""
    max_length: Maybe[Annotated[int, Field(gt=0), WHOLE]] = Field(default=None, examples=[500])
    """Maximum number of characters of the output."""

    @model_validator(mode="after")
    def _json_needs_a_schema(self) -> Self:
        if self.schema_ is not None and self.schema_file is not None:
            raise refuse("schema and schemaFile cannot be combined", "Remove one", key="schema")
        if self.format == "json" and self.schema_file is None and self.schema_ is None:
            raise refuse(
                "schemaFile is required when format is json", "Add `schemaFile: ./schema.json`"
            )
        return self

    @classmethod
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        # With format text, the file is not used, and may be missing.
        if written.get("format") == "json":
            yield ("schemaFile",), "schema", written.get("schemaFile")
        yield ("schema",), "schema", written.get("schema")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        if self.format == "json" and self.schema_file is not None:
            fits = Schema(schema(self.schema_file), self.schema_file)
            yield Made(fits, self.schema_file, ("schemaFile",))
        if self.schema_ is not None:
            yield Made(Schema(self.schema_), "schema", ("schema",))
        for key, kind in (("equals", "equals"), ("startsWith", "starts_with")):
            if (text := getattr(self, kind)) is not None:
                yield Made(Demand(kind, text), text, (key,))
        if (texts := self.contains_any) is not None:
            yield Made(Demand("contains_any", texts), " | ".join(texts), ("containsAny",))
        for key, check, kind, wanted in (
            ("regex", Demand, "matches", self.regex),
            ("contains", Demand, "contains", self.contains),
            ("notContains", Ban, "not_contains", self.not_contains),
            ("notRegex", Ban, "not_matches", self.not_regex),
        ):
            for index, text in enumerate(wanted or ()):
                if text or key != "contains":
                    yield Made(check(kind, text), text, (key, index))
        if self.max_length is not None:
            yield Made(MaxLength(self.max_length), f"≤ {self.max_length}", ("maxLength",))

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        for index, text in enumerate(self.contains):
            if not text:
                yield ("contains", index), EMPTY
        for index, pattern in enumerate(self.regex or ()):
            if matches_anything(pattern):
                yield ("regex", index), "it matches every text, also an empty one"

    def unused(self) -> Iterator[tuple[Place, str, str]]:
        if self.format == "text" and self.schema_file is not None:
            message = "schemaFile is not used with format text"
            yield ("schemaFile",), message, "Add `format: json`"


def matches_anything(pattern: str) -> bool:
    """Return whether a pattern presumably matches any text; False for negative lookaround."""
    texts = ("", "\ue000\n\ue000", f"{pattern}\n{printable}")
    is_plain = "(?!" not in pattern and "(?<!" not in pattern
    end = time.monotonic() + _PATTERN_S
    return is_plain and all(first_match(pattern, text, end) for text in texts)


EMPTY = "every text contains the empty text"
"""The reason why a check for the empty text never fails."""


@dataclass(frozen=True, slots=True)
class Demand(Check):
    """The output is as `wanted`, a text, a pattern or a list of texts, demands; see `_DEMANDS`.

    The check is undecided if a pattern is invalid, or takes more than a second.
    """

    demands = Demands.TASK
    sarif = (Rule("keywords_allow", "keyword-missing", "None of the required words in the answer"),)

    kind: str  # type: ignore[misc]
    wanted: Any

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return tuple(_DEMANDS)

    def is_slow(self, transcript: Transcript) -> bool:
        return self.kind in ("matches", "regex")

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        code, words, holds = _DEMANDS[self.kind]
        if holds(self.wanted, text):
            return passed()
        wanted = bounded(self.wanted)
        message = f"Expected the output {words} {shown(wanted)}, got {shown(text)}."
        is_text = self.kind in ("equals", "contains", "starts_with")
        if is_text and holds(_plain(self.wanted), _plain(text)):
            message += _HIDDEN
        return failed(code, message, expected=wanted, actual=excerpt(text))


def _plain(text: str) -> str:
    form = normal_form(text)
    return text if form is None else form.text


def _occurs(wanted: str, text: str) -> bool:
    """Return whether a text contains another one in any case, as `occurrences` finds it."""
    return re.search(re.escape(wanted), text, re.IGNORECASE) is not None


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
        text, name = transcript.text, self.schema_file or "the schema"
        try:
            value = self.value(text)
        except ValueError as error:
            message = f"The output is not JSON: {error}. It is {shown(text)}."
            return failed("SCHEMA_PARSE_ERROR", message, expected="JSON", actual=excerpt(text))
        note = ""
        if unfenced(text) is not None:
            note = "The output is JSON inside a code fence, which was removed."
        found = [] if self.schema is None else schema_issues(self.schema, value)
        if not found and self.issues is not None:
            found = self.issues(value)
        if not found:
            return passed(message=note)
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


@dataclass(frozen=True, slots=True)
class Ban(Check):
    """Neither the output nor its normal form has what `unwanted`, a text or a pattern, forbids.

    See also `Demand`, and `_BANS`.
    """

    demands = Demands.SAFETY
    sarif = (
        Rule("keywords_deny", "keyword-denied", "A denied word in the answer"),
        Rule("not_contains", "forbidden-text", "A forbidden text in the answer"),
        Rule("not_matches", "forbidden-pattern", "A forbidden pattern in the answer"),
    )

    kind: str  # type: ignore[misc]
    unwanted: str

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return tuple(_BANS)

    def is_slow(self, transcript: Transcript) -> bool:
        return self.kind == "not_matches"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        code, words, find = _BANS[self.kind]
        found, note = find(self.unwanted, text)
        if not found:
            return passed()
        start, end = found[0]
        first, last = max(start - _CONTEXT, 0), end + _CONTEXT
        around = f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
        message = f"Expected the output not {words} {shown(self.unwanted)}, found it at character"
        message += f" {start}: {shown(around)}.{note}"
        evidence = [Evidence("output", *place) for place in found]
        return failed(code, message, expected=self.unwanted, evidence=evidence)


def occurrences(unwanted: str, text: str) -> tuple[Sequence[_Range], str]:
    """Return where a text contains `unwanted`, and a sentence if only its normal form does.

    Words may have other white space between them. White space around `unwanted` must be identical.
    """
    if found := _find(unwanted, text):
        return found, ""
    form, normal = normal_form(text), normal_form(unwanted)
    if form is None:
        return ([] if normal is None else _find(normal.text, text)), _HIDDEN
    found = _find(unwanted if normal is None else normal.text, form.text)
    return [form.written(*place) for place in found], _HIDDEN


def _find(needle: str, text: str) -> list[_Range]:
    words = map(re.escape, _BETWEEN_WORDS.split(needle))
    pattern = re.compile(r"\s+".join(words), re.IGNORECASE)
    return [match.span() for match in islice(pattern.finditer(text), _MAX_EVIDENCE)]


class _UnusablePatternError(UndecidedError):
    code = "INVALID_PATTERN"


def _first(pattern: str, text: str, dialect: Dialect = Dialect.SCHEMA) -> _Range | None:
    """Return where a pattern first matches in a text."""
    try:
        return first_match(pattern, text, time.monotonic() + _PATTERN_S, dialect)
    except PatternError as error:
        message = f"The pattern {shown(pattern)} cannot be used: {error}."
        raise _UnusablePatternError(message) from None


def _matched(pattern: str, text: str) -> tuple[Sequence[_Range], str]:
    """Return where a pattern first matches, and a sentence if only in the normal form."""
    if (found := _first(pattern, text)) is not None:
        return [found], ""
    form = normal_form(text)
    if form is None or (found := _first(pattern, form.text)) is None:
        return [], ""
    return [form.written(*found)], _HIDDEN


def count_unmatched(patterns: Sequence[str], text: str) -> int:
    """Return how many patterns do not match as of the kind `regex`, or cannot be used."""
    matched = 0
    for pattern in patterns:
        with suppress(UndecidedError):
            if _first(pattern, text, Dialect.OUTPUT) is not None:
                matched += 1
    return len(patterns) - matched


_DEMANDS: dict[str, tuple[str, str, Callable[[Any, str], Any]]] = {
    # Apart from white space around both.
    "equals": ("EQUALS_FAILED", "to be", lambda wanted, text: text.strip() == wanted.strip()),
    # In any case, apart from leading white space.
    "starts_with": (
        "STARTS_WITH_FAILED",
        "to start with",
        lambda wanted, text: re.match(re.escape(wanted.lstrip()), text.lstrip(), re.IGNORECASE),
    ),
    "contains": ("CONTAINS_FAILED", "to contain", _occurs),
    "contains_any": (
        "CONTAINS_FAILED",
        "to contain one of",
        lambda wanted, text: any(_occurs(word, text) for word in wanted),
    ),
    # In any case and spacing, also in the normal form.
    "keywords_allow": (
        "KEYWORD_MISSING",
        "to contain one of",
        lambda wanted, text: any(occurrences(word, text)[0] for word in wanted),
    ),
    "matches": ("PATTERN_NOT_MATCHED", "to match", _first),
    # In any case; `.` also matches line breaks.
    "regex": ("PATTERN_NOT_MATCHED", "to match", partial(_first, dialect=Dialect.OUTPUT)),
}
"""The failure code of each kind, its words in a message, and whether it holds for a text."""

_BANS: dict[str, tuple[str, str, Callable[[str, str], tuple[Sequence[_Range], str]]]] = {
    "keywords_deny": ("KEYWORD_DENIED", "to contain", occurrences),
    "not_contains": ("NOT_CONTAINS_FAILED", "to contain", occurrences),
    "not_matches": ("PATTERN_MATCHED", "to match", _matched),
}
"""The failure code of each kind, its words in a message, and where it finds what is forbidden."""
