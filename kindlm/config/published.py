"""The JSON Schema of kindlm.yaml, for editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kindlm import packages, plugins
from kindlm.checks import base as checks
from kindlm.config.entries import provider_types
from kindlm.config.long_form import ALONE
from kindlm.config.schema import KindlmConfig
from kindlm.errors import KindlmError
from kindlm.packages import all_own
from kindlm.plugins import Adapter, Check, Provider
from kindlm.section import MAIN

_ABOUT = ("description", "examples", "x-kindlm-extension")
"""The keys that stand before the type of an option."""


def long_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file with its short forms written out.

    `x-kindlm-extension` marks keys that version 1 of the format does not have, `x-kindlm-main` the
    main key of a section. References, which `load_suite` checks, are not part of the schema. An
    entry of `providers` or `agents` has the options of all types and adapters.
    """
    from pydantic.json_schema import GenerateJsonSchema  # slow, and only published schemas need it

    sections, todo = set[str](), [*checks.sections()]
    while todo:
        section = todo.pop()
        sections.add(section.__name__)
        todo += [inner.section for inner in section.inner()]

    class Named(GenerateJsonSchema):
        """Ends the names of definitions as those of all sections: `LatencyConfig`."""

        def normalize_name(self, name: str) -> str:
            return super().normalize_name(f"{name}Config" if name in sections else name)

    schema = KindlmConfig.model_json_schema(by_alias=True, schema_generator=Named)
    definitions = schema["$defs"]
    providers, agents = definitions["ProviderConfig"], definitions["AgentConfig"]
    _add_options(providers, all_own(Provider).values(), definitions)
    del providers["properties"]["type"]["anyOf"]
    providers["properties"]["type"] |= {"enum": provider_types(), "type": "string"}
    adapters = all_own(Adapter)
    _add_options(agents, adapters.values(), definitions)
    # Other names of keys. That of `systemFile` is its name in the error specification.
    for entry, key, other, more in (
        (definitions["PromptConfig"], "systemFile", "system_prompt_file", {"deprecated": True}),
        (agents, "adapter", "type", {}),
        (agents, "endpoint", "url", {}),
    ):
        same = entry["properties"][key] | {"description": f"The same as `{key}`."} | more
        entry["properties"][other] = dict(sorted(same.items()))
    # One of two keys is required, unless the adapter needs no address.
    free = [
        each
        for name, kind in adapters.items()
        if not kind.needs_endpoint
        for each in (name, *kind.other_names)
    ]
    without = [
        {"properties": {key: {"enum": free}}, "required": [key]} for key in ("adapter", "type")
    ]
    agents.pop("required")
    agents["allOf"] = [{"anyOf": [{"required": ["endpoint"]}, {"required": ["url"]}, *without]}]
    # `long_form` fills in the other keys that the models require.
    schema["required"] = ["tests"]
    definitions["ModelConfig"]["required"] = ["model"]
    del definitions["SuiteConfig"]["required"]
    for name in ("ProviderConfig", "AgentConfig"):
        # In the order in which pydantic writes keys.
        definitions[name] = dict(sorted(definitions[name].items()))
    schema["$defs"] = dict(sorted(definitions.items()))
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **_without_null(schema), "title": "kindlm.yaml"}


def _add_options(
    entry: dict[str, Any], kinds: Iterable[type[Provider | Adapter]], definitions: dict[str, Any]
) -> None:
    """Add the options of all kinds to an entry, without defaults: these differ between kinds."""
    for kind in kinds:
        own = kind.model_json_schema(by_alias=True)
        definitions |= own.get("$defs", {})
        for key, option in own.get("properties", {}).items():
            option.pop("default", None)
            about = {name: option.pop(name) for name in _ABOUT if name in option}
            entry["properties"].setdefault(key, {**about, **option})


