"""The `openai-assistants` adapter: an assistant of OpenAI's Assistants API (v2).

Each conversation is a thread, and each message a run of the assistant on it. Functions that the
run asks for are answered by what the test simulates. `endpoint` is the base URL of the API, by
default OpenAI's own or what OPENAI_BASE_URL says; the key is OPENAI_API_KEY, which no other server
gets: one that is configured takes its credentials from `headers`. The assistant is named by
`assistant_id` of the message's context, else by the option `assistantId`, else by
OPENAI_ASSISTANT_ID.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from kindlm.agents import failures
from kindlm.agents.http_request import last_user_text, request_warnings
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.openai_assistants_api import (
    OPENAI_URL,
    UNANSWERED,
    AssistantsApi,
    is_openai,
    path,
)
from kindlm.agents.openai_assistants_reading import (
    answer_text,
    asked_calls,
    has_own_tools,
    in_order,
    own_calls,
    tool_uses,
    why_ended,
)
from kindlm.agents.reply_reading import UnreadableReply, read_model, read_usage
from kindlm.agents.tool_entries import call_warnings
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Role, ToolUse, Usage

__all__ = ["AssistantsAgent", "assistants_agent"]

_log = logging.getLogger(__name__)

_OPTIONS = ("assistantId",)
_KEY = "OPENAI_API_KEY"
_WORKING = frozenset({"queued", "in_progress", "cancelling"})
_ENDED = frozenset({"failed", "expired", "cancelled", "incomplete"})
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_CANCEL_S = 5.0


def assistants_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[AssistantsAgent]:
    """Make an agent for one conversation."""
    del root
    base_url = target.endpoint or environ.get("OPENAI_BASE_URL") or OPENAI_URL
    checked = http_target(replace(target, endpoint=base_url))
    if isinstance(checked, Err):
        return checked
    reached = checked.value
    assistant = target.options.get("assistantId")
    error = unknown_option(target, _OPTIONS)
    if error is None and not (assistant is None or (isinstance(assistant, str) and assistant)):
        error = failures.bad_option(reached.who, "`assistantId` is no id of an assistant")
    ambient = is_openai(target.endpoint)
    authorized = any(name.lower() == "authorization" for name in reached.headers)
    key = environ.get(_KEY, "").strip() if ambient and not authorized else None
    if error is None and key is not None:
        error = _unusable_key(reached, key)
    if error is not None:
        return Err(error)
    secrets = {*reached.who.secrets, key} if key else reached.who.secrets
    who = replace(reached.who, secrets=frozenset(secrets))
    api = AssistantsApi(who, base_url, key, reached.headers, ambient=ambient)
    return Ok(AssistantsAgent(who, api, assistant or environ.get("OPENAI_ASSISTANT_ID")))


class AssistantsAgent:
    """Implements `ports.Agent`; `assistant` is the id where a message's context names none."""

    def __init__(self, who: failures.Who, api: AssistantsApi, assistant: str | None) -> None:
        self._who = who
        self._api = api
        self._assistant = assistant
        self._thread: str | None = None
        self._said = 0
        self._posted = 0
        self._may_be_posted = False
        self._run: str | None = None
        self._usage = Usage(0, 0)
        self._simulated: dict[str, ToolUse] = {}

    async def __aenter__(self) -> Self:
        """Begin a conversation; its thread is made with the first message."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Cancel what still runs, and close the connections."""
        await self._cancel()
        await self._api.aclose()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Add a message to the thread and run the assistant on it; see `ports.Agent`.

        Sent a second time, it is not added again if it is there, and a run that was lost sight of
        is found again.
        """
        assistant = (request.context or {}).get("assistant_id") or self._assistant
        if not isinstance(assistant, str) or not assistant:
            return Err(_no_assistant(self._who))
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                told = await self._answered(request, assistant)
        except TimeoutError:
            await self._cancel()
            # The run may not have ended yet, and a thread takes one at a time.
            return Err(failures.of_timeout(self._who, request.timeout_s, retryable=False))
        except UNANSWERED as raised:
            return Err(self._api.error_of(raised))
        if isinstance(told, Err):
            return told
        latency_ms = (time.perf_counter() - begun) * 1000
        return Ok(replace(told.value, latency_ms=latency_ms))

    async def _answered(self, request: AgentRequest, assistant: str) -> Result[AgentReply]:
        thread = await self._with_message(request)
        if self._run is None:
            run = await self._api.post(path("threads", thread, "runs"), {"assistant_id": assistant})
            self._run = _id(run)
        else:
            run = await self._api.get(path("threads", thread, "runs", self._run))
        pause_s = _FIRST_PAUSE_S
        while True:
            status = str(run.get("status"))
            if status == "completed":
                return Ok(await self._reply(request, run, thread))
            if status == "requires_action":
                if request.answer_tool is None:
                    return Err(self._nobody_answers(run))
                run = await self._answer_tools(request, run, thread)
                pause_s = _FIRST_PAUSE_S
                continue
            if status in _ENDED:
                self._over(run)
                return Err(self._not_completed(run))
            if status not in _WORKING:
                raise UnreadableReply(f"its run has the unknown status {status!r}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            run = await self._api.get(path("threads", thread, "runs", self._run))

    async def _with_message(self, request: AgentRequest) -> str:
        """Return the thread once the new message is on it."""
        if self._thread is None:
            self._thread = _id(await self._api.post("/threads", {}))
        users = sum(message.role is Role.USER for message in request.messages)
        if self._said < users:
            messages = path("threads", self._thread, "messages")
            if not (self._may_be_posted and await self._has_new_message(messages)):
                self._may_be_posted = True
                message = {"role": "user", "content": last_user_text(request)}
                await self._api.post(messages, message)
            self._may_be_posted = False
            self._posted += 1
            self._said = users
        return self._thread

    async def _has_new_message(self, messages: str) -> bool:
        """Tell whether a message is there although the answer to it was lost."""
        listed = await self._api.list(messages, order="desc")
        return len([1 for message in listed if message.get("role") == "user"]) > self._posted

    async def _answer_tools(
        self, request: AgentRequest, run: Mapping[str, Any], thread: str
    ) -> dict[str, Any]:
        assert request.answer_tool is not None
        assert self._run is not None
        calls = asked_calls(run)
        own = own_calls(await self._steps(thread)) if has_own_tools(run) else 0
        answers = await asyncio.gather(*(request.answer_tool(call, own) for call in calls))
        outputs = []
        for call, answer in zip(calls, answers, strict=True):
            self._simulated[call.id] = answer.use
            outputs.append({"tool_call_id": call.id, "output": answer.text})
        submit = path("threads", thread, "runs", self._run, "submit_tool_outputs")
        return await self._api.post(submit, {"tool_outputs": outputs})

    async def _steps(self, thread: str) -> list[Mapping[str, Any]]:
        assert self._run is not None
        listed = await self._api.list(
            path("threads", thread, "runs", self._run, "steps"),
            order="asc",
            **{"include[]": "step_details.tool_calls[*].file_search.results[*].content"},
        )
        return in_order(listed)

    async def _reply(
        self, request: AgentRequest, run: Mapping[str, Any], thread: str
    ) -> AgentReply:
        assert self._run is not None
        steps = await self._steps(thread)
        messages = await self._api.list(
            path("threads", thread, "messages"), order="desc", run_id=self._run
        )
        text = answer_text(messages, self._run)
        self._over(run)
        uses, usage = tool_uses(steps, self._simulated), self._usage
        self._usage, self._simulated = Usage(0, 0), {}
        return AgentReply(
            text=text,
            raw=json.dumps({"run": run, "steps": steps, "messages": messages}),
            latency_ms=0.0,
            tool_uses=uses,
            usage=usage,
            model=read_model(run),
            warnings=(*_warnings(request), *call_warnings(uses)),
            reports_tools=True,
        )

    def _over(self, run: Mapping[str, Any]) -> None:
        """Take note that a run has ended: what it used counts, however it ended."""
        self._run = None
        self._usage += read_usage(run)

    def _nobody_answers(self, run: Mapping[str, Any]) -> KindlmError:
        names = ", ".join(dict.fromkeys(self._who.quote(call.name) for call in asked_calls(run)))
        return failures.failed(
            self._who,
            ErrorCode.PROVIDER_API_ERROR,
            f"{self._who.title} asks for the answers of its functions ({names}),"
            " and the test simulates no tools",
            "Say what they answer: `tools` of a test in kindlm.yaml, or `mocks.tool_mocks` of an "
            "EvalView case. Scenarios simulate none: there, put the assistant behind a server or a "
            "function of yours that answers its functions",
            body=json.dumps(run),
        )

    def _not_completed(self, run: Mapping[str, Any]) -> KindlmError:
        last_error = run.get("last_error")
        reason = last_error.get("code") if isinstance(last_error, dict) else None
        code = ErrorCode.PROVIDER_API_ERROR
        if reason == "rate_limit_exceeded":
            code = ErrorCode.PROVIDER_RATE_LIMIT
        elif run["status"] == "expired":
            code = ErrorCode.PROVIDER_TIMEOUT
        return failures.failed(
            self._who,
            code,
            f"The run of agent {self._who.name!r} ended as {run['status']}:"
            f" {self._who.quote(why_ended(run))}",
            retryable=reason in ("rate_limit_exceeded", "server_error"),
            body=json.dumps(run),
        )

    async def _cancel(self) -> None:
        """Cancel the run that may go on, as it would be paid for; what goes wrong is logged."""
        if self._run is None or self._thread is None:
            return
        run, self._run = self._run, None
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._api.post(path("threads", self._thread, "runs", run, "cancel"), {})
        except (TimeoutError, *UNANSWERED):
            _log.warning("A run of agent %r could not be cancelled", self._who.name)


def _id(made: Mapping[str, Any]) -> str:
    found = made.get("id")
    if not isinstance(found, str) or not found:
        raise UnreadableReply("what was made has no `id`")
    return found


def _warnings(request: AgentRequest) -> Sequence[str]:
    warnings = request_warnings(request, says_system=False)
    unsent = [key for key in request.context or {} if key != "assistant_id"]
    if unsent:
        warnings = (*warnings, "of the context, an assistant gets nothing but `assistant_id`")
    return warnings


def _unusable_key(reached: HttpTarget, key: str) -> KindlmError | None:
    if key and key.isascii() and key.isprintable():
        return None
    problem = "has characters no key has" if key else "is not set"
    return failures.failed(
        reached.who,
        ErrorCode.PROVIDER_AUTH_ERROR,
        f"{reached.who.title}: {_KEY} {problem}",
        f"Set {_KEY} in your environment or .env file",
    )


def _no_assistant(who: failures.Who) -> KindlmError:
    return failures.bad_option(
        who,
        "nothing says which assistant it is",
        "Set OPENAI_ASSISTANT_ID, or name it: `assistantId` in kindlm.yaml, `assistant_id` of the"
        " agent in kindlm.toml or of a scenario, in adapter_config or in the context of an EvalView"
        " case",
    )
