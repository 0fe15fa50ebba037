"""Reads tool calls from agents' answers, under all usual keys.

The section "http" of docs/reference/agent-answers.md lists the keys, and what must be readable.
Arguments are an object or its JSON text. A result counts if its key is present, so 0, "" and false
are results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kindlm.agents.reply_parts import ABSENT, AGENT_RULE, first_text, lookup
from kindlm.dataclass import replace
from kindlm.errors import DOCS
from kindlm.matching import path_parts, value_at
from kindlm.same_calls import merged_uses
from kindlm.strict_json import read_json
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wires import UnreadableReply, content_text, object_or_empty, objects
from kindlm.wording import shown

NAMES = ("tool", "tool_name", "toolName", "name", "action", "function_name", "functionName")
ARGUMENTS = (
    *("arguments", "args", "parameters", "params", "input"),
    *("tool_input", "toolInput", "action_input", "inputs", "tool_args", "toolArgs", "tool_kwargs"),
)
RESPONSES = ("result", "output", "response", "observation", "tool_output", "toolOutput")
_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id")
STEPS = "steps"
_LISTS = frozenset({"toolcalls", "functioncalls", "toolinvocations", "tooluses"})
"""Keys of lists of tool calls, as `folded` returns them, like those below."""

_SINGLES = frozenset({"functioncall", "toolcall"})
"""Keys of a single call, as OpenAI's API had it before it had lists."""

_USED = frozenset(
    {
        *("toolsused", "usedtools", "toolscalled", "calledtools"),
        *("toolsinvoked", "invokedtools", "functionscalled", "calledfunctions"),
    }
)
"""Keys of lists of tools, whose entries are names or calls."""

_PAIRS = "intermediatesteps"
"""The key of LangChain's lists of pairs of an action and its result."""

_MAYBE = frozenset({"actions", "invocations", "calls", "toolresults"})
"""Keys of lists that may contain tool calls."""

_CHOICES = "actions"
"""One of these keys, often of choices for a user: none is a call unless one has a tool's name."""

_CALL_KEYS = _LISTS | _SINGLES | _USED | _MAYBE | {_PAIRS}
_SHOW_CALLS = _LISTS | _USED | {_PAIRS}
"""Keys of lists that an agent has even if they are empty."""

_HOLDERS = ("message", "data", "metadata", "meta", "trace")
"""Objects of a reply that may have such keys, like the reply itself."""

_CHAT_MESSAGE = "choices[0].message"
"""A message of OpenAI's chat completions."""

CHAT_DELTA = "choices[0].delta"
"""A piece of such a message in a stream."""

READ_IN = frozenset({"", *_HOLDERS, _CHAT_MESSAGE})
"""The paths of the objects in which kindlm reads calls."""

PARTS = ("content", "output")
"""Keys of the parts of an answer in Anthropic's messages and OpenAI's responses."""

_BESIDE_CALL = ("result", "output", "approval", "list_tools", "tool-error")
"""Words in the types of parts that are about tools but are not calls."""

_CALLS_WITH_NAMES = frozenset({"function_call", "tool_call", "custom_tool_call", "mcp_call"})
"""Types of parts that do not imply which tool is called."""

CALL_IDS = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "toolUseId"})
_IDS_OF_CALLS = (*sorted(CALL_IDS), "call_id")
"""Keys under which a result has the id of its call."""

_A_LIST = (
    'Send a list of objects, such as `[{"name": "lookup_order", "arguments": {}}]`, or say in'
    " kindlm.yaml where it is: `toolCallsPath: data.calls` (`tool_calls_path` in kindlm.toml; see"
    f" {DOCS}/how-to/agents/#http)"
)

UNREAD = ToolUse(ToolCall("unread", UNNAMED, {}), None, AGENT_RULE)
"""Stands for a tool call that kindlm cannot read: it may be the call that a test forbids."""

_NO_NAME = re.compile(r'[{="\n]')
"""A text with one of these is a whole call, such as `refund(id=7)`, or an object as text."""

_TOOL = re.compile(r"tool(?!tip|bar)|function", re.IGNORECASE)
"""A word of the type of a call; toolbars and tooltips are parts of pages."""

_MAX_WARNINGS = 3
"""The most warnings of this kind; those about the first calls show what is wrong."""


@lru_cache(maxsize=1000)
def folded(key: str) -> str:
    """Return a key in a form that is the same for all spellings: `toolCalls`, `tool_calls`."""
    return key.replace("_", "").replace("-", "").lower()


def is_call_key(key: str) -> bool:
    """Return whether a reply may have tool calls under a key."""
    return key == STEPS or folded(key) in _CALL_KEYS


