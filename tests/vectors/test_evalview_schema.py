"""Which EvalView cases are valid, and what is wrong with the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from vector_cases import Departure, known

from kindlm.formats.evalview import Surroundings, load_folder

LISTS: Final = ("contains", "not_contains", "regex_patterns")
SHARES: Final = {"hallucination": "confidence_threshold"}


def ill_typed(case: dict[str, Any]) -> list[str]:
    """Return the fields of blocks whose values are of another type, or out of their range."""
    expected = case["input"]["expected"]
    output = expected.get("output", {})
    lists = [f"expected.output.{name}" for name in LISTS if isinstance(output.get(name), str)]
    shares = [
        f"expected.{block}.{name}"
        for block, name in SHARES.items()
        if not 0 <= expected.get(block, {}).get(name, 0) <= 1
    ]
    return [*lists, *shares]


def is_printable_name(case: dict[str, Any]) -> bool:
    name = case["input"]["name"]
    errors = {error["field"] for error in case["expected"]["errors"]}
    return errors == {"name"} and name.isprintable() and bool(name.strip()) and len(name) <= 200


DEPARTURES: Final = (
    Departure(
        "a name may hold any printable character",
        is_printable_name,
        lambda case: {
            "valid": True,
            "errors": ...,
            "normalized": {"min_score": case["input"]["thresholds"]["min_score"]},
        },
    ),
    Departure(
        "an ill-typed block is an error with its field",
        lambda case: case["expected"]["valid"] and bool(ill_typed(case)),
        lambda case: {
            "valid": False,
            "errors": [{"field": field} for field in ill_typed(case)],
            "normalized": ...,
        },
    ),
)


@pytest.mark.vectors("evalview.jsonl", "schema", departures=DEPARTURES)
def test_schema(vector: dict[str, Any], tmp_path: Path) -> None:
    # JSON is YAML. Where the agent is belongs to the project there.
    file = tmp_path / "case.yaml"
    file.write_text(json.dumps(vector["input"]), "utf-8")
    folder = tmp_path / ".evalview"
    folder.mkdir()
    (folder / "config.yaml").write_text("endpoint: http://127.0.0.1:9/ask\n", "utf-8")
    loaded = load_folder(tmp_path, [file], Surroundings(tmp_path, "shop", {}))
    suites = [item.suite for item in loaded if item.suite is not None]
    errors = [found for item in loaded for found in item.diagnostics if found.severity == "error"]
    expected = vector["expected"]
    assert bool(suites) is expected["valid"], errors
    if expected["valid"]:
        _check_normalized(suites[0].cases[0], expected.get("normalized", {}))
        return
    paths = [found.path for found in errors]
    for wanted in expected["errors"]:
        field = wanted["field"]
        assert any(path == field or path.startswith(f"{field}[") for path in paths), paths
    assert len(errors) == len(expected["errors"])


def _check_normalized(case: Any, normalized: dict[str, Any]) -> None:
    known(normalized, "tags", "min_score")
    if "tags" in normalized:
        assert list(case.tags) == normalized["tags"]
    (score,) = [found for found in case.expectations if found.kind == "weighted_score"]
    if "min_score" in normalized:
        assert score.check.min_score == normalized["min_score"]
