"""Reads tool calls from agents' answers, under all usual keys.

The section "http" of docs/how-to/agents.md lists the keys, and says what must be readable.
Arguments are an object or its JSON text. A result counts if its key is present, so 0, "" and false
are results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kindlm.agents.reply_parts import (
    ABSENT,
    AGENT_RULE,
    WHOLE,
    UnreadableReply,
    first_text,
    first_warnings,
    lookup,
    parent_of,
)
from kindlm.dataclass import replace
from kindlm.errors import DOCS
from kindlm.same_calls import KnownCalls, merged_uses
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wires import content_text, objects
from kindlm.wording import shown

_NAMES = ("tool", "tool_name", "toolName", "name", "action")
_ARGUMENTS = (
    *("arguments", "args", "parameters", "params", "input"),
    *("tool_input", "toolInput", "action_input", "inputs"),
)
_RESPONSES = ("result", "output", "response", "observation")
_IDS = ("id", "tool_call_id", "toolCallId", "call_id")
_STEPS = "steps"
_LISTS = (
    *("tool_calls", "toolCalls", "function_calls", "functionCalls"),
    *("tool_invocations", "toolInvocations", "tool_uses", "toolUses"),
)
"""Keys of lists of tool calls."""

_USED = ("tools_used", "toolsUsed", "used_tools", "tools_called", "toolsCalled", "called_tools")
"""Keys of lists of tools, whose entries are names or calls."""

_PAIRS = ("intermediate_steps", "intermediateSteps")
"""Keys of LangChain's lists of pairs of an action and its result."""

_MAYBE = ("actions", "invocations", "calls", "tool_results", "toolResults")
"""Keys of lists that may contain tool calls."""

_READ_IF_NAMED = (*_MAYBE, *_PAIRS)
"""Keys of lists that kindlm reads only if each entry has a name."""

_HOLDERS = ("message", "data", "metadata", "meta", "trace")
"""Objects of a reply that may have such keys, like the reply itself."""

_CHAT_MESSAGE = "choices[0].message"
"""A message of OpenAI's chat completions."""

_CHAT_DELTA = "choices[0].delta"
"""A piece of such a message in a stream."""

_SINGLES = ("function_call", "functionCall", "tool_call", "toolCall")
"""Keys of a single call, as OpenAI's API had it before it had lists."""

_PARTS = ("content", "output")
"""Keys of the parts of an answer in Anthropic's messages and OpenAI's responses."""

_BESIDE_CALL = ("result", "output", "approval", "list_tools")
"""Words in the types of parts that are about tools but are not calls."""

_CALLS_WITH_NAMES = frozenset({"function_call", "tool_call", "custom_tool_call", "mcp_call"})
"""Types of parts that do not imply which tool is called."""

CALL_KEYS = frozenset({_STEPS, *_LISTS, *_USED, *_PAIRS, *_MAYBE, *_SINGLES})
"""The keys under which a reply may have tool calls."""

_PLACES = CALL_KEYS.union(_PARTS)

_OF_CALLS = frozenset(
    key.replace("_", "").lower()
    for key in (
        *(*_LISTS, *_SINGLES, *_USED, *_PAIRS),
        *("tool_use", "tool_result", "tool_results", "function_response"),
    )
)
"""Keys that mean tool calls in any place and in any spelling."""

_CALLED_WITH = frozenset({"arguments", "args", "tool_input", "toolInput", "action_input"})
"""Keys of arguments; the definition of a tool has `parameters` instead."""

_READ_IN = ("", *(f"{holder}." for holder in (*_HOLDERS, _CHAT_MESSAGE)))
_READ_PLACES = {
    *(_STEPS, "content_block", f"{_CHAT_DELTA}.tool_calls", f"{_CHAT_DELTA}.function_call"),
    *(f"{part}{key}" for part in _READ_IN for key in CALL_KEYS - {_STEPS}),
}
"""The paths where kindlm reads calls."""
_PLACES_OF_PARTS = {f"{part}{key}" for part in _READ_IN for key in _PARTS}
"""The paths of parts that may be calls."""

