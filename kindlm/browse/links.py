"""A Datasette plugin: in views and query results, runs and executions lead to their rows.

In tables the foreign keys do that already. Only what Datasette 0.65 and 1.0 both have is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datasette import hookimpl  # type: ignore[import-untyped]
from datasette.utils import tilde_encode  # type: ignore[import-untyped]
from markupsafe import Markup

from kindlm.browse.pages import DATABASE, VIEW_DESCRIPTIONS

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

__all__ = ["render_cell"]

_LEADS_TO = {"run": "runs", "execution": "executions"}


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(
    value: Any, column: str, table: str | None, database: str, datasette: Datasette
) -> Markup | None:
    """Return a link for the id of a run or an execution, None for everything else."""
    target = _LEADS_TO.get(column)
    if target is None or database != DATABASE or not isinstance(value, str):
        return None
    if table is not None and table not in VIEW_DESCRIPTIONS:
        return None
    path = datasette.urls.path(f"/{DATABASE}/{target}/{tilde_encode(value)}")
    return Markup('<a href="{}">{}</a>').format(path, value)
