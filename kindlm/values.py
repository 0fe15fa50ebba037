"""Checks of single values that types alone cannot express."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import regex
from pydantic_core import PydanticCustomError

from kindlm.dataclass import replace
from kindlm.patterns import excess_of
from kindlm.secrecy import secret_parts

if TYPE_CHECKING:
    from pydantic import ValidationInfo

TEXT, LIST, MAPPING, OTHER = "<text>", "<list>", "<mapping>", "<other>"
TAGS = frozenset({TEXT, LIST, MAPPING, OTHER})
"""Names of union branches: pydantic's error locations contain them, the file does not."""

_DEFERRED = re.compile(r"\{\{(?:env|serve)\.[\w.]+\}\}")
_FROM_VARIABLE = re.compile(r"\{\{env\.\w+\}\}\S*")
_ADDRESS = re.compile(
    r"(?P<host>localhost|[\w-]+(?:\.[\w-]+)*(?=:\d)|[\w-]+(?:\.[\w-]+)+(?=/))"
    r"(?::\d{1,5})?(?:/[\w./-]*)?",
    re.ASCII,
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACK_REFERENCE = re.compile(r"\\k<(\w+)>")


def refuse(
    message: str, hint: str | None = None, *, secret: bool = False, key: str | None = None
) -> PydanticCustomError:
    """Return the error that refuses a value.

    With `secret`, the value's line is not shown. `key` is the key of the value in a mapping.
    """
    context = {"message": message, "hint": hint, "secret": secret, "key": key}
    return PydanticCustomError("refused", "refused", context)


NULL_IS_ABSENT = {"null": "absent"}
"""The context for validating valid options again, in which absent keys are null."""


def not_null(value: Any, info: ValidationInfo) -> Any:
    """Refuse null: a key without a value is mostly a mistake."""
    if value is None and info.context is not NULL_IS_ABSENT:
        raise PydanticCustomError("null", "empty")
    return value


def not_bool(value: Any) -> Any:
    """Refuse true and false, which are equal to 1 and 0 in Python."""
    if isinstance(value, bool):
        raise refuse("must be 1, but is a boolean")
    return value


def integral(value: Any) -> Any:
    """Return 3.0 as 3, which are the same in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain_number(value: float) -> str:
    """Return a number without an exponent or `.0`: `5000`, `0.00002`."""
    return str(int(value)) if float(value).is_integer() else f"{Decimal(repr(value)):f}"


def form_of(value: Any) -> str | None:
    """Return the union branch for a value, by its type."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list):
        return LIST
    return MAPPING if isinstance(value, dict) else None


def check_solid(value: str) -> str:
    """Refuse a text of only white space."""
    if not value.strip():
        raise refuse("must contain more than spaces")
    return value


def check_no_nul(value: str) -> str:
    """Refuse a NUL character, which no path and no argument of a program can have."""
    if "\0" in value:
        raise refuse("has a NUL character", "Remove it")
    return value


def check_variables(value: dict[str, str]) -> dict[str, str]:
    """Refuse environment variables that no program can have."""
    if any(not name or "=" in name for name in value):
        raise refuse("has a variable without a name, or with a = in it", "Write `NAME: value`")
    for name, text in value.items():
        check_no_nul(name + text)
    return value


_HOST_PART = re.compile(r"[a-z0-9-]+", re.IGNORECASE | re.ASCII)


def check_host_part(value: str) -> str:
    """Refuse a text that cannot be a part of a host name, unless it has a placeholder."""
    if "{{" not in value and _HOST_PART.fullmatch(value) is None:
        raise refuse("cannot be a part of an address", "Write the name alone, without https://")
    return value


def check_pattern(value: str) -> str:
    """Refuse a regular expression that does not compile, or that has a backspace."""
    if "\b" in value:
        message = "has a backspace, which is what \\b means in double quotes"
        raise refuse(message, "Use single quotes, where it is a word boundary: '\\bword\\b'")
    if (excess := excess_of(value)) is not None:
        raise refuse(f"is a regular expression of {excess}", "Split it in several")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            regex.compile(value)
    except (regex.error, RecursionError, OverflowError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        hint = "Write backslashes as they are in single quotes, and double them in double quotes"
        if named := _BACK_REFERENCE.search(value):  # as in JavaScript
            hint = f"Write (?P={named[1]}) for \\k<{named[1]}>"
        raise refuse(f"is not a valid regular expression: {reason}", hint) from None
    return value


def is_url(value: str) -> bool:
    """Return whether a text is an http(s) URL, with placeholders read as numbers."""
    try:
        parts = urlsplit(_DEFERRED.sub("1", value))
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return valid and not any(character.isspace() for character in value)


def url_meant(value: str) -> str | None:
    """Return the URL for a text without a scheme, such as `127.0.0.1:8000/chat`."""
    found = _ADDRESS.fullmatch(value)
    if found is None or any(secret_parts(f"http://{value}")):
        return None
    is_local = found["host"] == "localhost" or found["host"].startswith("127.")
    return f"{'http' if is_local else 'https'}://{value}"


def check_url(value: str) -> str:
    """Refuse a text that is not an http(s) URL, or that contains a password or a key.

    It may contain placeholders. A text that begins with a variable is only checked when used.
    """
    if not (is_url(value) or _FROM_VARIABLE.fullmatch(value)):
        meant = url_meant(value)
        hint = "Write a full URL, such as https://api.example.com/v1"
        if "://" in value and not value.startswith("http"):
            hint = "Begin it with http:// or https://"
        raise refuse("must be a URL", hint if meant is None else f"Write {meant}")
    check_no_secret(value)
    return value


def check_no_secret(value: str) -> None:
    """Refuse a URL of any scheme that contains a password or a key."""
    if any(not _DEFERRED.search(part) for part in secret_parts(value)):
        message = "contains a password or a key, and kindlm records the configuration"
        raise refuse(message, "Put it into an environment variable: {{env.NAME}}", secret=True)


def check_command(value: str) -> str:
    """Refuse a command that cannot be split into words."""
    try:
        words = shlex.split(value)
    except ValueError:
        raise refuse("has a quote that is never closed", "Close it, or give a list") from None
    if not words:
        raise refuse("must not be empty")
    return check_no_nul(value)


def words_of(command: str | list[str]) -> tuple[str, ...]:
    """Return the words of a command, split as a shell would."""
    return tuple(shlex.split(command) if isinstance(command, str) else command)


def check_env_name(value: str) -> str:
    """Refuse a text that cannot be the name of a variable: it may be a pasted key."""
    if not _ENV_NAME.fullmatch(value):
        message = "must be the name of an environment variable, never the key itself"
        hint = "Write `apiKeyEnv: OPENAI_API_KEY`, and put the key in that variable or in .env"
        raise refuse(message, hint, secret=True)
    return value


def filled(value: Any, fill: Callable[[str], Any]) -> Any:
    """Return a JSON value, tuple or dataclass with all text but keys replaced by `fill`."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return fill(value)
    if isinstance(value, dict):
        return {key: filled(item, fill) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = (filled(item, fill) for item in value)
        return list(items) if isinstance(value, list) else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        names = value.__dataclass_fields__
        return replace(value, **{name: filled(getattr(value, name), fill) for name in names})
    return value
