"""What the objects of OpenAI's Assistants API (v2) say, as they came: JSON objects.

Names are those of https://platform.openai.com/docs/api-reference/runs. Nothing is taken for
granted: a server that speaks the API may leave out what OpenAI's own always sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindlm.agents.json_values import lookup
from kindlm.agents.reply_reading import UnreadableReply
from kindlm.agents.tool_entries import AGENT_RULE
from kindlm.transcript import UNNAMED, ToolCall, ToolUse

__all__ = [
    "answer_text",
    "asked_calls",
    "has_own_tools",
    "in_order",
    "own_calls",
    "tool_uses",
    "why_ended",
]

_FUNCTION = "function"

Json = Mapping[str, Any]


def asked_calls(run: Json) -> list[ToolCall]:
    """Return the functions that a run wants to have called; raise `UnreadableReply` for none."""
    found = lookup(run, "required_action.submit_tool_outputs.tool_calls")
    asked = [call for call in _objects(found) if isinstance(call.get("id"), str)]
    if not asked:
        raise UnreadableReply("its run requires an action that is no call of a function")
    return [_function_call(call) for call in asked]


def has_own_tools(run: Json) -> bool:
    """Tell whether a run may use tools that OpenAI runs, such as the code interpreter."""
    tools = run.get("tools")
    if not isinstance(tools, list):
        return True
    return any(tool.get("type") != _FUNCTION for tool in _objects(tools))


def in_order(steps: Sequence[Json]) -> list[Json]:
    """Return steps in the order of time, whichever way they were listed."""
    if len(steps) > 1 and _created(steps[0]) > _created(steps[-1]):
        steps = steps[::-1]  # so that steps of the same second stay in order, too
    return sorted(steps, key=_created)


def own_calls(steps: Sequence[Json]) -> int:
    """Return how many calls of tools that OpenAI runs there are among steps."""
    return sum(call.get("type") != _FUNCTION for step in steps for call in _calls(step))


def tool_uses(steps: Sequence[Json], simulated: Mapping[str, ToolUse]) -> tuple[ToolUse, ...]:
    """Return the tool calls of ordered steps; what was `simulated` is found by the call's id."""
    return tuple(
        _tool_use(step, call, simulated, f"{step.get('id', 'step')}-{index}")
        for step in steps
        for index, call in enumerate(_calls(step))
    )


def answer_text(messages: Sequence[Json], run_id: str) -> str:
    """Return the text of the newest message of a run; `messages` are listed newest first."""
    for message in messages:
        if message.get("role") == "assistant" and message.get("run_id") in (None, run_id):
            return "".join(_texts(message))
    return ""


def why_ended(run: Json) -> str:
    """Return what a run says of why it did not complete."""
    for path in ("last_error.message", "last_error.code", "incomplete_details.reason"):
        found = lookup(run, path)
        if isinstance(found, str) and found:
            return found
    return "no explanation"


def _tool_use(step: Json, call: Json, simulated: Mapping[str, ToolUse], place: str) -> ToolUse:
    call_id = call.get("id")
    known = call_id if isinstance(call_id, str) and call_id else place
    if known in simulated:
        return simulated[known]
    kind = call.get("type")
    name = kind if isinstance(kind, str) and kind else UNNAMED
    detail = call.get(name)
    said = detail if isinstance(detail, dict) else {}
    match name:
        case "function":
            made, response = _function_call({**call, "id": known}), said.get("output")
        case "code_interpreter":
            made = ToolCall.told(known, name, {"input": said.get("input")})
            response = _printed(said.get("outputs"))
        case "file_search" | "retrieval":
            options = said.get("ranking_options")
            made = ToolCall.told(known, name, {"ranking_options": options} if options else {})
            response = said.get("results")
        case _:
            made, response = ToolCall.told(known, name, {}), detail
    failure = lookup(step, "last_error.message")
    if response is None and isinstance(failure, str):
        response = {"error": failure}
    return ToolUse(made, response, AGENT_RULE)


def _function_call(call: Json) -> ToolCall:
    function = call.get("function")
    said = function if isinstance(function, dict) else {}
    name = said.get("name")
    known = name if isinstance(name, str) and name else UNNAMED
    return ToolCall.told(call["id"], known, said.get("arguments"))


def _printed(outputs: Any) -> Any:
    """Return what code printed, as a text if it is nothing but that."""
    found = _objects(outputs)
    logs = [output.get("logs") for output in found]
    texts = [text for text in logs if isinstance(text, str)]
    return "\n".join(texts) if len(texts) == len(found) else found


def _texts(message: Json) -> Iterator[str]:
    for part in _objects(message.get("content")):
        for path in ("text.value", "refusal"):
            found = lookup(part, path)
            if isinstance(found, str):
                yield found


def _calls(step: Json) -> list[Any]:
    return _objects(lookup(step, "step_details.tool_calls"))


def _created(step: Json) -> float:
    created = step.get("created_at")
    return created if isinstance(created, int | float) else 0


def _objects(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
