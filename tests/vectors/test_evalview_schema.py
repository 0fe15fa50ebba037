"""Which EvalView cases are valid, and what is wrong with the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kindlm.formats.evalview import EvalviewConfigs, Surroundings, load_folder

DEPARTURES = {
    "schema-name-slash": "a name may hold any printable character",
    "schema-hallucination-threshold-oob": "an ill-typed block is an error with its field",
    "schema-output-contains-scalar": "an ill-typed block is an error with its field",
}


@pytest.mark.vectors("evalview.jsonl", "schema", departures=DEPARTURES)
def test_schema(vector: dict[str, Any], tmp_path: Path) -> None:
    # JSON is YAML. Where the agent is belongs to the project there.
    file = tmp_path / "case.yaml"
    file.write_text(json.dumps(vector["input"]), "utf-8")
    folder = tmp_path / ".evalview"
    folder.mkdir()
    (folder / "config.yaml").write_text("endpoint: http://127.0.0.1:9/ask\n", "utf-8")
    configs = EvalviewConfigs(tmp_path, {})
    around = Surroundings(tmp_path, "shop", {})
    loaded = load_folder(tmp_path, [file], configs.of(tmp_path), around)
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
    if "tags" in normalized:
        assert list(case.tags) == normalized["tags"]
    (score,) = [found for found in case.expectations if found.kind == "weighted_score"]
    assert score.params["minScore"] == normalized["min_score"]
