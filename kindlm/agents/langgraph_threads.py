"""Conversations with LangGraph's own server: each is a thread, each message a run in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from kindlm.agents import failures
from kindlm.agents.http_exchange import HttpExchange, HttpReply
from kindlm.agents.http_request import context_with_history, last_user_text
from kindlm.agents.json_values import lookup
from kindlm.agents.langgraph_options import GraphSettings
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentRequest
from kindlm.strict_json import parse_json

__all__ = ["Threads", "run_input"]

_ASSISTANT = "assistant_id"
_HISTORY = "conversation_history"
_HINT = "Check that LangGraph's own server is at the `endpoint`; else set `mode: standard`"


class Threads:
    """The thread of one conversation; it is made with the first message."""

    def __init__(self, settings: GraphSettings, exchange: HttpExchange) -> None:
        self._settings = settings
        self._exchange = exchange
        self._base = _base(settings.target.endpoint)
        self._thread: str | None = None

    async def run(self, request: AgentRequest) -> Result[HttpReply]:
        """Send a message, and return what the run streams; its latency includes a new thread's."""
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._run(request)
        except TimeoutError:
            return Err(failures.of_timeout(self._settings.target.who, request.timeout_s))

    def leave(self, request: AgentRequest) -> None:
        """Leave a thread in which a run failed: nobody knows what is in it.

        A new one is told what was said before. Where a graph takes no messages it can't be told,
        and the thread goes on.
        """
        if self._settings.input_key is None or _HISTORY not in context_with_history(request):
            self._thread = None

    async def _run(self, request: AgentRequest) -> Result[HttpReply]:
        waited_ms, is_new = 0.0, self._thread is None
        if is_new:
            made = await self._make(request)
            if isinstance(made, Err):
                return made
            waited_ms = made.value
        assert self._thread is not None
        context = request.context or {}
        body = {
            "assistant_id": context.get(_ASSISTANT) or self._settings.assistant,
            "input": run_input(request, self._settings.input_key, is_new=is_new),
            "stream_mode": ["values", "updates"],
            "on_disconnect": "cancel",  # nobody would hear the rest of it
        }
        if self._settings.config is not None:
            body["config"] = self._settings.config
        url = f"{self._base}/threads/{quote(self._thread, safe='')}/runs/stream"
        answer = await self._exchange.post(body, request.timeout_s, url)
        if isinstance(answer, Err):
            return answer
        return Ok(replace(answer.value, latency_ms=answer.value.latency_ms + waited_ms))

    async def _make(self, request: AgentRequest) -> Result[float]:
        """Make a thread; return how long that took in milliseconds."""
        about = {"metadata": {"conversation_id": request.conversation}}
        answer = await self._exchange.post(about, request.timeout_s, f"{self._base}/threads")
        if isinstance(answer, Err):
            return answer
        got = answer.value
        try:
            thread = lookup(parse_json(got.text), "thread_id")
        except ValueError:
            thread = None
        if not isinstance(thread, str) or not thread:
            who, reason = self._settings.target.who, "it has no `thread_id`"
            return Err(failures.of_reply(who, reason, got.text, got.status, _HINT))
        self._thread = thread
        return Ok(got.latency_ms)


def run_input(request: AgentRequest, key: str | None, *, is_new: bool) -> dict[str, Any]:
    """Return the input of a run: the message, and beside it the values of its context.

    A thread knows what was said in it; one that is new is told.
    """
    beside = context_with_history(request)
    earlier = beside.pop(_HISTORY, [])
    beside.pop(_ASSISTANT, None)
    text = last_user_text(request)
    if key is not None:
        return {key: text, **beside}
    return {"messages": [*(earlier if is_new else ()), {"role": "user", "content": text}], **beside}


def _base(endpoint: str) -> str:
    """Return the address of the server; the endpoint may name the threads on it."""
    parts = urlsplit(endpoint)
    path = parts.path.partition("/threads")[0].rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