_NAMES_OF_TOOLS = ("tool", "tool_name", "toolName")
_OF_A_CALL = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "toolUseId"})
_IDS_OF_CALLS = (*sorted(_OF_A_CALL), "call_id")
"""Keys under which a result has the id of its call."""

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")
"""Keys of the JSON Schema in the definition of a tool."""

_BESIDE_DEFINITION = _OF_A_CALL | {*_CALLED_WITH, *_NAMES_OF_TOOLS, *_RESPONSES}
"""Keys that no definition of a tool has."""


class UnreadableCalls(UnreadableReply):
    """An answer whose tool calls cannot be read."""

    hint = (
        'Send a list of objects, such as `[{"name": "lookup_order", "arguments": {}}]`, or say '
        f"where it is: `toolCallsPath: data.calls` ({DOCS}/how-to/agents/#http)"
    )


UNREAD = ToolUse(ToolCall("unread", UNNAMED, {}), None, AGENT_RULE)
"""Stands for a tool call that kindlm cannot read: it may be the call that a test forbids."""

_MAX_WARNINGS = 3


def reported_calls(value: Any, path: str | None) -> list[ToolUse]:
    """Return the tool calls of a reply: at the `path`, else at all usual places.

    A call without an id has an empty one. A reply without tool calls may leave out the list. Raises
    `UnreadableReply` if they cannot be read: one may be the call that a test forbids.
    """
    if path is not None:
        if parent_of(value, path) is ABSENT:
            raise UnreadableCalls(f"it has no tool calls at the configured path: `{path}`")
        return listed_calls(lookup(value, path), path)
    if not isinstance(value, dict):
        return []
    steps = value.get(_STEPS)
    lists = [listed_calls(steps, _STEPS) if _may_be_calls(steps) else []]
    holders = [(value, ""), *((value.get(holder), f"{holder}.") for holder in _HOLDERS)]
    if "choices" in value:
        holders.append((lookup(value, _CHAT_MESSAGE), f"{_CHAT_MESSAGE}."))
    results = dict[str, Any]()
    for holder, place in holders:
        lists += _listed(holder, place)
        results |= results_of_parts(holder)
    return [
        replace(use, response=results.get(use.call.id)) if use.response is None else use
        for use in together(*lists)
    ]


def calls_anywhere(value: Any) -> str | None:
    """Return the path of a possible tool call in an answer; None if nothing looks like one."""
    try:
        usual = reported_calls(value, None)
    except UnreadableReply:
        return WHOLE
    return WHOLE if usual else hidden_calls(value)


def hidden_calls(
    value: Any, known: KnownCalls | None = None, *, read: Iterable[ToolUse] = ()
) -> str | None:
    """Return the path of a possible tool call that `reported_calls` does not read.

    Its key means tool calls, or it looks like a call or a tool result, in a place where kindlm
    reads none. It may be the call that a test forbids.

    A part that repeats one of the `known` calls is not hidden. `read` are the calls that
    `reported_calls` read from the value: a part of a message that has the result of one of them,
    with its id, is not hidden.
    """
    with_id = KnownCalls((), earlier=(use.call for use in read))
    waiting = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, dict):
            if looks_like_a_call(part) and not _is_definition(part):
                if _is_known(part, known):
                    continue
                return path or "."
            for key, item in part.items():
                place = f"{path}.{key}".lstrip(".")
                folded = key.replace("_", "").replace("-", "").lower()
                if place in _READ_PLACES:
                    if key in _READ_IF_NAMED and _holds_unread_calls(key, item):
                        return place
                    if _is_read(key, item):
                        continue
                if folded in _OF_CALLS and item and isinstance(item, list | dict):
                    if all(_is_known(entry, known) for entry in _entries(item)):
                        continue
                    return place
                waiting.append((place, item))
        elif isinstance(part, list):
            entries = _unread(part, with_id) if path in _PLACES_OF_PARTS else enumerate(part)
            waiting += [(f"{path}[{index}]", item) for index, item in entries]
    return None


