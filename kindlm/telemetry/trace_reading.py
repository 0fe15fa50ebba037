"""Finds tool calls and model calls in the spans of an agent, and decides whether any are missing.

A span or a model's last message reports a tool call; a call that both report is one call. A model
call is a span of a model that does not only wrap another one, since instrumentations of a framework
and of an SDK report the same call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.telemetry import dialects
from kindlm.telemetry.dialects import Kind
from kindlm.telemetry.messages import AskedCall
from kindlm.telemetry.spans import Span
from kindlm.transcript import UNNAMED, ToolCall, ToolUse, Usage, storable_json
from kindlm.wires import extras_from
from kindlm.wording import shown

MAX_CALLS = 1000
"""The limit of calls for one message."""

LIMITS = {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "10000", "OTEL_SPAN_EVENT_COUNT_LIMIT": "10000"}
"""Variables of an agent that let its spans hold long conversations; by default 128 attributes."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A model call, as its spans report it."""

    provider: str | None
    model: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class TraceReading:
    """The calls in some spans.

    Attributes:
        missing: Why tool calls, or parts of them, may be missing.
        asked_by: The span of the model that asked for each tool call; empty if none is known.
    """

    tool_uses: tuple[ToolUse, ...]
    model_calls: tuple[TracedCall, ...]
    missing: str | None
    asked_by: tuple[str, ...] = ()


def read_trace(spans: Sequence[Span], earlier: Sequence[ToolCall] = ()) -> TraceReading:
    """Read the spans of one message; `earlier` are the calls of the messages before it."""
    ordered = in_order(spans)
    known, before = {span.id: span for span in spans}, set[str]()
    for span in ordered:
        if span.parent in known and span.parent not in before:
            return TraceReading((), (), "Some spans of the trace are below themselves.")
        if span.id and span.id in before:
            return TraceReading((), (), "Some spans of the trace have the same id.")
        before.add(span.id)
    chats, tools = _grouped(ordered, Kind.CHAT, known), _grouped(ordered, Kind.TOOL, known)
    reported = {span.id: dialects.calls_said(span) for group in chats for span in group}
    asked = sum(len(calls) for calls, _ in reported.values())
    if max(len(chats) + len(tools), asked) > MAX_CALLS:
        return TraceReading((), (), f"The trace holds more than {MAX_CALLS:,} calls.")
    slots, is_silent = _asked(chats, reported)
    for group in tools:
        _place(slots, group)
    _add_sent(slots, chain.from_iterable(chats))
    uses = tuple(slot.use() for slot in slots)
    calls = [*earlier, *(use.call for use in uses)]
    missing = why_cut(spans) or _missing(chats, tools, slots, is_silent)
    missing = missing or _of_no_kind(ordered, uses) or _unreported(chats, calls)
    asked_by = tuple(slot.asked_by for slot in slots)
    return TraceReading(uses, tuple(map(_model_call, chats)), missing, asked_by)


def why_cut(spans: Iterable[Span]) -> str | None:
    """Return that a span lacks attributes or events, with the remedy; None if all are whole.

    The lost attributes may be those that give the kind of the span: SDKs drop the oldest.
    """
    cut = next((span for span in spans if span.is_cut), None)
    if cut is None:
        return None
    return (
        f"The span {shown(cut.name)} had more attributes or events than its SDK keeps, so calls may"
        f" be missing. Set {' and '.join(f'{name}={most}' for name, most in LIMITS.items())} where"
        " the agent starts."
    )


def in_order(spans: Collection[Span]) -> list[Span]:
    """Return spans in tree order: parents before children, siblings by start.

    Spans in a cycle come last.
    """
    ids, below = {span.id for span in spans}, dict[str, list[Span]]()
    for span in sorted(spans, key=lambda each: (each.start_ns, each.end_ns), reverse=True):
        below.setdefault(span.parent if span.parent in ids else "", []).append(span)
    ordered, waiting = list[Span](), below.pop("", [])
    while waiting:
        span = waiting.pop()
        ordered.append(span)
        waiting += below.pop(span.id, [])
    return [*ordered, *chain.from_iterable(below.values())]


Group = list[Span]
"""Spans that report the same call, the innermost last."""


def _grouped(ordered: Iterable[Span], kind: Kind, known: Mapping[str, Span]) -> list[Group]:
    """Return the spans of a kind, grouped by call.

    Two spans report the same call if one is below the other without a span of an agent or tool
    between them. So do spans of two instrumentations that agree, if one lies within the time of the
    other: a span made by a framework's callback has no children. A streamed answer may have a span
    of its own, after that of its request.
    """
    groups, of_span = list[Group](), dict[str, Group]()
    for span in ordered:
        if dialects.kind_of(span) is not kind:
            continue
        if len(groups) > MAX_CALLS:
            break
        outer = _enclosing(span, kind, known)
        group = None
        # A span of a model repeats the answers of those below it; a tool may call another tool.
        if outer is not None and (kind is Kind.CHAT or _may_be_same_tool(outer, span)):
            group = of_span[outer.id]
            # An outer span may wrap several calls.
            if group[-1] is not outer and group[-1].scope == span.scope:
                group = None
        if group is None:
            group = next(
                (
                    each
                    for each in groups
                    if _is_twin(each, span, kind) or dialects.answers(span, each[-1])
                ),
                None,
            )
        if group is None:
            group = []
            groups.append(group)
        group.append(span)
        of_span[span.id] = group
    return groups


