"""The packages of frameworks. Tests of those that are not installed are skipped.

They fail instead if KINDLM_FRAMEWORKS holds the name, or how it begins, among its words.
"""

from __future__ import annotations

import importlib
import os
import warnings
from importlib.util import find_spec
from typing import Any

import pytest


def _is_required(module: str) -> bool:
    return module.startswith(tuple(os.environ.get("KINDLM_FRAMEWORKS", "").split()))


def need(module: str) -> Any:
    """Return a module of a framework; skip the test, or the file, where it is not installed."""
    if _is_required(module):
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(module)
    return pytest.importorskip(module, exc_type=ImportError)


def is_there(*packages: str) -> bool:
    """Return whether tests of packages are not to be skipped."""
    return all(_is_required(each) or find_spec(each) is not None for each in packages)
