"""Writes out the short forms of kindlm.yaml, and fills in the keys that it leaves out.

All other modules see the long form only. So a short form has the meaning, the hash and the checks
of its long form. The short forms are:

- a value in place of a list of one, wherever the schema has a list: `tags: smoke`;
- a text, number or boolean in place of a section with a main key (`Section.main`): `toolCalls:
  [lookup_order]` means `toolCalls: [{tool: lookup_order}]`.

These are filled in, as they depend on the rest of the file:

- the version, the project, and the name of the suite;
- the ids of models and agents, and the adapter of an agent at a URL or at `module:name`;
- the provider of a model such as `openai/gpt-4o`, and the entries of known providers;
- an entry in `models` for a judge such as `judgeModel: openai/gpt-4o`;
- the user's text of a prompt with only a system text: `{{input}}`;
- the prompts of a test. Its `input`, a text or messages, becomes its prompt, or the variable
  `{{input}}` of the prompts that contain it, also in their files. A test without an input has all
  prompts.

Values that do not fit stay, and the schema reports them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from kindlm.config.files import ReferencedFiles
from kindlm.config.schema import KindlmConfig
from kindlm.config.target_schema import AgentConfig, ProviderConfig
from kindlm.config.templates import prompt_templates
from kindlm.config.test_schema import messages_fit
from kindlm.document import Document, Node, Path, section
from kindlm.packages import own, own_names
from kindlm.plugins import Adapter, Provider
from kindlm.section import Described

Sections = tuple[type[Described], ...]


class Key(NamedTuple):
    """A key of a section: its field, and whether it holds one value, a list or a mapping.

    `sections` describe its value, or those in it, if they are mappings.
    """

    field: FieldInfo
    is_list: bool
    is_mapping: bool
    sections: Sections


@cache
def keys_of(section: type[Described]) -> dict[str, Key]:
    """Return the keys of a section as the file spells them; other names of a key last."""
    found: dict[str, Key] = {}
    others: dict[str, Key] = {}
    for name, field in section.model_fields.items():
        first, *more = getattr(field.validation_alias, "choices", (field.alias or name,))
        found[first] = Key(field, *_held([field.annotation]))
        others |= dict.fromkeys(more, found[first])
    return found | others


def keys_at(model: type[Described], path: Path) -> dict[str, Key]:
    """Return the keys of the section at a path; {} if there is another value."""
    if not path:
        return keys_of(model)
    key, below = keys_of(model).get(str(path[0])), path[1:]
    if key is None or not key.sections:
        return {}
    if key.is_list or key.is_mapping:
        if not below or isinstance(below[0], int) is not key.is_list:
            return {}
        below = below[1:]
    # Of several forms of a value, the first is the usual one.
    return keys_at(key.sections[0], below)


def _held(annotations: list[Any]) -> tuple[bool, bool, Sections]:
    """Return what a union of types holds, as in `Key`. With `str` in it, it is no list."""
    todo, sections = [*annotations], list[type[Described]]()
    is_list = is_mapping = is_text = False
    for each in todo:  # which grows
        origin, arguments = get_origin(each), get_args(each)
        if origin in (Union, UnionType):
            todo += arguments
        elif origin is Annotated:
            todo.append(arguments[0])
        elif origin in (list, dict):
            is_list, is_mapping = is_list or origin is list, is_mapping or origin is dict
            sections += _held([arguments[-1]])[-1]
        elif each is str:
            is_text = True
        elif isinstance(each, type) and issubclass(each, Described):
            sections.append(each)
    return is_list and not is_text, is_mapping and not is_list, tuple(sections)


ALONE = {"agent": "agents", "model": "models"}
"""Keys that hold the only entry of a list, with the key of the list."""


def write_out(
    document: Document, name: Callable[[], str], project: Callable[[], str], files: ReferencedFiles
) -> None:
    """Write out the short forms of a file, and fill in what it leaves out, in place.

    `name` and `project` return the default names of the suite and its project.
    """
    root = document.root
    if root is None or not isinstance(root.value, dict):
        return
    root.locate()
    for key, plural in ALONE.items():
        if key in root.value and plural not in root.value:
            root.put(plural, root.take(key), root.keys[key])
    # A list of prompts, or a single text, becomes a mapping: the first is `prompt-1`.
    prompts = root.child("prompts")
    if prompts is not None and isinstance(prompts.value, str):
        prompts = Node.sequence(prompts, prompts)
    if prompts is not None and isinstance(prompts.value, list):
        named = {f"prompt-{int(at) + 1}": each for at, each in prompts.children.items()}
        root.put("prompts", Node.mapping(prompts, **named))
    write_out_section(root, (KindlmConfig,))
    _fill_in(root, name, project, files)


def write_out_section(node: Node, sections: Sections) -> None:
    """Write out a mapping in place; each of its keys belongs to one of the sections."""
    for key in list(node.children):
        named = (keys_of(each).get(str(key)) for each in sections)
        held = next((each for each in named if each is not None), None)
        if held is None or not (held.is_list or held.sections):
            continue
        child = node.children[key]
        if held.is_list and _is_alone(child, held.sections):
            child = _in_place_of(child, Node.sequence(child, child))
            node.put(key, child)
        if held.is_list or held.is_mapping:
            for part in child.children if isinstance(child.value, (list, dict)) else ():
                _write_out_entry(child, part, held.sections)
        else:
            _write_out_entry(node, key, held.sections)


def _write_out_entry(parent: Node, key: str | int, sections: Sections) -> None:
    node = parent.children[key]
    keys = (each.main_key(node.value) for each in sections)
    main = next((key for key in keys if key is not None), None)
    if main is not None:
        node = _in_place_of(node, Node.mapping(node, **{main: node}))
        parent.put(key, node)
    if isinstance(node.value, dict):
        write_out_section(node, (*sections, *_options(sections, key, node.value)))


def _in_place_of(node: Node, form: Node) -> Node:
    """Return another form of a value; messages name the place of the value in the file."""
    form.written = node.written
    return form


def _is_alone(node: Node, sections: Sections) -> bool:
    """Return whether a value can be the only entry of a list of sections, or of plain values.

    A mapping whose keys are names of entries cannot: its user has to write a list.
    """
    value = node.value
    if isinstance(value, dict):
        are_entries = value and all(isinstance(each, dict) for each in value.values())
        known = {key for each in sections for key in keys_of(each)}
        return not (sections and are_entries and known.isdisjoint(value))
    is_single = value is not None and not isinstance(value, list)
    return is_single and (not sections or any(each.main_key(value) for each in sections))


def _options(sections: Sections, key: str | int, written: dict[str, Any]) -> Sections:
    """Return the class of the options in an entry of a provider or agent of kindlm."""
    kind = written.get("adapter", written.get("type", key))
    found: type[Described] | None = None
    if isinstance(kind, str) and ProviderConfig in sections:
        found = own(Provider, kind)
    elif isinstance(kind, str) and AgentConfig in sections:
        found = own(Adapter, kind)
    return () if found is None else (found,)


_OBJECT = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_IN_FILE = re.compile(r"(python:)?[^:]+\.py:[\w.]+")
"""The adapter refuses it with the name of the module."""
_MODEL = re.compile(r"([\w-]+)[/:](.+)")
_PROTOCOLS = {
    "/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
}
"""The ends of agents' URLs, each with the protocol of the agent."""

