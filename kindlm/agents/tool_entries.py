"""Reads tool calls as agents report them, under any usual names.

A list under a name that can only mean tool calls must be readable. Lists under other usual names,
such as `actions`, may hold something else: their entries count as calls if each has a name. If only
some have one, kindlm warns of calls that it did not read. `actions` without any name are no calls.

A call is flat (`{"name", "arguments", "result"}`, or `tool`, `params`, `output`, ...) or nested as
OpenAI has it (`{"function": {"name", "arguments"}}`). Arguments are an object or its JSON text. A
result counts if its key is present, so 0, "" and false are results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from kindlm.same_calls import Told, uses_together
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
"""Names of lists of tool calls."""

_USED = ("tools_used", "toolsUsed", "used_tools", "tools_called", "toolsCalled", "called_tools")
"""Names of lists of tools, by their names or as calls."""

_PAIRS = ("intermediate_steps", "intermediateSteps")
"""Lists of pairs of an action and what came of it, as LangChain has them."""

_MAYBE = ("actions", "invocations", "calls", "tool_results", "toolResults")
"""Names of lists that may be of tool calls."""

_HOLDERS = ("message", "data", "metadata", "meta", "trace")
"""Where such lists stand besides the reply itself and the message of its first choice."""

_CHAT_MESSAGE = "choices[0].message"
"""A message as OpenAI has it, which leaves out what it does not have."""

_CHAT_DELTA = "choices[0].delta"
"""A piece of such a message in a stream."""

_SINGLES = ("function_call", "functionCall", "tool_call", "toolCall")
"""One call, as OpenAI had it before there were lists of them."""

_PARTS = ("content", "output")
"""The parts of an answer as Anthropic and OpenAI's responses have them."""

_BESIDE_CALL = ("result", "output", "approval", "list_tools")
"""What is in the types of parts about tools that are no calls."""

_CALLS_WITH_NAMES = frozenset({"function_call", "tool_call", "custom_tool_call", "mcp_call"})
"""Parts whose type does not say which tool is called."""

CALL_KEYS = frozenset({_STEPS, *_LISTS, *_USED, *_PAIRS, *_MAYBE, *_SINGLES})
"""The names under which a reply may hold tool calls."""

_PLACES = CALL_KEYS.union(_PARTS)

_OF_CALLS = frozenset(
    key.replace("_", "").lower()
    for key in (*_LISTS, *_SINGLES, *_USED, *_PAIRS, "tool_use", "tool_result", "function_response")
)
"""Names that mean tool calls wherever they are and however they are spelled."""

_CALLED_WITH = frozenset({"arguments", "args", "tool_input", "toolInput", "action_input"})
"""Names of arguments; a definition of a tool has `parameters`."""

_READ_IN = ("", *(f"{holder}." for holder in (*_HOLDERS, _CHAT_MESSAGE)))
_READ_PLACES = {
    *(_STEPS, "content_block", f"{_CHAT_DELTA}.tool_calls", f"{_CHAT_DELTA}.function_call"),
    *(f"{part}{key}" for part in _READ_IN for key in CALL_KEYS - {_STEPS}),
}
"""The paths at which calls are read, and `_PLACES_OF_PARTS` those of parts that may be calls."""
_PLACES_OF_PARTS = {f"{part}{key}" for part in _READ_IN for key in _PARTS}

_NAMES_OF_TOOLS = ("tool", "tool_name", "toolName")
_OF_A_CALL = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "toolUseId"})
_IDS_OF_CALLS = (*sorted(_OF_A_CALL), "call_id")
"""Where a result has the id of its call."""

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")
"""Where the definition of a tool says what the tool takes."""

_BESIDE_DEFINITION = _OF_A_CALL | {*_CALLED_WITH, *_NAMES_OF_TOOLS, *_RESPONSES}
"""What no definition of a tool has."""


class UnreadableCalls(UnreadableReply):
    """An answer with something in the place of its tool calls that cannot be read as calls."""

    hint = (
        'Send a list of objects, such as `[{"name": "lookup_order", "arguments": {}}]`, or say '
        f"where it is: `toolCallsPath: data.calls` ({DOCS}/how-to/agents/#http)"
    )


