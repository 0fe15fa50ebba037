"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from kindlm.agents import failures
from kindlm.agents.agent_events import Heard
from kindlm.agents.event_framing import begins_as_object, holds_events
from kindlm.agents.event_streams import EventStream, hear_events
from kindlm.agents.failures import Who, bad_option
from kindlm.agents.http_exchange import EVENT_STREAM, HttpExchange, HttpReply, is_page
from kindlm.agents.http_request import (
    PLACEHOLDERS,
    REQUESTS,
    form_warnings,
    make_body,
    placeholders,
)
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.json_values import PATH
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    TEXT_KEYS,
    AgentFailed,
    NoTextKnown,
    Reading,
    UnreadableReply,
    agent_reply,
    read_reply,
)
from kindlm.agents.tool_entries import reported_calls
from kindlm.agents.user_code import read_aside
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

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


def http_agent(target: AgentTarget, environ: Mapping[str, str], root: Path) -> Result[HttpAgent]:
    """Make an agent for one conversation."""
    del environ, root  # all it needs stands in the target
    settings = http_settings(target)
    return settings if isinstance(settings, Err) else Ok(HttpAgent(settings.value))


class HttpAgent:
    """Implements `ports.Agent`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._exchange = HttpExchange(settings.target)

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        settings = self._settings
        body = make_body(request, settings.form, settings.template)
        answer = await self._exchange.post(body, request.timeout_s)
        if isinstance(answer, Err):
            return answer
        got = answer.value
        if is_page(got.text):
            return Err(failures.of_page(settings.target.who, got.text, got.status))
        try:
            heard = await read_aside(got.text, partial(_read, got, settings.reading))
        except AgentFailed as failure:
            return Err(failures.of_report(settings.target.who, str(failure), got.text, got.status))
        except UnreadableReply as error:
            return Err(failures.of_reply(settings.target.who, error, got.text, got.status))
        warnings = form_warnings(request, settings.form, settings.template)
        warnings = (*warnings, *heard.warnings)
        return Ok(agent_reply(heard.told, got.text, got.latency_ms, warnings))


def _read(answer: HttpReply, reading: Reading) -> Heard:
    if answer.kind == EVENT_STREAM or holds_events(answer.text):
        return hear_events(EventStream(answer.text, is_sse=True, has_end=answer.has_end), reading)
    value, is_text = _value(answer), answer.kind.startswith("text/")
    try:
        return Heard(read_reply(value, Reading() if is_text and value is answer.text else reading))
    except NoTextKnown:
        if not is_text or reported_calls(value, reading.tool_calls_path):
            raise
        # What is sent as text and holds no answer is one itself: some agents are to answer JSON.
        return Heard(read_reply(answer.text, Reading()))


def _value(answer: HttpReply) -> Any:
    """Return the JSON value; a body that does not say to be JSON may be bare text, such as 42.

    Many servers send JSON as something else: what frameworks make of a text is often `text/html`.
    """
    is_json, is_text = answer.kind.endswith("json"), answer.kind.startswith("text/")
    try:
        value = parse_json(answer.text, unique_keys)
    except ValueError as error:
        may_be_cut = begins_as_object(answer.text) and not (is_text and answer.has_end)
        if is_json or may_be_cut or isinstance(error, KeyTwiceError):
            raise UnreadableReply(f"no JSON: {error}") from None
        return answer.text
    as_told = dict | list if is_text else dict | list | str
    return value if is_json or isinstance(value, as_told) else answer.text