def _unread(parts: Sequence[Any], known: KnownCalls) -> Iterator[tuple[int, Any]]:
    """Yield the parts that may hide a call, with their positions.

    A result belongs to the calls beside it. Without such calls, it belongs to the known call with
    its id; then only its nested values may hide a call.
    """
    has_calls = any(map(_is_call, parts))
    for index, part in enumerate(parts):
        if not _is_part(part) or not (_is_call(part) or is_of_tool(part)):
            yield index, part
        elif not has_calls:
            answered = replace(read_tool_use(part).call, id=_id_of_call(part) or "")
            nested = {key: each for key, each in part.items() if isinstance(each, list | dict)}
            yield index, nested if known.has(answered) else part


def calls_of_event(event: Mapping[str, Any], name: str = "") -> list[ToolUse]:
    """Return the calls in an event of a stream, and `UNREAD` if it may contain another one.

    An event without calls whose `name` or type mentions tools counts as a call.
    """
    calls = reported_calls(event, None)
    place = hidden_calls(event, read=calls)
    is_call = place == "." or names_a_tool(name) or is_of_tool(event)
    # An event with calls may itself look like a call.
    if place not in (None, ".") or (is_call and not calls):
        calls = [*calls, UNREAD]
    return calls


def _entries(listed: list[Any] | dict[str, Any]) -> list[Any]:
    """Return the entries of a list of calls; of a pair with a result, only the call."""
    entries = listed if isinstance(listed, list) else [listed]
    return [entry[0] if isinstance(entry, list) and entry else entry for entry in entries]


def _is_known(part: Any, known: KnownCalls | None) -> bool:
    """Return whether a part, a call or the name of its tool, reports a known call."""
    if isinstance(part, str):
        part = {"name": part}
    if known is None or not isinstance(part, dict):
        return False
    call = read_tool_use(part).call
    if call.malformed is not None and not known.has(call):
        # In LangChain, the input of an action may be a text.
        call = replace(call, arguments={"tool_input": call.malformed}, malformed=None)
    return known.has(call)


def _is_definition(part: Mapping[str, Any]) -> bool:
    """Return whether a part defines a tool: it has a JSON Schema in place of arguments."""
    function = part.get("function")
    definition = function if isinstance(function, dict) else part
    schemas = [definition[key] for key in _SCHEMAS if isinstance(definition.get(key), dict)]
    return (
        any(schema.get("type") == "object" and "properties" in schema for schema in schemas)
        and _BESIDE_DEFINITION.isdisjoint(part)
        and _BESIDE_DEFINITION.isdisjoint(definition)
    )


def _is_read(key: str, found: Any) -> bool:
    """Return whether `reported_calls` reads the value of a key where it may read calls."""
    if key == _STEPS:
        return _may_be_calls(found)
    return key not in _READ_IF_NAMED or _named_calls(found) is not None


def _holds_unread_calls(key: str, found: Any) -> bool:
    """Return whether a possible list of calls has entries without a name.

    `actions` are often choices for a user: they count only if an entry has a tool's name.
    """
    if not isinstance(found, list | dict) or not found or _named_calls(found):
        return False
    return key != "actions" or (
        isinstance(found, list) and any(_named_calls([entry]) for entry in found)
    )


def looks_like_a_call(part: Mapping[str, Any]) -> bool:
    """Return whether an object reports a tool call or a tool result."""
    names = [part.get(key) for key in _NAMES]
    kind, role = part.get("type"), part.get("role")
    return (
        _is_call(part)
        or (isinstance(kind, str) and is_of_tool(part) and "result" in kind.lower())
        or (isinstance(role, str) and role.lower() in ("tool", "function"))
        or not _OF_A_CALL.isdisjoint(part)
        or any(isinstance(part.get(key), str) and part[key] for key in _NAMES_OF_TOOLS)
        or (
            not _CALLED_WITH.isdisjoint(part)
            and any(isinstance(name, str) and name for name in names)
        )
    )


