"""Checks values that code of users and packages returned: their types, and the range of numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from kindlm.bounds import MAX_COUNTED
from kindlm.errors import KindlmError
from kindlm.ports import AgentReply, ModelReply, Quota

_STRICT = ConfigDict(
    strict=True, revalidate_instances="always", allow_inf_nan=False, defer_build=True
)

_Tokens = Annotated[int, Field(ge=0, le=MAX_COUNTED)] | None

_MOST_QUOTA = 2**53 - 1


def wrong_with(value: Any, kind: Any) -> str | None:
    """Return why a value from a package is not a valid instance of a dataclass, at any depth."""
    if not isinstance(value, kind):
        return f"it is of the type {type(value).__name__}, not {kind.__name__}"
    if (wrong := _wrong_form(value, kind, kind.__name__)) is not None:
        return wrong
    try:
        # Fields of type `Any` have to be JSON.
        json.dumps(value, default=_fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"it is not valid JSON: {error}"
    return None


def wrong_error(error: KindlmError) -> str | None:
    """Return why the error in an `Err` that others returned is not a valid one."""
    wrong = _wrong_form(error, KindlmError, "KindlmError")
    return wrong or _wrong_form(dict(error.details), _Details, "KindlmError.details")


class _Details(BaseModel):
    """The details of an error that the engine reads."""

    model_config = _STRICT

    status: int | None = None
    retry_after: Annotated[float, Field(ge=0)] | None = None
    retryable: bool = False
    resend: bool = False
    body: str | None = None
    quotas: Sequence[Quota] = ()
    tokens: tuple[_Tokens, _Tokens] | None = None
    cost_usd: Annotated[float, Field(ge=0, le=MAX_COUNTED)] | None = None
    model: str | None = None


def _wrong_form(value: Any, kind: Any, name: str) -> str | None:
    """Return the first part of a value that has another type than its class demands."""
    try:
        _form_of(kind).model_validate({"value": value})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join([name, *map(str, first["loc"][1:])])
        return f"`{where}` is wrong: {first['msg']}, but it is {in_words(first['input'])}"
    return None


@cache
def _form_of(kind: Any) -> type[BaseModel]:
    return create_model(f"Returned{kind.__name__}", __config__=_STRICT, value=(kind, ...))


def _fields(value: Any) -> dict[str, Any]:
    if not is_dataclass(value):
        raise TypeError(f"an object of the type {type(value).__name__}")
    return {field.name: getattr(value, field.name) for field in fields(value)}


def impossible(reply: ModelReply | AgentReply) -> str | None:
    """Return which number of a reply is out of range: a negative cost would reduce the sum."""
    parts: dict[str, Any] = {"": reply, ".usage": reply.usage, ".usage.extras": reply.usage.extras}
    if reply.recorded is not None:
        parts[".recorded.cost"] = reply.recorded.cost
    if isinstance(reply, ModelReply):
        parts |= {f".quotas.{index}": quota for index, quota in enumerate(reply.quotas)}
    for place, part in parts.items():
        most = _MOST_QUOTA if isinstance(part, Quota) else MAX_COUNTED
        for name, value in {} if part is None else _fields(part).items():
            if isinstance(value, int | float) and not 0 <= value <= most:
                where = f"{type(reply).__name__}{place}.{name}"
                return f"`{where}` is wrong: it is {value}, not from 0 to {most}"
    return None


def in_words(value: Any) -> str:
    """Return a value of a package in words, without text, which may be long or secret."""
    if value is None or isinstance(value, float):
        return str(value)
    return f"an object of the type {type(value).__name__}"
