"""The plan of a run: its executions and their order; the expressions of `-k`.

An execution is case × target × repeat, and gets its id here. The same suites and selection always
give the same plan, which resumed runs and shards rely on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import NamedTuple, TypeAlias

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.suite import Case, Suite

Keywords: TypeAlias = Callable[[Sequence[str]], bool]
"""Returns whether an expression matches a test with the given names, in lower case."""


class QualifiedName(NamedTuple):
    """The identity of a test in all runs. Suites of several projects may have the same name."""

    project: str
    suite: str
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The tests that a run selects; an empty field selects everything.

    Attributes:
        tests: Names, of which one has to match: that of a suite, its file, a test, or its title,
            or a part of one if no name matches as a whole. Case makes no difference.
        tags: Tags, of which the test needs one.
        keywords: An expression that has to match the names and tags of a test.
        only: The tests to select from.
        unnamed: Tests to leave out because their file was not named, although another file of
            their suite was: path of the suite, test.
        shard: (i, n): every n-th of the tests selected otherwise, beginning with the i-th.
    """

    suite: str | None = None
    tests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keywords: Keywords | None = None
    repeat: int | None = None
    only: frozenset[QualifiedName] | None = None
    unnamed: frozenset[tuple[str, str]] = frozenset()
    shard: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case of a suite, its selected targets, and the number of repeats on each.

    `numbers` are those of its repeats, if not 1 to `repeat`.
    """

    case: Case
    targets: tuple[str, ...]
    repeat: int
    numbers: Sequence[int] = ()

    @property
    def selected(self) -> bool:
        """Whether it runs on any target."""
        return bool(self.targets)

    @property
    def executions(self) -> int:
        """The number of executions of this case."""
        return len(self.targets) * self.repeat


@dataclass(frozen=True, slots=True)
class PlannedSuite:
    """A suite and its cases, selected or not, in the order of the file.

    `before` is the number of executions in earlier suites; its own are numbered from there.
    """

    ordinal: int
    suite: Suite
    cases: tuple[PlannedCase, ...]
    before: int = 0

    @property
    def executions(self) -> int:
        """The number of executions of this suite."""
        return sum(case.executions for case in self.cases)


@dataclass(frozen=True, slots=True)
class Execution:
    """A repeat of a test, with its number from 1; `repeats` is their number in the plan.

    `id` is unique in the run, and the same for all attempts.
    """

    id: str
    suite: PlannedSuite
    case: Case
    target: str
    repeat: int
    repeats: int

    @property
    def test(self) -> QualifiedName:
        """The identity of the test."""
        return name_of(self.suite.suite, self.case, self.target)

    def subject(self, attempt: int) -> str:
        """Return the subject of the events of an attempt, such as `17.1`."""
        return f"{self.id}.{attempt}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All executions of a run, which are created while iterating: a plan needs little memory."""

    suites: tuple[PlannedSuite, ...]

    def __len__(self) -> int:
        """Return the number of executions, including skipped ones."""
        return sum(suite.executions for suite in self.suites)

    def __iter__(self) -> Iterator[Execution]:
        """Yield the executions by suite, case, target and repeat."""
        for suite in self.suites:
            number = suite.before
            for planned in suite.cases:
                for target in planned.targets:
                    for repeat in planned.numbers or range(1, planned.repeat + 1):
                        number += 1
                        yield Execution(
                            str(number), suite, planned.case, target, repeat, planned.repeat
                        )


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier sessions of a run did.

    Attributes:
        finished: Ids of executions that are not run again.
        attempts: The number of the last attempt at each other execution that started.
        reruns: How many attempts at it ended and were to be rerun.
        spent_usd: The known cost, by the ordinal of the suite.
        unknown_costs: The number of calls with an unknown cost.
    """

    finished: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    reruns: Mapping[str, int] = field(default_factory=dict)
    spent_usd: Mapping[int, float] = field(default_factory=dict)
    unknown_costs: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """The places of suites in a resumed run: their `ordinals` by path.

    `started` are the ordinals of suites in the order in which they started, and in which their
    executions are numbered. A suite that starts later gets the next numbers.
    """

    ordinals: Mapping[str, int] = field(default_factory=dict)
    started: tuple[int, ...] = ()

    def ordinal(self, path: str, position: int) -> int:
        """Return the ordinal of a suite, which is its `position` in a new run."""
        return self.ordinals.get(path, position)


def make_plan(
    suites: Sequence[Suite],
    selection: Selection | None = None,
    missing: Collection[int] = (),
    places: Places = Places(),  # noqa: B008 - a value
) -> Plan:
    """Return the plan of a run of `suites`.

    `missing` are the ordinals of suites that cannot run now. They get no executions, but count when
    tests are distributed among shards.
    """
    chosen = selection or Selection()
    named = {name for suite in suites for case in suite.cases for name in _names(suite, case)}
    wanted = [(part, part in named) for part in map(str.lower, chosen.tests)]
    index, shards = chosen.shard or (1, 1)
    dealt = count()

    def in_shard() -> bool:
        return next(dealt) % shards == index - 1

    planned: dict[int, PlannedSuite] = {}
    for position, suite in enumerate(suites):
        ordinal = places.ordinal(suite.path, position)
        cases = tuple(_plan_case(suite, case, chosen, wanted, in_shard) for case in suite.cases)
        if ordinal not in missing:
            planned[ordinal] = PlannedSuite(ordinal, suite, cases)
    order = [ordinal for ordinal in places.started if ordinal in planned]
    order += [ordinal for ordinal in planned if ordinal not in places.started]
    return numbered(planned[ordinal] for ordinal in order)


def plan_repeats(plan: Plan, repeats: Mapping[QualifiedName, Sequence[int]], done: int = 0) -> Plan:
    """Return a plan of some repeats of tests, by their numbers; executions count from `done`."""
    suites = [replace(planned, cases=tuple(_repeated(planned, repeats))) for planned in plan.suites]
    return numbered((suite for suite in suites if suite.cases), done)


def _repeated(
    planned: PlannedSuite, repeats: Mapping[QualifiedName, Sequence[int]]
) -> Iterator[PlannedCase]:
    for entry in planned.cases:
        for target in entry.targets:
            if wanted := repeats.get(name_of(planned.suite, entry.case, target)):
                yield replace(entry, targets=(target,), repeat=len(wanted), numbers=wanted)


def name_of(suite: Suite, case: Case, target: str) -> QualifiedName:
    """Return the identity of a case on a target."""
    return QualifiedName(suite.project, suite.name, case.name, target)


def undealt(plan: Plan) -> Plan:
    """Return a plan with no test selected, as before its tests are distributed."""
    return numbered(
        replace(suite, cases=tuple(replace(case, targets=()) for case in suite.cases))
        for suite in plan.suites
    )


def numbered(suites: Iterable[PlannedSuite], before: int = 0) -> Plan:
    """Return a plan of suites with their executions numbered after `before`."""
    found = []
    for suite in suites:
        found.append(replace(suite, before=before))
        before += suite.executions
    return Plan(tuple(found))


def _plan_case(
    suite: Suite,
    case: Case,
    selection: Selection,
    wanted: Collection[tuple[str, bool]],
    in_shard: Callable[[], bool],
) -> PlannedCase:
    """Return a case, with its targets if selected; `wanted` are names, and if each is whole."""
    names, tags = _names(suite, case), {tag.lower() for tag in (*suite.tags, *case.tags)}
    is_named = not wanted or any(
        part == name if is_whole else part in name for part, is_whole in wanted for name in names
    )
    is_selected = (
        is_named
        and (suite.path, case.name) not in selection.unnamed
        and (selection.suite is None or selection.suite.lower() in suite.name.lower())
        and (not selection.tags or not tags.isdisjoint(map(str.lower, selection.tags)))
    )
    targets = tuple(
        target
        for target in (case.targets if is_selected else ())
        if (not selection.models or target in selection.models)
        and (selection.only is None or name_of(suite, case, target) in selection.only)
        and (selection.keywords is None or selection.keywords([*names, *tags, target.lower()]))
        and in_shard()
    )
    # A skipped case has one execution for each target.
    return PlannedCase(case, targets, 1 if case.skip else selection.repeat or case.repeat)


def fits_nothing(suites: Iterable[Suite], test: str) -> bool:
    """Return whether no test, suite or file has `test` in its name."""
    names = (name for suite in suites for case in suite.cases for name in _names(suite, case))
    return not any(test.lower() in name for name in names)


def _names(suite: Suite, case: Case) -> list[str]:
    return [name.lower() for name in (suite.name, case.name, suite.path, case.title or "")]


_TOKEN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([()]|[^\s()]+))""")
_OPERATORS = frozenset({"and", "or", "not", "(", ")"})
_NODES = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Constant)
_MOST_WORDS = 200
"""This also limits the nesting of an expression."""


