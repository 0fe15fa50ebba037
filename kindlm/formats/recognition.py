"""Recognises the format of a file by its text alone.

Nothing is parsed here: a suite with a syntax error is still a suite, whose error is to be reported,
and no text is too deep or too large to be looked at. A YAML text with a key `kindlm` at its top is
a suite; a YAML or TOML text with `input` or `turns`, and with `thresholds` or with `expected` and a
query, is an EvalView test case, or a list of such; a YAML text with `turns` that hold `says` is a
scenario. A Python text that imports kindlm holds scenarios.

What is nearly a case counts as one, so that its error is reported. Such a text has a `name`, and a
key of cases, or two that are nearly written so, or one of those and a query. Or it has two keys of
cases, and another one or a name that is nearly written so. Upper case is such a slip. What is
nearly a scenario counts likewise: it has no key of cases alone, and `turns` with a name, or two of
`turns`, `persona`, `assertions` and `says`, of which one may be nearly written so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from kindlm.suggestions import suggest

FrontEnd = Literal["kindlm", "evalview", "scenario"]

SUFFIXES = (".yaml", ".yml", ".toml", ".py")
"""Of files that may hold tests."""

_CASE_KEYS = frozenset({"input", "turns", "expected", "thresholds"})
_OF_CASES_ALONE = _CASE_KEYS - {"turns"}
_SCENARIO_KEYS = ("assertions", "persona", "turns")
_OTHER_KEYS = frozenset(
    {"agent", "agents", "cases", "expect", "gates", "model", "models", "prompts", "providers"}
    | {"scenarios", "suite", "tests"}
)
_ELSEWHERE = frozenset({"jobs", "runs", "services", "steps"})
"""Keys of workflows, actions and compositions, which have a name and may have inputs, too."""

_TEST_LIKE = 2
"""So many keys that suites have make a file look like one."""

_USES_KINDLM = re.compile(r"^[ \t]*(?:from|import)[ \t]+kindlm\b", re.MULTILINE)
_SAYS = re.compile(r"""\bsays["']?\s*:""")
_QUERY = re.compile(r"""\bquery["']?\s*[:=]""")
_ANYWHERE = re.compile(r"""(?:^|[\s{,-])["']?([\w-]+)["']?\s*:""", re.MULTILINE)
_TOML_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_TOML_KEY = re.compile(r"""^[ \t]*\[*[ \t]*["']?([\w-]+)["']?[ \t]*[].=]""", re.MULTILINE)
_FLOW = re.compile(r"""\"(?:[^\"\\]|\\.)*+\"|(?<!\w)'[^']*+'|[][{}:]|[\w-]+""")
"""The texts, words and marks of JSON, and of YAML that is written like it."""
_FIRST_ITEM = re.compile(r"(?:[ \t]*(?:#.*|%.*|---[ \t]*)?\r?\n)*(?:--- +)?( *- +)(?=\S)")


def recognised(text: str, suffix: str, *, named: bool = False) -> FrontEnd | None:
    """Return the format of a text; None if it holds no tests.

    Args:
        text: the text, or its beginning.
        suffix: that of the file's name, in lower case.
        named: whether the user named the file, or it has the usual name of a suite. Then a text
            with `tests` at its top is a suite, and a case without `thresholds` and without a query
            counts as one, so that this can be reported.
    """
    if suffix == ".py":
        return "scenario" if _USES_KINDLM.search(text) else None
    is_toml, keys = suffix == ".toml", _keys(text, suffix)
    if not is_toml and "kindlm" in keys and not _FIRST_ITEM.match(text):
        return "kindlm"
    # Messages of a scenario are no queries.
    has_query = _QUERY.search(text) is not None
    asks = "input" in keys or ("turns" in keys and has_query)
    # A case without thresholds is reported, not passed over.
    decides = "thresholds" in keys or ("expected" in keys and (named or has_query))
    if asks and decides:
        return "evalview"
    says = "turns" in keys and _SAYS.search(text) is not None
    if not is_toml and (says or (not has_query and _is_nearly_scenario(text, keys))):
        return "scenario"
    if named and not is_toml and "tests" in keys:
        return "kindlm"
    return "evalview" if _is_nearly_case(keys, has_query=has_query) else None


def looks_like_tests(text: str, suffix: str) -> bool:
    """Tell whether a text that is in no format that is known looks like tests all the same."""
    known = _CASE_KEYS if suffix == ".toml" else _CASE_KEYS | _OTHER_KEYS
    return suffix != ".py" and len(_keys(text, suffix) & known) >= _TEST_LIKE


def has_name(text: str, suffix: str) -> bool:
    """Tell whether a YAML text has a name as cases do, and no key of what else has one."""
    keys = {key.casefold() for key in _keys(text, suffix)}
    return suffix in (".yaml", ".yml") and "name" in keys and not keys & _ELSEWHERE


def _is_nearly_scenario(text: str, keys: set[str]) -> bool:
    everywhere = {key.casefold() for key in _ANYWHERE.findall(text)}
    top = {key.casefold() for key in keys}
    if top & (_ELSEWHERE | _OF_CASES_ALONE):
        return False
    meant = {suggest(key, _SCENARIO_KEYS) for key in top} - {None}
    if any(suggest(key, ["says"]) for key in everywhere):
        meant.add("says")
    if meant == {"turns"} and any(suggest(key, sorted(_OF_CASES_ALONE)) for key in top):
        return False
    right = meant & (top | ({"says"} & everywhere))
    return bool(right) and (len(meant) > 1 or ("turns" in top and "name" in top))


def _is_nearly_case(keys: set[str], *, has_query: bool) -> bool:
    folded, right = {key.casefold() for key in keys}, keys & _CASE_KEYS
    if folded & _ELSEWHERE:
        return False
    if "name" not in folded:
        known = sorted({"name", *_CASE_KEYS} - right)
        # Two keys alone are no case: data sets of other programs have `input` and `expected`.
        return len(right) > 1 and any(suggest(key, known) for key in keys - right)
    meant = {suggest(key, sorted(_CASE_KEYS)) for key in keys} - {None}
    return bool(right) or len(meant) > 1 or (bool(meant) and has_query)


def _keys(text: str, suffix: str) -> set[str]:
    """Return the keys at the top of a text, or of the items of a list there.

    In TOML those of all tables count, apart from a name.
    """
    if suffix == ".toml":
        table = _TOML_TABLE.search(text)
        above = _TOML_KEY.findall(text, 0, len(text) if table is None else table.start())
        is_named = any(key.casefold() == "name" for key in above)
        keys = _TOML_KEY.findall(text)
        return {key for key in keys if is_named or key.casefold() != "name"}
    if text.lstrip()[:1] in ("{", "["):
        return set(_keys_in_flow(text))
    item = _FIRST_ITEM.match(text)
    indent = "" if item is None else rf"(?:{' ' * len(item[1])}|{re.escape(item[1])})"
    key = rf"""^(?:--- +)?{indent}["']?([\w-]+)["']?\s*:(?:\s|$)"""
    return set(re.findall(key, text, re.MULTILINE))


def _keys_in_flow(text: str) -> Iterator[str]:
    """Yield the keys of a text that is JSON, or YAML that is written like it."""
    depth, before, top = 0, "", 1 if text.lstrip().startswith("{") else 2
    for part in _FLOW.findall(text):
        depth += (part in ("{", "[")) - (part in ("}", "]"))
        if part == ":" and depth == top:
            yield before.strip("\"'")
        before = part
