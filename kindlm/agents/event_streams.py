"""Reads the answer in a stream of events.

Streams of models and frameworks are read by their format, and other streams by the adapter.
Otherwise an event is an object with a text under one of the usual keys, or bare text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

from kindlm.agents.drafts import Draft, Frame, ParsedAnswer, ReportedCalls, assemble
from kindlm.agents.event_framing import StreamFormat, frames_of
from kindlm.agents.hidden_calls import calls_anywhere, calls_of_event
from kindlm.agents.langgraph_parts import is_chunk, whole_messages
from kindlm.agents.protocols.a2a import read_call_answer
from kindlm.agents.protocols.ag_ui import RunDraft
from kindlm.agents.protocols.ai_sdk import UiDraft
from kindlm.agents.reply_parts import (
    ANOTHER_PROTOCOL,
    OF_A_GRAPH,
    READ_AS_GRAPH,
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
    read_reply,
    text_of,
)
from kindlm.agents.reply_usage import later_spent, read_spent, spent_together
from kindlm.agents.tool_entries import (
    UNREAD,
    has_place_for_calls,
    listed_calls,
    names_a_tool,
    reported_calls,
    together,
)
from kindlm.dataclass import dataclass, replace
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED, ToolUse
from kindlm.wires import Spent, anthropic, chat, content_text, objects, responses


@dataclass(slots=True)
class ModelDraft(Draft):
    """An answer in the format of a model, or in an unknown format; bare lines are ignored.

    An agent may forward several messages of its model. `chunks` and `blocks` are events of OpenAI's
    and Anthropic's formats, which are read together at the end of each message; `place` is the
    position of their text in `texts`. `pieced` are the calls of earlier messages, `earlier` is
    their usage, `about` that of the current one, and `own` that in other events. `calls` arrived
    complete. `pieces` are chunks of LangChain. `frames` are all events of the stream.
    """

    reading: Reading
    frames: Sequence[Frame]
    texts: list[str] = field(default_factory=list)
    chunks: list[Mapping[str, Any]] = field(default_factory=list)
    blocks: list[Mapping[str, Any]] = field(default_factory=list)
    pieces: list[Mapping[str, Any]] = field(default_factory=list)
    place: int | None = None
    pieced: list[ToolUse] = field(default_factory=list)
    calls: ReportedCalls = field(default_factory=ReportedCalls)
    earlier: list[Spent] = field(default_factory=list)
    about: Spent = Spent()
    own: Spent = Spent()
    has_place_for_calls: bool = False
    reasons: list[str] = field(default_factory=list)

    def take(self, frame: Frame, _number: int) -> None:
        if not frame.type:
            return
        value = frame.value
        if frame.type == "error" or (isinstance(value, dict) and value.get("error")):
            raise UnreadableReply(error_text(value, frame.data))
        if isinstance(value, dict):
            self._add_object(value, frame.type)
        elif names_a_tool(frame.type) or calls_anywhere(value):
            self.calls.merge_use(UNREAD)
        else:
            self.texts.append(frame.text)

    def finished(self) -> ParsedAnswer:
        """Return the whole answer.

        Bare text may be JSON in pieces. Among objects, or at the end, such a piece is a broken
        event: it may be the call that a test forbids.
        """
        values = [frame.value for frame in self.frames if frame.type]
        broken = [value for value in values if isinstance(value, NotJson)]
        if broken and (any(isinstance(it, dict) for it in values) or values[-1] is broken[-1]):
            raise broken[0]
        self._end_message()
        for message in whole_messages(self.pieces):
            for use in calls_of_event(message):
                self.calls.merge_use(use)
        # Many streams repeat the pieces as a whole at the end.
        reply = agent_reply(
            "".join(self.texts),
            together(self.pieced, self.calls.uses),
            self.spent(),
            reasons=self.reasons,
            reports_tools=self.has_place_for_calls or None,
        )
        return ParsedAnswer(reply)

    def spent(self) -> Spent:
        """Return the last usage that the agent reports itself, or else that of all messages."""
        begun = read_spent(anthropic.whole_of(self.blocks)[0])
        messages = [it for it in (*self.earlier, self.about, begun) if it != Spent()]
        return later_spent(spent_together(messages), self.own)

    def _end_message(self) -> None:
        """Read the events of the current message of a model."""
        for whole, _ in (chat.whole_of(self.chunks), anthropic.whole_of(self.blocks)):
            self.pieced += reported_calls(whole, None)
            self.about = later_spent(self.about, read_spent(whole))
            if self.reading.response_path is None:
                self.texts.insert(self.place or 0, text_of(whole, Reading()) or "")
        self.earlier.append(self.about)
        self.about = Spent()
        self.chunks, self.blocks, self.place = [], [], None

    def _begins_message(self, value: Mapping[str, Any], *, is_chunk: bool) -> bool:
        """Return whether an event begins another message of a model."""
        if not is_chunk or not self.chunks:
            return value.get("type") == "message_start"
        last = self.chunks[-1]
        return bool(end_reasons(last)) and value.get("id") != last.get("id")

    def _add_object(self, value: Mapping[str, Any], kind: str) -> None:
        choices, is_block = objects(value.get("choices")), _is_block(value)
        is_chunk = any(isinstance(choice.get("delta"), dict) for choice in choices)
        if is_chunk or is_block:
            if self._begins_message(value, is_chunk=is_chunk):
                self._end_message()
            (self.chunks if is_chunk else self.blocks).append(value)
            self.place = len(self.texts) if self.place is None else self.place
        is_read_later = is_chunk or (is_block and value["type"] != "message_delta")
        if self.reading.response_path is not None or not is_read_later:
            self.texts.append(_piece(value, self.reading))
        self._add_calls(value, kind)
        self.reasons += end_reasons(value)
        inner = value.get("message")
        for part in (value, inner) if isinstance(inner, dict) else (value,):
            if is_block:
                continue  # only all of them together count
            if "choices" in value:
                self.about = later_spent(self.about, read_spent(part))
            else:
                self.own = later_spent(self.own, read_spent(part))

    def _add_calls(self, value: Mapping[str, Any], kind: str) -> None:
        path = self.reading.tool_calls_path
        if has_place_for_calls(value, path):
            self.has_place_for_calls = True
        if path is None and is_chunk(value):
            self.pieces.append(value)
            whole = []
        elif path is None:
            whole = calls_of_event(value, kind)
        else:
            # Most events of a stream have no calls, and no place for them.
            whole = listed_calls(lookup(value, path), path)
        for use in whole:
            self.calls.merge_use(use)  # some streams repeat a call with each event


def _is_block(value: Mapping[str, Any]) -> bool:
    kind, parts = value.get("type"), map(value.get, ("message", "content_block", "delta"))
    types = ("message_start", "message_delta", "content_block_")
    is_known = isinstance(kind, str) and kind.startswith(types)
    return is_known and any(isinstance(part, dict) for part in parts)


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


@dataclass(slots=True)
class _ResponseDraft(Draft):
    """A stream of OpenAI's responses, which ends with the whole response."""

    reading: Reading
    check_end: Callable[[], None]
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, event: Mapping[str, Any], _number: int) -> None:
        self.events.append(event)

    def add_text(self, text: str, number: int) -> None:
        """Ignore text that is not an event."""

    def finished(self) -> ParsedAnswer:
        """Return the response, or all responses if the agent forwards several of its model."""
        events = iter(self.events)
        try:
            # Each takes the events up to its end.
            found = [responses.whole_of(chain([first], events))[0] for first in events]
        except UnreadableReply as error:
            raise FailedReply(str(error)) from None
        # Other events may follow the last response.
        nothing, _ = responses.whole_of(())
        wholes = [whole for whole in found if whole != nothing] or [nothing]
        last, spent = wholes[-1], spent_together(list(map(read_spent, wholes)))
        if last.get("status") == "failed":
            failed = FailedReply(failure_of(last) or "the response failed")
            failed.spent = spent
            raise failed
        self.check_end()
        outputs = [whole["output"] for whole in wholes]
        if len(outputs) > 1:
            lists = (output for output in outputs if isinstance(output, list))
            last = {**last, "output": [*chain.from_iterable(lists)]}
        reply = read_reply(last, self.reading)
        cost_usd = spent.cost_usd
        return ParsedAnswer(
            replace(reply, usage=spent.usage, reported_cost_usd=cost_usd, model=spent.model)
        )


