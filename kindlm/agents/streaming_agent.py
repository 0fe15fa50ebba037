"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The body has the form `route`: see `http_request`. The answer is JSON Lines or server-sent events,
whichever it says or looks like: see agent_events for what they mean. With `streaming: false` it is
one JSON value, read like that of the http adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kindlm.agents.agent_events import EventsDraft
from kindlm.agents.drafts import Heard
from kindlm.agents.event_streams import hear_events
from kindlm.agents.http_exchange import HttpReply
from kindlm.agents.http_request import BodyTemplate
from kindlm.agents.posted import Posted
from kindlm.agents.protocols import ProtocolName
from kindlm.agents.reply_reading import QUERY_TEXT_KEYS, Reading, read_reply
from kindlm.agents.served import Streams
from kindlm.wires.answer import parse_body

_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


class Streaming(Posted):
    """Agents that answer with a stream of events."""

    other_names: ClassVar[Mapping[str, str]] = {"tapescope": "tapescope", "jsonl": "tapescope"}

    streaming: Streams = None
    protocol: ProtocolName = None
    body: BodyTemplate = None

    @property
    def form(self) -> str:
        """The form of the body."""
        return "route"

    def streams(self) -> bool:
        """Tell whether a stream is asked for."""
        return self.streaming is not False

    def accepts(self) -> str | None:
        """Return the `Accept` header that asks for a stream; None if the protocol has its own."""
        return _ACCEPT if self.streams() and self.protocol is None else None

    def read(self, answer: HttpReply) -> Heard:
        """Read a stream, or one JSON value."""
        if not self.streams():
            reading = Reading(QUERY_TEXT_KEYS, may_lack_text=True)
            return Heard(read_reply(parse_body(answer.text), reading))
        return hear_events(
            answer.text,
            Reading(),
            has_end=answer.has_end,
            is_sse=answer.is_stream,
            otherwise=EventsDraft(),
        )
