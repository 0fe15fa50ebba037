"""Tests of a framework that is not installed are skipped, unless it has to be there."""

from __future__ import annotations

import pytest
from frameworks import is_there, need


def test_an_absent_framework_is_skipped_unless_it_is_required(monkeypatch):
    monkeypatch.setenv("KINDLM_FRAMEWORKS", "other")
    with pytest.raises(pytest.skip.Exception):
        need("no_such_framework.models")
    assert not is_there("no_such_framework")
    monkeypatch.setenv("KINDLM_FRAMEWORKS", "other no_such")
    with pytest.raises(ModuleNotFoundError):
        need("no_such_framework.models")
    assert is_there("no_such_framework")
