"""The base of all configuration sections: unknown keys and inexact types are errors.

Keys are written in camelCase in kindlm.yaml, and in snake_case in Python and in other files.
"""

from __future__ import annotations

import ast
import inspect
import sys
from contextlib import suppress
from dataclasses import fields
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    Tag,
)
from pydantic.alias_generators import to_camel

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT, MAX_TIMEOUT_S
from kindlm.values import (
    LIST,
    TEXT,
    check_command,
    check_host_part,
    check_no_nul,
    check_pattern,
    check_solid,
    check_url,
    check_variables,
    form_of,
    integral,
    not_null,
)

T = TypeVar("T")

MAIN = "x-kindlm-main"
"""Marks the main key of a section in its JSON Schema; it is not published."""

EXTENSION: dict[str, Any] = {"x-kindlm-extension": True}
"""Marks a part of the published JSON Schema that the KindLM config schema v1 does not have."""

Extension = Annotated[T, Field(json_schema_extra=EXTENSION)]
"""A key that the KindLM config schema v1 does not have."""

Maybe = Annotated[T | None, AfterValidator(not_null)]
"""A value that may be left out, but not be empty."""

Text = Annotated[str, Field(min_length=1)]
FilePath = Annotated[Text, AfterValidator(check_no_nul)]
Variables = Annotated[dict[str, str], AfterValidator(check_variables)]
"""Environment variables of a program."""
Solid = Annotated[Text, AfterValidator(check_solid)]
"""A text with more than white space."""
HostPart = Annotated[Text, AfterValidator(check_host_part)]
Score = Annotated[float, Field(ge=0, le=1)]
WHOLE = BeforeValidator(integral)
Count = Annotated[int, Field(ge=0), WHOLE]
Repeat = Annotated[int, Field(ge=1, le=MAX_REPEAT), WHOLE]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY), WHOLE]
Milliseconds = Annotated[int, Field(ge=1000), WHOLE]
Positive = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)]
Url = Annotated[str, AfterValidator(check_url)]
Pattern = Annotated[str, AfterValidator(check_pattern)]
Words = Annotated[list[FilePath], Field(min_length=1)]


def by_form(message: str) -> Discriminator:
    """Return a discriminator by the form of a value; other forms are refused with the message."""
    return Discriminator(form_of, custom_error_type="refused", custom_error_message=message)


CommandLine = Annotated[
    Annotated[str, Field(min_length=1), BeforeValidator(check_command), Tag(TEXT)]
    | Annotated[Words, Tag(LIST)],
    by_form("must be text or a list of texts"),
]
"""A program and its arguments, split as a shell would if it is one text."""


class Described(BaseModel):
    """A mapping of a file; its JSON Schema describes the keys by their docstrings.

    pydantic can read docstrings itself, but at each import, which would double its time.
    """

    main: ClassVar[str | None] = None
    """The key of a text, number or boolean that is written in place of the mapping."""

    @classmethod
    def main_key(cls, value: Any) -> str | None:
        """Return the key of a value that is written in place of the mapping."""
        return cls.main if isinstance(value, str | int | float) else None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        definition = handler.resolve_ref_schema(schema)
        keys = definition.get("properties", {})
        for name, text in _docstrings(cls).items():
            field = cls.model_fields.get(name)
            key = None if field is None else keys.get(field.alias or name)
            if key is None or "description" in key:
                continue
            # The target of a reference may have the same description.
            if "$ref" not in key or handler.resolve_ref_schema(key).get("description") != text:
                key["description"] = text
        if cls.main is not None:
            definition[MAIN] = cls.main
        return schema


class Table(Described):
    """A mapping of a file whose keys are those of its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Section(Table):
    """A mapping of a file whose keys are the names of its fields in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


def _docstrings(section: type[Described]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in reversed(section.__mro__):
        if not issubclass(part, Described) or part is Described:
            continue
        for attribute, below in pairwise(_class_bodies(part.__module__).get(part.__qualname__, ())):
            match attribute, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module's classes by their qualified names.

    It is empty without a source file, as in a shell or a notebook.
    """
    found: dict[str, list[ast.stmt]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.ClassDef(name=name):
                    found[prefix + name] = child.body
                    visit(child, f"{prefix}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    visit(child, f"{prefix}{name}.<locals>.")
                case ast.stmt():
                    visit(child, prefix)

    with suppress(OSError, SyntaxError, TypeError, KeyError):
        visit(ast.parse(inspect.getsource(sys.modules[module])), "")
    return found


class Open(Section):
    """A mapping to which packages add keys."""

    _added: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def added(self) -> dict[str, Any]:
        """The validated keys of packages as JSON values, with their defaults."""
        return self._added

    def add(self, written: dict[str, Any]) -> None:
        """Add keys of packages, before the section is read."""
        self._added.update(written)


def resolved(value: Any) -> Any:
    """Return a configuration as JSON values, with defaults, without keys that have no value.

    Unlike `model_dump`, it keeps a written null, such as `defaultResponse: null`.
    """
    if isinstance(value, BaseModel):
        known = type(value).model_fields
        own = {
            known[name].serialization_alias or known[name].alias or name: resolved(item)
            for name, item in value.__dict__.items()
            if item is not None or name in value.model_fields_set
        }
        return {**own, **value.added} if isinstance(value, Open) else own
    if isinstance(value, list):
        return [resolved(item) for item in value]
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    return value


def as_value(kind: type[T], section: Section, **others: Any) -> T:
    """Return a value of a suite from the fields that it shares with a section, and others."""
    of: Any = kind
    shared = {name: getattr(section, name) for name in _shared(of, type(section))}
    return kind(**shared | others)


@cache
def _shared(kind: Any, section: type[Section]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name in section.model_fields)
