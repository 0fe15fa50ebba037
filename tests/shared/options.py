"""The options of agents, for tests that make targets without a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.packages import own
from kindlm.plugins import Adapter


def options_of(adapter: str, options: Mapping[str, Any]) -> Adapter:
    """Return the options of an adapter, by their keys in a file."""
    kind = own(Adapter, adapter)
    assert kind is not None, adapter
    return kind.model_validate(dict(options))