def read_stream(
    text: str,
    reading: Reading,
    *,
    has_end: bool,
    is_sse: bool = True,
    otherwise: Draft | None = None,
    speaks: str | None = None,
) -> ParsedAnswer:
    """Read server-sent events (`is_sse`) or JSON Lines by their format.

    `has_end` is that of an `HttpReply`. `otherwise` reads a stream in an unknown format; by default
    a `ModelDraft` does. `speaks` is the only accepted format.

    Raises:
        FailedReply: it reports a failure of the agent.
        UnreadableReply: it broke off, is in an unsupported format, or has no answer.
    """
    frames, end = frames_of(text, is_sse=is_sse)
    if not is_sse and len(frames) == 1 and StreamFormat.A2A in end.formats:
        return read_call_answer(frames[0].value)  # a whole answer, and no stream
    for unread in (StreamFormat.GEMINI, StreamFormat.A2A):
        if unread in end.formats:
            hint = "Let the agent send its whole answer as JSON"
            raise UnreadableReply(f"streams of {unread} are not read", hint)
    if speaks is not None and speaks not in end.formats:
        raise UnreadableReply(f"it is not a stream of {speaks}", ANOTHER_PROTOCOL)
    check_end = partial(end.check, has_end=has_end)
    is_of_model = not end.formats.keys().isdisjoint((StreamFormat.CHAT, StreamFormat.ANTHROPIC))
    draft: Draft
    if StreamFormat.UI_MESSAGES in end.formats:
        draft = UiDraft()
    elif StreamFormat.AG_UI in end.formats:
        draft = RunDraft()
    elif StreamFormat.RESPONSES in end.formats:
        draft = _ResponseDraft(reading, check_end)
    elif otherwise is not None and not is_of_model:
        draft = otherwise
    else:
        draft = ModelDraft(reading, frames)
    answer = assemble(draft, frames, check_end)
    if end.formats.keys() <= {StreamFormat.DONE} and _is_of_graph(answer.reply, frames):
        raise UnreadableReply("kindlm found no answer text in it, only messages", READ_AS_GRAPH)
    return answer


def _is_of_graph(reply: AgentReply, frames: Sequence[Frame]) -> bool:
    """Return whether a stream has messages that nothing in the reply was read from.

    Lists are then no text: the messages of LangGraph come in them, too.
    """
    if any(use.call.name != UNNAMED for use in reply.tool_uses):
        return False
    held = [frame for frame in frames if OF_A_GRAPH.search(frame.data)]
    return bool(held) and (not reply.text or all(isinstance(it.value, list) for it in held))
