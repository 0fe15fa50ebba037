"""How each file format spells keys and variables, for messages about them."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.alias_generators import to_snake

from kindlm.dataclass import dataclass

_ALSO = {"adapter": "type", "endpoint": "url", "id": "name"}
"""Other names of agents' keys, in formats with snake case."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of one format.

    Attributes:
        is_snake: Whether keys are in snake case: `timeout_ms` for `timeoutMs`.
        assignment: The form of a key before its value.
        variable: The placeholder for an environment variable.
    """

    is_snake: bool
    assignment: str
    variable: str

    def key(self, name: str) -> str:
        """Return a key of kindlm.yaml in this format."""
        return _ALSO.get(name, to_snake(name)) if self.is_snake else name

    def line(self, name: str, value: str = "") -> str:
        """Return a key with its value, or without one."""
        quoted = value if "{key}:" in self.assignment else f'"{value}"'
        return self.assignment.format(key=self.key(name)) + (f" {quoted}" if value else "")


KINDLM_YAML = Spelling(False, "{key}:", "{{env.NAME}}")
SCENARIO_YAML = Spelling(True, "{key}:", "${env.NAME}")
TOML = Spelling(True, "{key} =", "${env.NAME}")
PYTHON = Spelling(True, '"{key}":', "${env.NAME}")


def fields_of(value: object, names: str) -> dict[str, Any]:
    """Return fields of a value under their names in JSON: `latencyMs` for `latency_ms`."""
    return {name: getattr(value, field) for name, field in _fields(names)}


@cache
def _fields(names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, to_snake(name)) for name in names.split())
