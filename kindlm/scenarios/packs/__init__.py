"""Packs: tests in installed packages, which run as `pack:NAME`.

A pack is an entry point of the group `kindlm.packs`: a package with scenarios and suites in the
form of kindlm.yaml, or a module with scenarios.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from kindlm.config import Borrowed, LoadedSuite, load_suite, read_bytes
from kindlm.config.diagnostics import Diagnostic
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import is_deferred, names_in
from kindlm.config.rows import part_name
from kindlm.dataclass import replace
from kindlm.document import Node, section
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.formats.discovery import PACK_MARK, Discovery, discover
from kindlm.packages import installed
from kindlm.scenarios.configuration import sandboxed
from kindlm.scenarios.scenario_suite import Surroundings
from kindlm.suggestions import did_you_mean
from kindlm.wording import count, listed_names, shown
from kindlm.yaml_document import read_document

_GROUP = "kindlm.packs"


def discover_pack(pack: str) -> Result[Discovery]:
    """Return the files of a pack, or of a part of it: `pack:NAME/folder`."""
    name, _, wanted = pack.removeprefix(PACK_MARK).partition("/")
    packs = installed(_GROUP)
    if not (known := packs.get(name, ())):
        message = f"There is no pack {shown(name)}. Installed: {', '.join(packs) or 'none'}."
        hint = did_you_mean(name, packs) or "Install the package that it comes with."
        return Err(not_there(message, hint))
    if len(known) > 1:
        packages = ", ".join(sorted(each.package for each in known))
        message = f"Several packages have a pack {shown(name)}: {packages}."
        return Err(misuse(message, "Remove all of them but one."))
    (pack_of,) = known
    if (place := _place(pack_of.entry)) is None:
        message = f"The pack {shown(name)} of {pack_of.package} is not installed"
        message += f": no module {pack_of.entry.module}."
        return Err(not_there(message, "Reinstall that package."))
    message = f"There are no scenarios in {shown(pack)} ({place})."
    hint = "A pack has test_*.py or *_test.py with functions under @scenario, or YAML with `turns`."
    nothing = Err(not_there(message, hint))
    found = discover(place)
    if isinstance(found, Err):
        is_module = place.is_file() and found.error.code is ErrorCode.CONFIG_VALIDATION_ERROR
        return nothing if is_module else found
    folder = place if place.is_dir() else place.parent
    suites = (
        replace(each, suite=f"{PACK_MARK}{name}/{each.path.relative_to(folder).as_posix()}")
        for each in found.value.found
        if each.front_end in ("scenario", "kindlm")
    )
    files = tuple(each for each in suites if not wanted or f"{each.suite}/".startswith(f"{pack}/"))
    return Ok(Discovery(files)) if files else nothing


def _place(entry: EntryPoint) -> Path | None:
    """Return the folder or file of a pack; imports only the packages around it."""
    with suppress(ImportError, ValueError):
        if (spec := find_spec(entry.module)) is not None:
            found = next(iter(spec.submodule_search_locations or ()), spec.origin)
            return None if found is None else Path(found)
    return None


_BORROWED = frozenset(
    {"project", "providers", "models", "agents", "serve", "prices", "record", "defaults"}
)
"""Sections that a suite of a pack takes from the project."""

_SYSTEM = "You are a helpful assistant. Do what the user asks for, with your tools."
"""The system text for a project without one."""

_MODELS = "simulated-tools"
"""The tag of suites with simulated tools, which only models use."""

_NAMES = {"name": "id", "type": "adapter", "url": "endpoint"}
"""Keys of `[agent]` that have another name in kindlm.yaml."""


def load_pack_suite(file: Path, suite: str, around: Surroundings) -> LoadedSuite:
    """Load a suite of a pack in the form of kindlm.yaml. Never raises for a mistake of the user.

    A suite without models and agents takes these from the project: the agent of `[agent]` in
    kindlm.toml, else the targets of its kindlm.yaml. A suite with the tag `simulated-tools` runs on
    models, since agents run their own tools. Other suites run on agents, or on models if there are
    no agents. `{{system}}` in prompts of the pack stands for each system text of the project.
    """
    data = read_bytes(file)
    load = partial(load_suite, file, environ=around.environ, project=lambda: around.project)
    own = {} if isinstance(data, Err) else section(read_document(data.value).value)
    if own.keys() & {"model", "models", "agent", "agents"}:
        itself = Borrowed(suite, file, frozenset(), lambda _: None)
        return load(borrowed=itself)
    tests = own.get("tests")
    number = len(tests) if isinstance(tests, list) else 0
    found = _target(around)
    if isinstance(found, KindlmError):
        return LoadedSuite(file, None, suite, number, (Diagnostic(found),))
    target, raw = found
    needs_model = _MODELS in section(own, "suite").get("tags", ())
    models = [each for each in _listed(raw, "model") if section(each).get("role") != "judge"]
    sections: dict[str, Any] = {key: raw[key] for key in raw.keys() & _BORROWED}
    sections |= {f"{key}s": _listed(raw, key) for key in ("model", "agent") if _listed(raw, key)}
    if needs_model and models:
        sections.pop("agents", None)
    # Agents have their own system text.
    read = Ok(None) if "agents" in sections else _systems(raw, target)
    if isinstance(read, Err):
        return LoadedSuite(file, None, suite, number, (Diagnostic(read.error, "error", "prompts"),))
    systems = read.value

    def put(root: Node) -> None:
        _put_input(root, systems)
        lent = read_document(json.dumps(sections).encode()).root
        for key, node in () if lent is None else lent.children.items():
            root.put(key, node)

    borrowed = Borrowed(suite, target, _BORROWED, put)
    loaded = load(borrowed=borrowed)
    # Warnings about parts of the project that the pack does not use are left out.
    diagnostics = [each for each in loaded.diagnostics if each.severity == "error"]
    for name, text in (systems or {}).items():
        if unknown := _variables(text):
            listed = listed_names([f"{{{{{each}}}}}" for each in unknown])
            message = f"The pack sends the system text of the prompt {shown(name)} with {listed} as"
            message += " written: only your own tests have values for that"
            hint = "To run the pack with values, add a prompt that has them in its system text"
            error = misuse(message, hint, SourceLocation(str(target)), "variables")
            diagnostics.append(Diagnostic(error, "warning"))
    run = loaded.suite
    if run is not None and needs_model and not models:
        run = replace(run, cases=tuple(replace(case, skip=True) for case in run.cases))
        message = f"{count(number, 'test')} of {suite} are skipped: they simulate tools, which"
        message += " needs a model. An agent runs its own tools"
        hint = "To run them, name the model behind the agent in kindlm.yaml, in place of the agent"
        diagnostics.append(Diagnostic(misuse(message, hint, reason="no_model"), "warning"))
    return replace(
        loaded,
        suite=run,
        name=suite,
        diagnostics=tuple(diagnostics),
        referenced=(*loaded.referenced, target),
    )


def _target(around: Surroundings) -> tuple[Path, dict[str, Any]] | KindlmError:
    """Return the file with the project's targets, and its content in the form of kindlm.yaml."""
    loaded = around.configuration
    errors = [each.error for each in loaded.diagnostics if each.severity == "error"]
    if errors:
        return errors[0]
    if loaded.file is not None and loaded.config is not None and loaded.config.agent is not None:
        table = sandboxed(loaded.config.agent, loaded.config.sandbox)
        agent = {_NAMES.get(key, to_camel(key)): value for key, value in table.items()}
        return loaded.file, {"agents": [agent]}
    names = ("kindlm.yaml", "kindlm.yml")
    file = next((each for name in names if (each := around.root / name).is_file()), None)
    data = None if file is None else read_bytes(file)
    if file is not None and data is not None:
        if isinstance(data, Err):
            return data.error
        document = read_document(data.value)
        if not document.readable:
            problem = document.problems[0]
            where = SourceLocation(str(file), problem.position.line if problem.position else None)
            return KindlmError(ErrorCode.CONFIG_PARSE_ERROR, problem.message, problem.hint, where)
        raw = dict(section(document.value))
        if raw.keys() & {"model", "models", "agent", "agents"}:
            return file, raw
    hint = "Name it in kindlm.yaml: `model: openai/gpt-4o` or `agent: http://localhost:8000/chat`"
    hint += "; or under [agent] in kindlm.toml"
    return misuse("There is no model and no agent to run the pack on", hint, reason="no_agent")