def _enclosing(span: Span, kind: Kind, known: Mapping[str, Span]) -> Span | None:
    """Return the nearest ancestor of a kind; None if another call or agent is in between."""
    above = known.get(span.parent)
    while above is not None:
        found = dialects.kind_of(above)
        if found is kind:
            return above
        if found is not Kind.OTHER:
            return None
        above = known.get(above.parent)
    return None


def _is_twin(group: Group, span: Span, kind: Kind) -> bool:
    may_be_same = _may_be_same_chat if kind is Kind.CHAT else _may_be_same_tool
    for each in group:
        within = each.start_ns <= span.start_ns and span.end_ns <= each.end_ns
        around = span.start_ns <= each.start_ns and each.end_ns <= span.end_ns
        if each.scope == span.scope or not (within or around) or not may_be_same(each, span):
            return False
    return True


def _may_be_same_chat(one: Span, other: Span) -> bool:
    calls = [{call.id for call in dialects.calls_said(each)[0]} for each in (one, other)]
    return (not all(calls) or calls[0] == calls[1]) and all(
        _agree(dialects.tokens(one, name), dialects.tokens(other, name))
        for name in ("input tokens", "output tokens")
    )


def _may_be_same_tool(one: Span, other: Span) -> bool:
    is_named_alike = dialects.fact(one, "tool") == dialects.fact(other, "tool")
    facts = (dialects.call_id, dialects.arguments)
    return is_named_alike and all(_agree(read(one), read(other)) for read in facts)


def _agree(one: Any, other: Any) -> bool:
    return one is None or other is None or one == other


def _model_call(group: Group) -> TracedCall:
    provider = _first(group, dialects.text_fact, "provider")
    if provider == "strands-agents":  # which names itself as the provider
        provider = None
    return TracedCall(
        None if provider is None else dialects.PROVIDERS.get(provider, provider),
        _first(group, dialects.text_fact, "model"),
        Usage(
            _first(group, dialects.tokens, "input tokens"),
            _first(group, dialects.tokens, "output tokens"),
            extras_from(
                _first(group, dialects.tokens, "cache read"),
                _first(group, dialects.tokens, "cache written"),
                tier=_first(group, dialects.text_fact, "tier"),
            ),
        ),
    )


def _first(group: Group, read: Callable[..., Any], *name: str) -> Any:
    """Return a fact of the innermost span that has it."""
    found = (read(span, *name) for span in reversed(group))
    return next((value for value in found if value is not None), None)


@dataclass(slots=True)
class _Slot:
    """One tool call, as a model asked for it or its spans report it, and the spans of the tool."""

    call: AskedCall
    asked_by: str = ""
    group: Group = field(default_factory=list)
    sent: Any = None
    """The result, as a later message sent it to a model."""

    def use(self) -> ToolUse:
        response = _first(self.group, dialects.result)
        if response is None:
            response = self.sent
        call = ToolCall.parse(self.call.id, self.call.name or UNNAMED, self.call.arguments)
        return ToolUse(call.storable(), storable_json(response))


def _asked(
    chats: Sequence[Group], reported: Mapping[str, tuple[list[AskedCall], bool]]
) -> tuple[list[_Slot], bool]:
    """Return the calls that models asked for, and whether a model call does not report its own."""
    slots, is_silent = list[_Slot](), False
    for group in chats:
        calls, is_all = list[_Slot](), False
        for span in reversed(group):
            others = _others([slot.call for slot in calls], reported[span.id][0])
            calls += [_Slot(call, span.id) for call in others]
            is_all |= reported[span.id][1]
        if not is_all or (not calls and any(map(dialects.ended_for_tools, group))):
            is_silent = True
        for slot in calls:
            # A span may repeat calls of an earlier answer; some models number theirs anew in each.
            if not any(_repeats(slot.call, known.call) for known in slots):
                slots.append(slot)
    return slots, is_silent


def _repeats(call: AskedCall, known: AskedCall) -> bool:
    """Return whether two calls may be the same one: spans may leave arguments out."""
    if not call.id or (call.id, call.name) != (known.id, known.name):
        return False
    return call.arguments == known.arguments or None in (call.arguments, known.arguments)


def _others(known: Sequence[AskedCall], reported: Sequence[AskedCall]) -> list[AskedCall]:
    """Return the reported calls that are not known from another span."""
    left, others = list(known), list[AskedCall]()
    for call in reported:
        same = next((each for each in left if _is_same(each, call)), None)
        if same is None:
            others.append(call)
        else:
            left.remove(same)
    return others


def _is_same(one: AskedCall, other: AskedCall) -> bool:
    if one.id and other.id and one.id == other.id:
        return True
    alike = one.arguments == other.arguments or not (one.id and other.id)
    return one.name == other.name and alike


