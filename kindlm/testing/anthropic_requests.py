"""Messages requests: what the API refuses, and what an accepted one means.

The refusals follow the API's own, with the same status, type and wording. They are generators:
the first thing wrong is what the client hears, and later checks may rely on earlier ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.anthropic_parameters import (
    parameter_refusals,
    system_refusals,
    tool_refusals,
)
from kindlm.testing.anthropic_refusals import refuse, text_refusals, typed
from kindlm.testing.conversation import Conversation, TurnsBuilder, fingerprint_of
from kindlm.testing.wire import Refusal

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
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_BLOCKS = {
    "user": ("text", "image", "document", "search_result", "tool_result"),
    "assistant": ("text", "document", "thinking", "redacted_thinking", "tool_use"),
}


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
    yield from typed(body["model"], str, "model")
    yield from typed(body["messages"], list, "messages")
    yield from parameter_refusals(body, model)
    yield from system_refusals(body.get("system"))
    yield from tool_refusals(body)
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


def _message_refusals(message: Any, where: str, *, is_last: bool) -> Iterator[Refusal]:
    yield from typed(message, dict, where)
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
        yield from typed(content, list, f"{where}.content")
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
    yield from typed(block, dict, where)
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
        yield from text_refusals(block, where, "messages")
    elif kind == "tool_use":
        yield from _tool_use_refusals(block, f"{where}.tool_use")
    elif kind == "tool_result":
        yield from _tool_result_refusals(block, f"{where}.tool_result")


def _tool_use_refusals(block: dict[str, Any], where: str) -> Iterator[Refusal]:
    for name in ("id", "name", "input"):
        if name not in block:
            yield refuse(f"{where}.{name}: Field required")
    yield from typed(block["id"], str, f"{where}.id")
    if not _ID.match(block["id"]):
        yield refuse(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    yield from typed(block["name"], str, f"{where}.name")
    yield from typed(block["input"], dict, f"{where}.input")


def _tool_result_refusals(block: dict[str, Any], where: str) -> Iterator[Refusal]:
    if "tool_use_id" not in block:
        yield refuse(f"{where}.tool_use_id: Field required")
    yield from typed(block["tool_use_id"], str, f"{where}.tool_use_id")
    content = block.get("content", "")
    if not isinstance(content, str):
        yield from typed(content, list, f"{where}.content")
        for position, part in enumerate(content):
            yield from typed(part, dict, f"{where}.content.{position}")
            if part.get("type") == "text":
                yield from text_refusals(part, f"{where}.content.{position}", "messages")


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