def _listed(raw: dict[str, Any], key: str) -> list[Any]:
    """Return the entries of a list, or the one entry under the singular of its key."""
    found = raw.get(f"{key}s", raw.get(key, []))
    return found if isinstance(found, list) else [found]


def _systems(raw: dict[str, Any], target: Path) -> Result[dict[str, str] | None]:
    files, found = ReferencedFiles(target.parent), dict[str, str]()
    for name, prompt in section(raw, "prompts").items():
        text = section(prompt).get("system")
        file = section(prompt).get("systemFile", section(prompt).get("system_prompt_file"))
        if isinstance(file, str):
            read = files.text(file)
            if isinstance(read, Err):
                message = f"The system text of the prompt {shown(name)}: {read.error.message}"
                return Err(replace(read.error, message=message, where=SourceLocation(str(target))))
            text = read.value
        if isinstance(text, str) and text not in found.values():
            found[name] = text
    return Ok(found)


def _variables(text: str) -> list[str]:
    """Return the variables of a text for which only the project's own tests have values."""
    return [name for name in names_in(text) if not is_deferred(name)]


def _put_input(root: Node, systems: dict[str, str] | None) -> None:
    """Replace each test whose prompt has `{{system}}` by a test for each system text.

    The text becomes part of the test's `input`, where placeholders are replaced, unlike in values
    of variables. If `systems` is None, the test has no system text.
    """
    templates = {
        name: str(section(prompt).get("system"))
        for name, prompt in section(root.value, "prompts").items()
        if "{{system}}" in str(section(prompt).get("system"))
    }
    texts = {"": ""} if systems is None else systems or {"": _SYSTEM}
    tests: list[Node] = []
    for test in root.entries("tests").values():
        template = templates.get(str(test.value.get("prompt")))
        if template is None or "input" not in test.value:
            tests.append(test)
            continue
        for key, text in texts.items():
            copy = Node(dict(test.value), test.start, dict(test.keys), dict(test.children))
            parts = {"user": copy.take("input")}
            if systems is not None:
                parts["system"] = test.leaf(template.replace("{{system}}", text))
                # A variable without a value stays as it is written.
                if unset := {name: test.leaf(f"{{{{{name}}}}}") for name in _variables(text)}:
                    copy.put("vars", Node.mapping(test, **unset))
            copy.put("input", Node.mapping(test, **parts))
            copy.take("prompt")
            if len(texts) > 1:
                copy.put("name", test.leaf(part_name(str(test.value.get("name")), key)))
            tests.append(copy)
    if tests:
        root.put("tests", Node.sequence(root.children["tests"], *tests))
    if templates and len(templates) == len(section(root.value, "prompts")):
        root.take("prompts")
    elif templates:
        for name in templates:
            root.children["prompts"].take(name)