UNREAD = ToolUse(ToolCall("unread", UNNAMED, {}), None, AGENT_RULE)
"""Stands for tool calls that kindlm cannot read: it may be the call that a test forbids."""

_MAX_WARNINGS = 3


def reported_calls(value: Any, path: str | None) -> list[ToolUse]:
    """Return the tool calls that a reply lists: at a path, else at all of the usual places.

    A call without an id has an empty one. An agent that called no tools may leave the list out.

    Raises:
        UnreadableReply: what is there cannot be read. It may be the call that a test forbids.
    """
    if path is not None:
        if parent_of(value, path) is ABSENT:
            raise UnreadableCalls(f"it has no tool calls at the configured path: `{path}`")
        return listed_calls(lookup(value, path), path)
    if not isinstance(value, dict):
        return []
    steps = value.get(_STEPS)
    told = [listed_calls(steps, _STEPS) if _may_be_calls(steps) else []]
    holders = [(value, ""), *((value.get(holder), f"{holder}.") for holder in _HOLDERS)]
    if "choices" in value:
        holders.append((lookup(value, _CHAT_MESSAGE), f"{_CHAT_MESSAGE}."))
    results = dict[str, Any]()
    for holder, place in holders:
        told += _listed(holder, place)
        results |= _results(holder)
    return [
        replace(use, response=results.get(use.call.id)) if use.response is None else use
        for use in together(*told)
    ]


def calls_anywhere(value: Any) -> str | None:
    """Return where tool calls are, or may be, in an answer; None if nothing looks like one."""
    try:
        usual = reported_calls(value, None)
    except UnreadableReply:
        return WHOLE
    return WHOLE if usual else hidden_calls(value)


def hidden_calls(
    value: Any, known: Told | None = None, *, read: Iterable[ToolUse] = ()
) -> str | None:
    """Return the path of a tool call, or a list of them, that `reported_calls` does not read.

    It has a name that means tool calls, or looks like a call or like the result of one, and is in a
    place where kindlm reads none. It may be the very call that a test forbids.

    Args:
        value: The answer, or an event of it.
        known: The calls that are read. What tells one of them again hides none.
        read: The calls that `reported_calls` read from the value. The result of one of them hides
            none among the parts of a message. It has the id of the call.
    """
    with_id = Told((), earlier=(use.call for use in read))
    if isinstance(value, dict):
        unread = (key for key in (*_MAYBE, *_PAIRS) if _holds_unread_calls(key, value.get(key)))
        if (key := next(unread, None)) is not None:
            return key
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


def _unread(parts: Sequence[Any], known: Told) -> Iterator[tuple[int, Any]]:
    """Yield the parts that may hide a call, with their positions.

    A result belongs to the calls beside it. Without any, it belongs to a known call with its id,
    but what it holds may hide a call.
    """
    has_calls = any(map(_is_call, parts))
    for index, part in enumerate(parts):
        if not _is_part(part) or not (_is_call(part) or is_of_tool(part)):
            yield index, part
        elif not has_calls:
            answered = replace(read_tool_use(part).call, id=_id_of_call(part) or "")
            held = {key: each for key, each in part.items() if isinstance(each, list | dict)}
            yield index, held if known.has(answered) else part


def calls_of_event(event: Mapping[str, Any], name: str = "") -> list[ToolUse]:
    """Return the calls that an event of a stream reports, and `UNREAD` where it may hold another.

    An event that speaks of tools, by its `name` or its type, and lists no calls, is one itself.

    Raises:
        UnreadableReply: its calls cannot be read.
    """
    calls = reported_calls(event, None)
    place = hidden_calls(event, read=calls)
    is_call = place == "." or names_a_tool(name) or is_of_tool(event)
    # What looks like a call itself may be no more than the frame of those that it lists.
    if place not in (None, ".") or (is_call and not calls):
        calls = [*calls, UNREAD]
    return calls


def _entries(listed: list[Any] | dict[str, Any]) -> list[Any]:
    """Return the entries of a list of calls; those of pairs are what comes before the result."""
    entries = listed if isinstance(listed, list) else [listed]
    return [entry[0] if isinstance(entry, list) and entry else entry for entry in entries]


