"""The JSON Schema of kindlm.yaml, for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kindlm.checks import base as checks
from kindlm.config.agent_rules import OPTIONS, OTHER_NAMES
from kindlm.config.provider_rules import PROVIDER_TYPES
from kindlm.config.schema import KindlmConfig
from kindlm.errors import KindlmError

if TYPE_CHECKING:
    from kindlm.plugins import Adapter, Check, Provider


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema; `x-kindlm-extension` marks what goes beyond the format's version 1.

    It says less than `load_suite` checks: nothing of what refers to something else.
    """
    from pydantic.json_schema import GenerateJsonSchema  # slow, and only published schemas need it

    sections, todo = set[str](), [*checks.sections()]
    while todo:
        section = todo.pop()
        sections.add(section.__name__)
        todo += [part for _, part, _ in section.inner()]

    class Named(GenerateJsonSchema):
        """Names the definition of a section after what users write: `LatencyConfig`."""

        def normalize_name(self, name: str) -> str:
            return super().normalize_name(f"{name}Config" if name in sections else name)

    written = KindlmConfig.model_json_schema(by_alias=True, schema_generator=Named)
    schema = _without_null(written)
    return {"$schema": _DIALECT, **schema, "title": "kindlm.yaml"}


def schema_with_packages() -> tuple[dict[str, Any], list[KindlmError]]:
    """Return the JSON Schema with what installed packages add, and what is wrong with some of them.

    A check is a key of `expect`; a provider and an agent are further forms of an entry.
    """
    from kindlm import plugins

    schema = json_schema()
    definitions = schema["$defs"]

    def defined(kind: type[Check | Provider | Adapter], name: str) -> dict[str, Any]:
        prefix = f"{kind.group}.{name}."
        own = kind.model_json_schema(by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}")
        own = _without_null(own)
        definitions.update({prefix + key: each for key, each in own.pop("$defs", {}).items()})
        return {"properties": {}, **own}

    def form(kind: type[Provider | Adapter], name: str, section: str) -> dict[str, Any]:
        """Return an entry with kindlm's own keys, and those of a package."""
        own = defined(kind, name)
        keys = definitions[section]["properties"]
        common = {key: keys[key] for key in keys if key in kind.reserved}
        common |= {key: {"const": name} for key in ("adapter", "type") if key in common}
        return {**own, "properties": {**common, **own["properties"]}}

    of_kindlm = {*definitions["ExpectConfig"]["properties"]}
    if plugins.installed(plugins.Check.group):
        of_kindlm |= checks.kinds()
    added, wrong_checks = plugins.all_of(plugins.Check, of_kindlm)
    for name, check in added.items():
        one = defined(check, name)
        keys = definitions["ExpectConfig"]["properties"]
        keys[name] = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    providers, wrong_providers = plugins.all_of(plugins.Provider, PROVIDER_TYPES)
    adapters, wrong_adapters = plugins.all_of(plugins.Adapter, {*OPTIONS, *OTHER_NAMES})
    of_providers = [form(kind, name, "ProviderConfig") for name, kind in providers.items()]
    of_agents = [form(kind, name, "AgentConfig") for name, kind in adapters.items()]
    for section, key, forms in (
        (schema["properties"]["providers"], "additionalProperties", of_providers),
        (schema["properties"]["agents"], "items", of_agents),
    ):
        if forms:
            section[key] = {"anyOf": [section[key], *forms]}
    return schema, [*wrong_checks, *wrong_providers, *wrong_adapters]


def _without_null(schema: Any) -> Any:
    """Remove null from what may be left out: absent and null differ in the file."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _without_null(item) for key, item in schema.items() if key != "title"}
    branches = found.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        rest = [item for item in branches if item != {"type": "null"}]
        del found["anyOf"]
        found |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    # A section that is left out has the defaults of its keys.
    if found.get("default", ...) is None or "$ref" in found:
        found.pop("default", None)
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    return found
