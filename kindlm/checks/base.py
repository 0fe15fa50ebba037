"""The base classes of checks, and how kindlm finds the checks.

A check is a value that holds what is expected and evaluates itself: a subclass of `Check`. A
section of `expect` in kindlm.yaml is a subclass of `ExpectSection`: its fields are the keys that
users write, and it makes the checks of what they wrote. Most sections are one check: a
`CheckSection`. A module of this package with such a class is all that a new check takes.

Front ends make checks, and put each into an `Expectation`. The engine passes it to `CheckRunner`
(`kindlm/checks/__init__.py`), which calls `evaluate`. A check sees only the transcript and the
`CheckContext`, so it works for live and for recorded conversations.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args, get_origin

from pydantic.alias_generators import to_snake

from kindlm.outcome import CheckResult, Demands, Evidence, Outcome
from kindlm.ports import CheckContext
from kindlm.section import Section
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import sentence

CODES = {
    "CUSTOM_CHECK_FAILED": "a check of your own says no",
    "ASSERT_FAILED": "an `assert` of a scenario does not hold",
    "NOTHING_CHECKED": "the function of a scenario ended without a check",
    "ASSERTION_EVAL_ERROR": "the assertion could not be evaluated: inconclusive",
}
"""What a check fails with, or a scenario itself, and what each code means; never renamed."""

Place: TypeAlias = tuple[str | int, ...]
"""Where something is written below a section: keys and positions in lists."""

Fill: TypeAlias = Callable[[str], str]
"""Puts values into the placeholders of a text."""


class Reads(Enum):
    """What of a transcript a check goes by. Where a secret was removed from it, it is undecided."""

    NUMBERS_AND_NAMES = "numbers and names, in which there is no secret"
    TEXT = "the final text"
    CALLS = "the tool calls, their arguments and results"
    EVERYTHING = "all texts and tool calls"


class Refers(Enum):
    """What a value of a section refers to."""

    SCHEMA_FILE = "a file with a JSON Schema"
    SCHEMA = "a JSON Schema, which the value is"
    FUNCTION = "a function, as file.py:name"


class Rule(NamedTuple):
    """A guardrail in a SARIF report: its id, what it forbids, and what to do about a finding.

    Of a check that has more than one kind, `kind` is the one whose failures break it.
    """

    id: str
    title: str
    meaning: str
    advice: str
    kind: str | None = None


class Check:
    """What is expected. Checks that no section holds are frozen dataclasses with slots."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name in events and reports; never renamed."""
    reads: ClassVar[Reads] = Reads.TEXT
    about_tools: ClassVar[bool] = False
    """Whether it demands something of the tool calls. It is undecided, and not run, where it is not
    known which were made."""
    demands: ClassVar[Demands]
    """What it demands: whether its failure means that an attack succeeded. Every check says it."""
    only_numbers: ClassVar[bool] = False
    """Whether its results hold nothing but numbers that it measured. `redactPii` then leaves them
    as they are, unless they are undecided."""
    asks_judge: ClassVar[bool] = False
    judge_model: ClassVar[str | None] = None
    """The id of the model that judges; None for the default of the suite."""
    embeds: ClassVar[bool] = False
    """Whether it asks a provider for embeddings."""
    sarif: ClassVar[Rule | None] = None
    """What it is in a SARIF report, if it is a guardrail."""

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return its kinds: more than one where a field decides which it is."""
        return (cls.kind,)

    def expected(self, label: str, **more: Any) -> Expectation:
        """Return the expectation of this check; `more` are the other fields of `Expectation`."""
        return Expectation(self.kind, label, self, **more)

    def filled(self, bind: Fill, insert: Fill) -> Check:
        """Return it with values in its placeholders; most checks have none.

        `bind` fills those that a text of a test may have, `insert` those of a setting.
        """
        return self

    def is_slow(self, transcript: Transcript) -> bool:
        """Return whether it runs patterns or schemas of users; it then runs in a thread.

        This takes a few microseconds itself.
        """
        return False

    def evaluate(
        self, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return whether the transcript is as expected; the runner fills in kind and label."""
        raise NotImplementedError


