"""The `openai-assistants` adapter: servers that speak OpenAI's Assistants API (v2).

OpenAI itself ended the API on 2026-08-26; other servers speak it. Each conversation is a thread,
and each message a run of the assistant on it. Simulated tools of the test answer the functions that
a run requests. kindlm sends OPENAI_API_KEY only if no other `endpoint` is configured.

Names are from https://platform.openai.com/docs/api-reference/runs. Other servers may leave out keys
that OpenAI's server always sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from kindlm.agents.agent_failures import AgentFailure, Who
from kindlm.agents.http_request import last_user_text
from kindlm.agents.reply_parts import ABSENT, UnreadableReply, first_text, lookup
from kindlm.agents.reply_reading import agent_reply
from kindlm.agents.reply_usage import read_spent
from kindlm.agents.served import AssistantId, HttpTarget, Served, ServedAgent, http_target
from kindlm.agents.tool_entries import read_tool_use
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import ascii_json
from kindlm.suite import AgentTarget
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wires import object_or_empty, objects, parse_object

_log = logging.getLogger(__name__)

_OPENAI_URL = "https://api.openai.com/v1"
_KEY = "OPENAI_API_KEY"
_ASSISTANT = "OPENAI_ASSISTANT_ID"
_WORKING = frozenset({"queued", "in_progress", "cancelling"})
_ENDED = frozenset({"failed", "expired", "cancelled", "incomplete"})
_FUNCTION = "function"
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_CANCEL_S = 5.0
_LONGEST_S = 3600.0
"""The timeout of one request; the timeout of the whole message is shorter."""
_PAGE = 100
"""The most entries that the API lists at once."""
_NAME_IT = (
    "Set OPENAI_ASSISTANT_ID, or name it: `assistantId` in kindlm.yaml, `assistant_id` of the agent"
    " in kindlm.toml or of a scenario, in adapter_config or in the context of an EvalView case"
)
_SIMULATE = (
    "Define their results: `tools` of a test in kindlm.yaml, or `mocks.tool_mocks` of an EvalView "
    "case. Scenarios simulate none: there, put the assistant behind a server or a function of yours"
    " that answers its functions"
)

Json = Mapping[str, Any]


class Assistants(Served):
    """Options of servers that speak OpenAI's Assistants API."""

    other_names: ClassVar[Mapping[str, str]] = {"openai-assistant": "openai-assistants"}
    needs_endpoint: ClassVar[bool] = False
    asks_for_tools: ClassVar[bool] = True

    assistant_id: AssistantId = None

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> AssistantsAgent:
        base_url, headers = self._address(target.endpoint, environ), dict(target.headers)
        takes_key = not target.endpoint or _is_openai(target.endpoint)
        if takes_key and "authorization" not in map(str.lower, headers):
            key = environ.get(_KEY, "").strip()
            if not key:
                who, hint = Who(target.id), f"Set {_KEY} in your environment or .env file"
                code, message = ErrorCode.PROVIDER_AUTH_ERROR, f"{who.title}: {_KEY} is not set"
                raise AgentFailure(who.failed(message, hint, code=code))
            headers["Authorization"] = f"Bearer {key}"
        server = http_target(replace(target, endpoint=base_url.rstrip("/"), headers=headers))
        server = replace(server, headers={"OpenAI-Beta": "assistants=v2", **server.headers})
        return AssistantsAgent(server, self, self.assistant_id or environ.get(_ASSISTANT))

    @staticmethod
    def _address(endpoint: str, environ: Mapping[str, str]) -> str:
        return endpoint or environ.get("OPENAI_BASE_URL") or _OPENAI_URL

    def accepts(self) -> str:
        return "application/json"

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        unsent = "of the context, an assistant gets nothing but `assistant_id`"
        has_more = set(request.context or {}) - {"assistant_id"}
        return (*super().not_sent(request), *((unsent,) if has_more else ()))

    def advice(self, endpoint: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """Warn that OpenAI itself no longer serves the API."""
        if _is_openai(self._address(endpoint, environ)):
            yield (
                "ended_upstream",
                "OpenAI ended the Assistants API on 2026-08-26",
                "Name another server that speaks it as `endpoint`, or in OPENAI_BASE_URL",
            )


class AssistantsAgent(ServedAgent):
    """Implements `ports.Agent`; `assistant` is the id for messages whose context has none."""

    def __init__(self, server: HttpTarget, options: Assistants, assistant: str | None) -> None:
        super().__init__(server, options)
        self._assistant = assistant
        self._thread: str | None = None
        self._run: str | None = None
        self._simulated: dict[str, ToolUse] = {}

    async def __aexit__(self, *exception: object) -> None:
        """Cancel a run that is still active, and release the connections."""
        try:
            await self._cancel()
        finally:
            await super().__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Add a message to the thread and run the assistant on it; see `ports.Agent`.

        Once there is a thread, errors are not retryable: the thread would get the message twice.
        """
        assistant = first_text((request.context or {}).get("assistant_id") or self._assistant)
        if assistant is None:
            return Err(self._who.misconfigured("no assistant is configured", _NAME_IT))
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                reply = await self._answered(request, assistant)
        except TimeoutError:
            error = self._who.timed_out(request.timeout_s, retryable=True)
        except AgentFailure as failed:
            error = failed.error
        except UnreadableReply as unreadable:
            error = self._who.unreadable(unreadable, "")
        else:
            return Ok(replace(reply, latency_ms=(time.perf_counter() - begun) * 1000))
        await self._cancel()
        if self._thread is not None:
            error = replace(error, details={**error.details, "retryable": False})
        return Err(error)

    async def _answered(self, request: AgentRequest, assistant: str) -> AgentReply:
        if self._thread is None:
            self._thread = f"/threads/{_quoted_id(await self._object('/threads', {}))}"
        message = {"role": "user", "content": last_user_text(request)}
        await self._object(f"{self._thread}/messages", message)
        run = await self._object(f"{self._thread}/runs", {"assistant_id": assistant})
        at = f"{self._thread}/runs/{_quoted_id(run)}"
        self._run = at
        self._simulated = {}
        pause_s = _FIRST_PAUSE_S
        while (status := str(run.get("status"))) != "completed":
            if status == "requires_action":
                outputs = {"tool_outputs": await self._tool_outputs(request, run, at)}
                run = await self._object(f"{at}/submit_tool_outputs", outputs)
                pause_s = _FIRST_PAUSE_S
            elif status in _WORKING:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                run = await self._object(at)
            else:
                if status in _ENDED:
                    self._run = None
                paths = ("last_error.message", "last_error.code", "incomplete_details.reason")
                why = first_text(*(lookup(run, path) for path in paths)) or "no explanation"
                ended = f"The run of agent {self._who.name!r} ended as {status}"
                failure = self._who.failed(f"{ended}: {self._who.quote(why)}", body=json.dumps(run))
                raise AgentFailure(failure)
        return await self._reply(request, run, at)

    async def _tool_outputs(self, request: AgentRequest, run: Json, at: str) -> list[Json]:
        """Return the simulated results of the functions that a run requests."""
        found = lookup(run, "required_action.submit_tool_outputs.tool_calls")
        calls = [read_tool_use(it).call for it in objects(found) if isinstance(it.get("id"), str)]
        if not calls:
            raise UnreadableReply("its run requires an action that is not a function call")
        if request.answer_tool is None:
            names = ", ".join(dict.fromkeys(self._who.quote(call.name) for call in calls))
            asked = f"{self._who.title} requests the results of its functions ({names})"
            message = f"{asked}, but the test simulates no tools"
            raise AgentFailure(self._who.failed(message, _SIMULATE, body=json.dumps(run)))
        # The run may also have called tools of the server.
        done = [call for step in await self._steps(at) for call in _calls(step)]
        of_server = sum(call.get("type") != _FUNCTION for call in done)
        answers = await asyncio.gather(*(request.answer_tool(call, of_server) for call in calls))
        answered = {call.id: answer for call, answer in zip(calls, answers, strict=True)}
        self._simulated |= {call_id: answer.use for call_id, answer in answered.items()}
        return [{"tool_call_id": it, "output": answer.text} for it, answer in answered.items()]

    async def _steps(self, at: str) -> list[Json]:
        """Return the steps of a run in the order of time, which not all servers keep."""
        include = "step_details.tool_calls[*].file_search.results[*].content"
        listed = await self._list(f"{at}/steps", order="asc", **{"include[]": include})

        def created(step: Json) -> float:
            found = step.get("created_at")
            return found if isinstance(found, int | float) else 0

        return sorted(listed, key=created)

    async def _reply(self, request: AgentRequest, run: Json, at: str) -> AgentReply:
        steps, run_id = await self._steps(at), run.get("id")
        messages = await self._list(f"{self._thread}/messages", order="desc", run_id=run_id)
        of_run = (
            message
            for message in messages  # the newest first
            if message.get("role") == "assistant" and message.get("run_id") in (None, run_id)
        )
        texts = (
            lookup(part, path)
            for part in objects(next(of_run, {}).get("content"))
            for path in ("text.value", "refusal")
        )
        self._run = None
        return agent_reply(
            "".join(text for text in texts if isinstance(text, str)),
            [self._tool_use(step, call) for step in steps for call in _calls(step)],
            read_spent(run),
            warnings=self._options.not_sent(request),
            raw=json.dumps({"run": run, "steps": steps, "messages": messages}),
            reports_tools=True,
        )

    def _tool_use(self, step: Json, call: Json) -> ToolUse:
        """Return a call of a step: of a function, or of a tool that is named by its type."""
        use, kind = read_tool_use(call), first_text(call.get("type")) or UNNAMED
        if use.call.id in self._simulated:
            return self._simulated[use.call.id]
        content = call.get(kind)
        details, response = object_or_empty(content), content
        if kind == _FUNCTION or _FUNCTION in call:
            details = object_or_empty(call.get(_FUNCTION))
            response = details.get("output")
        elif kind == "code_interpreter":
            arguments, response = {"input": details.get("input")}, details.get("outputs")
            use = replace(use, call=ToolCall(use.call.id, kind, arguments))
        else:
            use = replace(use, call=ToolCall(use.call.id, kind, {}))
            response = details.get("results") if kind == "file_search" else content
        failure = lookup(step, "last_error.message")
        if response is None and isinstance(failure, str):
            response = {"error": failure}
        return replace(use, response=response)

    async def _object(self, path: str, body: Json | None = None, **query: Any) -> dict[str, Any]:
        """Return the object in an answer; raises `UnreadableReply` for anything else."""
        url = f"{self._endpoint}{path}?{urlencode(query)}" if query else f"{self._endpoint}{path}"
        method, content = "GET", None
        if body is not None:
            method, content = "POST", ascii_json(body)
        return parse_object((await self.ask(method, url, content, _LONGEST_S)).text)

    async def _list(self, at: str, **query: Any) -> list[dict[str, Any]]:
        """Return the objects of a list; raises `UnreadableReply` for others, or a second page."""
        page = await self._object(at, limit=_PAGE, **query)
        data = page.get("data")
        if not isinstance(data, list):
            raise UnreadableReply(f"the list at {at} has no `data`")
        if page.get("has_more") is True:
            raise UnreadableReply(f"the list at {at} has more than {_PAGE} entries")
        items = objects(data)
        if items != data:
            raise UnreadableReply(f"the list at {at} holds something that is not an object")
        return [dict(item) for item in items]

    async def _cancel(self) -> None:
        """Cancel a run that may be active, since it costs money; failures are logged."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._object(f"{run}/cancel", {})
        except (TimeoutError, AgentFailure, UnreadableReply):
            _log.warning("A run of agent %r could not be cancelled", self._who.name)


def _quoted_id(created: Json) -> str:
    """Return the id of an object, quoted for a path, since it comes from the server."""
    found = first_text(created.get("id"))
    if found is None:
        raise UnreadableReply("the created object has no `id`")
    return quote(found, safe="")


def _is_openai(url: str) -> bool:
    return f"{url}/".startswith("https://api.openai.com/")


def _calls(step: Json) -> list[Json]:
    """Return the calls of a step, and an empty one if there may be calls that cannot be read."""
    found = lookup(step, "step_details.tool_calls")
    calls, kinds = objects(found), (step.get("type"), lookup(step, "step_details.type"))
    is_message = found is ABSENT and "message_creation" in kinds
    return calls if is_message or calls == found else [*calls, {}]
