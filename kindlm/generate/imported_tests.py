"""The tests of an imported suite as they are collected: their checks, names and comments."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kindlm.config.json_schemas import schema_fault
from kindlm.config.schema import MAX_TESTS
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import ImportedSuite, Notes, NoTwinError, Part, excerpt_of
from kindlm.patterns import PatternError, excess_of, searches

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


def pattern_of(text: str) -> str:
    """Return the regular expression that matches a text alone."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def any_of(texts: Sequence[str]) -> str:
    """Return the regular expression that matches one of several texts."""
    patterns = "|".join(map(pattern_of, texts))
    return f"(?:{patterns})" if len(texts) > 1 else patterns


@dataclass(slots=True)
class Checks:
    """The checks of a test as they are collected, and what `expect` says of them."""

    regex: list[str] = field(default_factory=list)
    not_regex: list[str] = field(default_factory=list)
    contains: list[str] = field(default_factory=list)
    contains_any: list[list[str]] = field(default_factory=list)
    equals: list[str] = field(default_factory=list)
    schemas: list[Any] = field(default_factory=list)
    similar: list[dict[str, Any]] = field(default_factory=list)
    judge: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    trajectory: list[dict[str, Any]] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    cost_usd: list[float] = field(default_factory=list)

    def count(self) -> int:
        """Return how many checks there are."""
        return sum(len(getattr(self, name)) for name in self.__slots__)

    def add_pattern(self, pattern: str, *, negated: bool = False) -> None:
        """Add a regular expression; raise `NoTwinError` if it is none of kindlm."""
        excess = excess_of(pattern) if pattern else "it is empty"
        try:
            if excess is None:
                searches(pattern, "", time.monotonic() + 1)
        except PatternError as error:
            excess = str(error)
        if excess is not None:
            message = f"the regular expression {pattern[:60]!r}"
            raise NoTwinError(message, f"Write it as Python's `regex` reads it: {excess}")
        (self.not_regex if negated else self.regex).append(pattern)

    def add_text(self, text: str, *, ignores_case: bool, negated: bool = False) -> None:
        """Add a text that the answer contains, or must not."""
        if not text:
            raise NoTwinError("an empty text", "Every answer contains it: remove the check")
        if ignores_case and not negated:
            self.contains.append(text)
        else:
            flags = "(?i)" if ignores_case else ""
            self.add_pattern(flags + pattern_of(text), negated=negated)

    def add_any_text(self, texts: list[str], *, ignores_case: bool) -> None:
        """Add texts of which the answer contains at least one."""
        if not texts or not all(texts):
            raise NoTwinError("an empty text", "Every answer contains it: remove the check")
        if ignores_case and not self.contains_any:
            self.contains_any.append(texts)
        else:
            self.add_pattern(("(?i)" if ignores_case else "") + any_of(texts))

    def add_equal(self, text: str, *, negated: bool = False) -> None:
        """Add the text that the answer is, or must not be."""
        if negated or not text.strip() or self.equals:
            self.add_pattern(rf"\A{pattern_of(text)}\Z", negated=negated)
        else:
            self.equals.append(text)

    def add_schema(self, schema: Any) -> None:
        """Add a JSON Schema; raise `NoTwinError` if it is not valid."""
        fault = schema_fault(schema) if isinstance(schema, dict) else "it is not a mapping"
        if fault is not None:
            raise NoTwinError("the JSON Schema", f"Correct it: {fault}")
        self.schemas.append(schema)

    def add_only(self, name: Literal["similar", "trajectory"], value: dict[str, Any]) -> None:
        """Add a check that a test has once."""
        held: list[dict[str, Any]] = getattr(self, name)
        if not value.get("text", "other").strip():
            raise NoTwinError("an empty text", "Write what the answer has to mean")
        if held:
            raise NoTwinError("a second check of this kind", "Move it to a test of its own")
        held.append(value)

    def expect(self) -> dict[str, Any]:
        """Return the section `expect`."""
        output: dict[str, Any] = {
            "equals": self.equals[0] if self.equals else None,
            "contains": self.contains,
            "containsAny": self.contains_any[0] if self.contains_any else None,
            "regex": self.regex,
            "notRegex": self.not_regex,
            "schema": self.schemas[0] if len(self.schemas) == 1 else {"allOf": self.schemas},
            "similarTo": self.similar[0] if self.similar else None,
        }
        if not self.schemas:
            del output["schema"]
        written = {
            "output": {key: value for key, value in output.items() if value not in (None, [])},
            "toolCalls": self.tool_calls,
            "trajectory": self.trajectory[0] if self.trajectory else {},
            "judge": self.judge,
            "latencyMs": min(self.latency_ms, default=None),
            "costUsd": min(self.cost_usd, default=None),
        }
        return {key: value for key, value in written.items() if value or value == 0}


