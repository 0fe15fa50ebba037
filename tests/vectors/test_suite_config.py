"""The configuration of a suite, and `{{name}}` in its templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from vector_cases import Departure, known, unknown

from kindlm.config import LoadedSuite, load_suite
from kindlm.config.diagnostics import Diagnostic
from kindlm.config.files import safe_path
from kindlm.config.interpolation import bind_suite
from kindlm.errors import Err, Ok
from kindlm.suggestions import suggest

Case = dict[str, Any]

KNOWN_KEYS: Final[dict[str, frozenset[str]]] = {
    "": frozenset(
        {"kindlm", "project", "suite", "providers", "models", "prompts", "tests", "defaults",
         "gates", "tools", "compliance", "upload", "trace"}
    ),
    "tests": frozenset(
        {"name", "prompt", "vars", "expect", "models", "repeat", "skip", "tags", "tools",
         "command", "maxTurns"}
    ),
}  # fmt: skip


def unknown_keys(config: Mapping[str, Any]) -> set[str]:
    """Return the keys of a configuration, and of its tests, that the format does not have."""
    tests = (set(test) - KNOWN_KEYS["tests"] for test in config["tests"])
    return (set(config) - KNOWN_KEYS[""]).union(*tests)


def kinds_of(case: Case) -> list[str]:
    return [error["kind"] for error in case["expected"]["errors"]]


def other_providers(case: Case) -> set[str]:
    """Return the providers of a configuration that a suite cannot have by their names alone."""
    providers = case["input"]["config"]["providers"]
    return {name for name in providers if name in {"http", "mcp"} and "type" not in providers[name]}


DEPARTURES: Final = (
    Departure(
        "turns have no labels: the unknown key is the error, at its own place",
        lambda case: (
            any("conversation" in test for test in case["input"]["config"]["tests"])
            and kinds_of(case) == ["schema"]
        ),
        lambda case: {
            "errors": [
                {"kind": "schema", "path": f"tests[{at}].conversation[{number}].turn"}
                for at, test in enumerate(case["input"]["config"]["tests"])
                for number, _ in enumerate(test.get("conversation", ()))
            ]
        },
    ),
    Departure(
        "unknown keys are errors",
        lambda case: case["expected"]["ok"] and bool(unknown_keys(case["input"]["config"])),
        {"ok": False, "code": "CONFIG_VALIDATION_ERROR", "resolved": ...},
    ),
    Departure(
        "http is no provider of a suite: PROVIDER_NOT_FOUND",
        lambda case: bool(other_providers(case)) and kinds_of(case) == ["schema"],
        {"code": "PROVIDER_NOT_FOUND", "errors": ...},
    ),
    Departure(
        "a file that is not there is CONFIG_FILE_REF_ERROR",
        lambda case: set(kinds_of(case)) == {"file_not_found"},
        {"code": "CONFIG_FILE_REF_ERROR"},
    ),
    Departure(
        "what does not name its project is of that of kindlm.toml, the remote, or the folder",
        lambda case: (
            "project" not in case["input"].get("config", {"project": ""})
            and not case["expected"]["ok"]
        ),
        lambda case: {
            "errors": [each for each in case["expected"]["errors"] if each.get("path") != "project"]
        },
    ),
    Departure(
        "a name that shares no letter is no suggestion",
        lambda case: not set(case["input"]["input"]) & set(case["expected"]["suggestion"]),
        {"suggestion": None},
    ),
)


def unset(case: Case) -> list[str]:
    """Return the variables of the environment that a template names and that are not there."""
    named = re.findall(r"\{\{\s*(env\.\w+)\s*\}\}", case["input"]["template"])
    values = case["input"].get("env", {})
    return [name for name in named if name.removeprefix("env.") not in values]


ENVIRONMENT: Final = (
    Departure(
        "{{env.NAME}} is an error when NAME is not set",
        lambda case: case["expected"]["ok"] and bool(unset(case)),
        lambda case: {"ok": False, "unset": unset(case), "text": ...},
    ),
)

REASONS = {
    "schema": "schema",
    "unknown_prompt": "unknown_prompt",
    "unknown_model": "unknown_model",
    "unknown_judge_model": "unknown_judge_model",
    "duplicate_model_id": "duplicate_model",
    "duplicate_test_name": "duplicate_test",
    "provider_not_configured": "unknown_provider",
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
    elif not {"yaml", "generator", "config"} & set(given):
        unknown("no configuration")
    else:
        loaded = _load(_text(given), tmp_path, given.get("files", {}))
        errors = [item for item in loaded.diagnostics if item.severity == "error"]
        assert bool(loaded.suite) is expected["ok"], errors
        if expected["ok"]:
            _check_resolved(loaded, expected)
        else:
            _check_errors(errors, expected)


@pytest.mark.vectors("suite.jsonl", "interpolation", departures=ENVIRONMENT, ignores=("env",))
def test_interpolation(vector: dict[str, Any], tmp_path: Path) -> None:
    given, expected = vector["input"], vector["expected"]
    # As the system text: that of the user must not be empty.
    prompts = {"p": {"user": "Hello", "system": given["template"]}}
    test = {"name": "t", "prompt": "p", "vars": given["vars"], "expect": {}}
    loaded = _load(json.dumps({**MINIMAL, "prompts": prompts, "tests": [test]}), tmp_path, {})
    if "unset" in expected:
        assert not expected["ok"]
        assert loaded.suite
        bound = bind_suite(loaded.suite, environ=given.get("env", {}), ports={})
        assert isinstance(bound, Err)
        assert all(name.removeprefix("env.") in str(bound.error) for name in expected["unset"])
        return
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
        known(given["generator"], "tests", "models")
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
    if isinstance(path, Err):
        code = expected["code"]
        assert path.error.code.name == {"PATH_TRAVERSAL": "CONFIG_FILE_REF_ERROR"}.get(code, code)
    else:
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
    known(wanted, "kind", "path", "field", "value", "suggestion", "lists_available", "test",
          "model", "available")  # fmt: skip
    details = found.error.details
    return (
        details["reason"] == REASONS[wanted["kind"]]
        and wanted.get("path", found.path) == found.path
        and found.path.endswith(wanted.get("field", ""))
        and wanted.get("value") == details.get("value")
        and ("suggestion" not in wanted or f'"{wanted["suggestion"]}"' in str(found.error.hint))
        and ("lists_available" not in wanted or bool(details["available"]))
    )