_INPUT = "{{input}}"
_TAKES = re.compile(r"\{\{[ \t]*input[ \t]*\}\}")
"""Also with spaces, which `check_templates` refuses: such a prompt is meant for an input, too."""

_SYSTEM = frozenset({"system", "systemFile", "system_prompt_file"})


def _fill_in(
    root: Node, name: Callable[[], str], project: Callable[[], str], files: ReferencedFiles
) -> None:
    _default(root, "kindlm", 1)
    if "project" not in root.value:
        _default(root, "project", project())
    suite = root.child("suite") or Node.mapping(root)
    if isinstance(suite.value, dict) and "name" not in suite.value:
        suite.put("name", suite.leaf(name()))
        root.put("suite", suite)
    for number, agent in root.entries("agents").items():
        _fill_in_agent(agent, number)
    models = root.entries("models")
    explicit = {at for at, model in models.items() if "provider" in model.value}
    for model in models.values():
        _fill_in_model(model, section(root.value, "providers"))
    judges = [] if (defaults := root.child("defaults")) is None else [defaults.child("judgeModel")]
    for test in root.entries("tests").values():
        for part in (test, *test.entries("conversation").values()):
            expect = part.child("expect") or Node({}, 0)
            judges += [each.child("model") for each in expect.entries("judge").values()]
    for judge in judges:
        if judge is not None and isinstance(judge.value, str):
            _add_judge(root, judge)
    _fill_in_providers(root, explicit)
    for prompt in (root.child("prompts") or Node({}, 0)).children.values():
        if isinstance(prompt.value, dict) and prompt.value.keys() <= _SYSTEM and prompt.value:
            _default(prompt, "user", _INPUT)
    # The prompts of inputs, which are added below, are none of those.
    named = {name: [*it.values()] for name, it in prompt_templates(root.value, files).items()}
    takers = [name for name, held in named.items() if any(map(_TAKES.search, held))]
    for number, test in root.entries("tests").items():
        _fill_in_test(root, test, number, takers if "input" in test.value else list(named))


