"""The terminal report: what a person reads after a run."""

from __future__ import annotations

import re
import unicodedata
from itertools import count
from typing import Any

import pytest
from compared_runs import passes, record_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from recorded_history import Make
from rich.cells import cell_len

from kindlm.events.run import GitState

HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold]not markup[/bold] \x00 \u202egnp.exe ]]> \x9b31m"


def line_with(text: str, *parts: str) -> str:
    """Return the line that holds all parts."""
    found = [line for line in text.splitlines() if all(part in line for part in parts)]
    assert found, f"no line with {parts} in\n{text}"
    return found[0]


def test_every_test_has_a_line_with_its_repeats_time_and_cost(varied: Any, write: Any) -> None:
    text = write(varied, "terminal", verbose=True)

    assert line_with(text, "greets", "gpt", "2/2").split() == [
        "✓", "greets", "gpt", "2/2", "120", "ms", "$0.0020",
    ]  # fmt: skip
    assert "1/2 flaky" in line_with(text, "greets", "claude", "/2")
    # A cost with an unknown part is not shown as if it were known.
    assert "$" not in line_with(text, "✗", "refunds", "gpt", "0/3")
    assert "skipped" in line_with(text, "- later")


def test_a_run_with_a_bit_of_everything(varied: Any, write: Any) -> None:
    assert write(varied, "terminal") == snapshot("""\
✗ support  3 tests on gpt, claude, 1 skipped                                 3/8
  ✗ gate costMaxUsd: the cost of 3 calls is not known: a price is missing in
    `prices`, or in `model` of EvalView, or the answers reported no tokens
! broken.yaml  CONFIG_VALIDATION_ERROR (102)
    Unknown key `tset`.
    3 tests skipped.

✗ No call to refund_order                          refunds · gpt, 3 of 3 repeats
    called    lookup_order {"order_id": "A1"}                     kindlm.yaml:57
    said      "I can't do that."
    look      kindlm show k3f9x2ab 5

✗ Missing in the answer: "hi"                    greets · claude, 1 of 2 repeats
    said      "Hi there."                                         kindlm.yaml:42
    look      kindlm show k3f9x2ab 4

! The provider refused: too many requests.                      refunds · claude
    error     PROVIDER_RATE_LIMIT (202), after 2 tries               kindlm.yaml
    fix       Lower defaults.concurrency.
    look      kindlm show k3f9x2ab 8

~ greets · claude is flaky: 50 % of 2 passed (95 % interval 9.5 % to 90.5 %);
  pass@2 100 %, pass^2 0 %

FAILED: 2 tests failed, 1 test errored, 1 suite could not be run,
  gate passRateMin 0.38 < 0.95, gate judgeAvgMin 0.71 < 0.80,
  gate costMaxUsd no value, needs ≤ $1.00  ·  3 of 8 executions passed
  judges 0.71  ·  $0.0080 and unknown for 3 calls of gpt  ·  1.5 s
  run k3f9x2ab nightly
Next: kindlm validate broken.yaml
""")


def test_a_quiet_report_says_why_a_suite_could_not_be_run(varied: Any, write: Any) -> None:
    assert write(varied, "terminal", quiet=True).startswith("""\
! broken.yaml  CONFIG_VALIDATION_ERROR (102)
    Unknown key `tset`.
    3 tests skipped.

✗ No call to refund_order """)


def test_what_a_failure_may_come_from_is_reported_once(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=3)])
    cut_off = ("The answer was cut off at maxTokens.", HOSTILE)
    for repeat in (1, 2):
        run.execution(repeat=repeat, assertions=(make.failed(),), warnings=cut_off)
    run.execution(repeat=3, assertions=(make.passed(),), warnings=("`seed` was not sent",))
    text = write(run.finish(), "terminal")

    assert text.count("warning   The answer was cut off at maxTokens.") == 1
    # What passed has nothing to explain; its warnings are told once for the run.
    line_with(text, "  Warning in 1 execution: `seed` was not sent")
    assert "\x1b" not in text


def test_what_a_history_that_was_brought_in_says_of_a_commit_is_shown_as_text(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run(git=GitState(commit="\x1b[2J", branch="\x1b[2J"))
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.passed(),))
    text = write(run.finish(), "terminal", verbose=True)

    line_with(text, "Run k3f9x2ab", r"\x1b[2J@\x1b[2J")
    assert "\x1b" not in text


