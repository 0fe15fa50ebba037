"""The `expect` section of a test or a turn: its model, its sections, and their expectations.

Each check of kindlm defines its own section (`checks.base.ExpectSection`). Checks of packages are
beside them, as JSON values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from kindlm.checks.base import ExpectSection, Inner, Place, entries, sections
from kindlm.checks.user_code import CheckOfPackage
from kindlm.dataclass import replace
from kindlm.document import Path, Raw, expectations, texts
from kindlm.errors import SourceLocation, checked
from kindlm.section import EXTENSION, Maybe, Open
from kindlm.suite import Expectation
from kindlm.wording import cut

if TYPE_CHECKING:
    from kindlm.config.diagnostics import Reporter
    from kindlm.config.files import ReferencedFiles
    from kindlm.config.test_schema import TestConfig

MAX_LABEL = 200

Where = Callable[[Path], SourceLocation]


Placed = tuple[Path, Expectation]
"""An expectation, and its path."""


class Expect(Open):
    """Checks of a conversation."""

    def written(self) -> Iterator[tuple[Place, ExpectSection]]:
        """Yield the sections that the file has, and the sections in them, with their paths."""
        yield from self._parts(_SECTIONS)

    def expectations(self, schema: Callable[[str], Any]) -> Iterator[Placed]:
        """Yield the expectations of kindlm's checks, then those of packages, with their paths.

        `schema` returns the JSON Schema or the function that a name in the file refers to.
        """
        for place, part in self._parts(_EVALUATED):
            for check, label, inner in part.checks(schema):
                yield (*place, *inner), check.expected(label)
        for name, checks in self.added.items():
            for at, options in entries(checks):
                yield (name, *at), Expectation(name, name, CheckOfPackage(name, options))

    @property
    def expects_anything(self) -> bool:
        """Whether it has a check."""
        made = (part.checks(lambda _: None) for _, part in self.written())
        return bool(self.added) or any(map(any, made))

    def _parts(
        self, sections: Iterable[type[ExpectSection]]
    ) -> Iterator[tuple[Place, ExpectSection]]:
        fields = self.model_fields_set  # most sections are not written
        for section in sections:
            if _FIELDS[section] not in fields:
                continue
            name, value = section.key.name, getattr(self, _FIELDS[section])
            for at, item in entries(value):
                yield from (((name, *at, *inner), part) for inner, part in item.parts())


def _field(section: type[ExpectSection]) -> tuple[str, Any]:
    key = section.key
    field: Any = Field(
        default=[] if key.many and key.in_format else None,
        description=key.description or section.__doc__,
        examples=key.examples,
        json_schema_extra=None if key.in_format else EXTENSION,
    )
    kind: Any = list[section] if key.many else section  # type: ignore[valid-type]
    if field.default is None:
        # An absent section is not recorded; the lists of version 1 are recorded as empty.
        kind = Maybe[kind]  # type: ignore[misc]
    return _FIELDS[section], (kind, field)


def _evaluated(section: type[ExpectSection]) -> tuple[int, str]:
    key = section.key
    return key.order if key.evaluated is None else key.evaluated, key.name


_SECTIONS = sections()
_EVALUATED = sorted(_SECTIONS, key=_evaluated)
_FIELDS = {section: to_snake(section.key.name) for section in _SECTIONS}

EXPECT_KEYS = tuple(section.key.name for section in _SECTIONS)
"""kindlm's own keys of `expect`."""

if TYPE_CHECKING:
    ExpectConfig = Expect
else:
    ExpectConfig = create_model(
        "ExpectConfig", __base__=Expect, __doc__=Expect.__doc__, **dict(map(_field, _SECTIONS))
    )


def sections_of(test: Raw, path: Path) -> Iterator[tuple[Path, type[ExpectSection], Raw]]:
    """Yield the sections of a test and its turns as written: the path, the class, the mapping.

    The file is not validated yet: values of another shape are left out.
    """
    parts = [Inner(_FIELDS[each], each.key.name, each) for each in _SECTIONS]
    for place, expect in expectations(test):
        yield from _sections_in(expect, parts, (*path, *place))


def _sections_in(
    written: Raw, parts: Iterable[Inner], path: Path
) -> Iterator[tuple[Path, type[ExpectSection], Raw]]:
    for _, key, section in parts:
        for at, item in entries(written.get(key)):
            if isinstance(item, dict):
                yield (*path, key, *at), section, item
                yield from _sections_in(item, section.inner(), (*path, key, *at))


