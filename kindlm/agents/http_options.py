"""The settings of an HTTP agent, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.agents.failures import Who, bad_option
from kindlm.agents.http_request import PLACEHOLDERS, REQUESTS, placeholders
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.json_values import PATH
from kindlm.agents.reply_reading import QUERY_TEXT_KEYS, TEXT_KEYS, Reading
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

__all__ = ["HttpSettings", "http_settings"]

_OPTIONS = ("request", "body", "responsePath", "toolCallsPath")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How an HTTP agent is talked to."""

    target: HttpTarget
    form: str
    template: Any
    reading: Reading


def http_settings(target: AgentTarget) -> Result[HttpSettings]:
    """Check a target and return its settings; no error holds a header's value."""
    checked = http_target(target)
    if isinstance(checked, Err):
        return checked
    error = unknown_option(target, _OPTIONS) or _wrong_option(checked.value.who, target.options)
    if error is not None:
        return Err(error)
    options = target.options
    form = options.get("request", REQUESTS[0])
    reading = Reading(
        QUERY_TEXT_KEYS if form == "query" else TEXT_KEYS,
        options.get("responsePath"),
        options.get("toolCallsPath"),
        may_lack_text=form == "query",
    )
    return Ok(HttpSettings(checked.value, form, options.get("body"), reading))


def _wrong_option(who: Who, options: Mapping[str, Any]) -> KindlmError | None:
    form = options.get("request", REQUESTS[0])
    if form not in REQUESTS:
        hint = hint_for(str(form), REQUESTS, "Known")
        return bad_option(who, f"`request` is {form!r}", hint)
    for name in ("responsePath", "toolCallsPath"):
        path = options.get(name)
        if path is not None and not (isinstance(path, str) and PATH.fullmatch(path)):
            return bad_option(who, f"`{name}` is no path", "Write it like data.items[0].text")
    for name in placeholders(options.get("body")):
        if name not in PLACEHOLDERS:
            hint = hint_for(name, PLACEHOLDERS, "Known")
            return bad_option(who, f"`body` has the unknown placeholder {{{{{name}}}}}", hint)
    return None
