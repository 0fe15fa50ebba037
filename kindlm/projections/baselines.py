"""Table `baselines`: which run each suite is compared with, as the newest of the journals says.

Journals arrive in any order, so that the table can't forget: a baseline that was removed stays as
a row without a run, or one that was set before would come back when its journal is merged later.
The view `active_baselines` shows what counts: of each suite the baseline that was set last.
"""

from __future__ import annotations

from collections.abc import Iterator

from kindlm_store import Operation, Projection, RecordedEvent, Table, Upsert

__all__ = ["BASELINES"]

_ACTIVE = """
SELECT project, suite, label, run, "by", at
  FROM baselines b
 WHERE run IS NOT NULL
   AND NOT EXISTS (
         SELECT 1 FROM baselines later
          WHERE later.project = b.project AND later.suite = b.suite AND later.run IS NOT NULL
            AND (later.at, later.event) > (b.at, b.event))
"""


def _changed(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    key = {"project": data["project"], "suite": data["suite"], "label": data.get("label") or ""}
    row = {
        **key,
        # None: removed.
        "run": data.get("run"),
        "by": data["by"],
        "at": event.at,
        "event": str(event.id),
    }
    yield Upsert("baselines", key, row, newest=("at", "event"))


BASELINES = Projection(
    name="baselines",
    version=1,
    tables=(
        Table(
            "baselines",
            {
                "project": "TEXT",
                "suite": "TEXT",
                "label": "TEXT",
                "run": "TEXT",
                "by": "TEXT",
                "at": "TEXT",
                "event": "TEXT",
            },
            primary_key=("project", "suite", "label"),
            foreign_keys={"run": ("runs", "id")},
        ),
    ),
    handlers={"baseline.set": _changed, "baseline.removed": _changed},
    views={"active_baselines": _ACTIVE},
)
