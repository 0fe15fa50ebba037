"""Reads an agent's JSON answer, under any of the usual keys or at configured paths."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kindlm.agents.hidden_calls import calls_anywhere, hidden_calls
from kindlm.agents.reply_parts import (
    ABSENT,
    MAX_CALLS,
    PATH,
    WHERE_THE_TEXT_IS,
    NoTextKnown,
    UnreadableReply,
    compact_json,
    end_reasons,
    error_text,
    lookup,
    refuse_more,
)
from kindlm.agents.reply_usage import MAX_NAME, MODEL_KEYS, read_numbers, read_spent
from kindlm.agents.tool_entries import (
    UNREAD,
    call_warnings,
    has_place_for_calls,
    is_call_key,
    parts_text,
    reported_calls,
)
from kindlm.dataclass import dataclass, replace
from kindlm.ports import AgentReply
from kindlm.same_calls import KnownCalls, with_ids
from kindlm.section import Maybe, Text
from kindlm.transcript import ToolUse
from kindlm.values import refuse
from kindlm.wires import Spent, chat, content_text
from kindlm.wording import shown


def _path(value: str) -> str:
    if not PATH.fullmatch(value):
        raise refuse("is not a path", "Write it like data.items[0].text")
    return value


JsonPath = Annotated[Text, AfterValidator(_path)]
ResponsePath = Annotated[
    Maybe[JsonPath],
    Field(
        examples=["data.reply.text"],
        description="Path of the text in the answer. By default kindlm looks for the usual names: "
        "message, text, content, response, output, result, answer, or choices[0].message.content. "
        "Without any of them, the answer is an error unless it has tool calls. `$` takes the whole "
        "answer as the text.",
    ),
]
ToolCallsPath = Annotated[
    Maybe[JsonPath],
    Field(
        examples=["data.steps"],
        description="Path of the tool calls in the answer. By default kindlm looks for the usual "
        "names.",
    ),
]


TEXT_KEYS = ("message", "text", "content", "response", "output", "result", "answer", "reply")
"""The keys of a reply's text, in the order of precedence."""

QUERY_TEXT_KEYS = (
    *("response", "output", "result", "answer", "message", "text", "content", "reply"),
)
"""The same for requests of the form `query`."""

_SET_THE_PATH = (
    "report them as `tool_calls`, or set `toolCallsPath` in kindlm.yaml (`tool_calls_path` in"
    " kindlm.toml)"
)
"""EvalView cases have no such key, so the first remedy is one for all files."""
_BESIDE_CALLS = frozenset(
    {
        *("id", "object", "type", "role", "status", "created", "created_at", "timestamp"),
        *("conversation_id", "session_id", "thread_id", "run_id", "message_id", "request_id"),
        *("usage", "tokens", "cost", "latency", "latency_ms", "metadata", "meta", *MODEL_KEYS),
        *("finish_reason", "stop_reason", "error"),
    }
)
"""Keys that are not the text: an answer with tool calls and only these keys has no text."""

ENDS_WITH_CALLS = frozenset({"tool_calls", "tool_use", "function_call"})
"""Finish reasons of an answer that ended for its tool calls."""
_CUT = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"),
        *("content_filter", "refusal", "safety", "incomplete", "pause_turn", "error", "abort"),
    }
)
"""Finish reasons of an answer that was cut off."""

_OF_REQUESTS = frozenset({"instructions", "prompt", "reasoning", "text", "tool_choice", "tools"})
"""Keys of the request that OpenAI's responses repeat."""


_INTERPRETER = "python_interpreter"
"""The tool with which an agent of smolagents runs its program, which calls all other tools."""


class FailedReply(UnreadableReply):
    """The agent reports a failure, in its own words."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the text and the tool calls of a reply are; a path replaces the search for them.

    With `may_lack_text`, tool calls without a text are an answer, whatever other keys there are.
    """

    text_keys: tuple[str, ...] = TEXT_KEYS
    response_path: str | None = None
    tool_calls_path: str | None = None
    may_lack_text: bool = False


def agent_reply(
    text: str,
    calls: Sequence[ToolUse],
    spent: Spent,
    *,
    warnings: Iterable[str] = (),
    reasons: Collection[str] = (),
    hidden: str | None = None,
    hint: str = _SET_THE_PATH,
    **more: Any,
) -> AgentReply:
    """Return a reply, with warnings about its calls added to `warnings`.

    `reasons` are its finish reasons. `hidden` is the place of possible calls that kindlm did not
    read; `hint` says what the user can do about it.

    Raises:
        UnreadableReply: it ended for tool calls but has neither calls nor text, or it has too many
            calls.
    """
    if not (calls or ENDS_WITH_CALLS.isdisjoint(reasons)):
        if not text:
            raise UnreadableReply("its finish reason is a tool call, but it contains none")
        calls = [UNREAD]
    if (cut := next((reason for reason in reasons if reason in _CUT), None)) is not None:
        warnings = (f"The answer was cut off: the agent reported `{cut}`.", *warnings)
    refuse_more(len(calls), MAX_CALLS, "tool calls")
    programs = (use.call.name for use in calls if use.call.malformed is not None)
    if hidden is None and _INTERPRETER in programs:
        hidden = _INTERPRETER
    if hidden is not None:
        note = f"`{hidden}` of the answer may contain tool calls that kindlm did not read: {hint}"
        calls, warnings = [*calls, UNREAD], (note, *warnings)
    uses = with_ids(calls)
    return AgentReply(
        text=text,
        tool_uses=uses,
        usage=spent.usage,
        reported_cost_usd=spent.cost_usd,
        model=spent.model,
        warnings=(*warnings, *call_warnings(uses)),
        **more,
    )


