"""Validates JSON values as a pydantic model, and reports every error at its place in the file."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kindlm.config.diagnostics import Reporter
from kindlm.config.long_form import ALONE, keys_at, keys_of
from kindlm.config.schema import KindlmConfig
from kindlm.dataclass import dataclass
from kindlm.document import Path, dotted
from kindlm.packages import IF_PROVIDED, all_own, installed, is_own, options_of_package
from kindlm.plugins import Check, Provider
from kindlm.section import Described
from kindlm.suggestions import ENDED, did_you_mean, hint_for, meant_by, suggest, words_for
from kindlm.values import TAGS
from kindlm.wording import count, cut, printable
from kindlm.yaml_document import ScalarError, resolve_plain

M = TypeVar("M", bound=Described)

_SHAPES = ("dict_type", "model_type", "model_attributes_type", "list_type")
_IN_MODELS = "Tested models belong in `models`, such as `models: [openai/gpt-4o]`"
_FIRST_TEST = "Add `tests:` with a first test. In another folder, kindlm init writes a suite"


def report_no_mapping(value: Any, reporter: Reporter) -> None:
    """Report a file that holds no mapping."""
    if value is None:
        reporter.error((), "The file is empty", _FIRST_TEST)
        return
    message = f"The file must hold a mapping, but is {kind_of(value)}"
    reporter.error((), message, "Begin with `kindlm: 1`")


def fit(
    model: type[M],
    value: Any,
    reporter: Reporter,
    *,
    tolerant: bool = False,
    at: Path = (),
    also_known: Collection[str] = (),
) -> M | None:
    """Return a mapping as a model, or None after reporting all that does not fit.

    The mapping is at the path `at` of the file, and its keys are spelled as there. If `tolerant`,
    unknown keys are left out with a warning. `also_known` are further keys for "did you mean".
    """
    spelled = {key: reporter.spelling.key(key) for key in keys_of(model)}
    if isinstance(value, dict):
        meant = {written: key for key, written in spelled.items()}
        value = {meant.get(key, key): item for key, item in value.items()}
    try:
        return model.model_validate(value) if is_own(model) else options_of_package(model, value)
    except ValidationError as error:
        # Unknown keys first: one of them may be a misspelt missing key.
        found = error.errors(include_url=False)
    found.sort(key=lambda details: details["type"] != "extra_forbidden")
    missing = [_place(details) for details in found if details["type"] == "missing"]
    misfits = _Misfits(model, reporter, tolerant, at, also_known, spelled, missing)
    for details in found:
        misfits.report(details)
    if not tolerant or any(details["type"] != "extra_forbidden" for details in found):
        return None
    # pydantic may find more once these keys are gone, but no further unknown key.
    known = copy.deepcopy(value)
    for *above, key in map(_place, found):
        del reduce(getitem, above, known)[key]
    return fit(model, known, reporter, at=at, also_known=also_known)


def _place(details: ErrorDetails) -> Path:
    return tuple(part for part in details["loc"] if part not in TAGS)


@dataclass(frozen=True, slots=True)
class _Misfits:
    """Reports the errors that pydantic found; see `fit` for the common fields.

    Attributes:
        spelled: how the file spells the keys of the model.
        missing: the places of required keys that are absent.
    """

    model: type[Described]
    reporter: Reporter
    tolerant: bool
    at: Path
    also_known: Collection[str]
    spelled: Mapping[str, str]
    missing: Collection[Path]

    def report(self, details: ErrorDetails) -> None:
        place = _place(details)
        kind, given, context = details["type"], details["input"], details.get("ctx", {})
        if context.get("key") is not None:
            place = (*place, context["key"])
        path = (*self.at, *self._written(place[:1]), *place[1:])
        if kind == "extra_forbidden":
            self._unknown_key(path, place, given)
        elif kind == "missing":
            self._missing_key(path, place, given)
        else:
            message, hint = _describe(kind, given, context, details["msg"])
            if given is None and kind != "refused":
                message, hint = "is empty", "Write a value, or remove it"
            is_nested = kind == "string_type" and isinstance(given, (list, dict))
            if is_nested or (kind in _SHAPES and given is not None):
                # Where an entry is wrong, an example of its list shows more.
                is_entry = place and isinstance(place[-1], int)
                shown = _example(self.model, place[:-1] if is_entry else place)
                hint = f"For example: `{shown}`" if shown else None
                if place == ("providers",) and given:
                    hint = _IN_MODELS
            message = f"{self.reporter.place(path)} {message}"
            self.reporter.error(path, message, hint, secret=context.get("secret", False))

    def _written(self, keys: Iterable[str | int]) -> list[str]:
        return [self.spelled.get(str(key), str(key)) for key in keys]

    def _missing_key(self, path: Path, place: Path, given: Any) -> None:
        shown = _example(self.model, place) or ""
        is_nested = shown.endswith(("}", "]"))
        instead = f", such as `{shown}`" if is_nested and self.model is KindlmConfig else ""
        if path[-1] == "provider" and len(place) > 1 and place[0] == "models":
            instead = ", or name it in the model: `openai/gpt-4o`"
            named, _, model_name = str(given.get("model")).partition("/")
            if named and model_name:
                known = all_own(Provider)
                hint = did_you_mean(named, known) or f"Known providers: {', '.join(known)}"
                self.reporter.error(path, f'Unknown provider "{named}"', ENDED.get(named, hint))
                return
        self.reporter.missing_key(path, instead)

    def _unknown_key(self, path: Path, place: Path, given: Any) -> None:
        model, reporter, name = self.model, self.reporter, str(path[-1])
        where = reporter.place(path[:-1])
        known = [*keys_at(model, place[:-1])]
        missing = [str(each[-1]) for each in self.missing if each[:-1] == place[:-1]]
        if len(place) == 1:
            known, missing = [*self._written(known), *self.also_known], self._written(missing)
        if name in known:
            message = f"`{name}` in {where} means the same as another key here"
            reporter.error(path, message, "Remove one of them", at_key=True)
            return
        elsewhere, more = None, ""
        if model is KindlmConfig and len(path) == 1 and name in ALONE:
            plural = ALONE[name]
            message = f"`{name}` cannot be combined with `{plural}`"
            reporter.error(path, message, f"Write all entries into `{plural}`", at_key=True)
            return
        # In the formats of other programs, a key is more often misspelt than misplaced.
        if model is KindlmConfig or self.at[:1] in (("agents",), ("providers",)):
            elsewhere = place_of(KindlmConfig, path)
        elif self.tolerant and meant_by(str(place[-1]), known) is None:
            elsewhere = place_of(model, place)
        if path[-2:-1] == ("expect",) and model is KindlmConfig:
            known = [*installed(Check.group), *known]
            more = IF_PROVIDED
        message = f'Unknown key "{name}"' + (f" in {where}" if where else "")
        hint = elsewhere or hint_for(name, known, "Known keys", more)
        if self.tolerant:
            reporter.warning(path, message, hint, reason="unknown_key")
            return
        meant = meant_by(name, known, is_elsewhere=elsewhere is not None)
        if meant == "vars" and not isinstance(given, dict):
            # Variables are a mapping: `inputs: Hi` is a misspelt `input`.
            meant = suggest(name, [key for key in known if key != meant]) or meant
        if meant is None and elsewhere is None:
            # A key that is absent may resemble it less than others.
            meant = suggest(name, missing, one_in=2)
        if meant is not None:
            reporter.meant.add((*path[:-1], meant))
            shown = _example(model, (*place[:-1], meant))
            # The shape of a key that other tools call so may differ.
            example = f" For example: `{shown}`" if shown and meant in words_for(name) else ""
            hint = f'Did you mean "{meant}"?{example}'
        reporter.error(path, message, hint, at_key=True)


_DEPTH = 4
"""How many levels below its place an unknown key is searched for."""

_SHORT = {
    "agents": "agent: http://localhost:8000/chat",
    "models": "model: openai/gpt-4o",
    "tests": "tests: [{name: greets, input: Hi, expect: {output: {contains: hello}}}]",
}
"""Examples of the keys that most files begin with, in short forms."""


def place_of(model: type[Described], place: Path) -> str | None:
    """Return the hint where an unknown key, or our word for it, can stand.

    That is below, above or, for settings of all tests, in `defaults`.
    """
    above, names = place[:-1], (str(place[-1]), *words_for(str(place[-1])))
    found: list[Path] = []
    todo: list[Path] = [()]
    for path in todo:  # which grows
        keys = keys_at(model, (*above, *path))
        found += [(*path, name) for name in names if name in keys]
        if len(path) < _DEPTH:
            todo += [each for part in keys for each in ((*path, part), (*path, part, 0))]
    if found:
        # The nearest place; of equally near ones, one for all tests rather than for one test.
        best = min(found, key=lambda it: (sum(isinstance(part, str) for part in it), len(it)))
        # In flow style: `output: {contains: …}`.
        flow = "…"
        for part in reversed(best):
            flow = f"[{flow}]" if isinstance(part, int) else f"{{{part}: {flow}}}"
        return f"Did you mean `{flow[1:-1]}`?"
    for length in range(len(above) - 1, -1, -1):
        # Other tools' words mean less the farther away they are.
        near = sum(isinstance(part, str) for part in above[length:]) == 1
        for name in names if near else names[:1]:
            if name in keys_at(model, above[:length]):
                beside = f"in {dotted(above[:length])}" if length else "at the top of the file"
                return f"Write `{name}:` {beside}, beside `{above[length]}`"
    settings = keys_at(model, ("defaults",))
    of_all = next((name for name in names if name in settings), None)
    return of_all and f"Write `{of_all}:` in `defaults`: it is for all tests"


def _example(model: type[Described], place: Path) -> str | None:
    """Return a key with the example of its value; None if it has no example."""
    if len(place) == 1 and place[0] in _SHORT:
        return _SHORT[str(place[0])]
    keys = keys_at(model, place[:-1])
    if place and isinstance(place[-1], str) and not keys:
        return _example(model, place[:-1])  # a name that the user chose
    key = keys.get(str(place[-1])) if place else None
    if key is None or not key.field.examples:
        return None
    text = json.dumps(key.field.examples[0], ensure_ascii=False, default=str)
    return f"{place[-1]}: {_QUOTED.sub(lambda word: word[1], text)}"


_QUOTED = re.compile(r'"([A-Za-z][\w-]*)"')


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_RANGES = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "too_short": ("", "min_length"),
    "too_long": ("", "max_length"),
}
_PER_CENT = 100
_MAX_VALUE = 61


def _describe(kind: str, given: Any, context: dict[str, Any], text: str) -> tuple[str, str | None]:
    """Return the message and the hint of an error of pydantic, `text` in its own words."""
    if kind == "refused":
        return context.get("message", text), context.get("hint")
    if kind in ("value_error", "assertion_error"):
        return f"is refused: {printable(str(context.get('error', text)))}", None
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, but is {kind_of(given)}", _type_hint(kind, given)
    if kind in ("literal_error", "enum"):
        choices = context["expected"].replace(" or ", ", ").split(", ")
        choices = [choice.strip("'") for choice in choices]
        if not isinstance(given, str) or len(choices) == 1:
            return f"must be {' or '.join(choices)}, but is {kind_of(given)}", None
        message = f"must be one of {', '.join(choices)}, but is {_shown(given)}"
        return message, did_you_mean(given, choices)
    if kind == "string_too_short" or (kind == "too_short" and given == ""):
        return "must not be empty", None
    if kind == "string_pattern_mismatch":
        return "may hold letters, digits and _ only", None
    if kind in _RANGES:
        return _describe_range(kind, given, context)
    # Types of packages have further kinds of errors.
    return f"has an invalid value: {_shown(given)}", printable(text)


def _type_hint(kind: str, given: Any) -> str | None:
    """Return how to write the value with the right type; None if it has no such form."""
    if kind == "string_type" and isinstance(given, (bool, int, float)):
        return "Put it in quotes to make it a string"
    if isinstance(given, str):
        if kind.startswith("bool_") and given.lower() in _BOOLEANS_OF_YAML_1_1:
            return f"Write {_BOOLEANS_OF_YAML_1_1[given.lower()]}"
        with suppress(ScalarError):
            if isinstance(resolve_plain(given), (bool, int, float)):
                return "Write it without quotes"
    return None


_BOOLEANS_OF_YAML_1_1 = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def _describe_range(kind: str, given: Any, context: dict[str, Any]) -> tuple[str, str | None]:
    words, name = _RANGES[kind]
    bound, hint = context[name], None
    if kind == "too_short":
        has = f"has {len(given)}" if given else "is empty"
        return f"must have at least {count(bound, 'entry', 'entries')}, but {has}", None
    if kind == "too_long":
        return f"has {len(given):,} entries, but {bound:,} is the most", None
    if context.get("le") == 1 and isinstance(given, (int, float)) and 1 < given <= _PER_CENT:
        hint = f"It is a share from 0 to 1: write {given / _PER_CENT:g} for {given:g} %"
    return f"must be {words} {_number(bound)}, but is {_shown(given)}", hint


def kind_of(value: Any) -> str:
    """Return what a value is, for messages: `the number 7`, `a list`."""
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {cut(repr(value), _MAX_VALUE)}"
        case str():
            return f"the text {_shown(value)}"
        case list():
            return "a list"
        case None:
            return "empty"
    return "a mapping"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{cut(value, _MAX_VALUE)}"'
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _number(value) if is_number else kind_of(value)


def _number(value: float) -> str:
    return cut(str(value) if isinstance(value, int) else f"{value:g}", _MAX_VALUE)
