"""Recognises the format of a file by its text, without parsing it.

So a suite with a syntax error is recognised, and its error reported. The formats are:

- a suite: YAML with the key `kindlm` at its top;
- EvalView test cases, one or a list: YAML or TOML with `input` or `turns`, and with `thresholds`,
  or `expected` and a query;
- a scenario: YAML with `turns` that contain `says`;
- scenarios: Python that imports kindlm.

A text with slips in these keys counts, too, so that its errors are reported. A slip is a misspelt
key, or one in upper case. It is a case if it has

- a `name` and a key of cases, or slips of two such keys, or a slip of one and a query;
- or three keys of cases, or slips of them.

It is a scenario if it has no key that only cases have, and `turns` with a `name`, or two of
`turns`, `persona`, `assertions` and `says`, one of which may be a slip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from kindlm.suggestions import suggest

FrontEnd = Literal["kindlm", "evalview", "scenario"]

SUFFIXES = (".yaml", ".yml", ".toml", ".py")
"""The suffixes of files that may hold tests."""

_CASE_KEYS = frozenset({"input", "turns", "expected", "thresholds"})
_OF_CASES_ALONE = _CASE_KEYS - {"turns"}
_SCENARIO_KEYS = frozenset({"assertions", "persona", "turns"})
_OTHER_KEYS = frozenset(
    {"agent", "agents", "cases", "expect", "gates", "model", "models", "prompts", "providers"}
    | {"scenarios", "suite", "tests"}
)
_ELSEWHERE = frozenset({"jobs", "runs", "services", "steps"})
"""Keys of workflows, actions and compositions, which have names and inputs, too."""

_TEST_LIKE = 2
"""The number of keys of suites that make a file look like one."""

_USES_KINDLM = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+kindlm\b|import(?:orskip|_module)\([\"']kindlm\b", re.MULTILINE
)
_SAYS = re.compile(r"""\bsays["']?\s*:""")
_QUERY = re.compile(r"""\bquery["']?\s*[:=]""")
_ANYWHERE = re.compile(r"""(?:^|[\s{,-])["']?([\w-]+)["']?\s*:""", re.MULTILINE)
_TOML_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_TOML_KEY = re.compile(r"""^[ \t]*\[*[ \t]*["']?([\w-]+)["']?[ \t]*[].=]""", re.MULTILINE)
_FLOW = re.compile(r"""\"(?:[^\"\\]|\\.)*+\"|(?<!\w)'[^']*+'|[][{}:]|[\w-]+""")
"""The strings, words and marks of JSON, and of YAML in flow style."""
_FIRST_ITEM = re.compile(r"(?:[ \t]*(?:#.*|%.*|---[ \t]*)?\r?\n)*(?:--- +)?( *- +)(?=\S)")


def recognised(text: str, suffix: str, *, named: bool = False) -> FrontEnd | None:
    """Return the format of a text, or of its beginning; None if it holds no tests.

    If the user `named` the file, or it is called kindlm.yaml, a text with `tests` at its top is a
    suite, and one with `input` and `expected` a case.
    """
    if suffix == ".py":
        return "scenario" if _USES_KINDLM.search(text) else None
    is_toml, keys = suffix == ".toml", _keys(text, suffix)
    if not is_toml and "kindlm" in keys and not _FIRST_ITEM.match(text):
        return "kindlm"
    has_query = _QUERY.search(text) is not None
    asks = "input" in keys or ("turns" in keys and has_query)
    # A case without thresholds has an error, which is reported.
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
    """Tell whether a text of unknown format looks like tests."""
    known = _CASE_KEYS if suffix == ".toml" else _CASE_KEYS | _OTHER_KEYS
    return suffix != ".py" and len(_keys(text, suffix) & known) >= _TEST_LIKE


def has_name(text: str, suffix: str) -> bool:
    """Tell whether a YAML text has a `name`, and no key of other files with names."""
    keys = {key.casefold() for key in _keys(text, suffix)}
    return suffix in (".yaml", ".yml") and "name" in keys and not keys & _ELSEWHERE


def _is_nearly_scenario(text: str, keys: set[str]) -> bool:
    top = {key.casefold() for key in keys}
    if top & (_ELSEWHERE | _OF_CASES_ALONE):
        return False
    meant = _meant(top, _SCENARIO_KEYS)
    everywhere = {key.casefold() for key in _ANYWHERE.findall(text)}
    meant |= _meant(everywhere, {"says"})
    right = meant & (top | ({"says"} & everywhere))
    return {"turns", "name"} <= top or (bool(right) and len(meant) > 1)


def _is_nearly_case(keys: set[str], *, has_query: bool) -> bool:
    top = {key.casefold() for key in keys}
    if top & _ELSEWHERE:
        return False
    meant = _meant(top, _CASE_KEYS)
    if "name" in top:
        return bool(top & _CASE_KEYS) or len(meant) > (0 if has_query else 1)
    # Data sets of other programs have `input` and `expected`, too.
    return len(meant) > 2


def _meant(keys: Iterable[str], known: Collection[str]) -> set[str]:
    """Return the known keys that the keys are, or are slips of."""
    return {meant for key in keys if (meant := suggest(key, sorted(known))) is not None}


def _keys(text: str, suffix: str) -> set[str]:
    """Return the keys at the top of a text, or of the items in a list there.

    In TOML, keys in tables count, too, except for `name`.
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
    """Yield the keys at the top of JSON, or of YAML in flow style."""
    depth, before, top = 0, "", 1 if text.lstrip().startswith("{") else 2
    for part in _FLOW.findall(text):
        depth += (part in ("{", "[")) - (part in ("}", "]"))
        if part == ":" and depth == top:
            yield before.strip("\"'")
        before = part
