"""While something is loaded no garbage is looked for; afterwards it is as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kindlm import garbage
from kindlm.garbage import put_off


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "keep", gc.freeze)
    gc.enable()
    yield
    gc.enable()


def test_it_is_put_off_and_taken_up_again() -> None:
    with put_off():
        assert not gc.isenabled()
        with put_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_taken_up_again_when_loading_fails() -> None:
    with pytest.raises(ImportError), put_off():
        raise ImportError
    assert gc.isenabled()


def test_what_was_loaded_is_looked_through_no_more() -> None:
    with put_off():
        loaded = [[number] for number in range(1_000)]
    looked_through = {id(item) for item in gc.get_objects()}
    assert not any(id(item) in looked_through for item in loaded)


def test_where_it_is_off_it_stays_off() -> None:
    gc.disable()
    with put_off():
        pass
    assert not gc.isenabled()
