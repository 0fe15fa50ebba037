"""Google's Agent Development Kit: agents, apps and runners, and the events of their runs.

An agent runs in an `InMemoryRunner`. Each conversation is a session, which carries the conversation
over. An agent in an `AgentTool` has its own runner, whose events ADK does not return: a plugin,
which that runner shares, sees them. Events that a function returns may be only the last ones, so
they do not show that there was no call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, one_model, total
from kindlm.agents.http_request import last_user_text
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_reading import FailedReply
from kindlm.plugins import AgentReply, AgentRequest, Framework, Usage
from kindlm.wires import extras_from

_PACKAGE = "google.adk"
_USER = "kindlm"
_INNER = (
    "one agent was used as a tool by another, and ADK does not show which tools it called. Leave "
    "its `include_plugins` as it is, make it one of the `sub_agents`, or use `telemetry: otlp`"
)
_WAITS = "the agent waits for a confirmation or a credential: the answer is incomplete"
_MAY_BE_INNER = (
    "a call with nothing but a `request` may be a call of an agent used as a tool, and the events "
    "of ADK do not show which tools it called. Give kindlm the agent itself"
)


@dataclass(slots=True)
class _Seen:
    """What the plugin sees while an agent answers."""

    events: list[Any] = field(default_factory=list)
    unseen: str | None = None


_SEEN: ContextVar[_Seen | None] = ContextVar("kindlm_adk_seen", default=None)


class GoogleADK(Framework):
    """Talks to agents, and reads events."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._unseen: str | None = None

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "BaseAgent", "BaseNode", "App", "Runner")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        if self._runner is None:
            self._runner = _runner(agent)
            _watch(self._runner)
            await self._runner.session_service.create_session(
                app_name=self._runner.app_name, user_id=_USER, session_id=request.conversation
            )
        part = {"text": last_user_text(request)}
        content = import_module("google.genai.types").Content(role="user", parts=[part])
        run = self._runner.run_async(
            user_id=_USER, session_id=request.conversation, new_message=content
        )
        seen = _Seen()
        _SEEN.set(seen)
        async for event in run:
            if all(event.id != known.id for known in seen.events):
                seen.events.append(event)
        self._unseen = seen.unseen
        return seen.events

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        events = result if isinstance(result, list) else [result]
        if not events or not all(is_a(event, _PACKAGE, "Event") for event in events):
            return None
        whole = [event for event in events if not event.partial]
        if whole and whole[-1].error_code:
            raise FailedReply(f"{whole[-1].error_code}: {whole[-1].error_message}")
        usages = [event.usage_metadata for event in whole if event.usage_metadata is not None]
        models = [event.model_version for event in whole if event.model_version]
        calls = ReportedCalls()
        for event in whole:
            for call in event.get_function_calls():
                calls.add(call.name, call.id, as_json(call.args))
            for answer in event.get_function_responses():
                calls.answer(answer.id, answer.name, as_json(answer.response))
        uses, unseen = calls.uses, self._unseen
        if self._runner is None and any([*use.call.arguments] == ["request"] for use in uses):
            unseen = _MAY_BE_INNER
        # ADK itself asks for confirmations and credentials by calls.
        is_asking = any(
            use.call.name.startswith("adk_request_") and use.response is None for use in uses
        )
        return AgentReply(
            text=_text(whole),
            raw=compact_json([as_json(event) for event in whole]),
            tool_uses=uses,
            usage=total([_usage(counts) for counts in usages]),
            model=one_model(models),
            reports_tools=self._runner is not None or bool(uses) or None,
            unseen=unseen,
            warnings=(_WAITS,) if is_asking else (),
        )


def _runner(agent: Any) -> Any:
    if is_a(agent, _PACKAGE, "Runner"):
        return agent
    make = import_module("google.adk.runners").InMemoryRunner
    if is_a(agent, _PACKAGE, "App"):
        return make(app=agent)
    return make(agent) if is_a(agent, _PACKAGE, "BaseAgent") else make(node=agent)


def _watch(runner: Any) -> None:
    """Add the plugin to a runner, before plugins that may end the callbacks of those after them."""
    plugins = runner.plugin_manager.plugins
    if _plugin() not in plugins:
        plugins.insert(0, _plugin())


@cache
def _plugin() -> Any:
    base = import_module("google.adk.plugins.base_plugin").BasePlugin
    watching = {"on_event_callback": _on_event, "before_tool_callback": _before_tool}
    return type("Watching", (base,), watching)(name="kindlm")


async def _on_event(_plugin: Any, *, invocation_context: Any, event: Any) -> None:
    del invocation_context
    if (seen := _SEEN.get()) is not None:
        seen.events.append(event)


async def _before_tool(_plugin: Any, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
    del tool_args, tool_context
    seen = _SEEN.get()
    if seen is not None and is_a(tool, _PACKAGE, "AgentTool") and not tool.include_plugins:
        seen.unseen = _INNER


def _text(events: Sequence[Any]) -> str:
    """Return the text of the last final response, without thoughts."""
    texts = [
        "".join(part.text or "" for part in event.content.parts or () if not part.thought)
        for event in events
        if event.content is not None and event.is_final_response()
    ]
    return next(filter(None, reversed(texts)), "")


def _usage(counts: Any) -> Usage:
    """Return the tokens of an answer; thoughts count as output, cached tokens also as input."""
    written = (counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0)
    return Usage(counts.prompt_token_count, written, extras_from(counts.cached_content_token_count))
