"""The normal form of texts: what is looked at beside a text as it is written."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.normal_form import normal_form, plain_name


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("\uff11\uff12\uff13", "123"),
        ("a\u00a0b", "a b"),
        ("se\u200bcr\u00adet", "secret"),
        ("cafe\u0301", "café"),
        ("e\u200b\u0301", "é"),
        ("ﬁne", "fine"),
        ("\u1112\u1161\u11ab", "한"),
        ("a\u0007b", "ab"),
        ("can\u2019t e\u2011mail \u201cit\u201d", 'can\'t e-mail "it"'),
        ("123\u201345\u20106789", "123-45-6789"),
    ],
)
def test_what_a_reader_takes_for_the_same_is_the_same(text: str, form: str) -> None:
    found = normal_form(text)
    assert found is not None
    assert found.text == form


@pytest.mark.parametrize("text", ["", "plain\n\ttext", "café", "한", "\u200b", "ünï\ud83d"])
def test_a_text_that_is_its_own_form_has_no_other(text: str) -> None:
    assert normal_form(text) is None


def test_places_are_those_of_the_written_text() -> None:
    text = "x\u200by ﬁ \uff11\uff12"
    form = normal_form(text)
    assert form is not None
    assert form.text == "xy fi 12"
    assert text[slice(*form.written(0, 2))] == "x\u200by"
    assert text[slice(*form.written(4, 5))] == "ﬁ"
    assert text[slice(*form.written(6, 8))] == "\uff11\uff12"
    assert form.written(8, 8) == (len(text), len(text))


@given(
    st.text(
        alphabet="aeZß é\uff45\uff11\u00b2ﬁ한\u1112\u1161\u11ab\u0301\u0323\u00a0Ω☃", max_size=25
    )
)
def test_it_is_nfkc(text: str) -> None:
    form = normal_form(text)
    assert (text if form is None else form.text) == unicodedata.normalize("NFKC", text)


@given(st.text(max_size=200))
def test_each_character_has_a_place_in_order(text: str) -> None:
    form = normal_form(text)
    if form is None:
        return
    assert len(form.places) == len(form.text)
    assert list(form.places) == sorted(form.places)
    assert all(0 <= start < end <= len(text) for start, end in form.places)


def test_marks_without_end_are_put_in_order_a_few_at_a_time() -> None:
    # Two kinds of marks in turn: to sort them all takes minutes.
    form = normal_form("a" + "\u0301\u0323" * 100_000)
    assert form is not None
    assert max(end - start for start, end in form.places) <= 30


def test_names_are_compared_without_what_is_not_noticed() -> None:
    assert plain_name(" Re\u200bFUND\u00a0") == plain_name("refund") == "refund"
    assert plain_name("ref\u2800und") == plain_name("re\tfund\x00") == "refund"
    assert plain_name("\u2800refund") == plain_name("re\u06ddfund\ufffb") == "refund"
    assert plain_name("Straße") == plain_name("STRASSE")
    assert plain_name("\u200b") == plain_name("  ") == ""
