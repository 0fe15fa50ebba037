"""The keys of a configuration's sections, and what each key holds, read from the models."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from kindlm.document import Path
from kindlm.section import Described

Sections = tuple[type[Described], ...]


class Shape(NamedTuple):
    """What a key holds: one value, a list or a mapping; `sections` describe values in mappings."""

    is_list: bool
    is_mapping: bool
    sections: Sections


@cache
def keys_of(section: type[Described]) -> dict[str, FieldInfo]:
    """Return the keys of a section as the file spells them, and their fields; other names last."""
    found: dict[str, FieldInfo] = {}
    others: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        first, *more = getattr(field.validation_alias, "choices", (field.alias or name,))
        found[first] = field
        others |= dict.fromkeys(more, field)
    return found | others


@cache
def shapes_of(section: type[Described]) -> dict[str, Shape]:
    """Return the shapes of all keys of a section."""
    return {key: _shape([field.annotation]) for key, field in keys_of(section).items()}


def keys_at(model: type[Described], path: Path) -> dict[str, FieldInfo]:
    """Return the keys of the section at a path; {} if there is another value."""
    shape = Shape(False, False, (model,))
    for part in path:
        if shape.is_list or shape.is_mapping:
            if isinstance(part, int) is not shape.is_list:
                return {}
            shape = shape._replace(is_list=False, is_mapping=False)
            continue
        # Of several forms of a value, the first is the usual one.
        found = shapes_of(shape.sections[0]).get(str(part)) if shape.sections else None
        if found is None:
            return {}
        shape = found
    is_section = shape.sections and not (shape.is_list or shape.is_mapping)
    return keys_of(shape.sections[0]) if is_section else {}


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
        elif isinstance(each, type) and issubclass(each, Described):
            sections.append(each)
    return Shape(is_list and not is_text, is_mapping and not is_list, tuple(sections))