def _is_known(part: Any, known: Told | None) -> bool:
    """Tell whether a part that reports a call, or names its tool, reports one that is known."""
    if isinstance(part, str):
        part = {"name": part}
    if known is None or not isinstance(part, dict):
        return False
    call = read_tool_use(part).call
    if call.malformed is not None and not known.has(call):
        # The action of an agent of LangChain has a text as its input.
        call = replace(call, arguments={"tool_input": call.malformed}, malformed=None)
    return known.has(call)


def _is_definition(part: Mapping[str, Any]) -> bool:
    """Tell whether a part defines a tool: it has a JSON Schema where a call has arguments."""
    function = part.get("function")
    said = function if isinstance(function, dict) else part
    schemas = [said[key] for key in _SCHEMAS if isinstance(said.get(key), dict)]
    return (
        any(schema.get("type") == "object" and "properties" in schema for schema in schemas)
        and _BESIDE_DEFINITION.isdisjoint(part)
        and _BESIDE_DEFINITION.isdisjoint(said)
    )


def _holds_unread_calls(key: str, found: Any) -> bool:
    """Tell whether what may be a list of calls has entries without a name.

    `actions` are often those that a user may choose from: one of them must have a tool's name.
    """
    if not isinstance(found, list | dict) or not found or _named_calls(found):
        return False
    return key != "actions" or (
        isinstance(found, list) and any(_named_calls([entry]) for entry in found)
    )


def looks_like_a_call(part: Mapping[str, Any]) -> bool:
    """Tell whether an object reports a tool call, or the result of one."""
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
    """Tell whether an event's type says that it is about a tool."""
    return any(names_a_tool(event.get(key)) for key in ("type", "kind", "event"))


def names_a_tool(kind: Any) -> bool:
    """Tell whether the name of a kind of events speaks of tools."""
    return isinstance(kind, str) and ("tool" in kind.lower() or "function" in kind.lower())


def parts_text(value: Mapping[str, Any]) -> str | None:
    """Return the text of an answer made of parts, None if it is not."""
    for key in _PARTS:
        parts = value.get(key)
        if isinstance(parts, list) and parts and all(map(_is_part, parts)):
            said = [
                piece
                for part in parts
                for piece in (objects(part.get("content")) if part["type"] == "message" else [part])
            ]
            texts = [it for it in said if it.get("type") in ("text", "output_text")]
            refusals = [it for it in said if it.get("type") == "refusal"]
            return content_text(texts) or content_text(refusals)
    return None


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _listed(part: Any, place: str) -> Iterator[list[ToolUse]]:
    """Return the calls of an object, list by list."""
    if not isinstance(part, dict) or part.keys().isdisjoint(_PLACES):
        return
    for key in _LISTS:
        yield listed_calls(part.get(key), place + key)
    for key in _SINGLES:
        yield listed_calls([part[key]] if part.get(key) else None, place + key)
    for key in _USED:
        yield listed_calls(_used(part.get(key)), place + key)
    for key in (*_MAYBE, *_PAIRS):
        yield _named_calls(part.get(key)) or []
    for key in _PARTS:
        parts = part.get(key)
        yield _of_parts(parts) if isinstance(parts, list) else []


def _used(found: Any) -> Any:
    """Return the calls of a list of tools, None if there is no list: a number names no tool."""
    if isinstance(found, list) and all(isinstance(name, str) and name for name in found):
        return [{"name": name} for name in found]
    return found if isinstance(found, list | dict) else None


def _named_calls(found: Any) -> list[ToolUse] | None:
    """Return the calls of a list of calls, or of pairs of a call and its result.

    None if it is something else: each of its entries must have a name.
    """
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
    """Tell whether a part is a tool call, rather than the result of one or its approval."""
    if not _is_part(part) or any(word in part["type"] for word in _BESIDE_CALL):
        return False
    return is_of_tool(part) or part["type"].endswith("_call")


