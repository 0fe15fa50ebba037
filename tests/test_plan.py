"""The plan of a run: its order, its numbers, and the parts that shards take of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import make_suite

from kindlm.plan import Places, Plan, QualifiedName, Selection, make_plan, plan_repeats
from kindlm.suite import Case, Prompt, Suite

NAMES = "abcd"


@st.composite
def suites(draw: st.DrawFn) -> list[Suite]:
    return [
        make_suite(
            *(
                Case(
                    f"{name}{number}",
                    prompt=Prompt("hi"),
                    targets=tuple(draw(st.sampled_from(["m", "mn", "n"]))),
                    repeat=draw(st.integers(1, 3)),
                    skip=draw(st.booleans()),
                    tags=tuple(draw(st.sampled_from(["", "x"]))),
                )
                for number in range(draw(st.integers(0, 5)))
            ),
            name=name,
            path=f"{name}.yaml",
        )
        for name in NAMES[: draw(st.integers(0, 4))]
    ]


def dealt(plan: Plan) -> list[tuple[str, str, str]]:
    """The tests of a plan, each once, by suite, name and target."""
    return list(
        dict.fromkeys((each.suite.suite.name, each.case.name, each.target) for each in plan)
    )


def ids_of(plan: Plan) -> dict[str, tuple[str, str, int]]:
    return {each.id: (each.case.name, each.target, each.repeat) for each in plan}


@given(suites())
def test_executions_are_numbered_from_one_in_their_order(found: list[Suite]) -> None:
    plan = make_plan(found)
    assert [each.id for each in plan] == [str(number) for number in range(1, len(plan) + 1)]


@given(suites(), st.integers(1, 7), st.sampled_from([(), ("x",)]))
def test_shards_are_disjoint_complete_balanced_and_always_the_same(
    found: list[Suite], shards: int, tags: tuple[str, ...]
) -> None:
    whole = Selection(tags=tags)
    parts = [
        dealt(make_plan(found, replace(whole, shard=(index, shards))))
        for index in range(1, shards + 1)
    ]
    assert sorted(test for part in parts for test in part) == sorted(dealt(make_plan(found, whole)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    again = [
        dealt(make_plan(found, replace(whole, shard=(index, shards))))
        for index in range(1, shards + 1)
    ]
    assert again == parts


@given(suites(), st.integers(1, 4), st.sets(st.integers(0, 3)))
def test_a_suite_that_cannot_start_here_changes_no_other_shard(
    found: list[Suite], shards: int, missing: set[int]
) -> None:
    """Each machine deals alone: a program that is missing on one must not lose tests."""
    for index in range(1, shards + 1):
        selection = Selection(shard=(index, shards))
        all_here = dealt(make_plan(found, selection))
        names = {NAMES[ordinal] for ordinal in missing}
        kept = [test for test in all_here if test[0] not in names]
        assert dealt(make_plan(found, selection, missing)) == kept


@given(suites(), st.data())
def test_numbers_stay_when_more_suites_can_start(found: list[Suite], data: st.DataObject) -> None:
    """However often a run is resumed, and in whatever order its suites become able to start."""
    ordinals = {suite.path: at for at, suite in enumerate(found)}
    missing = set(ordinals.values())
    started: tuple[int, ...] = ()
    known: dict[str, tuple[str, str, int]] = {}
    while missing:
        now = data.draw(st.sets(st.sampled_from(sorted(missing)), min_size=1))
        missing -= now
        plan = make_plan(found, missing=missing, places=Places(ordinals, started))
        ids = ids_of(plan)
        assert len(ids) == len(plan)
        assert ids.items() >= known.items()
        known = ids
        started += tuple(p.ordinal for p in plan.suites if p.ordinal not in started)


@pytest.mark.parametrize("tag", ["slow", "Slow", "paid", "PAID"])
def test_tags_of_tests_and_suites_select_in_any_case(tag: str) -> None:
    case = Case("a", prompt=Prompt("hi"), targets=("m",), tags=("Slow",))
    suite = replace(make_suite(case), tags=("Paid",))
    assert len(make_plan([suite], Selection(tags=(tag,)))) == 1
    assert len(make_plan([suite], Selection(tags=("other",)))) == 0


def test_a_shard_beyond_the_tests_is_empty() -> None:
    one = make_suite(Case("a", prompt=Prompt("hi"), targets=("m",)))
    assert len(make_plan([one], Selection(shard=(2, 3)))) == 0


def test_more_repeats_are_numbered_on_from_those_there_were() -> None:
    both = make_suite(
        Case("a", prompt=Prompt("hi"), targets=("m", "n")),
        Case("b", prompt=Prompt("hi"), targets=("m", "n")),
        name="s",
    )
    other = make_suite(Case("a", prompt=Prompt("hi"), targets=("m",)), name="t", path="t.yaml")
    plan = make_plan([both, other])
    wanted = {
        QualifiedName("shop", "s", "a", "n"): range(4, 6),
        QualifiedName("shop", "s", "b", "m"): range(11, 12),
        QualifiedName("shop", "s", "b", "n"): range(3, 3),
    }
    more = plan_repeats(plan, wanted, done=7)
    assert ids_of(more) == {"8": ("a", "n", 4), "9": ("a", "n", 5), "10": ("b", "m", 11)}
    assert [suite.suite.name for suite in more.suites] == ["s"]
    assert [each.repeats for each in more] == [2, 2, 1]
    assert len(more) == 3
