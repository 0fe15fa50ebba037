"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from kindlm.agents.drafts import Heard
from kindlm.agents.http_request import BodyTemplate
from kindlm.agents.posted import Posted, read_answer
from kindlm.agents.protocols import ProtocolName
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    TEXT_KEYS,
    Reading,
    ResponsePath,
    ToolCallsPath,
)
from kindlm.agents.served import HttpReply
from kindlm.spelling import Spelling


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
        """Read an answer by what it looks like, or by the paths."""
        takes_query = self.request == "query"
        reading = Reading(
            QUERY_TEXT_KEYS if takes_query else TEXT_KEYS,
            self.response_path,
            self.tool_calls_path,
            may_lack_text=takes_query,
        )
        return read_answer(answer, reading)

    @property
    def system_text_hint(self) -> str:  # type: ignore[override]
        """What to do where the system text is not sent."""
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
