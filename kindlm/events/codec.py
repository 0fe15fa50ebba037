"""Encodes events for the store, and decodes them.

Stored data omits the type, which has its own column, nulls, and empty values that are the default.
Decoding restores the same value. It also validates the data, since imported and merged events come
from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from kindlm.dataclass import dataclass
from kindlm.stored_form import Form, Key, bounded
from kindlm.strict_json import json_or_text
from kindlm.transcript import ToolCall
from kindlm_store import HeadOf, NewEvent, Text

TextOf: TypeAlias = Callable[[str], str]
"""Returns the text of a reference; may raise any exception if the text is gone."""

_Decode: TypeAlias = Callable[[Any, TextOf], Any]

_dumps = json.JSONEncoder(ensure_ascii=False).encode


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Dataclasses(type):
    """Makes its classes frozen dataclasses with slots, whose fields are given by name."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], members: dict[str, Any], **more: Any
    ) -> Any:
        made = super().__new__(cls, name, bases, members, **more)
        if "__slots__" in members:  # also the copy of the class that `dataclass` makes
            return made
        return dataclass(frozen=True, slots=True, kw_only=True)(made)


class Stored(metaclass=_Dataclasses):
    """The base class of events and of the values in them, which are immutable."""

    __slots__ = ()


class Payload(Stored):
    """The base class of all events, which know their type and schema."""

    __slots__ = ()

    type: ClassVar[str]
    SCHEMA: ClassVar[int] = 1

    def __init_subclass__(cls, type: str | None = None, schema: int | None = None) -> None:  # noqa: A002
        if type is not None:
            cls.type = type
        if schema is not None:
            cls.SCHEMA = schema


class OfAttempt(Payload):
    """An event about one attempt of an execution; its subject is like `17.1`."""

    __slots__ = ()


class EventError(ValueError):
    """The data of an event is invalid; `path` has the keys that lead to the wrong value."""

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


class StoredField(NamedTuple):
    """How one field is stored; `key` is None for a nested value whose fields are stored inline."""

    name: str
    key: str | None
    annotation: Any
    marks: tuple[Any, ...]
    is_required: bool
    may_be_null: bool
    left_out_if_empty: bool
    encode: Callable[[Any], Any] | None
    decode: _Decode


def new_event(payload: Payload, *, subject: str | None = None, at: str | None = None) -> NewEvent:
    """Return the event to append for a payload; raise `ValueError` if a part cannot be stored."""
    return NewEvent(payload.type, _stored(payload), payload.SCHEMA, subject, at=at)


def read(kind: type, data: Any, text_of: TextOf) -> Any:
    """Return the value of a class that is stored as `data`; raise `EventError` for a misfit."""
    value = _read(kind, data, text_of)
    if unknown := data.keys() - _keys(kind):
        raise EventError("Extra inputs are not permitted", min(unknown))
    return value