class AskingCheck(Check):
    """A check that is `async`, as most of them ask a judge. It computes in `context.aside`.

    Where a secret was removed, the judge sees that something is missing.
    """

    __slots__ = ()

    reads = Reads.NUMBERS_AND_NAMES
    asks_judge = True

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        raise NotImplementedError


class Key(NamedTuple):
    """Where a section stands in `expect`, and what the reference says of it there.

    `many` sections stand there as a list. `order` is the place in the reference, and `evaluated`
    that of its checks, where it is another one. `in_format` says that version 1 of the KindLM
    format has it; all others are marked as extensions. Without a `description`, that of the section
    counts.
    """

    name: str
    description: str | None = None
    many: bool = False
    order: int = 100
    evaluated: int | None = None
    in_format: bool = False
    examples: list[Any] | None = None


class Made(NamedTuple):
    """A check that a section makes, its label before it is made unique, and where it is written."""

    check: Check
    label: str
    place: Place = ()


class Advice(NamedTuple):
    """What has no effect where it is written, and what to do about it."""

    place: Place
    message: str
    hint: str


class ExpectSection(Section):
    """A section of `expect`, or a part of one: what users write, and the checks that it makes.

    All methods speak of what stands in this section itself. Parts of it speak for themselves.
    """

    key: ClassVar[Key]
    """Where it stands; a part of another section has none."""

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        """Yield the checks.

        `schema` returns the JSON Schema in a file by the name of the file, and a function by
        `file.py:name`.
        """
        yield from ()

    @property
    def expects_nothing(self) -> bool:
        """Whether no transcript can fail because of it; a test needs more than that."""
        return not any(self.checks(lambda _: None))

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        """Yield what can never fail, and why; an execution ends after `timeout_ms`."""
        yield from ()

    def unused(self) -> Iterator[Advice]:
        """Yield what has no effect beside the other keys."""
        yield from ()

    def tools(self) -> Iterator[tuple[Place, str]]:
        """Yield the tools that it names."""
        yield from ()

    @classmethod
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        """Yield the schemas and functions that a mapping of the file names or holds.

        The mapping has not been validated, so that all that is wrong with a file is reported at
        once: any value may be of another type.
        """
        yield from ()

    @classmethod
    def judges(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
        """Yield where a mapping, not validated either, asks a judge: the model's id, or None."""
        yield from ()

    @classmethod
    def inner(cls) -> Iterator[tuple[str, type[ExpectSection], bool]]:
        """Yield the keys with sections: the key, the section, and whether it is a list of them."""
        for _, key, part, is_list in _inner(cls):
            yield key, part, is_list

    def parts(self) -> Iterator[tuple[Place, ExpectSection]]:
        """Yield it and all sections within it, with their places."""
        yield (), self
        for name, key, _, is_list in _inner(type(self)):
            value = getattr(self, name)
            if is_list:
                for index, item in enumerate(value):
                    yield from (((key, index, *place), part) for place, part in item.parts())
            elif value is not None:
                yield from (((key, *place), part) for place, part in value.parts())


@cache
def _inner(section: type[ExpectSection]) -> tuple[tuple[str, str, type[ExpectSection], bool], ...]:
    """Return the fields with sections: the field, its key, the section, and whether it is a list.

    They are looked up once: a large suite asks for the parts of its sections 100,000 times.
    """
    return tuple(
        (name, field.alias or name, part, get_origin(field.annotation) is list)
        for name, field in section.model_fields.items()
        for part in (field.annotation, *get_args(field.annotation))
        if isinstance(part, type) and issubclass(part, ExpectSection)
    )


class CheckSection(ExpectSection, Check):
    """A section that is one check: its fields are what users write and what `evaluate` goes by.

    A class without a `kind` has its key as its kind, in snake case.

    Code that has values which no file could hold makes it with `model_construct`.
    """

    # pydantic has to know them as class variables; their values are those of `Check`.
    kind: ClassVar[str]
    reads: ClassVar[Reads]
    about_tools: ClassVar[bool]
    demands: ClassVar[Demands]
    only_numbers: ClassVar[bool]
    asks_judge: ClassVar[bool]
    judge_model: ClassVar[str | None]
    embeds: ClassVar[bool]
    sarif: ClassVar[Rule | None]

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "key" in vars(cls) and not hasattr(cls, "kind"):
            cls.kind = to_snake(cls.key.name)

    @property
    def label(self) -> str:
        """The label: results of one kind are distinguished by it."""
        return self.kind

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        yield Made(self, self.label)


class UndecidedError(Exception):
    """What a check expects cannot be decided; the runner makes a result of it."""

    code = "ASSERTION_EVAL_ERROR"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def told(self) -> str:
        """The message with its hint."""
        return str(self) if self.hint is None else f"{str(self).rstrip('.')}. {self.hint}"


@cache
def sections() -> tuple[type[ExpectSection], ...]:
    """Return the sections of `expect` in their order: those that modules of this package define.

    Packages within this one have none: they are not loaded.
    """
    found = {each for each in _classes(_modules(deep=False)) if issubclass(each, ExpectSection)}
    keyed = (each for each in found if "key" in vars(each))
    return tuple(sorted(keyed, key=lambda each: (each.key.order, each.key.name)))


@cache
def all_checks() -> tuple[type[Check], ...]:
    """Return all checks of kindlm by their kinds, also those that no section makes."""
    found = {each for each in _classes(_modules(deep=True)) if issubclass(each, Check)}
    # A section with another key for the same check, such as `latencyMs`, has no kind of its own.
    named = (each for each in found if "kind" in vars(each))
    return tuple(sorted(named, key=lambda each: each.kinds()))


@cache
def codes() -> dict[str, str]:
    """Return all failure codes and what they mean: the `CODES` of the modules of this package."""
    found: dict[str, str] = {}
    for module in _modules(deep=True):
        found |= getattr(module, "CODES", {})
    return found


def _modules(*, deep: bool) -> Iterator[ModuleType]:
    todo = [importlib.import_module(__package__)]
    while todo:
        package = todo.pop()
        for found in pkgutil.iter_modules(package.__path__):
            if deep or not found.ispkg:
                module = importlib.import_module(f"{package.__name__}.{found.name}")
                yield module
                todo += [module] if found.ispkg else []


def _classes(modules: Iterable[ModuleType]) -> Iterator[type]:
    values = (each for module in modules for each in vars(module).values())
    return (each for each in values if isinstance(each, type))


def kinds() -> frozenset[str]:
    """Return the kinds of all checks of kindlm, which no package can use."""
    return frozenset(kind for check in all_checks() for kind in check.kinds())


@cache
def rules() -> dict[str, Rule]:
    """Return the rules of SARIF by the kinds of checks, in the order of the kinds."""
    return {each.sarif.kind or each.kind: each.sarif for each in all_checks() if each.sarif}


def passed(*, score: float = 1.0, message: str = "", **more: Any) -> CheckResult:
    """Return that what is expected is so; `more` are other fields of the result."""
    told = sentence(message) if message else ""
    return CheckResult("", "", Outcome.PASSED, score=score, message=told, **more)


def failed(
    code: str,
    message: str,
    *,
    score: float = 0.0,
    evidence: Iterable[Evidence] = (),
    **more: Any,
) -> CheckResult:
    """Return that what is expected is not so; `more` are other fields of the result."""
    told, found = sentence(message), tuple(evidence)
    return CheckResult(
        "", "", Outcome.FAILED, score, failure_code=code, message=told, evidence=found, **more
    )


def undecided(message: str, code: str = "ASSERTION_EVAL_ERROR", **more: Any) -> CheckResult:
    """Return that it cannot be decided whether it is so; such a result has no score."""
    told = sentence(message)
    return CheckResult("", "", Outcome.INCONCLUSIVE, failure_code=code, message=told, **more)


def skipped(message: str) -> CheckResult:
    """Return that there is nothing to decide; `message` says what to do."""
    return CheckResult("", "", Outcome.SKIPPED, message=sentence(message))