def parse_keywords(text: str) -> Result[Keywords]:
    """Parse an expression of `-k`, such as `refund and not (gpt or slow)`.

    A word matches a test if one of its names contains it, in any case. Words with spaces or
    parentheses, and names of operators, are written in quotes.
    """
    tokens = _TOKEN.findall(text.rstrip())
    # Python parses the expression, with the index of each word in its place.
    written = (
        bare if bare in _OPERATORS else str(place) for place, (_, _, bare) in enumerate(tokens)
    )
    why = f"it has more than {_MOST_WORDS} words"
    if len(tokens) <= _MOST_WORDS:
        try:
            expression = ast.parse(" ".join(written), mode="eval").body
        except SyntaxError as error:
            why = error.msg
        else:
            why = "an operator is missing"
            if all(isinstance(node, _NODES) for node in ast.walk(expression)):
                words = [(bare or double or single).lower() for double, single, bare in tokens]
                return Ok(lambda names: _holds(expression, words, names))
    message = f"-k {text!r} is not a valid expression: {why}."
    return Err(misuse(message, "Write names with and, or, not and parentheses: -k 'a and not b'"))


def _holds(expression: ast.expr, words: Sequence[str], names: Sequence[str]) -> bool:
    match expression:
        case ast.BoolOp(ast.And(), parts):
            return all(_holds(part, words, names) for part in parts)
        case ast.BoolOp(_, parts):
            return any(_holds(part, words, names) for part in parts)
        case ast.UnaryOp(_, part):
            return not _holds(part, words, names)
    assert isinstance(expression, ast.Constant)
    word = words[int(str(expression.value))]
    return any(word in name for name in names)
