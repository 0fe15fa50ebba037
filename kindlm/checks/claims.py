"""What an agent claims, and how sure it is that some of it is made up.

Pure values and arithmetic; `hallucination.py` asks the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.outcome import Evidence, Outcome

__all__ = ["Claim", "Findings", "Issue", "located"]

_DECIMALS = 4
_MOST = 0.99
_WITHOUT_CLAIMS = 0.7


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of an answer. `supported` is None as long as nobody gave a verdict on it."""

    text: str
    quote: str
    supported: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Issue:
    """What shows without a judge that an answer has nothing to go by."""

    message: str
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """The claims of an answer with their verdicts, and what showed without a judge."""

    claims: tuple[Claim, ...]
    issues: tuple[Issue, ...] = ()

    @property
    def unsupported(self) -> tuple[Claim, ...]:
        """The claims that nothing supports."""
        return tuple(claim for claim in self.claims if claim.supported is False)

    @property
    def unverified(self) -> tuple[Claim, ...]:
        """The claims without a verdict."""
        return tuple(claim for claim in self.claims if claim.supported is None)

    @property
    def confidence(self) -> float:
        """How sure it is that something is made up, if claims without a verdict are supported."""
        return self._confidence(len(self.unsupported) + len(self.issues))

    @property
    def supported_share(self) -> float:
        """The share of the claims that are supported, 1 of none."""
        if not self.claims:
            return 1.0
        return round(sum(claim.supported is True for claim in self.claims) / len(self.claims), 6)

    def outcome(self, threshold: float) -> Outcome:
        """Return how a check comes out that fails from a confidence on.

        It is inconclusive if that hangs on claims without a verdict.
        """
        bad = len(self.unsupported) + len(self.issues)
        if bad and self._confidence(bad) >= threshold:
            return Outcome.FAILED
        worst = bad + len(self.unverified)
        if worst > bad and self._confidence(worst) >= threshold:
            return Outcome.INCONCLUSIVE
        return Outcome.PASSED

    def _confidence(self, bad: int) -> float:
        """Return 0.5 + 0.5 × bad ÷ all that was looked at, 0.99 at most; 0 if nothing is bad.

        Where the answer claims nothing, issues alone give 0.7.
        """
        if not bad:
            return 0.0
        if not self.claims:
            return _WITHOUT_CLAIMS
        looked_at = len(self.claims) + len(self.issues)
        return min(round(0.5 + 0.5 * bad / looked_at, _DECIMALS), _MOST)


def located(claims: Sequence[Claim], output: str) -> list[Evidence]:
    """Return where claims stand in an output, as far as their words can be found in it."""
    found = []
    for claim in claims:
        for words in (claim.quote.strip(), claim.text.strip()):
            start = output.find(words) if words else -1
            if start >= 0:
                found.append(Evidence("output", start, start + len(words), "unsupported claim"))
                break
    return found
