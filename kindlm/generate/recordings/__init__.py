"""Reads recorded conversations from traces: OTLP files, and exports of observability tools.

OTLP files are JSON, JSON Lines or protobuf. Each trace is a recording; in a run that kindlm
exported, each execution is one. All content is untrusted.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.generate.recordings.exported_spans import spans_in_export
from kindlm.matching import canonical
from kindlm.outcome import Status
from kindlm.ports import ToolDefinition
from kindlm.strict_json import parse_json, require_shallow
from kindlm.telemetry import dialects
from kindlm.telemetry.dialects import Kind
from kindlm.telemetry.messages import Said, messages_in
from kindlm.telemetry.spans import NoProtobuf, Span, read_protobuf, spans_in
from kindlm.telemetry.trace_reading import TraceReading, in_order, read_trace
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn, storable_json

MAX_BYTES = 100_000_000
_MAX_SPANS = 20_000


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded conversation with a model or an agent.

    Attributes:
        name: the name for its test, which may be long and occur twice.
        transcript: the conversation.
        tools: the known tool definitions that were sent to the model.
        provider: as the source names it, such as `openai`; None if unknown.
        model: as the source names it; None if unknown.
        failed: whether the source reports a failure.
        tags: the tags of its test.
        missing: why a test cannot be made of it; None if one can.
    """

    name: str
    transcript: Transcript
    tools: tuple[ToolDefinition, ...] = ()
    provider: str | None = None
    model: str | None = None
    failed: bool = False
    tags: tuple[str, ...] = ()
    missing: str | None = None


def read_recordings(data: bytes, file: Path) -> Result[list[Recording]]:
    """Read the content of a file, in any known format; the recordings in order of their starts."""
    try:
        spans, empty = _spans_in_file(data)
    except ValueError as error:
        hint = "kindlm reads these traces: otlp, langfuse, langsmith, phoenix."
        message = f"{file} cannot be read: {error}."
        return Err(KindlmError(ErrorCode.CONFIG_PARSE_ERROR, message, hint))
    why = "The file does not contain its observations: export the trace by itself."
    found = [Recording(name, Transcript(), missing=why) for name in empty]
    traces: dict[str, list[Span]] = {}
    first: dict[tuple[str, str], Span] = {}
    for span in spans:
        known = first.setdefault((span.trace, span.id), span)
        # Exporters repeat what may not have arrived. Some exports lack ids.
        if known is span or known != span or not span.id:
            traces.setdefault(span.trace, []).append(span)
    for trace in sorted(traces.values(), key=lambda each: min(span.start_ns for span in each)):
        found += map(_read_trace, _executions(trace))
    return Ok(found)


def _spans_in_file(data: bytes) -> tuple[list[Span], list[str]]:
    """Return the spans in a file, and the names of its traces without spans.

    Raises:
        ValueError: The file cannot be read.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES // 1_000_000} MB")
    if not data.strip():
        raise ValueError("it is empty")
    if data.startswith(b"\x1f\x8b"):
        raise ValueError("it is compressed; unpack it with gunzip")
    found: tuple[list[Span], list[str]] | None
    spans = list[Span]()
    try:
        if data.removeprefix(BOM_UTF8).lstrip()[:1] not in (b"{", b"["):
            with suppress(ValueError):
                spans = read_protobuf(data)
            found = (spans, []) if spans else None
        else:
            document = _document(data.decode("utf-8-sig"))
            if isinstance(document[0], dict) and "resourceSpans" in document[0]:
                found = [span for each in document for span in spans_in(each)], []
            else:
                found = spans_in_export(document)
    except NoProtobuf:
        why = "it is not JSON. To read protobuf, run pip install 'kindlm[otel]'"
        raise ValueError(why) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is broken: {error}") from None
    if found is None:
        raise ValueError("its format is unknown")
    return found


def _document(text: str) -> list[Any]:
    """Return the JSON value of a file, or those of its lines."""
    try:
        document = [parse_json(text)]
    except ValueError:
        try:
            document = [parse_json(line) for line in text.split("\n") if line.strip()]
        except ValueError:
            raise ValueError("it is neither JSON nor JSON Lines") from None
    require_shallow(document)
    return document


def _executions(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Yield the spans of a trace; in a run that kindlm exported, those of each execution.

    Retried attempts and calls to judges are left out.
    """
    groups: dict[str, list[Span]] = {
        span.id: []
        for span in spans
        if "kindlm.test" in span.attributes and "kindlm.retried" not in span.attributes
    }
    if not groups:
        yield spans
    tops = {top: top for top in groups}
    for span in in_order(spans):
        top = tops.get(span.id) or tops.get(span.parent)
        if top is not None and span.attributes.get("kindlm.purpose", "test") in ("test", "agent"):
            tops[span.id] = top
            groups[top].append(span)
    yield from groups.values()


