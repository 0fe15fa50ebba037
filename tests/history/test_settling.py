"""Which tests of two runs are suspected, how they stand, and how repeats are shared out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from recorded_history import History, Make

from kindlm.history.diff.evidence_values import (
    MOST_ADDED,
    CheckKey,
    CheckPair,
    QualifiedName,
    Side,
    TestPair,
)
from kindlm.history.diff.samples import Attempts
from kindlm.history.settling import AddedRepeats, Suspect, read_added, share_out, suspects
from kindlm.history.statistics.pass_rates import Settlement
from kindlm.history.statistics.tables import Counts, pooled
from kindlm.outcome import Status


def key(name: str) -> QualifiedName:
    return QualifiedName("shop", "orders", name, "gpt")


def pair(
    before: tuple[int, int], after: tuple[int, int], **scores: tuple[tuple[float, ...], ...]
) -> TestPair:
    sides = (
        Side(
            Counts(*counts),
            Status.PASSED if counts[0] == counts[1] else Status.FAILED,
            {name: both[n] for name, both in scores.items()},
        )
        for n, counts in enumerate((before, after))
    )
    return TestPair(*sides)


def standing(pairs: dict[str, TestPair], **added: str) -> dict[str, Settlement | None]:
    """How the suspected tests stand, by name; `added` are repeats that passed (+) or not."""
    more = {
        key(name): AddedRepeats(tuple(Counts(int(sign == "+"), 1) for sign in signs), len(signs))
        for name, signs in added.items()
    }
    found = suspects({key(name): test for name, test in pairs.items()}, more, 0.05)
    return {suspect.key.name: suspect.standing for suspect in found}


def test_only_tests_that_fell_are_suspected() -> None:
    pairs = {
        "same": pair((5, 5), (5, 5)),
        "rose": pair((3, 5), (5, 5)),
        "fell": pair((10, 10), (2, 3)),
        "broke": pair((10, 10), (0, 10)),
        "judged": pair((5, 5), (5, 5), kind=((0.9,) * 5, (0.8, 0.8, 0.9, 0.7, 0.9))),
        "few": pair((1, 1), (0, 3)),
    }
    assert standing(pairs) == {
        "fell": Settlement.UNDECIDED,
        "broke": Settlement.CONFIRMED,
        "judged": None,
        "few": Settlement.BEFORE_TOO_SMALL,
    }


def test_added_repeats_decide() -> None:
    pairs = {"a": pair((10, 10), (2, 3)), "b": pair((10, 10), (2, 3))}
    assert standing(pairs, a="+" * 20, b="-" * 20) == {
        "a": Settlement.CLEARED,
        "b": Settlement.CONFIRMED,
    }
    # An agent that is a little worse than before stays between the two until there are no more.
    slightly = {"a": pair((20, 20), (4, 5))}
    signs = ("+++-" * MOST_ADDED)[:MOST_ADDED]
    assert standing(slightly, a=signs[:4]) == {"a": Settlement.UNDECIDED}
    assert standing(slightly, a=signs)["a"] in (Settlement.EXHAUSTED, Settlement.CONFIRMED)


def test_repeats_that_fell_are_not_taken_back_by_later_ones() -> None:
    pairs = {"a": pair((10, 10), (2, 3))}
    assert standing(pairs, a="-" * 8) == {"a": Settlement.CONFIRMED}
    assert standing(pairs, a="-" * 8 + "+" * 3) == {"a": Settlement.CONFIRMED}


def test_a_check_that_fell_is_settled_although_its_test_failed_before() -> None:
    it, check = key("it"), CheckKey("contains", "refunded")
    fell = CheckPair(Counts(10, 10), Counts(2, 3))
    pairs = {it: replace(pair((0, 10), (0, 3)), checks={check: fell})}

    def settled(signs: str) -> Suspect:
        made = {"+": 1, "-": 0}
        checks = tuple((f'[["contains","refunded",null,{made[sign]}]]', False) for sign in signs)
        added = AddedRepeats((Counts(0, 1),) * len(signs), len(signs), checks)
        (found,) = suspects(pairs, {it: added}, 0.05)
        return found

    assert settled("").standing is Settlement.UNDECIDED
    assert settled("+" * 20).standing is Settlement.CLEARED
    confirmed = settled("-" * 20)
    assert confirmed.standing is Settlement.CONFIRMED
    assert (confirmed.checks.keys(), pooled(confirmed.checks[check].added)) == (
        {check},
        Counts(0, 20),
    )


def test_an_added_repeat_whose_retry_was_cut_off_does_not_count(history: History) -> None:
    run = history.run("more", mode="settled", source_run="after")
    run.suite("orders", tests=[Make.planned("it")])
    run.execution("it", repeat=4, assertions=(Make.failed(),), retried=True)
    run.execution("it", repeat=4, number=1, attempt=2, finished=False)
    run.execution("it", repeat=5, assertions=(Make.passed(),))
    run.leave()
    for attempts in Attempts:
        (added,) = read_added(history.reader(), ["after"], attempts).values()
        assert (added.counts, added.last) == ((Counts(1, 1),), 5)


suspect_lists = st.lists(
    st.builds(
        Suspect,
        st.builds(key, st.text(min_size=1, max_size=3)),
        st.integers(0, MOST_ADDED).map(
            lambda n: CheckPair(Counts(5, 5), Counts(3, 5), (Counts(0, 1),) * n)
        ),
        st.sampled_from([None, *Settlement]),
    ),
    unique_by=lambda suspect: suspect.key,
    max_size=6,
)


@given(suspect_lists, st.integers(1, 7), st.integers(-1, 40))
def test_repeats_are_shared_out_evenly_within_every_limit(
    found: list[Suspect], at_a_time: int, most: int
) -> None:
    shares = share_out(found, at_a_time, most)
    wanted = {test.key: min(at_a_time, test.room) for test in found if test.room}
    assert shares.keys() <= wanted.keys()
    assert all(0 < number <= wanted[test] for test, number in shares.items())
    assert sum(shares.values()) == min(max(most, 0), sum(wanted.values()))
    for test, number in wanted.items():
        if shares.get(test, 0) < number:
            assert max(shares.values(), default=0) <= shares.get(test, 0) + 1