def read_reply(value: Any, reading: Reading) -> AgentReply:
    """Read the reply in a JSON value.

    Raises:
        FailedReply: it reports an error, and has neither a text nor a tool call. Beside an `error`,
            `message` explains the error, unless `response_path` says that it is the answer.
        NoTextKnown: it has no text under a known key, and does not consist of tool calls alone.
        UnreadableReply: nothing is at `response_path`, or the tool calls cannot be read.
    """
    if lookup(value, "object") == "response" and isinstance(lookup(value, "output"), list):
        # The reply repeats its request, including the definitions of tools.
        value = {key: item for key, item in value.items() if key not in _OF_REQUESTS}
    calls = reported_calls(value, reading.tool_calls_path)
    usual, failure = text_of(value, reading), failure_of(value)
    text = usual
    if reading.response_path is None and failure is not None:
        keys = tuple(key for key in reading.text_keys if key != "message")
        text = text_of(value, replace(reading, text_keys=keys))
    if not text and not calls and failure is not None:
        raise FailedReply(failure)
    text = text or usual
    if text is None and reading.response_path is not None:
        raise UnreadableReply(f"it has nothing at `{reading.response_path}`")
    may_lack_text = reading.may_lack_text or _has_calls_alone(value, reading)
    if text is None and not (may_lack_text and any(use != UNREAD for use in calls)):
        raise _no_text(value)
    path, hint = reading.tool_calls_path, _SET_THE_PATH
    if path is None:
        hidden = hidden_calls(value, KnownCalls(use.call for use in calls))
    else:
        hidden = calls_anywhere(value) if lookup(value, path) is ABSENT else None
        hint = f"correct `toolCallsPath: {path}` (`tool_calls_path` in kindlm.toml), or let the"
        hint += " agent send an empty list there"
    steps = lookup(value, path or "steps")
    return agent_reply(
        text or "",
        calls,
        read_spent(value, steps if isinstance(steps, list) else ()),
        reported=read_numbers(value),
        warnings=() if reading.response_path else failure_warnings(value),
        reasons=end_reasons(value),
        hidden=hidden,
        hint=hint,
        reports_tools=has_place_for_calls(value, path) or None,
    )


def text_of(value: Any, reading: Reading) -> str | None:
    """Return the text of a reply, None if there is none."""
    if reading.response_path is not None:
        found = lookup(value, reading.response_path)
        if found is ABSENT:
            return None
        return found or "" if isinstance(found, str | None) else compact_json(found)
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        texts = [value[key] for key in reading.text_keys if isinstance(value.get(key), str)]
        if texts:
            return next(filter(None, texts), "")
        message = lookup(value, "choices[0].message")
        if isinstance(message, dict) and isinstance(message.get("content"), str | list | None):
            return chat.text_of(message)
        if isinstance(content := lookup(value, "message.content"), str | list | None):
            return content_text(content)
        parts = parts_text(value)
        if parts is not None:
            return parts
        if any(key in value and value[key] is None for key in reading.text_keys):
            return ""
    return None


def _no_text(value: Any) -> NoTextKnown:
    """Return the error; its hint names the key if the object has only one text."""
    hint = None
    members = value.items() if isinstance(value, dict) else ()
    texts = [key for key, it in members if isinstance(it, str) and key not in _BESIDE_CALLS]
    if len(texts) == 1 and texts[0].isidentifier() and len(texts[0]) <= MAX_NAME:
        hint = WHERE_THE_TEXT_IS.replace("data.answer", texts[0])
    return NoTextKnown("kindlm found no answer text in it", hint)


def _has_calls_alone(value: Any, reading: Reading) -> bool:
    """Return whether a reply has only keys of tool calls and keys that are not its text."""
    known = _BESIDE_CALLS | {re.split(r"[.\[]", reading.tool_calls_path or "")[0]}
    return isinstance(value, dict) and all(key in known or is_call_key(key) for key in value)


def failure_of(value: Any) -> str | None:
    """Return the failure that the `error` of a reply reports, None if it reports none.

    A number may be the error margin of a result.
    """
    error = lookup(value, "error")
    is_failure = error is True or (isinstance(error, str | dict | list) and bool(error))
    return error_text(value) if is_failure else None


def failure_warnings(value: Any) -> tuple[str, ...]:
    """Return the warning about an answer that also reports a failure."""
    if not isinstance(value, dict):
        return ()
    if (failure := failure_of(value)) is not None:
        return (f"the agent reported an error beside its answer: {shown(failure)}",)
    for key in ("success", "ok"):
        if value.get(key) is False:
            return (f"the agent reported `{key}: false`",)
    for key in ("status", "statusCode", "status_code"):
        status = value.get(key)
        failed = isinstance(status, str) and status.lower() in ("failed", "error", "incomplete")
        # As HTTP has them.
        if failed or (isinstance(status, int) and 400 <= status < 600):
            return (f"the agent reported `{key}: {status}`",)
    return ()