def _default(node: Node, key: str, value: Any) -> None:
    if key not in node.value:
        node.put(key, node.leaf(value))


def protocol_of(url: str) -> str | None:
    """Return the protocol of an agent by the end of its URL; None if that does not show it."""
    return next((name for end, name in _PROTOCOLS.items() if url.endswith(end)), None)


def _fill_in_agent(agent: Node, number: int) -> None:
    _default(agent, "id", "agent" if number == 0 else f"agent-{number + 1}")
    place = agent.value.get("endpoint", agent.value.get("url"))
    if place is None or agent.value.keys() & {"adapter", "type"}:
        return
    address = place if isinstance(place, str) else ""
    is_object = _OBJECT.fullmatch(address) or _IN_FILE.fullmatch(address)
    spoken = protocol_of(address)
    if spoken is not None and not agent.value.keys() & {"request", "body"}:
        _default(agent, "protocol", spoken)
    # The adapter for a URL refuses anything else.
    _default(agent, "adapter", "python" if is_object else "http")


def _fill_in_model(model: Node, providers: Any) -> None:
    name = model.value.get("model")
    if not isinstance(name, str) or not name:
        return
    _default(model, "id", name)
    if "provider" in model.value:
        return
    if found := _split(name, providers):
        _default(model, "provider", found[0])
        model.put("model", model.leaf(found[1]))
    elif len(providers) == 1:
        _default(model, "provider", next(iter(providers)))


def _split(text: str, providers: Any) -> tuple[str, str] | None:
    """Return the provider and the model of `openai/gpt-4o` or `openai:gpt-4o`; None for others.

    If the file has one provider with a name of the user's own, that may be a gateway with models
    called `groq/…`: then the text is the model. A scripted provider is no gateway.
    """
    if (found := _MODEL.fullmatch(text)) is None:
        return None
    is_gateway = (
        len(providers) == 1
        and found[1] not in own_names(Provider)
        and all(section(providers, name).get("type", name) != "scripted" for name in providers)
    )
    if found[1] in providers or not (is_gateway or own(Provider, found[1]) is None):
        return found[1], found[2]
    return None


def _add_judge(root: Node, judge: Node) -> None:
    providers = section(root.value, "providers")
    models = root.child("models") or Node.sequence(judge)
    names = [each.value.get("id") for each in root.entries("models").values()]
    is_new = isinstance(models.value, list) and judge.value not in names
    if is_new and _split(judge.value, providers) is not None:
        model = Node.mapping(judge, model=judge, role=judge.leaf("judge"))
        _fill_in_model(model, providers)
        root.put("models", Node.sequence(models, *models.children.values(), model))


