"""The check for claims that an agent made up: nothing that it had to go by supports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from kindlm.checks.claims import Claim, Findings, located
from kindlm.checks.echoes import is_copy, readings_of
from kindlm.checks.grounding import grounding_issues
from kindlm.checks.judge_answers import bool_member, objects_member, text_member
from kindlm.checks.judge_asking import ask_judge
from kindlm.checks.judge_prompts import claims_question, verdicts_question
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.model_answers import object_in
from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, count, listed, shown

__all__ = ["hallucination"]

_ROUNDS = 2
_MAX_LISTED = 5
_MAX_ACTUAL = 50


class _Verdict(NamedTuple):
    number: int
    supported: bool
    reason: str


@dataclass(frozen=True, slots=True)
class _Case:
    """A conversation, and the `readings` of all that a judge gets to read of it."""

    transcript: Transcript
    given: Sequence[str]

    def refuse_copies(self, written: Sequence[dict[str, Any]]) -> None:
        """Raise `ValueError` if a result of the judge stands in what it was given."""
        if any(is_copy(members, self.given) for members in written):
            raise ValueError("it repeated a result that stands in what it was given")


@check("hallucination")
async def hallucination(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The confidence that the answer holds something made up is below `confidenceThreshold`.

    A judge lists the claims of the answer, and then says of each whether the tools' responses, the
    system text, the user or common knowledge support it. Together with what shows without a judge
    that gives the confidence (`claims.Findings`). With `allow` it is reported, and passes. Where
    the judge can't be asked or understood, or the outcome hangs on claims that it gave no verdict
    on, nobody knows. The score is the share of the claims that are supported.

    With `evidence: prefix` the answer is that of the last turn alone, and what it had to go by is
    the whole conversation up to it.
    """
    of_last_turn = expectation.params.get("evidence") == "prefix"
    issues = await context.aside(partial(grounding_issues, transcript, of_last_turn=of_last_turn))
    case = _Case(transcript, await context.aside(partial(readings_of, transcript)))
    claims = await _claims(case, context)
    if isinstance(claims, Ok):
        claims = await _verified(claims.value, case, context)
    if isinstance(claims, Err):
        return [_unknown(expectation, claims.error)]
    return [_result(expectation, transcript, Findings(claims.value, issues))]


async def _claims(case: _Case, context: CheckContext) -> Result[tuple[Claim, ...]]:
    """Ask which claims the answer makes; an answer without text makes none."""
    transcript = case.transcript
    if not transcript.text.strip():
        return Ok(())

    def read(text: str) -> tuple[Claim, ...]:
        answer = object_in(text)
        entries = objects_member(answer, "claims")
        claims = [Claim(text_member(one, "claim"), text_member(one, "quote")) for one in entries]
        written = [{"claim": one.text, "quote": one.quote} for one in claims]
        # An empty list has no words of the judge's own, which only its remark has then.
        remark = {"remark": text_member(answer, "remark")} if "remark" in answer else {}
        case.refuse_copies(written or [{"claims": []} | remark])
        return tuple(claims)

    return await ask_judge(context, lambda token: claims_question(transcript, token=token), read)


async def _verified(
    claims: tuple[Claim, ...], case: _Case, context: CheckContext
) -> Result[tuple[Claim, ...]]:
    """Ask which claims are supported, and once more for those that were left out."""
    verdicts: dict[int, _Verdict] = {}
    for _ in range(_ROUNDS):
        pending = [place for place in range(len(claims)) if place not in verdicts]
        if not pending:
            break
        answer = await _verdicts([claims[place].text for place in pending], case, context)
        if isinstance(answer, Err):
            if not verdicts:
                return answer
            break
        for verdict in answer.value:
            if 0 < verdict.number <= len(pending):
                verdicts[pending[verdict.number - 1]] = verdict
    return Ok(
        tuple(
            replace(claim, supported=verdicts[place].supported, reason=verdicts[place].reason)
            if place in verdicts
            else claim
            for place, claim in enumerate(claims)
        )
    )


async def _verdicts(
    claims: Sequence[str], case: _Case, context: CheckContext
) -> Result[tuple[_Verdict, ...]]:
    def read(text: str) -> tuple[_Verdict, ...]:
        entries = objects_member(object_in(text), "verdicts")
        verdicts = tuple(map(_verdict, entries))
        if len({verdict.number for verdict in verdicts}) < len(verdicts):
            raise ValueError("it gives two verdicts on one claim")
        case.refuse_copies([verdict._asdict() for verdict in verdicts])
        return verdicts

    return await ask_judge(
        context, lambda token: verdicts_question(claims, case.transcript, token=token), read
    )


def _verdict(entry: dict[str, Any]) -> _Verdict:
    number = entry.get("number")
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError("its number is no number")  # noqa: TRY004 - a wrong answer
    return _Verdict(number, bool_member(entry, "supported"), text_member(entry, "reason"))


def _result(expectation: Expectation, transcript: Transcript, found: Findings) -> CheckResult:
    threshold: float = expectation.params["confidenceThreshold"]
    outcome, actual = found.outcome(threshold), _actual(found)
    told = _told(found)
    if outcome is Outcome.PASSED or expectation.params.get("allow"):
        if outcome is not Outcome.PASSED:
            told += " Hallucinations are allowed here."
        return passed(expectation, score=found.supported_share, actual=actual, message=told)
    if outcome is Outcome.INCONCLUSIVE:
        code = FailureCode.JUDGE_EVAL_ERROR
        return undecided(expectation, code, told, actual=actual)
    return failed(
        expectation,
        FailureCode.HALLUCINATION_DETECTED,
        told,
        expected={"confidenceBelow": threshold},
        actual=actual,
        score=found.supported_share,
        evidence=_evidence(found, transcript.text),
    )


def _evidence(found: Findings, output: str) -> list[Evidence]:
    signs = [issue.evidence for issue in found.issues if issue.evidence is not None]
    return [*located(found.unsupported, output), *signs]


def _told(found: Findings) -> str:
    if not found.claims and not found.issues:
        return "The answer makes no claims that could be checked."
    bad = [
        *(f"{shown(claim.text)} ({shown(claim.reason)})" for claim in found.unsupported),
        *(issue.message for issue in found.issues),
    ]
    claims = count(len(found.claims), "claim")
    parts = [f"{len(found.unsupported)} of {claims} not supported"]
    if found.unverified:
        parts.append(f"{len(found.unverified)} without a verdict")
    parts.append(f"confidence {found.confidence:g}")
    told = ", ".join(parts)
    return f"{told}: {listed(bad[:_MAX_LISTED], len(bad))}." if bad else f"{told}."


def _actual(found: Findings) -> dict[str, Any]:
    return {
        "confidence": found.confidence,
        "claims": [
            {
                "claim": bounded(claim.text),
                "supported": claim.supported,
                "reason": bounded(claim.reason),
            }
            for claim in found.claims[:_MAX_ACTUAL]
        ],
        "issues": [issue.message for issue in found.issues],
    }


def _unknown(expectation: Expectation, error: KindlmError) -> CheckResult:
    return undecided(expectation, FailureCode.JUDGE_EVAL_ERROR, error.message)
