"""Suites of other programs, read as suites of kindlm.

Each module here is a format: `promptfoo` is read by `promptfoo.py`, or the package of that name. It
has `TITLE`, `reads`, which recognises a file, and `read`, which makes an `ImportedSuite` of it.

What a format demands and kindlm cannot check is left out and noted with its line; so is what kindlm
checks differently. No test is imported that cannot fail: one without checks is kept and skipped.
"""

from __future__ import annotations

import json
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from kindlm.config.document import Path as Keys
from kindlm.config.document import Problem
from kindlm.config.files import ReferencedFiles
from kindlm.config.json_schemas import schema_fault
from kindlm.config.schema import MAX_TESTS
from kindlm.config.yaml_document import read_documents
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.generate.suite_text import Comment
from kindlm.patterns import PatternError, excess_of, searches
from kindlm.strict_json import parse_json

PLACEHOLDER_AGENTS = [
    {"id": "agent", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"},
]
"""The agents of a suite whose file names no target that kindlm can call."""


class NoTwinError(Exception):
    """Kindlm cannot do something: what it is, and what the user can do instead."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what)
        self.what, self.instead = what, instead


@dataclass(frozen=True, slots=True)
class Part:
    """A value of a file, and where it stands: `keys` lead to it from the top."""

    value: Any
    file: str
    line_of: Callable[[Keys], int] = field(default=lambda _: 1, repr=False)
    keys: Keys = ()

    @property
    def place(self) -> str:
        """The file and the line, as `promptfooconfig.yaml:12`."""
        return f"{self.file}:{self.line_of(self.keys)}"

    def get(self, key: str) -> Part | None:
        """Return what a mapping has at a key; None if that is nothing or null."""
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return None if found is None else self._child(key, found)

    def entries(self) -> dict[str, Part]:
        """Return the entries of a mapping; none for any other value."""
        value = self.value if isinstance(self.value, dict) else {}
        return {key: self._child(key, item) for key, item in value.items()}

    def items(self) -> list[Part]:
        """Return the items of a list; any other value counts as a list of itself."""
        if not isinstance(self.value, list):
            return [] if self.value is None else [self]
        return [self._child(at, item) for at, item in enumerate(self.value)]

    def text(self, key: str) -> str | None:
        """Return a text that a mapping has at a key."""
        found = self.get(key)
        return found.value if found is not None and isinstance(found.value, str) else None

    def number(self, key: str) -> float | None:
        """Return a number that a mapping has at a key."""
        found = self.get(key)
        is_number = found is not None and type(found.value) in (int, float)
        return cast("float", found.value) if found is not None and is_number else None

    def _child(self, key: str | int, value: Any) -> Part:
        return Part(value, self.file, self.line_of, (*self.keys, key))


@dataclass(frozen=True, slots=True)
class Note:
    """What became of something without a twin: it is left out, or kindlm does it differently."""

    kind: Literal["left out", "different"]
    what: str
    instead: str


@dataclass(slots=True)
class Notes:
    """All notes of an import, each with its places; `current` are those since it was last taken."""

    found: dict[Note, dict[str, None]] = field(default_factory=dict)
    current: dict[str, None] = field(default_factory=dict)

    def left_out(self, part: Part, what: str, instead: str) -> None:
        """Note that something is left out."""
        self._add(part, Note("left out", what, instead))

    def different(self, part: Part, what: str, instead: str = "") -> None:
        """Note that kindlm does something differently."""
        self._add(part, Note("different", what, instead))

    def take(self) -> list[str]:
        """Return the comments on what was left out since this was last called."""
        taken = list(self.current)
        self.current.clear()
        return taken

    def _add(self, part: Part, note: Note) -> None:
        self.found.setdefault(note, {})[part.place] = None
        if note.kind == "left out":
            self.current[f"{part.place}: {note.what} is left out. {note.instead}"] = None


@dataclass(frozen=True, slots=True)
class ImportedSuite:
    """What was read: the suite, and how many tests became what.

    Attributes:
        document: The suite for `suite_text`.
        notes: What was left out or is different.
        tests: How many tests the file has; a list of values counts once for each of them.
        imported: How many of them run as tests of kindlm.
        skipped: How many are kept with `skip: true`, since no check of theirs has a twin.
    """

    document: Mapping[str | Comment, Any]
    notes: Notes
    tests: int
    imported: int
    skipped: int


class SuiteFormat(Protocol):
    """A module that reads the suites of another program."""

    TITLE: str

    def reads(self, document: Part) -> bool:
        """Tell whether a file is in this format."""
        ...

    def read(self, document: Part, files: Files) -> ImportedSuite:
        """Read a file; raise `NoTwinError` if no suite can be made of it."""
        ...


FORMATS = tuple(sorted(each.name.replace("_", "-") for each in pkgutil.iter_modules(__path__)))
"""The names of all formats."""


def format_named(name: str) -> SuiteFormat:
    """Return the module of a format."""
    return cast("SuiteFormat", import_module(f"{__name__}.{name.replace('-', '_')}"))


class Files:
    """The files that a suite refers to: below the folder of the suite, and of bounded size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = ReferencedFiles(folder)

    def text(self, name: str) -> str:
        """Return the content of a file; raise `NoTwinError` if it cannot be read."""
        found = self._files.text(name)
        if isinstance(found, Err):
            raise NoTwinError(f"the file {name}", f"{found.error.message}: {found.error.hint}")
        return found.value

    def part(self, name: str) -> Part:
        """Return the content of a YAML, JSON or JSON Lines file, the lines of the latter as a list.

        Raises:
            NoTwinError: It cannot be read.
        """
        read = read_part(name, self.text(name).encode())
        if isinstance(read, Err):
            raise NoTwinError(f"the file {name}", f"{read.error.message}: {read.error.hint}")
        return read.value

    def named(self, pattern: str) -> list[str]:
        """Return the names of the files that a pattern with `*` matches; itself without one."""
        if "*" not in pattern:
            return [pattern]
        if ".." in Path(pattern).parts or Path(pattern).is_absolute():
            raise NoTwinError(f"the files {pattern}", "Files must be below the folder of the suite")
        found = sorted(self.folder.glob(pattern))
        return [each.relative_to(self.folder).as_posix() for each in found if each.is_file()]


_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def read_part(name: str, data: bytes) -> Result[Part]:
    """Return the content of a file: YAML, JSON, or JSON Lines as a list, by the file's name."""
    if name.endswith((".jsonl", ".ndjson")):
        return _json_lines(name, data)
    is_json = name.endswith(".json")
    # The positions in a JSON text are those of YAML, which has no escapes of half a character.
    documents = read_documents(_HALF.sub(rb"\\u0020", data) if is_json else data, merges=True)
    if is_json:
        try:
            value = parse_json(data.decode("utf-8-sig"))
        except ValueError as error:
            return Err(_unreadable(name, Problem(f"It is not JSON: {error}", "Correct it")))
        found = documents.part(0) if documents.readable and documents.value else None
        return Ok(Part(value, name, lambda keys: found.position(keys).line if found else 1))
    if not documents.readable:
        return Err(_unreadable(name, documents.problems[0]))
    if not documents.value:
        return Err(_unreadable(name, Problem("The file is empty", "Name the file of a suite")))
    document = documents.part(0)
    return Ok(Part(document.value, name, lambda keys: document.position(keys).line))


def _json_lines(name: str, data: bytes) -> Result[Part]:
    values, lines = [], []
    for number, line in enumerate(data.decode("utf-8-sig", errors="replace").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(parse_json(line))
        except ValueError as error:
            message = f"{name}, line {number} is not JSON: {error}"
            return Err(KindlmError(ErrorCode.CONFIG_PARSE_ERROR, message, "Write one value a line"))
        lines.append(number)

    def line_of(keys: Keys) -> int:
        return lines[keys[0]] if keys and isinstance(keys[0], int) else 1

    return Ok(Part(values, name, line_of))


def _unreadable(name: str, problem: Problem) -> KindlmError:
    at = problem.position
    where = SourceLocation(name, at.line, at.column) if at else SourceLocation(name)
    return KindlmError(ErrorCode.CONFIG_PARSE_ERROR, problem.message, problem.hint, where)


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


def excerpt_of(value: Any) -> str:
    """Return the beginning of a value on one line, for names and messages."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def head_comments(notes: Notes, first: str) -> Iterator[Comment]:
    """Yield the comments at the top of a suite: `first`, then what belongs to no test."""
    yield Comment(first)
    yield from map(Comment, notes.take())