def test_a_good_run_is_short_and_says_passed(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=3)], gates={"passRateMin": 0.9})
    for repeat in (1, 2, 3):
        run.execution(repeat=repeat, assertions=(make.passed(),))
    view = run.finish()

    assert write(view, "terminal") == snapshot("""\
✓ support  1 test on gpt × 3 repeats                                         3/3
  gates  passRateMin 1.00 ≥ 0.90
PASSED: 1 test passed  ·  3 of 3 executions  ·  $0.0030  ·  1.5 s
  run k3f9x2ab
Next: kindlm browse
""")
    assert write(view, "terminal", quiet=True) == snapshot(
        "PASSED: 1 test passed  ·  3 of 3 executions  ·  $0.0030  ·  1.5 s  ·  run k3f9x2ab\n"
    )


def test_the_slowest_tests_are_shown_if_asked_for(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("quick"), make.planned("slow"), make.planned("mean")])
    for name, ms in (("quick", 5.0), ("slow", 2_000.0), ("mean", 70.0)):
        run.execution(name, assertions=(make.passed(),), latency_ms=ms)
    text = write(run.finish(), "terminal", durations=2)

    slowest = text.partition("Slowest\n")[2].splitlines()[:2]
    assert [line.split() for line in slowest] == [
        ["2.0", "s", "slow", "·", "gpt"],
        ["70", "ms", "mean", "·", "gpt"],
    ]


def test_what_had_nothing_to_decide_is_reported_with_what_to_do(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=2)], gates={"driftScoreMax": 0.15})
    drift = make.failed(
        "drift",
        "drift",
        "DRIFT_EXCEEDED",
        "No baseline for this test. Run: kindlm baseline set",
        outcome="skipped",
        score=None,
    )
    for repeat in (1, 2):
        run.execution(repeat=repeat, assertions=(drift,))
    text = write(run.finish(), "terminal")

    told = "2 drift checks skipped: No baseline for this test. Run: kindlm baseline set"
    assert told in " ".join(text.split())
    assert "! gate driftScoreMax: nothing was measured" in text
    assert "gates  " not in text  # it does not hold


def test_tolerated_failures_do_not_fail_the_run(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("good"), make.planned("bad")], gates={"passRateMin": 0.5})
    run.execution("good", assertions=(make.passed(),))
    run.execution("bad", assertions=(make.failed(),))
    text = write(run.finish(), "terminal")

    line_with(text, "bad · gpt")
    line_with(text, "PASSED: 1 test passed, 1 failed test tolerated")


def test_a_failed_run_counts_the_failures_that_it_tolerates(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run()
    gates = {"passRateMin": 0.5, "latencyMaxMs": 1}
    run.suite(tests=[make.planned("good"), make.planned("bad")], gates=gates)
    run.execution("good", assertions=(make.passed(),))
    run.execution("bad", assertions=(make.failed(),))
    text = write(run.finish(), "terminal")

    line_with(text, "FAILED: gate latencyMaxMs 120 ms > 1 ms, 1 failed test tolerated")


def test_a_stopped_run_says_what_is_missing(history: Any, make: Any, write: Any) -> None:
    run = history.run(planned=3)
    run.suite(tests=[make.planned("first"), make.planned("second"), make.planned("third")])
    run.execution("first", assertions=(make.passed(),))
    run.execution("second", finished=False, output=None)
    view = run.interrupt("SIGINT")
    text = write(view, "terminal")

    line_with(text, "- support", "1/1")
    line_with(text, "INTERRUPTED: SIGINT, 2 of 3 executions did not finish")
    line_with(text, "Next: kindlm test --resume k3f9x2ab")
    for report in ("terminal", "markdown"):
        told = write(view, report, verbose=True)
        line_with(told, "second", "unfinished")
        line_with(told, "third", "not run")


def test_a_run_that_tested_nothing_failed(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(skip=True)])
    run.execution(status=make.SKIPPED)
    line_with(write(run.finish(), "terminal"), "FAILED: ", "nothing was tested")


