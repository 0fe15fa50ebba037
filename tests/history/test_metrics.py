"""What gates look at, asked of the read models."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.history.verdict import suite_metrics


def test_every_metric(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("one", repeat=2), make.planned("two")])
    for repeat, score in ((1, 0.6), (2, 1.0)):
        run.execution(
            "one",
            repeat=repeat,
            latency_ms=100.0 * repeat,
            judge=str(score),
            assertions=(
                make.passed("judge", "is kind", score=score),
                make.failed("schema", "is JSON", "SCHEMA_INVALID"),
                make.failed("keywords_deny", "no promises", "KEYWORD_DENIED"),
                make.passed("drift", "like the baseline", score=0.9),
            ),
        )
    run.execution(
        "two",
        latency_ms=300.0,
        cost_usd=None,
        assertions=(
            make.passed("judge", "is kind", score=0.4),
            make.failed(
                "judge", "is right", "JUDGE_EVAL_ERROR", outcome="inconclusive", score=None
            ),
            make.failed("pii", "no personal data", "PII_DETECTED"),
            make.failed("contains", "says hi", "CONTAINS_FAILED"),
        ),
    )
    view = run.finish()
    metrics = suite_metrics(history.reader(), view.suites[0].id)

    assert metrics.executions.failed == 3
    assert (metrics.schema_failures, metrics.pii_failures, metrics.keyword_failures) == (2, 1, 2)
    # The mean over (test, criterion) of its mean: (0.8 + 0.4) / 2, not (0.6 + 1.0 + 0.4) / 3.
    assert metrics.judge_average == pytest.approx(0.6)
    assert metrics.drift_maximum == pytest.approx(0.1)
    assert metrics.cost_usd == pytest.approx(2 * 0.001 + 2 * 0.002)
    assert metrics.unknown_costs == 1
    assert metrics.latency_average_ms == pytest.approx(200.0)
    assert not metrics.narrowed


def test_only_the_last_attempt_counts_but_all_its_spend(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    failed = make.failed("schema", "is JSON", "SCHEMA_INVALID")
    run.execution(assertions=(failed,), finished=False)
    run.execution(number=1, attempt=2, assertions=(make.passed(),))
    view = run.finish()
    metrics = suite_metrics(history.reader(), view.suites[0].id)

    assert metrics.schema_failures == 0
    assert metrics.executions.passed == 1
    assert metrics.cost_usd == pytest.approx(0.002)


def test_a_selection_narrows(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("one"), make.planned("two", selected=False)])
    run.execution("one")
    view = run.finish()

    assert suite_metrics(history.reader(), view.suites[0].id).narrowed
    assert [test.name for test in view.tests()] == ["one"]


def test_suites_and_runs_are_kept_apart(history: Any, make: Any) -> None:
    for name in ("run1", "run2"):
        run = history.run(name)
        for ordinal in (0, 1):
            run.suite(f"suite {ordinal}", tests=[make.planned()])
            run.execution(suite=ordinal, assertions=(make.failed("pii", "p", "PII_DETECTED"),))
        view = run.finish()
    for suite in view.suites:
        metrics = suite_metrics(history.reader(), suite.id)
        assert (metrics.executions.total, metrics.pii_failures) == (1, 1)
        assert metrics.cost_usd == pytest.approx(0.001)
    assert view.summary.cost_usd == pytest.approx(0.002)
