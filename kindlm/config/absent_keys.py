"""Fills in keys that a kindlm.yaml leaves out, and that depend on the rest of the file.

The document has long forms only. These are filled in:

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
from functools import reduce
from itertools import chain
from typing import Any

from kindlm.config.files import ReferencedFiles
from kindlm.config.templates import prompt_templates
from kindlm.config.test_schema import messages_fit
from kindlm.document import Node, Path, section
from kindlm.packages import own, own_names
from kindlm.plugins import Provider

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
_NEARLY = re.compile(r"\{\{\s+input\s*\}\}|\{\{input\s+\}\}")
_SYSTEM = frozenset({"system", "systemFile", "system_prompt_file"})


def fill_in(
    root: Node, name: Callable[[], str], project: Callable[[], str], files: ReferencedFiles
) -> dict[Path, Path]:
    """Fill in what a file leaves out, in place; return its moves, see `write_out`."""
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
    _add_providers(root, explicit)
    _add_keys(root)
    for prompt in (root.child("prompts") or Node({}, 0)).children.values():
        if isinstance(prompt.value, dict) and prompt.value.keys() <= _SYSTEM and prompt.value:
            _default(prompt, "user", _INPUT)
    moved: dict[Path, Path] = {}
    # The prompts of inputs, which are added below, are none of those.
    named = {name: [*it.values()] for name, it in prompt_templates(root.value, files).items()}
    takers: list[str] | None = [
        name for name, held in named.items() if any(_INPUT in text for text in held)
    ]
    if any(map(_NEARLY.search, chain(*named.values()))):
        takers = None
    for number, test in root.entries("tests").items():
        names = takers if "input" in test.value else list(named)
        moved |= _fill_in_test(root, test, ("tests", number), names)
    return moved


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
    if spoken is not None and not is_object and not agent.value.keys() & {"request", "body"}:
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


def _add_providers(root: Node, explicit: Collection[int]) -> None:
    """Add entries for providers of kindlm that models name, unless they have required options.

    `explicit` are the models with a key `provider`. If the file has `providers`, that key refers to
    them, and a missing entry is an error.
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


def _add_keys(root: Node) -> None:
    """Add the usual `apiKeyEnv` to providers without a `baseUrl`."""
    for name, settings in (root.child("providers") or Node({}, 0)).children.items():
        if not isinstance(settings.value, dict) or "baseUrl" in settings.value:
            continue
        type_ = settings.value.get("type", name)
        kind = own(Provider, type_) if isinstance(type_, str) else None
        if kind is not None and kind.usual_base_url and kind.usual_key_variable:
            _default(settings, "apiKeyEnv", kind.usual_key_variable)


def _fill_in_test(root: Node, test: Node, place: Path, names: list[str] | None) -> dict[Path, Path]:
    """Give a test the prompts with these names; with an empty list, a prompt of its input."""
    given, moved = test.child("input"), dict[Path, Path]()
    if not test.value.keys() & {"prompt", "prompts", "command", "call"}:
        if names is None:
            return {}  # The schema refuses the input: no prompt has a place for it.
        if names:
            test.put("prompts", Node.sequence(test, *map(test.leaf, names)))
        elif given is not None:
            return _as_prompt(root, test, given, place)
    prompts = test.child("prompts")
    if prompts is not None and "prompt" not in test.value and len(prompts.children) == 1:
        test.put("prompt", test.take("prompts").children[0], test.keys["prompts"])
        moved[*place, "prompt"] = (*place, "prompts", 0)
    if given is not None and "call" not in test.value:
        moved |= _as_variable(test, given, place)
    return moved


def _as_variable(test: Node, given: Node, place: Path) -> dict[Path, Path]:
    """Make the input of a test with prompts its variable `input`."""
    variables = test.child("vars") or Node.mapping(given)
    is_free = isinstance(variables.value, dict) and "input" not in variables.value
    if not is_free or not isinstance(given.value, dict) or given.value.keys() != {"user"}:
        return {}
    variables.put("input", test.take("input").children["user"], test.keys["input"])
    test.put("vars", variables)
    return {(*place, "vars", "input"): (*place, "input")}


def _as_prompt(root: Node, test: Node, given: Node, place: Path) -> dict[Path, Path]:
    """Make the input of a test a prompt with the test's name, and further messages turns."""
    at, name = (*place, "input"), test.value.get("name")
    prompts = root.child("prompts") or Node.mapping(given)
    messages = _messages(given.value)
    further = [inner for role, inner in messages if role == "user"][1:]
    does_fit = isinstance(given.value, dict) or (
        messages_fit([role for role, _ in messages])
        and not (further and "conversation" in test.value)
    )
    if not isinstance(name, str) or not isinstance(prompts.value, dict) or not does_fit:
        return {}
    if name in prompts.value:
        name += " (input)"
    while name in prompts.value:
        name += f" {place[-1]}"  # so that thousands of tests of one name do not try each other's
    moved: dict[Path, Path] = {("prompts", name): at, (*place, "prompt"): at}
    entry = given
    if not isinstance(given.value, dict):
        entry = Node.mapping(given)
        for role, inner in reversed(messages):  # of several messages of the user, the first stays
            entry.put(role, _at(given, inner))
            moved["prompts", name, role] = (*at, *inner)
    if further:
        turns = [Node.mapping(given, user=_at(given, inner)) for inner in further]
        test.put("conversation", Node.sequence(given, *turns))
        for number, inner in enumerate(further):
            moved[*place, "conversation", number, "user"] = (*at, *inner)
    prompts.put(name, entry, test.keys["input"])
    root.put("prompts", prompts)
    test.put("prompt", test.take("input").leaf(name))
    return moved


def _messages(value: Any) -> list[tuple[str, Path]]:
    """Return the role of each message in a list, and the path of its text in the list."""
    return [
        (str(message["role"]), (index, "content"))
        if isinstance(message, dict) and message.keys() == {"role", "content"}
        else ("user" if isinstance(message, str) else "", (index,))
        for index, message in enumerate(value if isinstance(value, list) else ())
    ]


def _at(node: Node, path: Path) -> Node:
    return reduce(lambda each, part: each.children[part], path, node)