def test_of_several_suites_the_verdict_names_the_one(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    for ordinal, score in enumerate((1.0, 0.5)):
        run.suite(f"suite {ordinal}", tests=[make.planned()], gates={"judgeAvgMin": 0.8})
        run.execution(suite=ordinal, assertions=(make.passed("judge", "is kind", score=score),))
    text = write(run.finish(), "terminal")

    line_with(text, "FAILED: gate judgeAvgMin 0.50 < 0.80 in suite 1")
    line_with(text, "gates  judgeAvgMin 1.00 ≥ 0.80")


def test_a_large_run_lists_only_what_went_wrong(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite("large", tests=[make.planned(f"test {i}") for i in range(150)])
    for i in range(150):
        bad = make.failed() if i == 70 else make.passed()
        run.execution(f"test {i}", assertions=(bad,))
    view = run.finish()
    text = write(view, "terminal")

    line_with(text, "✗ large  150 tests on gpt", "149/150")
    line_with(text, "test 70 · gpt")
    assert "test 69" not in text
    assert "test 69" in write(view, "terminal", verbose=True)


def test_one_cause_more_than_is_shown_is_counted_as_one(
    history: Any, make: Any, write: Any
) -> None:
    run = history.run()
    run.suite("large", tests=[make.planned(f"test {i}") for i in range(21)])
    for i in range(21):
        run.execution(f"test {i}", assertions=(make.failed("contains", f"text {i}"),))
    line_with(write(run.finish(), "terminal"), "… and 1 more cause: kindlm show")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_width(varied: Any, write: Any, width: int) -> None:
    for line in write(varied, "terminal", width=width).splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


@pytest.mark.parametrize("width", range(60, 90, 5))
@pytest.mark.parametrize(
    "limits",
    [
        {"passRateMin": 0.9, "judgeAvgMin": 0.8, "costMaxUsd": 1.0, "latencyMaxMs": 900},
        {"judgeAvgMin": 0.99, "costMaxUsd": 0.0001, "latencyMaxMs": 20},
    ],
    ids=["hold", "fail"],
)
def test_no_line_ends_between_a_gate_and_its_limit(
    history: Any, make: Any, write: Any, width: int, limits: dict[str, float]
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()], gates=limits)
    run.execution(judge="0.9", assertions=(make.passed("judge", score=0.9, threshold=0.5),))
    text = write(run.finish(), "terminal", width=width)

    for gate in limits:
        assert re.search(rf"{gate} \S+( ms)? [<>≤≥] \S", line_with(text, gate))


def test_a_long_name_has_a_line_of_its_own(history: Any, make: Any, write: Any) -> None:
    name = "the refund of an order that was paid twice is given once and the customer is told"
    run = history.run()
    run.suite(tests=[make.planned(name)])
    run.execution(name, assertions=(make.passed(),))
    text = write(run.finish(), "terminal", verbose=True)

    assert name in " ".join(text.split())
    assert line_with(text, "1/1", "120 ms").split()[0] == "gpt"


def test_colour_is_ours_alone(varied: Any, write: Any) -> None:
    assert "\x1b" not in write(varied, "terminal")
    assert "\x1b[31m" in write(varied, "terminal", color=True)


@pytest.mark.parametrize("verbose", [False, True])
def test_content_cannot_control_the_terminal(
    history: Any, make: Any, write: Any, verbose: bool
) -> None:
    run = history.run(label=HOSTILE)
    gates = {HOSTILE: 1.0}
    run.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)], path=HOSTILE, gates=gates)
    run.skipped_suite(HOSTILE, code=HOSTILE, message=HOSTILE)
    values = ("label", "code", "message", "expected", "actual", "reasoning")
    run.execution(
        HOSTILE,
        HOSTILE,
        output=HOSTILE,
        tools=((HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),),
        assertions=(make.failed(**dict.fromkeys(values, HOSTILE)),),
        failures=(make.provider_failed(HOSTILE, message=HOSTILE),),
        error=(HOSTILE, 999, HOSTILE, HOSTILE),
        warnings=(HOSTILE,),
    )
    view = run.finish()
    text = write(view, "terminal", verbose=verbose, database=HOSTILE)

    assert_harmless(text)
    assert r"\x1b[2J\x1b]0;owned\x07[bold]not markup[/bold]" in "".join(text.split("\n"))


