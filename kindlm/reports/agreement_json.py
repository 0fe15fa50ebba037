"""Whether judges and people agree, for programs."""

from __future__ import annotations

from typing import Any

from kindlm.history.reviews import Agreement, PeopleAndJudges, ReviewedExecution
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


def _judged(compared: Agreement) -> dict[str, Any]:
    return {
        "judge": compared.judge or None,
        **_comparison(compared),
        "trust": compared.trust,
        "reviewsNeeded": compared.needed,
    }


def _comparison(compared: Agreement) -> dict[str, Any]:
    return {
        "reviews": compared.reviews,
        "bothPass": compared.both_passed,
        "onlyKindlmPasses": compared.judge_passed_only,
        "onlyPeoplePass": compared.person_passed_only,
        "bothFail": compared.both_failed,
        "agreement": compared.observed,
        "kappa": compared.kappa,
        "kappaInterval": compared.interval,
    }


def _execution(reviewed: ReviewedExecution) -> dict[str, Any]:
    people = {True: Status.PASSED, False: Status.FAILED, None: None}[reviewed.people]
    execution = reviewed.execution
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
        "otherChecksFailed": reviewed.checks_failed,
        "criteria": [
            {
                "label": criterion.label,
                "judge": criterion.judge,
                "score": criterion.score,
                "threshold": criterion.threshold,
                "passed": criterion.passed,
            }
            for criterion in reviewed.criteria
        ],
        "reviews": [
            {
                "verdict": Status.PASSED if review.passed else Status.FAILED,
                "note": review.note,
                "by": review.by,
                "at": review.at,
            }
            for review in reviewed.reviews
        ],
    }
