"""Each conversation is a sample once, also where both sides hold some of the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kindlm.history.diff.config import Suite
from kindlm.history.diff.samples import PlannedSamples, Sample, independent_samples
from kindlm.outcome import Status

FILE = Suite(
    ("k3f9x2ab/0",), 0, "shop", "support", "kindlm.yaml", None, None, False, None, None, frozenset()
)


def side(run: str, outcomes: str) -> PlannedSamples:
    """Return the executions of a run, such as `+1 -2 +a3`: of itself, or held by one of run a."""
    samples = [_sample(f"{run}-{number}", word) for number, word in enumerate(outcomes.split())]
    return PlannedSamples(FILE, "it", "gpt", 0, 1.0, samples)


def _sample(identity: str, word: str) -> Sample:
    status = {"+": Status.PASSED, "-": Status.FAILED}[word[0]]
    return Sample(identity, word[1:], status)


def told(samples: Sequence[Sample]) -> str:
    signs = {Status.PASSED: "+", Status.FAILED: "-"}
    return " ".join(signs[sample.status] + sample.conversation for sample in samples)


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "same"),
    [
        pytest.param("+a +b", "+c -d", "+a +b", "+c -d", False, id="all are new"),
        pytest.param("+a +b", "+a -b", "+a +b", "+a -b", True, id="judged otherwise"),
        pytest.param("+a +b", "+a +b -c", "+a +b", "-c", False, id="some are added"),
        pytest.param("+a -b +c", "+a +d +c", "+a -b +c", "+d", False, id="one is new"),
        pytest.param("+a -b", "+a", "+a", "+a", True, id="some are left out"),
        pytest.param("+a +b", "-a +b +c", "+a +b", "-a +b +c", True, id="one judged otherwise"),
        pytest.param("", "+a", "", "+a", False, id="nothing before"),
    ],
)
def test_a_conversation_is_a_sample_once(
    before: str, after: str, old: str, new: str, same: bool
) -> None:
    one, other, is_same = independent_samples(side("x", before), side("y", after))
    assert (told(one.samples), told(other.samples), is_same) == (old, new, same)