def _results(holder: Any) -> dict[str, Any]:
    """Return the tool results among the parts of an object, by the ids of their calls."""
    results = {}
    for key in _PARTS if isinstance(holder, dict) else ():
        for part in objects(holder.get(key)):
            if _is_part(part) and not _is_call(part) and (call_id := _id_of_call(part)):
                result = part.get("output", part.get("content"))
                results[call_id] = failed_tool(result) if part.get("is_error") is True else result
    return results


def _id_of_call(part: Mapping[str, Any]) -> str | None:
    return first_text(*map(part.get, _IDS_OF_CALLS))


def _of_parts(parts: Sequence[Any]) -> list[ToolUse]:
    """Return the calls among some parts."""
    uses = []
    for part in filter(_is_call, parts):
        use, kind = read_tool_use(part), str(part["type"])
        call_id = first_text(part.get("call_id"), part.get("id")) or use.call.id
        call = replace(use.call, id=call_id)
        if call.name == UNNAMED and kind.endswith("_call") and kind not in _CALLS_WITH_NAMES:
            # A tool of the provider is named by the type alone.
            call = replace(call, name=kind.removesuffix("_call"))
        uses.append(replace(use, call=call))
    return uses


def has_place_for_calls(value: Any, path: str | None) -> bool:
    """Tell whether the form of a reply shows that it would list tool calls if there were any.

    It does if the user says where they are (`path`), or if one of the usual lists is there, even
    empty. The message of a model alone does not: the last one of an agent's loop never holds the
    calls of the messages before it.
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
    """Tell whether one of the usual lists is there, and is empty or can be read.

    Null is not a list: a message with all fields written out has null where nothing is known.
    """
    return (
        any(part.get(key) is not None for key in _LISTS)
        or any(_reads(_used, part.get(key)) for key in _USED)
        or any(_reads(_named_calls, part.get(key)) for key in _PAIRS)
    )


def _reads(read: Callable[[Any], Any], found: Any) -> bool:
    return found is not None and (not found or read(found) is not None)


def may_list_calls(steps: Any) -> bool:
    """Tell whether steps are those of tools, as far as there are any: an agent may tell texts."""
    return steps == [] or _may_be_calls(steps)


def together(*lists: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the calls of several lists, each of them once, in the reported order."""
    known = list[ToolUse]()
    for uses in filter(None, lists):
        known = uses_together(known, uses)
    return known


def listed_calls(found: Any, place: str) -> list[ToolUse]:
    """Return a list of reported calls.

    Raises:
        UnreadableReply: what is there is not one.
    """
    if found is ABSENT or found is None:
        return []
    if isinstance(found, list) and all(isinstance(entry, dict) for entry in found):
        return [read_tool_use(entry) for entry in found]
    raise UnreadableCalls(f"its tool calls, `{place}`, are not a list of objects")


def _may_be_calls(steps: Any) -> bool:
    is_list = isinstance(steps, list) and any(isinstance(entry, dict) for entry in steps)
    return is_list or isinstance(steps, dict)


def failed_tool(error: Any, result: Any = None) -> dict[str, Any]:
    """Return the tool result that failed, with what it gave all the same."""
    failure = {"error": error or "the agent reported that the tool failed"}
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
    found = list[str]()
    for index, use in enumerate(uses):
        if use.call.name == UNNAMED:
            found.append(f"tool call {index} has no name; it is recorded as {UNNAMED!r}")
        if use.call.malformed is not None:
            called = f"tool call {index}, {shown(use.call.name)}"
            found.append(f"the arguments of {called}, are not a JSON object")
    return first_warnings(found, _MAX_WARNINGS)


def read_tool_use(entry: Mapping[str, Any]) -> ToolUse:
    """Read one reported call; its id is empty if it has none."""
    function = entry.get("function")
    nested = function if isinstance(function, dict) else {}
    name = first_text(nested.get("name"), function, *map(entry.get, _NAMES))
    arguments = _first(nested, _ARGUMENTS)
    if arguments is ABSENT:
        arguments = _first(entry, _ARGUMENTS)
    known = first_text(*map(entry.get, _IDS)) or ""
    call = ToolCall.told(known, name or UNNAMED, None if arguments is ABSENT else arguments)
    return ToolUse(call, tool_answer(entry), AGENT_RULE)


def _first(entry: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((entry[key] for key in keys if key in entry), ABSENT)
