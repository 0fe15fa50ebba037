"""Finds possible tool calls in places of an answer where kindlm reads none.

Such a call may be the one that a test forbids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kindlm.agents.reply_parts import WHOLE, UnreadableReply, first_text
from kindlm.agents.tool_entries import (
    ARGUMENTS,
    CALL_IDS,
    CHAT_DELTA,
    NAMES,
    PARTS,
    READ_IN,
    RESPONSES,
    STEPS,
    UNREAD,
    folded,
    is_call,
    is_item,
    is_of_tool,
    is_read,
    names_a_tool,
    read_tool_use,
    reported_calls,
)
from kindlm.dataclass import replace
from kindlm.same_calls import KnownCalls
from kindlm.strict_json import read_json
from kindlm.transcript import ToolUse
from kindlm.wires import objects

_READ_WITH_MESSAGE = frozenset(
    {"content_block", f"{CHAT_DELTA}.tool_calls", f"{CHAT_DELTA}.function_call"}
)
"""The paths of pieces of calls, which are read once the message of a stream is whole."""

_OF_CALLS = re.compile(
    r".*(?:tool|function)calls?(?:list|made)?|(?:.*tool|function)(?:invocation|execution)s?"
    r"|(?:tool|function)(?:use|request|response|result|output)s?"
    r"|(?:tool|function)s?(?:used|called|invoked|executed)|tool(?:history|trace|log|event)s?"
    r"|(?:used|called|invoked|executed)(?:tool|function)s?"
    r"|intermediatesteps"  # LangChain
    # Agents of Bedrock
    r"|(?:actiongroup|agentcollaborator|api|codeinterpreter|function)invocation(?:in|out)put"
    r"|knowledgebaselookup(?:in|out)put"
)
"""Keys that mean tool calls in any place, as `folded` returns them."""

_CALLED_WITH = frozenset({"arguments", "args", "toolargs", "toolinput", "actioninput"})
"""Keys of arguments; the definition of a tool has `parameters` instead."""

_NAMES_OF_TOOLS = frozenset(
    {
        *("tool", "toolname", "toolused", "tool.name", "genai.tool.name"),
        *("selectedtool", "taskdialogid"),  # Flowise, Copilot Studio
    }
)
"""Keys of the names of tools, also in attributes of spans."""

_FOLDED_NAMES = frozenset(map(folded, NAMES))
_OF_CALL_IDS = frozenset(map(folded, CALL_IDS))

_HAPPENED = (
    r"tool[-_.]?(?:use|start|end)"
    r"|(?:tool|function)[-_.]?(?:call|invocation|execution|result|return|response)"
)
_SIGNS = (
    r"[^=]*(?:run|span|node|message)\.?(?:type|kind)=(?i:tool)|kind=(?i:tool)",
    r"role=(?i:tool|function)|type=.*(?i:result).*",
    rf"(?:(?!doc|page|topic)[^=]+type|[^=]*kind|event|role)=.*(?i:{_HAPPENED})(?i:e?d|s)?(?![a-z]).*",
    r"method=tools/call|key=(?:gen_ai\.)?tool\.name",  # MCP, OpenTelemetry
    r"(?:role|recipient)=functions\.[\w-]+",  # gpt-oss
)
_SAYS_SO = re.compile("|".join(_SIGNS))
"""A key and its text, which mentions a tool or a function, that report a tool call.

The type of a document or page says what it is about.
"""

_NEXT = "Observation|Thought|Action|Final Answer"
_REACT = re.compile(
    r"^[ \t]*Action:[ \t]*(?!(?i:none|n/a|the)\b)([^\s\[({<][^\n\[({<]*)\n"
    rf"\s*Action Input:[ \t]*(.*(?:\n(?![ \t]*(?:{_NEXT}):).*)*)",
    re.MULTILINE,
)
"""A tool call in the text of an agent whose model has no tools in its API: name and arguments.

