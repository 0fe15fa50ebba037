"""Writes how far judges and people agree, for people and for programs."""

from __future__ import annotations

from typing import Any, TextIO

from kindlm.history.reviews import SUBSTANTIAL, Agreement, PeopleAndJudges, ReviewedExecution, Trust
from kindlm.outcome import Status
from kindlm.reports.figures import interval_text, percent, score
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import MARKS, Page
from kindlm.reports.untrusted import bounded, json_document, one_line
from kindlm.spelling import fields_of
from kindlm.wording import count


def agreement_json(found: PeopleAndJudges) -> str:
    """Return how far people and judges agree on the same executions, as JSON."""
    return json_document(
        reviewed=found.reviewed,
        people=found.people,
        verdicts=found.verdicts and _comparison(found.verdicts),
        judges=list(map(_judge, found.judges)),
        criteria=[{"criterion": judge.criterion, **_judge(judge)} for judge in found.criteria],
        disagreements=list(map(_execution, found.disagreements)),
        divided=list(map(_execution, found.divided)),
        leftOut={"errored": found.errored, "tellNothingOfJudges": found.left_out},
    )


def _judge(compared: Agreement) -> dict[str, Any]:
    return {
        "judge": compared.judge or None,
        **_comparison(compared),
        "trust": compared.trust,
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
    return {
        **fields_of(reviewed.execution, "id run number suite test target repeat status"),
        "people": people,
        "otherChecksFailed": reviewed.checks_failed,
        "criteria": [criterion._asdict() for criterion in reviewed.criteria],
        "reviews": [
            {
                "verdict": Status.PASSED if review.passed else Status.FAILED,
                **fields_of(review, "note by at"),
            }
            for review in reviewed.reviews
        ],
    }


_LISTED = 50
_NOTE = 500
_COLORS = {Trust.TRUSTED: "green", Trust.NOT_TRUSTED: "red", Trust.UNDECIDED: "yellow"}


def write_agreement(found: PeopleAndJudges, out: TextIO, options: ReportOptions) -> None:
    """Write how far people and judges agree on the same executions, and where they differ."""
    page = Page(out, options)
    reviewed = f"{count(found.reviewed, 'execution')} reviewed"
    people = count(len(found.people), "person", "people")
    page.line((reviewed, "bold"), f" by {people}", hang=2)
    for judge in found.judges:
        _write_compared(f"Judge {one_line(judge.judge or 'of unknown model')}", judge, page)
    if not found.judges:
        page.heading("Judges")
        page.line("No reviewed execution can be compared with a judge.", indent=2, hang=2)
    undecided = "that judges did not decide, or that failed another check"
    _write_left_out(found.left_out, undecided, page)
    several = len({criterion.judge for criterion in found.criteria}) > 1
    for criterion in found.criteria:
        of = f" · {one_line(criterion.judge or 'unknown judge')}" if several else ""
        name = one_line(criterion.criterion or "")
        _write_compared(f"Criterion {name}{of}", criterion, page)
    if found.verdicts is not None:
        title = "Verdicts of kindlm, judges and all other checks"
        _write_compared(title, found.verdicts, page, "kindlm")
        _write_left_out(found.errored, "that errored", page)
    _write_list("Disagreements", found.disagreements, page)
    _write_list("People are divided", found.divided, page)


def _write_compared(title: str, compared: Agreement, page: Page, who: str = "judge") -> None:
    """Write the confusion table, the agreement and kappa, and if a judge can be trusted."""
    page.heading(f"{title}: {count(compared.reviews, 'execution')}")
    width = len(f"{who} passes")
    page.line((" " * width + "  people pass  people fail", "dim"), indent=2)
    for name, passed, failed in (
        (f"{who} passes", compared.both_passed, compared.judge_passed_only),
        (f"{who} fails", compared.person_passed_only, compared.both_failed),
    ):
        page.line((name.ljust(width), "dim"), f"  {passed:>11,}  {failed:>11,}", indent=2)
    interval = interval_text(compared.agreed, compared.reviews)
    rate = f"{percent(compared.observed)} (95 % interval: {interval})"
    kappa = "none: chance alone would agree"
    if compared.kappa is not None and compared.interval is not None:
        low, high = map(score, compared.interval)
        kappa = f"{score(compared.kappa)} (95 % interval: {low} to {high})"
    agree = f"{compared.agreed} of {compared.reviews}, {rate}"
    page.fields([("agree", agree), ("kappa", kappa)], indent=2)
    if who == "judge":
        page.line((_sentence(compared), _COLORS[compared.trust]), indent=2, hang=2)


def _write_left_out(number: int, why: str, page: Page) -> None:
    if number:
        page.line((f"Left out: {count(number, 'execution')} {why}.", "dim"), indent=2, hang=2)


def _sentence(judge: Agreement) -> str:
    """Return whether a judge can be trusted, and what to do."""
    if judge.trust is Trust.TRUSTED:
        return f"It can be trusted: it agrees with people, kappa is at least {SUBSTANTIAL:.2f}."
    if judge.trust is Trust.NOT_TRUSTED:
        return (
            f"It cannot be trusted: kappa is below {SUBSTANTIAL:.2f}. The disagreements show what"
            " its criteria and rubrics leave open."
        )
    return (
        f"Undecided whether kappa is at least {SUBSTANTIAL:.2f}. Review more executions, some"
        " that passed and some that failed."
    )


def _write_list(title: str, executions: tuple[ReviewedExecution, ...], page: Page) -> None:
    if not executions:
        return
    page.heading(title)
    for reviewed in executions[:_LISTED]:
        people = {True: ", people pass it", False: ", people fail it", None: ""}[reviewed.people]
        execution = reviewed.execution
        name = f"{one_line(execution.test)} · {one_line(execution.target)}"
        page.line(
            MARKS[str(execution.status)],
            f" {name} · repeat {execution.repeat}",
            (f"  {execution.status}{people}", "dim"),
            indent=2,
            hang=2,
        )
        for review in reviewed.reviews:
            note = f": {bounded(review.note, _NOTE, lines=5)}" if review.note else ""
            verdict = "pass" if review.passed else "fail"
            page.line(f"{one_line(review.by)}  {verdict}{note}", indent=4, hang=2)
        page.unbroken(page.typed(f"kindlm show {execution.run} {execution.number}"), indent=4)
    more = len(executions) - _LISTED
    if more > 0:
        command = page.typed("kindlm review --agreement --format json")
        page.line(f"… and {more:,} more: {command}", indent=2)
