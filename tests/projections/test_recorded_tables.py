"""What the tables hold of runs that were recorded once: a suite, an agent, a test that was rerun.

The runs are exports in `data/`, their tables are beside them. `KINDLM_TABLES=write pytest` on this
file writes the tables anew, to be read before they are committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kindlm.events import merge_of
from kindlm.projections import PROJECTIONS
from kindlm.recording.export_file import read_export
from kindlm_store import EventLog

DATA = Path(__file__).with_name("data")


def rows(log: EventLog) -> Iterator[str]:
    """Yield the rows of all tables without what is null, a text in the place of its reference."""
    with closing(log.reader()) as reader:
        texts = dict(reader.execute("SELECT ref, substr(body, 1, 60) FROM contents").fetchall())
        for projection in PROJECTIONS:
            for table in projection.tables:
                yield table
                for row in reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3"):
                    values = {
                        column: {"text": texts[value]} if column.endswith("_ref") else value
                        for column, value in dict(row).items()
                        if value is not None
                    }
                    yield f"  {json.dumps(values, ensure_ascii=False)}"


@pytest.mark.parametrize("name", ["suite", "agent", "retried"])
def test_a_recorded_run_gives_the_tables_that_it_gave(name: str, tmp_path: Path) -> None:
    with (
        EventLog.open(tmp_path / "kindlm.db", projections=PROJECTIONS) as log,
        (DATA / f"{name}.jsonl").open("rb") as file,
        read_export(file) as export,
    ):
        merge_of(log, export.log, DATA / f"{name}.jsonl").take(together=True)
        folded = list(rows(log))
        log.rebuild()
        assert list(rows(log)) == folded
        assert log.projection_errors() == {}
    expected = DATA / f"{name}.tables"
    if os.environ.get("KINDLM_TABLES") == "write":
        expected.write_text("\n".join(folded) + "\n", encoding="utf-8")
    assert folded == expected.read_text(encoding="utf-8").splitlines()
