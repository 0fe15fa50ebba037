"""The configuration of a suite, and `{{name}}` in its templates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kindlm.config import Diagnostic, LoadedSuite, bind_suite, load_suite
from kindlm.config.files import safe_path
from kindlm.errors import Ok
from kindlm.suggestions import suggest

DEPARTURES = {
    "config-036": "turns have no labels: the unknown key is the error, at its own place",
    "config-041": "unknown keys are errors",
    "config-044": "http is no provider of a suite: PROVIDER_NOT_FOUND",
    "config-065": "a file that is not there is CONFIG_FILE_REF_ERROR",
    "config-069": "a file that is not there is CONFIG_FILE_REF_ERROR",
    "config-082": "a name that shares no letter is no suggestion",
    "interpolation-010": "{{env.NAME}} is an error when NAME is not set",
}

REASONS = {
    "schema": "schema",
    "unknown_prompt": "unknown_prompt",
    "unknown_model": "unknown_model",
    "unknown_judge_model": "unknown_judge_model",
    "duplicate_model_id": "duplicate_model",
    "duplicate_test_name": "duplicate_test",
    "provider_not_configured": "provider_not_configured",
    "file_not_found": "file",
}

MINIMAL: dict[str, Any] = {
    "kindlm": 1,
    "project": "proj",
    "suite": {"name": "suite"},
    "providers": {"openai": {"apiKeyEnv": "OPENAI_API_KEY"}},
    "models": [{"id": "m", "provider": "openai", "model": "m"}],
    "prompts": {"p": {"user": "Hello"}},
    "tests": [{"name": "t", "prompt": "p", "expect": {}}],
}


@pytest.mark.vectors("suite.jsonl", "config", departures=DEPARTURES)
def test_config(vector: dict[str, Any], tmp_path: Path) -> None:
    given, expected = vector["input"], vector["expected"]
    if "candidates" in given:
        assert suggest(given["input"], given["candidates"]) == expected["suggestion"]
    elif "relative" in given:
        _check_path(given, expected)
    else:
        loaded = _load(_text(given), tmp_path, given.get("files", {}))
        errors = [item for item in loaded.diagnostics if item.severity == "error"]
        assert bool(loaded.suite) is expected["ok"], errors
        if expected["ok"]:
            _check_resolved(loaded, expected)
        else:
            _check_errors(errors, expected)


@pytest.mark.vectors("suite.jsonl", "interpolation", departures=DEPARTURES)
def test_interpolation(vector: dict[str, Any], tmp_path: Path) -> None:
    given, expected = vector["input"], vector["expected"]
    # As the system text: that of the user must not be empty.
    prompts = {"p": {"user": "Hello", "system": given["template"]}}
    test = {"name": "t", "prompt": "p", "vars": given["vars"], "expect": {}}
    loaded = _load(json.dumps({**MINIMAL, "prompts": prompts, "tests": [test]}), tmp_path, {})
    if not expected["ok"]:
        [error] = [item.error for item in loaded.diagnostics if item.severity == "error"]
        assert error.code.name == expected["code"]
        assert error.details["missing"] == expected["missing"]
        return
    assert loaded.suite
    bound = bind_suite(loaded.suite, environ=given.get("env", {}), ports={})
    assert isinstance(bound, Ok)
    assert bound.value.cases[0].prompt.system == expected["text"]


def _text(given: Mapping[str, Any]) -> str:
    if "yaml" in given:
        return str(given["yaml"])
    if "generator" in given:
        test = MINIMAL["tests"][0]
        tests = [{**test, "name": f"t{i}"} for i in range(given["generator"].get("tests", 1))]
        models = [
            {"id": f"m{i}", "provider": "openai", "model": "m"}
            for i in range(given["generator"].get("models", 1))
        ]
        return json.dumps({**MINIMAL, "tests": tests, "models": models})
    # JSON is YAML.
    return json.dumps(given["config"], ensure_ascii=False, indent=1)


def _load(text: str, folder: Path, files: Mapping[str, str]) -> LoadedSuite:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (folder / "kindlm.yaml").write_text(text, encoding="utf-8")
    return load_suite(folder / "kindlm.yaml", root=folder)


def _check_path(given: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    path = safe_path(Path(given["base"]), given["relative"])
    assert isinstance(path, Ok) is expected["ok"]
    if isinstance(path, Ok):
        assert path.value == Path(expected["path"])


def _check_resolved(loaded: LoadedSuite, expected: Mapping[str, Any]) -> None:
    assert loaded.suite
    config = json.loads(loaded.suite.config_text)["config"]
    config = {**config, "params": config["models"][0]["params"], "test": config["tests"][0]}
    resolved = expected.get("resolved", {})
    assert any(_holds(resolved, part) for part in _parts(config))


def _parts(value: Any) -> Iterator[Any]:
    yield value
    for child in value.values() if isinstance(value, dict) else ():
        yield from _parts(child)
    for child in value if isinstance(value, list) else ():
        yield from _parts(child)


def _holds(expected: Any, value: Any) -> bool:
    if isinstance(expected, dict) and isinstance(value, dict):
        return all(key in value and _holds(item, value[key]) for key, item in expected.items())
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_holds, expected, value))
    return bool(expected == value)


def _check_errors(errors: list[Diagnostic], expected: Mapping[str, Any]) -> None:
    assert expected["code"] in {item.error.code.name for item in errors}
    if "errors" not in expected:
        return
    rest = list(errors)
    for wanted in expected["errors"]:
        found = [item for item in rest if _is(wanted, item)]
        assert found, wanted
        rest.remove(found[0])
    assert not rest


def _is(wanted: Mapping[str, Any], found: Diagnostic) -> bool:
    details = found.error.details
    return (
        details["reason"] == REASONS[wanted["kind"]]
        and wanted.get("path", found.path) == found.path
        and found.path.endswith(wanted.get("field", ""))
        and wanted.get("value") == details.get("value")
        and ("suggestion" not in wanted or f'"{wanted["suggestion"]}"' in str(found.error.hint))
        and ("lists_available" not in wanted or bool(details["available"]))
    )
