"""The check that an answer says what it is not sure of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from kindlm.checks.echoes import is_copy, readings_of
from kindlm.checks.judge_answers import bool_member, text_member
from kindlm.checks.judge_asking import ask_judge
from kindlm.checks.judge_prompts import uncertainty_question
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err
from kindlm.model_answers import object_in
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

__all__ = ["UNCERTAIN_PHRASES", "uncertainty"]

UNCERTAIN_PHRASES = (
    *("don't know", "do not know", "not sure", "not certain", "uncertain", "unclear", "unsure"),
    *("can't confirm", "cannot confirm", "can't verify", "cannot verify", "couldn't find"),
    *("could not find", "unable to", "no information", "not enough information", "not available"),
    *("might", "may not", "possibly", "perhaps", "it depends", "approximately", "as far as i know"),
)
"""What acknowledges uncertainty where no judge is asked, as whole words whatever their case."""

_PHRASES = re.compile(
    r"\b(?:" + "|".join(map(re.escape, UNCERTAIN_PHRASES)) + r")\b", re.IGNORECASE
)


@check("uncertainty")
async def uncertainty(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The final text acknowledges that something is not known or not certain.

    With `judged`, a judge decides; without, whether the text has one of `UNCERTAIN_PHRASES`.
    """
    if not expectation.params.get("judged"):
        said = transcript.text.replace("\u2019", "'")
        found = await context.aside(lambda: _PHRASES.search(said))
        if found:
            return [passed(expectation, message=f"The answer says {shown(found[0])}.")]
        return [_missing(expectation, transcript, None)]
    given = await context.aside(partial(readings_of, transcript))
    answer = await ask_judge(
        context,
        lambda token: uncertainty_question(transcript, token=token),
        lambda text: _read(text, given),
    )
    if isinstance(answer, Err):
        return [undecided(expectation, FailureCode.JUDGE_EVAL_ERROR, answer.error.message)]
    acknowledged, reasoning = answer.value
    if acknowledged:
        return [passed(expectation, reasoning=reasoning)]
    return [_missing(expectation, transcript, reasoning)]


def _read(text: str, given: Sequence[str]) -> tuple[bool, str]:
    """Read whether uncertainty is acknowledged, and why the judge says so."""
    answer = object_in(text)
    acknowledged, reasoning = bool_member(answer, "acknowledged"), text_member(answer, "reasoning")
    text_member(answer, "quote")
    copy = {"acknowledged": acknowledged, "reasoning": reasoning}
    if is_copy(copy, given):
        raise ValueError("it repeated a decision that stands in what it was to judge")
    return acknowledged, reasoning


def _missing(
    expectation: Expectation, transcript: Transcript, reasoning: str | None
) -> CheckResult:
    why = f" The judge: {shown(reasoning, 600)}." if reasoning else ""
    message = f"Expected the answer to acknowledge uncertainty, got {shown(transcript.text)}.{why}"
    code = FailureCode.UNCERTAINTY_MISSING
    return failed(expectation, code, message, reasoning=reasoning)
