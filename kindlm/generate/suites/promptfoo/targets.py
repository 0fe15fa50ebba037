"""The providers of promptfoo as models and agents of kindlm."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.config.entries import provider_types
from kindlm.config.json_schemas import schema_fault
from kindlm.generate.imported_tests import PARAMETERS, add_parameter
from kindlm.generate.suites import Files, Notes, NoTwinError, Part, excerpt_of
from kindlm.generate.suites.promptfoo.templates import file_value, replace_names
from kindlm.secrecy import is_credential_name

CHAT_APIS: Mapping[str, Mapping[str, str | None]] = {
    "openai": {"chat": "", "responses": "kindlm calls Chat Completions"},
    "anthropic": {"messages": ""},
    "ollama": {"chat": "", "completion": "kindlm sends the prompt as a message"},
}
"""The second parts of ids with a twin, each with what is different about it."""

_OTHER_APIS = re.compile(
    r"agents|assistant|audio|chatkit|claude-agent-sdk|codex-sdk|completion|embeddings?|image"
    r"|moderation|realtime|transcription|video"
)

OTHERS = {
    **{name: name for name in ("mistral", "cohere", "groq", "xai", "deepseek", "openrouter")},
    **{name: name for name in ("fireworks", "github")},
    "azure": "azure",
    "azureopenai": "azure",
    "togetherai": "together",
    "google": "gemini",
}
"""Further prefixes of ids, and the types of providers that they are in kindlm."""

_RESPONSE_PATH = re.compile(r"json((?:\.\w+|\[\d+\]|\[['\"]\w+['\"]\])+)", re.ASCII)
_ENVIRONMENT = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}|\$\{(\w+)\}")

_ADDRESS = re.compile(r"https?://[\w.[{-]|\{\{\s*env\.")
_HOST = re.compile(r"(?:https://)?(?:[\w.:-]+|\{\{\s*env\.\w+\s*\}\})/?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_USUAL = {
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com"),
    "azure": ("AZURE_OPENAI_API_KEY", None),
}
"""The variables of keys and the addresses that a second provider of a type has to name."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model or an agent: its id, its names in the file, its tools and the prompts it takes."""

    id: str
    names: frozenset[str]
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[str] | None = None


