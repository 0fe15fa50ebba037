"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream.

Users choose the form of the body. The `streaming` adapter is based on this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kindlm.agents.drafts import ParsedAnswer
from kindlm.agents.event_framing import EVENT, OBJECT
from kindlm.agents.event_streams import read_stream
from kindlm.agents.http_request import (
    BodyTemplate,
    last_user_text,
    make_body,
    placeholders,
    request_warnings,
)
from kindlm.agents.message_answers import read_answer
from kindlm.agents.protocols import ANTHROPIC, CHAT, RESPONSES, Name, Protocol, ProtocolName
from kindlm.agents.protocols.a2a import A2A, A2A_0_3, is_call_answer, read_call_answer
from kindlm.agents.protocols.ag_ui import AG_UI
from kindlm.agents.protocols.ai_sdk import AI_SDK
from kindlm.agents.reply_parts import (
    ANOTHER_PROTOCOL,
    OF_A_GRAPH,
    READ_AS_GRAPH,
    NoTextKnown,
    NotJson,
)
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
from kindlm.wires import UnreadableReply

PROTOCOLS: Mapping[Name, Protocol] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "ai-sdk": AI_SDK,
    "ag-ui": AG_UI,
    "a2a": A2A,
    "a2a-0.3": A2A_0_3,
}

_SEVERAL_VALUES = "Let the agent send one JSON value; for JSON Lines, write `adapter: streaming`"


class Posted(Served):
    """The base of options of agents that take JSON by POST.

    The body has a `form` of kindlm, follows a template, or has the form of a protocol. A subclass
    has the fields `body` and `protocol`.
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
    def named_protocol(self) -> Protocol | None:
        return None if self.protocol is None else PROTOCOLS[self.protocol]

    @property
    def form(self) -> str:
        """The form of the body, without a template or a protocol."""
        raise NotImplementedError

    def streams(self) -> bool:
        """Return whether kindlm asks for a stream."""
        return False

    def read(self, answer: HttpReply, sent: str) -> ParsedAnswer:
        """Read an answer to the message `sent` without a configured protocol; see `parse`."""
        raise NotImplementedError

    def agent(self, server: HttpTarget) -> ServedAgent:
        if protocol := self.named_protocol:
            server = replace(server, headers={**protocol.headers, **server.headers})
        return ServedAgent(server, self)

    def body_for(self, request: AgentRequest, carried: Any) -> Any:
        """Return the body; the keys of a template replace those of the protocol."""
        if (protocol := self.named_protocol) is None:
            return make_body(request, self.form, self.body)
        return protocol.body(request, self.streams(), carried) | make_body(
            request, "", self.body or {}
        )

    def parse(self, answer: HttpReply, request: AgentRequest) -> ParsedAnswer:
        if (protocol := self.named_protocol) is None:
            return self.read(answer, last_user_text(request))
        return _read_answer(answer, "", Reading(may_lack_text=True), protocol)

    def sends_system_text(self) -> bool:
        if protocol := self.named_protocol:
            by_form = protocol.sends_system
        else:
            by_form = self.body is None and self.form == "messages"
        return by_form or not {"messages", "system"}.isdisjoint(placeholders(self.body))

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        sends_context = self.body is None and self.form in ("query", "route")
        if protocol := self.named_protocol:
            sends_context = protocol.sends_context
        sends_system = self.sends_system_text()
        return request_warnings(request, sends_system=sends_system, sends_context=sends_context)


class Http(Posted):
    """Options of agents that take JSON by POST and answer with JSON, text or a stream."""

    system_text_hint: ClassVar[str] = (
        "Use `request: messages` or a `protocol` with a place for it, put {{system}} into `body`, "
        "or use a prompt without it"
    )

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
        return self.request

    def read(self, answer: HttpReply, sent: str) -> ParsedAnswer:
        takes_query = self.request == "query"
        reading = Reading(
            QUERY_TEXT_KEYS if takes_query else TEXT_KEYS,
            self.response_path,
            self.tool_calls_path,
            may_lack_text=takes_query,
        )
        return _read_answer(answer, sent, reading)

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:
        for key in ("request", "responsePath", "toolCallsPath") if self.protocol else ():
            yield (
                key,
                f"with `{spelling.key('protocol')}`",
                "Remove it: the protocol determines this",
            )


def _read_answer(
    answer: HttpReply, sent: str, reading: Reading, protocol: Protocol | None = None
) -> ParsedAnswer:
    """Read an answer by its apparent format; with a `protocol`, any other format is an error."""
    if answer.kind == EVENT_STREAM or EVENT.match(answer.text):
        speaks = protocol.title if protocol else None
        return read_stream(answer.text, reading, has_end=answer.has_end, speaks=speaks)
    value, is_text = _value(answer), answer.kind.startswith("text/")
    if is_call_answer(value):
        return read_call_answer(value)
    if protocol is not None and not protocol.is_answer(value):
        if failure := failure_of(value):
            raise FailedReply(failure)
        reason = f"it is not an answer in the form of {protocol.title}"
        raise UnreadableReply(reason, ANOTHER_PROTOCOL)
    try:
        if is_text and value is answer.text:
            return ParsedAnswer(read_reply(value, Reading()))
        if is_text and isinstance(value, list):
            return ParsedAnswer(read_reply(value, reading))  # maybe a list that the agent wrote
        return ParsedAnswer(read_answer(value, sent, reading))
    except NoTextKnown as error:
        if not is_text or reported_calls(value, reading.tool_calls_path):
            if error.hint == NoTextKnown.hint and OF_A_GRAPH.search(answer.text):
                raise NoTextKnown(str(error), READ_AS_GRAPH) from None
            raise
        # JSON sent as text may be the answer itself: some agents are asked to write JSON.
        return ParsedAnswer(read_reply(answer.text, Reading()))


def _value(answer: HttpReply) -> Any:
    """Return the JSON value of an answer, else its text.

    The media type may be wrong: some servers send JSON under another one, and some frameworks send
    text as `text/html`. Without a JSON media type, a number such as 42 is text.
    """
    is_json, is_text = answer.kind.endswith("json"), answer.kind.startswith("text/")
    try:
        value = parse_json(answer.text.removeprefix("\ufeff"), unique_keys)
    except ValueError as error:
        may_be_cut = OBJECT.match(answer.text) and not (is_text and answer.has_end)
        may_be_cut = may_be_cut or not (answer.text.strip() or answer.has_end)
        if is_json or may_be_cut or isinstance(error, KeyTwiceError):
            reason = str(error) if answer.text.strip() else "it is empty"
            hint = _SEVERAL_VALUES if reason.startswith("Extra data") else None
            raise NotJson(f"not valid JSON: {reason}", hint) from None
        return answer.text
    kinds = dict | list if is_text else dict | list | str
    return value if is_json or isinstance(value, kinds) else answer.text
