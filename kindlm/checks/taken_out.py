"""Checks of recorded answers that secrets were taken out of: what was said there is not known.

To go by the mark that stands in the place of a secret would turn verdicts round: an answer that
gave a key away would look as if it had not.
"""

from __future__ import annotations

from kindlm.checks.results import undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript, calls_lack_a_secret, text_lacks_a_secret

__all__ = ["undecided_for_a_secret"]

_OF_NUMBERS = frozenset({"cost", "latency", "token_usage", "metric"})
_OF_NAMES = frozenset({"tool_category", "tool_sequence", "forbidden_tool"})
_OF_CALLS = frozenset({"tool_called", "tool_not_called", "tool_strict", "trajectory"})
_OF_TEXTS_AND_CALLS = frozenset({"pii", "evalview_verdict"})
_BY_NAME = frozenset({"tool_called", "tool_not_called"})
_WHAT_IS_SAID = ("argsMatch", "argsSchema", "responseContains")

_WHY = (
    "Here the record has [redacted] in the place of a secret: nobody knows what this would have"
    " found. Run the test again: kindlm test."
)


def undecided_for_a_secret(
    expectation: Expectation, transcript: Transcript, *, asks: bool
) -> CheckResult | None:
    """Return that a check is undecided if it looks at recorded words that lack a secret.

    One that `asks` a judge is decided all the same: the judge sees that something was taken out.
    """
    kind, params = expectation.kind, expectation.params
    if kind in _OF_NUMBERS | _OF_NAMES or (asks and kind not in _OF_TEXTS_AND_CALLS):
        return None
    if kind in _BY_NAME and not any(params.get(name) is not None for name in _WHAT_IS_SAID):
        return None
    steps = list(transcript.steps)
    if kind in _OF_CALLS:
        lacks = any(map(calls_lack_a_secret, steps))
    elif kind in _OF_TEXTS_AND_CALLS:
        lacks = any(text_lacks_a_secret(step) or calls_lack_a_secret(step) for step in steps)
    else:
        lacks = bool(steps) and text_lacks_a_secret(steps[-1])
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, _WHY) if lacks else None