def _stored(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    kind: type = type(value)
    for field in stored_fields(kind):
        name, key, encode = field.name, field.key, field.encode
        item = getattr(value, name)
        if (item is None and field.may_be_null) or (not item and field.left_out_if_empty):
            continue
        if encode is not None:
            item = encode(item)
        if key is None:
            data.update(item)
        else:
            data[key] = item
    if kind is ToolCall:
        data["arguments"] = Text(value.written)
    return data


def _read(kind: type, data: Any, text_of: TextOf) -> Any:
    """Return a value that is stored as `data`; ignore unknown keys."""
    found, data = {}, _instance(Mapping, "an object", data)
    for field in stored_fields(kind):
        key = field.key
        if key is None:
            found[field.name] = field.decode(data, text_of)
        elif key in data and (data[key] is not None or not field.may_be_null):
            try:
                found[field.name] = field.decode(data[key], text_of)
            except EventError as error:
                raise EventError(error.problem, key, *error.path) from None
        elif field.is_required:
            raise EventError("Field required", key)
    return _call(**found) if kind is ToolCall else kind(**found)


def _call(id: str, name: str, arguments: Any, *, malformed: bool = False) -> ToolCall:  # noqa: A002
    """Return a tool call with its stored arguments, which may be no JSON object."""
    parsed = None if malformed else json_or_text(arguments)
    if not isinstance(parsed, dict):
        # The model wrote no JSON object, or removing a secret has broken it.
        return ToolCall(id, name, {}, malformed=arguments)
    return ToolCall(id, name, parsed)


@cache
def _keys(kind: type) -> frozenset[str]:
    found: set[str] = set()
    for field in stored_fields(kind):
        found |= _keys(field.annotation) if field.key is None else {field.key}
    return frozenset(found)


@cache
def stored_fields(kind: type) -> tuple[StoredField, ...]:
    """Return how the fields of a class are stored, in order."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        if Form.UNSTORED in getattr(hints[field.name], "__metadata__", ()):
            continue
        annotation, marks = _without_marks(hints[field.name])
        key = next((mark.key for mark in marks if isinstance(mark, Key)), field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        encode, decode = _codec(hints[field.name])
        stored = StoredField(
            field.name,
            None if Form.FLAT in marks else key,
            annotation,
            marks,
            is_required=default is MISSING,
            may_be_null=default is None,
            left_out_if_empty=default is False or default in ((), {}, "") or Form.OMITTED in marks,
            encode=encode,
            decode=decode,
        )
        found.append(stored)
    return tuple(found)


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the dataclasses and enums of values of a type."""
    is_enum = isinstance(annotation, type) and issubclass(annotation, StrEnum)
    if is_enum or (is_dataclass(annotation) and annotation is not HeadOf):
        yield annotation
    for argument in get_args(annotation):
        yield from classes_in(argument)


def _without_marks(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its annotations, and the annotations."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    annotated, *marks = get_args(hint)
    return annotated, tuple(marks)


def _codec(hint: Any) -> tuple[Callable[[Any], Any] | None, _Decode]:
    """Return the encoder and decoder for values of a type; encoder None: they are stored as is."""
    hint, marks = _without_marks(hint)
    for mark in marks:
        if mark in _FORMS:
            return _FORMS[mark]
    if Form.FLAT in marks:
        return _stored, partial(_read, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # The first of several types accepts the others: a float an int, and a text a `HeadOf`.
        return _codec(arguments[0])
    if origin is Sequence or origin is tuple:
        encode, decode = _codec(arguments[0])
        encode_all = None if encode is None else lambda items: list(map(encode, items))
        return encode_all, lambda value, text_of: tuple(
            [decode(item, text_of) for item in _instance(list, "a valid list", value)]
        )
    if origin is Mapping:
        member = _codec(arguments[1])[1]
        return None, lambda value, text_of: {
            name: member(item, text_of)
            for name, item in _instance(Mapping, "an object", value).items()
        }
    if is_dataclass(hint) and isinstance(hint, type):
        return _stored, partial(read, hint)
    if origin is Literal or issubclass(hint, StrEnum):
        return None, partial(_one_of, {str(each): each for each in arguments or hint})
    return (float if hint is float else None), _PLAIN[hint]


def _instance(kinds: Any, name: str, value: Any, _: TextOf | None = None) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise EventError(f"Input should be {name}")
    return value


def _text(value: Any, text_of: TextOf) -> str:
    # An event that is not stored yet holds the text itself.
    if isinstance(value, Text):
        return value.body
    ref = value.get("$ref") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(ref, str):
        raise EventError("Input should be a reference to a text")
    return text_of(ref)


def _one_of(members: Mapping[str, Any], value: Any, _: TextOf) -> Any:
    if not isinstance(value, str) or value not in members:
        raise EventError(f"Input should be {' or '.join(map(repr, members))}")
    return members[value]


_PLAIN: Mapping[type, _Decode] = {
    str: partial(_instance, str | HeadOf, "a valid string"),
    int: partial(_instance, int, "a valid integer"),
    float: partial(_instance, float | int, "a valid number"),
    bool: partial(_instance, bool, "a valid boolean"),
}


_FORMS: Mapping[Any, tuple[Callable[[Any], Any], _Decode]] = {
    Form.TEXT: (Text, _text),
    # Events of earlier versions have the text itself.
    Form.NOTE: (
        Text,
        lambda value, text_of: value if isinstance(value, str) else _text(value, text_of),
    ),
    Form.JSON: (
        lambda value: Text(_dumps(value)),
        lambda value, text_of: json_or_text(_text(value, text_of)),
    ),
    Form.FLAG: (lambda value: value is not None, _PLAIN[bool]),
    Form.NAME: (bounded, _PLAIN[str]),
}
"""How values of these forms are encoded and decoded."""


def values_in(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield strings, numbers and nulls in an event's data, with keys like `tests[].test`.

    References to texts are left out.
    """
    if isinstance(value, list):
        for item in value:
            yield from values_in(item, f"{key}[]")
    elif not isinstance(value, dict):
        yield key, value
    elif value.keys() != {"$ref"}:
        for name, item in value.items():
            yield from values_in(item, f"{key}.{name}" if key else name)
