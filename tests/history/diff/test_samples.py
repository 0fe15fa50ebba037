"""What executions did, as far as it is compared: each conversation once, and turn by turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from io import StringIO
from typing import Any

import pytest
from compared_runs import compared, record_run
from recorded_history import History, Make

from kindlm.history.diff.call_changes import CallEdit
from kindlm.history.diff.compared_tests import compare_figures
from kindlm.history.diff.config import Suite
from kindlm.history.diff.details import Edit
from kindlm.history.diff.evidence_values import FailOn, Kind, TestDiff
from kindlm.history.diff.samples import (
    Attempts,
    PlannedSamples,
    Sample,
    attempts_to_compare,
    independent_samples,
)
from kindlm.outcome import Status
from kindlm.reports.diff.terminal import write_diff
from kindlm.reports.report_registry import ReportOptions

FILE = Suite(
    ("k3f9x2ab/0",), 0, "shop", "support", "kindlm.yaml", None, None, False, None, None, False
)


def side(run: str, outcomes: str) -> PlannedSamples:
    """Return the executions of a run, such as `+1 -2 +a3`: of itself, or held by one of run a."""
    samples = [_sample(f"{run}-{number}", word) for number, word in enumerate(outcomes.split())]
    return PlannedSamples(FILE, "it", "gpt", 0, 1.0, samples)


def _sample(identity: str, word: str) -> Sample:
    status = {"+": Status.PASSED, "-": Status.FAILED}[word[0]]
    return Sample(identity, word[1:], status)


def told(samples: Sequence[Sample]) -> str:
    signs = {Status.PASSED: "+", Status.FAILED: "-"}
    return " ".join(signs[sample.status] + sample.conversation for sample in samples)


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "same"),
    [
        pytest.param("+a +b", "+c -d", "+a +b", "+c -d", False, id="all are new"),
        pytest.param("+a +b", "+a -b", "+a +b", "+a -b", True, id="judged otherwise"),
        pytest.param("+a +b", "+a +b -c", "+a +b", "-c", False, id="some are added"),
        pytest.param("+a -b +c", "+a +d +c", "+a -b +c", "+d", False, id="one is new"),
        pytest.param("+a -b", "+a", "+a", "+a", True, id="some are left out"),
        pytest.param("+a +b", "-a +b +c", "+a +b", "-a +b +c", True, id="one judged otherwise"),
        pytest.param("", "+a", "", "+a", False, id="nothing before"),
        pytest.param("+a -b", "+a -b -b", "+a -b", "+a -b", True, id="one is there twice"),
        pytest.param("+a", "-b -b +b", "+a", "-b", False, id="a new one is there thrice"),
    ],
)
def test_a_conversation_is_a_sample_once(
    before: str, after: str, old: str, new: str, same: bool
) -> None:
    one, other, is_same = independent_samples(side("x", before), side("y", after))
    assert (told(one.samples), told(other.samples), is_same) == (old, new, same)


def diff_of(history: History, before: dict[str, Any], after: dict[str, Any]) -> TestDiff:
    usual = {"assertions": (Make.passed(),), "output": "Bye."}
    record_run(history, "before", {"it": [usual | before] * 3})
    record_run(history, "after", {"it": [usual | after] * 3})
    (test,) = compared(history).tests
    return test


def test_another_answer_of_an_earlier_turn_is_seen(history: History) -> None:
    test = diff_of(history, {"earlier": ("Hi.", "Sure.")}, {"earlier": ("Go away.", "Sure.")})
    assert (test.kind, test.behaviour.turns, test.behaviour.output) == (
        Kind.OTHER_WORDS,
        (1,),
        False,
    )
    words = compared(history).details(test).words
    assert list(words) == [1]
    assert "".join(text for _, text in words[1].segments).count("Go away") == 1


def test_an_execution_that_errored_without_an_output_counts(history: History) -> None:
    error = ("PROVIDER_TIMEOUT", 203, "Too slow.", None)
    test = diff_of(history, {}, {"output": None, "error": error, "assertions": ()})
    assert test.after is not None
    assert test.after.counts == (0, 3)


def test_the_same_answers_are_unchanged(history: History) -> None:
    test = diff_of(history, {"earlier": ("Hi.",)}, {"earlier": ("Hi.",)})
    assert (test.kind, test.behaviour.turns) == (Kind.UNCHANGED, ())
    assert compared(history).details(test).words == {}


def test_a_call_in_another_turn_is_other_behaviour(history: History) -> None:
    talk = {"earlier": ("Hi.",), "tools": (("refund", {"id": 1}, None),)}
    test = diff_of(history, talk | {"tool_turn": 2}, talk | {"tool_turn": 1})
    assert (test.kind, test.behaviour.tools) == (Kind.OTHER_BEHAVIOUR, True)
    (change,) = compared(history).details(test).calls
    assert change.edit is CallEdit.MOVED
    assert [call and call.turn for call in (change.before, change.after)] == [2, 1]
    assert compared(history, fail_on=FailOn.BEHAVIOUR).fails
    out = StringIO()
    write_diff(compared(history), out, ReportOptions(color=False, width=100))
    assert "refund  was in turn 2, is in turn 1" in out.getvalue()


def test_an_erased_answer_of_an_earlier_turn_cannot_be_compared(history: History) -> None:
    record_run(history, "before", {"it": [{"earlier": ("Secret.",), "assertions": ()}]})
    record_run(history, "after", {"it": [{"earlier": ("Hello.",), "assertions": ()}]})
    history.erase("run/before")
    (test,) = compared(history).tests
    assert (test.behaviour.erased, test.behaviour.turns) == (True, ())


def test_a_turn_also_begins_with_a_call_that_failed_and_was_tried_again(history: History) -> None:
    talks = (("Hi.", "", "Sure."), ("Hi.", "", "No."))
    diff_of(history, *({"earlier": earlier} for earlier in talks))
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE provider_calls SET status = 'failed', text_ref = NULL WHERE call = 2")
        db.execute("UPDATE provider_calls SET try = 2 WHERE call = 3")
    (test,) = compared(history).tests
    assert test.behaviour.turns == (2,)


@pytest.mark.parametrize("sent_by", ["the test", "the first call"])
def test_a_turn_begins_with_a_message_of_the_user(history: History, sent_by: str) -> None:
    talks = (("Hi.", "Sure."), ("Hi.", "No."))
    diff_of(history, *({"earlier": earlier} for earlier in talks))
    if sent_by == "the first call":
        with closing(sqlite3.connect(history.path)) as db, db:
            db.execute(
                "UPDATE provider_calls SET messages = (SELECT max(messages) FROM provider_calls)"
                " WHERE call = (SELECT min(call) FROM provider_calls)"
            )
    (test,) = compared(history).tests
    assert test.behaviour.turns == (2,)


@pytest.mark.parametrize(
    ("source", "attempts"),
    [(None, Attempts.FIRST), ("here", Attempts.FIRST), ("gone", Attempts.LAST)],
)
def test_a_run_whose_source_is_not_here_may_hold_last_attempts(
    history: History, make: Make, source: str | None, attempts: Attempts
) -> None:
    history.run("here").finish()
    mode = {"mode": "rescored", "source_run": source} if source else {}
    history.run("before", **mode).finish()
    after = history.run("after")
    after.suite(tests=[make.planned()])
    after.execution(assertions=(make.failed(),), retried=True)
    after.execution(number=1, attempt=2, assertions=(make.passed(),))
    after.finish()

    assert attempts_to_compare(history.reader(), ["before", "after"]) is attempts


@pytest.mark.parametrize("side", ["before", "after"])
def test_of_added_repeats_the_first_attempts_count(history: History, side: str) -> None:
    for run in ("before", "after"):
        record_run(history, run, {"it": "++-"})
    more = history.run("more", mode="settled", source_run=side)
    more.suite("support", tests=[Make.planned("it")])
    more.execution("it", number=1, assertions=(Make.failed(),), retried=True)
    more.execution("it", number=1, attempt=2, assertions=(Make.passed(),))
    more.finish()

    diff = compared(history)
    (test,) = diff.tests
    assert (*test.pair.added_before, *test.pair.added) == ((0, 1),)
    assert (diff.attempts, diff.counted_attempts) == (None, Attempts.FIRST)


@pytest.mark.parametrize(
    ("source", "words"), [(None, [" help", " not"]), ("gone", [" help", " retry"])]
)
def test_the_attempt_that_counts_is_shown(
    history: History, source: str | None, words: list[str]
) -> None:
    mode = {"mode": "rescored", "source_run": source} if source else {}
    before = history.run("before", **mode)
    after = history.run("after")
    for run in (before, after):
        run.suite(tests=[Make.planned("it")])
    before.execution("it", output="I do help now.", assertions=(Make.passed(),))
    after.execution("it", output="I do not now.", assertions=(Make.failed(),), retried=True)
    passed = (Make.passed(),)
    after.execution("it", number=1, attempt=2, output="I do retry now.", assertions=passed)
    before.finish()
    after.finish()
    diff = compared(history)
    (test,) = diff.tests
    segments = diff.details(test).words["output"].segments
    assert [text for edit, text in segments if edit is not Edit.KEPT] == words


def test_drift_is_what_a_score_lacks_to_one(history: History) -> None:
    scores = {"before": 0.9, "after": 0.4}
    before, after = ({"assertions": (Make.passed("drift", score=scores[run]),)} for run in scores)
    test = diff_of(history, before, after)
    assert [side and side.means["drift"] for side in (test.before, test.after)] == pytest.approx(
        [0.1, 0.6]
    )


def test_the_largest_drift_of_an_execution_counts(history: History) -> None:
    same, drifted = ({"assertions": _drifts(0.9, score, 0.8)} for score in (0.9, 0.4))
    test = diff_of(history, same, drifted)
    assert [side and side.means["drift"] for side in (test.before, test.after)] == pytest.approx(
        [0.2, 0.6]
    )


def _drifts(*scores: float) -> tuple[Any, ...]:
    return tuple(Make.passed("drift", f"turn {i}", score=s) for i, s in enumerate(scores))


def test_a_check_that_does_not_grade_has_no_score_beside_one_of_its_kind_that_does(
    history: History,
) -> None:
    def checked(tone: float, *, valid: bool) -> dict[str, Any]:
        second = Make.passed if valid else Make.failed
        return {
            "assertions": (
                Make.passed("python", "tone", score=tone),
                second("python", "valid", score=float(valid)),
            )
        }

    test = diff_of(history, checked(0.7, valid=True), checked(0.7, valid=False))
    assert [side and list(side.scores) for side in (test.before, test.after)] == [
        ["python tone"],
        ["python tone"],
    ]
    assert test.evidence.dropped_scores == ()


def test_a_kind_that_grades_in_one_run_is_compared_by_its_scores(history: History) -> None:
    before, after = ({"assertions": (Make.passed("python", "it", score=s),)} for s in (1.0, 0.4))
    assert diff_of(history, before, after).evidence.dropped_scores == ("python it",)


def test_scores_are_shown_weighted_first_then_of_judges(history: History) -> None:
    kinds = ("python", "it"), ("judge", "tone"), ("weighted_score", "weighted score")
    graded = {"assertions": tuple(Make.passed(*kind, score=0.5) for kind in kinds)}
    test = diff_of(history, graded, graded)
    assert test.after is not None
    assert list(test.after.scores) == ["weighted score", "tone", "python it"]


def test_an_execution_without_an_answer_has_no_latency(history: History) -> None:
    usual = {"assertions": (Make.passed(),)}
    unanswered = {
        "error": ("PROVIDER_TIMEOUT", 203, "Too slow.", None), "output": None, "latency_ms": 0.0
    }  # fmt: skip
    record_run(history, "before", {"it": [usual] * 2})
    record_run(history, "after", {"it": [usual, unanswered]})
    figures = {figure.name: figure for figure in compare_figures(compared(history).tests)}
    assert (figures["latency"].before, figures["latency"].after) == (120, 120)


def test_the_tokens_of_prompts_and_answers_count_together(history: History) -> None:
    diff_of(history, {"tokens": (100, 20)}, {"tokens": (150, 30)})
    figures = {figure.name: figure for figure in compare_figures(compared(history).tests)}
    assert (figures["tokens"].before, figures["tokens"].after) == (120, 180)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            {"assertions": (Make.failed(code="TOOL_NOT_CALLED"),)},
            {"assertions": (Make.failed(code="TOOL_ARGS_MISMATCH"),)},
        ),
        (
            {"error": ("ENGINE_MAX_TURNS", 401, "10 model calls", None)},
            {"error": ("PROVIDER_TIMEOUT", 203, "Too slow.", None)},
        ),
    ],
)
def test_another_reason_to_fail_is_other_behaviour(
    history: History, before: dict[str, Any], after: dict[str, Any]
) -> None:
    test = diff_of(history, before, after)
    assert (test.kind, test.behaviour.failures) == (Kind.OTHER_BEHAVIOUR, True)


def test_tokens_that_were_not_reported_are_no_figure(history: History) -> None:
    diff_of(history, {"tokens": (None, None)}, {"tokens": (None, None)})
    assert "tokens" not in {figure.name for figure in compare_figures(compared(history).tests)}


def test_erased_arguments_cannot_be_compared(history: History) -> None:
    calls = {"tools": (("lookup", {"id": "secret"}, None),)}
    test = diff_of(history, calls, calls)
    assert test.kind is Kind.UNCHANGED
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL WHERE body LIKE '%secret%'"
        )
    (test,) = compared(history).tests
    assert test.kind is Kind.ERASED
