"""Messages requests: what the API refuses, and what an accepted one means.

The refusals follow the API's own, with the same status, type and wording. They are generators:
the first thing wrong is what the client hears, and later checks may rely on earlier ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.conversation import Conversation, TurnsBuilder, fingerprint_of
from kindlm.testing.wire import Refusal, is_integer, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kindlm.testing.script import ModelSpec

_KNOWN = frozenset(
    (
        "model",
        "messages",
        "max_tokens",
        "system",
        "diagnostics",
        "stop_sequences",
        "stream",
        "tools",
        "tool_choice",
        "metadata",
        "thinking",
        "service_tier",
        "container",
        "context_management",
        "mcp_servers",
        "output_config",
        "cache_control",
        "inference_geo",
        "speed",
    )
)
_CURRENT_VERSION = "2026-10-21"
"""Takes no sampling parameters, and fewer kinds of content than the versions before it."""
_VERSIONS = (_CURRENT_VERSION, "2023-06-01", "2023-01-01")
_SAMPLING = ("temperature", "top_p", "top_k")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_ONE_SAMPLING_PARAMETER = re.compile(r"claude-(opus-4-[1-9]\b|(sonnet|haiku)-4-[5-9]\b)")
"""Models that take temperature or top_p, not both."""
_BLOCKS = {
    "user": ("text", "image", "document", "search_result", "tool_result"),
    "assistant": ("text", "document", "thinking", "redacted_thinking", "tool_use"),
}


def refuse(message: str) -> Refusal:
    """A 400 as the API sends it."""
    return Refusal(400, "invalid_request_error", message)


def refusals(
    headers: Mapping[str, str], body: dict[str, Any], model: ModelSpec | None
) -> Iterator[Refusal]:
    """What is wrong with a request, worst first."""
    version = headers.get("anthropic-version")
    if version is None:
        yield refuse("anthropic-version: header is required")
    if version not in _VERSIONS:
        yield refuse(f'anthropic-version: "{version}" is not a valid version')
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield refuse(f"{name}: Field required")
    known = _KNOWN if version == _CURRENT_VERSION else _KNOWN.union(_SAMPLING)
    for name in body:
        if name not in known:
            yield refuse(f"{name}: Extra inputs are not permitted")
    yield from _typed(body["model"], str, "model")
    yield from _typed(body["messages"], list, "messages")
    yield from _parameter_refusals(body, model)
    yield from _system_refusals(body.get("system"))
    yield from _tool_refusals(body)
    if not body["messages"]:
        yield refuse("messages: at least one message is required")
    last = len(body["messages"]) - 1
    for position, message in enumerate(body["messages"]):
        yield from _message_refusals(message, f"messages.{position}", is_last=position == last)
    if version == _CURRENT_VERSION:
        yield from _content_of_current_version(body["messages"])
    yield from _order_refusals(body["messages"], model)


def _content_of_current_version(messages: list[dict[str, Any]]) -> Iterator[Refusal]:
    for position, message in enumerate(messages):
        if message["role"] == "assistant" and _blocks(message, "document"):
            yield refuse(f"messages.{position}: `document` blocks can only be in `user` messages")
        if message["role"] == "user" and any(
            block.get("citations") for block in _blocks(message, "text")
        ):
            yield refuse(
                f"messages.{position}: `citations` are not permitted on text blocks of `user` "
                "messages"
            )


def _typed(value: Any, kind: type, where: str) -> Iterator[Refusal]:
    if not isinstance(value, kind):
        expected = {str: "string", list: "list", dict: "dictionary", bool: "boolean"}[kind]
        yield refuse(f"{where}: Input should be a valid {expected}")


def _parameter_refusals(body: dict[str, Any], model: ModelSpec | None) -> Iterator[Refusal]:
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
    yield from _typed(stops, list, "stop_sequences")
    for position, stop in enumerate(stops):
        yield from _typed(stop, str, f"stop_sequences.{position}")
        if not stop.strip():
            yield refuse("stop_sequences: each stop sequence must contain non-whitespace")


def _system_refusals(system: Any) -> Iterator[Refusal]:
    if system is None or isinstance(system, str):
        return
    yield from _typed(system, list, "system")
    for position, block in enumerate(system):
        yield from _typed(block, dict, f"system.{position}")
        if block.get("type") != "text":
            yield refuse(f"system.{position}.type: Input should be 'text'")
        yield from _text_refusals(block, f"system.{position}", "system")


def _tool_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    tools = body.get("tools") or []
    yield from _typed(tools, list, "tools")
    for position, tool in enumerate(tools):
        yield from _one_tool_refusals(tool, f"tools.{position}.custom")
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield refuse("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is None:
        return
    yield from _typed(choice, dict, "tool_choice")
    if not tools:
        yield refuse("tool_choice: Tool choice may only be specified while providing tools.")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        yield refuse("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if choice["type"] == "tool" and choice.get("name") not in names:
        yield refuse(f"Tool '{choice.get('name')}' not found in provided tools")


def _one_tool_refusals(tool: Any, where: str) -> Iterator[Refusal]:
    yield from _typed(tool, dict, where)
    for name in ("name", "input_schema"):
        if name not in tool:
            yield refuse(f"{where}.{name}: Field required")
    yield from _typed(tool["name"], str, f"{where}.name")
    if not _NAME.match(tool["name"]):
        yield refuse(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    schema = tool["input_schema"]
    yield from _typed(schema, dict, f"{where}.input_schema")
    if "type" not in schema:
        yield refuse(f"{where}.input_schema.type: Field required")
    if schema["type"] != "object":
        yield refuse(f"{where}.input_schema.type: Input should be 'object'")


def _message_refusals(message: Any, where: str, *, is_last: bool) -> Iterator[Refusal]:
    yield from _typed(message, dict, where)
    for name in ("role", "content"):
        if name not in message:
            yield refuse(f"{where}.{name}: Field required")
    for name in message:
        if name not in ("role", "content"):
            yield refuse(f"{where}.{name}: Extra inputs are not permitted")
    yield from _role_refusals(message["role"], where)
    yield from _content_refusals(message, where, is_last=is_last)


def _role_refusals(role: Any, where: str) -> Iterator[Refusal]:
    if role == "system":
        yield refuse(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
            'parameter, not "system" as an input message role.'
        )
    if role not in ("user", "assistant"):
        yield refuse(f"{where}.role: Input should be 'user' or 'assistant'")


def _content_refusals(message: dict[str, Any], where: str, *, is_last: bool) -> Iterator[Refusal]:
    role, content = message["role"], message["content"]
    if not isinstance(content, str):
        yield from _typed(content, list, f"{where}.content")
    if not content and not (is_last and role == "assistant"):
        yield refuse(
            f"{where}: all messages must have non-empty content "
            "except for the optional final assistant message"
        )
    if isinstance(content, str):
        if content and not content.strip():
            yield refuse("messages: text content blocks must contain non-whitespace text")
        return
    for position, block in enumerate(content):
        yield from _block_refusals(block, role, f"{where}.content.{position}")


def _block_refusals(block: Any, role: str, where: str) -> Iterator[Refusal]:
    yield from _typed(block, dict, where)
    kind = block.get("type")
    if kind not in _BLOCKS[role]:
        if kind in ("tool_use", "tool_result"):
            other = "assistant" if kind == "tool_use" else "user"
            yield refuse(f"messages: `{kind}` blocks can only be in `{other}` messages")
        tags = ", ".join(f"'{name}'" for name in _BLOCKS[role])
        yield refuse(
            f"{where}: Input tag '{kind}' found using 'type' "
            f"does not match any of the expected tags: {tags}"
        )
    if kind == "text":
        yield from _text_refusals(block, where, "messages")
    elif kind == "tool_use":
        yield from _tool_use_refusals(block, f"{where}.tool_use")
    elif kind == "tool_result":
        yield from _tool_result_refusals(block, f"{where}.tool_result")


def _text_refusals(block: dict[str, Any], where: str, owner: str) -> Iterator[Refusal]:
    yield from _typed(block.get("text"), str, f"{where}.text.text")
    if not block["text"]:
        yield refuse(f"{owner}: text content blocks must be non-empty")
    if not block["text"].strip():
        yield refuse(f"{owner}: text content blocks must contain non-whitespace text")


def _tool_use_refusals(block: dict[str, Any], where: str) -> Iterator[Refusal]:
    for name in ("id", "name", "input"):
        if name not in block:
            yield refuse(f"{where}.{name}: Field required")
    yield from _typed(block["id"], str, f"{where}.id")
    if not _ID.match(block["id"]):
        yield refuse(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    yield from _typed(block["name"], str, f"{where}.name")
    yield from _typed(block["input"], dict, f"{where}.input")


def _tool_result_refusals(block: dict[str, Any], where: str) -> Iterator[Refusal]:
    if "tool_use_id" not in block:
        yield refuse(f"{where}.tool_use_id: Field required")
    yield from _typed(block["tool_use_id"], str, f"{where}.tool_use_id")
    content = block.get("content", "")
    if not isinstance(content, str):
        yield from _typed(content, list, f"{where}.content")
        for position, part in enumerate(content):
            yield from _typed(part, dict, f"{where}.content.{position}")
            if part.get("type") == "text":
                yield from _text_refusals(part, f"{where}.content.{position}", "messages")


def _order_refusals(messages: list[dict[str, Any]], model: ModelSpec | None) -> Iterator[Refusal]:
    if messages[0]["role"] != "user":
        yield refuse('messages: first message must use the "user" role')
    previous: list[str] = []
    for position, message in enumerate([*messages, None]):
        results = [] if message is None else _leading_results(message)
        missing = [use_id for use_id in previous if use_id not in results]
        if missing:
            yield _unanswered(position - 1, missing)
        if message is None:
            break
        yield from _orphan_refusals(message, position, previous)
        previous = [block["id"] for block in _blocks(message, "tool_use")]
        if len(set(previous)) < len(previous):
            yield refuse("messages: `tool_use` ids must be unique")
    yield from _prefill_refusals(messages[-1], model)


def _leading_results(message: dict[str, Any]) -> list[str]:
    """Ids answered by the tool results that come before anything else."""
    ids: list[str] = []
    for block in message["content"] if isinstance(message["content"], list) else []:
        if block["type"] != "tool_result":
            break
        ids.append(block["tool_use_id"])
    return ids


def _unanswered(position: int, missing: list[str]) -> Refusal:
    return refuse(
        f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(missing)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


def _orphan_refusals(
    message: dict[str, Any], position: int, previous: list[str]
) -> Iterator[Refusal]:
    answered: set[str] = set()
    for block in _blocks(message, "tool_result"):
        use_id = block["tool_use_id"]
        if use_id not in previous:
            yield refuse(
                f"messages.{position}.content: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {use_id}. Each `tool_result` block must have a corresponding `tool_use` "
                "block in the previous message."
            )
        if use_id in answered:
            yield refuse(
                f"messages.{position}.content: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {use_id}"
            )
        answered.add(use_id)


def _prefill_refusals(message: dict[str, Any], model: ModelSpec | None) -> Iterator[Refusal]:
    if message["role"] != "assistant":
        return
    if model is not None and model.reasoning:
        yield refuse(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    text = _text(message["content"])
    if text != text.rstrip():
        yield refuse("messages: final assistant content cannot end with trailing whitespace")


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message["content"]
    if isinstance(content, str):
        return []
    return [block for block in content if block["type"] == kind]


def _text(content: Any) -> str:
    """The text of a message or a tool result."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def read(body: dict[str, Any], raw_body: bytes) -> Conversation:
    """The conversation that an accepted request holds."""
    fingerprint, prompt_tokens = fingerprint_of(raw_body)
    choice = body.get("tool_choice") or {}
    forced = choice["name"] if choice.get("type") == "tool" else None
    tools = [] if choice.get("type") == "none" else body.get("tools") or []
    last = body["messages"][-1]
    return Conversation(
        wire="anthropic",
        model=body["model"],
        system=_text(body.get("system")),
        turns=_turns(body["messages"]).build(),
        offered=tuple(tool["name"] for tool in tools),
        structured=forced,
        forced_tool=forced,
        prefill=_text(last["content"]) if last["role"] == "assistant" else "",
        parallel=not choice.get("disable_parallel_tool_use"),
        max_tokens=body["max_tokens"],
        stop=tuple(body.get("stop_sequences") or ()),
        stream=bool(body.get("stream")),
        stream_usage=True,
        fingerprint=fingerprint,
        prompt_tokens=prompt_tokens,
    )


def _turns(messages: list[dict[str, Any]]) -> TurnsBuilder:
    builder = TurnsBuilder()
    uses: dict[str, dict[str, Any]] = {}
    for message in messages:
        if message["role"] == "assistant":
            builder.add_assistant()
            uses = {use["id"]: use for use in _blocks(message, "tool_use")}
            continue
        for result in _blocks(message, "tool_result"):
            use = uses[result["tool_use_id"]]
            builder.add_call(use["name"], use["input"], _text(result.get("content")))
        text = _text(message["content"])
        if text:
            builder.add_user(text)
    return builder