def is_of_tool(event: Mapping[str, Any]) -> bool:
    """Return whether the type of an event mentions tools."""
    return any(names_a_tool(event.get(key)) for key in ("type", "kind", "event"))


def names_a_tool(kind: Any) -> bool:
    """Return whether the name of an event mentions tools."""
    return isinstance(kind, str) and ("tool" in kind.lower() or "function" in kind.lower())


def parts_text(value: Mapping[str, Any]) -> str | None:
    """Return the text of an answer that consists of parts, None for another answer."""
    for key in _PARTS:
        parts = value.get(key)
        if isinstance(parts, list) and parts and all(map(_is_part, parts)):
            pieces = [
                piece
                for part in parts
                for piece in (objects(part.get("content")) if part["type"] == "message" else [part])
            ]
            texts = [it for it in pieces if it.get("type") in ("text", "output_text")]
            refusals = [it for it in pieces if it.get("type") == "refusal"]
            return content_text(texts) or content_text(refusals)
    return None


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _listed(part: Any, place: str) -> Iterator[list[ToolUse]]:
    """Yield the calls of an object, list by list."""
    if not isinstance(part, dict) or part.keys().isdisjoint(_PLACES):
        return
    for key in (*_LISTS, *_SINGLES, *_USED):
        found = part.get(key)
        if key in _SINGLES:
            found = [found] if found else None
        elif key in _USED and not isinstance(found, list | dict):
            found = None  # such as a number of tools
        elif key in _USED and isinstance(found, list) and all(map(first_text, found)):
            found = [{"name": name} for name in found]
        yield listed_calls(found, place + key)
    for key in _READ_IF_NAMED:
        yield _named_calls(part.get(key)) or []
    for key in _PARTS:
        parts = part.get(key)
        yield _calls_of_parts(parts) if isinstance(parts, list) else []


def _named_calls(found: Any) -> list[ToolUse] | None:
    """Return the calls, or pairs of call and result, in a list; None unless each has a name."""
    if not isinstance(found, list):
        return None
    uses = []
    for entry in found:
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], dict):
            entry = {**entry[0], "result": entry[1]}  # noqa: PLW2901
        if not isinstance(entry, dict) or (use := read_tool_use(entry)).call.name == UNNAMED:
            return None
        uses.append(use)
    return uses


def _is_call(part: Any) -> bool:
    """Return whether a part is a tool call, and not a tool result or an approval."""
    if not _is_part(part) or any(word in part["type"] for word in _BESIDE_CALL):
        return False
    return is_of_tool(part) or part["type"].endswith("_call")


def results_of_parts(holder: Any) -> dict[str, Any]:
    """Return the tool results among the parts of an object, by call id."""
    results = {}
    for key in _PARTS if isinstance(holder, dict) else ():
        for part in objects(holder.get(key)):
            if _is_part(part) and not _is_call(part) and (call_id := _id_of_call(part)):
                result = part.get("output", part.get("content"))
                results[call_id] = failed_tool(result) if part.get("is_error") is True else result
    return results


