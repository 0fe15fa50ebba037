"""What a check found is not shown, however its findings overlap and wherever a text was cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.pii import redacted
from kindlm.history.masking import Mask

FOUND = "jane.roe@example.com"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"text": part} for part in ("to jane.", "roe@exam", "ple.com.")]),
        "".join(f"data: {part}\n\n" for part in ("jane.", "roe@exam", "ple.com.")),
        '{"to": "' + "".join(f"\\u{ord(char):04X}" for char in FOUND) + '"}',
        json.dumps({"as": [*FOUND.encode()]}),
    ],
)
def test_a_text_of_a_wire_that_says_a_finding_in_another_form_is_not_shown(text: str) -> None:
    mask = Mask({FOUND: redacted(FOUND)})
    note = "[not shown: it holds personal data]"
    assert mask.wire_text(text) == mask.body(text) == note
    assert mask.body("anything", "and", {"to": [FOUND]}) == note
    assert mask.wire_text(f"to {FOUND}.") == "to ja****************om."
    for plain in ("to jane", text[:9], "", None):
        assert mask.wire_text(plain) == mask.body(plain) == plain
    assert Mask({}).body(text) == Mask({}).wire_text(text) == text


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