@dataclass(slots=True)
class Targets:
    """The targets of a suite, and the sections of kindlm.yaml that they make up."""

    notes: Notes
    files: Files
    found: list[Target] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    agents: list[dict[str, Any]] = field(default_factory=list)
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _judges: list[Target] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Add a provider, or those in the file that it names; note each that has no twin."""
        parts = [part]
        try:
            if isinstance(part.value, str) and part.value.endswith((".yaml", ".yml", ".json")):
                parts = self.files.part(part.value.removeprefix("file://")).items()
        except NoTwinError as error:
            self.notes.left_out(part, error.what, error.instead)
        for each in parts:
            self._add(each)

    def _add(self, part: Part) -> None:
        try:
            self.found.append(self._target(*_id_and_options(part)))
        except NoTwinError as error:
            self.notes.left_out(part, error.what, error.instead)

    def grader(self, part: Part) -> str | None:
        """Return the id of the model that grades; None, with a note, if it has no twin."""
        try:
            # A provider can be given for each kind of grading.
            part = part.get("text") or part
            name, options = _id_and_options(part)
            models = {each["id"] for each in self.models}
            known = (
                each
                for each in (*self.found, *self._judges)
                if name in each.names and each.id in models
            )
            return (next(known, None) or self._model(name, options, judges=True)).id
        except NoTwinError as error:
            self.notes.left_out(part, f"the grader: {error.what}", "Set `defaults.judgeModel`")
            return None

    def answer_at(self, path: str) -> bool:
        """Look for the answers of all agents at a path in them; False if there are models."""
        for agent in () if self.models else self.agents:
            before = agent["responsePath"]
            agent["responsePath"] = path if before == "$" else f"{before}.{path}"
        return bool(self.agents) and not self.models

    def _target(self, name: str, options: Part) -> Target:
        config = options.get("config") or Part({}, options.file, options.line_of, options.keys)
        for key in ("transform", "inputs"):
            if options.get(key) is not None:
                raise NoTwinError(f"the provider {name} with `{key}`", "Change what it answers")
        if name in ("http", "https") or name.startswith(("http://", "https://")):
            return self._agent(name, options, config)
        return self._model(name, options)

    def _model(self, name: str, options: Part, *, judges: bool = False) -> Target:
        config = options.get("config") or Part({}, options.file, options.line_of, options.keys)
        provider, model = self._provider_and_model(name, options)
        params: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        tools: list[dict[str, Any]] = []
        for key, part in config.entries().items():
            if key in PARAMETERS:
                add_parameter(part, key, params, self.notes)
            elif key == "tools":
                tools = self._tools(part)
            elif key == "apiBaseUrl" and _ADDRESS.match(str(part.value)):
                settings["baseUrl"] = _with_environment(str(part.value))
            elif key == "apiHost" and _HOST.fullmatch(str(part.value)):
                settings["baseUrl"] = _host(provider, str(part.value))
            elif key == "organization" and isinstance(part.value, str):
                settings["organization"] = part.value
            elif key == "apiKeyEnvar" and _is_name(part.value):
                settings["apiKeyEnv"] = part.value
            elif key == "apiKey" and (found := _ENVIRONMENT.fullmatch(str(part.value))):
                settings["apiKeyEnv"] = found[1] or found[2]
            elif key == "apiKey":
                self.notes.left_out(part, "`apiKey`", "Put the key into the environment")
            else:
                self.notes.left_out(part, f"`{key}` of a model", "kindlm sends no such option")
        if provider == "azure":
            settings.setdefault("baseUrl", _host(provider, "{{env.AZURE_API_HOST}}"))
        entry: dict[str, Any] = {"id": self._id(options.text("label") or f"{provider}/{model}")}
        entry |= {"provider": self._provider(provider, settings), "model": model}
        entry |= {"params": params} if params else {}
        entry |= {"role": "judge"} if judges else {}
        self.models.append(entry)
        target = Target(entry["id"], _names(name, options), tools, _prompts_of(options))
        if judges:
            self._judges.append(target)
        return target

    def sections(self) -> dict[str, Any]:
        """Return the sections `providers`, `models` and `agents`."""
        if any(self.providers.values()):
            # Beside a provider with settings, each other one needs an entry.
            providers = {
                name: settings or ({"apiKeyEnv": _USUAL[name][0]} if name in _USUAL else {})
                for name, settings in self.providers.items()
            }
            return {"providers": providers, "models": self.models, "agents": self.agents}
        usual = [
            f"{each['provider']}/{each['model']}"
            if each.keys() == {"id", "provider", "model"}
            else ""
            for each in self.models
        ]
        models = [
            short if short == entry["id"] else entry
            for short, entry in zip(usual, self.models, strict=True)
        ]
        return {"models": models, "agents": self.agents}

    def _provider_and_model(self, name: str, part: Part) -> tuple[str, str]:
        prefix, _, rest = name.partition(":")
        first, _, more = rest.partition(":")
        apis = CHAT_APIS.get(prefix)
        if apis is not None:
            is_other = first not in apis and _OTHER_APIS.fullmatch(first)
            if is_other or not rest or (first in apis and not more):
                what = f"the provider {excerpt_of(name)}"
                raise NoTwinError(what, "kindlm calls chat models: name one")
            if apis.get(first):
                self.notes.different(part, f"`{prefix}:{first}`", str(apis[first]))
            return prefix, more if first in apis else rest
        kind = OTHERS.get(prefix)
        if kind is None or kind not in provider_types() or not rest:
            raise NoTwinError(
                f"the provider {excerpt_of(name)}",
                "Write it under `models` or `agents`: see the guides to providers and agents",
            )
        if "{{" in rest:
            raise NoTwinError(f"the provider {excerpt_of(name)}", "Write the name of the model")
        return kind, rest.removeprefix("chat:")

    def _provider(self, kind: str, settings: dict[str, Any]) -> str:
        """Return the name of a provider with these settings."""
        variable, address = _USUAL.get(kind, (None, None))
        if settings.get("baseUrl") and kind != "ollama":
            settings.setdefault("apiKeyEnv", variable or f"{kind.upper()}_API_KEY")
        name, number = kind, 1
        while self.providers.setdefault(name, settings) != settings:
            number += 1
            name = f"{kind}-{number}"
            usual = {"baseUrl": address, "apiKeyEnv": variable} if address else {}
            settings = {"type": kind, **usual, **settings}
        return name

    def _tools(self, part: Part) -> list[dict[str, Any]]:
        """Return the tools on offer, which kindlm simulates."""
        value = file_value(part.value, self.files)
        tools = []
        for item in value if isinstance(value, list) else []:
            function = item.get("function", item) if isinstance(item, dict) else {}
            name = function.get("name")
            kind = item.get("type", "function") if isinstance(item, dict) else None
            if not isinstance(name, str) or not name or kind not in ("function", "custom"):
                what = f"the tool {excerpt_of(item)}"
                self.notes.left_out(part, what, "Write it under `tools` of the tests")
                continue
            schema = function.get("parameters", function.get("input_schema"))
            said = function.get("description")
            tool: dict[str, Any] = {"name": name}
            tool |= {"description": said if isinstance(said, str) else None}
            if isinstance(schema, dict) and schema_fault(schema) is None:
                tool["parameters"] = schema
            elif schema is not None:
                self.notes.left_out(part, f"the schema of the tool {name}", "Correct it")
            tools.append({key: each for key, each in tool.items() if each})
        if tools:
            self.notes.different(
                part,
                "promptfoo stops at a tool call; kindlm answers it and lets the model go on",
                "Add `responses` or a `defaultResponse` to the tools of each test",
            )
        return tools

    def _agent(self, name: str, options: Part, config: Part) -> Target:
        """Add an agent that takes JSON by POST."""
        what = f"the provider {excerpt_of(options.text('label') or name)}"
        entry: dict[str, Any] = {"adapter": "http"}
        url = config.text("url") or name
        if not _ADDRESS.match(url):
            raise NoTwinError(what, "It has no `url`: write it under `agents`")
        try:
            entry["endpoint"] = _with_environment(url)
            for key, part in config.entries().items():
                self._agent_option(key, part, entry)
        except NoTwinError as error:
            raise NoTwinError(f"{what}, for {error.what}", error.instead) from None
        if "responsePath" not in entry:
            entry["responsePath"] = "$"
        identifier = self._id(options.text("label") or "agent")
        self.agents.append({"id": identifier, **entry})
        return Target(identifier, _names(name, options), [], _prompts_of(options))

    def _agent_option(self, key: str, part: Part, entry: dict[str, Any]) -> None:
        value = part.value
        if key == "url":
            return
        if key == "method" and str(value).upper() == "POST":
            return
        if key == "headers" and isinstance(value, dict):
            entry["headers"] = {
                name: self._header(name, each) for name, each in part.entries().items()
            }
            return
        if key == "body":
            body = value
            if isinstance(body, str):
                try:
                    body = json.loads(body)
                except ValueError:
                    raise NoTwinError("a `body` that is not JSON", "Write it as `body`") from None
            entry["body"] = _body(body)
            return
        if key in ("transformResponse", "responseParser"):
            path = _RESPONSE_PATH.fullmatch(value.strip()) if isinstance(value, str) else None
            if path is None and value != "json" and value != "text":
                raise NoTwinError(f"`{key}`", "Name the place of the text: `responsePath`")
            written = path[1].lstrip(".") if path else "$"
            entry["responsePath"] = re.sub(r"\[['\"](\w+)['\"]\]", r".\1", written).lstrip(".")
            return
        if key in ("method", "request", "queryParams", "transformRequest", "sessionParser"):
            raise NoTwinError(f"`{key}`", "kindlm sends JSON by POST: write an agent for it")
        self.notes.left_out(part, f"`{key}` of an agent", "kindlm has no such option")

    def _header(self, name: str, part: Part) -> str:
        text = _with_environment(str(part.value))
        if is_credential_name(name) and "{{env." not in text:
            variable = re.sub(r"\W", "_", name.upper())
            self.notes.left_out(
                part, f"the value of the header {name}", f"Put it into the variable {variable}"
            )
            return f"{{{{env.{variable}}}}}"
        return text

    def _id(self, wanted: str) -> str:
        """Return an id that no other target has."""
        taken = {each["id"] for each in (*self.models, *self.agents)}
        number, name = 1, wanted
        while name in taken:
            number += 1
            name = f"{wanted}-{number}"
        return name


def _id_and_options(part: Part) -> tuple[str, Part]:
    """Return the id of a provider, and its options."""
    if isinstance(part.value, str):
        return part.value, Part({}, part.file, part.line_of, part.keys)
    if isinstance(part.value, dict):
        name = part.text("id")
        if name is not None:
            return name, part
        if len(part.value) == 1:
            ((name, options),) = part.entries().items()
            return options.text("id") or name, options
    raise NoTwinError(f"the provider {excerpt_of(part.value)}", "It has no `id`")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _names(name: str, options: Part) -> frozenset[str]:
    return frozenset({name, options.text("label") or name})


def _prompts_of(options: Part) -> list[str] | None:
    prompts = options.get("prompts")
    return None if prompts is None else [str(each.value) for each in prompts.items()]


def _host(provider: str, text: str) -> str:
    """Return the address of an API on a host."""
    host = text.strip().removeprefix("https://").rstrip("/")
    return f"https://{_with_environment(host)}{'/openai' if provider == 'azure' else ''}/v1"


def _with_environment(text: str) -> str:
    """Return an address or a header whose only names are variables of the environment."""

    def kept(name: str) -> str:
        if not name.startswith("env."):
            raise NoTwinError(f"{{{{{name}}}}}", "Only variables of the environment can stand here")
        return f"{{{{{name}}}}}"

    return replace_names(text, kept)


def _body(value: Any) -> Any:
    """Return the template of a body: the prompt is the message."""

    def named(name: str) -> str:
        if name != "prompt":
            raise NoTwinError(f"{{{{{name}}}}}", "A body can hold the prompt alone")
        return "{{message}}"

    if isinstance(value, str):
        return replace_names(value, named)
    if isinstance(value, list):
        return [_body(item) for item in value]
    return {key: _body(item) for key, item in value.items()} if isinstance(value, dict) else value
