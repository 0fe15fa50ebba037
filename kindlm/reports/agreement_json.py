"""Whether judges and people agree, for programs."""

from __future__ import annotations

from typing import Any

from kindlm.history.reviews import Comparison, PeopleAndJudges, ReviewedExecution
from kindlm.outcome import Status
from kindlm.reports.printed_json import printed_json

__all__ = ["agreement_json"]


def agreement_json(found: PeopleAndJudges) -> str:
    """Return what people and judges say of the same executions, as JSON."""
    report = {
        "schemaVersion": 1,
        "reviewed": found.reviewed,
        "people": found.people,
        "verdicts": None if found.verdicts is None else _comparison(found.verdicts),
        "judges": [_judged(judge) for judge in found.judges],
        "criteria": [{"criterion": one.criterion, **_judged(one)} for one in found.criteria],
        "disagreements": [_execution(one) for one in found.disagreements],
        "divided": [_execution(one) for one in found.divided],
        "leftOut": {"errored": found.errored, "tellNothingOfJudges": found.left_out},
    }
    return printed_json(report, indent=2) + "\n"


def _judged(compared: Comparison) -> dict[str, Any]:
    return {
        "judge": compared.judge or None,
        **_comparison(compared),
        "trust": compared.trust,
        "reviewsNeeded": compared.needed,
    }


def _comparison(compared: Comparison) -> dict[str, Any]:
    table = compared.table
    return {
        "reviews": compared.reviews,
        "bothPass": table.both_passed,
        "onlyKindlmPasses": table.judge_passed_only,
        "onlyPeoplePass": table.person_passed_only,
        "bothFail": table.both_failed,
        "agreement": table.observed,
        "kappa": table.kappa,
        "kappaInterval": compared.interval,
    }


def _execution(execution: ReviewedExecution) -> dict[str, Any]:
    people = {True: Status.PASSED, False: Status.FAILED, None: None}[execution.people]
    return {
        "id": execution.id,
        "run": execution.run,
        "number": execution.number,
        "suite": execution.suite,
        "test": execution.test,
        "target": execution.target,
        "repeat": execution.repeat,
        "status": execution.status,
        "people": people,
        "otherChecksFailed": execution.checks_failed,
        "criteria": [
            {
                "label": criterion.label,
                "judge": criterion.judge,
                "score": criterion.score,
                "threshold": criterion.threshold,
                "passed": criterion.passed,
            }
            for criterion in execution.criteria
        ],
        "reviews": [
            {
                "verdict": Status.PASSED if review.passed else Status.FAILED,
                "note": review.note,
                "by": review.by,
                "at": review.at,
            }
            for review in execution.reviews
        ],
    }
