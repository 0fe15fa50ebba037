"""Finds tool calls that the server of a model left in the text of an answer.

A model writes a call in the form of its chat template, and its server has to parse it. A server
without the right parser passes the call on as text. In such forms, the name of the tool follows a
mark that ordinary text does not have, or the whole text is JSON with the name and arguments:
https://docs.vllm.ai/en/latest/features/tool_calling.html lists most of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_MARKS = (
    r"<\|?(?:[\w-]+:)?(?:tool|function)_calls?\|?>",  # Hermes, Qwen, GLM, Granite, MiniMax
    r"<function=|<(?:[\w-]+:|\uff5cDSML\uff5c)?invoke name=",  # Llama, Qwen Coder, DeepSeek
    r"<\|python_tag\|>",  # Llama
    r"\[TOOL_CALLS\]",  # Mistral
    r"<[|\uff5c]tool[_▁]calls?[_▁](?:section[_▁])?begin[|\uff5c]>",  # DeepSeek, Kimi
    r"(?<![\w&?])to=functions\.",  # gpt-oss
    r"<\|START_ACTION\|>|<\|action_start\|>|<start_function_call>",  # Command R, InternLM, Gemma
    r"\bfunctools\[|```tool_code\b|<tools>(?=\s*[\[{])",  # Phi, Gemma, Qwen Coder
)
MARK = re.compile("|".join(_MARKS))
"""Begins a call in the form of a chat template."""

_TO_JSON = r"\s*(?:```\w*\s*)?(?=[\[{])"
_BEFORE_JSON = re.compile(_TO_JSON)
MAY_BE_CALL = re.compile(rf"{MARK.pattern}|(?:\A|</think>){_TO_JSON}")
"""Is in every text for which `tool_called_in` may return a tool."""

_NAMES = ("name", "function", "tool", "tool_name")
_ARGUMENTS = frozenset({"arguments", "parameters"})
_DECODER = json.JSONDecoder()

SET_UP_THE_SERVER = (
    "Start the model's server with its parser for tool calls: --tool-call-parser NAME (SGLang;"
    " vLLM, with --enable-auto-tool-choice), --jinja (llama.cpp)"
)
MARK_WARNING = (
    "The text of the answer has {}: the server of the agent's model may have left a tool call in"
    f" it. {SET_UP_THE_SERVER}. If the text is intended, add `reportsTools: true` (`reports_tools`"
    " in scenarios, TOML and EvalView)."
)
"""The warning about an agent's answer with a mark, which replaces `{}`."""


def tool_called_in(text: str, tools: Iterable[str]) -> str | None:
    """Return the first of the tools that a text calls, None if it calls none of them."""
    answer = text.rpartition("</think>")[2]
    if mark := MARK.search(answer):
        after = answer[mark.start() :]
        called = (it for it in tools if re.search(rf"(?<![\w-]){re.escape(it)}(?![\w-])", after))
    else:
        before = _BEFORE_JSON.match(answer)
        names = set() if before is None else _called_by(answer, before.end())
        called = (it for it in tools if it in names)
    return next(called, None)


def _called_by(text: str, start: int) -> set[str]:
    """Return the tools that the JSON at a place of a text calls, or the Python of Llama."""
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        python = re.compile(r"\[\s*([\w-]+)\(").match(text, start)
        return set() if python is None else {python[1]}
    names = set[str]()
    for entry in value if isinstance(value, list) else [value]:
        inner = entry.get("function", entry) if isinstance(entry, dict) else entry
        call = inner if isinstance(inner, dict) else entry
        # With a description, it defines a tool: the answer to "Which tools do you have?".
        is_call = isinstance(call, dict) and "description" not in call
        if is_call and not _ARGUMENTS.isdisjoint(call):
            names.update(name for key in _NAMES if isinstance(name := call.get(key), str))
    return names
