"""Finds possible tool calls in places of an answer where kindlm reads none.

Such a call may be the one that a test forbids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    has_parts,
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
_SIGNS = [
    (re.compile(key), re.compile(text))
    for key, text in (
        (r".*(?:run|span|node|message)\.?(?:type|kind)|kind", "(?i:tool)"),
        ("role", "(?i:tool|function)"),
        ("type", ".*(?i:result).*"),
        # The type of a document or page says what it is about.
        (
            r"(?!doc|page|topic).+type|.*kind|event|role",
            rf".*(?i:{_HAPPENED})(?i:e?d|s)?(?![a-z]).*",
        ),
        ("method", "tools/call"),  # MCP
        ("key", r"(?:gen_ai\.)?tool\.name"),  # OpenTelemetry
        ("role|recipient", r"functions\.[\w-]+"),  # gpt-oss
    )
]
"""Keys as `folded` returns them, and their texts that report a tool call.

Only texts that mention a tool or a function count.
"""

_NEXT = "Observation|Thought|Action|Final Answer"
_REACT = re.compile(
    r"^[ \t]*Action:[ \t]*(?!(?i:none|n/a|the)\b)([^\s\[({<][^\n\[({<]*)\n"
    rf"\s*Action Input:[ \t]*(.*(?:\n(?![ \t]*(?:{_NEXT}):).*)*)",
    re.MULTILINE,
)
"""A tool call in the text of an agent whose model has no tools in its API: name and arguments.

It does not match the format in a prompt, such as `Action: the action to take, one of [refund]`.
"""

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")
"""Keys of the JSON Schema in the definition of a tool."""

_BESIDE_DEFINITION = _OF_CALL_IDS | _CALLED_WITH | _NAMES_OF_TOOLS | {*RESPONSES}
"""Keys that no definition of a tool has."""

_OF_ANY_FORM = frozenset(
    {*ARGUMENTS, *RESPONSES, "content", "artifact", "log", "message_log", "messageLog"}
)
"""Keys of the arguments, results and messages of calls, which may contain anything."""

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
    the `known` calls is not hidden. The path is "." if only the answer itself looks like a call.
    """
    itself: str | None = None
    waiting = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(part)]
        if path and isinstance(part, str) and not _are_known_in(part, known):
            return path
        if not isinstance(part, dict):
            continue
        if looks_like_a_call(part) and not _is_definition(part):
            is_hidden = not _is_known(part, known)
            if not path:
                itself = "." if is_hidden else None
            elif is_hidden:
                return path
            else:
                part = _beside_call(part)
        for key, item in part.items():
            place = f"{path}.{key}".lstrip(".")
            if place in _READ_WITH_MESSAGE:
                continue
            is_reported = is_read(path, key, item)
            found = item if is_reported else _from_json(key, item)
            if is_reported or _lists_calls(key, found):
                calls = _calls_in(found)
                if not is_reported and not _are_known(calls, known):
                    return place
                waiting.append((place, list(map(_beside_call, calls))))
                if key == STEPS and is_reported:
                    waiting += _beside_parts(place, calls)
            elif path in READ_IN and key in PARTS and isinstance(item, list):
                items = ((at, each) for at, each in enumerate(item) if not is_item(each))
                waiting += [(f"{place}[{at}]", each) for at, each in items]
            else:
                waiting.append((place, found))
    return itself


def calls_of_event(event: Mapping[str, Any], name: str = "") -> list[ToolUse]:
    """Return the calls in an event of a stream, and `UNREAD` if it may contain another one.

    An event without calls whose `name` or type mentions tools counts as a call.
    """
    calls = reported_calls(event, None)
    place = hidden_calls(event, KnownCalls(use.call for use in calls))
    names_one = place == "." or names_a_tool(name) or is_of_tool(event)
    # An event with calls may itself look like a call.
    if place not in (None, ".") or (names_one and not calls):
        calls = [*calls, UNREAD]
    return calls


def is_unknown_call(event: Mapping[str, Any]) -> bool:
    """Return whether an event that is not read may be a call: by its type, or without one."""
    has_type = first_text(event.get("type")) is not None
    return is_of_tool(event) or (not has_type and calls_of_event(event) != [])


def _from_json(key: str, found: Any) -> Any:
    """Return the value of a key; if that means calls, from JSON, as databases give it."""
    return read_json(found) if key == STEPS or _means_calls(key) else found


def _lists_calls(key: str, found: Any) -> bool:
    means_calls = _means_calls(key) or (key == STEPS and _are_calls(found))
    return means_calls and isinstance(found, list | dict) and bool(found)


def _calls_in(listed: Any) -> list[Any]:
    """Return the calls of a list; of a pair with a result, only the call."""
    entries = listed if isinstance(listed, list) else [listed]
    return [entry[0] if isinstance(entry, list) and entry else entry for entry in entries]


def _beside_call(part: Any) -> Any:
    """Return a call without its arguments, result and messages."""
    if not isinstance(part, dict):
        return part
    return {key: item for key, item in part.items() if key not in _OF_ANY_FORM}


def _beside_parts(place: str, steps: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what steps in parts have beside calls and results, each with its path."""
    for at, step in enumerate(steps):
        if isinstance(step, dict) and has_parts(step):
            others = [part for part in step["content"] if not is_item(part)]
            rest = {key: step[key] for key in RESPONSES if key in step}
            yield f"{place}[{at}]", {"content": others, **rest}


def _are_calls(steps: Any) -> bool:
    """Return whether one of the steps has the name of a tool and arguments."""
    entries = objects(steps if isinstance(steps, list) else [steps])
    named = (entry for entry in entries if first_text(*map(entry.get, NAMES)) is not None)
    return any(not entry.keys().isdisjoint(ARGUMENTS) for entry in named)


def _is_known(part: Any, known: KnownCalls) -> bool:
    """Return whether a part, a call or the name of its tool, reports a known call."""
    return _are_known([part], known)


def _are_known(parts: Iterable[Any], known: KnownCalls) -> bool:
    """Return whether all parts report known calls, each call once."""
    calls = []
    for part in parts:
        entry = {"name": part} if isinstance(part, str) else part
        if not isinstance(entry, dict):
            return False
        call = read_tool_use(entry).call
        if call.malformed is not None and not known.has(call):
            # In LangChain, the input of an action may be a text.
            call = replace(call, arguments={"tool_input": call.malformed}, malformed=None)
        calls.append(call)
    return known.has_all(calls)


def _are_known_in(text: str, known: KnownCalls) -> bool:
    """Return whether all calls in the text of an agent are known, such as in one without calls."""
    for name, arguments in _REACT.findall(text):
        # LangChain removes the quotes of a text, too.
        call = {"name": name.strip(), "tool_input": arguments.strip().strip('"')}
        if not _is_known(call, known):
            return False
    return True


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
        or any(names_a_tool(item) and _is_sign(key, item[:99]) for key, item in found.items())
        or not _OF_CALL_IDS.isdisjoint(found)
        or first_text(*map(found.get, _NAMES_OF_TOOLS)) is not None
        or ("observation" in found and first_text(found.get("action")) is not None)  # ReAct
        or (
            not _CALLED_WITH.isdisjoint(found)
            and first_text(*map(found.get, _FOLDED_NAMES)) is not None
        )
    )


def _is_sign(key: str, text: str) -> bool:
    return any(of.fullmatch(key) and words.fullmatch(text) for of, words in _SIGNS)


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