The format in a prompt, such as `Action: the action to take, one of [refund]`, is none.
"""

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")
"""Keys of the JSON Schema in the definition of a tool."""

_BESIDE_DEFINITION = _OF_CALL_IDS | _CALLED_WITH | _NAMES_OF_TOOLS | {*RESPONSES}
"""Keys that no definition of a tool has."""

_OF_ANY_FORM = frozenset({*ARGUMENTS, *RESPONSES, "content", "artifact"})
"""Keys of the arguments and results of calls, which may contain anything."""

_NONE_KNOWN = KnownCalls(())


def calls_anywhere(value: Any) -> str | None:
    """Return the path of a possible tool call in an answer; None if nothing looks like one.

    A text may be the JSON of an answer.
    """
    value = read_json(value)
    try:
        usual = reported_calls(value, None)
    except UnreadableReply:
        return WHOLE
    return WHOLE if usual else hidden_calls(value)


def hidden_calls(value: Any, known: KnownCalls = _NONE_KNOWN) -> str | None:
    """Return the path of a possible tool call that `reported_calls` does not read.

    Its key means tool calls, or it looks like a call or a tool result. A part that repeats one of
    the `known` calls is not hidden.
    """
    waiting = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(part)]
        written = _REACT.findall(part) if isinstance(part, str) and path else ()
        calls = ({"name": name.strip(), "tool_input": text.strip()} for name, text in written)
        if not all(_is_known(call, known) for call in calls):
            return path
        if not isinstance(part, dict):
            continue
        if looks_like_a_call(part) and not _is_definition(part):
            if not _is_known(part, known):
                return path or "."
            part = _beside_call(part)
        for key, item in part.items():
            place = f"{path}.{key}".lstrip(".")
            if place in _READ_WITH_MESSAGE or is_read(path, key, item):
                continue
            is_of_calls = _means_calls(key)
            if is_of_calls or key == STEPS:
                item = read_json(item)  # noqa: PLW2901 - as databases give JSON
            is_listed = is_of_calls or (key == STEPS and _are_calls(item))
            if is_listed and item and isinstance(item, list | dict):
                if not all(_is_known(entry, known) for entry in _entries(item)):
                    return place
                item = list(map(_beside_call, _entries(item)))  # noqa: PLW2901 - read as well
            if path in READ_IN and key in PARTS and isinstance(item, list):
                items = ((at, each) for at, each in enumerate(item) if not is_item(each))
                waiting += [(f"{place}[{at}]", each) for at, each in items]
            else:
                waiting.append((place, item))
    return None


def calls_of_event(event: Mapping[str, Any], name: str = "") -> list[ToolUse]:
    """Return the calls in an event of a stream, and `UNREAD` if it may contain another one.

    An event without calls whose `name` or type mentions tools counts as a call.
    """
    calls = reported_calls(event, None)
    place = hidden_calls(event)
    names_one = place == "." or names_a_tool(name) or is_of_tool(event)
    # An event with calls may itself look like a call.
    if place not in (None, ".") or (names_one and not calls):
        calls = [*calls, UNREAD]
    return calls


def is_unknown_call(event: Mapping[str, Any]) -> bool:
    """Return whether an event that is not read may be a call: by its type, or without one."""
    has_type = first_text(event.get("type")) is not None
    return is_of_tool(event) or (not has_type and calls_of_event(event) != [])


def _entries(listed: list[Any] | dict[str, Any]) -> list[Any]:
    """Return the entries of a list of calls; of a pair with a result, only the call."""
    entries = listed if isinstance(listed, list) else [listed]
    return [entry[0] if isinstance(entry, list) and entry else entry for entry in entries]


def _beside_call(part: Any) -> Any:
    """Return a call without its arguments and result."""
    if not isinstance(part, dict):
        return part
    return {key: item for key, item in part.items() if key not in _OF_ANY_FORM}


def _are_calls(steps: Any) -> bool:
    """Return whether one of the steps has the name of a tool and arguments."""
    entries = objects(steps if isinstance(steps, list) else [steps])
    named = (entry for entry in entries if first_text(*map(entry.get, NAMES)) is not None)
    return any(not entry.keys().isdisjoint(ARGUMENTS) for entry in named)


def _is_known(part: Any, known: KnownCalls) -> bool:
    """Return whether a part, a call or the name of its tool, reports a known call."""
    if isinstance(part, str):
        part = {"name": part}
    if not isinstance(part, dict):
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
    has_schema = any(it.get("type") == "object" and "properties" in it for it in schemas)
    return has_schema and _BESIDE_DEFINITION.isdisjoint({*_by_key(part), *_by_key(definition)})


def looks_like_a_call(part: Mapping[str, Any]) -> bool:
    """Return whether an object reports a tool call or a tool result."""
    found = _by_key(part)
    return (
        is_call(part)
        or any(
            names_a_tool(it) and _SAYS_SO.fullmatch(f"{key}={it[:99]}") for key, it in found.items()
        )
        or not _OF_CALL_IDS.isdisjoint(found)
        or first_text(*map(found.get, _NAMES_OF_TOOLS)) is not None
        or ("observation" in found and first_text(found.get("action")) is not None)  # ReAct
        or (
            not _CALLED_WITH.isdisjoint(found)
            and first_text(*map(found.get, _FOLDED_NAMES)) is not None
        )
    )


def _by_key(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in the same form for all spellings and numbers.

    Trajectories of DSPy have keys such as `tool_name_0`.
    """
    found = dict[str, Any]()
    for key, value in part.items():
        plain = folded(key.rstrip("0123456789"))
        found[plain] = found.get(plain) or value
    return found


@lru_cache(maxsize=1000)
def _means_calls(key: str) -> bool:
    return _OF_CALLS.fullmatch(folded(key)) is not None
