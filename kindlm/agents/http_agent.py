"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from kindlm.agents.agent_events import Heard
from kindlm.agents.event_framing import begins_as_object, holds_events
from kindlm.agents.event_streams import EventStream, hear_events
from kindlm.agents.http_exchange import EVENT_STREAM, HttpReply, HttpTarget, is_page
from kindlm.agents.http_request import (
    check_placeholders,
    form_warnings,
    make_body,
    placeholders,
)
from kindlm.agents.reply_parts import NoTextKnown, UnreadableReply
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    TEXT_KEYS,
    Reading,
    ResponsePath,
    ToolCallsPath,
    read_reply,
)
from kindlm.agents.served import PageCame, Served, ServedAgent
from kindlm.agents.tool_entries import reported_calls
from kindlm.errors import Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys


class Http(Served):
    """Agents that take JSON by POST and answer with JSON, text or a stream."""

    system_text_hint: ClassVar[str] = (
        "Add `request: messages` to the agent, or use a prompt without it"
    )

    request: Literal["message", "messages", "query"] = Field(
        default="message", examples=["messages"]
    )
    """Form of the JSON body (`http`): the new message, which is the default; all messages, which
    is the only form that has the system text; or `query` and `context`."""
    body: Annotated[Any, AfterValidator(check_placeholders)] = Field(
        default=None, examples=[{"input": {"text": "{{message}}"}}]
    )
    """Template of the JSON body instead (`http`), with {{message}}, {{messages}}, {{system}} and
    {{conversation_id}}."""
    response_path: ResponsePath = None
    tool_calls_path: ToolCallsPath = None

    def agent(self, server: HttpTarget) -> HttpAgent:
        """Return what talks to a server."""
        return HttpAgent(server, self)

    def sends_system_text(self) -> bool:
        """Tell whether the form of the body has the system text."""
        if self.body is None:
            return self.request == "messages"
        return not {"messages", "system"}.isdisjoint(placeholders(self.body))


class HttpAgent(ServedAgent):
    """Implements `ports.Agent`."""

    def __init__(self, server: HttpTarget, options: Http) -> None:
        super().__init__(server)
        self._options = options
        takes_query = options.request == "query"
        self._reading = Reading(
            QUERY_TEXT_KEYS if takes_query else TEXT_KEYS,
            options.response_path,
            options.tool_calls_path,
            may_lack_text=takes_query,
        )

    def warnings(self, request: AgentRequest) -> tuple[str, ...]:
        """Return what of a request the form of the body cannot say."""
        return form_warnings(request, self._options.request, self._options.body)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        body = make_body(request, self._options.request, self._options.body)
        answer = await self._exchange.post(body, request)
        return await self.reply(request, answer, partial(_read, reading=self._reading))


def _read(answer: HttpReply, reading: Reading) -> Heard:
    if is_page(answer.text):
        raise PageCame
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