def _fill_in_providers(root: Node, explicit: Collection[int]) -> None:
    """Add entries for providers of kindlm that models name, unless they have required options.

    `explicit` are the models with a key `provider`. If the file has `providers`, that key refers to
    them, and a missing entry is an error. Entries without a `baseUrl` get the usual `apiKeyEnv`.
    """
    are_configured = bool(section(root.value, "providers"))
    for at, model in root.entries("models").items():
        name = model.value.get("provider")
        kind = own(Provider, name) if isinstance(name, str) else None
        if kind is None or any(field.is_required() for field in kind.model_fields.values()):
            continue
        if kind.usual_base_url is not None and are_configured and at in explicit:
            continue
        providers = root.child("providers") or Node.mapping(model)
        if isinstance(providers.value, dict) and name not in providers.value:
            settings = Node.mapping(model)
            if kind.usual_key_variable is not None:
                _default(settings, "apiKeyEnv", kind.usual_key_variable)
            providers.put(str(name), settings)
            root.put("providers", providers)
    for name, settings in (root.child("providers") or Node({}, 0)).children.items():
        if not isinstance(settings.value, dict) or "baseUrl" in settings.value:
            continue
        type_ = settings.value.get("type", name)
        kind = own(Provider, type_) if isinstance(type_, str) else None
        if kind is not None and kind.usual_base_url and kind.usual_key_variable:
            _default(settings, "apiKeyEnv", kind.usual_key_variable)


def _fill_in_test(root: Node, test: Node, number: int, names: list[str]) -> None:
    """Give a test the prompts with these names; with an empty list, a prompt of its input."""
    given = test.child("input")
    if not test.value.keys() & {"prompt", "prompts", "command", "call"}:
        if names:
            test.put("prompts", Node.sequence(test, *map(test.leaf, names)))
        elif given is not None:
            _as_prompt(root, test, given, number)
            return
    prompts = test.child("prompts")
    if prompts is not None and "prompt" not in test.value and len(prompts.children) == 1:
        test.put("prompt", test.take("prompts").children[0], test.keys["prompts"])
    if given is None or "call" in test.value:
        return
    # Beside prompts, an input is the value of their variable.
    variables = test.child("vars") or Node.mapping(given)
    is_free = isinstance(variables.value, dict) and "input" not in variables.value
    if is_free and isinstance(given.value, dict) and given.value.keys() == {"user"}:
        variables.put("input", test.take("input").children["user"], test.keys["input"])
        test.put("vars", variables)


def _as_prompt(root: Node, test: Node, given: Node, number: int) -> None:
    """Make the input of a test a prompt with the test's name, and further messages turns."""
    # An empty name is reported where it is, and not also as that of a prompt.
    name, prompts = test.value.get("name"), root.child("prompts") or Node.mapping(given)
    name = "unnamed" if name == "" else name
    listed = given.children.values() if isinstance(given.value, list) else ()
    messages = list(map(_message, listed))
    further = [text for role, text in messages if role == "user"][1:]
    does_fit = isinstance(given.value, dict) or (
        messages_fit([role for role, _ in messages])
        and not (further and "conversation" in test.value)
    )
    if not isinstance(name, str) or not isinstance(prompts.value, dict) or not does_fit:
        return
    if name in prompts.value:
        name += " (input)"
    while name in prompts.value:
        name += f" {number}"  # so that thousands of tests of one name do not try each other's
    entry = given
    if not isinstance(given.value, dict):
        entry = _in_place_of(given, Node.mapping(given))
        for role, text in reversed(messages):  # of several messages of the user, the first stays
            entry.put(role, text)
    if further:
        turns = [Node.mapping(given, user=text) for text in further]
        test.put("conversation", Node.sequence(given, *turns))
    prompts.put(name, entry, test.keys["input"])
    root.put("prompts", prompts)
    test.put("prompt", _in_place_of(given, test.take("input").leaf(name)))


def _message(node: Node) -> tuple[str, Node]:
    """Return the role of a message and its text; the role is empty for another value."""
    if isinstance(node.value, dict) and node.value.keys() == {"role", "content"}:
        return str(node.value["role"]), node.children["content"]
    return "user" if isinstance(node.value, str) else "", node
