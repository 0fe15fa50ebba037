"""Writes out the short forms of kindlm.yaml.

All other modules see the long form only. So a short form has the meaning, the hash and the checks
of its long form. The short forms are:

- a value in place of a list of one, wherever the schema has a list: `tags: smoke`;
- a text, number or boolean in place of a section with a main key (`Section.main`): `toolCalls:
  [lookup_order]` means `toolCalls: [{tool: lookup_order}]`.

`absent_keys` then fills in what the file leaves out. Values that do not fit stay, and the schema
reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from kindlm.config.absent_keys import fill_in
from kindlm.config.files import ReferencedFiles
from kindlm.config.schema import KindlmConfig
from kindlm.config.target_schema import AgentConfig, ProviderConfig
from kindlm.config.validation import keys_of
from kindlm.document import Document, Node, Path
from kindlm.packages import own
from kindlm.plugins import Adapter, Provider
from kindlm.section import Described

Sections = tuple[type[Described], ...]

ALONE = {"agent": "agents", "model": "models"}
"""Keys that hold the only entry of a list, with the key of the list."""


def write_out(
    document: Document, name: Callable[[], str], project: Callable[[], str], files: ReferencedFiles
) -> dict[Path, Path]:
    """Write out the short forms of a file, in place; return its moves.

    Moves lead from the new path of a value to the path at which it is written. `name` and `project`
    return the default names of the suite and its project.
    """
    root = document.root
    if root is None or not isinstance(root.value, dict):
        return {}
    writer = Writer()
    for key, plural in ALONE.items():
        if key in root.value and plural not in root.value:
            root.put(plural, root.take(key), root.keys[key])
            writer.moved[(plural,)] = (key,)
    # A list of prompts, or a single text, becomes a mapping: the first is `prompt-1`.
    prompts = root.child("prompts")
    if prompts is not None and isinstance(prompts.value, str):
        prompts = Node.sequence(prompts, prompts)
    if prompts is not None and isinstance(prompts.value, list):
        named = {f"prompt-{int(at) + 1}": each for at, each in prompts.children.items()}
        root.put("prompts", Node.mapping(prompts, **named))
    writer.section(root, (), (KindlmConfig,))
    return writer.moved | fill_in(root, name, project, files)


class Writer:
    """Writes out the short forms of a mapping in place; `moved` are its moves, see `write_out`."""

    def __init__(self) -> None:
        self.moved: dict[Path, Path] = {}

    def section(self, node: Node, path: Path, sections: Sections) -> None:
        """Write out a mapping; each of its keys belongs to one of the sections."""
        for key in list(node.children):
            described = (shapes(each).get(str(key)) for each in sections)
            shape = next((each for each in described if each is not None), None)
            if shape is None:
                continue
            child, place = node.children[key], (*path, key)
            if shape.is_list and _is_alone(child, shape.sections):
                node.put(key, Node.sequence(child, child))
                self.moved[*place, 0] = place
                child = node.children[key]
            if shape.is_list or shape.is_mapping:
                for part in child.children if isinstance(child.value, (list, dict)) else ():
                    self._entry(child, part, (*place, part), shape.sections)
            else:
                self._entry(node, key, place, shape.sections)

    def _entry(self, parent: Node, key: str | int, path: Path, sections: Sections) -> None:
        node = parent.children[key]
        keys = (each.main_key(node.value) for each in sections)
        main = next((key for key in keys if key is not None), None)
        if main is not None:
            parent.put(key, Node.mapping(node, **{main: node}))
            self.moved[*path, main] = path
        node = parent.children[key]
        if isinstance(node.value, dict):
            self.section(node, path, (*sections, *_options(sections, key, node.value)))


def _is_alone(node: Node, sections: Sections) -> bool:
    """Tell whether a value can be the only entry of a list of sections, or of plain values.

    A mapping whose keys are names of entries cannot: its user has to write a list.
    """
    value = node.value
    if isinstance(value, dict):
        are_entries = value and all(isinstance(each, dict) for each in value.values())
        known = {key for each in sections for key in keys_of(each)}
        return not (sections and are_entries and known.isdisjoint(value))
    is_single = value is not None and not isinstance(value, list)
    return is_single and (not sections or any(each.main_key(value) for each in sections))


def _options(
    sections: Sections, key: str | int, written: dict[str, Any]
) -> Iterator[type[Described]]:
    """Yield the class of the options in an entry of a provider or agent of kindlm."""
    kind = written.get("adapter", written.get("type", key))
    if not isinstance(kind, str):
        return
    found: type[Described] | None = None
    if ProviderConfig in sections:
        found = own(Provider, kind)
    elif AgentConfig in sections:
        found = own(Adapter, kind)
    if found is not None:
        yield found


class Shape(NamedTuple):
    """What a key holds: one value, a list or a mapping; `sections` describe values in mappings."""

    is_list: bool
    is_mapping: bool
    sections: Sections


@cache
def shapes(section: type[Described]) -> dict[str, Shape]:
    """Return the shapes of the keys, and of their aliases, that hold lists or sections."""
    found: dict[str, Shape] = {}
    for name, field in section.model_fields.items():
        shape = _shape([field.annotation])
        other = getattr(field.validation_alias, "choices", ())
        for key in (field.alias or name, *other):
            if shape.is_list or shape.sections:
                found[str(key)] = shape
    return found


def _shape(annotations: Iterable[Any]) -> Shape:
    """Return the shape of a union of types. With `str` in it, a text is not a list of one."""
    todo, sections = list(annotations), list[type[Described]]()
    is_list = is_mapping = is_text = False
    for each in todo:  # which grows
        origin, arguments = get_origin(each), get_args(each)
        if origin in (Union, UnionType):
            todo += arguments
        elif origin is Annotated:
            todo.append(arguments[0])
        elif origin in (list, dict):
            is_list, is_mapping = is_list or origin is list, is_mapping or origin is dict
            sections += _shape(arguments[-1:]).sections
        elif each is str:
            is_text = True
        elif isinstance(each, type) and issubclass(each, BaseModel):
            sections.append(each)  # type: ignore[arg-type]
    return Shape(is_list and not is_text, is_mapping and not is_list, tuple(sections))
