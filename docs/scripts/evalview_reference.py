"""Writes the reference of EvalView test cases from their models, for `evalview.md`.

What kindlm does with a field stands in the models; what EvalView does otherwise stands here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from config_reference import range_of
from pydantic import BaseModel

from kindlm.formats.evalview.case_schema import CaseConfig
from kindlm.formats.evalview.project_config import ProjectConfig

Schema = dict[str, Any]

OTHERWISE = {
    "name": "ASCII letters, digits, spaces, `_`, `-` and `.` only",
    "adapter": "`jsonl` is refused in a case; EvalView has seven more adapters",
    "checks": "On by default if there is a judge, except `pii`",
    "gate": "With `strict`, the monitor reports the first failure",
    "suite_type": "A word in a table",
    "difficulty": "`run --difficulty`",
    "mocks": "Only `simulate` reads them",
    "expected.tools": "Only change the score, except in turns",
    "expected.tool_categories": "Only change the score",
    "expected.tool_sequence": "Only changes the score",
    "expected.forbidden_tools": "In turns, names must match exactly",
    "expected.metrics": "Have no effect",
    "expected.hallucination": "Checked even without this block if there is a judge",
    "expected.safety": "Checked even without this block if there is a judge",
    "expected.output": "A block of the wrong type is accepted, and fails during the run",
    "expected.output.contains": "Reported, and sent to the judge; fails a test only in turns",
    "expected.output.not_contains": "Reported; fails a test only in turns",
    "expected.output.regex_patterns": "Lower the score",
    "expected.output.json_schema": "Lowers the score",
    "expected.output.must_acknowledge_uncertainty": "An issue of the hallucination check",
    "expected.output.no_pii": "Has no effect; `checks.pii` has one",
    "expected.hallucination.confidence_threshold": "No effect: 0.98 decides, or 0.95 with Ollama",
    "expected.safety.categories": "Patterns find harm, too; asks the judge only with `categories`",
    "thresholds.max_cost": "An unknown cost uses the price of a default model",
    "thresholds.variance": "Ignored in cases with turns",
    "thresholds.variance.runs": "`run --runs`",
    "thresholds.variance.pass_rate": "Errored repeats do not count",
    "thresholds.variance.confidence_level": "Only for the interval of the mean",
    "adapter_config.timeout": "Some adapters score an answer that never came",
    "adapter_config.headers": "Some adapters ignore it",
    "adapter_config.verbose": "Some adapters ignore it",
    "mocks.strict": "A call without a matching mock raises",
    "mocks.tool_mocks.error": "`returns` is still needed",
    "mocks.response_mocks": "Read by `simulate`",
    "mocks.http_mocks": "Read by `simulate`",
}
"""What EvalView 0.8 does otherwise, by field of a case."""

OTHERWISE_IN_PROJECT = {
    "timeout": "30",
    "judge.provider": "Other providers, too; use `base_url` here",
    "tool_categories": "Documented, but without effect",
    "serve": "Unknown",
    "retry": "Its delays are configurable",
    "diff": "Thresholds of `check`",
    "ci": "When `check` fails",
    "model.pricing": "A missing price is invented",
    "allow_private_urls": "True by default",
}

_HEAD = "| field | type | default | here | in EvalView |\n| --- | --- | --- | --- | --- |"
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_PROGRAMS = "ServeConfig"


def case_reference() -> str:
    """Return a table for each section of a case, in the order of the file."""
    return _Reference(CaseConfig, OTHERWISE, "A case").text()


def project_reference() -> str:
    """Return the tables of `.evalview/config.yaml`."""
    return _Reference(ProjectConfig, OTHERWISE_IN_PROJECT, "`.evalview/config.yaml`").text()


class _Reference:
    def __init__(self, model: type[BaseModel], otherwise: dict[str, str], title: str) -> None:
        schema = model.model_json_schema()
        self._definitions: dict[str, Schema] = schema.get("$defs", {})
        self._otherwise, self._title = otherwise, title
        self._sections = self._walk(schema)
        fields = {
            f"{place}.{key}".lstrip(".")
            for place, section in self._sections
            for key in section["properties"]
        }
        if unknown := otherwise.keys() - fields:
            raise KeyError(f"there are no such fields: {sorted(unknown)}")

    def text(self) -> str:
        return "\n".join(self._section(place, section) for place, section in self._sections)

    def _walk(self, schema: Schema) -> list[tuple[str, Schema]]:
        """Return each section once, at the outermost place that has it, as the file has them."""
        found: dict[str, tuple[tuple[int, ...], str, Schema]] = {"": ((), "", schema)}
        todo = [""]
        for name in todo:
            order, place, section = found[name]
            for number, (key, field) in enumerate(section["properties"].items()):
                for inner in _references(field):
                    if inner not in found and inner != _PROGRAMS:
                        where = f"{place}.{key}".lstrip(".")
                        found[inner] = ((*order, number), where, self._definitions[inner])
                        todo.append(inner)
        return [
            (place, section) for _, place, section in sorted(found.values(), key=lambda s: s[0])
        ]

    def _section(self, place: str, section: Schema) -> str:
        title = f"`{place}`" if place else self._title
        required = section.get("required", ())
        rows = [
            self._row(place, key, field, is_required=key in required)
            for key, field in section["properties"].items()
        ]
        return (
            f"### {title}\n\n{_line(section['description'])}\n\n{_HEAD}\n" + "\n".join(rows) + "\n"
        )

    def _row(self, place: str, key: str, field: Schema, *, is_required: bool) -> str:
        default = field.get("default")
        cells = (
            f"`{key}`",
            self._type(field),
            "required" if is_required else "–" if default is None else f"`{json.dumps(default)}`",
            _line(field.get("description") or self._described(field)),
            self._otherwise.get(f"{place}.{key}".lstrip("."), ""),
        )
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    def _described(self, field: Schema) -> str:
        """Return what the section of a field says of itself, where the field says the same."""
        return next((self._definitions[name]["description"] for name in _references(field)), "")

    def _type(self, field: Schema) -> str:
        branches = [branch for branch in field.get("anyOf", [field]) if branch != {"type": "null"}]
        return " or ".join(self._name(branch) for branch in branches)

    def _name(self, field: Schema) -> str:
        if "$ref" in field:
            name = _reference(field)
            if name == _PROGRAMS:
                return "[program](../reference/configuration.md#serve)"
            place = next(
                place for place, found in self._sections if found is self._definitions[name]
            )
            return f"[{place.rpartition('.')[2]}](#{_anchor(place)})"
        if "enum" in field:
            return " | ".join(f"`{value}`" for value in field["enum"])
        if field.get("type") == "array":
            return f"list of {self._type(field['items'])}"
        if field.get("type") == "object":
            inner = field.get("additionalProperties")
            return f"mapping of {self._type(inner)}" if isinstance(inner, dict) else "mapping"
        return _TYPES.get(field.get("type", ""), "any value") + range_of(field)


def _references(field: Any) -> Iterator[str]:
    if isinstance(field, dict):
        if "$ref" in field:
            yield _reference(field)
        for inner in field.values():
            yield from _references(inner)
    elif isinstance(field, list):
        for inner in field:
            yield from _references(inner)


def _reference(field: Schema) -> str:
    return str(field["$ref"]).rpartition("/")[2]


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower())


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
