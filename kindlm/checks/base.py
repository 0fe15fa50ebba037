"""The base classes of checks, and how kindlm finds the checks.

A `Check` is a value that holds an expectation and evaluates it. An `ExpectSection` is a section of
`expect` in kindlm.yaml: its fields are the keys, and it makes checks. Most sections are themselves
a check: `CheckSection`. A new check is a module of this package with such a class.

Front ends put each check into an `Expectation`, and `CheckRunner` (`kindlm/checks/__init__.py`)
evaluates it. A check sees only the transcript and the `CheckContext`, so it works for live and for
recorded conversations.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from pydantic.alias_generators import to_snake

from kindlm.dataclass import replace
from kindlm.outcome import CheckResult, Demands, Evidence, Outcome
from kindlm.ports import CheckContext
from kindlm.section import Section
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, sentence

T = TypeVar("T")

CODES = {
    "CUSTOM_CHECK_FAILED": "Your own check failed.",
    "ASSERT_FAILED": "An `assert` of a scenario failed.",
    "NOTHING_CHECKED": "A scenario ended without a check.",
    "ASSERTION_EVAL_ERROR": "kindlm could not evaluate the check. It is inconclusive.",
}
"""The failure codes of checks and scenarios, and what each means; never renamed."""

Place: TypeAlias = tuple[str | int, ...]
"""A place below a section: keys and positions in lists."""

Fill: TypeAlias = Callable[[str], str]
"""Puts values into the placeholders of a text."""


Refers: TypeAlias = Literal["schema", "function"]
"""What a value in a section is: a JSON Schema or its file, or a function as `file.py:name`."""


class Rule(NamedTuple):
    """A guardrail in a SARIF report: its kind, its id, and what a failure shows."""

    kind: str
    id: str
    title: str


class Check:
    """An expectation that evaluates itself. A check without a section is a frozen dataclass."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name in events and reports; never renamed."""
    reads_text: ClassVar[bool] = True
    """Whether it reads more than numbers and names. It is undecided if a secret was removed."""
    about_tools: ClassVar[bool] = False
    """Whether it is about tool calls. It is undecided, and not run, if they are not known."""
    demands: ClassVar[Demands]
    """What it demands, and so whether its failure means that an attack succeeded."""
    only_numbers: ClassVar[bool] = False
    """Whether its results hold only measured numbers. `redactPii` then leaves decided ones
    unchanged."""
    asks_judge: ClassVar[bool] = False
    judge_model: ClassVar[str | None] = None
    """The id of the model that judges; None for the default of the suite."""
    embeds: ClassVar[bool] = False
    """Whether it asks a provider for embeddings."""
    sarif: ClassVar[tuple[Rule, ...]] = ()
    """Its rules in a SARIF report: one for each of its kinds that is a guardrail."""

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return its kinds: several if a field decides the kind."""
        return (cls.kind,)

    def expected(self, label: str, **more: Any) -> Expectation:
        """Return an `Expectation` of this check; `more` are its other fields."""
        return Expectation(self.kind, label, self, **more)

    def filled(self, bind: Fill, insert: Fill) -> Check:
        """Return the check with its placeholders filled; most checks have none.

        `bind` fills placeholders in texts of a test, `insert` those in settings.
        """
        return self

    def is_slow(self, transcript: Transcript) -> bool:
        """Return, within microseconds, whether the check may take long; it then runs in a thread.

        That is the case for users' patterns and schemas.
        """
        return False

    def evaluate(
        self, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return whether the transcript is as expected; the runner fills in kind and label."""
        raise NotImplementedError


class AskingCheck(Check):
    """An asynchronous check, usually one that asks a judge. It computes in `context.aside`.

    If only a judge reads the text, it may run although a secret was removed: the judge sees the
    mark in its place.
    """

    __slots__ = ()

    asks_judge = True

    @property
    def reads_text(self) -> bool:  # type: ignore[override]
        return not self.asks_judge

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        raise NotImplementedError


class Key(NamedTuple):
    """The key of a section in `expect`, in camelCase, and its entry in the reference.

    The `description` is by default the docstring of the section. If `many`, the value is a list of
    sections. `order` is the place in the reference, and of its checks among all checks, unless
    `evaluated` is another one. Keys that are not `in_format`, version 1 of the KindLM format, are
    marked as extensions.
    """

    name: str
    description: str | None = None
    many: bool = False
    order: int = 100
    evaluated: int | None = None
    in_format: bool = False
    examples: list[Any] | None = None


class Made(NamedTuple):
    """A check that a section makes, its label, which may not be unique yet, and its place."""

    check: Check
    label: str
    place: Place = ()


class Inner(NamedTuple):
    """A field of a section that holds another section, or a list of them; `key` is in the file."""

    field: str
    key: str
    section: type[ExpectSection]


