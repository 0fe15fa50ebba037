"""The state that the simulated tools of one execution share: what answers set and later ones read.

A refund that sets `refunded` lets the second one be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.matching import matches

__all__ = ["state_matches"]

_NOTHING: Mapping[str, Any] = {}


def state_matches(wanted: Mapping[str, Any], state: Any) -> bool:
    """Tell whether a state has everything that is wanted, as the partial matcher means it.

    A key that is wanted to be `{"$absent": true}` must not be there, at whatever level it stands;
    where its parent is absent, it is so too.
    """
    return isinstance(state, Mapping) and all(
        _holds(want, state, key) for key, want in wanted.items()
    )


def _holds(want: Any, state: Mapping[str, Any], key: str) -> bool:
    if not isinstance(want, Mapping):
        return key in state and matches(want, state[key])
    if want.get("$absent") is True:
        return key not in state
    if key not in state:
        return bool(want) and state_matches(want, _NOTHING)
    return state_matches(want, state[key])
