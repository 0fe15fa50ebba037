"""Reads the suites of both sides, and compares their configurations, in terms of the file."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.history.diff.call_changes import ChangedValue
from kindlm.history.diff.evidence_values import CheckKey
from kindlm.history.queries import body_of, value_of
from kindlm.history.run_view import RunView
from kindlm.matching import ABSENT, equal
from kindlm_store import REDACTED

_NAMES = ("name", "id", "tool", "criteria", "ready", "function")
"""Keys that name an item of a list, so that items are compared by name and not by position."""

_MOST_CHANGES = 500
_MOST_DEPTH = 12


@dataclass(frozen=True, slots=True)
class SuiteConfig:
    """How the configuration of a suite changed; `left_out` counts changes beyond the first 500."""

    suite: str
    before: str
    after: str
    changes: tuple[ChangedValue, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of a file; files with the same suite name form one suite.

    `parts` are its ids in all shards, `ordinal` is the place of the file in its run. `broken` is
    whether this file could not be loaded, `unread` whether another file of the suite could not.
    Drift was measured against `baseline_run`.
    """

    parts: tuple[str, ...]
    ordinal: int
    project: str | None
    name: str
    path: str
    config_hash: str | None
    config_ref: str | None
    broken: bool
    baseline_run: str | None
    servers: str | None
    unread: bool


def read_suites(view: RunView) -> Iterator[Suite]:
    """Yield the suites of a run, or of the shards of a group, file by file, in order."""
    for row, parts in view.suite_rows:
        ids = tuple(part["id"] for part in parts)
        unread = any(part["unread"] not in (None, "[]") for part in parts)
        broken = row["error_code"] is not None
        yield value_of(Suite, row, parts=ids, broken=broken, unread=unread)


def compare_configs(db: sqlite3.Connection, before: Suite, after: Suite) -> SuiteConfig | None:
    """Compare the configurations of a file and its MCP servers; None if they are the same.

    If a text is erased, withheld or redacted, or a side was imported, only the hashes are compared.
    """
    found: list[ChangedValue] = []
    if before.servers != after.servers:
        from kindlm.history.recorded_attempts import read_servers  # loads asyncio

        old, new = (
            {listed.server: listed.tools for listed in read_servers(db, side.servers)}
            for side in (before, after)
        )
        for name in old:
            if name in new:
                found += _changes(f"mcp[{name}].tools", old[name], new[name], 0)
    if before.config_hash != after.config_hash:
        was, now = body_of(db, before.config_ref), body_of(db, after.config_ref)
        if was and now and {REDACTED, "{}"}.isdisjoint((was, now)):
            found += _changes("", _document(was), _document(now), 0)
    elif not found:
        return None
    hashes = before.config_hash or "", after.config_hash or ""
    left_out = max(len(found) - _MOST_CHANGES, 0)
    return SuiteConfig(after.name, *hashes, tuple(found[:_MOST_CHANGES]), left_out)


def parts_of_test(config: SuiteConfig | None, test: str) -> tuple[str, ...]:
    """Return the changed parts of a test's own definition, such as `expect` and `tools`."""
    if config is None:
        return ()
    part = re.compile(re.escape(f"tests[{test}].") + r"([^.[]*)")
    found = (part.match(change.path) for change in config.changes)
    return tuple(sorted({match[1] for match in found if match}))


_WRITTEN_IN = {
    "tool_called": "toolCalls",
    "tool_not_called": "toolCalls",
    "judge": "judge",
    "schema": "output",
    "trajectory": "trajectory",
    "pii": "guardrails",
    "drift": "baseline",
    "similar_to": "output.similarTo",
    "python": "python",
}
"""The sections of `expect` with checks whose labels do not say everything that they demand.

For other kinds, such as those of packages, the section may have the name of the kind.
"""

_TURN = re.compile(r"turn \d+: ")
_ROW = re.compile(r" \[[^\]]*\]$")


def is_other_demand(
    config: SuiteConfig | None, before: Suite, after: Suite, test: str, check: CheckKey
) -> bool:
    """Return whether a check with the same label demands something else, by the configuration.

    With more than 500 changes, this is assumed of checks whose label does not say everything. If
    the texts are gone or withheld, as on most history servers, checks with the same label count as
    the same, so that no drop is hidden.
    """
    if check.kind == "drift" and before.baseline_run != after.baseline_run:
        return True
    turn, section = _TURN.match(check.label), _WRITTEN_IN.get(check.kind)
    if config is None or (section is None and turn):
        return False
    if section is not None and config.left_out:
        return True
    name = check.label[turn.end() :] if turn else check.label
    # Follow-up messages have no names, so a conversation is compared as a whole.
    place = "conversation" if turn else f"expect.{section or check.kind}"
    if section in ("toolCalls", "judge", "python") and not turn and "…" not in name:
        place = f"{place}[{name}]"
    places = [f"tests[{known}].{place}" for known in (test, _ROW.sub("", test))]
    if section == "judge":
        places.append("defaults.judgeModel")
    if check.kind in ("schema", "python"):
        places.append(f"files.{name.rpartition(':')[0] or name}")
    return any(_overlap(change.path, place) for change in config.changes for place in places)


def _overlap(one: str, other: str) -> bool:
    """Return whether two places are the same, or one is in the other."""
    outer, inner = sorted((one, other), key=len)
    return inner.startswith(outer) and inner[len(outer) :][:1] in ("", ".", "[")


def _document(text: str) -> Any:
    """Return a recorded configuration as one document, with the keys of the file at the top."""
    recorded = json.loads(text)
    if not isinstance(recorded, dict) or not isinstance(recorded.get("config"), dict):
        return recorded
    files = recorded.get("files")
    return recorded["config"] | ({"files": files} if files else {})


def _changes(path: str, before: Any, after: Any, depth: int) -> Iterator[ChangedValue]:
    if before is after:
        return
    by_key = isinstance(before, dict) and isinstance(after, dict)
    old, new = (before, after) if by_key else (_named(before), _named(after))
    if depth < _MOST_DEPTH and old is not None and new is not None:
        for key in dict.fromkeys([*old, *new]):
            place = f"{path}.{key}" if path else key
            if not by_key:
                place = f"{path}[{key}]"
            yield from _changes(place, old.get(key, ABSENT), new.get(key, ABSENT), depth + 1)
    elif ABSENT in (before, after) or not equal(before, after):
        yield ChangedValue(path, before, after)


def _named(value: Any) -> dict[str, Any] | None:
    """Return the items of a list by name; None if not all items have different names."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    items: dict[str, Any] = {}
    for item in value:
        name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
        if name is None or name in items:
            return None
        items[name] = item
    return items
