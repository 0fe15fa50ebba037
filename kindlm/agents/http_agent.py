"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from pydantic import Field, model_validator

from kindlm.agents.drafts import Frame, Heard, hear
from kindlm.agents.event_framing import begins_as_object, holds_events
from kindlm.agents.event_streams import hear_events
from kindlm.agents.http_exchange import EVENT_STREAM, HttpReply, HttpTarget
from kindlm.agents.http_request import (
    BodyTemplate,
    form_warnings,
    make_body,
    placeholders,
    request_warnings,
)
from kindlm.agents.protocols import Protocol, ProtocolName, protocol_named
from kindlm.agents.protocols.a2a import TaskDraft, is_call_answer
from kindlm.agents.reply_parts import AnotherProtocol, NoTextKnown, NotJson
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    TEXT_KEYS,
    FailedReply,
    Reading,
    ResponsePath,
    ToolCallsPath,
    failure_of,
    read_reply,
)
from kindlm.agents.served import Served, ServedAgent
from kindlm.agents.tool_entries import reported_calls
from kindlm.dataclass import replace
from kindlm.errors import Err, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.spelling import Spelling
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.values import refuse


def check_body(options: Any) -> Any:
    """Refuse a body that cannot be added to that of a protocol."""
    if options.protocol is not None and not isinstance(options.body, dict | None):
        hint = "Its keys are added to the body of the protocol: write `body: {model: shop}`"
        raise refuse("is not an object beside `protocol`", hint, key="body")
    return options


class Http(Served):
    """Agents that take JSON by POST and answer with JSON, text or a stream."""

    request: Literal["message", "messages", "query"] = Field(
        default="message", examples=["messages"]
    )
    """Form of the JSON body (`http`). `message`, the default, has the new message. `messages` has
    all messages, and alone the system text. `query` has `query` and `context`."""
    body: BodyTemplate = None
    protocol: ProtocolName = None
    response_path: ResponsePath = None
    tool_calls_path: ToolCallsPath = None

    _body_of_protocol = model_validator(mode="after")(check_body)

    def agent(self, server: HttpTarget) -> HttpAgent:
        """Return what talks to a server."""
        if self.protocol is not None:
            return speaking(self.protocol, server, self.body, stream=False)
        takes_query = self.request == "query"
        reading = Reading(
            QUERY_TEXT_KEYS if takes_query else TEXT_KEYS,
            self.response_path,
            self.tool_calls_path,
            may_lack_text=takes_query,
        )
        return HttpAgent(
            server,
            lambda request, _: make_body(request, self.request, self.body),
            partial(_read, reading=reading),
            partial(form_warnings, form=self.request, template=self.body),
        )

    @property
    def system_text_hint(self) -> str:  # type: ignore[override]
        """What to do where the system text is not sent."""
        if self.body is not None:
            return "Put {{system}} or {{messages}} into `body`, or use a prompt without it"
        if self.protocol is not None:
            return "The protocol does not support it: use a prompt without it"
        return "Use `request: messages`, a `protocol` with a place for it, or a prompt without it"

    def sends_system_text(self) -> bool:
        """Tell whether the form of the body has the system text."""
        if self.protocol is not None and protocol_named(self.protocol).says_system:
            return True
        if self.body is None:
            return self.request == "messages"
        return not {"messages", "system"}.isdisjoint(placeholders(self.body))

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:
        """Yield what the protocol says."""
        for key in ("request", "responsePath", "toolCallsPath") if self.protocol else ():
            yield (
                key,
                f"with `{spelling.key('protocol')}`",
                "Remove it: the protocol determines this",
            )


_NOT_UNDERSTOOD = frozenset({400, 415, 422})
_WHAT_IT_TAKES = (
    'Send the key that the agent takes, `body: { KEY: "{{message}}" }`, or check the path of its '
    "`url`"
)


class HttpAgent(ServedAgent):
    """Implements `ports.Agent`.

    `write` makes the body of a request, of it and of what the last answer carried; `warn` says
    what of a request that leaves out.
    """

    def __init__(
        self,
        server: HttpTarget,
        write: Callable[[AgentRequest, Any], Any],
        read: Callable[[HttpReply], Heard],
        warn: Callable[[AgentRequest], tuple[str, ...]],
        accept: str | None = None,
    ) -> None:
        super().__init__(server, accept)
        self._write, self._read, self._warn = write, read, warn
        self._carried: Any = None

    def warnings(self, request: AgentRequest) -> tuple[str, ...]:
        """Return what of a request is not sent."""
        return self._warn(request)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        body = self._write(request, self._carried)
        answer = await self._exchange.post(body, request)
        if isinstance(answer, Err) and answer.error.details.get("status") in _NOT_UNDERSTOOD:
            return Err(replace(answer.error, hint=_WHAT_IT_TAKES))
        return await self.reply(request, answer, self._heard)

    def _heard(self, answer: HttpReply) -> AgentReply:
        heard = self._read(answer)
        self._carried = self._carried if heard.carried is None else heard.carried
        return heard.reply


def speaking(name: str, server: HttpTarget, template: Any, *, stream: bool) -> HttpAgent:
    """Return what talks to a server in a protocol.

    The keys of the `template` of a body are added to those of the protocol, or replace them.
    """
    protocol = protocol_named(name)
    nowhere = f"not supported by {protocol.title}"

    def write(request: AgentRequest, carried: Any) -> Any:
        body = protocol.body(request, stream, carried)
        return body if template is None else body | make_body(request, "", template)

    return HttpAgent(
        replace(server, headers={**protocol.headers, **server.headers}),
        write,
        partial(_read, reading=Reading(may_lack_text=True), protocol=protocol),
        partial(
            request_warnings,
            says_system=protocol.says_system,
            says_context=protocol.says_context,
            system_why=nowhere,
            context_why=nowhere,
        ),
    )


def _read(answer: HttpReply, reading: Reading, protocol: Protocol | None = None) -> Heard:
    if answer.kind == EVENT_STREAM or holds_events(answer.text):
        speaks = protocol.title if protocol else None
        return hear_events(answer.text, reading, has_end=answer.has_end, speaks=speaks)
    value, is_text = _value(answer), answer.kind.startswith("text/")
    if is_call_answer(value):
        return hear(TaskDraft(), [Frame("message", answer.text, value)])
    if protocol is not None and not protocol.is_answer(value):
        if failure := failure_of(value):
            raise FailedReply(failure)
        raise AnotherProtocol(f"it is not an answer in the form of {protocol.title}")
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
            reason = str(error) if answer.text.strip() else "it is empty"
            raise NotJson(f"not valid JSON: {reason}") from None
        return answer.text
    as_told = dict | list if is_text else dict | list | str
    return value if is_json or isinstance(value, as_told) else answer.text
