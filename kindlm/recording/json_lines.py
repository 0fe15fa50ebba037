"""Files of events in JSON Lines: read line by line, and nothing in them taken on trust."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_LONGEST_LINE = 256 * 1024 * 1024
"""Bytes; the largest text of an event is far below, however it is escaped."""

EventId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
StreamName = Annotated[str, Field(pattern=r"^(run|journal)/[0-9A-Za-z_.-]{1,100}$")]
HashText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

_Line = TypeVar("_Line", bound=BaseModel)


class LineError(Exception):
    """A line of a file is not what it must be.

    Attributes:
        line: Number of the line, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class LineModel(BaseModel):
    """What all lines have in common: nothing is converted, and nothing may be there besides."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def json_line(value: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as a line; `default` says what stands for what JSON does not know."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)
    return text.encode() + b"\n"


def numbered_lines(
    file: BinaryIO,
    *,
    may_end_early: bool,
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield numbered lines as the values that they are in JSON.

    With `may_end_early`, a last line that was not written whole is left out. Raises `LineError`.
    """
    number = 0
    while raw := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(raw) > _LONGEST_LINE:
            raise LineError(number, f"is longer than {_LONGEST_LINE:,} bytes")
        try:
            value = json.loads(raw.decode(), object_hook=object_hook)
        except (ValueError, RecursionError) as error:
            if may_end_early and number > 1 and not raw.endswith(b"\n"):
                return
            raise LineError(number, f"is no JSON ({error})") from None
        yield number, value


def require_format(header: object, name: str, version: int, what: str) -> None:
    """Raise `LineError` if the first line does not say that the file is of a format."""
    if not isinstance(header, dict) or header.get("format") != name:
        raise LineError(1, f"does not say that this file holds {what}")
    if (found := header.get("version")) != version:
        raise LineError(1, f"has version {found!r} of the format, this kindlm knows {version}")


def checked(model: type[_Line], value: Any, number: int) -> _Line:
    """Return a line as its model; raise `LineError` if it is none."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LineError(number, f"{place or 'the line'}: {first['msg']}") from None
