"""Translates providers of promptfoo into models and agents of kindlm."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from kindlm.config.entries import provider_types
from kindlm.config.json_schemas import schema_fault
from kindlm.dataclass import dataclass
from kindlm.generate.imported_tests import ImportedSuite, params_of
from kindlm.generate.suite_text import Comment, unused
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, json_value
from kindlm.generate.suites.promptfoo.texts import file_value, replace_names
from kindlm.secrecy import is_credential_name, is_secret_key
from kindlm.values import filled

_CHAT_APIS = {"openai": ("chat", "responses"), "anthropic": ("messages",), "ollama": ("chat",)}
"""By the first part of an id: the second parts that name a chat API. An id can also have none."""

_OTHER_APIS = re.compile(
    r"agents|assistant|audio|chatkit|claude-agent-sdk|codex-sdk|completion|embeddings?|image"
    r"|moderation|realtime|transcription|video"
)

_TYPES = {
    **{name: name for name in ("mistral", "cohere", "groq", "xai", "deepseek", "openrouter")},
    **{name: name for name in ("fireworks", "github")},
    "togetherai": "together",
    "google": "gemini",
}
"""Other first parts of ids, each with its provider type in kindlm."""

_RESPONSE_PATH = re.compile(r"json((?:\.\w+|\[\d+\]|\[['\"]\w+['\"]\])+)", re.ASCII)
_ADDRESS = re.compile(r"https?://[\w.[{-]|\{\{\s*env\.")
_FUNCTIONS = ("function", "custom")
_OTHER_SERVER = ("apiBaseUrl", "apiHost", "apiKeyEnvar")


@dataclass(frozen=True, slots=True)
class Target:
    """A model or an agent: its id in the suite, its names in the file, and its tools."""

    id: str
    names: frozenset[str]
    tools: list[dict[str, Any]]


@dataclass(slots=True)
class Targets:
    """The targets of a suite, and their entries in kindlm.yaml."""

    suite: ImportedSuite
    files: Files
    found: list[Target] = field(default_factory=list)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    _judges: list[Target] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Add a provider, or those in the file that it names; note those without an equivalent."""
        with self.suite.noting(part):
            parts = [part]
            if isinstance(part.value, str) and part.value.endswith((".yaml", ".yml", ".json")):
                parts = self.files.part(part.value.removeprefix("file://")).items()
            for each in parts:
                with self.suite.noting(each):
                    self.found.append(self._target(each))

    def grader(self, part: Part) -> str | None:
        """Return the id of a grader's model, which it adds; None and a note without equivalent."""
        try:
            name, options = _id_and_options(part)
            for each in (*self.found, *self._judges):
                if name in each.names and each.id in self.models:
                    return each.id
            self._judges.append(self._model(name, options, role="judge"))
            return self._judges[-1].id
        except LeftOutError as error:
            self.suite.leave_out(part, f"the grader: {error.what}", "Set `defaults.judgeModel`")
            return None

    def sections(self) -> dict[str | Comment, Any]:
        """Return the sections `models` and `agents`."""
        models = [
            each["id"] if each == _plain(each["provider"], each["model"]) else each
            for each in self.models.values()
        ]
        return {"models": models, "agents": list(self.agents.values())}

    def _target(self, part: Part) -> Target:
        name, options = _id_and_options(part)
        for key in ("transform", "inputs", "prompts"):
            if options.get(key) is not None:
                raise LeftOutError(f"the provider {name} with `{key}`", "Write a suite for it")
        is_agent = name in ("http", "https") or name.startswith(("http://", "https://"))
        found = self._agent(name, options) if is_agent else self._model(name, options)
        if self.found and found.tools != self.found[0].tools:
            del (self.agents if is_agent else self.models)[found.id]
            what = f"the provider {name}, which has other tools than the first one"
            raise LeftOutError(what, "Write a suite for it")
        return found

    def _model(self, name: str, options: Part, **more: str) -> Target:
        kind, model = _type_and_model(name)
        if name.startswith("openai:responses:"):
            self.suite.differ(options, "`openai:responses`. kindlm calls Chat Completions")
        tools: list[dict[str, Any]] = []
        others: dict[str, Part] = {}
        for key, part in options.entries("config").items():
            if key in _OTHER_SERVER:
                what = f"the provider {name} with `{key}`"
                raise LeftOutError(what, "Write it under `providers` and `models`")
            if key == "tools":
                tools = self._tools(part)
            elif key == "apiKey":
                self.suite.leave_out(part, "`apiKey`", "Put the key into the environment")
            else:
                others[key] = part
        params = params_of(others, self.suite)
        entry = _plain(kind, model)
        entry["id"] = unused(options.text("label") or entry["id"], self.models | self.agents)
        self.models[entry["id"]] = entry | ({"params": params} if params else {}) | more
        return Target(entry["id"], frozenset({name, options.text("label") or name}), tools)

    def _tools(self, part: Part) -> list[dict[str, Any]]:
        """Return the definitions of tools, which kindlm simulates; note those that are invalid."""
        value = file_value(part.value, self.files)
        tools = []
        for item in value if isinstance(value, list) else [value]:
            tool = item if isinstance(item, dict) else {}
            definition = tool.get("function", tool)
            function = definition if isinstance(definition, dict) else {}
            name, description = function.get("name"), function.get("description")
            schema = function.get("parameters", function.get("input_schema", {}))
            is_valid = isinstance(schema, dict) and schema_fault(schema) is None
            is_function = tool.get("type") in (None, *_FUNCTIONS)
            is_named = isinstance(name, str) and name and isinstance(description, str | None)
            if not is_function or not is_named or not is_valid:
                what = f"the tool {excerpt_of(item)}"
                self.suite.leave_out(part, what, "Write it under `tools` of the tests")
                continue
            tool = {"name": name, "description": description, "parameters": schema}
            tools.append({key: each for key, each in tool.items() if each})
        if tools:
            what = "promptfoo stops at a tool call; kindlm answers it and lets the model go on"
            self.suite.differ(part, f"{what}. Add `responses` to the tools of each test")
        return tools

    def _agent(self, name: str, options: Part) -> Target:
        """Add an HTTP agent; only those that take JSON by POST have an equivalent."""
        config = options.entries("config")
        url = str(config["url"].value) if "url" in config else name
        label = options.text("label")
        if not _ADDRESS.match(url):
            what = f"the address of the provider {excerpt_of(label or name)}"
            raise LeftOutError(what, "Write it under `agents`")
        try:
            entry: dict[str, Any] = {
                "adapter": "http",
                "endpoint": replace_names(url, _environment),
            }
            for key, part in config.items():
                self._agent_option(key, part, entry)
        except LeftOutError as error:
            what = f"the provider {excerpt_of(label or name)}, for {error.what}"
            raise LeftOutError(what, error.instead) from None
        identifier = unused(label or "agent", self.models | self.agents)
        self.agents[identifier] = {"id": identifier, "responsePath": "$"} | entry
        return Target(identifier, frozenset({name, label or name}), [])

    def _agent_option(self, key: str, part: Part, entry: dict[str, Any]) -> None:
        value = part.value
        if key == "url" or (key == "method" and str(value).upper() == "POST"):
            return
        if key == "headers" and isinstance(value, dict):
            entry["headers"] = {
                name: self._header(name, each) for name, each in part.entries().items()
            }
        elif key == "body":
            try:
                body = json_value(value) if isinstance(value, str) else value
            except ValueError:
                raise LeftOutError("a `body` that is not JSON") from None
            entry["body"] = self._without_credentials(
                filled(body, lambda text: replace_names(text, _message)), part
            )
        elif key in ("transformResponse", "responseParser"):
            path = _RESPONSE_PATH.fullmatch(str(value).strip())
            if path is None and value not in ("json", "text"):
                raise LeftOutError(f"`{key}`", "Name the place of the text: `responsePath`")
            written = re.sub(r"\[['\"](\w+)['\"]\]", r".\1", path[1]) if path else "$"
            entry["responsePath"] = written.lstrip(".")
        elif key in ("method", "request", "queryParams", "transformRequest", "sessionParser"):
            raise LeftOutError(f"`{key}`", "kindlm sends JSON by POST: write an agent for it")
        else:
            self.suite.leave_out(part, f"`{key}` of an agent")

    def _header(self, name: str, part: Part) -> str:
        text = replace_names(str(part.value), _environment)
        if not is_credential_name(name) or "{{env." in text:
            return text
        return self._variable(name, part, "the value of the header")

    def _without_credentials(self, value: Any, part: Part, name: str = "") -> Any:
        """Return a part of a body, in which environment variables replace credentials."""
        if isinstance(value, dict):
            return {key: self._without_credentials(item, part, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self._without_credentials(item, part, name) for item in value]
        is_credential = isinstance(value, str) and is_secret_key(name) and "{{" not in value
        return self._variable(name, part, "the value of") if value and is_credential else value

    def _variable(self, name: str, part: Part, what: str) -> str:
        """Return the placeholder that replaces a credential; note which variable to set."""
        variable = re.sub(r"\W", "_", name.upper())
        self.suite.leave_out(part, f"{what} {name}", f"Put it into the variable {variable}")
        return f"{{{{env.{variable}}}}}"


def _id_and_options(part: Part) -> tuple[str, Part]:
    """Return the id of a provider, and the mapping with its options."""
    if isinstance(part.value, str):
        return part.value, Part({}, part.file, part.line_of, part.keys)
    name = part.text("id")
    if name is not None:
        return name, part
    if len(part.entries()) == 1:
        ((name, options),) = part.entries().items()
        return options.text("id") or name, options
    raise LeftOutError(f"the provider {excerpt_of(part.value)}", "It has no `id`")


def _type_and_model(name: str) -> tuple[str, str]:
    """Return the provider type in kindlm for an id such as `openai:chat:gpt-4o`, and the model.

    Raises:
        LeftOutError: The id names no chat model that kindlm can call.
    """
    prefix, _, rest = name.partition(":")
    first, _, more = rest.partition(":")
    if prefix in _CHAT_APIS:
        kind = prefix
        model = more if first in _CHAT_APIS[prefix] else rest
        is_chat = _OTHER_APIS.fullmatch(first) is None
    else:
        kind, model = _TYPES.get(prefix, ""), rest.removeprefix("chat:")
        is_chat = kind in provider_types()
    if not is_chat or not model or "{{" in model:
        what = f"the provider {excerpt_of(name)}"
        raise LeftOutError(what, "Write a chat model under `models`, or an agent under `agents`")
    return kind, model


def _plain(provider: str, model: str) -> dict[str, Any]:
    """Return the entry of a model without parameters."""
    return {"id": f"{provider}/{model}", "provider": provider, "model": model}


def _environment(name: str) -> str:
    if not name.startswith("env."):
        raise LeftOutError(f"{{{{{name}}}}}", "Only variables of the environment are allowed here")
    return f"{{{{{name}}}}}"


def _message(name: str) -> str:
    if name != "prompt":
        raise LeftOutError(f"{{{{{name}}}}}", "A body can hold the prompt alone")
    return "{{message}}"
