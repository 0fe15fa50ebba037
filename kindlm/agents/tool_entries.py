"""Tool calls as agents report them, in whatever words.

A call is flat (`{"name", "arguments", "result"}`, or `tool`, `params`, `output`, ...) or nested as
OpenAI has it (`{"function": {"name", "arguments"}}`). Arguments are an object or its JSON text.
An answer counts where its key is there, so that 0, "" and false are answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kindlm.agents.json_values import ABSENT, lookup, parent_of
from kindlm.agents.repeated_calls import completed, told_before, with_ids
from kindlm.agents.unreadable import MAX_CALLS, UnreadableReply, refuse_more
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wording import count, shown

__all__ = [
    "AGENT_RULE",
    "call_entries",
    "call_warnings",
    "completed_entry",
    "entries_again",
    "failed_tool",
    "read_tool_use",
    "read_tool_uses",
    "reported_calls",
    "single_call",
    "together",
    "tool_answer",
]

AGENT_RULE = "agent"
"""Who answered the calls: the agent ran its tools itself."""

_NAMES = ("tool", "tool_name", "name")
_ARGUMENTS = ("arguments", "args", "parameters", "params", "input")
_RESPONSES = ("result", "output", "response")
_STEPS = "steps"
_LISTS = ("tool_calls", "choices[0].message.tool_calls")

_SINGLE = "choices[0].message.function_call"
"""One call, as OpenAI had it before there were lists of them."""

_MAX_WARNINGS = 3


def reported_calls(value: Any, path: str | None) -> list[Mapping[str, Any]]:
    """Return what a reply lists as calls of tools: at a path, else at all of the usual places.

    An agent that called none may leave the list out. What it tells step by step in texts or by a
    number are no calls.

    Raises:
        UnreadableReply: what is there can not be read. It may be the very call that a test forbids.
    """
    if path is not None:
        if parent_of(value, path) is ABSENT:
            raise UnreadableReply(f"it has nothing where its tool calls should be: `{path}`")
        return call_entries(lookup(value, path), path)
    lists = [call_entries(lookup(value, place), place) for place in _LISTS]
    steps = lookup(value, _STEPS)
    told = call_entries(steps, _STEPS) if _may_be_calls(steps) else []
    return together(told, *lists, single_call(lookup(value, _SINGLE), _SINGLE))


def together(*lists: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the calls of several lists, each of them once, in the order in which they are told.

    One that several tell has what any of them says of it.
    """
    told = [entries for entries in lists if entries]
    if len(told) < 2:
        return list(told[0]) if told else []
    known = list[Mapping[str, Any]]()
    for entries in told:
        refuse_more(len(entries), MAX_CALLS, "tool calls")
        for entry, place in zip(entries, entries_again(known, entries), strict=True):
            if place is None:
                known.append(entry)
            else:
                known[place] = completed_entry(known[place], entry)
    return known


def entries_again(
    known: Iterable[Mapping[str, Any]], later: Iterable[Mapping[str, Any]]
) -> list[int | None]:
    """Return for each later entry which known one is of the same call, None if it is new."""
    return told_before(
        [read_tool_use(entry).call for entry in known],
        [read_tool_use(entry).call for entry in later],
    )


def completed_entry(entry: Mapping[str, Any], again: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reported call with what only another report of it has."""
    use = read_tool_use(entry)
    whole = completed(use, read_tool_use(again))
    cost = entry.get("cost", again.get("cost"))
    if whole == use and cost == entry.get("cost"):
        return entry
    call = whole.call
    arguments = call.arguments if call.malformed is None else call.malformed
    said = {"id": call.id, "name": call.name, "arguments": arguments, "result": whole.response}
    return said if cost is None else {**said, "cost": cost}


def single_call(found: Any, place: str) -> list[Mapping[str, Any]]:
    """Return the call at a place for one; raise `UnreadableReply` if what is there is none."""
    return call_entries(found if found is ABSENT or found is None else [found], place)


def call_entries(found: Any, place: str) -> list[Mapping[str, Any]]:
    """Return a list of reported calls; raise `UnreadableReply` if what is there is none."""
    if found is ABSENT or found is None:
        return []
    if isinstance(found, list) and all(isinstance(entry, dict) for entry in found):
        return found
    raise UnreadableReply(f"its tool calls, `{place}`, are no list of objects")


def _may_be_calls(steps: Any) -> bool:
    is_list = isinstance(steps, list) and any(isinstance(entry, dict) for entry in steps)
    return is_list or isinstance(steps, dict)


def read_tool_uses(entries: Sequence[Mapping[str, Any]]) -> tuple[ToolUse, ...]:
    """Read a list of reported calls; raise `UnreadableReply` for more than `MAX_CALLS`."""
    refuse_more(len(entries), MAX_CALLS, "tool calls")
    return with_ids(map(read_tool_use, entries))


def failed_tool(error: Any, result: Any = None) -> dict[str, Any]:
    """Return the answer of a tool that failed, with what it gave all the same."""
    failure = {"error": error or "the agent says that the tool failed"}
    return failure if result is None else {**failure, "result": result}


def tool_answer(entry: Mapping[str, Any], keys: Iterable[str] = _RESPONSES) -> Any:
    """Return what a tool answered, under the first of some keys; of one that failed, that too.

    It failed if there is an `error`, or if its `success` is false.
    """
    result, error = _first(entry, keys), entry.get("error")
    result = None if result is ABSENT else result
    return failed_tool(error, result) if error or entry.get("success") is False else result


def call_warnings(uses: Sequence[ToolUse]) -> tuple[str, ...]:
    """Return what could not be read of calls: their names, or their arguments."""
    found = list(_unreadable(uses))
    more = len(found) - _MAX_WARNINGS
    if more <= 0:
        return tuple(found)
    return (*found[:_MAX_WARNINGS], f"and {count(more, 'more problem')} of that kind")


def _unreadable(uses: Sequence[ToolUse]) -> Iterator[str]:
    for index, use in enumerate(uses):
        if use.call.name == UNNAMED:
            yield f"tool call {index} has no name; it is recorded as {UNNAMED!r}"
        if use.call.malformed is not None:
            yield f"the arguments of tool call {index}, {shown(use.call.name)}, are no JSON object"


def read_tool_use(entry: Mapping[str, Any]) -> ToolUse:
    """Read one reported call; its id is empty if it has none."""
    function = entry.get("function")
    nested = function if isinstance(function, dict) else {}
    name = _first_text(
        [
            nested.get("name"),
            function,
            *(entry.get(key) for key in _NAMES),
        ]
    )
    arguments = _first(nested, _ARGUMENTS)
    if arguments is ABSENT:
        arguments = _first(entry, _ARGUMENTS)
    call_id = entry.get("id")
    known = call_id if isinstance(call_id, str) else ""
    call = ToolCall.told(known, name or UNNAMED, None if arguments is ABSENT else arguments)
    return ToolUse(call, tool_answer(entry), AGENT_RULE)


def _first(entry: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((entry[key] for key in keys if key in entry), ABSENT)


def _first_text(values: Iterable[Any]) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)
