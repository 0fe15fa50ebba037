"""Collects the tests of an imported suite: their checks, names and comments."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ValidationError

from kindlm.checks.output import matches_anything
from kindlm.config.json_schemas import schema_fault
from kindlm.config.schema import MAX_TESTS
from kindlm.config.target_schema import ParamsConfig
from kindlm.generate.suite_text import Comment, one_line, unused
from kindlm.generate.suites import LeftOutError, Part
from kindlm.json_schema import has_no_rule
from kindlm.patterns import PatternError, excess_of, first_match
from kindlm.section import Section

PYTHON = "Write a function: `python: checks.py:NAME`"
JUDGED = "The judge of kindlm has its own instructions, and scores from 0 to 1: 0.7 passes"
EMBEDDED = "The embeddings are those of kindlm, so the same threshold may mean something else"
STRIPPED = "kindlm ignores white space around the answer"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The equivalent of another program's check.

    Attributes:
        kindlm: the check of kindlm, for the docs.
        make: adds it to the checks of a test.
        different: what kindlm does differently.
        negated: the equivalent of the negated check, for the docs; "" if there is none.
    """

    kindlm: str
    make: Callable[..., None]
    different: str = ""
    negated: str = ""


_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


def pattern_of(*texts: str) -> str:
    """Return a regular expression that matches any of some texts."""
    patterns = "|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in texts)
    return f"(?:{patterns})" if len(texts) > 1 else patterns


@dataclass(slots=True)
class Checks:
    """The checks of a test while they are collected: those in `output`, and the others."""

    output: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)

    def add_pattern(self, pattern: str, *, negated: bool = False) -> None:
        """Add a regular expression; raise `LeftOutError` if kindlm cannot use it."""
        excess = excess_of(pattern) if pattern else "it is empty"
        try:
            if excess is None:
                first_match(pattern, "", time.monotonic() + 1)
                excess = "it matches every text" if matches_anything(pattern) else None
        except PatternError as error:
            excess = str(error)
        if excess is not None:
            message = f"the regular expression {pattern[:60]!r}"
            raise LeftOutError(message, f"Write it as Python's `regex` reads it: {excess}")
        self.output.setdefault("notRegex" if negated else "regex", []).append(pattern)

    def add_text(self, *texts: str, ignores_case: bool, negated: bool = False) -> None:
        """Add texts; the answer must contain one of them, or none if `negated`."""
        if not texts or not all(texts):
            raise LeftOutError("an empty text", "Every answer contains it: remove the check")
        if ignores_case and not negated and len(texts) == 1:
            self.output.setdefault("contains", []).append(texts[0])
        elif ignores_case and not negated and "containsAny" not in self.output:
            self.output["containsAny"] = list(texts)
        else:
            flags = "(?i)" if ignores_case else ""
            self.add_pattern(flags + pattern_of(*texts), negated=negated)

    def add_equal(self, text: str, *, negated: bool = False) -> None:
        """Add a text that the answer must equal, or must not if `negated`."""
        if negated or not text.strip() or "equals" in self.output:
            self.add_pattern(rf"\A{pattern_of(text)}\Z", negated=negated)
        else:
            self.output["equals"] = text

    def add_schema(self, schema: Any) -> None:
        """Add a JSON Schema; raise `LeftOutError` if it is not valid."""
        fault = schema_fault(schema) if isinstance(schema, dict) else "it is not a mapping"
        if fault is None and has_no_rule(schema):
            fault = "it has no keyword of JSON Schema"
        if fault is not None:
            raise LeftOutError("the JSON Schema", f"Correct it: {fault}")
        before = self.output.get("schema")
        self.output["schema"] = schema if before is None else {"allOf": [before, schema]}

    def add_similar(self, text: str, score: float | None) -> None:
        """Add a text that the answer must be similar to, with the lowest score from 0 to 1."""
        if not text.strip() or "similarTo" in self.output:
            raise LeftOutError("an empty or a second text to be similar to", "Write a `judge`")
        if score is not None and score <= 0:
            raise LeftOutError("a threshold that is not above 0", "It cannot fail")
        bounded = {} if score is None else {"minScore": min(score, 1)}
        self.output["similarTo"] = {"text": text} | bounded

    def add(self, section: str, *checks: Mapping[str, Any]) -> None:
        """Add checks to a section that is a list."""
        self.others.setdefault(section, []).extend(checks)

    def expect(self) -> dict[str, Any]:
        """Return the section `expect`."""
        return ({"output": self.output} if self.output else {}) | self.others


