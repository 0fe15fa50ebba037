"""The section `output` of `expect`: checks of the final text.

Substrings are compared in lower case, without other normalisation: `ß` is not `ss`, `é` is not
`e`. Forbidden text is also searched in the normal form, and with other white space.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from string import printable
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from kindlm.checks.base import (
    Advice,
    Check,
    ExpectSection,
    Key,
    Made,
    Place,
    Refers,
    Rule,
    failed,
    passed,
    undecided,
)
from kindlm.checks.drift import SimilarTo
from kindlm.checks.output_schema import Schema
from kindlm.dataclass import dataclass
from kindlm.normal_form import normal_form
from kindlm.outcome import CheckResult, Demands, Evidence
from kindlm.patterns import Dialect, PatternError, first_match, searches
from kindlm.ports import CheckContext
from kindlm.section import WHOLE, Extension, Maybe, Pattern, Solid, Text
from kindlm.transcript import Transcript
from kindlm.values import refuse
from kindlm.wording import bounded, count, excerpt, first_of, shown

CODES = {
    "EQUALS_FAILED": "The output is not equal to the text.",
    "STARTS_WITH_FAILED": "The output does not begin with the text.",
    "CONTAINS_FAILED": "The output lacks a required text. Of alternatives, it lacks all.",
    "NOT_CONTAINS_FAILED": "The output has a forbidden text.",
    "PATTERN_NOT_MATCHED": "No part of the output matches the pattern.",
    "PATTERN_MATCHED": "The output matches a forbidden pattern.",
    "INVALID_PATTERN": "A pattern does not compile or takes too long.",
    "MAX_LENGTH_EXCEEDED": "The output is longer than allowed.",
}

_MAX_EVIDENCE = 20
_CONTEXT = 30
_PATTERN_S = 1.0
_MAX_NAMED = 5

_HIDDEN = (
    " It is written there with characters that Unicode treats as the same, with other hyphens or"
    " quotes, or with invisible characters."
)
"""Added to a message if the match is only in the normal form."""

_Range: TypeAlias = tuple[int, int]
"""Start and end of a range of characters."""

_BETWEEN_WORDS = re.compile(r"(?<=\S)\s+(?=\S)")
_OTHER_SPACES = " It is written there with other white space."


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
    regex: Extension[
        Maybe[Annotated[list[Annotated[Pattern, Field(min_length=1)]], Field(min_length=1)]]
    ] = Field(default=None, examples=[[r"REF-\d{4}"]])
    """Regular expressions that must all match somewhere in the output. Case matters, unless one
    begins with `(?i)`."""
    not_regex: Extension[
        Maybe[Annotated[list[Annotated[Pattern, Field(min_length=1)]], Field(min_length=1)]]
    ] = Field(default=None, examples=[[r"will e-?mail"]])
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
            yield ("schemaFile",), Refers.SCHEMA_FILE, written.get("schemaFile")
        yield ("schema",), Refers.SCHEMA, written.get("schema")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        if self.format == "json" and self.schema_file is not None:
            fits = Schema(schema(self.schema_file), self.schema_file)
            yield Made(fits, self.schema_file, ("schemaFile",))
        if self.schema_ is not None:
            yield Made(Schema(self.schema_), "schema", ("schema",))
        for key, check, text in (
            ("equals", Equals, self.equals),
            ("startsWith", StartsWith, self.starts_with),
        ):
            if text is not None:
                yield Made(check(text), text, (key,))
        if self.contains_any is not None:
            label = " | ".join(self.contains_any)
            yield Made(ContainsAny(tuple(self.contains_any)), label, ("containsAny",))
        several: tuple[tuple[str, Callable[[str], Check], Iterable[str]], ...] = (
            ("regex", Matches, self.regex or ()),
            ("contains", Contains, self.contains),
            ("notContains", NotContains, self.not_contains),
            ("notRegex", NotMatches, self.not_regex or ()),
        )
        for key, of_text, texts in several:
            for index, text in enumerate(texts):
                if text or key != "contains":
                    yield Made(of_text(text), text, (key, index))
        if self.max_length is not None:
            yield Made(MaxLength(self.max_length), f"≤ {self.max_length}", ("maxLength",))

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        for index, text in enumerate(self.contains):
            if not text:
                yield ("contains", index), EMPTY
        for index, pattern in enumerate(self.regex or ()):
            if matches_anything(pattern):
                yield ("regex", index), "it matches every text, also an empty one"

    def unused(self) -> Iterator[Advice]:
        if self.format == "text" and self.schema_file is not None:
            message = "schemaFile is not used with format text"
            yield Advice(("schemaFile",), message, "Add `format: json`")


def matches_anything(pattern: str) -> bool:
    """Return whether a pattern presumably matches any text; False for negative lookaround."""
    texts = ("", "\ue000\n\ue000", f"{pattern}\n{printable}")
    is_plain = "(?!" not in pattern and "(?<!" not in pattern
    return is_plain and all(map(Matches(pattern).finds, texts))


EMPTY = "every text contains the empty text"
"""The reason why a check for the empty text never fails."""


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """The output equals `text`, apart from white space around both."""

    kind = "equals"
    demands = Demands.TASK

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, text = self.text.strip(), transcript.text.strip()
        if text == wanted:
            return passed()
        message = f"Expected the output {shown(wanted)}, got {shown(text)}."
        if text.lower() == wanted.lower():
            message = f"{message} Only the case differs."
        return failed("EQUALS_FAILED", message, expected=bounded(wanted), actual=bounded(text))


@dataclass(frozen=True, slots=True)
class StartsWith(Check):
    """The output begins with `text`. Case and leading white space do not matter."""

    kind = "starts_with"
    demands = Demands.TASK

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, text = self.text.lstrip(), transcript.text.lstrip()
        if text.lower().startswith(wanted.lower()):
            return passed()
        message = f"Expected the output to start with {shown(wanted)}, got {shown(text)}."
        return failed("STARTS_WITH_FAILED", message, expected=wanted, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class ContainsAny(Check):
    """The output contains at least one of `texts`. Case does not matter."""

    kind = "contains_any"
    code: ClassVar[str] = "CONTAINS_FAILED"
    demands = Demands.TASK

    texts: tuple[str, ...]

    def holds(self, text: str) -> bool:
        """Return whether a text is as expected."""
        return any(occurs(wanted, text) for wanted in self.texts)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        if self.holds(text):
            return passed()
        some, expected = first_of(map(shown, self.texts), _MAX_NAMED), bounded(list(self.texts))
        message = f"Expected the output to contain one of {some}, got {shown(text)}."
        return failed(self.code, message, expected=expected, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class Contains(Check):
    """The output contains `text`. Case does not matter."""

    kind = "contains"
    demands = Demands.TASK

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, text = self.text, transcript.text
        if occurs(wanted, text):
            return passed()
        message = f"Expected the output to contain {shown(wanted)}, got {shown(text)}."
        return failed("CONTAINS_FAILED", message, expected=wanted, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class NotContains(Check):
    """Neither the output nor its normal form contains `text`. Case and spacing do not matter."""

    kind = "not_contains"
    code: ClassVar[str] = "NOT_CONTAINS_FAILED"
    demands = Demands.SAFETY
    sarif = Rule("forbidden-text", "A forbidden text in the answer")

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found, how = occurrences(self.text, transcript.text)
        if not found:
            return passed()
        where = _where(found[0].start, found[0].end, transcript.text)
        message = f"Expected the output not to contain {shown(self.text)}, found it {where}.{how}"
        return failed(self.code, message, expected=self.text, evidence=found)


def _where(start: int, end: int, text: str) -> str:
    first, last = max(start - _CONTEXT, 0), end + _CONTEXT
    before, behind = "…" if first else "", "…" if last < len(text) else ""
    return f"at character {start}: {shown(before + text[first:last] + behind)}"


def occurs(needle: str, text: str) -> bool:
    """Return whether `text` contains `needle` in any case."""
    return needle.lower() in text.lower()


def occurrences(unwanted: str, text: str) -> tuple[list[Evidence], str]:
    """Return where a text contains `unwanted`, and a sentence if it is written differently.

    That is in the normal form of the text, or with other white space between words. White space
    around `unwanted` must be identical.
    """
    several_words = _BETWEEN_WORDS.search(unwanted) is not None
    for find in (_find, _find_spaced) if several_words else (_find,):
        how = "" if find is _find else _OTHER_SPACES
        if not (ranges := find(unwanted, text, _MAX_EVIDENCE)):
            how = _HIDDEN
            ranges = find_hidden(unwanted, text, _MAX_EVIDENCE, find)
        if ranges:
            return [Evidence("output", *found) for found in ranges], how
    return [], ""


def _find_spaced(needle: str, text: str, limit: int) -> list[_Range]:
    """Return at most `limit` ranges of `text` with the words of `needle` in any white space."""
    words = map(re.escape, _BETWEEN_WORDS.split(needle))
    spaced = re.compile(r"\s+".join(words), re.IGNORECASE)
    return [match.span() for match in islice(spaced.finditer(text), limit)]


def _find(needle: str, text: str, limit: int) -> list[_Range]:
    """Return at most `limit` character ranges of `text` where `needle` occurs in any case."""
    lowered, wanted = text.lower(), needle.lower()
    found: list[_Range] = []
    start = lowered.find(wanted)
    while start >= 0 and len(found) < limit:
        found.append((start, start + len(wanted)))
        start = lowered.find(wanted, start + max(len(wanted), 1))
    if not found or not wanted or len(lowered) == len(text):
        return found
    # A few characters become two in lower case, so ranges are converted to those of the text.
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    return [(origin[start], origin[end - 1] + 1) for start, end in found]


def find_hidden(
    needle: str, text: str, limit: int, find: Callable[[str, str, int], list[_Range]] = _find
) -> list[_Range]:
    """Return where the normal form of `needle` occurs in that of `text`, as ranges of `text`."""
    form, wanted = normal_form(text), normal_form(needle)
    if not (form or wanted) or not needle:
        return []
    sought = needle if wanted is None else wanted.text
    found = find(sought, text if form is None else form.text, limit)
    return found if form is None else [form.written(*place) for place in found]


@dataclass(frozen=True, slots=True)
class MaxLength(Check):
    """The output has at most `max` characters (code points)."""

    kind = "max_length"
    demands = Demands.TASK
    only_numbers = True

    max: int

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        limit, length = self.max, len(transcript.text)
        if length <= limit:
            return passed(threshold=limit)
        message = f"Expected at most {count(limit, 'character')}, got {length:,}."
        code = "MAX_LENGTH_EXCEEDED"
        return failed(code, message, expected=limit, actual=length, threshold=limit)


@dataclass(frozen=True, slots=True)
class Matches(Check):
    """The pattern matches somewhere in the output.

    The check is undecided if the pattern is invalid, or takes more than a second.
    """

    kind = "matches"
    demands = Demands.TASK

    pattern: str

    def is_slow(self, transcript: Transcript) -> bool:
        return True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        try:
            if self.finds(text):
                return passed()
        except PatternError as error:
            return _unusable(self.pattern, error)
        message = f"Expected the output to match {shown(self.pattern)}, got {shown(text)}."
        return failed("PATTERN_NOT_MATCHED", message, expected=self.pattern, actual=excerpt(text))

    def finds(self, text: str) -> bool:
        """Return whether the pattern matches; raise `PatternError` if it cannot be used."""
        return searches(self.pattern, text, time.monotonic() + _PATTERN_S)


@dataclass(frozen=True, slots=True)
class NotMatches(Check):
    """The pattern matches neither in the output nor in its normal form; see also `Matches`."""

    kind = "not_matches"
    demands = Demands.SAFETY
    sarif = Rule("forbidden-pattern", "A forbidden pattern in the answer")

    pattern: str

    def is_slow(self, transcript: Transcript) -> bool:
        return True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text, how, deadline = transcript.text, "", time.monotonic() + _PATTERN_S
        try:
            found = first_match(self.pattern, text, deadline)
            if found is None and (form := normal_form(text)) is not None:
                found, how = first_match(self.pattern, form.text, deadline), _HIDDEN
                found = None if found is None else form.written(*found)
        except PatternError as error:
            return _unusable(self.pattern, error)
        if found is None:
            return passed()
        where = _where(*found, text)
        message = f"Expected the output not to match {shown(self.pattern)}, found it {where}.{how}"
        evidence = [Evidence("output", *found)]
        return failed("PATTERN_MATCHED", message, expected=self.pattern, evidence=evidence)


def _unusable(pattern: str, error: PatternError) -> CheckResult:
    message = f"The pattern {shown(pattern)} cannot be used: {error}."
    return undecided(message, "INVALID_PATTERN")


@dataclass(frozen=True, slots=True)
class Regex(Matches):
    """Like `Matches`, but case does not matter, and `.` matches line breaks."""

    kind = "regex"
    demands = Demands.TASK

    def finds(self, text: str) -> bool:
        return searches(self.pattern, text, time.monotonic() + _PATTERN_S, Dialect.OUTPUT)


def count_unmatched(patterns: Iterable[str], text: str) -> int:
    """Return how many patterns do not match as in `Regex`, or cannot be used."""

    def unmatched(pattern: str) -> bool:
        try:
            return not Regex(pattern).finds(text)
        except PatternError:
            return True

    return sum(map(unmatched, patterns))
