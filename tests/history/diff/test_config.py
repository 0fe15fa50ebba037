"""What changed in a configuration, by names rather than positions."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from kindlm.history.diff.config import Suite, SuiteConfig, compare_configs, parts_of_test
from kindlm.matching import ABSENT


def compared(before: str | None, after: str | None, *hashes: str) -> SuiteConfig | None:
    """Compare two suites with these recorded configurations and hashes."""
    old, new = (
        Suite((), 0, "shop", "support", "kindlm.yaml", digest, ref, False, None, None, False)
        for ref, digest in zip(("old", "new"), hashes, strict=True)
    )
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE contents (ref, body)")
        db.executemany("INSERT INTO contents VALUES (?, ?)", [("old", before), ("new", after)])
        return compare_configs(db, old, new)


def compare(before: dict[str, Any], after: dict[str, Any]) -> SuiteConfig:
    texts = (json.dumps({"config": config, "files": {}}) for config in (before, after))
    found = compared(*texts, "aaa", "bbb")
    assert found is not None
    return found


def paths(config: SuiteConfig) -> list[str]:
    return [change.path for change in config.changes]


def test_the_same_configuration_says_nothing() -> None:
    assert compared(None, None, "aaa", "aaa") is None


def test_an_inserted_item_does_not_shift_the_others() -> None:
    tests = [{"name": "a", "runs": 1}, {"name": "b", "runs": 1}]
    found = compare({"tests": tests}, {"tests": [{"name": "new"}, *tests]})
    assert paths(found) == ["tests[new]"]
    assert found.changes[0].before is ABSENT


def test_parts_of_a_test_are_named() -> None:
    before = {"tests": [{"name": "a", "prompt": "p", "tools": [{"name": "t", "x": 1}]}]}
    after = {"tests": [{"name": "a", "prompt": "q", "tools": [{"name": "t", "x": 2}]}]}
    found = compare(before, after)
    assert sorted(paths(found)) == ["tests[a].prompt", "tests[a].tools[t].x"]
    assert parts_of_test(found, "a") == ("prompt", "tools")
    assert parts_of_test(found, "b") == ()


def test_null_and_nothing_are_not_the_same() -> None:
    (change,) = compare({"a": None}, {}).changes
    assert (change.before, change.after) == (None, ABSENT)


def test_an_erased_configuration_is_known_to_be_another_one() -> None:
    found = compared(None, "{}", "aaa", "bbb")
    assert found == SuiteConfig("support", "aaa", "bbb", ())


def test_lists_of_changes_are_bounded() -> None:
    found = compare({f"k{n}": 1 for n in range(700)}, {f"k{n}": 2 for n in range(700)})
    assert (len(found.changes), found.left_out) == (500, 200)