def is_item(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a tool call or a tool result, and no message with parts."""
    return _is_call(value) or (_is_part(value) and _id_of_call(value) is not None)


def _id_of_call(part: Mapping[str, Any]) -> str | None:
    return first_text(*map(part.get, _IDS_OF_CALLS))


def _calls_of_parts(parts: Sequence[Any]) -> list[ToolUse]:
    uses = []
    for part in filter(_is_call, parts):
        use, kind = read_tool_use(part), str(part["type"])
        call_id = first_text(part.get("call_id"), part.get("id")) or use.call.id
        call = replace(use.call, id=call_id)
        if call.name == UNNAMED and kind.endswith("_call") and kind not in _CALLS_WITH_NAMES:
            # The type alone names a tool of the provider.
            call = replace(call, name=kind.removesuffix("_call"))
        uses.append(replace(use, call=call))
    return uses


def has_place_for_calls(value: Any, path: str | None) -> bool:
    """Return whether a reply would list tool calls if there were any.

    It would if the user configured their `path`, or if it has one of the usual lists, even empty.
    The message of a model alone shows nothing: the last message of an agent's loop never has the
    calls of earlier messages.
    """
    if path is not None:
        return True
    if not isinstance(value, dict):
        return False
    if may_list_calls(value.get(_STEPS)):
        return True
    messages = (lookup(value, place) for place in (_CHAT_MESSAGE, _CHAT_DELTA))
    parts = (value, *map(value.get, _HOLDERS), *messages)
    return any(isinstance(part, dict) and _shows_calls(part) for part in parts)


def _shows_calls(part: Mapping[str, Any]) -> bool:
    """Return whether a part has one of the usual lists, empty or readable.

    Null is not a list: some libraries write null for each field without a value.
    """
    return (
        any(part.get(key) is not None for key in _LISTS)
        or any(found == 0 or isinstance(found, list | dict) for found in map(part.get, _USED))
        or any(_named_calls(part.get(key)) is not None for key in _PAIRS)
    )


def may_list_calls(steps: Any) -> bool:
    """Return whether steps are empty or may be tool calls; the steps of some agents are texts."""
    return steps == [] or _may_be_calls(steps)


def together(*lists: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the calls of several lists, each call once, in the reported order."""
    known = list[ToolUse]()
    for uses in filter(None, lists):
        known = merged_uses(known, uses)
    return known


def listed_calls(found: Any, place: str) -> list[ToolUse]:
    """Return the calls of a list at a `place`; raises `UnreadableReply` if it is no such list."""
    if found is ABSENT or found is None:
        return []
    if isinstance(found, list) and all(isinstance(entry, dict) for entry in found):
        return [read_tool_use(entry) for entry in found]
    raise UnreadableCalls(f"its tool calls, `{place}`, are not a list of objects")


def _may_be_calls(steps: Any) -> bool:
    is_list = isinstance(steps, list) and any(isinstance(entry, dict) for entry in steps)
    return is_list or isinstance(steps, dict)


def failed_tool(error: Any, result: Any = None) -> dict[str, Any]:
    """Return the result of a tool that failed, and what it returned in spite of that."""
    failure = {"error": error or "the agent reported that the tool failed"}
    return failure if result is None else {**failure, "result": result}


def tool_answer(entry: Mapping[str, Any], keys: Iterable[str] = _RESPONSES) -> Any:
    """Return the result under the first of the keys; an `error` or no success means a failure."""
    result, error = _first(entry, keys), entry.get("error")
    result = None if result is ABSENT else result
    return failed_tool(error, result) if error or entry.get("success") is False else result


def call_warnings(uses: Sequence[ToolUse]) -> tuple[str, ...]:
    """Return warnings about calls without a name or without readable arguments."""
    found = list[str]()
    for index, use in enumerate(uses):
        if use.call.name == UNNAMED:
            found.append(f"tool call {index} has no name; it is recorded as {UNNAMED!r}")
        if use.call.malformed is not None:
            called = f"tool call {index}, {shown(use.call.name)}"
            found.append(f"the arguments of {called}, are not a JSON object")
    return first_warnings(found, _MAX_WARNINGS)


def read_tool_use(entry: Mapping[str, Any]) -> ToolUse:
    """Read one reported call and its result; a call without an id has an empty one."""
    function = entry.get("function")
    nested = function if isinstance(function, dict) else {}
    name = first_text(nested.get("name"), function, *map(entry.get, _NAMES))
    arguments = _first(nested, _ARGUMENTS)
    if arguments is ABSENT:
        arguments = _first(entry, _ARGUMENTS)
    call_id = first_text(*map(entry.get, _IDS)) or ""
    call = ToolCall.parse(call_id, name or UNNAMED, None if arguments is ABSENT else arguments)
    return ToolUse(call, tool_answer(entry), AGENT_RULE)


def _first(entry: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((entry[key] for key in keys if key in entry), ABSENT)