def schema_with_packages() -> tuple[dict[str, Any], list[KindlmError]]:
    """Return the JSON Schema of the file with short forms and installed packages; and their faults.

    A check of a package is a key of `expect`. A provider or adapter is a further form of an entry.
    """
    schema = long_schema()
    definitions = schema["$defs"]

    def defined(kind: type[Check | Provider | Adapter], name: str) -> dict[str, Any]:
        prefix = f"{kind.group}.{name}."
        own = kind.model_json_schema(by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}")
        own = _without_null(own)
        definitions.update({prefix + key: each for key, each in own.pop("$defs", {}).items()})
        return {"properties": {}, **own}

    def form(kind: type[Provider | Adapter], name: str, section: str) -> dict[str, Any]:
        """Return the schema of an entry with the common keys and those of a package."""
        own = defined(kind, name)
        keys = definitions[section]["properties"]
        common = {key: keys[key] for key in keys if key in kind.reserved}
        common |= {key: {"const": name} for key in ("adapter", "type") if key in common}
        found = {**own, "properties": {**common, **own["properties"]}}
        if issubclass(kind, Provider) and kind.needs_base_url:
            found["required"] = ["baseUrl", *own.get("required", ())]
        elif issubclass(kind, Adapter) and kind.needs_endpoint:
            found["anyOf"] = [{"required": ["endpoint"]}, {"required": ["url"]}]
        return found

    of_kindlm = {*definitions["ExpectConfig"]["properties"]}
    if packages.installed(plugins.Check.group):
        of_kindlm |= checks.kinds()
    added, wrong_checks = packages.all_of(plugins.Check, of_kindlm)
    for name, check in added.items():
        one = defined(check, name)
        keys = definitions["ExpectConfig"]["properties"]
        keys[name] = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    providers, wrong_providers = packages.all_of(Provider, all_own(Provider))
    own_adapters = all_own(Adapter)
    names = (name for kind in own_adapters.values() for name in kind.other_names)
    adapters, wrong_adapters = packages.all_of(Adapter, {*own_adapters, *names})
    of_providers = [form(kind, name, "ProviderConfig") for name, kind in providers.items()]
    of_agents = [form(kind, name, "AgentConfig") for name, kind in adapters.items()]
    for section, key, forms in (
        (schema["properties"]["providers"], "additionalProperties", of_providers),
        (schema["properties"]["agents"], "items", of_agents),
    ):
        if forms:
            section[key] = {"anyOf": [section[key], *forms]}
    return _with_short_forms(schema), [*wrong_checks, *wrong_providers, *wrong_adapters]


def _with_short_forms(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow the short forms: a value for a list of one, and a main key's value for a section."""
    mains = {
        # The value of a main key that is a list is one of its items.
        f"#/$defs/{name}": {"type": (main.get("items") or main)["type"]}
        for name, definition in schema["$defs"].items()
        # An enum of a package has no properties.
        if (main := definition.get("properties", {}).get(definition.pop(MAIN, None))) is not None
    }

    def short(field: Any, *, is_alone: bool = True) -> Any:
        if isinstance(field, list):
            return [short(each, is_alone=False) for each in field]
        if not isinstance(field, dict):
            return field
        found = {
            # A short form may fit several forms of a value: a text is an `input`, or its `user`.
            "anyOf" if key == "oneOf" else key: item
            if key in ("default", "examples", "enum", "const")
            else short(item)
            for key, item in field.items()
        }
        if found.get("$ref") in mains:
            reference = {"$ref": found.pop("$ref")}
            return {**found, "anyOf": [mains[reference["$ref"]], reference]}
        if is_alone and found.get("type") == "array" and isinstance(found.get("items"), dict):
            parts = ("type", "items", "minItems", "maxItems")
            whole = {key: found.pop(key) for key in parts if key in found}
            return {**found, "anyOf": [whole["items"], whole]}
        return found

    result: dict[str, Any] = short(schema)
    prompts = result["properties"]["prompts"]
    named = {key: prompts.pop(key) for key in ("type", "additionalProperties")}
    listed = {"type": "array", "items": named["additionalProperties"]}
    prompts["anyOf"] = [named, listed, {"type": "string"}]
    for key, plural in ALONE.items():
        about = {"description": f"The same as `{plural}`, for one."}
        result["properties"][key] = result["properties"][plural] | about
    return result


def _without_null(schema: Any) -> Any:
    """Remove null from optional keys: in the file, an absent key and null differ."""
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
    # The default of a section is made of those of its keys.
    if found.get("default", ...) is None or "$ref" in found:
        found.pop("default", None)
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    return found
