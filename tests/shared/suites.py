"""Suites that no file was read for."""

from __future__ import annotations

from typing import Any

from kindlm.suite import Case, Suite


def make_suite(*cases: Case, **fields: Any) -> Suite:
    """Return a suite of these cases; what matters to a test is in `fields`."""
    usual: dict[str, Any] = {
        "name": "support",
        "project": "shop",
        "front_end": "kindlm",
        "path": "kindlm.yaml",
        "config_hash": "0123456789ab",
        "config_text": "{}",
        "providers": {},
        "models": {},
        "gates": (),
    }
    return Suite(**(usual | fields), cases=cases)