KEYS_OF_TOOLS = ("tool", "before", "after")
"""The keys of names of tools."""

_OF_PATTERNS = (
    *("regex", "notRegex", "denyPatterns", "pattern"),
    *("redactPatterns", "regex_patterns", "matches"),
)
_OF_TEXTS = (
    *("contains", "notContains", "containsAny", "deny", "allow", "responseContains"),
    *_OF_PATTERNS,
)
"""The keys of texts that answers are compared with, as names of tools are with `KEYS_OF_TOOLS`."""

_DOUBTFUL = (
    (
        re.compile(r"\A/.+/(?!\Z)d?g?i?m?s?u?v?y?\Z", re.DOTALL),  # not a path such as /static/img
        "is a pattern of JavaScript, whose slashes would have to be in the text",
        "Write what is between them; (?i) at its beginning stands for /i",
    ),
    (
        re.compile(r"(?<!\\)\\{2}(?:[bB]\Z|[dDsSwW][*+?{])"),
        "has two backslashes, which match one in the text",
        "Write one, without quotes or in single quotes",
    ),
)
"""Patterns that hardly match what they were written for, each with a message and a hint."""


def warn_of_texts(path: Path, test: Raw, reporter: Reporter) -> None:
    """Report texts in checks with white space around them that hardly belongs to them.

    A check that forbids such a text would never fail.
    """
    for place, expect in expectations(test):
        for at, text in texts(expect, (*path, *place)):
            keys = [part for part in at if isinstance(part, str)]
            is_name = keys[-1] in KEYS_OF_TOOLS
            if not (is_name or keys[-1] in _OF_TEXTS) or "argsMatch" in keys or "schema" in keys:
                continue
            warn_of_text(at, text, reporter, is_name=is_name)


def warn_of_text(at: Path, text: str, reporter: Reporter, *, is_name: bool = False) -> None:
    """Report a name with spaces around it, or a text or pattern with a line break at its end.

    Also report a pattern that is written for another language.
    """
    for pattern, what, hint in _DOUBTFUL if any(part in _OF_PATTERNS for part in at) else ():
        if pattern.search(text):
            message = f"{reporter.place(at)} {what}"
            reporter.warning(at, message, hint, reason="doubtful_text", value=text)
    # A pattern with (?x) ignores it.
    ends = text.endswith("\n") and not text.startswith("(?x)")
    if text != text.strip() if is_name else ends:
        what = "spaces or a line break around it" if is_name else "a line break at its end"
        message = f"{reporter.place(at)} has {what}, which it is compared with"
        hint = "Write it in one line, or with |- in place of | or >"
        reporter.warning(at, message, hint, reason="doubtful_text", value=text)


def expect_sections(path: Path, test: TestConfig) -> Iterator[tuple[Path, ExpectConfig]]:
    """Yield the `expect` of a test, then those of its turns, with their paths."""
    yield (*path, "expect"), test.expect
    for index, turn in enumerate(test.conversation):
        yield (*path, "conversation", index, "expect"), turn.expect


def compile_expectations(
    test: TestConfig, path: Path, files: ReferencedFiles, where: Where
) -> tuple[Expectation, ...]:
    """Return the expectations of a test and its turns, with places and unique labels.

    Those of the test apply to the whole conversation. Those of a turn apply to the conversation up
    to its answer; the first message of the test is turn 1.
    """

    def schema(file: str) -> Any:
        return checked(files.function(file) if ".py:" in file else files.schema(file))

    def placed() -> Iterator[Placed]:
        for number, (at, expect) in enumerate(expect_sections(path, test), start=1):
            for place, found in expect.expectations(schema):
                label = f"turn {number}: {found.label}"
                of_turn = found if number == 1 else replace(found, label=label, turn=number)
                yield (*at, *place), of_turn

    return tuple(
        replace(expectation, where=where(place)) for place, expectation in unique_labels(placed())
    )


def unique_labels(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Yield the expectations with labels that are unique within a kind, and not too long.

    Kind and label identify a result.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for place, expectation in placed:
        label = cut(expectation.label, MAX_LABEL)
        seen[expectation.kind, label] += 1
        number = seen[expectation.kind, label]
        unique = label if number == 1 else f"{label} #{number}"
        is_same = unique == expectation.label
        yield place, expectation if is_same else replace(expectation, label=unique)