@dataclass(slots=True)
class ImportedSuite:
    """A suite while it is read: its tests, and notes on what is left out or different.

    Attributes:
        file: the name of the file that it is read from.
        title: the program that the file is for.
        document: the suite for `suite_text`; empty until it is finished.
        tests: the number of tests; a variable with a list of values makes several.
        imported: the number of tests that run.
        skipped: the number of tests with `skip: true`.
        left_out: the notes on what has no equivalent, each with its places.
        different: the notes on what kindlm does differently, each with its places.
        current: the comments for the next test, on what it lacks.
    """

    file: str
    title: str
    document: dict[str | Comment, Any] = field(default_factory=dict)
    tests: int = 0
    imported: int = 0
    skipped: int = 0
    left_out: dict[str, dict[str, None]] = field(default_factory=dict)
    different: dict[str, dict[str, None]] = field(default_factory=dict)
    current: dict[str | Comment, Any] = field(default_factory=dict)
    _written: dict[str, Mapping[str | Comment, Any]] = field(default_factory=dict)

    def add(self, part: Part, test: dict[str, Any], checks: Checks, hold: str = "") -> None:
        """Add a test. It is skipped if it has no checks, or for the reason `hold`."""
        self.tests += 1
        comments = self.take()
        if len(self._written) == MAX_TESTS:
            instead = f"A suite has at most {MAX_TESTS:,}: split the file"
            self.leave_out(part, f"every test after the first {MAX_TESTS:,}", instead)
            return
        expect = checks.expect()
        reason = hold or ("" if expect else "kindlm has no equivalent of its checks")
        if reason:
            comment = f"Skipped: {reason}. Change the checks, then remove `skip`."
            comments[Comment(comment)] = None
        self.skipped += bool(reason)
        self.imported += not reason
        wanted = one_line(test["name"], 100) or "test"
        name = unused(wanted, self._written, "{} #{}")
        # The name stands first, and replaces that of the test.
        written = {"name": name} | comments | test | {"name": name}
        self._written[name] = written | ({"skip": True} if reason else {}) | {"expect": expect}

    @contextmanager
    def losing(self, part: Part, what: str) -> Iterator[None]:
        """Note a test that turns out to have something without an equivalent."""
        try:
            yield
        except LeftOutError as error:
            self.tests += 1
            self.leave_out(part, f"{what} with {error.what}", error.instead)
            self.take()

    @contextmanager
    def noting(self, part: Part, before: str = "") -> Iterator[None]:
        """Note what turns out to have no equivalent; `before` begins the note."""
        try:
            yield
        except LeftOutError as error:
            self.leave_out(part, f"{before}{error.what}", error.instead)

    def leave_out(self, part: Part, what: str, instead: str = "") -> None:
        """Note that something is left out, and what the user can do instead."""
        after = f" {instead}" if instead else ""
        self.left_out.setdefault(f"{what}.{after}", {})[part.place] = None
        self.current[Comment(f"{part.place}: {what} is left out.{after}")] = None

    def differ(self, part: Part, what: str) -> None:
        """Note that kindlm does something differently."""
        self.different.setdefault(what, {})[part.place] = None

    def take(self) -> dict[str | Comment, Any]:
        """Return the comments for the next test, and begin anew."""
        taken, self.current = self.current, {}
        return taken

    def finish(self, name: str, description: str | None, head: Mapping[str | Comment, Any]) -> Self:
        """Finish the document; `head` are the sections above its tests.

        Raises:
            LeftOutError: the suite has no tests.
        """
        if not self._written:
            found = [f"{next(iter(at))}: {what}" for what, at in self.left_out.items()]
            raise LeftOutError("no test that can be imported", "\n".join(found) or "Add tests")
        about = {"name": name} | ({"description": description} if description else {})
        self.document[Comment(f"Imported from {self.file} ({self.title}).")] = None
        self.document |= {"kindlm": 1, "suite": about}
        self.document |= {key: it for key, it in head.items() if it or isinstance(key, Comment)}
        self.document["tests"] = list(self._written.values())
        return self


_PARAMETERS = {
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
"""Sampling parameters of other programs, with their keys in `params`."""


def settings_of(
    parts: Mapping[str, Part],
    suite: ImportedSuite,
    names: Mapping[str, str] = _PARAMETERS,
    section: type[Section] = ParamsConfig,
) -> dict[str, Any]:
    """Return the values that are valid in a section, by their `names` there; note the others.

    The section is `params` by default.
    """
    found: dict[str, Any] = {}
    for key, part in parts.items():
        name, value = names.get(key), part.value
        if name == "stopSequences" and isinstance(value, str):
            value = [value]
        with suppress(ValidationError):
            if name is not None:
                section.model_validate({name: value})
                found[name] = value
                continue
        suite.leave_out(part, f"`{key}`")  # without its value, which may be a credential
    return found


def prompt_section(messages: Any) -> dict[str, str]:
    """Return the entry of a prompt for a text, or for a user message after an optional system text.

    Raises:
        LeftOutError: there are other messages. kindlm does not send answers of the agent.
    """
    if isinstance(messages, str):
        return {"user": messages}
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise LeftOutError("an input that is not a chat", "Write it as text, or as messages")
    roles = [str(each.get("role")).replace("developer", "system") for each in messages]
    if roles not in (["user"], ["system", "user"]):
        raise LeftOutError(
            "messages other than a system text and one of the user",
            "Write what the user says as `conversation`: the agent answers it itself",
        )
    return dict(zip(roles, (message_text(each.get("content")) for each in messages), strict=True))


def message_text(content: Any) -> str:
    """Return the text of a message's content, which may be in its only part.

    Raises:
        LeftOutError: the content is not text, such as an image.
    """
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    text = content.get("text") if isinstance(content, dict) else content
    if not isinstance(text, str):
        raise LeftOutError("a message that is not text", "kindlm sends only text")
    return text