def reported_calls(value: Any, path: str | None) -> list[ToolUse]:
    """Return the tool calls of a reply: at the `path`, else at all usual places.

    A call without an id has an empty one. A reply without tool calls may leave out the list. Raises
    `UnreadableReply` if they cannot be read: one may be the call that a test forbids.
    """
    if path is not None:
        # The text of a list, for example, may contain calls.
        if not isinstance(value_at(value, path_parts(path)[:-1]), dict | list | None):
            raise UnreadableReply(f"it has no tool calls at the configured path: `{path}`", _A_LIST)
        return listed_calls(lookup(value, path), path)
    uses, results = calls_and_results(value)
    # A result without a call shows that there was one.
    unseen = (ToolCall(call_id, UNNAMED, {}) for call_id in results)
    return [*uses, *(ToolUse(call, results[call.id], AGENT_RULE) for call in unseen)]


def calls_and_results(value: Any) -> tuple[list[ToolUse], dict[str, Any]]:
    """Return the calls at all usual places, and the results of other calls by their ids."""
    if not isinstance(value, dict):
        return [], {}
    steps = value.get(STEPS)
    lists = [_calls_of_steps(steps)] if _may_be_calls(steps) else []
    results = dict[str, Any]()
    for step in filter(has_parts, objects(steps)):
        results |= _results_of_parts(step)
    for place, holder in _holders(value):
        lists += _listed(holder, f"{place}.".lstrip("."))
        results |= _results_of_parts(holder)
    uses = [
        replace(use, response=results.get(use.call.id)) if use.response is None else use
        for use in together(*lists)
    ]
    known = {use.call.id for use in uses}
    others = {call_id: result for call_id, result in results.items() if call_id not in known}
    return uses, others