class ExpectSection(Section):
    """A section of `expect`, or a part of one, and the checks that it makes.

    The methods are about the section itself, without its parts.
    """

    key: ClassVar[Key]
    """Its key in `expect`; a part of another section has none."""

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        """Yield the checks. `schema` returns the JSON Schema of a file, or a `file.py:name`."""
        yield from ()

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        """Yield the places that can never fail, and why; an execution ends after `timeout_ms`."""
        yield from ()

    def unused(self) -> Iterator[tuple[Place, str, str]]:
        """Yield keys that have no effect beside the others, with a message and a hint."""
        yield from ()

    @classmethod
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        """Yield the schemas and functions in a mapping of the file.

        The mapping has not been validated, so that a file's problems are all reported at once:
        values may have any type.
        """
        yield from ()

    @classmethod
    def judges(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
        """Yield the places in such a mapping that ask a judge, with the model's id or None."""
        yield from ()

    @classmethod
    @cache
    def inner(cls) -> tuple[Inner, ...]:
        """Return all sections in this one. Cached, since a large suite asks 100,000 times."""
        return tuple(
            Inner(name, field.alias or name, part)
            for name, field in cls.model_fields.items()
            for part in (field.annotation, *get_args(field.annotation))
            if isinstance(part, type) and issubclass(part, ExpectSection)
        )

    def parts(self) -> Iterator[tuple[Place, ExpectSection]]:
        """Yield this section and all sections within it, with their places."""
        yield (), self
        for name, key, _ in self.inner():
            if (value := getattr(self, name)) is None:
                continue
            for at, item in entries(value):
                for place, part in item.parts():
                    yield (key, *at, *place), part


def entries(value: Any) -> Iterator[tuple[Place, Any]]:
    """Yield the entries of a list with their places in it, or another value as it is."""
    if not isinstance(value, list):
        yield (), value
        return
    for at, each in enumerate(value):
        yield (at,), each


class CheckSection(ExpectSection, Check):
    """A section that is one check. By default, its `kind` is its key in snake case.

    Scenarios make it with `model_construct`, as their values may not be valid in a file.
    """

    # For pydantic; the values are those of `Check`.
    kind: ClassVar[str]
    reads_text: ClassVar[bool]
    about_tools: ClassVar[bool]
    demands: ClassVar[Demands]
    only_numbers: ClassVar[bool]
    asks_judge: ClassVar[bool]
    judge_model: ClassVar[str | None]
    embeds: ClassVar[bool]
    sarif: ClassVar[tuple[Rule, ...]]

    labelled_by: ClassVar[str] = "kind"
    """The field with the label, which distinguishes results of one kind."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        super().__pydantic_init_subclass__()
        if "key" in vars(cls):
            if not hasattr(cls, "demands"):
                raise TypeError(f"{cls.__name__} must say what it `demands`")
            if not hasattr(cls, "kind"):
                cls.kind = to_snake(cls.key.name)

    @property
    def label(self) -> str:
        """The label of its expectation."""
        return str(getattr(self, self.labelled_by))

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        yield Made(self, self.label)


class UndecidedError(Exception):
    """A check cannot be decided; the runner turns this into a result."""

    code = "ASSERTION_EVAL_ERROR"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message.rstrip('.')}. {hint}")


@cache
def sections() -> tuple[type[ExpectSection], ...]:
    """Return the sections of `expect`, in their order. Subpackages have none."""
    found = _classes(ExpectSection, deep=False)
    keyed = (each for each in found if "key" in vars(each))
    return tuple(sorted(keyed, key=lambda each: (each.key.order, each.key.name)))


@cache
def all_checks() -> tuple[type[Check], ...]:
    """Return all checks of kindlm in the order of their kinds, also those without a section."""
    # Another key for the same check, such as `latencyMs`, has no kind of its own.
    named = (each for each in _classes(Check, deep=True) if "kind" in vars(each))
    return tuple(sorted(named, key=lambda each: each.kinds()))


@cache
def codes() -> dict[str, str]:
    """Return all failure codes and what they mean, from the `CODES` of all modules."""
    found: dict[str, str] = {}
    for module in sorted(_modules(deep=True), key=lambda module: module.__name__.count(".")):
        found |= getattr(module, "CODES", {})
    return found


def _modules(*, deep: bool) -> Iterator[ModuleType]:
    find = pkgutil.walk_packages if deep else pkgutil.iter_modules
    for found in find(importlib.import_module(__package__).__path__, f"{__package__}."):
        if not found.ispkg:
            yield importlib.import_module(found.name)


def _classes(kind: type[T], *, deep: bool) -> set[type[T]]:
    values = (each for module in _modules(deep=deep) for each in vars(module).values())
    return {each for each in values if isinstance(each, type) and issubclass(each, kind)}


def kinds() -> frozenset[str]:
    """Return the kinds of kindlm's own checks, which packages cannot use."""
    return frozenset(kind for check in all_checks() for kind in check.kinds())


@cache
def rules() -> dict[str, Rule]:
    """Return the SARIF rules by the kinds of checks."""
    return {rule.kind: rule for each in all_checks() for rule in each.sarif}


def passed(*, score: float = 1.0, message: str = "", **more: Any) -> CheckResult:
    """Return a passed result; `more` are its other fields."""
    message = message and sentence(message)
    return CheckResult("", "", Outcome.PASSED, score, message=message, **more)


def failed(
    code: str, message: str, *, score: float = 0.0, evidence: Iterable[Evidence] = (), **more: Any
) -> CheckResult:
    """Return a failed result; `more` are its other fields."""
    more |= {"failure_code": code, "message": sentence(message), "evidence": tuple(evidence)}
    return CheckResult("", "", Outcome.FAILED, score, **more)


def undecided(message: str, code: str = "ASSERTION_EVAL_ERROR", **more: Any) -> CheckResult:
    """Return an inconclusive result, which has no score; `more` are its other fields."""
    more |= {"failure_code": code, "message": sentence(message)}
    return CheckResult("", "", Outcome.INCONCLUSIVE, **more)


def skipped(message: str) -> CheckResult:
    """Return a skipped result; `message` says what to do."""
    return CheckResult("", "", Outcome.SKIPPED, message=sentence(message))


def in_turn(evidence: Evidence, turn: int, text: str) -> Evidence:
    """Return evidence in the answer of a turn, whose text is not shown as a whole."""
    shown = evidence.excerpt or excerpt(text[evidence.start : evidence.end])
    return replace(evidence, source=f"turn[{turn}].output", excerpt=shown)
