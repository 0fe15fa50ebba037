"""Telling a Datasette what it shows: descriptions, facets, order and saved queries of a history.

Before 1.0 all of it is metadata, which a hook gives; since then descriptions are in a database of
Datasette's own, and the rest is configuration. What the user of the Datasette wrote stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kindlm.browse.descriptions import described, merged, settings
from kindlm.browse.ours import histories
from kindlm.browse.queries import QUERIES

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

__all__ = ["metadata_of", "tell"]


def metadata_of(datasette: Datasette) -> dict[str, Any]:
    """Return the metadata of all histories, for Datasette before 1.0."""
    return {"databases": {name: merged(described(), settings()) for name in histories(datasette)}}


async def tell(datasette: Datasette) -> None:
    """Tell a Datasette since 1.0 of all histories, as it starts."""
    if not hasattr(datasette, "set_resource_metadata"):
        return
    for name in histories(datasette):
        _configure(datasette, name)
        for table, found in described()["tables"].items():
            await _describe(datasette, name, table, found)
        for query, told in QUERIES.items():
            if await datasette.get_query(name, query) is None:
                await datasette.add_query(name, query, told["sql"], title=told["title"])


def _configure(datasette: Datasette, database: str) -> None:
    config = datasette.config if datasette.config is not None else {}
    own = config.setdefault("databases", {}).setdefault(database, {})
    # Saved queries are added by themselves: those of the configuration were read already.
    own["tables"] = merged(settings()["tables"], own.get("tables") or {})
    datasette.config = config


async def _describe(
    datasette: Datasette, database: str, table: str, found: Mapping[str, Any]
) -> None:
    written = await datasette.get_resource_metadata(database, table)
    if "description" not in written:
        await datasette.set_resource_metadata(database, table, "description", found["description"])
    for column, text in found["columns"].items():
        if "description" not in await datasette.get_column_metadata(database, table, column):
            await datasette.set_column_metadata(database, table, column, "description", text)
