"""What a stream of events says: pieces of text, and tool calls whole or in pieces.

A stream in the format of a model or a framework is read as that; what other events mean, the
adapter says. An event's data is JSON as of OpenAI's or Anthropic's streams, an object with a text
under one of the usual keys, or bare text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from operator import length_hint
from typing import Any, TypeVar

from kindlm.agents.agent_events import Heard, Piece
from kindlm.agents.event_framing import (
    ANTHROPIC_EVENTS,
    Frame,
    StreamFormat,
    bare_text,
    end_of,
    frames_of,
    pieces_of,
)
from kindlm.agents.protocols.a2a import hear_task
from kindlm.agents.protocols.ag_ui import hear_run
from kindlm.agents.protocols.ai_sdk import hear_ui_messages
from kindlm.agents.reply_parts import (
    AnotherProtocol,
    NotJson,
    UnreadableReply,
    end_reasons,
    error_text,
    lookup,
)
from kindlm.agents.reply_reading import (
    FailedReply,
    Reading,
    agent_reply,
    failure_of,
    read_cost,
    read_model,
    read_reply,
    read_usage,
    spent_for,
    spent_in,
    text_of,
)
from kindlm.agents.tool_entries import (
    UNREAD,
    calls_of_event,
    has_place_for_calls,
    listed_calls,
    names_a_tool,
    reported_calls,
    together,
)
from kindlm.dataclass import dataclass
from kindlm.ports import AgentReply
from kindlm.same_calls import completed, tells_again
from kindlm.transcript import ToolUse, Usage
from kindlm.wires import anthropic, chat, responses
from kindlm.wires.answer import content_text, objects

T = TypeVar("T")


def read_stream(frames: Iterable[Frame], reading: Reading) -> AgentReply:
    """Put the pieces together; raise `UnreadableReply` with what the stream says went wrong.

    Lines of bare text are left out.
    """
    draft = _Draft(reading)
    for frame in frames:
        if frame.type:
            draft.add(frame)
    return draft.finished()


@dataclass(slots=True)
class _Draft:
    """A reply in the making.

    `chunks` and `blocks` are the events in the formats of OpenAI's and Anthropic's models, which
    are read together in the end; their text stands at `place` among the others. `calls` came whole,
    and `wholes` says where they are, by their ids. `broken` is the first event that begins like
    a JSON object and cannot be read as one.
    """

    reading: Reading
    texts: list[str] = field(default_factory=list)
    chunks: list[Mapping[str, Any]] = field(default_factory=list)
    blocks: list[Mapping[str, Any]] = field(default_factory=list)
    place: int | None = None
    calls: list[ToolUse] = field(default_factory=list)
    wholes: dict[str, int] = field(default_factory=dict)
    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None
    broken: NotJson | None = None
    has_objects: bool = False
    has_place_for_calls: bool = False
    ends_broken: bool = False
    reasons: list[str] = field(default_factory=list)

    def add(self, frame: Frame) -> None:
        """Take one event."""
        value = frame.value
        self.ends_broken = isinstance(value, NotJson)
        if self.ends_broken:
            self.broken = self.broken or value
        if frame.type == "error" or (isinstance(value, dict) and value.get("error")):
            raise UnreadableReply(error_text(value, frame.data))
        if isinstance(value, dict):
            self.has_objects = True
            self._add_object(value, frame.type)
        elif names_a_tool(frame.type):
            self._add_whole(UNREAD)
        else:
            self.texts.append(bare_text(frame))

    def finished(self) -> AgentReply:
        """Return the whole.

        Bare text may be JSON in pieces. Among objects, or at the end, such a piece was cut off: it
        may be the call that a test forbids.
        """
        if self.broken is not None and (self.has_objects or self.ends_broken):
            raise self.broken
        calls = list[Sequence[ToolUse]]()
        for whole_of, events in ((chat.whole_of, self.chunks), (anthropic.whole_of, self.blocks)):
            whole, _ = whole_of(events)
            calls.append(reported_calls(whole, None))
            self._add_about(whole)
            if self.reading.response_path is None:
                self.texts.insert(self.place or 0, text_of(whole, Reading()) or "")
        # What came in pieces is often told whole in the end.
        return agent_reply(
            "".join(self.texts),
            together(*calls, self.calls),
            self.usage,
            reported_cost_usd=self.cost_usd,
            model=self.model,
            reasons=self.reasons,
            reports_tools=self.has_place_for_calls or None,
        )

    def _add_object(self, value: Mapping[str, Any], kind: str) -> None:
        is_chunk, is_block = _is_chunk(value), _is_block(value)
        if is_chunk or is_block:
            (self.chunks if is_chunk else self.blocks).append(value)
            self.place = len(self.texts) if self.place is None else self.place
        is_read_later = is_chunk or (is_block and value["type"] != "message_delta")
        if self.reading.response_path is not None or not is_read_later:
            self.texts.append(_piece(value, self.reading))
        self._add_calls(value, kind)
        self.reasons += end_reasons(value)
        inner = value.get("message")
        for part in (value, inner) if isinstance(inner, dict) else (value,):
            self._add_about(part)

    def _add_about(self, part: Mapping[str, Any]) -> None:
        usage = read_usage(part)
        self.usage = Usage(
            _later(self.usage.input_tokens, usage.input_tokens),
            _later(self.usage.output_tokens, usage.output_tokens),
            _later(self.usage.extras, usage.extras),
        )
        self.cost_usd = _later(self.cost_usd, read_cost(part))
        self.model = _later(self.model, read_model(part))

    def _add_calls(self, value: Mapping[str, Any], kind: str) -> None:
        path = self.reading.tool_calls_path
        if has_place_for_calls(value, path):
            self.has_place_for_calls = True
        if path is None:
            whole = calls_of_event(value, kind)
        else:
            # Most events of a stream tell of no calls, and have no place for them.
            whole = listed_calls(lookup(value, path), path)
        for use in whole:
            self._add_whole(use)

    def _add_whole(self, use: ToolUse) -> None:
        """Take a complete call; some streams repeat it with each event, by its id."""
        call = use.call
        place = self.wholes.get(call.id)
        if place is not None and tells_again(self.calls[place].call, call):
            self.calls[place] = completed(self.calls[place], use)
            return
        if call.id:
            self.wholes[call.id] = len(self.calls)
        self.calls.append(use)


def _is_chunk(value: Mapping[str, Any]) -> bool:
    choices = objects(value.get("choices"))
    return any(isinstance(choice.get("delta"), dict) for choice in choices)


def _is_block(value: Mapping[str, Any]) -> bool:
    parts = (value.get(key) for key in ("message", "content_block", "delta"))
    return value.get("type") in ANTHROPIC_EVENTS and any(isinstance(part, dict) for part in parts)


def _piece(value: Mapping[str, Any], reading: Reading) -> str:
    """Return the text that one event adds."""
    if reading.response_path is not None:
        found = lookup(value, reading.response_path)
        return found if isinstance(found, str) else ""
    for path in ("choices[0].message.content", "delta.text", "delta"):
        found = lookup(value, path)
        if isinstance(found, str):
            return found
    parts = value.get("content")
    if isinstance(parts, list):
        return content_text(parts)
    return next((value[key] for key in reading.text_keys if isinstance(value.get(key), str)), "")


def _later(known: T | None, told: T | None) -> T | None:
    return known if told is None else told


_OF_MODELS = frozenset({StreamFormat.CHAT, StreamFormat.ANTHROPIC})
_HEARD: Mapping[str, Callable[[Iterable[Piece]], Heard]] = {
    StreamFormat.UI_MESSAGES: hear_ui_messages,
    StreamFormat.AG_UI: hear_run,
    StreamFormat.A2A: hear_task,
}


@dataclass(frozen=True, slots=True)
class EventStream:
    """A stream as it came: server-sent events, or else JSON Lines.

    `has_end` tells that the transport said where it ends, and did not just close.
    """

    text: str
    is_sse: bool
    has_end: bool


def hear_events(
    stream: EventStream,
    reading: Reading,
    otherwise: Callable[[Iterable[Piece]], AgentReply] | None = None,
    speaks: str | None = None,
) -> Heard:
    """Read a stream by its format; one that has none is read `otherwise`, or as a model's.

    `speaks` is the format that it has to be in.

    Raises:
        FailedReply: it says that the agent failed.
        UnreadableReply: it broke off, is in a format that is not read, or has no answer.

    An error has what the stream says that was spent, up to the event that it is about.
    """
    frames, is_done = frames_of(stream.text, is_sse=stream.is_sse)
    end = end_of(frames, is_done=is_done)
    if StreamFormat.GEMINI in end.formats:
        raise UnreadableReply(f"streams of {StreamFormat.GEMINI} are not read")
    hear = next((hear for known, hear in _HEARD.items() if known in end.formats), None)
    if speaks is not None and speaks not in end.formats:
        raise AnotherProtocol(f"it is not a stream of {speaks}")

    def read(frames: Iterable[Frame]) -> Heard:
        if hear is not None:
            return hear(pieces_of(frames))
        if StreamFormat.RESPONSES in end.formats:
            response = _response(pieces_of(frames))
            end.check(has_end=stream.has_end)
            return Heard(read_reply(response, reading))
        if otherwise is not None and _OF_MODELS.isdisjoint(end.formats):
            return Heard(otherwise(pieces_of(frames)))
        return Heard(read_stream(frames, reading))

    heard, coming = None, iter(frames)
    try:
        heard = read(coming)
        # What the agent says of its own failure comes first: it explains why the stream broke off.
        end.check(has_end=stream.has_end)
    except (FailedReply, UnreadableReply) as error:
        told = frames[: len(frames) - length_hint(coming)]
        whole = [frame for frame in told if not isinstance(frame.value, NotJson)]
        for said in (whole, whole[:-1]):
            if heard is None:
                with suppress(FailedReply, UnreadableReply):
                    heard = read(said)
        spent = error.spent
        if not spent and heard is not None:
            reply = heard.reply
            spent = spent_for(reply.usage, reply.reported_cost_usd, reply.model)
        # An error may have it beside it, as one that is no stream has.
        error.spent = spent or spent_in(whole[-1].value if whole else None)
        raise
    return heard


def _response(pieces: Iterable[Piece]) -> Mapping[str, Any]:
    """Return the response that a stream of one ends with."""
    try:
        whole, _ = responses.whole_of(piece for piece in pieces if isinstance(piece, dict))
    except UnreadableReply as error:
        raise FailedReply(str(error)) from None
    if whole.get("status") == "failed":
        failed = FailedReply(failure_of(whole) or "the response failed")
        failed.spent = spent_in(whole)
        raise failed
    return whole
