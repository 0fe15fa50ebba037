"""What a check found is not shown, however its findings overlap and wherever a text was cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.pii import redacted
from kindlm.history.masking import Mask

findings = st.lists(st.text("ab1 ", min_size=1, max_size=9), min_size=1, max_size=4)


@given(st.data(), findings)
def test_no_finding_is_shown_in_any_overlap(data: st.DataObject, found: list[str]) -> None:
    mask = Mask({text: redacted(text) for text in found})
    parts = st.sampled_from(found) | st.text("ab1 ", max_size=3)
    text = "".join(data.draw(st.lists(parts, max_size=8)))
    shown = mask.text(text)
    assert len(shown) == len(text)
    assert not any(each in shown for each in found)


@given(st.data(), findings, st.text("ab1 x", max_size=9))
def test_no_beginning_of_a_finding_is_shown_before_a_cut(
    data: st.DataObject, found: list[str], before: str
) -> None:
    whole = data.draw(st.sampled_from(found))
    cut = data.draw(st.integers(4, max(4, len(whole))))
    mask = Mask({text: redacted(text) for text in found})
    shown = mask.text(f"{before}{whole[:cut]}…")
    assert len(whole) < 5 or not shown.endswith(f"{whole[:cut]}…")
