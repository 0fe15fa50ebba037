"""What counts as another behaviour, over repeats that do not all do the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.history.diff.compared_tests import compare_behaviour, usual
from kindlm.history.diff.evidence_values import BehaviourChange
from kindlm.history.diff.samples import CallRef, Failure, Sample
from kindlm.outcome import Status

TEXTS: dict[str, Any] = {}


def sample(
    tools: str = "",
    *,
    args: Any = None,
    fails: str = "",
    output: str = "hi",
    checks: tuple[str, ...] = (),
) -> Sample:
    calls = []
    for tool in tools:
        digest = repr((tool, args))
        TEXTS[digest] = args
        calls.append(CallRef(tool, digest))
    failures = frozenset(Failure("contains", name, "CONTAINS_FAILED") for name in fails)
    status = Status.FAILED if fails else Status.PASSED
    return Sample(
        f"{tools}{args}{fails}{output}",
        "conversation",
        status,
        output,
        calls=tuple(calls),
        failures=failures,
        checks=json.dumps([["contains", label, None, None] for label in checks]),
    )


def compare(before: list[Sample], after: list[Sample], **options: bool) -> BehaviourChange:
    return compare_behaviour(before, after, TEXTS.__getitem__, **options)


def checking(*repeats: str) -> list[Sample]:
    """Repeats of a test, each of which makes the checks of these labels."""
    return [sample(checks=tuple(labels.split())) for labels in repeats]


def drawn(repeats: int, after: str, more: str = "") -> list[Sample]:
    """Repeats of a test with a check whose label is another one in each of them."""
    return checking(*(f"{after}{number} {more}" for number in range(repeats)))


def test_what_most_repeats_do_stands_for_the_test() -> None:
    found, alike = usual([sample("a"), sample("ab"), sample("ab", output="other"), sample("ab")])
    assert found is not None
    assert (found.id, alike) == (sample("ab").id, 3)
    assert usual([sample("a")]) == (sample("a"), 1)
    assert usual([]) == (None, 0)


def test_other_tools_are_another_behaviour_even_if_the_test_passes() -> None:
    assert compare([sample("ab")], [sample("ba")]).tools
    assert compare([sample("ab")] * 3, [sample("b")] * 3).any
    assert not compare([sample("ab")] * 3, [sample("ab")] * 3).any


def test_a_side_without_repeats_has_no_behaviour() -> None:
    assert compare([sample("a", fails="x")], []) == BehaviourChange()


def test_an_agent_that_does_now_this_now_that_has_not_changed() -> None:
    before = [sample("a")] * 6 + [sample("b")] * 4
    after = [sample("a")] * 4 + [sample("b")] * 6
    assert compare(before, after) == BehaviourChange()


def test_what_a_minority_does_for_the_first_time_is_no_change() -> None:
    assert not compare([sample("a")] * 10, [sample("a")] * 9 + [sample("b")]).any
    assert not compare([sample("a")] * 10, [sample("a")] * 5 + [sample("b")] * 5).any
    assert compare([sample("a")] * 10, [sample("a")] * 3 + [sample("b")] * 7).tools


def test_arguments_are_compared_by_what_they_mean() -> None:
    assert not compare(
        [sample("a", args={"x": 1, "y": 2})], [sample("a", args={"y": 2, "x": 1.0})]
    ).arguments
    assert compare([sample("a", args={"x": 1})], [sample("a", args={"x": 2})]).arguments
    assert compare([sample("a", args={"x": None})], [sample("a", args={})]).arguments


def test_arguments_of_any_call_are_compared() -> None:
    def two_calls(second: int) -> Sample:
        calls = [sample(tool, args={"x": x}).calls for tool, x in (("a", 1), ("b", second))]
        return sample()._replace(calls=(*calls[0], *calls[1]))

    assert compare([two_calls(2)], [two_calls(3)]).arguments
    assert not compare([two_calls(2)], [two_calls(2)]).arguments


def test_arguments_that_are_no_object_are_compared() -> None:
    assert compare([sample("a", args={"x": 1})], [sample("a", args=5)]).arguments


def test_erased_arguments_are_not_known_to_have_changed() -> None:
    known = sample("a", args={"x": 1})
    erased = known._replace(calls=(CallRef("a", None),))
    assert not compare([erased], [known]).arguments
    assert not compare([known], [erased]).arguments
    assert not compare([known, known], [known, erased]).arguments


def test_arguments_are_not_compared_if_one_side_never_calls_the_most_common_tools() -> None:
    before = [sample(tool) for tool in ("a", "a", "a", "b", "c", "d")]
    after = [sample(tool, args={"x": 1}) for tool in ("b", "c", "d")]
    assert not compare(before, after).any


def test_a_conversation_may_end_after_fewer_turns_than_others() -> None:
    short = sample()._replace(earlier={1: "Which order?"})
    long = sample()._replace(earlier={1: "Your order?", 2: "Are you sure?"})
    assert compare([short], [long]).turns == (1,)
    assert compare([long], [short]).turns == (1,)


def test_arguments_in_free_words_do_not_hide_or_feign_a_change() -> None:
    before = [sample("a", args={"id": "A1", "reason": f"why {n}"}) for n in range(5)]
    same = [sample("a", args={"id": "A1", "reason": f"because {n}"}) for n in range(5)]
    other = [sample("a", args={"id": "B2", "reason": f"because {n}"}) for n in range(5)]
    assert not compare(before, same).arguments
    assert compare(before, other).arguments


def test_checks_that_most_repeats_fail_for_the_first_time() -> None:
    assert compare([sample()], [sample(fails="x")], same_config=True).failures
    assert compare([sample(fails="x")], [sample(fails="y")], same_config=True).any
    once = [sample()] * 3 + [sample(fails="x")]
    assert not compare([sample()] * 4, once, same_config=True).failures


def test_a_check_of_another_configuration_that_fails_is_no_other_behaviour() -> None:
    failed, reworded = sample(fails="x", checks=("x", "y")), sample(fails="z", checks=("z", "y"))
    assert not compare([failed], [reworded]).any
    assert compare([failed], [reworded]).failures
    assert compare([failed], [sample(fails="y", checks=("z", "y"))]).any
    assert compare([failed], [failed._replace(failures=frozenset({Failure("error", "", "E")}))]).any


def test_other_words_are_reported_and_are_no_other_behaviour() -> None:
    found = compare([sample(output="one")], [sample(output="two")])
    assert found.output
    assert not found.any
    shared = [sample(output="one"), sample(output="two")]
    assert not compare(shared, [sample(output="two")] * 2).output


@pytest.mark.parametrize("same_config", [True, False])
def test_a_check_that_most_repeats_of_one_side_make_and_none_of_the_other(
    same_config: bool,
) -> None:
    def other(before: list[Sample], after: list[Sample]) -> bool:
        ways = {
            compare(*sides, same_config=same_config).checks
            for sides in ((before, after), (after, before))
        }
        assert len(ways) == 1, "what is taken away and what is added are told alike"
        return ways.pop()

    assert other(checking("a b"), checking("a"))
    assert other(checking("a b", "a b", "a"), checking("a", "a", "a"))
    assert not other(checking("a b", "a", "a"), checking("a", "a", "a"))
    assert not other(checking("a b", "a b", "a b"), checking("a", "a", "a b"))
    assert other(checking("a", "a", "a"), checking("b", "b", "b"))
    assert not other(checking("a b"), checking("b a"))


def test_a_check_whose_label_is_another_one_every_time_is_the_same_check() -> None:
    for same_config in (True, False):
        found = compare(drawn(4, "old", "a"), drawn(4, "new", "a"), same_config=same_config)
        assert not found.checks
        assert compare(drawn(4, "old", "a"), checking(*"aaaa"), same_config=same_config).checks


def test_in_one_sample_the_labels_count_where_the_test_may_be_another_one() -> None:
    assert not compare(checking("a x1"), checking("a x2"), same_config=True).checks
    assert not compare(drawn(5, "old"), checking("x"), same_config=True).checks
    assert compare(checking("a x1"), checking("a x2"), same_config=False).checks
    assert compare(checking("a x1"), checking("x2"), same_config=True).checks


def test_other_checks_are_no_other_behaviour() -> None:
    found = compare(checking("a"), checking("b c"))
    assert found.checks
    assert not found.any
    assert not found.failures
