"""Messages requests: what is refused of parameters, the system text and tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.anthropic_refusals import refuse, text_refusals, typed
from kindlm.testing.wire import Refusal, is_integer, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kindlm.testing.script import ModelSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_ONE_SAMPLING_PARAMETER = re.compile(r"claude-(opus-4-[1-9]\b|(sonnet|haiku)-4-[5-9]\b)")
"""Models that take temperature or top_p, not both."""


def parameter_refusals(body: dict[str, Any], model: ModelSpec | None) -> Iterator[Refusal]:
    """Refuses parameters that a model does not take, and values out of their range."""
    if not is_integer(body["max_tokens"]):
        yield refuse("max_tokens: Input should be a valid integer")
    if body["max_tokens"] < 0:
        yield refuse("max_tokens: Input should be greater than or equal to 0")
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is None:
            continue
        if not is_number(value):
            yield refuse(f"{name}: Input should be a valid number")
        if not 0 <= value <= 1:
            yield refuse(f"{name}: range: 0..1")
        if model is not None and model.reasoning and value != 1:
            yield refuse(f"`{name}` is deprecated for this model.")
    both = body.get("temperature") is not None and body.get("top_p") is not None
    if both and _ONE_SAMPLING_PARAMETER.match(body["model"]):
        yield refuse(
            "`temperature` and `top_p` cannot both be specified for this model. "
            "Please use only one."
        )
    yield from _stop_refusals(body.get("stop_sequences"))


def _stop_refusals(stops: Any) -> Iterator[Refusal]:
    if stops is None:
        return
    yield from typed(stops, list, "stop_sequences")
    for position, stop in enumerate(stops):
        yield from typed(stop, str, f"stop_sequences.{position}")
        if not stop.strip():
            yield refuse("stop_sequences: each stop sequence must contain non-whitespace")


def system_refusals(system: Any) -> Iterator[Refusal]:
    """Refuses a system text that is neither a text nor blocks of text."""
    if system is None or isinstance(system, str):
        return
    yield from typed(system, list, "system")
    for position, block in enumerate(system):
        yield from typed(block, dict, f"system.{position}")
        if block.get("type") != "text":
            yield refuse(f"system.{position}.type: Input should be 'text'")
        yield from text_refusals(block, f"system.{position}", "system")


def tool_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    """Refuses tools that are none, and a choice among them that cannot be made."""
    tools = body.get("tools") or []
    yield from typed(tools, list, "tools")
    for position, tool in enumerate(tools):
        yield from _one_tool_refusals(tool, f"tools.{position}.custom")
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield refuse("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is None:
        return
    yield from typed(choice, dict, "tool_choice")
    if not tools:
        yield refuse("tool_choice: Tool choice may only be specified while providing tools.")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        yield refuse("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if choice["type"] == "tool" and choice.get("name") not in names:
        yield refuse(f"Tool '{choice.get('name')}' not found in provided tools")


def _one_tool_refusals(tool: Any, where: str) -> Iterator[Refusal]:
    yield from typed(tool, dict, where)
    for name in ("name", "input_schema"):
        if name not in tool:
            yield refuse(f"{where}.{name}: Field required")
    yield from typed(tool["name"], str, f"{where}.name")
    if not _NAME.match(tool["name"]):
        yield refuse(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    schema = tool["input_schema"]
    yield from typed(schema, dict, f"{where}.input_schema")
    if "type" not in schema:
        yield refuse(f"{where}.input_schema.type: Field required")
    if schema["type"] != "object":
        yield refuse(f"{where}.input_schema.type: Input should be 'object'")
