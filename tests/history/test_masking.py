"""What a check found is not shown, however its findings overlap and wherever a text was cut."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.guardrails import redacted
from kindlm.history.masking import Mask, mask_of
from kindlm.outcome import Evidence
from kindlm.projections import GONE

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
    assert mask.wire_text(text) == note
    assert mask.wire_text("anything", "and", {"to": [FOUND]}) == note
    assert mask.wire_text(f"to {FOUND}.") == "to ja****************om."
    for plain in ("to jane", text[:9], "", None):
        assert mask.wire_text(plain) == plain
    assert Mask({}).wire_text(text) == text


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


@pytest.mark.parametrize(
    ("excerpt", "length", "text", "shown"),
    [
        ("ja****om", 20, f"To {FOUND.upper()}!", "To ja****************om!"),
        ("ja****om", 20, "To jane.roe@example.coom!", "To jane.roe@example.coom!"),
        ("ja****om", 7, "jaja.omom", "*********"),
        ("*****", 5, "12345", "12345"),
        ("ab*cd", 4, "abcd", "abcd"),
    ],
)
def test_what_looks_like_a_finding_in_an_erased_text_is_not_shown(
    excerpt: str, length: int, text: str, shown: str
) -> None:
    assert Mask({}, [(excerpt, length)]).text(text) == shown


@pytest.mark.parametrize("before", ["", "İ"])
def test_a_finding_is_hidden_in_upper_case_where_lower_case_is_longer(before: str) -> None:
    assert Mask({FOUND: redacted(FOUND)}).text(before + FOUND.upper()) == before + redacted(FOUND)


ARGUMENTS = {"to": FOUND}
PURGED = min(GONE)


@pytest.mark.parametrize(
    ("source", "start", "output", "arguments", "is_whole"),
    [
        ("output", 3, f"To {FOUND}", {}, True),
        ("output", 3, f"To {redacted(FOUND)}", {}, True),
        ("output", 3, PURGED, {}, False),
        ("tool[0].arguments", 8, "The output is another text.", ARGUMENTS, True),
        ("tool[0].arguments", 8, "The output is another text.", PURGED, False),
        ("tool[1].arguments", 8, "The output is another text.", ARGUMENTS, False),
        ("turn[1].output", 0, "The output is another text.", {}, True),
    ],
)
def test_a_finding_is_hidden_in_other_texts_whether_its_own_is_there_or_not(
    source: str, start: int, output: str, arguments: Any, is_whole: bool
) -> None:
    found = Evidence(source, start, start + len(FOUND), "email", redacted(FOUND))

    mask = mask_of([_attempt(found, output, arguments)])

    assert mask.text(f"It wrote to {FOUND}.") == f"It wrote to {redacted(FOUND)}."
    assert mask.is_whole == is_whole


def test_a_finding_with_escapes_is_hidden_where_it_is_read() -> None:
    written = "jane\\u0040roe.com"
    found = Evidence("output", 0, len(written), "email", redacted(written))

    assert mask_of([_attempt(found, written)]).text("To jane@roe.com!") == "To ************!"


def _attempt(found: Evidence, output: str, arguments: Any = None) -> Any:
    return SimpleNamespace(
        execution=SimpleNamespace(output=output),
        tool_calls=[SimpleNamespace(arguments=arguments)],
        assertions=[SimpleNamespace(evidence=[found])],
    )