def _place(slots: list[_Slot], group: Group) -> None:
    """Add the spans of a tool call to the call that a model asked for, else as a further call."""
    call_id = str(_first(group, dialects.call_id) or "")
    name = str(_first(group, dialects.text_fact, "tool") or "")
    arguments = _first(group, dialects.arguments)
    free = [each for each in slots if not each.group]
    same = [each for each in free if each.call.id and each.call.id == call_id]
    named = [each for each in free if each.call.name == name and not (each.call.id and call_id)]
    same += [each for each in named if _has_arguments(each.call, arguments)] or named
    if not same:
        same = [_Slot(AskedCall("", "", None))]
        slots += same
    slot, asked = same[0], same[0].call
    # LangChain reports arguments as a Python literal, or the only one by its value alone.
    if not isinstance(arguments, dict):
        unnamed = arguments if isinstance(arguments, list) else None
        arguments = unnamed if asked.arguments is None else asked.arguments
    slot.call, slot.group = AskedCall(call_id or asked.id, name or asked.name, arguments), group


def _has_arguments(call: AskedCall, given: Any) -> bool:
    """Return whether a call has the arguments of a span, which may be values without names."""
    own = call.arguments
    is_unnamed = isinstance(given, list) and isinstance(own, dict)
    return bool(own == given or (is_unnamed and list(own.values()) == given))


def _add_sent(slots: Sequence[_Slot], chats: Iterable[Span]) -> None:
    """Add the results of calls that later messages sent to a model.

    Some models give calls of several answers the same id. Each of these gets the result that the
    next messages end with: messages repeat older results.
    """
    times = Counter(slot.call.id for slot in slots)
    waiting, asked = dict[str, list[_Slot]](), dict[str, list[_Slot]]()
    for slot in slots:
        if times[slot.call.id] == 1 or not slot.asked_by:
            waiting.setdefault(slot.call.id, []).append(slot)
        else:
            asked.setdefault(slot.asked_by, []).append(slot)
    for span in chats:
        sent = dict[str, list[Any]]()
        for call_id, only, result in dialects.results_asked(span):
            is_only = call_id not in times and times[only] == 1
            sent.setdefault(only if is_only else call_id, []).append(result)
        for call_id, results in sent.items():
            slots_of = reversed(waiting.get(call_id, []))
            for slot, result in zip(slots_of, reversed(results), strict=False):
                slot.sent = result
            if times[call_id] > 1:
                waiting.pop(call_id, None)
        for slot in asked.get(span.id, ()):
            waiting.setdefault(slot.call.id, []).append(slot)


def _missing(
    chats: Sequence[Group], tools: Sequence[Group], slots: Sequence[_Slot], is_silent: bool
) -> str | None:
    """Return why calls may be missing although all spans have arrived."""
    if not chats and not tools:
        return (
            "The trace has no model or tool spans, so tool calls are unknown. Instrument the"
            " agent: for example with openinference-instrumentation-openai, "
            "or with a span for each tool call that has gen_ai.operation.name=execute_tool."
        )
    # Not every tool has a span.
    if is_silent:
        return (
            "A model span does not contain the model's answer, so tool calls may be missing."
            f" {dialects.CAPTURE_CONTENT}"
        )
    bare = next((each for each in slots if each.call.arguments is None), None)
    if bare is not None:
        name = shown(bare.call.name or UNNAMED)
        return f"The spans do not contain the arguments of {name}. {dialects.CAPTURE_CONTENT}"
    return None


def _of_no_kind(spans: Iterable[Span], uses: Iterable[ToolUse]) -> str | None:
    """Return that a span of no known kind has a call that no other span reports, or None."""
    names = {use.call.name for use in uses}
    for span in spans:
        if dialects.kind_of(span) is Kind.OTHER:
            for name in dialects.tools_called(span):
                if name not in names:
                    return (
                        f"The span {shown(span.name)} has a call to {shown(name)}, but not the kind"
                        " of a span that kindlm reads. Set gen_ai.operation.name to execute_tool or"
                        " chat."
                    )
    return None


def _unreported(chats: Iterable[Group], known: Sequence[ToolCall]) -> str | None:
    """Return that the messages to a model hold a call that no span reports; None if they do not.

    Only messages since the user's last one count: those before may be examples, or of an earlier
    conversation. Since the spans of an agent can leave ids out, a call may also have its name only.
    """
    ids = {call.id for call in known if call.id}
    for span in chain.from_iterable(chats):
        calls = list[AskedCall]()
        for said in dialects.conversation(span):
            if said.role == "assistant":  # Langfuse puts tool definitions into messages of tools
                calls += said.calls
            elif said.role == "user" and not said.results:
                calls.clear()
        of_messages = {call.id for call in calls if call.id}
        others = Counter(call.name for call in known if call.id not in of_messages)
        unknown = Counter(call.name or UNNAMED for call in calls if call.id not in ids)
        for name, times in unknown.items():
            if times > others[name]:
                return (
                    f"A request to a model contains a call of {shown(name)} that no span"
                    " reports, so the agent may call further models. Instrument all of them."
                )
    return None