def assert_harmless(text: str) -> None:
    for char in set(text) - {"\n"}:
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs"} or char in "\u200c\u200d", (
            f"{char!r} in the output"
        )


def test_huge_texts_are_cut_with_a_note(history: Any, make: Any, write: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.failed(message="x" * 1_000_000, actual="y" * 1_000_000),))
    text = write(run.finish(), "terminal")

    assert len(text) < 10_000
    assert "999,000 more characters" in " ".join(text.split())


texts = st.text(alphabet=st.characters(), max_size=30)
numbers = count()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, texts, texts)
def test_any_text_anywhere_is_harmless(
    history: Any, make: Any, write: Any, one: str, two: str, three: str
) -> None:
    run = history.run(f"run{next(numbers)}")
    run.suite(one, tests=[make.planned(two, three)])
    run.execution(
        two,
        three,
        output=one,
        tools=((two, {one: three}, [two]),),
        assertions=(make.failed(label=one, message=two, expected=three, reasoning=one),),
        error=("UNKNOWN_ERROR", 999, two, three),
    )
    assert_harmless(write(run.finish(), "terminal"))


def test_what_changed_is_reported_only_if_something_did(
    history: Any, make: Any, write: Any
) -> None:
    for run, ran in (("k3f9x2ab", True), ("m7q2w8rt", True), ("p4d6h8jk", False)):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        if ran:
            writer.execution(assertions=(make.failed(),))
            writer.finish()
        else:
            writer.interrupt("SIGINT")
    unchanged = write(history.view("m7q2w8rt"), "terminal")
    line_with(unchanged, "Since k3f9x2ab: 1 as before")
    nothing_ran = write(history.view("p4d6h8jk"), "terminal")
    assert "Since" not in nothing_ran
    assert "Compare" not in nothing_ran


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        ("-------+++", "Since before: 1 test got worse, confirmed"),
        ("--++++++++", "Since before: 1 test may have got worse"),
        ("++++++++++", None),
    ],
)
def test_a_run_that_passed_tells_what_got_worse(
    history: Any, write: Any, repeats: str, said: str | None
) -> None:
    for run, pattern in (("before", "++++++++++"), ("after", repeats)):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=10, pass_rate=0.3)], gates={"passRateMin": 0.3})
        for number, fields in enumerate(passes(pattern), start=1):
            writer.execution(repeat=number, **fields)
        writer.finish()
    told = write(history.view("after"), "terminal")
    line_with(told, "PASSED")
    assert re.findall(r"Since .*", told) == ([said] if said else [])


@pytest.mark.parametrize(
    ("pass_rate", "following"),
    [(0.5, "kindlm show k3f9x2ab 2"), (1.0, "kindlm test --failed")],
)
def test_what_failed_is_only_run_again_if_a_test_failed_and_not_a_gate_alone(
    history: Any, write: Any, pass_rate: float, following: str
) -> None:
    writer = history.run("k3f9x2ab")
    writer.suite(tests=[Make.planned(repeat=2, pass_rate=pass_rate)])
    for number, fields in enumerate(passes("+-"), start=1):
        writer.execution(repeat=number, **fields)
    told = write(writer.finish(), "terminal")
    assert "gate passRateMin 0.50 < 0.95" in line_with(told, "FAILED: ")
    assert told.endswith(f"Next: {following}\n")


def test_the_threshold_of_the_project_is_that_of_the_line_too(history: Any, write: Any) -> None:
    def judged(score: float) -> list[dict[str, Any]]:
        check = Make.passed("judge", "is kind", score=score, threshold=0.5)
        return [{"assertions": (check, Make.failed())}] * 12

    for run, score in (("before", 0.95), ("after", 0.75)):
        record_run(history, run, {"greets": judged(score)})
    view = history.view("after")
    line_with(write(view, "terminal", regression_threshold=0.1), "Since before: 1 test")
    line_with(write(view, "terminal", regression_threshold=0.5), "Since before: 1 as before")


