"""The reference of kindlm.yaml: whole, and true."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from kindlm.checks.base import ExpectSection
from kindlm.config.published import long_schema
from kindlm.config.schema import KindlmConfig
from kindlm.config.validation import keys_of
from kindlm.engine.simulation import MissingValueError, fill
from kindlm.packages import all_own
from kindlm.plugins import Adapter, Provider
from kindlm.suite import TOOL_PLACEHOLDER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")

FILES = {
    "prompts/support.md": "You are a support agent.\n",
    "schemas/refund.json": '{"type": "object", "required": ["ok"]}',
}

_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_COMPLETE = re.compile(r"<!-- complete -->\n```yaml\n(.*?)```", re.DOTALL)


def sections(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            yield from sections(inner, seen)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)


PROVIDERS, ADAPTERS = all_own(Provider), all_own(Adapter)
OPTIONS = {
    **dict.fromkeys(PROVIDERS.values(), "ProviderConfig"),
    **dict.fromkeys(ADAPTERS.values(), "AgentConfig"),
}
"""Models of options, with the definition of the schema that their keys are in."""

UNMARKED = {
    "": "kindlm project suite providers models prompts tests gates compliance upload defaults",
    "BaselineConfig": "drift",
    "ComplianceConfig": "enabled framework outputDir metadata",
    "ComplianceMetadata": "systemName systemVersion riskLevel operator intendedPurpose"
    " dataGovernanceNotes",
    "DefaultsConfig": "repeat concurrency timeoutMs judgeModel",
    "DriftConfig": "maxScore method fields",
    "ExpectConfig": "output guardrails judge toolCalls baseline",
    "GatesConfig": "passRateMin schemaFailuresMax judgeAvgMin driftScoreMax piiFailuresMax"
    " keywordFailuresMax costMaxUsd latencyMaxMs",
    "GuardrailsConfig": "pii keywords",
    "JudgeConfig": "criteria minScore model rubric",
    "KeywordsConfig": "deny allow",
    "ModelConfig": "id provider model params",
    "NamedPattern": "name pattern",
    "OutputConfig": "format schemaFile contains notContains maxLength",
    "ParamsConfig": "temperature maxTokens topP stopSequences seed",
    "PiiConfig": "enabled denyPatterns customPatterns",
    "PromptConfig": "system user assistant",
    "McpToolsConfig": "server only simulate",
    "ProviderConfig": "apiKeyEnv baseUrl organization region resource location project",
    "ServerToolsConfig": "mcp",
    "SuiteConfig": "name description tags",
    "TestConfig": "name prompt vars models repeat tools expect tags skip",
    "ToolAnswerConfig": "then when",
    "ToolCallConfig": "tool argsMatch shouldNotCall argsSchema order responseContains",
    "ToolConfig": "name description parameters responses defaultResponse",
    "UploadConfig": "enabled includeArtifacts redactPatterns apiUrl",
}
"""The keys that are published without the mark of what goes beyond version 1, by their sections.

The list does not grow: new keys are of the type `Extension`, but for those within a section
that has it itself.
"""

SEEN: set[type[BaseModel]] = set()
SECTIONS = [each for model in (KindlmConfig, *OPTIONS) for each in sections(model, SEEN)]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return long_schema()


@pytest.fixture(scope="module")
def reference(schema: dict[str, Any]) -> Any:
    path = ROOT / "docs/scripts/config_reference.py"
    spec = importlib.util.spec_from_file_location("config_reference", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._Reference(schema)


@pytest.mark.parametrize(
    "text", _COMPLETE.findall(PAGE), ids=lambda text: text.split("name: ")[1][:9]
)
def test_every_complete_example_is_free_of_problems(text: str, load: Any, tmp_path: Path) -> None:
    for name, content in {**FILES, **dict(_FILE.findall(PAGE))}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    loaded = load(text)
    assert loaded.diagnostics == ()
    assert loaded.suite


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_has_a_meaning_and_an_example_that_is_valid(
    section: type[BaseModel], schema: dict[str, Any], reference: Any
) -> None:
    assert section.__doc__
    own = OPTIONS.get(section, section.__name__ + "Config" * issubclass(section, ExpectSection))
    published = schema if section is KindlmConfig else schema["$defs"][own]
    for name, field in section.model_fields.items():
        key = published["properties"][field.serialization_alias or field.alias or name]
        # What says the same of itself is only referred to.
        meant = key if "description" in key else schema["$defs"][key["$ref"].split("/")[-1]]
        assert meant["description"], name
        example = reference._example(key)
        main = next((part.main for part in models_in(field.annotation) if part.main), None)
        if main is not None and isinstance(example, int | float):
            example = {main: example}
        TypeAdapter(field.rebuild_annotation()).validate_python(example)


def test_limits_have_keywords_of_json_schema(schema: dict[str, Any]) -> None:
    calls = schema["$defs"]["TrajectoryCallConfig"]["properties"]
    assert {key for key in calls["turn"] if key not in calls["order"]} == set()
    assert (calls["turn"]["minimum"], calls["order"]["minimum"]) == (1, 0)


def test_new_keys_are_marked_as_going_beyond_version_1(schema: dict[str, Any]) -> None:
    sections = {"": schema, **schema["$defs"]}
    unmarked, todo = dict[str, str](), [""]
    while todo:
        name = todo.pop()
        keys = {
            key: field
            for key, field in sections[name].get("properties", {}).items()
            if "x-kindlm-extension" not in field
        }
        unmarked[name] = " ".join(keys)
        inner = re.findall(r"'#/\$defs/(\w+)'", str([*keys.values()]))
        todo += {*inner} - unmarked.keys()
    assert unmarked == UNMARKED, "Write new keys as Extension[...]"


@pytest.mark.parametrize("name", [*ADAPTERS, "jsonl", "openai-assistant"])
def test_every_adapter_and_its_options_are_on_the_page_of_agents(name: str) -> None:
    page = (ROOT / "docs" / "how-to" / "agents.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
    kind = ADAPTERS.get(name)
    for option in () if kind is None else keys_of(kind):
        assert f"`{option}`" in page


@pytest.mark.parametrize(
    "text",
    [
        "{{args.a}}", "{{ args.a }}", "x{{state.a.b}}y", "{{args.a[0]}}", "{{args[0]}}",
        "{{args}}", "{{arg.a}}", "{{args.}}", "{{args.a[x]}}", "{{state.a-b}}", "{args.a}",
        "{{\nargs.a}}", "{{args.a}", "{{args.ü}}", "{{args.a }}", "{{args .a}}", "{{env.A}}",
    ],
)  # fmt: skip
def test_placeholders_of_tools_are_those_that_tools_fill_in(text: str) -> None:
    try:
        filled = fill(text, {"args": {}, "state": {}}) != text
    except MissingValueError:
        filled = True
    assert bool(TOOL_PLACEHOLDER.search(text)) is filled
