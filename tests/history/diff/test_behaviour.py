"""What counts as another behaviour, over repeats that do not all do the same."""

from __future__ import annotations

from typing import Any

from kindlm.history.diff.behaviour import BehaviourChange, compare_behaviour, usual
from kindlm.history.diff.samples import CallRef, Failure, Sample
from kindlm.outcome import Status

TEXTS: dict[bytes, Any] = {}


def sample(tools: str = "", *, args: Any = None, fails: str = "", output: str = "hi") -> Sample:
    calls = []
    for tool in tools:
        digest = repr((tool, args)).encode()
        TEXTS[digest] = args
        calls.append(CallRef(tool, digest))
    failures = frozenset(Failure("contains", name, "CONTAINS_FAILED") for name in fails)
    status = Status.FAILED if fails else Status.PASSED
    return Sample(
        f"{tools}{args}{fails}{output}",
        "conversation",
        status,
        output.encode(),
        1.0,
        1,
        0.0,
        tuple(calls),
        failures,
        {},
        {},
        None,
        (),
    )


def compare(before: list[Sample], after: list[Sample]) -> BehaviourChange:
    return compare_behaviour(before, after, TEXTS.__getitem__)


def test_what_most_repeats_do_stands_for_the_test() -> None:
    found = usual([sample("a"), sample("ab"), sample("ab", output="other"), sample("ab")])
    assert found is not None
    assert (found.sample.id, found.alike, found.of) == (sample("ab").id, 3, 4)
    assert usual([]) is None


def test_other_tools_are_another_behaviour_even_if_the_test_passes() -> None:
    assert compare([sample("ab")], [sample("ba")]).tools
    assert compare([sample("ab")] * 3, [sample("b")] * 3).any
    assert not compare([sample("ab")] * 3, [sample("ab")] * 3).any


def test_an_agent_that_does_now_this_now_that_has_not_changed() -> None:
    before = [sample("a")] * 6 + [sample("b")] * 4
    after = [sample("a")] * 4 + [sample("b")] * 6
    assert compare(before, after) == BehaviourChange()


def test_what_a_minority_does_for_the_first_time_is_no_change() -> None:
    assert not compare([sample("a")] * 10, [sample("a")] * 9 + [sample("b")]).any
    assert compare([sample("a")] * 10, [sample("a")] * 3 + [sample("b")] * 7).tools


def test_arguments_are_compared_by_what_they_mean() -> None:
    assert not compare(
        [sample("a", args={"x": 1, "y": 2})], [sample("a", args={"y": 2, "x": 1.0})]
    ).arguments
    assert compare([sample("a", args={"x": 1})], [sample("a", args={"x": 2})]).arguments
    assert compare([sample("a", args={"x": None})], [sample("a", args={})]).arguments


def test_arguments_in_free_words_do_not_hide_or_feign_a_change() -> None:
    before = [sample("a", args={"id": "A1", "reason": f"why {n}"}) for n in range(5)]
    same = [sample("a", args={"id": "A1", "reason": f"because {n}"}) for n in range(5)]
    other = [sample("a", args={"id": "B2", "reason": f"because {n}"}) for n in range(5)]
    assert not compare(before, same).arguments
    assert compare(before, other).arguments


def test_checks_that_most_repeats_fail_for_the_first_time() -> None:
    assert compare([sample()], [sample(fails="x")]).failures
    assert compare([sample(fails="x")], [sample(fails="y")]).failures
    assert not compare([sample()] * 4, [sample()] * 3 + [sample(fails="x")]).failures


def test_other_words_are_told_and_are_no_other_behaviour() -> None:
    found = compare([sample(output="one")], [sample(output="two")])
    assert found.output
    assert not found.any
    shared = [sample(output="one"), sample(output="two")]
    assert not compare(shared, [sample(output="two")] * 2).output
