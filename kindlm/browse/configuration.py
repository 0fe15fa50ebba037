"""What a Datasette is told about a history by its configuration of the plugin.

Before Datasette 1.0 that is a part of its metadata. The plugin looks into no project, since it does
not know of which one a file is: `kindlm browse` hands on what the project says.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from kindlm.browse.descriptions import INSTANCE

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

__all__ = ["configured", "regression_threshold"]

_PLUGIN = "kindlm"
_THRESHOLD = "regression_threshold"


def configured(threshold: float | None) -> dict[str, Any]:
    """Return arguments of a Datasette: what it says of itself, and the plugin's configuration."""
    from datasette.app import Datasette

    own = {} if threshold is None else {"plugins": {_PLUGIN: {_THRESHOLD: threshold}}}
    if "config" in signature(Datasette).parameters:
        return {"metadata": INSTANCE, "config": own}
    return {"metadata": INSTANCE | own}


def regression_threshold(datasette: Datasette, database: str) -> float | None:
    """Return how far a mean score may fall before that is a regression; None if nobody says so."""
    # Since 1.0 what is said for all databases counts only for those of which nothing is said.
    found = datasette.plugin_config(_PLUGIN, database=database) or datasette.plugin_config(_PLUGIN)
    value = found.get(_THRESHOLD) if isinstance(found, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= 1 else None
