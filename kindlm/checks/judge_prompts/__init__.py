"""The words that a judging model is asked with; all of them are here."""

from kindlm.checks.judge_prompts.claims import CLAIMS, VERDICTS, claims_question, verdicts_question
from kindlm.checks.judge_prompts.criteria import (
    DRIFT,
    JUDGEMENT,
    drift_question,
    judge_question,
)
from kindlm.checks.judge_prompts.decisions import (
    FACTS,
    GUARDRAIL,
    SENTIMENT,
    facts_question,
    guardrail_question,
    sentiment_question,
)
from kindlm.checks.judge_prompts.fencing import new_token
from kindlm.checks.judge_prompts.quality import QUALITY, quality_question
from kindlm.checks.judge_prompts.safety import SAFETY, safety_question
from kindlm.checks.judge_prompts.uncertainty import UNCERTAINTY, uncertainty_question

__all__ = [
    "CLAIMS",
    "DRIFT",
    "FACTS",
    "GUARDRAIL",
    "JUDGEMENT",
    "QUALITY",
    "SAFETY",
    "SENTIMENT",
    "UNCERTAINTY",
    "VERDICTS",
    "claims_question",
    "drift_question",
    "facts_question",
    "guardrail_question",
    "judge_question",
    "new_token",
    "quality_question",
    "safety_question",
    "sentiment_question",
    "uncertainty_question",
    "verdicts_question",
]
