"""Translates providers of promptfoo into models and agents of kindlm."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

from pydantic import ValidationError

from kindlm.config.json_schemas import schema_fault
from kindlm.config.simulated_tools import ToolConfig
from kindlm.dataclass import dataclass
from kindlm.generate.imported_tests import ImportedSuite, settings_of
from kindlm.generate.suite_text import Comment, unused
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, json_value
from kindlm.generate.suites.promptfoo.texts import file_value, replace_names
from kindlm.secrecy import is_credential_name, is_secret_key
from kindlm.values import filled

_TYPES = {
    **{name: name for name in ("openai", "anthropic", "ollama", "mistral", "cohere", "groq")},
    **{name: name for name in ("xai", "deepseek", "openrouter", "fireworks", "github")},
    "togetherai": "together",
    "google": "gemini",
}
"""The first parts of ids, each with its provider type in kindlm."""

_OTHER_APIS = re.compile(
    r"agents|assistant|audio|chatkit|claude-agent-sdk|codex-sdk|completion|embeddings?|image"
    r"|moderation|realtime|transcription|video"
)
"""Second parts of ids without a chat model, as in `openai:image:…`."""

_RESPONSE_PATH = re.compile(r"json((?:\.\w+|\[\d+\]|\[['\"]\w+['\"]\])+)", re.ASCII)
_ADDRESS = re.compile(r"https?://[\w.[{-]|\{\{\s*env\.")
_REQUESTS = ("method", "headers", "request", "queryParams", "transformRequest", "sessionParser")
"""Options of an agent without which kindlm would send another request."""

_OTHER_SERVER = ("apiBaseUrl", "apiHost", "apiKeyEnvar")


@dataclass(slots=True)
class Targets:
    """The targets of a suite, and their entries in kindlm.yaml.

    Attributes:
        found: their ids; the model of a grader is no target.
        tools: the tools of all of them.
    """

    suite: ImportedSuite
    files: Files
    found: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Add a provider, or those in the file that it names; note those without an equivalent."""
        with self.suite.noting(part):
            parts = [part]
            if isinstance(part.value, str) and part.value.endswith((".yaml", ".yml", ".json")):
                parts = self.files.part(part.value.removeprefix("file://")).items()
            for each in parts:
                with self.suite.noting(each, "a provider with "):
                    self._add(each)

    def grader(self, part: Part) -> str | None:
        """Return the id of a grader's model, which it adds; None and a note without equivalent."""
        try:
            name, options = _id_and_options(part)
            if name in self.models:
                return name
            entry, _ = self._model(name, options)
        except LeftOutError as error:
            self.suite.leave_out(part, f"a grader with {error.what}", error.instead)
            return None
        for identifier, known in self.models.items():
            if entry.items() <= known.items():
                return identifier
        identifier = unused(_name_of(entry), self.models | self.agents)
        self.models[identifier] = {"id": identifier, **entry, "role": "judge"}
        return identifier

    def sections(self) -> dict[str | Comment, Any]:
        """Return the sections `models` and `agents`."""
        # A model with an id, a provider and a name alone is written as its id.
        models = [
            each["id"] if len(each) == 3 and each["id"] == _name_of(each) else each
            for each in self.models.values()
        ]
        return {"models": models, "agents": list(self.agents.values())}

    def _add(self, part: Part) -> None:
        name, options = _id_and_options(part)
        for key in ("transform", "inputs", "prompts"):
            if options.get(key) is not None:
                raise LeftOutError(f"`{key}`", "Write a suite for it")
        if name.partition(":")[0] in ("http", "https"):
            entry, tools = self._agent(name, options), list[dict[str, Any]]()
            section, wanted = self.agents, "agent"
        else:
            entry, tools = self._model(name, options)
            section, wanted = self.models, _name_of(entry)
        if self.found and tools != self.tools:
            raise LeftOutError("other tools than the first one", "Write a suite for it")
        identifier = unused(options.text("label") or wanted, self.models | self.agents)
        section[identifier] = {"id": identifier, **entry}
        self.found.append(identifier)
        self.tools = tools

    def _model(self, name: str, options: Part) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the entry of a model without its id, and its tools."""
        prefix, _, rest = name.partition(":")
        api, _, model = rest.partition(":")
        if api not in ("chat", "responses", "messages"):
            model = "" if _OTHER_APIS.fullmatch(api) else rest
        if prefix not in _TYPES or not model or "{{" in model:
            instead = "Write a chat model under `models`, or an agent under `agents`"
            raise LeftOutError(f"the id {excerpt_of(name)}", instead)
        if name.startswith("openai:responses:"):
            self.suite.differ(options, "`openai:responses`. kindlm calls Chat Completions")
        config = options.entries("config")
        for key in _OTHER_SERVER:
            if key in config:
                raise LeftOutError(f"`{key}`", "Write it under `providers` and `models`")
        tools = self._tools(config.pop("tools")) if "tools" in config else []
        params = settings_of(config, self.suite)
        entry = {"provider": _TYPES[prefix], "model": model}
        return entry | ({"params": params} if params else {}), tools

    def _tools(self, part: Part) -> list[dict[str, Any]]:
        """Return the definitions of tools, which kindlm simulates; note those that are invalid."""
        value = file_value(part.value, self.files)
        tools = []
        for item in value if isinstance(value, list) else [value]:
            tool = item if isinstance(item, dict) else {}
            given = tool.get("function", tool)
            given = given if isinstance(given, dict) else {}
            schema = given.get("parameters", given.get("input_schema")) or {}
            parts = {key: given.get(key) for key in ("name", "description")}
            parts["parameters"] = schema
            made = {key: each for key, each in parts.items() if each}
            with suppress(ValidationError):
                ToolConfig.model_validate(made)
                if tool.get("type") in (None, "function", "custom") and not schema_fault(schema):
                    tools.append(made)
                    continue
            what = f"the tool {excerpt_of(item)}"
            self.suite.leave_out(part, what, "Write it under `tools` of the tests")
        if tools:
            what = "promptfoo stops at a tool call; kindlm answers it and lets the model go on"
            self.suite.differ(part, f"{what}. Add `responses` to the tools of each test")
        return tools

    def _agent(self, name: str, options: Part) -> dict[str, Any]:
        """Return the entry of an HTTP agent; only those that take JSON by POST have one."""
        config = options.entries("config")
        url = str(config["url"].value) if "url" in config else name
        if not _ADDRESS.match(url):
            raise LeftOutError(f"the address {excerpt_of(name)}", "Write it under `agents`")
        endpoint = replace_names(url, _environment)
        entry: dict[str, Any] = {"adapter": "http", "endpoint": endpoint, "responsePath": "$"}
        for key, part in config.items():
            value = part.value
            if key == "headers" and isinstance(value, dict):
                headers = {each: str(item) for each, item in value.items()}
                filled_in = filled(headers, lambda text: replace_names(text, _environment))
                entry[key] = self._without_credentials(filled_in, part, is_credential_name)
            elif key == "body":
                try:
                    body = json_value(value) if isinstance(value, str) else value
                except ValueError:
                    raise LeftOutError("a `body` that is not JSON") from None
                filled_in = filled(body, _in_body)
                entry[key] = self._without_credentials(filled_in, part, is_secret_key)
            elif key in ("transformResponse", "responseParser"):
                path = _RESPONSE_PATH.fullmatch(str(value).strip())
                if path is None and value not in ("json", "text"):
                    raise LeftOutError(f"`{key}`", "Name the place of the text: `responsePath`")
                written = re.sub(r"\[['\"](\w+)['\"]\]", r".\1", path[1]) if path else "$"
                entry["responsePath"] = written.lstrip(".")
            elif key in _REQUESTS and (key, str(value).upper()) != ("method", "POST"):
                instead = "kindlm sends JSON by POST: write an agent for it"
                raise LeftOutError(f"`{key}`", instead)
            elif key not in ("url", "method"):
                self.suite.leave_out(part, f"`{key}` of an agent")
        return entry

    def _without_credentials(
        self, value: Any, part: Part, is_credential: Callable[[str], bool], name: str = ""
    ) -> Any:
        """Return a part of a request, in which environment variables replace credentials."""
        replaced = partial(self._without_credentials, part=part, is_credential=is_credential)
        if isinstance(value, dict):
            return {key: replaced(item, name=key) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item, name=name) for item in value]
        if not (value and isinstance(value, str) and is_credential(name)) or "{{" in value:
            return value
        variable = re.sub(r"\W", "_", name.upper())
        instead = f"Put it into the variable {variable}"
        self.suite.leave_out(part, f"the value of {name}", instead)
        return f"{{{{env.{variable}}}}}"


def _name_of(model: dict[str, Any]) -> str:
    return f"{model['provider']}/{model['model']}"


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
    raise LeftOutError(f"no `id`: {excerpt_of(part.value)}")


def _environment(name: str) -> str:
    if not name.startswith("env."):
        raise LeftOutError(f"{{{{{name}}}}}", "Only variables of the environment are allowed here")
    return f"{{{{{name}}}}}"


def _in_body(text: str) -> str:
    return replace_names(text, lambda it: "{{message}}" if it == "prompt" else _environment(it))
