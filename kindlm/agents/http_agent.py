"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream.

Users choose the form of the body. The `streaming` adapter is based on this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kindlm.agents.drafts import Frame, Heard, hear
from kindlm.agents.event_framing import begins_as_object, holds_events
from kindlm.agents.event_streams import hear_events
from kindlm.agents.http_request import BodyTemplate, make_body, request_warnings, says_system
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
from kindlm.agents.served import EVENT_STREAM, HttpReply, HttpTarget, Served, ServedAgent
from kindlm.agents.tool_entries import reported_calls
from kindlm.dataclass import replace
from kindlm.ports import AgentRequest
from kindlm.spelling import Spelling
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.values import refuse


class Posted(Served):
    """An agent that takes JSON by POST, in a `form` of kindlm, by a template, or in a protocol.

    A subclass has the fields `body` and `protocol`.
    """

    refused_hint: ClassVar[str | None] = (
        'Send the key that the agent takes, `body: { KEY: "{{message}}" }`, or check the path of '
        "its `url`"
    )

    if TYPE_CHECKING:
        body: BodyTemplate
        protocol: ProtocolName

    @model_validator(mode="after")
    def _can_be_added(self) -> Self:
        if self.protocol is not None and not isinstance(self.body, dict | None):
            hint = "Its keys are added to the body of the protocol: write `body: {model: shop}`"
            raise refuse("is not an object beside `protocol`", hint, key="body")
        return self

    @property
    def spoken(self) -> Protocol | None:
        """The protocol that is named."""
        return None if self.protocol is None else protocol_named(self.protocol)

    @property
    def form(self) -> str:
        """The form of the body, where neither a template nor a protocol has it."""
        raise NotImplementedError

    def streams(self) -> bool:
        """Tell whether a stream is asked for."""
        return False

    def read(self, answer: HttpReply) -> Heard:
        """Read an answer, where no protocol is named; see `heard`."""
        raise NotImplementedError

    def agent(self, server: HttpTarget) -> ServedAgent:
        """Return the agent behind a server."""
        if spoken := self.spoken:
            server = replace(server, headers={**spoken.headers, **server.headers})
        return ServedAgent(server, self)

    def body_for(self, request: AgentRequest, carried: Any) -> Any:
        """Return the body; the keys of a template replace those of the protocol."""
        if (spoken := self.spoken) is None:
            return make_body(request, self.form, self.body)
        return spoken.body(request, self.streams(), carried) | make_body(
            request, "", self.body or {}
        )

    def heard(self, answer: HttpReply, _request: AgentRequest) -> Heard:
        """Return the content of an answer; see `Served.heard`."""
        if (spoken := self.spoken) is None:
            return self.read(answer)
        return _read_answer(answer, Reading(may_lack_text=True), spoken)

    def sends_system_text(self) -> bool:
        """Tell whether the body has the system text."""
        spoken = self.spoken
        return says_system(self.form, self.body) or (spoken is not None and spoken.says_system)

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        """Return warnings of what the body leaves out."""
        says = self.sends_system_text()
        if spoken := self.spoken:
            why = f"not supported by {spoken.title}"
            context = spoken.says_context
            return request_warnings(
                request, says_system=says, says_context=context, system_why=why, context_why=why
            )
        context = self.body is None and self.form in ("query", "route")
        return request_warnings(request, says_system=says, says_context=context)


class Http(Posted):
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

    @property
    def form(self) -> str:
        """The form of the body."""
        return self.request

    def read(self, answer: HttpReply) -> Heard:
        """Read an answer by its apparent format, or by the paths."""
        takes_query = self.request == "query"
        reading = Reading(
            QUERY_TEXT_KEYS if takes_query else TEXT_KEYS,
            self.response_path,
            self.tool_calls_path,
            may_lack_text=takes_query,
        )
        return _read_answer(answer, reading)

    @property
    def system_text_hint(self) -> str:  # type: ignore[override]
        """What to do if the system text is not sent."""
        if self.body is not None:
            return "Put {{system}} or {{messages}} into `body`, or use a prompt without it"
        if self.protocol is not None:
            return "The protocol does not support it: use a prompt without it"
        return "Use `request: messages`, a `protocol` with a place for it, or a prompt without it"

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:
        """Yield what the protocol says."""
        for key in ("request", "responsePath", "toolCallsPath") if self.protocol else ():
            yield (
                key,
                f"with `{spelling.key('protocol')}`",
                "Remove it: the protocol determines this",
            )


def _read_answer(answer: HttpReply, reading: Reading, protocol: Protocol | None = None) -> Heard:
    """Read an answer by its apparent format; with a named `protocol`, only that one is accepted."""
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
        # A text that holds no answer is the answer itself: some agents are asked for JSON.
        return Heard(read_reply(answer.text, Reading()))


def _value(answer: HttpReply) -> Any:
    """Return the JSON value; a body without a JSON media type may be bare text, such as 42.

    Many servers send JSON under another media type: frameworks often send text as `text/html`.
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
