"""The section `output.similarTo`: the final text means the same as another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from kindlm.checks.base import Place, UndecidedError, failed, passed, undecided
from kindlm.checks.drift import ByMethod, complement, measured_by
from kindlm.outcome import CheckResult
from kindlm.ports import CheckContext
from kindlm.section import Score, Solid
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

CODES = {
    "NOT_SIMILAR": "the output is less similar to a text than it must be",
}


class SimilarTo(ByMethod):
    """A text that the output must be similar to in meaning."""

    kind = "similar_to"
    main: ClassVar[str | None] = "text"

    text: Solid = Field(examples=["The refund arrives in 5 days."])
    """The text to compare with."""
    min_score: Score = Field(default=0.8, examples=[0.9])
    """Minimum similarity to pass, from 0 (unrelated) to 1 (the same meaning)."""
    method: Literal["embedding", "judge"] = Field(default="embedding", examples=["judge"])
    """`embedding`: cosine similarity of embeddings, from a provider or a local model. `judge`: a
    model compares."""

    @property
    def label(self) -> str:
        return self.text

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        if self.min_score == 0:
            yield ("minScore",), "no similarity is less than 0"

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether the output is similar enough; an empty one is similar to nothing."""
        text, least = transcript.text, self.min_score
        score, how, reasoning = 0.0, "the output is empty", None
        if text.strip():
            try:
                found = await measured_by(self.method, self.text, text, context)
            except UndecidedError as error:
                return undecided(error.told, error.code, threshold=least)
            score, how, reasoning = complement(found.drift), found.basis, found.reasoning
        message = f"The similarity is {score:.3g} ({how})"
        if score >= least:
            return passed(score=score, threshold=least, message=message, reasoning=reasoning)
        why = f"The judge: {shown(reasoning, 600)}" if reasoning else f"The output: {shown(text)}"
        return failed(
            "NOT_SIMILAR",
            f"Expected an output similar to {shown(self.text)}. {message}, expected at least "
            f"{least:.3g}. {why}.",
            expected=bounded(self.text),
            actual=bounded(text),
            score=score,
            threshold=least,
            reasoning=reasoning,
        )