def _holders(value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects in which kindlm reads calls, each with its path."""
    yield "", value
    for key in _HOLDERS:
        if isinstance(value.get(key), dict):
            yield key, value[key]
    if "choices" in value and isinstance(message := lookup(value, _CHAT_MESSAGE), dict):
        yield _CHAT_MESSAGE, message


def is_read(path: str, key: str, found: Any) -> bool:
    """Return whether `reported_calls` reads the value of a key in an object at a path."""
    if path not in READ_IN:
        return False
    if key == STEPS:
        return not path and _may_be_calls(found)
    kind = folded(key)
    return kind in _CALL_KEYS and (kind != _CHOICES or bool(_calls_among(kind, found)))


def is_of_tool(event: Mapping[str, Any]) -> bool:
    """Return whether the type of an event mentions tools."""
    return any(names_a_tool(event.get(key)) for key in ("type", "kind", "event"))


def names_a_tool(kind: Any) -> bool:
    """Return whether the name of an event mentions tools."""
    return isinstance(kind, str) and _TOOL.search(kind) is not None


def parts_text(value: Mapping[str, Any]) -> str | None:
    """Return the text of an answer that consists of parts, None for another answer."""
    for key in PARTS:
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


def _listed(holder: Mapping[str, Any], place: str) -> Iterator[list[ToolUse]]:
    """Yield the calls of an object, list by list."""
    for key, found in holder.items():
        kind = folded(key)
        if kind in _SINGLES:
            yield listed_calls([found] if found else None, place + key)
        elif kind in _LISTS:
            yield listed_calls(found, place + key)
        elif kind in _USED and isinstance(found, list | dict):  # not such as a number of tools
            names = found if isinstance(found, list) and all(map(first_text, found)) else None
            calls = found if names is None else [{"name": name} for name in names]
            yield listed_calls(calls, place + key)
        elif kind in _MAYBE or kind == _PAIRS:
            yield _calls_among(kind, found)
        elif key in PARTS and isinstance(found, list):
            yield [read_tool_use(part) for part in found if is_call(part)]


def _calls_among(kind: str, found: Any) -> list[ToolUse]:
    """Return the calls, or pairs of a call and its result, in a list; `UNREAD` without a name."""
    if not found or not isinstance(found, list | dict):
        return []
    uses = list[ToolUse]()
    for entry in found if isinstance(found, list) else [found]:
        is_pair = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], dict)
        call = {**entry[0], "result": entry[1]} if is_pair else entry
        use = read_tool_use(call) if isinstance(call, dict) else UNREAD
        uses.append(UNREAD if use.call.name == UNNAMED else use)
    if kind == _CHOICES and all(use is UNREAD for use in uses):
        return []
    return uses


def _calls_of_steps(steps: Any) -> list[ToolUse]:
    """Return the calls that steps are, or that they hold in parts."""
    uses = list[ToolUse]()
    for index, call in enumerate(listed_calls(steps, STEPS)):
        step = steps[index]
        place = f"{STEPS}[{index}]."
        uses += together(*_listed(step, place)) if has_parts(step) else [call]
    return uses


def has_parts(step: Mapping[str, Any]) -> bool:
    """Return whether a step is the answer of a model in parts, as in the AI SDK, and no call."""
    parts = step.get("content")
    are_parts = isinstance(parts, list) and bool(parts) and all(map(_is_part, parts))
    return are_parts and not is_of_tool(step) and read_tool_use(step).call.name == UNNAMED


def is_call(part: Any) -> bool:
    """Return whether a part is a tool call, and not a tool result or an approval."""
    if not _is_part(part) or any(word in part["type"] for word in _BESIDE_CALL):
        return False
    return is_of_tool(part) or part["type"].endswith("_call")


def _results_of_parts(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool results among the parts of an object, by call id."""
    results = {}
    for part in (part for key in PARTS for part in objects(holder.get(key))):
        if is_item(part) and not is_call(part):
            result = part.get("output", part.get("content"))
            failed = part.get("is_error") is True or part["type"] == "tool-error"
            reason = result if result is not None else part.get("error")
            results[_id_of_call(part) or ""] = failed_tool(reason) if failed else result
    return results


def is_item(value: Any) -> bool:
    """Return whether a value is a tool call or a tool result, and no message with parts."""
    return is_call(value) or (_is_part(value) and _id_of_call(value) is not None)


def _id_of_call(part: Mapping[str, Any]) -> str | None:
    return first_text(*map(part.get, _IDS_OF_CALLS))


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
    if may_list_calls(value.get(STEPS)):
        return True
    holders = [holder for _, holder in _holders(value)]
    if "choices" in value and isinstance(delta := lookup(value, CHAT_DELTA), dict):
        holders.append(delta)
    # Some libraries write null for each field without a value.
    lists = (key for it in holders for key, found in it.items() if isinstance(found, list | dict))
    return any(folded(key) in _SHOW_CALLS for key in lists)


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
    raise UnreadableReply(f"its tool calls, `{place}`, are not a list of objects", _A_LIST)


def _may_be_calls(steps: Any) -> bool:
    is_list = isinstance(steps, list) and any(isinstance(entry, dict) for entry in steps)
    return is_list or isinstance(steps, dict)


def failed_tool(error: Any, result: Any = None) -> dict[str, Any]:
    """Return the result of a tool that failed, and what it returned in spite of that."""
    failure = {"error": error or "the agent reported that the tool failed"}
    return failure if result is None else {**failure, "result": result}


def tool_result(entry: Mapping[str, Any], keys: Iterable[str] = RESPONSES) -> Any:
    """Return the result under the first of the keys; an `error` or no success means a failure."""
    result, error = _first(entry, keys), entry.get("error")
    result = None if result is ABSENT else result
    # The last two are those of Anthropic's API and of MCP.
    says_so = (entry.get("success") is False, entry.get("is_error"), entry.get("isError"))
    return failed_tool(error, result) if error or True in says_so else result


def call_warnings(uses: Sequence[ToolUse]) -> tuple[str, ...]:
    """Return the first warnings about calls without a name or without readable arguments."""
    found = list[str]()
    for index, use in enumerate(uses):
        if use.call.name == UNNAMED:
            found.append(f"tool call {index} has no name; it is recorded as {UNNAMED!r}")
        if use.call.malformed is not None:
            called = f"tool call {index}, {shown(use.call.name)}"
            found.append(f"the arguments of {called}, are not a JSON object")
    return tuple(found[:_MAX_WARNINGS])


def tool_name(*values: Any) -> str | None:
    """Return the first text, None if there is none or it is not a name."""
    text = first_text(*values)
    return None if text is None or _NO_NAME.search(text) else text


def read_tool_use(entry: Mapping[str, Any]) -> ToolUse:
    """Read one reported call and its result; a call without an id has an empty one."""
    for held in objects([entry.get("action"), entry.get("payload")]):  # LangChain, Mastra
        if first_text(held.get("tool"), held.get("toolName")) is not None:
            entry = {**entry, **held}
    function = entry.get("function")
    nested = object_or_empty(read_json(function))
    # In LangChain's actions, another `name` is that of the agent.
    names = ("action", *NAMES) if "action_input" in entry else NAMES
    name = tool_name(nested.get("name"), function, *map(entry.get, names))
    kind = str(entry.get("type"))
    if name is None and kind.endswith("_call") and kind not in _CALLS_WITH_NAMES:
        name = kind.removesuffix("_call")  # the type alone names a tool of the provider
    arguments = _first(nested, ARGUMENTS)
    if arguments is ABSENT:
        arguments = _first(entry, ARGUMENTS)
    call_id = first_text(*map(entry.get, _IDS)) or ""
    call = ToolCall.parse(call_id, name or UNNAMED, None if arguments is ABSENT else arguments)
    return ToolUse(call, tool_result(entry), AGENT_RULE)


def _first(entry: Mapping[str, Any], keys: Iterable[str]) -> Any:
    # Some libraries write null for each field without a value.
    return next((entry[key] for key in keys if entry.get(key) is not None), ABSENT)