@dataclass(slots=True)
class Tests:
    """The tests of a suite as they are collected."""

    notes: Notes
    written: list[Mapping[str | Comment, Any]] = field(default_factory=list)
    found: int = 0
    imported: int = 0
    skipped: int = 0
    _names: dict[str, int] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        """Return a name that no other test has: that which is wanted, or with a number."""
        name = wanted = " ".join(wanted.split())[:100] or "test"
        while name in self._names:
            self._names[wanted] += 1
            name = f"{wanted} #{self._names[wanted]}"
        self._names[name] = 1
        return name

    def add(
        self, part: Part, tests: Sequence[Mapping[str, Any]], checks: Checks, hold: str = ""
    ) -> None:
        """Add a test, as one or several; without checks, or with a reason to `hold` it, skipped."""
        comments = [Comment(text) for text in self.notes.take()]
        if len(self.written) + len(tests) > MAX_TESTS:
            what = f"every test after the first {len(self.written):,}"
            self.notes.left_out(part, what, f"A suite has at most {MAX_TESTS:,}: split the file")
            return
        expect = checks.expect()
        reason = hold or ("" if expect else "kindlm has no equivalent of its checks")
        if reason:
            comments.append(Comment(f"Skipped: {reason}. Change the checks, then remove `skip`."))
        self.skipped += bool(reason)
        self.imported += not reason
        for test in tests:
            written: dict[str | Comment, Any] = {"name": self.name(test["name"])}
            written |= dict.fromkeys(comments)
            written |= {key: value for key, value in test.items() if key != "name"}
            written |= {"skip": True} if reason else {}
            self.written.append(written | {"expect": expect})

    def suite(self, head: Mapping[str | Comment, Any]) -> ImportedSuite:
        """Return the suite, with what stands above its tests; raise `NoTwinError` without any."""
        if not self.written:
            found = [
                f"{next(iter(places))}: {note.what}. {note.instead}"
                for note, places in self.notes.found.items()
                if note.kind == "left out"
            ]
            raise NoTwinError("no test that can be imported", "\n".join(found) or "Add tests")
        document = {**head, "tests": self.written}
        return ImportedSuite(document, self.notes, self.found, self.imported, self.skipped)


PARAMETERS = {
    "temperature": "temperature",
    "max_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
    "max_output_tokens": "maxTokens",
    "num_predict": "maxTokens",
    "top_p": "topP",
    "seed": "seed",
    "stop": "stopSequences",
    "stop_sequences": "stopSequences",
}
"""Sampling parameters of other programs, and what they are called in `params`."""

_LIMITS = {"temperature": (0, 2), "maxTokens": (1, 128_000), "topP": (0, 1)}


def add_parameter(part: Part, key: str, params: dict[str, Any], notes: Notes) -> None:
    """Add a sampling parameter, or note that its value is not one of kindlm."""
    name, value = PARAMETERS[key], part.value
    low, high = _LIMITS.get(name, (-(2**53), 2**53))
    if name == "stopSequences":
        values = value if isinstance(value, list) else [value]
        fits = all(isinstance(each, str) for each in values)
        value = values
    else:
        fits = type(value) in (int, float) and low <= value <= high
        fits = fits and (name in ("temperature", "topP") or value == int(value))
    if fits:
        params[name] = value
    else:
        notes.left_out(part, f"`{key}: {excerpt_of(value)}`", f"Set `params.{name}`")


def section_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the section of a prompt: a system text, a message, and the beginning of an answer.

    Raises:
        NoTwinError: The messages are others; kindlm plays no turns that were not taken.
    """
    found: dict[str, str] = {}
    for message in messages:
        role = {"developer": "system"}.get(str(message.get("role")), str(message.get("role")))
        order = ("system", "user", "assistant")
        if role not in order or any(key in found for key in order[order.index(role) :]):
            raise NoTwinError(
                "messages before the last one of the user",
                "Write what the user says as `conversation`: the agent answers it itself",
            )
        found[role] = said_in(message.get("content"))
    if "user" not in found:
        raise NoTwinError("no message of the user", "Add one")
    return found


def said_in(content: Any) -> str:
    """Return the text of a message: itself, or that of its only part.

    Raises:
        NoTwinError: It is not text, such as an image.
    """
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    text = content.get("text") if isinstance(content, dict) else content
    if not isinstance(text, str):
        raise NoTwinError("a message that is not text", "kindlm sends texts")
    return text


def head_comments(notes: Notes, first: str) -> Iterator[Comment]:
    """Yield the comments at the top of a suite: `first`, then what belongs to no test."""
    yield Comment(first)
    yield from map(Comment, notes.take())