def _read_trace(spans: Sequence[Span]) -> Recording:
    ordered = in_order(spans[:_MAX_SPANS])
    head, talk = _main_talk(ordered)
    reading = read_trace(ordered)
    ids = {span.id for span in ordered}
    users = [each for each in talk if each.role == "user" and each.text.strip()]
    missing = reading.missing
    lost = {span.parent for span in spans if span.parent not in {"", *ids}}
    # One missing parent may be the caller, whose spans are in another file.
    has_caller = len(lost) == 1 and all(span.parent for span in spans)
    has_caller &= not any(span.has_local_parent for span in spans if span.parent in lost)
    if len(spans) > _MAX_SPANS:
        missing = f"The trace has more than {_MAX_SPANS:,} spans."
    elif lost and not has_caller:
        missing = f"The span {min(lost)}, above others, is not in it. Export the whole trace."
    elif not users:
        missing = _no_message(ordered)
    elif not all(each.is_whole for each in users):
        missing = "A message of the user holds more than text, such as an image or a file."
    # Reports and exports show names, so no name repeats a message.
    tools = ", ".join(dict.fromkeys(use.call.name for use in reading.tool_uses))
    name = ordered[0].attributes.get("kindlm.test")
    if not isinstance(name, str):
        name = f"trace {head.trace[:8]}{tools and ': '}{tools}"
    return Recording(
        name=name,
        transcript=Transcript(
            system="\n\n".join(each.text for each in talk if each.role == "system") or None,
            turns=_turns(ordered, talk, reading),
        ),
        tools=dialects.tools_given(head),
        provider=dialects.text_fact(head, "provider"),
        model=dialects.text_fact(head, "model"),
        failed=any(span.is_error for span in ordered if span.parent not in ids),
        missing=missing,
    )


def _no_message(ordered: Sequence[Span]) -> str:
    """Return why a trace has no message of a user, and what to do about it."""
    top = ordered[0].attributes
    if top.get("kindlm.status") == Status.SKIPPED:
        return "The test was skipped."
    if "kindlm.test" in top and len(ordered) == 1:
        return "Nothing was sent to its target."
    return (
        "The trace has no message of a user. Export it with its inputs and outputs, a run of kindlm"
        f" with --contents. {dialects.CAPTURE_CONTENT}"
    )


def _main_talk(ordered: Sequence[Span]) -> tuple[Span, list[Said]]:
    """Return the model call to read provider, model and tools from, and the whole conversation.

    The conversation begins with the first model call with a message of a user. Later calls that
    repeat its messages continue it. Other conversations are those of sub-agents.
    """
    for kind in (Kind.CHAT, Kind.AGENT, Kind.OTHER):
        talks = [
            (span, talk)
            for span in ordered
            if dialects.kind_of(span) is kind
            and _said_by_users(talk := dialects.conversation(span))
        ]
        if not talks:
            continue
        whole, same = talks[0][1], [talks[0][0]]
        for span, talk in talks[1:]:
            before, after = _said_by_users(whole), _said_by_users(talk)
            if after[: len(before)] == before:
                same.append(span)
                whole = talk if len(after) > len(before) else whole
        head = next((span for span in same if dialects.tools_given(span)), same[0])
        return head, whole
    return ordered[0], []


def _said_by_users(talk: Sequence[Said]) -> list[str]:
    return [each.text for each in talk if each.role == "user" and each.text.strip()]


def _turns(
    ordered: Sequence[Span], talk: Sequence[Said], reading: TraceReading
) -> tuple[Turn, ...]:
    """Return the turns of a conversation, with the tool calls of the spans in them, and the answer.

    A step holds the calls that a model asked for at once.
    """
    users = _said_by_users(talk)
    if not users:
        return ()
    steps = [list[Step]() for _ in users]
    results = dict[str, list[Any]]()
    for key, value in chain.from_iterable(said.results for said in talk):
        results.setdefault(key, []).append(value)
    own, turn = {_key(use.call) for use in reading.tool_uses}, -1
    for said in talk:
        if said.role == "user" and said.text.strip():
            turn += 1
        elif said.role == "assistant" and turn >= 0:
            calls = (ToolCall.parse(each.id, each.name, each.arguments) for each in said.calls)
            # Some models give calls of several answers the same id.
            uses = [
                ToolUse(call, storable_json((results.get(call.id) or [None]).pop(0)))
                for call in map(ToolCall.storable, calls)
            ]
            earlier = tuple(use for use in uses if _key(use.call) not in own)
            steps[turn].append(Step(said.text, earlier))
    chats = {span.id: span for span in ordered if dialects.kind_of(span) is Kind.CHAT}
    turn = -1
    asked = enumerate(zip(reading.asked_by, reading.tool_uses, strict=True))
    for key, group in groupby(asked, lambda it: it[1][0] or str(it[0])):
        before = _said_by_users(dialects.conversation(chats[key])) if key in chats else []
        if before and before == users[: len(before)]:
            turn = len(before) - 1
        steps[turn].append(Step("", tuple(use for _, (_, use) in group)))
    answer = messages_in(dialects.said([*chats.values()][-1])) if chats else []
    steps[-1].append(Step("\n".join(filter(None, (each.text for each in answer)))))
    return tuple(Turn(user, tuple(made)) for user, made in zip(users, steps, strict=True))


def _key(call: ToolCall) -> str:
    """Return the id of a call; the name and arguments of one without an id."""
    return call.id or f"{call.name}:{canonical(call.arguments)}"