def test_a_run_with_another_test_is_unchanged_in_the_tests_that_both_have(
    history: Any, make: Any, write: Any
) -> None:
    for run, names in (("k3f9x2ab", ["old"]), ("m7q2w8rt", ["old", "new"])):
        writer = history.run(run)
        writer.suite(tests=[make.planned(name) for name in names])
        writer.execution("old", assertions=(make.failed(),))
        if "new" in names:
            writer.execution("new")
        writer.finish()
    told = write(history.view("m7q2w8rt"), "terminal")
    line_with(told, "Since k3f9x2ab: 1 as before")


def test_a_run_names_the_one_to_compare_it_with(history: Any, make: Any, write: Any) -> None:
    for run in ("k3f9x2ab", "m7q2w8rt"):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution()
        writer.finish()
    later = write(history.view("m7q2w8rt"), "terminal")
    line_with(later, "Compare", "kindlm diff k3f9x2ab m7q2w8rt")
    assert "Compare" not in write(history.view("k3f9x2ab"), "terminal")


def test_added_repeats_are_compared_with_their_run_and_not_to_it(
    history: Any, make: Any, write: Any
) -> None:
    for run, more in (
        ("k3f9x2ab", {}),
        ("p4d6h8jk", {"mode": "settled", "source_run": "k3f9x2ab"}),
    ):
        writer = history.run(run, **more)
        writer.suite(tests=[make.planned()])
        writer.execution(assertions=(make.failed(),))
        writer.finish()
    told = write(history.view("p4d6h8jk"), "terminal")
    assert "settled" in told
    assert "Compare" not in told
    assert "since" not in told


def test_a_source_that_is_not_in_the_history_is_not_compared_with(
    history: Any, make: Any, write: Any
) -> None:
    writer = history.run("p4d6h8jk", mode="rescored", source_run="k3f9x2ab")
    writer.suite(tests=[make.planned()])
    writer.execution(assertions=(make.failed(),))
    shown = write(writer.finish(), "terminal")
    assert "from k3f9x2ab" in shown
    assert "Compare" not in shown


def test_commands_name_the_history_again_that_was_named(
    history: Any, make: Any, write: Any
) -> None:
    for run in ("k3f9x2ab", "m7q2w8rt"):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution()
        writer.finish()
    shown = write(history.view("m7q2w8rt"), "terminal", database="other db")
    for label in ("Compare", "Next"):
        line_with(shown, label, "--db 'other db'")
    assert "--db" not in write(history.view("m7q2w8rt"), "terminal")


@pytest.mark.parametrize("width", [80, 120])
def test_a_suite_that_fails_for_one_cause_takes_few_lines(
    history: Any, make: Any, write: Any, width: int
) -> None:
    run = history.run()
    names = [f"refunds-only-what-was-paid-in-case-{number}" for number in range(4)]
    targets = ("gpt-4o", "claude-sonnet")
    tests = [make.planned(name, target, repeat=3) for name in names for target in targets]
    run.suite(tests=tests, gates={"passRateMin": 0.95})
    for number, test in enumerate(tests):
        order = {"order_id": f"ORD-{number}"}
        missing = make.failed(
            "tool_called",
            "lookup_order",
            "TOOL_CALL_MISSING",
            "Expected a call to lookup_order; the agent called only issue_refund.",
            expected={"tool": "lookup_order", "argsMatch": order},
            actual=["issue_refund"],
        )
        for repeat in (1, 2, 3):
            run.execution(
                test.name,
                test.target,
                repeat=repeat,
                output=f"Refunded, as you asked in {number}. " + "It is done. " * 100,
                tools=(("issue_refund", {**order, "amount": 60.0, "note": "x" * 200}, {}),),
                assertions=(missing,),
            )
    text = write(run.finish(), "terminal", width=width)

    assert len(text.splitlines()) <= 25
    block = text.split("\n\n")[1]
    assert line_with(block, "✗ No call to lookup_order", "8 tests, 24 of 24 repeats")
    assert line_with(block, 'expected  lookup_order {"order_id": "ORD-0"}', "kindlm.yaml:42")
    for part in (
        'called    issue_refund {"order_id": "ORD-0"',
        'said      "Refunded, as',
        names[2],
    ):
        assert part in block
    # What the models said differs, and nothing of one cause is said twice.
    assert text.count("lookup_order") == 2
    assert text.count("Refunded") == 1
