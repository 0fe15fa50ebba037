"""Short forms of kindlm.yaml, written out before anything else looks at the file.

Everything behind this module sees the long form only. So what is written shortly has the same
meaning, the same hash and the same checks as its long twin.

- A value alone is a list of one, wherever the schema has a list: `tags: smoke`.
- A text, number or boolean alone is a section with its main key (`Section.main`): `toolCalls:
  [lookup_order]` is `toolCalls: [{tool: lookup_order}]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from kindlm.config.files import ReferencedFiles
from kindlm.config.left_out import fill_in
from kindlm.config.schema import KindlmConfig
from kindlm.config.target_schema import AgentConfig, ProviderConfig
from kindlm.config.validation import keys_of
from kindlm.document import Document, Node, Path
from kindlm.packages import own
from kindlm.plugins import Adapter, Provider
from kindlm.section import Described

Sections = tuple[type[Described], ...]


ALONE = {"agent": "agents", "model": "models"}
"""Keys for one entry of a list."""


def write_out(
    document: Document,
    name: Callable[[], str],
    project: Callable[[], str],
    files: ReferencedFiles,
) -> dict[Path, Path]:
    """Write out the short forms of a file; return where the values stand that moved by this.

    The document is changed. `name` and `project` return what the suite and its project are called
    if the file does not say so.
    """
    root = document.root
    if root is None or not isinstance(root.value, dict):
        return {}
    writer = Writer()
    for key, plural in ALONE.items():
        if key in root.value and plural not in root.value:
            root.put(plural, root.take(key), root.keys[key])
            writer.moved[(plural,)] = (key,)
    # Prompts that are a text, or a list, are named by their numbers: `prompt-1`.
    prompts = root.child("prompts")
    if prompts is not None and isinstance(prompts.value, str):
        prompts = Node.sequence(prompts, prompts)
    if prompts is not None and isinstance(prompts.value, list):
        named = {
            f"prompt-{number}": prompts.children[number - 1]
            for number in range(1, len(prompts.value) + 1)
        }
        root.put("prompts", Node.mapping(prompts, **named))
    writer.section(root, (), (KindlmConfig,))
    return writer.moved | fill_in(root, name, project, files)


class Writer:
    """Writes out the short forms of a mapping; `moved` is where the values stand that moved."""

    def __init__(self) -> None:
        self.moved: dict[Path, Path] = {}

    def section(self, node: Node, path: Path, sections: Sections) -> None:
        """Write out what is in a mapping that one of several sections describes."""
        for key in list(node.children):
            described = (shapes(each).get(str(key)) for each in sections)
            shape = next((each for each in described if each is not None), None)
            if shape is None:
                continue
            child, place = node.children[key], (*path, key)
            is_one = child.value is not None and not isinstance(child.value, list)
            if shape.is_list and is_one and not _is_named(child, shape.sections):
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


def _is_named(node: Node, sections: Sections) -> bool:
    """Tell whether a mapping has entries by their names, which is an error: a list is needed."""
    return (
        isinstance(node.value, dict)
        and bool(sections and node.value)
        and all(isinstance(each, dict) for each in node.value.values())
        and not any(name in keys_of(each) for each in sections for name in node.value)
    )


def _options(
    sections: Sections, key: str | int, written: dict[str, Any]
) -> Iterator[type[Described]]:
    """Yield the options that kindlm's own kind of provider or agent adds to an entry."""
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
    """What a key holds: a list or a mapping of sections, or one; no sections for plain values."""

    is_list: bool
    is_mapping: bool
    sections: Sections


@cache
def shapes(section: type[Described]) -> dict[str, Shape]:
    """Return the keys of a section that hold lists or sections, by each of their names."""
    found: dict[str, Shape] = {}
    for name, field in section.model_fields.items():
        shape = _shape([field.annotation])
        other = getattr(field.validation_alias, "choices", ())
        for key in (field.alias or name, *other):
            if shape.is_list or shape.sections:
                found[str(key)] = shape
    return found


def _shape(annotations: Iterable[Any]) -> Shape:
    """Return what one of several types holds; where it may be a text, it is not a list."""
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
